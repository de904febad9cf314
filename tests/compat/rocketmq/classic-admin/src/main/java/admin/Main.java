// ENDPOINT SCENARIO TOPIC GROUP: RocketMQ's own mqadmin, command by command, beside clients that it is asked about.
package admin;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public final class Main {
    private static final long WAIT_MS = 60_000;
    private static final String CLUSTER = "DefaultCluster";
    private static final String BROKER = "tarry";
    private static int commands;

    private Main() {
    }

    public static void main(String[] arguments) {
        PrintStream stdout = System.out;
        int code = 0;
        try {
            String client = "rocketmq-tools " + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION);
            if (arguments[1].equals("classic-admin")) {
                run(arguments[0], arguments[2], arguments[3]);
                stdout.printf("{\"client\": \"%s\", \"commands\": %d}%n", client, commands);
            } else {
                stdout.printf("{\"skipped\": \"%s has commands only\"}%n", client);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        stdout.flush();
        System.err.flush();
        Runtime.getRuntime().halt(code);
    }

    private static void run(String endpoint, String topic, String group) throws Exception {
        String names = "-n " + endpoint;
        says("clusterList " + names, CLUSTER, endpoint);
        says("updateTopic " + names + " -c " + CLUSTER + " -t " + topic, "success");
        says("topicList " + names, topic);
        says("topicRoute " + names + " -t " + topic, endpoint, "\"perm\":6");
        List<String> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = consumer(endpoint, topic, group, received);
        DefaultMQProducer producer = new DefaultMQProducer(group + "-producers");
        producer.setNamesrvAddr(endpoint);
        producer.start();
        long beforeMs = System.currentTimeMillis();
        SendResult sent = producer.send(new Message(topic, "tag", "key-7", "looked for".getBytes(StandardCharsets.UTF_8)));
        await("the message", () -> received.size() == 1);

        says("topicStatus " + names + " -t " + topic, BROKER);
        says("brokerStatus " + names + " -b " + endpoint, "brokerVersionDesc", BROKER);
        says("queryMsgById " + names + " -i " + sent.getOffsetMsgId() + " -t " + topic, "key-7", topic);
        says("queryMsgByKey " + names + " -t " + topic + " -k key-7", sent.getMsgId());
        says("queryMsgByUniqueKey " + names + " -t " + topic + " -i " + sent.getMsgId(), "key-7", topic);
        says("consumerConnection " + names + " -g " + group, group + "-client", "CONSUME_PASSIVELY", topic);
        says("consumerStatus " + names + " -g " + group, group + "-client", "Rebalance OK");
        says("consumerStatus " + names + " -g " + group + " -s -i " + clientId(consumer), "#Consumer Subscription#", topic, "jstack");
        says("producerConnection " + names + " -t " + topic + " -g " + group + "-producers", "JAVA");
        says("queryMsgByUniqueKey " + names + " -t " + topic + " -i " + sent.getMsgId() + " -g " + group + " -d "
            + clientId(consumer), "CR_SUCCESS");
        await("the message once more", () -> received.size() == 2);
        pages(endpoint, topic, group, clientId(consumer));
        whole(endpoint, topic, group);
        // What a consumer has done is committed each 5 s.
        await("no lag", () -> said("consumerProgress " + names + " -g " + group).contains("Consume Diff Total: 0"));
        says("consumerProgress " + names, group);
        says("updateSubGroup " + names + " -c " + CLUSTER + " -g " + group + " -r 3", "success");
        says("setConsumeMode " + names + " -c " + CLUSTER + " -t " + topic + " -g " + group + " -m POP", "success");
        says("setConsumeMode " + names + " -c " + CLUSTER + " -t " + topic + " -g " + group + " -m PULL", "success");
        says("resetOffsetByTime " + names + " -g " + group + " -t " + topic + " -s " + (beforeMs - 1), topic, BROKER);
        await("the message after a reset", () -> received.size() == 3);
        consumer.shutdown();
        says("deleteSubGroup " + names + " -c " + CLUSTER + " -g " + group, "success");
        check(!said("consumerProgress " + names).contains(group), "the group is still there");
        says("updateTopic " + names + " -c " + CLUSTER + " -t " + topic + "-empty", "success");
        says("topicList " + names, topic + "-empty");
        says("deleteTopic " + names + " -c " + CLUSTER + " -t " + topic + "-empty", "success");
        check(!said("topicList " + names).contains(topic + "-empty"), "the topic is still there");
        says("deleteTopic " + names + " -c " + CLUSTER + " -t " + topic, "success");
    }

    // Commands about all of a broker, and those that make many things at once.
    private static void whole(String endpoint, String topic, String group) throws Exception {
        String names = "-n " + endpoint;
        Path file = Files.createTempFile("mqadmin", ".json");
        Files.writeString(file, "[{\"topicName\": \"" + topic + "-many\", \"readQueueNums\": 6, \"writeQueueNums\": 6, \"perm\": 6}]");
        says("updateTopicList " + names + " -c " + CLUSTER + " -f " + file, "success");
        says("topicRoute " + names + " -t " + topic + "-many", "\"readQueueNums\":6");
        Files.writeString(file, "[{\"groupName\": \"" + group + "\", \"retryMaxTimes\": 5}]");
        says("updateSubGroupList " + names + " -c " + CLUSTER + " -f " + file, "success");
        check(said("getConsumerConfig " + names + " -g " + group).replace(" ", "").contains("retryMaxTimes=5"), "retries");
        Files.delete(file);
        says("clusterList " + names + " -c " + CLUSTER, endpoint);
        says("updateTopic " + names + " -c " + CLUSTER + " -t " + topic + "-six -r 6 -w 6", "success");
        says("topicRoute " + names + " -t " + topic + "-six", "\"readQueueNums\":6", "\"writeQueueNums\":6");
        says("brokerConsumeStats " + names + " -b " + endpoint, topic, group, "Diff Total");
        says("statsAll " + names, topic, group);
        says("statsAll " + names + " -a", "#Topic");
        says("brokerStatus " + names + " -b " + endpoint, "scheduleMessageOffset_1", "putMessageDistributeTime", "bootTimestamp");
        says("topicStatus " + names + " -t SCHEDULE_TOPIC_XXXX", BROKER);
        says("topicRoute " + names + " -t SCHEDULE_TOPIC_XXXX", endpoint);
    }

    // What RocketMQ Dashboard's pages of consumers and producers ask, with those that are there.
    private static void pages(String endpoint, String topic, String group, String clientId) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(endpoint);
        admin.setInstanceName(group + "-pages");
        admin.start();
        try {
            for (ConsumerConnection there : List.of(admin.examineConsumerConnectionInfo(group),
                    admin.examineConsumerConnectionInfo(group, endpoint))) {
                check(there.getConsumeType() == ConsumeType.CONSUME_PASSIVELY, "type " + there.getConsumeType());
                check(there.getMessageModel() == MessageModel.CLUSTERING, "model " + there.getMessageModel());
                check(there.getConsumeFromWhere() == ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "from where");
                check(there.computeMinVersion() == MQVersion.CURRENT_VERSION, "version " + there.computeMinVersion());
                check(there.getSubscriptionTable().keySet().containsAll(Set.of(topic, "%RETRY%" + group)), "topics");
                check(there.getSubscriptionTable().get(topic).getSubString().equals("*"), "expression");
                Connection client = there.getConnectionSet().iterator().next();
                check(client.getClientId().equals(clientId), "client " + client.getClientId());
                check(client.getLanguage() == LanguageCode.JAVA, "language " + client.getLanguage());
                check(client.getClientAddr().startsWith("127.0.0.1:"), "address " + client.getClientAddr());
            }
            for (boolean stacks : new boolean[] {true, false}) {
                ConsumerRunningInfo inside = admin.getConsumerRunningInfo(group, clientId, stacks);
                check(inside.getMqTable().keySet().stream().anyMatch(queue -> queue.getTopic().equals(topic)), "queues");
                check(inside.getStatusTable().containsKey(topic), "status");
                check((inside.getJstack() != null) == stacks, "stacks");
            }
            String producers = group + "-producers";
            Connection producer = admin.examineProducerConnectionInfo(producers, topic).getConnectionSet().iterator().next();
            check(producer.getClientAddr().startsWith("127.0.0.1:"), "address " + producer.getClientAddr());
            check(producer.getLanguage() == LanguageCode.JAVA, "language " + producer.getLanguage());
            check(admin.getAllProducerInfo(endpoint).getData().get(producers).size() == 1, "producers");
            check(admin.queryTopicConsumeByWho(topic).getGroupList().contains(group), "who consumes");
            check(admin.examineConsumeStats(group, topic).getOffsetTable().size() == 8, "queues of " + topic);
            for (String nobody : List.of("nobody", group + "-none")) {
                refused("consumers of " + nobody, () -> admin.examineConsumerConnectionInfo(nobody));
                refused("producers of " + nobody, () -> admin.examineProducerConnectionInfo(nobody, topic));
            }
            refused("a client that is not there", () -> admin.getConsumerRunningInfo(group, "nobody", false));
        } finally {
            admin.shutdown();
        }
    }

    private static void refused(String what, Callable<?> question) throws Exception {
        try {
            question.call();
        } catch (MQBrokerException | MQClientException error) {
            return;
        }
        throw new IllegalStateException("there are answers about " + what);
    }

    private static DefaultMQPushConsumer consumer(String endpoint, String topic, String group, List<String> received)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(endpoint);
        consumer.setInstanceName(group + "-client");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, how) -> {
            messages.forEach(message -> received.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static String clientId(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    // Runs a command, which must say all of these.
    private static void says(String command, String... words) {
        String said = said(command);
        for (String word : words) {
            check(said.contains(word), command + " does not say " + word + ", but: " + said);
        }
        check(!said.contains("SubCommandException"), command + " failed: " + said);
    }

    private static String said(String command) {
        commands++;
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        try (PrintStream printed = new PrintStream(said, true, StandardCharsets.UTF_8)) {
            System.setOut(printed);
            System.setErr(printed);
            Startup.forget();
            MQAdminStartup.main0(command.split(" "), null);
        } finally {
            System.setOut(stdout);
            System.setErr(stderr);
        }
        return said.toString(StandardCharsets.UTF_8);
    }

    // Commands keep a client that they have closed, which is meant for a process that runs one of them.
    private static final class Startup extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "in vain: " + what);
            Thread.sleep(200);
        }
    }

    private static void check(boolean condition, String reason) {
        if (!condition) {
            throw new IllegalStateException(reason);
        }
    }
}
