// Assertions that give a reason, and what the scenarios do with a SimpleConsumer.
package compat;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

final class Checks {
    static final Duration INVISIBLE = Duration.ofSeconds(30);
    static final Duration TIMEOUT = Duration.ofSeconds(30);
    // For how long nothing may come where nothing is expected any more.
    static final Duration QUIET = Duration.ofSeconds(3);
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private Checks() {
    }

    // A message, and the wall clock when the client handed it out.
    record Received(MessageView message, double atMs) {
        byte[] body() {
            byte[] bytes = new byte[message.getBody().remaining()];
            message.getBody().get(bytes);
            return bytes;
        }

        String text() {
            return new String(body(), StandardCharsets.UTF_8);
        }
    }

    // Who refused a call, and the server's status code.
    record Refusal(String side, Integer code) {
    }

    interface Call {
        void run() throws Exception;
    }

    static void check(boolean condition, String reason) {
        if (!condition) {
            throw new FailedException(reason);
        }
    }

    static void same(String what, Object found, Object expected) {
        check(Objects.equals(found, expected), what + ": " + found + " instead of " + expected);
    }

    static double nowMs() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
    }

    static double rounded(double value) {
        return Math.round(value * 10) / 10.0;
    }

    static Refusal refused(String what, Call call) {
        try {
            call.run();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                Matcher found = CODE.matcher(String.valueOf(cause.getMessage()));
                if (cause instanceof ClientException && found.find()) {
                    return new Refusal("server", Integer.valueOf(found.group(1)));
                }
            }
            return new Refusal("client", null);
        }
        throw new FailedException(what + " was not refused");
    }

    // So many messages, in the order in which they came, not acknowledged.
    static List<Received> receive(SimpleConsumer consumer, int count, Duration invisible) throws ClientException {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        List<Received> found = new ArrayList<>();
        while (found.size() < count) {
            check(System.nanoTime() < deadline, found.size() + " of " + count + " messages after " + TIMEOUT);
            List<MessageView> messages = consumer.receive(16, invisible);
            double atMs = nowMs();
            messages.forEach(message -> found.add(new Received(message, atMs)));
        }
        same("messages received", found.size(), count);
        return found;
    }

    static List<Received> drain(SimpleConsumer consumer, int count) throws ClientException {
        return drain(consumer, count, TIMEOUT);
    }

    // So many messages, each acknowledged as it comes.
    static List<Received> drain(SimpleConsumer consumer, int count, Duration timeout) throws ClientException {
        long deadline = System.nanoTime() + timeout.toNanos();
        List<Received> found = new ArrayList<>();
        while (found.size() < count) {
            check(System.nanoTime() < deadline, found.size() + " of " + count + " messages after " + timeout);
            List<MessageView> messages = consumer.receive(16, INVISIBLE);
            double atMs = nowMs();
            for (MessageView message : messages) {
                found.add(new Received(message, atMs));
                consumer.ack(message);
            }
        }
        return found;
    }

    static void nothing(SimpleConsumer consumer) throws ClientException {
        nothing(consumer, QUIET);
    }

    static void nothing(SimpleConsumer consumer, Duration time) throws ClientException {
        long deadline = System.nanoTime() + time.toNanos();
        while (System.nanoTime() < deadline) {
            List<MessageView> messages = consumer.receive(16, INVISIBLE);
            check(messages.isEmpty(), "something is left: " + messages);
        }
    }

    static List<String> texts(List<Received> received) {
        return received.stream().map(Received::text).sorted().toList();
    }
}
