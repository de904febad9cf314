// Clients that stay: through restarts of the broker, and many that only wait.
package compat;

import static compat.Checks.QUIET;
import static compat.Checks.check;
import static compat.Checks.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

final class Standing {
    // After the last send, until all is received: a lease that a restart cut short has to end first.
    private static final Duration TIMEOUT = Duration.ofSeconds(120);

    static final Map<String, Scenario> SCENARIOS = Map.of(
        "reconnect", Standing::reconnect, "reconnect-push", Standing::reconnectPush, "idle", Standing::idle);

    private Standing() {
    }

    // One message each 100 ms while the broker is killed and started again; what was acknowledged is received.
    private static Map<String, Object> reconnect(Context context) throws Exception {
        SimpleConsumer consumer = context.simple();
        ConcurrentLinkedQueue<String> bodies = new ConcurrentLinkedQueue<>();
        Thread thread = new Thread(() -> receiveForEver(consumer, bodies));
        thread.setDaemon(true);
        thread.start();
        return reconnect(context, () -> List.copyOf(bodies));
    }

    private static void receiveForEver(SimpleConsumer consumer, ConcurrentLinkedQueue<String> bodies) {
        while (true) {
            try {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(10))) {
                    bodies.add(new Checks.Received(message, 0).text());
                    consumer.ack(message);
                }
            } catch (ClientException | RuntimeException broken) {
                // The broker is away.
                pause(200);
            }
        }
    }

    // The same with a PushConsumer.
    private static Map<String, Object> reconnectPush(Context context) throws Exception {
        Listener listener = new Listener();
        context.push(listener);
        return reconnect(context, () -> listener.seen().stream().map(Checks.Received::text).toList());
    }

    private static Map<String, Object> reconnect(Context context, Supplier<List<String>> bodies) throws Exception {
        int wanted = context.number(0, 300);
        Producer producer = context.producer();
        Set<String> acknowledged = new HashSet<>();
        int errors = 0;
        long answered = System.nanoTime();
        long longest = 0;
        for (int attempt = 0; acknowledged.size() < wanted; attempt++) {
            try {
                producer.send(context.message("reconnect " + attempt));
                longest = Math.max(longest, System.nanoTime() - answered);
                answered = System.nanoTime();
                acknowledged.add("reconnect " + attempt);
                if (acknowledged.size() == 1) {
                    System.err.println("ready");
                }
            } catch (ClientException | RuntimeException broken) {
                errors++;
                check(System.nanoTime() - answered < TIMEOUT.toNanos(), "no send succeeds for " + TIMEOUT);
            }
            pause(100);
        }
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (!Set.copyOf(bodies.get()).containsAll(acknowledged)) {
            Set<String> missing = new HashSet<>(acknowledged);
            missing.removeAll(bodies.get());
            check(System.nanoTime() < deadline, "lost: " + missing.size() + " of " + wanted + ": " + missing);
            pause(100);
        }
        List<String> received = bodies.get();
        Set<String> unacknowledged = new HashSet<>(received);
        int distinct = unacknowledged.size();
        unacknowledged.removeAll(acknowledged);
        return Map.of("acknowledged", wanted, "send_errors", errors, "outage_ms", longest / 1_000_000,
            "received", received.size(), "duplicates", received.size() - distinct,
            "unacknowledged_received", unacknowledged.size());
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    // Many PushConsumers of one group that only wait; then they still share what comes.
    private static Map<String, Object> idle(Context context) throws Exception {
        int clients = context.number(0, 20);
        int seconds = context.number(1, 10);
        Listener listener = new Listener();
        Producer producer = context.producer();
        long began = System.nanoTime();
        List<Object> open = new ArrayList<>();
        for (int index = 0; index < clients; index++) {
            open.add(context.push(listener));
        }
        double connected = (System.nanoTime() - began) / 1e9;
        System.err.println("ready");
        Thread.sleep(seconds * 1000L);
        same("messages while idle", listener.seen().size(), 0);
        for (int index = 0; index < clients; index++) {
            producer.send(context.message("idle " + index));
        }
        listener.await(clients, TIMEOUT);
        Thread.sleep(QUIET.toMillis());
        same("bodies", Checks.texts(listener.seen()),
            IntStream.range(0, clients).mapToObj(index -> "idle " + index).sorted().toList());
        return Map.of("clients", open.size(), "connected_s", connected, "idle_s", seconds);
    }
}
