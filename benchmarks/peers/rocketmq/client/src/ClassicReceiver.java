import java.nio.ByteBuffer;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;

/** With the classic client, as it is when nothing is set but the number of its threads. */
final class ClassicReceiver extends Receiver {
    private final DefaultMQPushConsumer consumer;

    ClassicReceiver(Options options) throws MQClientException {
        this.consumer = new DefaultMQPushConsumer(options.group);
        consumer.setNamesrvAddr(options.endpoint);
        consumer.setConsumeThreadMin(options.threads);
        consumer.setConsumeThreadMax(options.threads);
        consumer.subscribe(options.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) this::consume);
        consumer.start();
    }

    private ConsumeConcurrentlyStatus consume(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        long micros = Batch.nowMicros();
        for (MessageExt message : messages) {
            received(ByteBuffer.wrap(message.getBody()), micros);
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
