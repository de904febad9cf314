// Consumers: retries and dead letters, order, broadcasting, pulling, filters, sharing, looking up.
package classic;

import static classic.Context.await;
import static classic.Context.check;
import static classic.Context.same;
import static classic.Context.sorted;
import static classic.Context.texts;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Consuming {
    static final Map<String, Main.Scenario> SCENARIOS = Map.of(
        "classic-retry", Consuming::retry, "classic-orderly", Consuming::orderly,
        "classic-broadcast", Consuming::broadcast, "classic-lite-pull", Consuming::litePull,
        "classic-filter", Consuming::filter, "classic-share", Consuming::share, "classic-look", Consuming::look);

    private Consuming() {
    }

    private static Map<String, Object> retry(Context context) throws Exception {
        DefaultMQPushConsumer consumer = context.consumer(context.group, context.topic, "*");
        consumer.setMaxReconsumeTimes(2);
        List<String> tries = new CopyOnWriteArrayList<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, how) -> {
            MessageExt message = messages.get(0);
            String text = new String(message.getBody());
            tries.add(text + " " + message.getReconsumeTimes() + " " + message.getTopic().equals(context.topic));
            how.setDelayLevelWhenNextConsume(1);
            boolean done = text.equals("once") && message.getReconsumeTimes() == 1;
            return done ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        List<Context.Received> dead = context.collect(
            context.consumer(context.group + "-dead", "%DLQ%" + context.group, "*"));
        DefaultMQProducer producer = context.producer();
        producer.send(context.message("never"));
        producer.send(context.message("once"));
        await(dead, 1);
        same("dead", dead.get(0).text(), "never");
        await("5 tries", () -> tries.size() == 5);
        tries.sort(null);
        same("tries", tries, List.of("never 0 true", "never 1 true", "never 2 true", "once 0 true", "once 1 true"));
        return Map.of();
    }

    private static Map<String, Object> orderly(Context context) throws Exception {
        Map<String, List<Integer>> seen = new ConcurrentHashMap<>();
        AtomicBoolean refused = new AtomicBoolean();
        for (int number = 0; number < 2; number++) {
            DefaultMQPushConsumer consumer = context.consumer(context.group, context.topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, how) -> {
                for (MessageExt message : messages) {
                    String[] words = new String(message.getBody()).split(" ");
                    if (words[1].equals("7") && refused.compareAndSet(false, true)) {
                        how.setSuspendCurrentQueueTimeMillis(500);
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    seen.computeIfAbsent(words[0], key -> new CopyOnWriteArrayList<>()).add(Integer.valueOf(words[1]));
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.start();
        }
        DefaultMQProducer producer = context.producer();
        for (int number = 0; number < 30; number++) {
            for (String key : List.of("a", "b", "c")) {
                producer.send(context.message(key + " " + number),
                    (queues, message, arg) -> queues.get((arg.hashCode() & 0xFFFF) % queues.size()), key);
            }
        }
        await("90 messages", () -> seen.values().stream().mapToInt(List::size).sum() >= 90);
        List<Integer> expected = new ArrayList<>();
        for (int number = 0; number < 30; number++) {
            expected.add(number);
        }
        seen.forEach((key, numbers) -> same("order of " + key, numbers, expected));
        check(refused.get(), "nothing was refused");
        return Map.of();
    }

    private static Map<String, Object> broadcast(Context context) throws Exception {
        List<List<Context.Received>> all = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            DefaultMQPushConsumer consumer = context.consumer(context.group, context.topic, "*");
            broadcast(consumer);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            all.add(context.collect(consumer));
        }
        DefaultMQProducer producer = context.producer();
        producer.send(context.message("1"));
        producer.send(context.message("2"));
        for (List<Context.Received> received : all) {
            await(received, 2);
            same("bodies", sorted(received), texts("1", "2"));
        }
        return Map.of();
    }

    // The class of the model is in another package in 4.9.
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    private static Map<String, Object> litePull(Context context) throws Exception {
        DefaultMQProducer producer = context.producer();
        for (int number = 0; number < 10; number++) {
            producer.send(context.message("" + number));
        }
        List<String> seen = new ArrayList<>();
        for (int part = 1; part <= 2; part++) {
            DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(context.group);
            consumer.setNamesrvAddr(context.endpoint);
            consumer.setInstanceName("lite-" + part);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAutoCommit(false);
            consumer.subscribe(context.topic, "*");
            consumer.start();
            int until = part * 10;
            await(until + " messages", () -> {
                consumer.poll(500).forEach(message -> seen.add(new String(message.getBody())));
                return seen.size() >= until;
            });
            consumer.commitSync();
            consumer.shutdown();
            for (int number = 10; part == 1 && number < 20; number++) {
                producer.send(context.message("" + number));
            }
        }
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            expected.add("" + number);
        }
        same("bodies", texts(seen.toArray(new String[0])), texts(expected.toArray(new String[0])));
        return Map.of();
    }

    private static Map<String, Object> filter(Context context) throws Exception {
        List<Context.Received> tagged =
            context.collect(context.consumer(context.group + "-tag", context.topic, "odd || none"));
        DefaultMQPushConsumer byCondition = context.consumer(context.group + "-sql", context.topic, "*");
        byCondition.subscribe(context.topic, MessageSelector.bySql("TAGS IS NOT NULL AND number BETWEEN 4 AND 6"));
        List<Context.Received> chosen = context.collect(byCondition);
        DefaultMQProducer producer = context.producer();
        for (int number = 0; number < 8; number++) {
            Message message = new Message(context.topic, number % 2 == 0 ? "even" : "odd", ("" + number).getBytes());
            message.putUserProperty("number", "" + number);
            producer.send(message);
        }
        await(tagged, 4);
        await(chosen, 3);
        same("by tag", sorted(tagged), texts("1", "3", "5", "7"));
        same("by condition", sorted(chosen), texts("4", "5", "6"));
        return Map.of();
    }

    // Of two consumers one stops; nothing is lost, whoever had the queue.
    private static Map<String, Object> share(Context context) throws Exception {
        DefaultMQPushConsumer first = context.consumer(context.group, context.topic, "*");
        DefaultMQPushConsumer second = context.consumer(context.group, context.topic, "*");
        List<Context.Received> one = context.collect(first);
        List<Context.Received> other = context.collect(second);
        DefaultMQProducer producer = context.producer();
        // Each has its part of the queues, and no more, when it has heard of the other.
        int all = producer.fetchPublishMessageQueues(context.topic).size();
        await("both", () -> queues(first) > 0 && queues(second) > 0 && queues(first) + queues(second) == all);
        for (int number = 0; number < 50; number++) {
            producer.send(context.message("" + number));
        }
        await("50 messages", () -> one.size() + other.size() >= 50);
        check(!one.isEmpty() && !other.isEmpty(), "one of the two got nothing");
        DefaultMQPushConsumer busy = one.size() > other.size() ? first : second;
        busy.shutdown();
        for (int number = 50; number < 100; number++) {
            producer.send(context.message("" + number));
        }
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        await("100 messages", () -> {
            one.forEach(received -> bodies.add(received.text()));
            other.forEach(received -> bodies.add(received.text()));
            return bodies.size() == 100;
        });
        return Map.of("again", one.size() + other.size() - 100);
    }

    private static int queues(DefaultMQPushConsumer consumer) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> !queue.getTopic().startsWith("%")).count();
    }

    private static Map<String, Object> look(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.producer();
        Message message = context.message("looked for");
        message.setKeys("order-7");
        SendResult sent = producer.send(message);
        await(received, 1);
        QueryResult result = producer.queryMessage(context.topic, "order-7", 10, 0, Long.MAX_VALUE - 1);
        same("by key", new String(result.getMessageList().get(0).getBody()), "looked for");
        same("by id", new String(producer.viewMessage(context.topic, sent.getMsgId()).getBody()), "looked for");
        same("by place", new String(producer.viewMessage(context.topic, sent.getOffsetMsgId()).getBody()), "looked for");
        same("end", producer.maxOffset(sent.getMessageQueue()), 1L);
        same("begin", producer.minOffset(sent.getMessageQueue()), 0L);
        same("at its time",
            producer.searchOffset(sent.getMessageQueue(), received.get(0).message.getStoreTimestamp()), 0L);
        return Map.of();
    }
}
