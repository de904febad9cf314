// What is sent with RocketMQTemplate, and what must come of it.
package spring;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

@Component
class Scenarios {
    static final Set<String> NAMES = Set.of(
        "classic-send", "classic-delay", "classic-retry", "classic-transaction", "classic-orderly", "classic-filter");
    private static final long WAIT_MS = 60_000;

    private final RocketMQTemplate template;
    private final Listeners.Inbox inbox;
    private final Listeners.Orders orders;
    private final Listeners.Lines lines;
    private final Listeners.Everybody everybody;
    private final Listeners.Dead dead;
    @Value("${compat.topic}")
    private String topic;

    Scenarios(RocketMQTemplate template, Listeners.Inbox inbox, Listeners.Orders orders, Listeners.Lines lines,
        Listeners.Everybody everybody, Listeners.Dead dead) {
        this.template = template;
        this.inbox = inbox;
        this.orders = orders;
        this.lines = lines;
        this.everybody = everybody;
        this.dead = dead;
    }

    Map<String, Object> run(String name) throws Exception {
        switch (name) {
            case "classic-send": return send();
            case "classic-delay": return delay();
            case "classic-retry": return retry();
            case "classic-transaction": return transaction();
            case "classic-orderly": return orderly();
            default: return filter();
        }
    }

    private Map<String, Object> send() throws Exception {
        Message<String> full = MessageBuilder.withPayload("sync").setHeader(RocketMQHeaders.KEYS, "key")
            .setHeader("name", "wert").build();
        taken(template.syncSend(topic + ":tag", full));
        CompletableFuture<SendResult> later = new CompletableFuture<>();
        template.asyncSend(topic, "async", new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                later.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                later.completeExceptionally(error);
            }
        });
        taken(later.get(WAIT_MS, TimeUnit.MILLISECONDS));
        template.sendOneWay(topic, "oneway");
        taken(template.syncSend(topic, List.of(message("batch-1"), message("batch-2"))));
        template.convertAndSend(topic, "converted");
        await("six messages", () -> inbox.messages.size() >= 6);
        same("bodies", bodies(), List.of("async", "batch-1", "batch-2", "converted", "oneway", "sync"));
        for (MessageExt message : inbox.messages) {
            if (text(message).equals("sync")) {
                same("tag", message.getTags(), "tag");
                same("keys", message.getKeys(), "key");
                same("property", message.getUserProperty("name"), "wert");
            }
        }
        return Map.of();
    }

    private Map<String, Object> delay() throws Exception {
        Map<String, Long> due = new TreeMap<>();
        // Java takes its time to connect.
        taken(template.syncSend(topic, "first"));
        await("the first", () -> inbox.messages.size() == 1);
        long before = System.currentTimeMillis();
        due.put("level", before + 1_000);
        taken(template.syncSend(topic, message("level"), 10_000, 1));
        due.put("seconds", System.currentTimeMillis() + 2_000);
        taken(template.syncSendDelayTimeSeconds(topic, "seconds", 2));
        due.put("millis", System.currentTimeMillis() + 1_500);
        taken(template.syncSendDelayTimeMills(topic, "millis", 1_500));
        due.put("deliver", System.currentTimeMillis() + 2_500);
        taken(template.syncSendDeliverTimeMills(topic, "deliver", due.get("deliver")));
        await("all", () -> inbox.messages.size() >= 5);
        long latest = 0;
        for (Map.Entry<String, Long> one : due.entrySet()) {
            long late = inbox.atMs.get(one.getKey()) - one.getValue();
            check(late >= 0, one.getKey() + " came early: " + late);
            latest = Math.max(latest, late);
        }
        return Map.of("latest_ms", latest);
    }

    private Map<String, Object> retry() throws Exception {
        taken(template.syncSend(topic, "once"));
        taken(template.syncSend(topic, "never"));
        await("what is handled the second time", () -> bodies().equals(List.of("once")));
        await("what is never handled", () -> dead.texts.equals(List.of("never")));
        return Map.of();
    }

    private Map<String, Object> transaction() throws Exception {
        for (String word : List.of("commit", "rollback", "ask")) {
            template.sendMessageInTransaction(topic, message(word), word);
        }
        await("what is committed", () -> bodies().equals(List.of("ask", "commit")));
        return Map.of();
    }

    private Map<String, Object> orderly() throws Exception {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            texts.add(String.valueOf(i));
            taken(template.syncSendOrderly(topic + "-lines", texts.get(i), "one key"));
        }
        await("all lines", () -> lines.texts.size() >= 50 && everybody.texts.size() >= 50);
        same("order", lines.texts, texts);
        same("broadcast", sorted(everybody.texts), sorted(texts));
        return Map.of();
    }

    private Map<String, Object> filter() throws Exception {
        for (String tag : List.of("open", "paid", "open", "paid")) {
            Listeners.Order order = new Listeners.Order();
            order.name = tag;
            order.price = 7;
            template.convertAndSend(topic + "-orders:" + tag, order);
        }
        await("two orders", () -> orders.orders.size() >= 2);
        check(orders.orders.stream().allMatch(one -> one.name.equals("paid") && one.price == 7), "other orders came");
        same("orders", orders.orders.size(), 2);
        return Map.of();
    }

    private static Message<String> message(String text) {
        return MessageBuilder.withPayload(text).build();
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private List<String> bodies() {
        List<String> texts = new ArrayList<>();
        inbox.messages.forEach(message -> texts.add(text(message)));
        return sorted(texts);
    }

    private static List<String> sorted(List<String> texts) {
        String[] all = texts.toArray(new String[0]);
        Arrays.sort(all);
        return Arrays.asList(all);
    }

    private static void taken(SendResult result) {
        same("status", result.getSendStatus(), SendStatus.SEND_OK);
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "in vain: " + what);
            Thread.sleep(20);
        }
    }

    private static void same(String what, Object actual, Object expected) {
        check(Objects.equals(actual, expected), what + ": " + actual + " instead of " + expected);
    }

    private static void check(boolean condition, String reason) {
        if (!condition) {
            throw new IllegalStateException(reason);
        }
    }
}
