// Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.
package classic;

import static classic.Context.check;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

final class Identities {
    static final Map<String, Main.Scenario> SCENARIOS = Map.of("identities", Identities::twoKeys);
    // For what has to be answered or refused.
    private static final int ANSWERED_S = 20;

    private Identities() {
    }

    private interface Act {
        void run() throws Exception;
    }

    private static final class Keys {
        private final Context context;
        private final String key;
        private final String secret;

        Keys(Context context, String key, String secret) {
            this.context = context;
            this.key = key;
            this.secret = secret;
        }

        Keys wrong() {
            return new Keys(context, key, "wrong");
        }

        AclClientRPCHook hook() {
            return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
        }

        DefaultMQProducer producer() throws Exception {
            DefaultMQProducer producer = context.configured(new DefaultMQProducer(context.group + "-producers", hook()));
            producer.start();
            return producer;
        }

        void send(String topic) throws Exception {
            DefaultMQProducer producer = producer();
            try {
                producer.send(new Message(topic, "hello".getBytes()));
            } finally {
                producer.shutdown();
            }
        }

        // A push consumer only logs what is refused; this one throws.
        DefaultMQPullConsumer puller(String group) throws Exception {
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook());
            consumer.setNamesrvAddr(context.endpoint);
            consumer.setInstanceName(group + "-" + System.nanoTime());
            // 4.9 does not notice that the connection of a waiting pull is closed before its own time is up.
            consumer.setBrokerSuspendMaxTimeMillis(500);
            consumer.setConsumerTimeoutMillisWhenSuspend(1000);
            consumer.start();
            return consumer;
        }

        void pull(String topic, String group) throws Exception {
            DefaultMQPullConsumer consumer = puller(group);
            try {
                Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
                consumer.pull(queues.iterator().next(), "*", 0, 1);
            } finally {
                consumer.shutdown();
            }
        }

        // One message, by a push consumer, which acknowledges it.
        void receive() throws Exception {
            DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(context.group, hook(), new AllocateMessageQueueAveragely());
            consumer.setNamesrvAddr(context.endpoint);
            consumer.setInstanceName("receiver-" + System.nanoTime());
            consumer.subscribe(context.topic, "*");
            List<Context.Received> received = context.collect(consumer);
            Context.await(received, 1);
            consumer.shutdown();
        }
    }

    // More words: another topic, the sender's key and secret, the receiver's key and secret.
    private static Map<String, Object> twoKeys(Context context) throws Exception {
        check(context.extra.length >= 5, "more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET");
        String other = context.extra[0];
        Keys sender = new Keys(context, context.extra[1], context.extra[2]);
        Keys receiver = new Keys(context, context.extra[3], context.extra[4]);
        say("send", () -> sender.send(context.topic));
        say("receive", receiver::receive);
        say("receive-by-sender", () -> sender.pull(context.topic, context.group));
        say("send-by-receiver", () -> receiver.send(context.topic));
        say("send-elsewhere", () -> sender.send(other));
        say("receive-elsewhere", () -> receiver.pull(other, context.group));
        say("receive-as-others", () -> receiver.pull(context.topic, context.group + "-others"));
        Keys nobody = new Keys(context, null, null);
        say("anonymous-sends", () -> nobody.send(other));
        say("anonymous-sends-elsewhere", () -> nobody.send(context.topic));
        say("anonymous-receives", () -> nobody.pull(context.topic, context.group));
        say("wrong-secret-sends", () -> sender.wrong().send(context.topic));
        say("wrong-secret-receives", () -> receiver.wrong().pull(context.topic, context.group));
        untilRevoked(context, sender, receiver);
        say("revoked-sends", () -> sender.send(context.topic));
        say("revoked-receives", () -> receiver.pull(context.topic, context.group));
        return Map.of();
    }

    // Both run when "ready" is said, for the runner to remove their keys.
    private static void untilRevoked(Context context, Keys sender, Keys receiver) throws Exception {
        DefaultMQProducer producer = sender.producer();
        producer.send(context.message("hello"));
        DefaultMQPullConsumer consumer = receiver.puller(context.group);
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(context.topic).iterator().next();
        consumer.pull(queue, "*", 0, 1);
        System.out.println("ready");
        Thread received = new Thread(() -> say("running-receiver", () -> {
            for (long offset = 0; ; ) {
                try {
                    offset = consumer.pullBlockIfNotFound(queue, "*", offset, 1).getNextBeginOffset();
                } catch (RemotingException closed) {
                    Thread.sleep(50); // its connection was ended; what is said to the next one tells why
                }
            }
        }));
        received.start();
        say("running-sender", () -> {
            while (true) {
                producer.send(context.message("hello"));
                Thread.sleep(50);
            }
        });
        received.join();
    }

    // Of the client's exceptions, all: the innermost has the broker's text.
    private static String text(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = error; one != null; one = one.getCause()) {
            text.append(one.getClass().getSimpleName()).append(": ").append(one.getMessage()).append(' ');
        }
        return text.toString().replaceAll("\\s+", " ").trim();
    }

    private static void say(String name, Act act) {
        CompletableFuture<String> answer = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                act.run();
                answer.complete("done");
            } catch (Throwable error) {
                answer.complete("refused: " + text(error));
            }
        });
        thread.setDaemon(true);
        thread.start();
        String late = "no answer in " + ANSWERED_S + " s";
        System.out.println(name + ": " + answer.completeOnTimeout(late, ANSWERED_S, TimeUnit.SECONDS).join());
    }
}
