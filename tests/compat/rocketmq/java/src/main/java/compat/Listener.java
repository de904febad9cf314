// A message listener that keeps what it was given, and answers what it was told to.
package compat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.message.MessageView;

final class Listener implements MessageListener {
    private final List<Checks.Received> received = new ArrayList<>();
    private final Predicate<MessageView> done;
    private final long pauseMs;

    Listener(Predicate<MessageView> done, long pauseMs) {
        this.done = done;
        this.pauseMs = pauseMs;
    }

    Listener() {
        this(message -> true, 0);
    }

    @Override
    public ConsumeResult consume(MessageView message) {
        synchronized (received) {
            received.add(new Checks.Received(message, Checks.nowMs()));
            received.notifyAll();
        }
        try {
            Thread.sleep(pauseMs);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return done.test(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    }

    // Until there are so many.
    List<Checks.Received> await(int count, Duration timeout) throws InterruptedException {
        long deadline = System.nanoTime() + timeout.toNanos();
        synchronized (received) {
            while (received.size() < count) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                Checks.check(left > 0, received.size() + " of " + count + " messages after " + timeout);
                received.wait(left);
            }
            return List.copyOf(received);
        }
    }

    List<Checks.Received> seen() {
        synchronized (received) {
            return List.copyOf(received);
        }
    }
}
