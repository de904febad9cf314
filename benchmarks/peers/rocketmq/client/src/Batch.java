import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Messages that are sent and counted together, and what became of each. A body begins with the batch's id, the
 * message's number in it and when it is due, so that what an earlier run has left in the topic is told apart.
 */
final class Batch {
    static final int BODY_BYTES_MIN = Long.BYTES + Integer.BYTES + Long.BYTES;
    private static final byte[] FILL = new byte[1 << 20];

    static {
        new Random(1).nextBytes(FILL);
    }

    final long id = ThreadLocalRandom.current().nextLong();
    final int count;
    /** From the call of send to its answer; negative where it failed, 0 where there is no answer yet. */
    final long[] ackNanos;
    final AtomicInteger acked = new AtomicInteger();
    final AtomicInteger failed = new AtomicInteger();
    final AtomicInteger ackedLate = new AtomicInteger();
    final AtomicReference<String> failure = new AtomicReference<>("");
    final AtomicInteger received = new AtomicInteger();
    final AtomicInteger duplicates = new AtomicInteger();
    final AtomicInteger early = new AtomicInteger();
    final AtomicLong lastMicros = new AtomicLong();
    private final AtomicIntegerArray seen;
    private final long[] lateMicros;

    Batch(int count) {
        this.count = count;
        this.ackNanos = new long[count];
        this.seen = new AtomicIntegerArray(count);
        this.lateMicros = new long[count];
    }

    static long nowMicros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    byte[] body(int number, long dueMs, int bytes) {
        byte[] body = new byte[bytes];
        System.arraycopy(FILL, ThreadLocalRandom.current().nextInt(FILL.length - bytes), body, 0, bytes);
        ByteBuffer.wrap(body).putLong(id).putInt(number).putLong(dueMs);
        return body;
    }

    void answered(int number, long dueMs, long nanos, Throwable error) {
        ackNanos[number] = error == null ? nanos : -nanos;
        if (error == null) {
            acked.incrementAndGet();
            if (System.currentTimeMillis() >= dueMs) {
                ackedLate.incrementAndGet();
            }
        } else {
            failed.incrementAndGet();
            failure.compareAndSet("", String.valueOf(error));
        }
    }

    void delivered(int number, long dueMs, long micros) {
        lastMicros.accumulateAndGet(micros, Math::max);
        if (micros < dueMs * 1_000) {
            early.incrementAndGet();
        }
        if (seen.getAndIncrement(number) > 0) {
            duplicates.incrementAndGet();
            return;
        }
        lateMicros[number] = micros - dueMs * 1_000;
        received.incrementAndGet(); // after its lateness: who reads this number sees the other
    }

    /** Acknowledged and not delivered. One whose sending failed may come or not. */
    int missing() {
        if (received.get() < acked.get()) {
            return acked.get() - received.get();
        }
        int missing = 0;
        for (int i = 0; i < count; i++) {
            if (ackNanos[i] > 0 && seen.get(i) == 0) {
                missing++;
            }
        }
        return missing;
    }

    double[] sortedAckMs() {
        return Arrays.stream(ackNanos).filter(n -> n > 0).sorted().mapToDouble(n -> n / 1e6).toArray();
    }

    double[] sortedLateMs() {
        double[] late = new double[received.get()];
        int at = 0;
        for (int i = 0; i < count && at < late.length; i++) {
            if (seen.get(i) > 0) {
                late[at++] = lateMicros[i] / 1e3;
            }
        }
        Arrays.sort(late);
        return late;
    }
}
