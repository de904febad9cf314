// Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.
package compat;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

final class Identities {
    static final Map<String, Scenario> SCENARIOS = Map.of("identities", Identities::twoKeys);
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

        Context at(String topic, String group) {
            return context.as(key, secret, topic, group);
        }

        Context here() {
            return at(context.topic, context.group);
        }
    }

    // More words: another topic, the sender's key and secret, the receiver's key and secret.
    private static Map<String, Object> twoKeys(Context context) throws Exception {
        String other = context.word(0);
        Keys sender = new Keys(context, context.word(1), context.word(2));
        Keys receiver = new Keys(context, context.word(3), context.word(4));
        say("send", () -> send(sender.here()));
        say("receive", () -> receive(receiver.here()));
        say("receive-by-sender", () -> receive(sender.here()));
        say("send-by-receiver", () -> send(receiver.here()));
        say("send-elsewhere", () -> send(sender.at(other, context.group)));
        say("receive-elsewhere", () -> receive(receiver.at(other, context.group)));
        say("receive-as-others", () -> receive(receiver.at(context.topic, context.group + "-others")));
        Keys nobody = new Keys(context, null, null);
        say("anonymous-sends", () -> send(nobody.at(other, context.group)));
        say("anonymous-sends-elsewhere", () -> send(nobody.here()));
        say("anonymous-receives", () -> receive(nobody.here()));
        say("wrong-secret-sends", () -> send(sender.wrong().here()));
        say("wrong-secret-receives", () -> receive(receiver.wrong().here()));
        untilRevoked(sender.here(), receiver.here());
        say("revoked-sends", () -> send(sender.here()));
        say("revoked-receives", () -> receive(receiver.here()));
        return Map.of();
    }

    private static void send(Context context) throws Exception {
        try (context) {
            context.producer().send(context.message("hello"));
        }
    }

    // One message, acknowledged.
    private static void receive(Context context) throws Exception {
        try (context) {
            Checks.drain(context.simple(), 1);
        }
    }

    // Both run when "ready" is said, for the runner to remove their keys.
    private static void untilRevoked(Context sending, Context receiving) throws Exception {
        Producer producer = sending.producer();
        SimpleConsumer consumer = receiving.simple();
        producer.send(sending.message("hello"));
        Checks.drain(consumer, 1);
        System.out.println("ready");
        Thread received = new Thread(() -> say("running-receiver", () -> {
            while (true) {
                for (MessageView message : consumer.receive(16, Checks.INVISIBLE)) {
                    consumer.ack(message);
                }
            }
        }));
        received.start();
        say("running-sender", () -> {
            while (true) {
                producer.send(sending.message("hello"));
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
