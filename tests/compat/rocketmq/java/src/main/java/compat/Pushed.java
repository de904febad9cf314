// PushConsumer: every message once, retries, dead letters; and the order of FIFO messages, with SimpleConsumer too.
package compat;

import static compat.Checks.QUIET;
import static compat.Checks.check;
import static compat.Checks.drain;
import static compat.Checks.nothing;
import static compat.Checks.nowMs;
import static compat.Checks.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

final class Pushed {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    // The original's default back-off is 10 s, then 30 s.
    private static final Duration RETRIES = Duration.ofSeconds(150);

    static final Map<String, Scenario> SCENARIOS = Map.of(
        "push", Pushed::push, "push-retry", Pushed::pushRetry, "push-dead", Pushed::pushDead, "fifo", Pushed::fifo);

    private Pushed() {
    }

    // 500 messages, each exactly once; and the consumer is closed in order, which waits for its long poll.
    private static Map<String, Object> push(Context context) throws Exception {
        int count = context.number(0, 500);
        Listener listener = new Listener();
        Producer producer = context.producer();
        PushConsumer consumer = context.push(listener);
        double began = nowMs();
        List<CompletableFuture<SendReceipt>> sends = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            sends.add(producer.sendAsync(context.message("push " + index)));
        }
        TreeSet<String> ids = new TreeSet<>();
        for (CompletableFuture<SendReceipt> send : sends) {
            ids.add(send.get(TIMEOUT.toSeconds(), TimeUnit.SECONDS).getMessageId().toString());
        }
        same("message ids", ids.size(), count);
        double sent = nowMs();
        double last = listener.await(count, TIMEOUT).get(count - 1).atMs();
        Thread.sleep(QUIET.toMillis());
        List<String> bodies = Checks.texts(listener.seen());
        same("bodies", bodies, IntStream.range(0, count).mapToObj(index -> "push " + index).sorted().toList());
        double closing = nowMs();
        consumer.close();
        return Map.of("messages", count, "sent_ms", Math.round(sent - began), "received_ms", Math.round(last - began),
            "close_ms", Math.round(nowMs() - closing));
    }

    // The listener fails the first two attempts of each message: attempts 1, 2 and 3 come.
    private static Map<String, Object> pushRetry(Context context) throws Exception {
        Listener listener = new Listener(message -> message.getDeliveryAttempt() >= 3, 0);
        Producer producer = context.producer();
        context.push(listener);
        Map<String, List<Integer>> expected = new TreeMap<>();
        for (int index = 0; index < 5; index++) {
            producer.send(context.message("retry " + index));
            expected.put("retry " + index, List.of(1, 2, 3));
        }
        listener.await(15, RETRIES);
        Thread.sleep(QUIET.toMillis());
        same("attempts", attempts(listener.seen()), expected);
        return Map.of("messages", 5, "gaps_ms", gapsMs(listener.seen()));
    }

    // The listener always fails: so many attempts as the group has, then no more.
    private static Map<String, Object> pushDead(Context context) throws Exception {
        int most = context.number(0, 3);
        int quiet = context.number(1, 10);
        Listener listener = new Listener(message -> false, 0);
        Producer producer = context.producer();
        context.push(listener);
        producer.send(context.message("dead"));
        listener.await(most, RETRIES);
        Thread.sleep(quiet * 1000L);
        same("attempts", attempts(listener.seen()), Map.of("dead", IntStream.rangeClosed(1, most).boxed().toList()));
        return Map.of("attempts", most, "quiet_s", quiet, "gaps_ms", gapsMs(listener.seen()));
    }

    private static Map<String, List<Integer>> attempts(List<Checks.Received> received) {
        Map<String, List<Integer>> found = new TreeMap<>();
        for (Checks.Received one : received) {
            found.computeIfAbsent(one.text(), text -> new ArrayList<>()).add(one.message().getDeliveryAttempt());
        }
        return found;
    }

    // Between the attempts of the first message.
    private static List<Long> gapsMs(List<Checks.Received> received) {
        List<Checks.Received> one = received.stream()
            .filter(other -> other.text().equals(received.get(0).text())).toList();
        return IntStream.range(1, one.size())
            .mapToObj(index -> Math.round(one.get(index).atMs() - one.get(index - 1).atMs())).toList();
    }

    // Three message groups of 20, interleaved: the order within each is kept, by SimpleConsumer and by PushConsumer.
    private static Map<String, Object> fifo(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        sendGroups(context, producer, "simple");
        inOrder(drain(consumer, 60, TIMEOUT), "simple");
        nothing(consumer);
        consumer.close();
        Listener listener = new Listener(message -> true, 5);
        context.push(listener);
        sendGroups(context, producer, "push");
        listener.await(60, TIMEOUT);
        Thread.sleep(QUIET.toMillis());
        inOrder(listener.seen(), "push");
        return Map.of("messages", 120, "groups", 3, "push", true);
    }

    private static void sendGroups(Context context, Producer producer, String phase) throws Exception {
        for (int index = 0; index < 20; index++) {
            for (String group : List.of("red", "green", "blue")) {
                producer.send(context.builder(phase + " " + index).setMessageGroup(group).build());
            }
        }
    }

    private static void inOrder(List<Checks.Received> received, String phase) {
        check(received.size() == 60, received.size() + " of 60 messages");
        List<String> expected = IntStream.range(0, 20).mapToObj(index -> phase + " " + index).toList();
        for (String group : List.of("red", "green", "blue")) {
            List<String> found = received.stream()
                .filter(one -> one.message().getMessageGroup().orElse("").equals(group))
                .map(Checks.Received::text).toList();
            same("order in " + group, found, expected);
        }
    }
}
