import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntToLongFunction;

/** One producer that keeps up to so many sends without an answer. */
abstract class Sender implements AutoCloseable {
    private final int inflight;
    private final int bodyBytes;
    private final Semaphore free;

    Sender(Options options) {
        this.inflight = options.inflight;
        this.bodyBytes = options.bodyBytes;
        this.free = new Semaphore(inflight);
    }

    /** Send one message; {@code answered} gets null when it is acknowledged, else why it is not. */
    abstract void send(byte[] body, long dueMs, Consumer<Throwable> answered) throws Exception;

    @Override
    public abstract void close() throws Exception;

    /**
     * Send a batch, until it is all sent or the time is over, and wait for the answers.
     *
     * @param perSecond 0 is as fast as answers come
     * @param due when message i is due, asked for when it is sent
     * @return messages acknowledged a second
     */
    double send(Batch batch, double perSecond, double secondsMax, IntToLongFunction due) throws Exception {
        long start = System.nanoTime();
        for (int i = 0; i < batch.count && System.nanoTime() - start < secondsMax * 1e9; i++) {
            if (perSecond > 0) {
                parkUntil(start + (long) (i * 1e9 / perSecond));
            }
            free.acquire();
            send(batch, i, due.applyAsLong(i));
        }
        drain();
        return batch.acked.get() / ((System.nanoTime() - start) / 1e9);
    }

    private void send(Batch batch, int number, long dueMs) throws Exception {
        byte[] body = batch.body(number, dueMs, bodyBytes);
        long before = System.nanoTime();
        send(body, dueMs, error -> {
            try {
                batch.answered(number, dueMs, System.nanoTime() - before, error);
            } finally {
                free.release();
            }
        });
    }

    /** Wait until everything is answered. */
    private void drain() throws InterruptedException {
        free.acquire(inflight);
        free.release(inflight);
    }

    private static void parkUntil(long nanoTime) {
        for (long left = nanoTime - System.nanoTime(); left > 0; left = nanoTime - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
