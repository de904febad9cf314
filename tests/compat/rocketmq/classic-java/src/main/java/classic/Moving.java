// Two topics that move from one server to another and back, one after the other, while consumers listen to both servers.
package classic;

import static classic.Context.await;
import static classic.Context.check;
import static classic.Context.same;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

final class Moving {
    static final Map<String, Main.Scenario> SCENARIOS = Map.of("classic-moving", Moving::move);
    private static final int EACH = 30;

    private final Context context;
    // By server.
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, List<Context.Received>> received = new HashMap<>();
    private final Map<String, Long> due = new HashMap<>();
    private final Map<String, String> sentTo = new TreeMap<>();
    private int sent;

    private Moving(Context context) {
        this.context = context;
    }

    private static Map<String, Object> move(Context context) throws Exception {
        return new Moving(context).move(context.endpoint, context.extra[0]);
    }

    private Map<String, Object> move(String tarry, String original) throws Exception {
        String first = context.topic;
        String second = context.topic + "-second";
        for (String server : List.of(original, tarry)) {
            start(server, List.of(first, second));
        }
        // Everything is in the old one: at once, by level, and by time.
        send(original, first);
        send(original, second);
        // The first topic's producers are switched over, while its messages are pending there.
        send(tarry, first);
        send(original, second);
        // Then the second's.
        send(tarry, first);
        send(tarry, second);
        // And back.
        send(original, first);
        send(original, second);
        await("all " + sent, () -> count() >= sent);
        // What would come twice has its time to do so.
        Thread.sleep(3_000);
        Set<String> bodies = new HashSet<>();
        for (String server : received.keySet()) {
            for (Context.Received one : received.get(server)) {
                check(bodies.add(one.text()), one.text() + " came twice");
                same("server of " + one.text(), server, sentTo.get(one.text()));
                check(one.atMs >= due.get(one.text()), one.text() + " came early");
            }
        }
        same("messages", bodies, sentTo.keySet());
        return Map.of("sent", sent, "by_tarry", received.get(tarry).size(), "by_original", received.get(original).size());
    }

    private void start(String server, List<String> topics) throws Exception {
        received.put(server, Collections.synchronizedList(new ArrayList<>()));
        // A group of its own for each topic: the consumers of one group must all want the same topics.
        for (String topic : topics) {
            DefaultMQPushConsumer consumer = context.consumer(context.group + "-" + topic, topic, "*");
            consumer.setNamesrvAddr(server);
            consumer.registerMessageListener(
                (MessageListenerConcurrently) (messages, ignored) -> {
                    messages.forEach(message -> received.get(server).add(new Context.Received(message)));
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            consumer.start();
        }
        DefaultMQProducer producer = context.configured(new DefaultMQProducer(context.group + "-producers"));
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        producers.put(server, producer);
    }

    private void send(String server, String topic) throws Exception {
        for (int i = 0; i < EACH; i++) {
            String text = "message-" + sent;
            Message message = new Message(topic, text.getBytes(StandardCharsets.UTF_8));
            long nowMs = System.currentTimeMillis();
            switch (i % 3) {
                case 0:
                    due.put(text, nowMs);
                    break;
                case 1:
                    due.put(text, nowMs + 5_000);
                    message.setDelayTimeLevel(2);
                    break;
                default:
                    due.put(text, nowMs + 15_000);
                    // As setDeliverTimeMs does, which 4.9 has not.
                    MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", "" + (nowMs + 15_000));
            }
            sentTo.put(text, server);
            producers.get(server).send(message);
            sent++;
        }
    }

    private int count() {
        return received.values().stream().mapToInt(List::size).sum();
    }
}
