import java.io.IOException;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** With the v5 client. */
final class GrpcReceiver extends Receiver {
    private static final int CACHE_BYTES = 1 << 30;
    private final PushConsumer consumer;

    GrpcReceiver(Options options) throws ClientException {
        // Of messages that are not acknowledged yet: at the bound the client waits a whole second, and each
        // acknowledgement searches them one after the other.
        int cache = options.cache;
        this.consumer = ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(configuration(options))
            .setConsumerGroup(options.group)
            .setSubscriptionExpressions(Map.of(options.topic, FilterExpression.SUB_ALL))
            .setConsumptionThreadCount(options.threads)
            .setMaxCacheMessageCount(cache)
            .setMaxCacheMessageSizeInBytes(CACHE_BYTES)
            .setMessageListener(this::consume)
            .build();
    }

    static ClientConfiguration configuration(Options options) {
        return ClientConfiguration.newBuilder().setEndpoints(options.endpoint).enableSsl(false).build();
    }

    private ConsumeResult consume(MessageView message) {
        received(message.getBody(), Batch.nowMicros());
        return ConsumeResult.SUCCESS;
    }

    /** Takes up to half a minute: the client waits for its long polls to end. */
    @Override
    public void close() throws IOException {
        consumer.close();
    }
}
