// Messages that are not delivered when they are sent: delays, recalls, transactions.
package compat;

import static compat.Checks.check;
import static compat.Checks.drain;
import static compat.Checks.nothing;
import static compat.Checks.nowMs;
import static compat.Checks.refused;
import static compat.Checks.rounded;
import static compat.Checks.same;
import static compat.Checks.texts;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

final class Delayed {
    // RocketMQ is up to 1.1 s late; Tarry is measured elsewhere.
    private static final double LATE_MS_MAX = 2500;
    // RocketMQ asks for a transaction that is left undecided about 30 s later.
    private static final Duration ASKED = Duration.ofSeconds(120);

    static final Map<String, Scenario> SCENARIOS = Map.of(
        "delay", Delayed::delay, "past-delay", Delayed::pastDelay, "recall", Delayed::recall,
        "transaction", Delayed::transaction);

    private Delayed() {
    }

    // Never early; due times to the millisecond. RocketMQ rounds them to a second.
    private static Map<String, Object> delay(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        Map<String, Long> due = new TreeMap<>();
        long first = System.currentTimeMillis() + 2000;
        for (int index = 0; index < 20; index++) {
            due.put("delay " + index, first + index * 137L);
        }
        for (Map.Entry<String, Long> one : due.entrySet()) {
            producer.send(context.builder(one.getKey()).setDeliveryTimestamp(one.getValue()).build());
        }
        List<Checks.Received> came = drain(consumer, due.size());
        nothing(consumer, Duration.ofSeconds(1));
        same("bodies", texts(came), List.copyOf(new TreeSet<>(due.keySet())));
        for (Checks.Received one : came) {
            same("delivery timestamp", one.message().getDeliveryTimestamp(), Optional.of(due.get(one.text())));
        }
        double[] lateness = came.stream().mapToDouble(one -> one.atMs() - due.get(one.text())).sorted().toArray();
        double last = lateness[lateness.length - 1];
        check(lateness[0] >= 0, -lateness[0] + " ms early");
        check(last <= LATE_MS_MAX, last + " ms late");
        double mean = java.util.Arrays.stream(lateness).average().orElseThrow();
        return Map.of("messages", came.size(), "precision_ms", 1, "lateness_ms_min", rounded(lateness[0]),
            "lateness_ms_mean", rounded(mean), "lateness_ms_max", rounded(last));
    }

    // Due already: delivered at once.
    private static Map<String, Object> pastDelay(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        double sent = nowMs();
        for (long past : new long[] {1, 60, 86_400}) {
            producer.send(context.builder(past + " s ago")
                .setDeliveryTimestamp(System.currentTimeMillis() - past * 1000).build());
        }
        double waited = drain(consumer, 3).stream().mapToDouble(Checks.Received::atMs).max().orElseThrow() - sent;
        check(waited <= 3000, "came after " + waited + " ms");
        nothing(consumer);
        return Map.of("messages", 3, "waited_ms", rounded(waited));
    }

    // A recalled message never comes. What cannot be recalled is refused. The original says OK to any well-formed
    // handle, of messages that are delivered or unknown, too; and has recalls off unless recallMessageEnable is set.
    private static Map<String, Object> recall(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        long due = System.currentTimeMillis() + 4000;
        SendReceipt unwanted = producer.send(context.builder("recalled").setDeliveryTimestamp(due).build());
        SendReceipt control = producer.send(context.builder("control").setDeliveryTimestamp(due).build());
        check(unwanted.getRecallHandle() != null && !unwanted.getRecallHandle().isEmpty(), "no recall handle");
        same("recalled id", producer.recallMessage(context.topic, unwanted.getRecallHandle()).getMessageId(),
            unwanted.getMessageId());
        same("body", drain(consumer, 1).get(0).text(), "control");
        nothing(consumer);
        Map<String, String> handles = Map.of("delivered", control.getRecallHandle(),
            "recalled already", unwanted.getRecallHandle(), "unknown", "bm8gc3VjaCBoYW5kbGU");
        Map<String, Object> codes = new TreeMap<>();
        handles.forEach((name, handle) -> {
            Checks.Refusal refusal = refused("recall of a message that is " + name,
                () -> producer.recallMessage(context.topic, handle));
            check(refusal.code() != null && refusal.code() / 10_000 == 4, "refusal of " + name + ": " + refusal);
            codes.put(name, refusal.code());
        });
        return Map.of("codes", codes);
    }

    // Committed: delivered. Rolled back: not. Undecided: the checker is asked, and commits.
    private static Map<String, Object> transaction(Context context) throws Exception {
        ConcurrentLinkedQueue<String> asked = new ConcurrentLinkedQueue<>();
        AtomicLong askedMs = new AtomicLong();
        Producer producer = context.producer("", message -> {
            askedMs.compareAndSet(0, System.currentTimeMillis());
            asked.add(new Checks.Received(message, 0).text() + " " + message.getMessageId());
            return TransactionResolution.COMMIT;
        });
        SimpleConsumer consumer = context.simple();
        Map<String, String> ids = new HashMap<>();
        for (String body : List.of("commit", "rollback", "undecided")) {
            Transaction transaction = producer.beginTransaction();
            SendReceipt receipt = producer.send(context.builder(body).setTag("transaction").build(), transaction);
            ids.put(body, receipt.getMessageId().toString());
            if (body.equals("commit")) {
                transaction.commit();
            } else if (body.equals("rollback")) {
                transaction.rollback();
            }
        }
        long sentMs = System.currentTimeMillis();
        Checks.Received committed = drain(consumer, 1).get(0);
        same("first message", committed.text(), "commit");
        same("its id", committed.message().getMessageId().toString(), ids.get("commit"));
        Checks.Received decided = drain(consumer, 1, ASKED).get(0);
        same("second message", decided.text(), "undecided");
        same("its id", decided.message().getMessageId().toString(), ids.get("undecided"));
        same("its tag", decided.message().getTag(), Optional.of("transaction"));
        nothing(consumer);
        // Asked twice where the answer was slow, but about nothing else.
        same("messages that the checker was asked about", Set.copyOf(asked),
            Set.of("undecided " + ids.get("undecided")));
        return Map.of("asked", asked.size(), "asked_after_ms", askedMs.get() - sentMs);
    }
}
