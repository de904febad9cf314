// What the command line says, and clients for it; producers and simple consumers are closed at the end.
package compat;

import java.io.Closeable;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.SessionCredentialsProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;

final class Context implements AutoCloseable {
    // Long polling of a simple consumer: short, so that "nothing comes" is seen soon; the original refuses 2 s.
    private static final Duration AWAIT = Duration.ofSeconds(3);
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    final String topic;
    final String group;
    private final String endpoint;
    private final String[] extra;
    private final List<Closeable> open = new ArrayList<>();
    private SessionCredentialsProvider keys;

    Context(String endpoint, String topic, String group, String[] extra) {
        this.endpoint = endpoint;
        this.topic = topic;
        this.group = group;
        this.extra = extra;
    }

    // The same broker with an access key, or with none if it is null, and other names.
    Context as(String key, String secret, String otherTopic, String otherGroup) {
        Context context = new Context(endpoint, otherTopic, otherGroup, new String[0]);
        context.keys = key == null ? null : new StaticSessionCredentialsProvider(key, secret);
        return context;
    }

    String word(int index) {
        return extra[index];
    }

    int number(int index, int other) {
        return extra.length > index ? Integer.parseInt(extra[index]) : other;
    }

    private ClientConfiguration configuration(String namespace) {
        var builder = ClientConfiguration.newBuilder()
            .setEndpoints(endpoint).enableSsl(false).setNamespace(namespace);
        return (keys == null ? builder : builder.setCredentialProvider(keys)).build();
    }

    Producer producer() throws ClientException {
        return producer("", null);
    }

    Producer producer(String namespace, TransactionChecker checker) throws ClientException {
        var builder = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration(namespace)).setTopics(topic);
        if (checker != null) {
            builder.setTransactionChecker(checker);
        }
        Producer producer = builder.build();
        open.add(producer);
        return producer;
    }

    SimpleConsumer simple() throws ClientException {
        return simple("", FilterExpression.SUB_ALL);
    }

    SimpleConsumer simple(String namespace, FilterExpression expression) throws ClientException {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(namespace)).setConsumerGroup(group).setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Map.of(topic, expression)).build();
        open.add(consumer);
        return consumer;
    }

    // Not closed at the end.
    PushConsumer push(Listener listener) throws ClientException {
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration("")).setConsumerGroup(group).setMessageListener(listener)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    MessageBuilder builder(byte[] body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body);
    }

    MessageBuilder builder(String body) {
        return builder(body.getBytes(StandardCharsets.UTF_8));
    }

    Message message(String body) {
        return builder(body).build();
    }

    @Override
    public void close() throws java.io.IOException {
        for (Closeable client : open) {
            client.close();
        }
    }
}
