// A broker that is killed and started again while programs run.
package classic;

import static classic.Context.await;
import static classic.Context.check;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

final class Standing {
    static final Map<String, Main.Scenario> SCENARIOS = Map.of("classic-restarts", Standing::restarts);
    private static final long RUN_MS = 25_000;

    private Standing() {
    }

    // What was acknowledged arrives, and none of it early.
    private static Map<String, Object> restarts(Context context) throws Exception {
        List<Context.Received> received = context.collect(context.consumer(context.group, context.topic, "*"));
        DefaultMQProducer producer = context.producer();
        producer.setRetryTimesWhenSendFailed(0);
        Map<String, Long> due = new ConcurrentHashMap<>();
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        long end = System.currentTimeMillis() + RUN_MS;
        int failed = 0;
        System.err.println("ready");
        for (int number = 0; System.currentTimeMillis() < end; number++) {
            Message message = context.message("" + number);
            message.setDelayTimeLevel(number % 3);
            due.put("" + number, System.currentTimeMillis() + new long[] {0, 1_000, 5_000}[number % 3]);
            try {
                producer.send(message);
                acknowledged.add("" + number);
            } catch (Exception error) {
                failed++;
                Thread.sleep(100);
            }
            Thread.sleep(5);
        }
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        await("all " + acknowledged.size(), () -> {
            received.forEach(one -> bodies.add(one.text()));
            return bodies.containsAll(acknowledged);
        });
        for (Context.Received one : received) {
            check(one.atMs >= due.get(one.text()), one.text() + " came early");
        }
        return Map.of("sent", acknowledged.size(), "failed", failed, "again", received.size() - bodies.size());
    }
}
