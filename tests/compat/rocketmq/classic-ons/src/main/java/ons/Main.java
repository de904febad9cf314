// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the ONS client, one line of JSON.
package ons;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

final class Main {
    private Main() {
    }

    interface Scenario {
        Map<String, Object> run(Context context) throws Exception;
    }

    public static void main(String[] arguments) {
        int code = run(arguments);
        System.out.flush();
        System.err.flush();
        // Clients are left open: what they would do when they are closed is not what is looked at.
        Runtime.getRuntime().halt(code);
    }

    private static int run(String[] arguments) {
        if (arguments.length < 4) {
            System.err.println("usage: ENDPOINT SCENARIO TOPIC GROUP [...]; scenarios: " + Scenarios.ALL.keySet());
            return 2;
        }
        Map<String, Object> facts = new TreeMap<>();
        facts.put("client", "ons-client 1.8.8.8");
        facts.put("scenario", arguments[1]);
        String[] extra = Arrays.copyOfRange(arguments, 4, arguments.length);
        try {
            Scenario scenario = Scenarios.ALL.get(arguments[1]);
            if (scenario == null) {
                facts.put("skipped", "no program for it with ONS");
            } else {
                facts.putAll(scenario.run(new Context(arguments[0], arguments[2], arguments[3], extra)));
            }
        } catch (Throwable error) {
            error.printStackTrace();
            return 1;
        }
        StringBuilder json = new StringBuilder();
        facts.forEach((name, value) -> {
            String text = value instanceof Number ? value.toString() : "\"" + value + "\"";
            json.append(json.length() == 0 ? "{" : ", ").append('"').append(name).append("\": ").append(text);
        });
        System.out.println(json.append('}'));
        return 0;
    }
}
