package compat;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.MessageDeliveryMode;
import org.springframework.amqp.core.MessageProperties;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;

/** A program with Spring AMQP, as for the delayed-message plugin: setDelayLong, getReceivedDelayLong, a listener. */
public final class Main {
    private static final String DELAYED = System.getenv("DELAYED_EXCHANGE");

    public static void main(String[] args) throws Exception {
        var factory = new CachingConnectionFactory(URI.create(System.getenv("AMQP_URL").replaceAll("/$", "")));
        var admin = new RabbitAdmin(factory);
        var exchange = new DirectExchange("orders");
        var queue = new Queue("spring");
        admin.declareExchange(exchange);
        admin.declareQueue(queue);
        admin.declareBinding(BindingBuilder.bind(queue).to(exchange).with("spring"));

        var template = new RabbitTemplate(factory);
        List<String> found = new ArrayList<>();
        List<String> faults = new ArrayList<>();
        var left = new CountDownLatch(4);
        long began = System.currentTimeMillis();
        send(template, "third", 3000, null, 0);
        send(template, "second", 2000, null, 0);
        send(template, "first", 1000, null, 0);
        send(template, "job", 1500, "job-1", 0);

        var container = new SimpleMessageListenerContainer(factory);
        container.setQueueNames("spring");
        container.setMessageListener(message -> {
            var body = new String(message.getBody());
            MessageProperties properties = message.getMessageProperties();
            Object count = properties.getHeader("count");
            if (!(count instanceof Long)) {
                faults.add("header count is " + count + " of " + (count == null ? "nothing" : count.getClass().getName()));
            }
            if (body.equals("job") && (Integer) properties.getHeader("x-retry") < 3) {
                send(template, "job", 500, properties.getMessageId(), (Integer) properties.getHeader("x-retry") + 1);
                return;
            }
            if (body.equals("first")) {
                check(faults, System.currentTimeMillis() - began >= 1000, "it has come early");
                check(faults, Long.valueOf(-1000).equals(properties.getReceivedDelayLong()),
                        "received delay " + properties.getReceivedDelayLong());
                check(faults, properties.getReceivedDeliveryMode() == MessageDeliveryMode.PERSISTENT, "delivery mode");
            }
            found.add(body);
            left.countDown();
        });
        container.start();
        check(faults, left.await(60, TimeUnit.SECONDS), "only these have come: " + found);
        container.stop();
        factory.destroy();
        check(faults, found.stream().filter(body -> !body.equals("job")).toList().equals(List.of("first", "second", "third")),
                "they have come as " + found);
        if (!faults.isEmpty()) {
            System.err.println(faults);
            System.exit(1);
        }
        System.out.println("Spring AMQP ok");
    }

    private static void send(RabbitTemplate template, String body, long delayMs, String id, int retry) {
        template.convertAndSend(DELAYED, "spring", body, message -> {
            MessageProperties properties = message.getMessageProperties();
            properties.setDelayLong(delayMs);
            properties.setHeader("count", 5L);
            properties.setHeader("x-retry", retry);
            if (id != null) {
                properties.setMessageId(id);
            }
            return message;
        });
    }

    private static void check(List<String> faults, boolean holds, String fault) {
        if (!holds) {
            faults.add(fault);
        }
    }
}
