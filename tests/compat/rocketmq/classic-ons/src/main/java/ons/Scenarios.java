// Sends, delays, retries, order, transactions; each client signs its requests, as this one always does.
package ons;

import static ons.Context.await;
import static ons.Context.check;
import static ons.Context.same;

import com.aliyun.openservices.ons.api.Action;
import com.aliyun.openservices.ons.api.Message;
import com.aliyun.openservices.ons.api.ONSFactory;
import com.aliyun.openservices.ons.api.OnExceptionContext;
import com.aliyun.openservices.ons.api.Producer;
import com.aliyun.openservices.ons.api.SendCallback;
import com.aliyun.openservices.ons.api.SendResult;
import com.aliyun.openservices.ons.api.order.OrderAction;
import com.aliyun.openservices.ons.api.order.OrderConsumer;
import com.aliyun.openservices.ons.api.order.OrderProducer;
import com.aliyun.openservices.ons.api.transaction.TransactionProducer;
import com.aliyun.openservices.ons.api.transaction.TransactionStatus;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

final class Scenarios {
    static final Map<String, Main.Scenario> ALL = Map.of(
        "classic-send", Scenarios::ways, "classic-delay", Scenarios::delays, "classic-retry", Scenarios::retries,
        "classic-orderly", Scenarios::orderly, "classic-transaction", Scenarios::transactions,
        "classic-filter", Scenarios::filters, "classic-signed", Scenarios::signed);
    private static final long LATE_MS_MAX = 2_000;

    private Scenarios() {
    }

    private static Map<String, Object> ways(Context context) throws Exception {
        List<Context.Received> received = context.collect();
        Producer producer = context.producer();
        Message full = context.message("sync");
        full.setKey("key1");
        full.putUserProperties("name", "wert ü");
        SendResult result = producer.send(full);
        CountDownLatch sent = new CountDownLatch(1);
        producer.sendAsync(context.message("async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult ignored) {
                sent.countDown();
            }

            @Override
            public void onException(OnExceptionContext error) {
                error.getException().printStackTrace();
            }
        });
        producer.sendOneway(context.message("oneway"));
        check(sent.await(30, TimeUnit.SECONDS), "no answer to an asynchronous send");
        await(received, "sync", "async", "oneway");
        Message first = received.stream().filter(one -> one.text().equals("sync")).findFirst().orElseThrow().message;
        same("tag", first.getTag(), "tag");
        same("key", first.getKey(), "key1");
        same("property", first.getUserProperties("name"), "wert ü");
        same("id", first.getMsgID(), result.getMessageId());
        return Map.of();
    }

    private static Map<String, Object> delays(Context context) throws Exception {
        List<Context.Received> received = context.collect();
        Producer producer = context.producer();
        producer.send(context.message("now"));
        await(received, "now");
        long dueMs = System.currentTimeMillis() + 2_500;
        Message later = context.message("later");
        later.setStartDeliverTime(dueMs);
        producer.send(later);
        Message past = context.message("past");
        past.setStartDeliverTime(dueMs - 60_000);
        producer.send(past);
        await(received, "now", "past", "later");
        same("order", received.get(2).text(), "later");
        long lateMs = received.get(2).atMs - dueMs;
        check(lateMs >= 0, "it came " + -lateMs + " ms early");
        check(lateMs < LATE_MS_MAX, "it came " + lateMs + " ms late");
        same("moment", received.get(2).message.getStartDeliverTime(), dueMs);
        return Map.of("late_ms", lateMs);
    }

    private static Map<String, Object> retries(Context context) throws Exception {
        List<Context.Received> received = context.collect("*",
            message -> message.getReconsumeTimes() == 0 ? Action.ReconsumeLater : Action.CommitMessage);
        context.producer().send(context.message("again"));
        await(received, "again", "again");
        same("attempts", received.get(1).message.getReconsumeTimes(), 1);
        same("id", received.get(1).message.getMsgID(), received.get(0).message.getMsgID());
        return Map.of();
    }

    private static Map<String, Object> orderly(Context context) throws Exception {
        List<String> received = Collections.synchronizedList(new ArrayList<>());
        OrderConsumer consumer = ONSFactory.createOrderedConsumer(context.properties(context.group));
        consumer.subscribe(context.topic, "*", (message, how) -> {
            received.add(new String(message.getBody()));
            return OrderAction.Success;
        });
        consumer.start();
        OrderProducer producer = ONSFactory.createOrderProducer(context.properties(context.group + "-producers"));
        producer.start();
        List<String> sent = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            sent.add("number " + number);
            producer.send(context.message("number " + number), "shard");
        }
        await("20 messages", () -> received.size() >= 20);
        same("order", new ArrayList<>(received), sent);
        return Map.of();
    }

    private static Map<String, Object> transactions(Context context) throws Exception {
        List<Context.Received> received = context.collect();
        TransactionProducer producer = ONSFactory.createTransactionProducer(
            context.properties(context.group + "-transactions"),
            message -> new String(message.getBody()).equals("asked, committed") ? TransactionStatus.CommitTransaction
                : TransactionStatus.RollbackTransaction);
        producer.start();
        try {
            producer.send(context.message("rolled back"), (message, word) -> TransactionStatus.RollbackTransaction, null);
            check(false, "a message that was rolled back counts as sent");
        } catch (RuntimeException expected) {
            check(expected.getMessage().contains("rollback"), expected.getMessage());
        }
        producer.send(context.message("committed"), (message, word) -> TransactionStatus.CommitTransaction, null);
        producer.send(context.message("asked, rolled back"), (message, word) -> TransactionStatus.Unknow, null);
        producer.send(context.message("asked, committed"), (message, word) -> TransactionStatus.Unknow, null);
        await(received, "committed", "asked, committed");
        return Map.of();
    }

    private static Map<String, Object> filters(Context context) throws Exception {
        List<Context.Received> received = context.collect("wanted", message -> Action.CommitMessage);
        Producer producer = context.producer();
        producer.send(new Message(context.topic, "other", "first".getBytes()));
        producer.send(new Message(context.topic, "wanted", "second".getBytes()));
        await(received, "second");
        return Map.of();
    }

    // More words: the access key, and its secret. A wrong one is refused with the broker's own text.
    private static Map<String, Object> signed(Context context) throws Exception {
        check(context.extra.length >= 2, "no keys");
        ways(context);
        delays(new Context(context.endpoint, context.topic + "-delayed", context.group + "-delayed", context.extra));
        Producer refused = ONSFactory.createProducer(context.properties(context.group + "-refused", "wrong"));
        refused.start();
        try {
            refused.send(context.message("never"));
        } catch (Exception error) {
            String said = String.valueOf(error.getMessage());
            check(said.contains("CODE: 16") || said.contains("NO_PERMISSION") || said.contains("signature"), said);
            return Map.of("refused", error.getClass().getSimpleName());
        }
        throw new Context.Failed("a wrong secret was taken");
    }
}
