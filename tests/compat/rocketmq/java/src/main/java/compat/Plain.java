// Messages without a delay, with Producer and SimpleConsumer: content, filters, leases, limits.
package compat;

import static compat.Checks.INVISIBLE;
import static compat.Checks.check;
import static compat.Checks.drain;
import static compat.Checks.nothing;
import static compat.Checks.receive;
import static compat.Checks.refused;
import static compat.Checks.same;
import static compat.Checks.texts;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.zip.GZIPOutputStream;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

final class Plain {
    private static final int MIB = 1 << 20;
    private static final Checks.Refusal STALE_HANDLE = new Checks.Refusal("server", 40013);
    private static final Checks.Refusal TOO_MANY_PROPERTIES = new Checks.Refusal("server", 43101);

    static final Map<String, Scenario> SCENARIOS = Map.of(
        "normal", Plain::normal, "tag-filter", Plain::tagFilter, "sql-filter", Plain::sqlFilter,
        "redelivery", Plain::redelivery, "invisible", Plain::invisible, "large", Plain::large,
        "many-properties", Plain::manyProperties, "gzip", Plain::compressible, "unicode", Plain::unicode,
        "namespaces", Plain::namespaces);

    private Plain() {
    }

    // Ten messages come as they were sent, are acknowledged, and nothing is left.
    private static Map<String, Object> normal(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        Map<String, Integer> sent = new HashMap<>();
        for (int index = 0; index < 10; index++) {
            MessageBuilder builder = context.builder("normal " + index).setTag("tag-" + index % 3)
                .setKeys("key-" + index, "second-" + index)
                .addProperty("index", String.valueOf(index)).addProperty("colour", "blue");
            sent.put(producer.send(builder.build()).getMessageId().toString(), index);
        }
        same("message ids", sent.size(), 10);
        for (Checks.Received received : drain(consumer, 10)) {
            MessageView message = received.message();
            Integer index = sent.remove(message.getMessageId().toString());
            check(index != null, "unknown message id " + message.getMessageId());
            same("topic", message.getTopic(), context.topic);
            same("body", received.text(), "normal " + index);
            same("tag", message.getTag(), Optional.of("tag-" + index % 3));
            same("keys", Set.copyOf(message.getKeys()), Set.of("key-" + index, "second-" + index));
            same("properties", message.getProperties(), Map.of("index", String.valueOf(index), "colour", "blue"));
            same("attempt", message.getDeliveryAttempt(), 1);
            double age = received.atMs() - message.getBornTimestamp();
            check(age >= -1000 && age <= 60_000, "born " + age + " ms ago");
        }
        nothing(consumer);
        return Map.of("messages", 10);
    }

    // Of four kinds of tags, two are wanted.
    private static Map<String, Object> tagFilter(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple("", new FilterExpression("A || B", FilterExpressionType.TAG));
        for (int index = 0; index < 5; index++) {
            for (String tag : List.of("A", "B", "C")) {
                producer.send(context.builder(tag + " " + index).setTag(tag).build());
            }
            producer.send(context.message("none " + index));
        }
        same("bodies", texts(drain(consumer, 10)),
            List.of("A 0", "A 1", "A 2", "A 3", "A 4", "B 0", "B 1", "B 2", "B 3", "B 4"));
        nothing(consumer);
        return Map.of("sent", 20, "received", 10);
    }

    // A condition over properties.
    private static Map<String, Object> sqlFilter(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple("",
            new FilterExpression("a > 3 AND b = 'x'", FilterExpressionType.SQL92));
        List<List<String>> cases = List.of(List.of("5", "x"), List.of("4", "x"), List.of("3", "x"),
            List.of("10", "y"), List.of("", "x"), List.of("10", ""));
        for (List<String> one : cases) {
            MessageBuilder builder = context.builder(one.get(0) + " " + one.get(1));
            if (!one.get(0).isEmpty()) {
                builder.addProperty("a", one.get(0));
            }
            if (!one.get(1).isEmpty()) {
                builder.addProperty("b", one.get(1));
            }
            producer.send(builder.build());
        }
        same("bodies", texts(drain(consumer, 2)), List.of("4 x", "5 x"));
        nothing(consumer);
        return Map.of("sent", cases.size(), "received", 2);
    }

    // What is not acknowledged comes again when its ten seconds are over, as attempt 2.
    private static Map<String, Object> redelivery(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        producer.send(context.message("redelivered"));
        Checks.Received first = receive(consumer, 1, Duration.ofSeconds(10)).get(0);
        Checks.Received second = receive(consumer, 1, INVISIBLE).get(0);
        double waited = (second.atMs() - first.atMs()) / 1000;
        same("message id", second.message().getMessageId(), first.message().getMessageId());
        same("attempts", List.of(first.message().getDeliveryAttempt(), second.message().getDeliveryAttempt()),
            List.of(1, 2));
        // The lease began before the answer was here, so a little less than ten seconds are seen.
        check(waited >= 9.8 && waited <= 20, "came again after " + waited + " s");
        same("refusal of the ended lease",
            refused("the acknowledgement of the first delivery", () -> consumer.ack(first.message())), STALE_HANDLE);
        consumer.ack(second.message());
        nothing(consumer);
        return Map.of("waited_s", waited, "stale_code", STALE_HANDLE.code());
    }

