// With access keys and TLS, and with headers of either form.
package classic;

import static classic.Context.await;
import static classic.Context.check;
import static classic.Context.same;
import static classic.Context.sorted;
import static classic.Context.texts;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

final class Signed {
    static final Map<String, Main.Scenario> SCENARIOS =
        Map.of("classic-signed", Signed::sendAndReceive, "classic-signed-binary", Signed::sendAndReceive);

    private Signed() {
    }

    // More words: the access key, its secret, and how headers are written, which is read when the client's class is loaded.
    private static Map<String, Object> sendAndReceive(Context context) throws Exception {
        System.setProperty(RemotingCommand.SERIALIZE_TYPE_PROPERTY, context.extra[2]);
        same("form", RemotingCommand.getSerializeTypeConfigInThisServer().name(), context.extra[2]);
        RPCHook keys = new AclClientRPCHook(new SessionCredentials(context.extra[0], context.extra[1]));
        List<Context.Received> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(context.group, keys, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(context.endpoint);
        consumer.setInstanceName("signed-consumer");
        consumer.setUseTLS(true);
        consumer.subscribe(context.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, how) -> {
            messages.forEach(message -> received.add(new Context.Received(message)));
            boolean again = messages.get(0).getReconsumeTimes() == 0 && new String(messages.get(0).getBody()).equals("again");
            how.setDelayLevelWhenNextConsume(1);
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (boolean tls : List.of(true, false)) {
            DefaultMQProducer producer = context.configured(new DefaultMQProducer(context.group + "-producers", keys));
            producer.setUseTLS(tls);
            producer.start();
            Message message = context.message(tls ? "by TLS" : "again");
            message.setKeys("größe");
            message.setDelayTimeLevel(1);
            producer.send(message);
        }
        await(received, 3);
        same("bodies", sorted(received), texts("by TLS", "again", "again"));
        RPCHook wrong = new AclClientRPCHook(new SessionCredentials(context.extra[0], "wrong"));
        DefaultMQProducer refused = context.configured(new DefaultMQProducer(context.group + "-refused", wrong));
        refused.setUseTLS(true);
        refused.start();
        try {
            refused.send(context.message("never"));
            check(false, "a wrong secret was taken");
        } catch (Exception expected) {
            return Map.of("refused", expected.getClass().getSimpleName());
        }
        return Map.of();
    }
}
