// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the official Java client, one line of JSON.
package compat;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

final class Main {
    static final String CLIENT = "rocketmq-client-java 5.2.0";

    private Main() {
    }

    public static void main(String[] arguments) {
        int code = run(arguments);
        System.out.flush();
        System.err.flush();
        // Consumers are left open: closing a PushConsumer waits for its long poll. Only "push" does, and says how long.
        Runtime.getRuntime().halt(code);
    }

    private static int run(String[] arguments) {
        Map<String, Scenario> scenarios = new TreeMap<>();
        scenarios.putAll(Plain.SCENARIOS);
        scenarios.putAll(Delayed.SCENARIOS);
        scenarios.putAll(Pushed.SCENARIOS);
        scenarios.putAll(Standing.SCENARIOS);
        scenarios.putAll(Identities.SCENARIOS);
        if (arguments.length < 4 || !scenarios.containsKey(arguments[1])) {
            System.err.println("usage: ENDPOINT SCENARIO TOPIC GROUP [...]; scenarios: " + scenarios.keySet());
            return 2;
        }
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("client", CLIENT);
        said.put("scenario", arguments[1]);
        String[] extra = Arrays.copyOfRange(arguments, 4, arguments.length);
        try (Context context = new Context(arguments[0], arguments[2], arguments[3], extra)) {
            said.putAll(new TreeMap<>(scenarios.get(arguments[1]).run(context)));
        } catch (FailedException reason) {
            System.err.println(arguments[1] + ": " + reason.getMessage());
            return 1;
        } catch (Throwable error) {
            error.printStackTrace();
            return 1;
        }
        System.out.println(Json.of(said));
        return 0;
    }
}
