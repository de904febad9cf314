// Producers: ways to send, delays, transactions, recall.
package classic;

import static classic.Context.await;
import static classic.Context.check;
import static classic.Context.same;
import static classic.Context.sorted;
import static classic.Context.texts;

import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

final class Sending {
    static final Map<String, Main.Scenario> SCENARIOS = Map.of(
        "classic-send", Sending::ways, "classic-large", Sending::large, "classic-delay", Sending::delays,
        "classic-transaction", Sending::transactions, "classic-recall", Sending::recall);

    private Sending() {
    }

    private static Map<String, Object> ways(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.producer();
        Message full = new Message(context.topic, "tag", "key1 key2", 7, "sync".getBytes(), true);
        full.putUserProperty("name", "wert ü");
        SendResult result = producer.send(full);
        same("status", result.getSendStatus(), SendStatus.SEND_OK);
        CountDownLatch sent = new CountDownLatch(1);
        producer.send(context.message("async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult ignored) {
                sent.countDown();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
            }
        });
        producer.sendOneway(context.message("oneway"));
        producer.send(context.message("selected"), (queues, message, number) -> queues.get((int) number % queues.size()), 5);
        producer.send(List.of(context.message("batch-1"), context.message("batch-2")));
        check(sent.await(30, TimeUnit.SECONDS), "no answer to an asynchronous send");
        await(received, 6);
        same("bodies", sorted(received), texts("sync", "async", "oneway", "selected", "batch-1", "batch-2"));
        MessageExt first = received.stream().filter(one -> one.text().equals("sync")).findFirst().orElseThrow().message;
        same("tag", first.getTags(), "tag");
        same("keys", first.getKeys(), "key1 key2");
        same("flag", first.getFlag(), 7);
        same("property", first.getUserProperty("name"), "wert ü");
        same("id", first.getMsgId(), result.getMsgId());
        return Map.of();
    }

    // The client compresses bodies above 4 KiB; with tracing on, it sends a trace of each message.
    private static Map<String, Object> large(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.configured(new DefaultMQProducer(context.group + "-producers", null, true, null));
        producer.start();
        String text = "a body that packs well ".repeat(20_000);
        producer.send(context.message(text));
        await(received, 1);
        check(received.get(0).text().equals(text), "another body");
        return Map.of("bytes", text.length());
    }

    private static Map<String, Object> delays(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.producer();
        producer.send(context.message("now"));
        await(received, 1);
        Map<String, Long> due = new ConcurrentHashMap<>();
        for (int level = 1; level <= 2; level++) {
            Message message = context.message("level " + level);
            message.setDelayTimeLevel(level);
            due.put("level " + level, System.currentTimeMillis() + (level == 1 ? 1_000 : 5_000));
            producer.send(message);
        }
        long now = System.currentTimeMillis();
        timed(context, producer, due, "seconds", "setDelayTimeSec", "TIMER_DELAY_SEC", 2, now + 2_000);
        timed(context, producer, due, "milliseconds", "setDelayTimeMs", "TIMER_DELAY_MS", 1_500, now + 1_500);
        timed(context, producer, due, "moment", "setDeliverTimeMs", "TIMER_DELIVER_MS", now + 2_500, now + 2_500);
        await(received, 6);
        long latest = 0;
        for (Context.Received one : received.subList(1, 6)) {
            long late = one.atMs - due.get(one.text());
            check(late >= 0, one.text() + " came " + -late + " ms early");
            latest = Math.max(latest, late);
        }
        check(latest < 2_000, "one came " + latest + " ms late");
        return Map.of("latest_ms", latest);
    }

    // Clients of 4.9 have no method for it; what they send is a property.
    private static void timed(Context context, DefaultMQProducer producer, Map<String, Long> due, String text,
            String method, String property, long value, long dueMs) throws Exception {
        Message message = context.message(text);
        try {
            Message.class.getMethod(method, long.class).invoke(message, value);
        } catch (NoSuchMethodException older) {
            MessageAccessor.putProperty(message, property, Long.toString(value));
        }
        due.put(text, dueMs);
        producer.send(message);
    }

    private static Map<String, Object> transactions(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        TransactionMQProducer producer = context.configured(new TransactionMQProducer(context.group + "-transactions"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object word) {
                return (LocalTransactionState) word;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                boolean commit = new String(message.getBody()).equals("asked, committed");
                return commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(context.message("rolled back"), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.sendMessageInTransaction(context.message("committed"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(context.message("asked, rolled back"), LocalTransactionState.UNKNOW);
        producer.sendMessageInTransaction(context.message("asked, committed"), LocalTransactionState.UNKNOW);
        await(received, 2);
        same("bodies", sorted(received), texts("committed", "asked, committed"));
        return Map.of();
    }

    private static Map<String, Object> recall(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.producer();
        Message message = context.message("recalled");
        try {
            Message.class.getMethod("setDelayTimeSec", long.class).invoke(message, 5L);
            SendResult sent = producer.send(message);
            String handle = (String) SendResult.class.getMethod("getRecallHandle").invoke(sent);
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, context.topic, handle);
            same("id", id, sent.getMsgId());
            try {
                DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, context.topic, handle);
                check(false, "recalled twice");
            } catch (InvocationTargetException expected) {
                check(expected.getCause().getMessage().contains("604"), expected.getCause().getMessage());
            }
        } catch (NoSuchMethodException older) {
            return Map.of("skipped", "this client has no recall");
        }
        Message later = context.message("later");
        later.setDelayTimeLevel(2);
        producer.send(later);
        await(received, 1);
        same("bodies", sorted(received), texts("later"));
        return Map.of();
    }
}
