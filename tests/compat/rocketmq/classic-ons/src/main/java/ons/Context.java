// What every scenario has: properties of clients, what a consumer got, and checks that give a reason.
package ons;

import com.aliyun.openservices.ons.api.Action;
import com.aliyun.openservices.ons.api.Consumer;
import com.aliyun.openservices.ons.api.Message;
import com.aliyun.openservices.ons.api.ONSFactory;
import com.aliyun.openservices.ons.api.Producer;
import com.aliyun.openservices.ons.api.PropertyKeyConst;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.Collectors;

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
        final Message message;
        final long atMs;

        Received(Message message) {
            this.message = message;
            this.atMs = System.currentTimeMillis();
        }

        String text() {
            return new String(message.getBody(), StandardCharsets.UTF_8);
        }
    }

    // A client cannot be made without keys; what asks for none takes no notice of them.
    Properties properties(String name, String secret) {
        Properties properties = new Properties();
        properties.setProperty(PropertyKeyConst.NAMESRV_ADDR, endpoint);
        properties.setProperty(PropertyKeyConst.GROUP_ID, name);
        properties.setProperty(PropertyKeyConst.AccessKey, extra.length > 0 ? extra[0] : "nobody");
        properties.setProperty(PropertyKeyConst.SecretKey, secret);
        properties.setProperty(PropertyKeyConst.InstanceName, name + "-" + ++instances);
        return properties;
    }

    Properties properties(String name) {
        return properties(name, extra.length > 1 ? extra[1] : "nothing");
    }

    Producer producer() {
        Producer producer = ONSFactory.createProducer(properties(group + "-producers"));
        producer.start();
        return producer;
    }

    // A consumer that keeps what it gets.
    List<Received> collect(String expression, Function<Message, Action> answer) {
        List<Received> received = new CopyOnWriteArrayList<>();
        Consumer consumer = ONSFactory.createConsumer(properties(group));
        consumer.subscribe(topic, expression, (message, how) -> {
            received.add(new Received(message));
            return answer.apply(message);
        });
        consumer.start();
        return received;
    }

    List<Received> collect() {
        return collect("*", message -> Action.CommitMessage);
    }

    Message message(String text) {
        return new Message(topic, "tag", text.getBytes(StandardCharsets.UTF_8));
    }

    static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "in vain: " + what);
            Thread.sleep(20);
        }
    }

    static void await(List<Received> received, String... texts) throws InterruptedException {
        await(texts.length + " messages", () -> received.size() >= texts.length);
        same("bodies", received.stream().map(Received::text).sorted().collect(Collectors.toList()),
            Arrays.stream(texts).sorted().collect(Collectors.toList()));
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
