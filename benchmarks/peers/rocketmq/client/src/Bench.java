import java.util.concurrent.ThreadLocalRandom;
import java.util.function.IntToLongFunction;

/**
 * Delayed messages through RocketMQ's official clients: each mode is one measurement and prints, last, one line of JSON;
 * before it the lines "measured: begin" and "measured: end", when its messages begin and end.
 *
 * <pre>
 * Bench send  ENDPOINT TOPIC       [count= delay_s=]    how fast single messages are taken
 * Bench herd  ENDPOINT TOPIC GROUP [count= lead_s=]     all due in one instant: when the last one is delivered
 * Bench paced ENDPOINT TOPIC GROUP [rate= seconds=]     at a fixed rate, delays of 1 to 10 s: how late they are
 * </pre>
 *
 * <p>The client is v5's (gRPC), or the classic one with classic=1: then ENDPOINT is a name server. {@link Options} has
 * the others. Times are of this machine's clock; lateness is what the listener's first line sees.
 */
public final class Bench {
    /** More a second than any server takes: the warm-up ends by time. */
    private static final int WARM_RATE_MAX = 100_000;
    private static final long WARM_DELAY_MS = 1_500;
    private static final int DELAY_MS_MIN = 1_000;
    private static final int DELAY_MS_MAX = 10_000;

    private Bench() {
    }

    public static void main(String[] arguments) {
        System.setProperty("rocketmq.logback.configurationFile", "bench-logback.xml"); // before the client's first log
        System.setProperty("rocketmq.client.logUseSlf4j", "true"); // the classic one writes files otherwise
        try {
            String mode = arguments.length == 0 ? "" : arguments[0];
            Report report = switch (mode) {
                case "send" -> send(new Options(arguments, 3));
                case "herd" -> herd(new Options(arguments, 4));
                case "paced" -> paced(new Options(arguments, 4));
                default -> throw new IllegalArgumentException("mode " + mode + " must be send, herd or paced");
            };
            System.out.println(report);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    /** Who measures what the server spends meanwhile looks at it now, and not while both ends warm up. */
    private static void mark(String moment) {
        System.out.println("measured: " + moment);
        System.out.flush();
    }

    private static Sender sender(Options options) throws Exception {
        return options.classic ? new ClassicSender(options) : new GrpcSender(options);
    }

    private static Receiver receiver(Options options) throws Exception {
        return options.classic ? new ClassicReceiver(options) : new GrpcReceiver(options);
    }

    private static Report send(Options options) throws Exception {
        long delayMs = (long) (options.delaySeconds * 1_000);
        try (Sender sender = sender(options)) {
            IntToLongFunction due = i -> System.currentTimeMillis() + delayMs;
            Batch warm = warmBatch(options);
            sender.send(warm, 0, options.warmSeconds, due);
            checkWarm(warm, warm.acked.get());
            Batch batch = new Batch(options.count);
            mark("begin");
            double rate = sender.send(batch, 0, Double.MAX_VALUE, due);
            mark("end");
            return sent(batch, rate);
        }
    }

    private static Report herd(Options options) throws Exception {
        try (Receiver receiver = receiver(options); Sender sender = sender(options)) {
            double warmRate = warm(options, receiver, sender, 0);
            double lead = options.leadSeconds > 0 ? options.leadSeconds : 5 + 1.5 * options.count / warmRate;
            // A whole second, the best case of a server whose clock ticks in them.
            long dueMs = (long) Math.ceil(System.currentTimeMillis() / 1e3 + lead) * 1_000;
            Batch batch = new Batch(options.count);
            receiver.expect(batch);
            mark("begin");
            double rate = sender.send(batch, 0, Double.MAX_VALUE, i -> dueMs);
            receiver.await(batch, dueMs, options.patienceSeconds);
            mark("end");
            Thread.sleep((long) (options.lingerSeconds * 1_000));
            double last = batch.received.get() == 0 ? Double.NaN : batch.lastMicros.get() / 1e6 - dueMs / 1e3;
            return delivered(sent(batch, rate), batch, receiver).add("last_s", last);
        }
    }

    private static Report paced(Options options) throws Exception {
        try (Receiver receiver = receiver(options); Sender sender = sender(options)) {
            warm(options, receiver, sender, options.rate);
            Batch batch = new Batch((int) (options.rate * options.seconds));
            receiver.expect(batch);
            IntToLongFunction due = i -> System.currentTimeMillis()
                + ThreadLocalRandom.current().nextInt(DELAY_MS_MIN, DELAY_MS_MAX + 1);
            mark("begin");
            double reached = sender.send(batch, options.rate, Double.MAX_VALUE, due);
            receiver.await(batch, System.currentTimeMillis() + DELAY_MS_MAX, options.patienceSeconds);
            mark("end");
            Thread.sleep((long) (options.lingerSeconds * 1_000));
            return delivered(sent(batch, reached), batch, receiver);
        }
    }

    /** Messages that are soon due go all the way, so that both ends are warm and the group is known to get them. */
    private static double warm(Options options, Receiver receiver, Sender sender, double perSecond) throws Exception {
        Batch batch = warmBatch(options);
        receiver.expect(batch);
        double rate = sender.send(batch, perSecond, options.warmSeconds, i -> System.currentTimeMillis() + WARM_DELAY_MS);
        receiver.await(batch, System.currentTimeMillis() + WARM_DELAY_MS, options.patienceSeconds);
        checkWarm(batch, batch.received.get());
        return rate;
    }

    /** What does not work at all is an error and no result. */
    private static void checkWarm(Batch batch, int worked) {
        if (batch.count > 0 && worked == 0) {
            throw new IllegalStateException("nothing came of the warm-up; acknowledged: " + batch.acked + ", failed: "
                + batch.failed + " " + batch.failure);
        }
    }

    private static Batch warmBatch(Options options) {
        return new Batch((int) (options.warmSeconds * WARM_RATE_MAX));
    }

    private static Report sent(Batch batch, double rate) {
        return new Report().add("count", batch.count).add("sends_per_s", rate)
            .percentiles("ack_", batch.sortedAckMs())
            .add("failed", batch.failed.get()).add("failure", batch.failure.get());
    }

    private static Report delivered(Report report, Batch batch, Receiver receiver) {
        return report.add("acked_late", batch.ackedLate.get()).add("received", batch.received.get())
            .percentiles("late_", batch.sortedLateMs()).add("early", batch.early.get())
            .add("lost", batch.missing()).add("duplicates", batch.duplicates.get())
            .add("foreign", receiver.foreign.get());
    }
}
