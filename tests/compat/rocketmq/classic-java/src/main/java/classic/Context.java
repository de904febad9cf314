// What every scenario has: names, clients that are closed at the end, and checks that give a reason.
package classic;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Context {
    static final long WAIT_MS = 60_000;

    final String endpoint;
    final String topic;
    final String group;
    final String[] extra;
    private int instances;

    Context(String endpoint, String topic, String group, String[] extra) {
        this.endpoint = endpoint;
        this.topic = topic;
        this.group = group;
        this.extra = extra;
    }

    static final class Failed extends RuntimeException {
        Failed(String reason) {
            super(reason);
        }
    }

    // A message, and when the listener had it.
    static final class Received {
        final MessageExt message;
        final long atMs;

        Received(MessageExt message) {
            this.message = message;
            this.atMs = System.currentTimeMillis();
        }

        String text() {
            return new String(message.getBody(), StandardCharsets.UTF_8);
        }
    }

    DefaultMQProducer producer() throws MQClientException {
        DefaultMQProducer producer = configured(new DefaultMQProducer(group + "-producers"));
        producer.start();
        return producer;
    }

    <P extends DefaultMQProducer> P configured(P producer) {
        producer.setNamesrvAddr(endpoint);
        producer.setInstanceName("producer-" + ++instances);
        return producer;
    }

    // Not started yet. Each is a client of its own, as if it were in another process.
    DefaultMQPushConsumer consumer(String name, String topicName, String expression) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name);
        consumer.setNamesrvAddr(endpoint);
        consumer.setInstanceName("consumer-" + ++instances);
        consumer.subscribe(topicName, expression);
        return consumer;
    }

    // A consumer that keeps what it gets, and says that all is well.
    List<Received> collect(DefaultMQPushConsumer consumer) throws MQClientException {
        List<Received> received = new CopyOnWriteArrayList<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> received.add(new Received(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return received;
    }

    Message message(String text) {
        return new Message(topic, text.getBytes(StandardCharsets.UTF_8));
    }

    static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "in vain: " + what);
            Thread.sleep(20);
        }
    }

    static void await(List<Received> received, int count) throws InterruptedException {
        await(count + " messages", () -> received.size() >= count);
        same("messages received", received.size(), count);
    }

    static List<String> sorted(List<Received> received) {
        List<String> texts = new ArrayList<>();
        received.forEach(one -> texts.add(one.text()));
        texts.sort(null);
        return texts;
    }

    static List<String> texts(String... texts) {
        List<String> sorted = new ArrayList<>(Arrays.asList(texts));
        sorted.sort(null);
        return sorted;
    }

    static void check(boolean condition, String reason) {
        if (!condition) {
            throw new Failed(reason);
        }
    }

    static void same(String what, Object actual, Object expected) {
        check(Objects.equals(actual, expected), what + ": " + actual + " instead of " + expected);
    }
}
