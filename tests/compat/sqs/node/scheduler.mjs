// The AWS SDK for JavaScript v3 as it is, for EventBridge Scheduler and the queues that are its targets.
import assert from "node:assert/strict";
import * as sqs from "@aws-sdk/client-sqs";
import * as scheduler from "@aws-sdk/client-scheduler";

const queues = new sqs.SQSClient({});
const schedules = new scheduler.SchedulerClient({});
const call = (Command, input) => schedules.send(new Command(input));

const { QueueUrl } = await queues.send(new sqs.CreateQueueCommand({ QueueName: "node-reports" }));
const told = await queues.send(new sqs.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["QueueArn"] }));
const Target = { Arn: told.Attributes.QueueArn, RoleArn: "arn:aws:iam::000000000000:role/any", Input: "make it" };
const base = { FlexibleTimeWindow: { Mode: "OFF" }, Target };

// Once, in two seconds: sent at its time, and then gone.
const at = new Date(Date.now() + 2000).toISOString().slice(0, 19);
const due = Date.parse(`${at}Z`);
await call(scheduler.CreateScheduleCommand, {
  ...base, Name: "once", ScheduleExpression: `at(${at})`, ActionAfterCompletion: "DELETE",
});
let found = [];
for (let rounds = 0; !found.length && rounds < 20; rounds++) {
  const answer = await queues.send(new sqs.ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 2 }));
  found = answer.Messages ?? [];
}
assert.equal(found[0]?.Body, "make it");
assert.ok(Date.now() >= due);
await queues.send(new sqs.DeleteMessageCommand({ QueueUrl, ReceiptHandle: found[0].ReceiptHandle }));

// A group with tags, a schedule in it, its change, the same request again.
const group = await call(scheduler.CreateScheduleGroupCommand, { Name: "node", Tags: [{ Key: "team", Value: "shop" }] });
const tags = await call(scheduler.ListTagsForResourceCommand, { ResourceArn: group.ScheduleGroupArn });
assert.deepEqual(tags.Tags, [{ Key: "team", Value: "shop" }]);
const daily = {
  ...base, Name: "daily", GroupName: "node", ScheduleExpression: "cron(0 8 * * ? *)",
  ScheduleExpressionTimezone: "Europe/Berlin", ClientToken: "token-1", StartDate: new Date(Date.now() + 86400e3),
};
const first = await call(scheduler.CreateScheduleCommand, daily);
assert.equal((await call(scheduler.CreateScheduleCommand, daily)).ScheduleArn, first.ScheduleArn);
await assert.rejects(
  call(scheduler.CreateScheduleCommand, { ...daily, Description: "another" }), scheduler.ConflictException,
);
await call(scheduler.UpdateScheduleCommand, { ...daily, ScheduleExpression: "rate(2 hours)", State: "DISABLED" });
const shown = await call(scheduler.GetScheduleCommand, { Name: "daily", GroupName: "node" });
assert.equal(shown.ScheduleExpression, "rate(2 hours)");
assert.equal(shown.State, "DISABLED");
assert.equal(shown.StartDate.getTime(), daily.StartDate.getTime());
assert.ok(shown.CreationDate instanceof Date);
const page = await call(scheduler.ListSchedulesCommand, { GroupName: "node", NamePrefix: "da" });
assert.deepEqual(page.Schedules.map((each) => [each.Name, each.Target.Arn]), [["daily", Target.Arn]]);

// Errors by their classes.
await assert.rejects(
  call(scheduler.GetScheduleCommand, { Name: "none" }), scheduler.ResourceNotFoundException,
);
await assert.rejects(
  call(scheduler.CreateScheduleCommand, { ...base, Name: "bad", ScheduleExpression: "often" }),
  scheduler.ValidationException,
);
const stranger = new scheduler.SchedulerClient({ credentials: { accessKeyId: "nobody", secretAccessKey: "nothing" } });
await assert.rejects(stranger.send(new scheduler.ListSchedulesCommand({})), { name: "UnrecognizedClientException" });
await call(scheduler.DeleteScheduleGroupCommand, { Name: "node" });
assert.deepEqual((await call(scheduler.ListSchedulesCommand, {})).Schedules.filter((each) => each.GroupName === "node"), []);
await queues.send(new sqs.DeleteQueueCommand({ QueueUrl }));
console.log("scheduler-node: ok");
