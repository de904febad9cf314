// Facts as JSON, without a library.
package compat;

import java.util.Map;
import java.util.StringJoiner;

final class Json {
    private Json() {
    }

    static String of(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringJoiner joined = new StringJoiner(", ", "{", "}");
            map.forEach((name, item) -> joined.add(of(String.valueOf(name)) + ": " + of(item)));
            return joined.toString();
        }
        if (value instanceof Iterable<?> items) {
            StringJoiner joined = new StringJoiner(", ", "[", "]");
            items.forEach(item -> joined.add(of(item)));
            return joined.toString();
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            if (one == '"' || one == '\\') {
                text.append('\\').append(one);
            } else if (one < ' ') {
                text.append(String.format("\\u%04x", (int) one));
            } else {
                text.append(one);
            }
        }
        return text.append('"').toString();
    }
}
