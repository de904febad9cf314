// What consumes: messages as they are, objects with a certain tag, and what nobody could handle.
package spring;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.springframework.messaging.Message;
import org.springframework.stereotype.Component;

final class Listeners {
    private Listeners() {
    }

    public static final class Order {
        public String name;
        public int price;
    }

    @Component
    @RocketMQMessageListener(topic = "${compat.topic}", consumerGroup = "${compat.group}",
        delayLevelWhenNextConsume = 1, maxReconsumeTimes = 1)
    static class Inbox implements RocketMQListener<MessageExt> {
        final List<MessageExt> messages = new CopyOnWriteArrayList<>();
        final Map<String, Long> atMs = new ConcurrentHashMap<>();

        @Override
        public void onMessage(MessageExt message) {
            String text = new String(message.getBody(), StandardCharsets.UTF_8);
            if (text.equals("never") || text.equals("once") && message.getReconsumeTimes() == 0) {
                throw new IllegalStateException(text);
            }
            messages.add(message);
            atMs.put(text, System.currentTimeMillis());
        }
    }

    @Component
    @RocketMQMessageListener(topic = "${compat.topic}-orders", consumerGroup = "${compat.group}-orders",
        selectorExpression = "paid")
    static class Orders implements RocketMQListener<Order> {
        final List<Order> orders = new CopyOnWriteArrayList<>();

        @Override
        public void onMessage(Order order) {
            orders.add(order);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "${compat.topic}-lines", consumerGroup = "${compat.group}-lines",
        consumeMode = ConsumeMode.ORDERLY)
    static class Lines implements RocketMQListener<String> {
        final List<String> texts = new CopyOnWriteArrayList<>();

        @Override
        public void onMessage(String text) {
            texts.add(text);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "${compat.topic}-lines", consumerGroup = "${compat.group}-everybody",
        messageModel = MessageModel.BROADCASTING)
    static class Everybody implements RocketMQListener<String>, RocketMQPushConsumerLifecycleListener {
        final List<String> texts = new CopyOnWriteArrayList<>();

        @Override
        public void prepareStart(DefaultMQPushConsumer consumer) {
            // It finds its queues some time after it has started, and what was sent until then is for it, too.
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        }

        @Override
        public void onMessage(String text) {
            texts.add(text);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "%DLQ%${compat.group}", consumerGroup = "${compat.group}-dead")
    static class Dead implements RocketMQListener<String> {
        final List<String> texts = new CopyOnWriteArrayList<>();

        @Override
        public void onMessage(String text) {
            texts.add(text);
        }
    }

    // "commit" and "rollback" are decided at once, "ask" when the broker asks.
    @Component
    @RocketMQTransactionListener
    @SuppressWarnings("rawtypes")
    static class Transactions implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (String.valueOf(argument)) {
                case "commit": return RocketMQLocalTransactionState.COMMIT;
                case "rollback": return RocketMQLocalTransactionState.ROLLBACK;
                default: return RocketMQLocalTransactionState.UNKNOWN;
            }
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }
}