    // A changed lease holds as long as it says. This client keeps handles to itself and replaces the old one in place,
    // so the handle that is superseded cannot be tried; the one whose lease ended can.
    private static Map<String, Object> invisible(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        producer.send(context.message("invisible"));
        MessageView first = receive(consumer, 1, INVISIBLE).get(0).message();
        long began = System.nanoTime();
        consumer.changeInvisibleDuration(first, Duration.ofSeconds(5));
        MessageView second = receive(consumer, 1, INVISIBLE).get(0).message();
        double waited = (System.nanoTime() - began) / 1e9;
        same("attempt", second.getDeliveryAttempt(), 2);
        check(waited >= 5 && waited <= 15, "came again after " + waited + " s");
        same("refusal of the ended lease",
            refused("the handle whose lease ended", () -> consumer.ack(first)), STALE_HANDLE);
        consumer.changeInvisibleDuration(second, INVISIBLE);
        consumer.ack(second);
        nothing(consumer);
        return Map.of("waited_s", waited, "stale_code", STALE_HANDLE.code());
    }

    // Almost 4 MiB come back equal; more than 4 MiB are refused.
    private static Map<String, Object> large(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        byte[] body = new byte[4 * MIB - 4096];
        new Random(4).nextBytes(body);
        producer.send(context.builder(body).build());
        check(Arrays.equals(drain(consumer, 1).get(0).body(), body), "another body came back");
        Checks.Refusal refusal = refused("4 MiB + 1 byte",
            () -> producer.send(context.builder(new byte[4 * MIB + 1]).build()));
        nothing(consumer);
        Map<String, Object> facts = new HashMap<>(Map.of("bytes", body.length, "refused_by", refusal.side()));
        facts.put("code", refusal.code());
        return facts;
    }

    // 128 properties are the limit.
    private static Map<String, Object> manyProperties(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        Map<String, String> properties = new HashMap<>();
        MessageBuilder most = context.builder("128");
        MessageBuilder excess = context.builder("129").addProperty("one", "more");
        for (int index = 0; index < 128; index++) {
            properties.put("name-" + index, "value " + index);
            most.addProperty("name-" + index, "value " + index);
            excess.addProperty("name-" + index, "value " + index);
        }
        producer.send(most.build());
        same("properties", drain(consumer, 1).get(0).message().getProperties(), properties);
        same("refusal", refused("129 properties", () -> producer.send(excess.build())), TOO_MANY_PROPERTIES);
        nothing(consumer);
        return Map.of("refused_by", "server", "code", TOO_MANY_PROPERTIES.code());
    }

    // Bodies that some clients compress by themselves, and one that is gzip already, come back equal.
    private static Map<String, Object> compressible(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        byte[] text = "It was the best of times, it was the worst of times. ".repeat(1300)
            .getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream zipped = new ByteArrayOutputStream();
        try (GZIPOutputStream stream = new GZIPOutputStream(zipped)) {
            stream.write(text);
        }
        List<byte[]> bodies = List.of(text, Arrays.copyOf(text, 5000), zipped.toByteArray());
        for (int index = 0; index < bodies.size(); index++) {
            producer.send(context.builder(bodies.get(index)).addProperty("index", String.valueOf(index)).build());
        }
        for (Checks.Received received : drain(consumer, bodies.size())) {
            int index = Integer.parseInt(received.message().getProperties().get("index"));
            check(Arrays.equals(received.body(), bodies.get(index)), "another body " + index + " came back");
        }
        nothing(consumer);
        return Map.of("bytes", bodies.stream().map(body -> body.length).toList(), "compressed_by_client", false);
    }

    // Text beyond ASCII in body, tag, property and keys; and a key with a blank stays one key.
    private static Map<String, Object> unicode(Context context) throws Exception {
        Producer producer = context.producer();
        SimpleConsumer consumer = context.simple();
        String body = "Grüße 日本語 🚀";
        String tag = "märz-三月";
        producer.send(context.builder(body).setTag(tag).setKeys("Schlüssel-鍵", "key with blanks")
            .addProperty("größe", "übergroß 🦒").addProperty("leer zeichen", "a b").build());
        Checks.Received received = drain(consumer, 1).get(0);
        same("body", received.text(), body);
        same("tag", received.message().getTag(), Optional.of(tag));
        same("properties", received.message().getProperties(),
            Map.of("größe", "übergroß 🦒", "leer zeichen", "a b"));
        // The original splits a key at its blanks.
        same("keys", Set.copyOf(received.message().getKeys()), Set.of("Schlüssel-鍵", "key with blanks"));
        nothing(consumer);
        return Map.of("messages", 1);
    }

    // One topic and group in two namespaces, and in none: three topics and three groups.
    private static Map<String, Object> namespaces(Context context) throws Exception {
        List<String> names = List.of("", "compat-a", "compat-b");
        for (String name : names) {
            Producer producer = context.producer(name, null);
            for (int index = 0; index < 3; index++) {
                producer.send(context.message(name + " " + index));
            }
        }
        for (String name : names) {
            SimpleConsumer consumer = context.simple(name, FilterExpression.SUB_ALL);
            List<Checks.Received> came = drain(consumer, 3);
            same("bodies in namespace '" + name + "'", texts(came), List.of(name + " 0", name + " 1", name + " 2"));
            came.forEach(one -> same("topic", one.message().getTopic(), context.topic));
            nothing(consumer, Duration.ofSeconds(1));
        }
        return Map.of("namespaces", names.size());
    }

}
