package compat;

import java.util.List;
import java.util.Map;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.*;

/** The AWS SDK for Java v2 as it is: all that it is told is the endpoint, by AWS_ENDPOINT_URL_SQS. */
public final class Main {
    private static final SqsClient CLIENT = SqsClient.create();

    public static void main(String[] arguments) {
        String url = CLIENT.createQueue(q -> q.queueName("java")).queueUrl();

        // Sent, received, given back, deleted: the SDK checks the MD5s.
        CLIENT.sendMessage(m -> m.queueUrl(url).messageBody("grüße").messageAttributes(Map.of(
                "price", MessageAttributeValue.builder().dataType("Number").stringValue("3.5").build(),
                "raw", MessageAttributeValue.builder().dataType("Binary")
                        .binaryValue(SdkBytes.fromByteArray(new byte[] {0, 1, -1})).build())));
        Message first = receive(url);
        check(first.body().equals("grüße"), first.body());
        check(first.messageAttributes().get("raw").binaryValue().asByteArray().length == 3, "raw");
        CLIENT.changeMessageVisibility(c -> c.queueUrl(url).receiptHandle(first.receiptHandle()).visibilityTimeout(0));
        Message again = receive(url);
        check(again.attributesAsStrings().get("ApproximateReceiveCount").equals("2"), again.attributesAsStrings());
        CLIENT.deleteMessage(d -> d.queueUrl(url).receiptHandle(again.receiptHandle()));

        // Delays: a second, and twenty years.
        long begun = System.nanoTime();
        CLIENT.sendMessageBatch(b -> b.queueUrl(url).entries(
                SendMessageBatchRequestEntry.builder().id("soon").messageBody("soon").delaySeconds(1).build(),
                SendMessageBatchRequestEntry.builder().id("far").messageBody("far").delaySeconds(20 * 365 * 86400).build()));
        Message soon = receive(url);
        check(soon.body().equals("soon") && System.nanoTime() - begun >= 1_000_000_000L, soon.body());
        Map<String, String> counts = CLIENT.getQueueAttributes(
                g -> g.queueUrl(url).attributeNames(QueueAttributeName.ALL)).attributesAsStrings();
        check(counts.get("ApproximateNumberOfMessagesDelayed").equals("1"), counts);

        // Order, and what was sent twice.
        String fifo = CLIENT.createQueue(q -> q.queueName("java.fifo").attributesWithStrings(
                Map.of("FifoQueue", "true", "ContentBasedDeduplication", "true"))).queueUrl();
        for (String body : List.of("one", "two", "two", "three")) {
            CLIENT.sendMessage(m -> m.queueUrl(fifo).messageBody(body).messageGroupId("g"));
        }
        for (String body : List.of("one", "two", "three")) {
            Message next = receive(fifo);
            check(next.body().equals(body), next.body());
            CLIENT.deleteMessage(d -> d.queueUrl(fifo).receiptHandle(next.receiptHandle()));
        }

        // Errors by their classes.
        try {
            CLIENT.getQueueUrl(g -> g.queueName("none"));
            check(false, "a queue that is not there");
        } catch (QueueDoesNotExistException expected) {
            check(expected.statusCode() == 400, expected);
        }
        try {
            CLIENT.deleteMessage(d -> d.queueUrl(url).receiptHandle("nonsense"));
            check(false, "nonsense");
        } catch (ReceiptHandleIsInvalidException expected) {
            check(expected.statusCode() == 400, expected);
        }
        CLIENT.deleteQueue(d -> d.queueUrl(url));
        CLIENT.deleteQueue(d -> d.queueUrl(fifo));
        System.out.println("java: ok");
    }

    private static Message receive(String url) {
        for (int turn = 0; turn < 20; turn++) {
            List<Message> found = CLIENT.receiveMessage(r -> r.queueUrl(url).maxNumberOfMessages(1).waitTimeSeconds(2)
                    .messageAttributeNames("All").messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
            if (!found.isEmpty()) {
                return found.get(0);
            }
        }
        throw new AssertionError("nothing was received");
    }

    private static void check(boolean holds, Object found) {
        if (!holds) {
            throw new AssertionError(found);
        }
    }
}
