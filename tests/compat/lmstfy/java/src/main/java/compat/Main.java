// All that lmstfy's Java client can do, against the server of LMSTFY_HOST.
package compat;

import com.meitu.platform.lmstfy.Job;
import com.meitu.platform.lmstfy.client.LmstfyClient;
import com.meitu.platform.lmstfy.exception.LmstfyIllegalRequestException;
import com.meitu.platform.lmstfy.exception.LmstfyNotJobException;
import com.meitu.platform.lmstfy.exception.LmstfyUnexpectedException;
import com.meitu.platform.lmstfy.response.DeadLetterResponse;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;

public final class Main {
    private static final int DEAD_S_MAX = 20;
    private static final String HOST = System.getenv("LMSTFY_HOST");
    private static final int PORT = Integer.parseInt(System.getenv("LMSTFY_PORT"));
    private static final String NAMESPACE = System.getenv("LMSTFY_NAMESPACE");

    private final LmstfyClient client = new LmstfyClient(HOST, PORT, NAMESPACE, System.getenv("LMSTFY_TOKEN"));

    private interface Test {
        void run(String queue) throws Exception;
    }

    public static void main(String[] arguments) {
        Main main = new Main();
        Map<String, Test> tests = new LinkedHashMap<>();
        tests.put("publish, consume, acknowledge", main::consume);
        tests.put("bytes that are no text", main::bytes);
        tests.put("a delay", main::delay);
        tests.put("again after its time to run", main::again);
        tests.put("a batch", main::batch);
        tests.put("several queues", main::several);
        tests.put("size, peek, look up", main::look);
        tests.put("delete before it is due", main::delete);
        tests.put("dead letter and respawn", main::respawn);
        tests.put("dead letters deleted", main::deleteDead);
        tests.put("a body that is too large", main::tooLarge);
        tests.put("refusals", main::refusals);
        int failed = 0;
        for (Map.Entry<String, Test> test : tests.entrySet()) {
            try {
                test.getValue().run("java-" + test.getKey().replaceAll("[^a-z]+", "-"));
                System.out.println("ok " + test.getKey());
            } catch (Exception | AssertionError error) {
                failed++;
                System.out.println("FAILED " + test.getKey() + ": " + error + " " + error.getStackTrace()[0]);
            }
        }
        System.out.println(tests.size() - failed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    private void consume(String queue) throws Exception {
        String body = "gr\u00fcn <&> \ud83d\ude00";
        String id = publish(queue, body, 100, 3, 0);
        Job job = client.consume(10, 3, queue);
        expect(job.getJobID(), id);
        expect(job.getData(), new String(body.getBytes(StandardCharsets.UTF_8)));
        expect(Arrays.asList(job.getNamespace(), job.getQueue()), Arrays.asList(NAMESPACE, queue));
        expect(job.getTtl() > 90 && job.getTtl() <= 100, true);
        expect(job.getRemainTries(), 2L);
        client.ack(queue, id);
        expectNone(queue, 1);
    }

    private void bytes(String queue) throws Exception {
        byte[] body = new byte[4096];
        new Random(7).nextBytes(body);
        client.publish(queue, body, 0, (short) 1, 0);
        byte[] found = Base64.getDecoder().decode(client.consume(10, 3, queue).getBase64Data());
        expect(Arrays.equals(found, body), true);
    }

    private void delay(String queue) throws Exception {
        long begun = System.nanoTime();
        String id = publish(queue, "later", 0, 1, 2);
        expectNone(queue, 0);
        expect(client.consume(10, 10, queue).getJobID(), id);
        // lmstfy counts whole seconds: there, it may come in the second before.
        expect(System.nanoTime() - begun > 900_000_000L, true);
    }

    private void again(String queue) throws Exception {
        String id = publish(queue, "twice", 0, 2, 0);
        expect(client.consume(1, 5, queue).getRemainTries(), 1L);
        Job second = client.consume(10, 10, queue);
        expect(second.getJobID(), id);
        expect(second.getRemainTries(), 0L);
        client.ack(queue, id);
    }

    private void batch(String queue) throws Exception {
        Set<String> published = new TreeSet<>();
        Set<String> found = new TreeSet<>();
        for (int i = 0; i < 5; i++) {
            published.add(publish(queue, "body " + i, 0, 1, 0));
        }
        while (found.size() < 5) {
            for (Job job : client.batchConsume(3, 10, 3, queue)) {
                found.add(job.getJobID());
                client.ack(queue, job.getJobID());
            }
        }
        expect(found, published);
    }

    private void several(String queue) throws Exception {
        publish(queue + "-low", "low", 0, 1, 0);
        publish(queue + "-high", "high", 0, 1, 0);
        String[] queues = {queue + "-high", queue + "-low"};
        expect(client.consume(10, 3, queues).getData(), "high");
        expect(client.consume(10, 3, queues).getData(), "low");
    }

    private void look(String queue) throws Exception {
        expect(client.peekQueue(queue), null);
        String first = publish(queue, "one", 0, 1, 0);
        publish(queue, "two", 0, 1, 0);
        expect(client.queueSize(queue), 2);
        expect(client.peekQueue(queue).getData(), "one");
        expect(client.peekJob(queue, first).getData(), "one");
    }

    private void delete(String queue) throws Exception {
        String id = publish(queue, "never", 0, 1, 3600);
        expect(client.peekJob(queue, id).getJobID(), id);
        client.delete(queue, id);
        expect(client.peekJob(queue, id), null);
        client.delete(queue, id);
    }

    private void respawn(String queue) throws Exception {
        String id = dead(queue);
        expect(client.respawnDeadLetter(queue, 10, 60), 1);
        Job job = client.consume(10, 5, queue);
        expect(Arrays.asList(job.getJobID(), job.getData()), Arrays.asList(id, "dead"));
        client.ack(queue, id);
        expect(client.peekDeadLetter(queue).getDeadLetterSize(), 0);
    }

    private void deleteDead(String queue) throws Exception {
        dead(queue);
        client.deleteDeadLetter(queue, 10);
        expect(client.peekDeadLetter(queue).getDeadLetterSize(), 0);
        expect(client.respawnDeadLetter(queue, 10, 60), 0);
    }

    private void tooLarge(String queue) throws Exception {
        byte[] body = new byte[(1 << 20) + 1];
        try {
            client.publish(queue, body, 0, (short) 1, 0);
            throw new AssertionError("not refused");
        } catch (LmstfyIllegalRequestException error) {
            expect(error.getMessage().contains("body too large"), true);
        }
    }

    private void refusals(String queue) throws Exception {
        try {
            publish("a.b", "x", 0, 1, 0);
            throw new AssertionError("not refused");
        } catch (LmstfyIllegalRequestException error) {
            expect(error.getMessage().contains("forbidden characters"), true);
        }
        try {
            new LmstfyClient(HOST, PORT, NAMESPACE, "wrong").publish(queue, new byte[1], 0, (short) 1, 0);
            throw new AssertionError("not refused");
        } catch (LmstfyUnexpectedException error) {
            expect(error.getMessage().contains("401"), true);
        }
    }

    private String publish(String queue, String body, int ttlS, int tries, int delayS) throws Exception {
        return client.publish(queue, body.getBytes(StandardCharsets.UTF_8), ttlS, (short) tries, delayS);
    }

    /** A job that is taken once and not acknowledged: dead after a second. */
    private String dead(String queue) throws Exception {
        String id = publish(queue, "dead", 0, 1, 0);
        expect(client.consume(1, 5, queue).getJobID(), id);
        long until = System.nanoTime() + DEAD_S_MAX * 1_000_000_000L;
        DeadLetterResponse letter = client.peekDeadLetter(queue);
        while (letter.getDeadLetterSize() == 0 && System.nanoTime() < until) {
            Thread.sleep(100);
            letter = client.peekDeadLetter(queue);
        }
        expect(letter.getDeadLetterHead(), id);
        return id;
    }

    private void expectNone(String queue, int timeoutS) throws Exception {
        try {
            throw new AssertionError("there is " + client.consume(10, timeoutS, queue).getJobID());
        } catch (LmstfyNotJobException error) {
            // As it should be.
        }
    }

    private static void expect(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + ", not " + wanted);
        }
    }
}
