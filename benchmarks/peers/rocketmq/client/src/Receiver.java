import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** One push consumer that acknowledges everything and tells each batch when its messages came. */
final class Receiver implements AutoCloseable {
    private static final int CACHE_BYTES = 1 << 30;
    private static final long LOOK_MS = 5;

    /** Of batches that are not ours: an earlier run's. */
    final AtomicLong foreign = new AtomicLong();
    private final Map<Long, Batch> batches = new ConcurrentHashMap<>();
    private final PushConsumer consumer;

    Receiver(Options options) throws ClientException {
        // Of messages that are not acknowledged yet: at the bound the client waits a whole second, and each
        // acknowledgement searches them one after the other.
        int cache = options.cache;
        this.consumer = ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(options.configuration())
            .setConsumerGroup(options.group)
            .setSubscriptionExpressions(Map.of(options.topic, FilterExpression.SUB_ALL))
            .setConsumptionThreadCount(options.threads)
            .setMaxCacheMessageCount(cache)
            .setMaxCacheMessageSizeInBytes(CACHE_BYTES)
            .setMessageListener(this::consume)
            .build();
    }

    void expect(Batch batch) {
        batches.put(batch.id, batch);
    }

    private ConsumeResult consume(MessageView message) {
        long micros = Batch.nowMicros();
        ByteBuffer body = message.getBody();
        Batch batch = body.remaining() < Batch.BODY_BYTES_MIN ? null : batches.get(body.getLong());
        if (batch == null) {
            foreign.incrementAndGet();
        } else {
            batch.delivered(body.getInt(), body.getLong(), micros);
        }
        return ConsumeResult.SUCCESS;
    }

    /**
     * Wait for all that was acknowledged; give up when nothing has come for some seconds, or was to come.
     *
     * @param dueMs when the last is due
     */
    void await(Batch batch, long dueMs, double patienceSeconds) throws InterruptedException {
        long patienceMs = (long) (patienceSeconds * 1_000);
        while (batch.missing() > 0) {
            long lastMs = Math.max(dueMs, batch.lastMicros.get() / 1_000);
            if (System.currentTimeMillis() > lastMs + patienceMs) {
                return;
            }
            Thread.sleep(LOOK_MS);
        }
    }

    /** Takes up to half a minute: the client waits for its long polls to end. */
    @Override
    public void close() throws IOException {
        consumer.close();
    }
}
