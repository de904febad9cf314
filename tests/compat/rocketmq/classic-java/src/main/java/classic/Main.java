// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the classic Java client, one line of JSON.
package classic;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;

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
        Map<String, Scenario> scenarios = new TreeMap<>();
        scenarios.putAll(Sending.SCENARIOS);
        scenarios.putAll(Consuming.SCENARIOS);
        scenarios.putAll(Newer.SCENARIOS);
        scenarios.putAll(Signed.SCENARIOS);
        scenarios.putAll(Identities.SCENARIOS);
        scenarios.putAll(Standing.SCENARIOS);
        scenarios.putAll(Moving.SCENARIOS);
        if (arguments.length >= 4 && arguments[1].equals("classic-admin")) {
            System.out.println("{\"skipped\": \"mqadmin has a program of its own\"}");
            return 0;
        }
        if (arguments.length < 4 || !scenarios.containsKey(arguments[1])) {
            System.err.println("usage: ENDPOINT SCENARIO TOPIC GROUP [...]; scenarios: " + scenarios.keySet());
            return 2;
        }
        Map<String, Object> facts = new TreeMap<>();
        facts.put("client", "rocketmq-client " + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        facts.put("scenario", arguments[1]);
        String[] extra = Arrays.copyOfRange(arguments, 4, arguments.length);
        try {
            facts.putAll(scenarios.get(arguments[1]).run(new Context(arguments[0], arguments[2], arguments[3], extra)));
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
