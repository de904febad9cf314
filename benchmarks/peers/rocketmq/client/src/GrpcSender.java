import java.io.IOException;
import java.util.function.Consumer;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;

/** With the v5 client. */
final class GrpcSender extends Sender {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Producer producer;
    private final String topic;

    GrpcSender(Options options) throws ClientException {
        super(options);
        this.topic = options.topic;
        this.producer = provider.newProducerBuilder()
            .setClientConfiguration(GrpcReceiver.configuration(options))
            .setTopics(topic)
            .build();
    }

    @Override
    void send(byte[] body, long dueMs, Consumer<Throwable> answered) {
        Message message = provider.newMessageBuilder()
            .setTopic(topic)
            .setBody(body)
            .setDeliveryTimestamp(dueMs)
            .build();
        producer.sendAsync(message).whenComplete((receipt, error) -> answered.accept(error));
    }

    @Override
    public void close() throws IOException {
        producer.close();
    }
}
