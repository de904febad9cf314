/** What may be said as name=value after the words of a mode, and what holds where it is not said. */
final class Options {
    final String endpoint;
    final String topic;
    final String group;
    /** The client is the classic one. */
    boolean classic = false;
    int count = 200_000;
    int inflight = 64;
    int bodyBytes = 256;
    double warmSeconds = 3;
    double delaySeconds = 3_600;
    /** From the end of the warm-up until the herd is due; 0 is as long as sending will take, going by the warm-up. */
    double leadSeconds = 0;
    double rate = 2_000;
    double seconds = 30;
    int threads = 20;
    int cache = 65_536;
    double patienceSeconds = 30;
    double lingerSeconds = 3;

    /** @param words how many arguments there are before the first name=value */
    Options(String[] arguments, int words) {
        if (arguments.length < words) {
            throw new IllegalArgumentException("too few arguments");
        }
        endpoint = arguments[1];
        topic = arguments[2];
        group = words > 3 ? arguments[3] : "";
        for (int i = words; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException(arguments[i] + " must be name=value");
            }
            set(arguments[i].substring(0, equals), Double.parseDouble(arguments[i].substring(equals + 1)));
        }
        if (bodyBytes < Batch.BODY_BYTES_MIN) {
            throw new IllegalArgumentException("body=" + bodyBytes + " must be >= " + Batch.BODY_BYTES_MIN);
        }
    }

    private void set(String name, double value) {
        switch (name) {
            case "classic" -> classic = value != 0;
            case "count" -> count = (int) value;
            case "inflight" -> inflight = (int) value;
            case "body" -> bodyBytes = (int) value;
            case "warm_s" -> warmSeconds = value;
            case "delay_s" -> delaySeconds = value;
            case "lead_s" -> leadSeconds = value;
            case "rate" -> rate = value;
            case "seconds" -> seconds = value;
            case "threads" -> threads = (int) value;
            case "cache" -> cache = (int) value;
            case "patience_s" -> patienceSeconds = value;
            case "linger_s" -> lingerSeconds = value;
            default -> throw new IllegalArgumentException("unknown: " + name);
        }
    }
}
