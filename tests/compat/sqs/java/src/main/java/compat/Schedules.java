package compat;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import software.amazon.awssdk.services.scheduler.SchedulerClient;
import software.amazon.awssdk.services.scheduler.model.*;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;

/** The AWS SDK for Java v2 as it is, for EventBridge Scheduler and the queues that are its targets. */
public final class Schedules {
    private static final SqsClient QUEUES = SqsClient.create();
    private static final SchedulerClient CLIENT = SchedulerClient.create();
    private static final FlexibleTimeWindow OFF =
            FlexibleTimeWindow.builder().mode(FlexibleTimeWindowMode.OFF).build();

    public static void main(String[] arguments) {
        String url = QUEUES.createQueue(q -> q.queueName("java-reports")).queueUrl();
        String arn = QUEUES.getQueueAttributes(g -> g.queueUrl(url).attributeNames(QueueAttributeName.QUEUE_ARN))
                .attributes().get(QueueAttributeName.QUEUE_ARN);
        Target target = Target.builder().arn(arn).roleArn("arn:aws:iam::000000000000:role/any").input("make it").build();

        // Once, in two seconds: sent at its time, and then gone.
        Instant due = Instant.now().plusSeconds(2).truncatedTo(ChronoUnit.SECONDS);
        String at = due.toString().replace("Z", "");
        CLIENT.createSchedule(s -> s.name("once").scheduleExpression("at(" + at + ")").flexibleTimeWindow(OFF)
                .target(target).actionAfterCompletion(ActionAfterCompletion.DELETE));
        Message message = receive(url);
        check(message.body().equals("make it") && !Instant.now().isBefore(due), message.body());
        QUEUES.deleteMessage(d -> d.queueUrl(url).receiptHandle(message.receiptHandle()));

        // A group with tags, a schedule in it, its change, the same request again.
        String group = CLIENT.createScheduleGroup(
                g -> g.name("java").tags(Tag.builder().key("team").value("shop").build())).scheduleGroupArn();
        check(CLIENT.listTagsForResource(t -> t.resourceArn(group)).tags().get(0).value().equals("shop"), "tags");
        Instant start = Instant.now().plus(1, ChronoUnit.DAYS).truncatedTo(ChronoUnit.MILLIS);
        CreateScheduleRequest daily = CreateScheduleRequest.builder().name("daily").groupName("java")
                .scheduleExpression("cron(0 8 * * ? *)").scheduleExpressionTimezone("Europe/Berlin")
                .clientToken("token-1").startDate(start).flexibleTimeWindow(OFF).target(target).build();
        String first = CLIENT.createSchedule(daily).scheduleArn();
        check(CLIENT.createSchedule(daily).scheduleArn().equals(first), "repeated");
        try {
            CLIENT.createSchedule(daily.toBuilder().description("another").build());
            check(false, "the same token");
        } catch (ConflictException expected) {
            check(expected.statusCode() == 409, expected);
        }
        CLIENT.updateSchedule(s -> s.name("daily").groupName("java").scheduleExpression("rate(2 hours)")
                .state(ScheduleState.DISABLED).startDate(start).flexibleTimeWindow(OFF).target(target));
        GetScheduleResponse shown = CLIENT.getSchedule(g -> g.name("daily").groupName("java"));
        check(shown.scheduleExpression().equals("rate(2 hours)") && shown.state() == ScheduleState.DISABLED, shown);
        check(shown.startDate().equals(start), shown.startDate());
        List<ScheduleSummary> page = CLIENT.listSchedules(l -> l.groupName("java").namePrefix("da")).schedules();
        check(page.size() == 1 && page.get(0).target().arn().equals(arn), page);

        // Errors by their classes.
        try {
            CLIENT.getSchedule(g -> g.name("none"));
            check(false, "a schedule that is not there");
        } catch (ResourceNotFoundException expected) {
            check(expected.statusCode() == 404, expected);
        }
        try {
            CLIENT.createSchedule(
                    s -> s.name("bad").scheduleExpression("often").flexibleTimeWindow(OFF).target(target));
            check(false, "often");
        } catch (ValidationException expected) {
            check(expected.statusCode() == 400, expected);
        }
        CLIENT.deleteScheduleGroup(g -> g.name("java"));
        check(CLIENT.listSchedules(l -> l.maxResults(100)).schedules().stream().noneMatch(s -> s.groupName().equals("java")), "deleted");
        QUEUES.deleteQueue(d -> d.queueUrl(url));
        System.out.println("scheduler-java: ok");
    }

    private static Message receive(String url) {
        for (int turn = 0; turn < 20; turn++) {
            List<Message> found = QUEUES.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(2)).messages();
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
