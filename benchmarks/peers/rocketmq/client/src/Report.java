import java.util.Locale;

/** One line of JSON. */
final class Report {
    private final StringBuilder json = new StringBuilder("{");

    Report add(String name, long value) {
        return raw(name, Long.toString(value));
    }

    Report add(String name, double value) {
        return raw(name, Double.isFinite(value) ? String.format(Locale.ROOT, "%.3f", value) : "null");
    }

    Report add(String name, String value) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else {
                quoted.append(c < ' ' ? ' ' : c);
            }
        }
        return raw(name, quoted.append('"').toString());
    }

    /** @param sorted milliseconds; null is written for percentiles of nothing */
    Report percentiles(String prefix, double[] sorted) {
        return add(prefix + "p50_ms", percentile(sorted, 50)).add(prefix + "p99_ms", percentile(sorted, 99))
            .add(prefix + "p999_ms", percentile(sorted, 99.9)).add(prefix + "max_ms", percentile(sorted, 100));
    }

    private static double percentile(double[] sorted, double percent) {
        if (sorted.length == 0) {
            return Double.NaN;
        }
        int rank = (int) Math.ceil(percent / 100 * sorted.length);
        return sorted[Math.max(rank, 1) - 1];
    }

    private Report raw(String name, String value) {
        json.append(json.length() > 1 ? ", " : "").append('"').append(name).append("\": ").append(value);
        return this;
    }

    @Override
    public String toString() {
        return json + "}";
    }
}
