// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with a Spring Boot program, one line of JSON.
package spring;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;

@SpringBootApplication
public class Main {
    public static void main(String[] arguments) {
        int code = run(arguments);
        System.out.flush();
        System.err.flush();
        Runtime.getRuntime().halt(code);
    }

    private static int run(String[] arguments) {
        if (arguments.length < 4) {
            System.err.println("usage: ENDPOINT SCENARIO TOPIC GROUP");
            return 2;
        }
        Map<String, Object> facts = new TreeMap<>();
        facts.put("client", "rocketmq-spring 2.3.5, client "
            + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        facts.put("scenario", arguments[1]);
        try {
            if (Scenarios.NAMES.contains(arguments[1])) {
                // As an application's configuration says it.
                System.setProperty("rocketmq.name-server", arguments[0]);
                System.setProperty("rocketmq.producer.group", arguments[3] + "-producers");
                System.setProperty("compat.topic", arguments[2]);
                System.setProperty("compat.group", arguments[3]);
                ConfigurableApplicationContext context = SpringApplication.run(Main.class);
                facts.putAll(context.getBean(Scenarios.class).run(arguments[1]));
            } else {
                facts.put("skipped", "no program for it with Spring");
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
