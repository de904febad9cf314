import java.util.function.Consumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** With the classic client. */
final class ClassicSender extends Sender {
    private static final int ANSWER_MS_MAX = 30_000;
    private final DefaultMQProducer producer;
    private final String topic;

    ClassicSender(Options options) throws Exception {
        super(options);
        this.topic = options.topic;
        this.producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(options.endpoint);
        producer.setSendMsgTimeout(ANSWER_MS_MAX);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
    }

    @Override
    void send(byte[] body, long dueMs, Consumer<Throwable> answered) throws Exception {
        Message message = new Message(topic, body);
        message.setDeliverTimeMs(dueMs);
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                // With SYNC_FLUSH, FLUSH_DISK_TIMEOUT says that it is not on the disk.
                boolean taken = result.getSendStatus() == SendStatus.SEND_OK;
                answered.accept(taken ? null : new IllegalStateException(result.getSendStatus().name()));
            }

            @Override
            public void onException(Throwable error) {
                answered.accept(error);
            }
        });
    }

    @Override
    public void close() {
        producer.shutdown();
    }
}
