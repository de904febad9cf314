import java.io.IOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntToLongFunction;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;

/** One producer that keeps up to so many sends without an answer. */
final class Sender implements AutoCloseable {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Producer producer;
    private final String topic;
    private final int inflight;
    private final int bodyBytes;
    private final Semaphore free;

    Sender(Options options) throws ClientException {
        this.topic = options.topic;
        this.inflight = options.inflight;
        this.bodyBytes = options.bodyBytes;
        this.free = new Semaphore(inflight);
        this.producer = provider.newProducerBuilder()
            .setClientConfiguration(options.configuration())
            .setTopics(topic)
            .build();
    }

    /**
     * Send a batch, until it is all sent or the time is over, and wait for the answers.
     *
     * @param perSecond 0 is as fast as answers come
     * @param due when message i is due, asked for when it is sent
     * @return messages acknowledged a second
     */
    double send(Batch batch, double perSecond, double secondsMax, IntToLongFunction due) throws InterruptedException {
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

    private void send(Batch batch, int number, long dueMs) {
        Message message = provider.newMessageBuilder()
            .setTopic(topic)
            .setBody(batch.body(number, dueMs, bodyBytes))
            .setDeliveryTimestamp(dueMs)
            .build();
        long before = System.nanoTime();
        producer.sendAsync(message).whenComplete((receipt, error) -> {
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

    @Override
    public void close() throws IOException {
        producer.close();
    }
}
