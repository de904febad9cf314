import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** One push consumer that acknowledges everything and tells each batch when its messages came. */
abstract class Receiver implements AutoCloseable {
    private static final long LOOK_MS = 5;

    /** Of batches that are not ours: an earlier run's. */
    final AtomicLong foreign = new AtomicLong();
    private final Map<Long, Batch> batches = new ConcurrentHashMap<>();

    @Override
    public abstract void close() throws Exception;

    final void expect(Batch batch) {
        batches.put(batch.id, batch);
    }

    /** A message has come, at {@code micros}. */
    final void received(ByteBuffer body, long micros) {
        Batch batch = body.remaining() < Batch.BODY_BYTES_MIN ? null : batches.get(body.getLong());
        if (batch == null) {
            foreign.incrementAndGet();
        } else {
            batch.delivered(body.getInt(), body.getLong(), micros);
        }
    }

    /**
     * Wait for all that was acknowledged; give up when nothing has come for some seconds, or was to come.
     *
     * @param dueMs when the last is due
     */
    final void await(Batch batch, long dueMs, double patienceSeconds) throws InterruptedException {
        long patienceMs = (long) (patienceSeconds * 1_000);
        while (batch.missing() > 0) {
            long lastMs = Math.max(dueMs, batch.lastMicros.get() / 1_000);
            if (System.currentTimeMillis() > lastMs + patienceMs) {
                return;
            }
            Thread.sleep(LOOK_MS);
        }
    }
}
