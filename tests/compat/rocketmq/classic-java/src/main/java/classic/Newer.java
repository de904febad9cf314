// What came after 4.0: popping, where the broker says who reads what; and requests that wait for a reply.
package classic;

import static classic.Context.await;
import static classic.Context.check;
import static classic.Context.same;
import static classic.Context.texts;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Newer {
    static final Map<String, Main.Scenario> SCENARIOS =
        Map.of("classic-pop", Newer::pop, "classic-request", Newer::request);
    private static final int COUNT = 60;

    private Newer() {
    }

    // Two consumers pop; some messages fail once, one of them is delayed.
    private static Map<String, Object> pop(Context context) throws Exception {
        DefaultMQProducer producer = context.producer();
        if (!setMode(producer, context, "POP")) {
            return Map.of("skipped", "this client does not pop");
        }
        List<String> done = new CopyOnWriteArrayList<>();
        List<String> problems = new CopyOnWriteArrayList<>();
        Map<String, Integer> perConsumer = new ConcurrentHashMap<>();
        for (int number = 0; number < 2; number++) {
            String name = "consumer " + number;
            DefaultMQPushConsumer consumer = context.consumer(context.group, context.topic, "*");
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, how) -> {
                MessageExt message = messages.get(0);
                String text = new String(message.getBody());
                perConsumer.merge(name, 1, Integer::sum);
                if (message.getProperty("POP_CK") == null) {
                    problems.add(text + " was pulled");
                }
                if (text.startsWith("again") && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                done.add(text + " " + message.getReconsumeTimes());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            producer.send(context.message("plain " + number));
            expected.add("plain " + number + " 0");
        }
        await("the first messages", () -> done.size() == COUNT);
        long dueMs = System.currentTimeMillis() + 1_000;
        Message delayed = context.message("delayed");
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        producer.send(context.message("again"));
        expected.addAll(List.of("delayed 0", "again 1"));
        await("the delayed one", () -> done.contains("delayed 0"));
        check(System.currentTimeMillis() >= dueMs, "it came early");
        // The client's shortest wait between two tries is 10 s.
        await("the other try", () -> done.size() == expected.size());
        same("messages", texts(done.toArray(new String[0])), texts(expected.toArray(new String[0])));
        same("problems", problems, List.of());
        same("consumers", perConsumer.size(), 2);
        return Map.of();
    }

    // What mqadmin's setConsumeMode does.
    private static boolean setMode(DefaultMQProducer producer, Context context, String mode) throws Exception {
        Class<?> modes;
        try {
            modes = Class.forName("org.apache.rocketmq.common.message.MessageRequestMode");
        } catch (ClassNotFoundException older) {
            return false;
        }
        Object api = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl();
        Object value = modes.getMethod("valueOf", String.class).invoke(null, mode);
        Method method = api.getClass().getMethod(
            "setMessageRequestMode", String.class, String.class, String.class, modes, int.class, long.class);
        method.invoke(api, context.endpoint, context.topic, context.group, value, 0, 5_000L);
        return true;
    }

    private static Map<String, Object> request(Context context) throws Exception {
        DefaultMQProducer replier = context.producer();
        DefaultMQPushConsumer consumer = context.consumer(context.group, context.topic, "*");
        List<String> problems = new CopyOnWriteArrayList<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, how) -> {
            for (MessageExt message : messages) {
                String text = new String(message.getBody());
                try {
                    if (!text.equals("silence")) {
                        replier.send(MessageUtil.createReplyMessage(message, ("re: " + text).getBytes()), 3_000);
                    }
                } catch (Exception error) {
                    problems.add(text + ": " + error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = context.producer();
        long timeoutMs = 30_000;
        // From 5.3.1 to 5.3.3 this call returns when the request is sent, whatever the broker does (apache/rocketmq#9292).
        boolean blocking = !MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).startsWith("V5_3_");
        if (blocking) {
            same("reply", text(producer.request(context.message("one"), timeoutMs)), "re: one");
        }
        List<String> replies = new CopyOnWriteArrayList<>();
        RequestCallback callback = new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                replies.add(text(reply));
            }

            @Override
            public void onException(Throwable error) {
                problems.add("callback: " + error);
            }
        };
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            // The last one is compressed, and its reply, too.
            String text = number < 9 ? "" + number : "a reply that is compressed ".repeat(1_000);
            producer.request(context.message(text), callback, timeoutMs);
            expected.add("re: " + text);
        }
        await("10 replies", () -> replies.size() == 10);
        same("replies", texts(replies.toArray(new String[0])), texts(expected.toArray(new String[0])));
        try {
            producer.request(context.message("silence"), 1_000);
            check(false, "a reply to what nobody has replied to");
        } catch (RequestTimeoutException nothing) {
            same("problems", problems, List.of());
        }
        return Map.of("blocking", blocking);
    }

    private static String text(Message message) {
        return new String(message.getBody());
    }
}
