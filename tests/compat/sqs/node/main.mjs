// The AWS SDK for JavaScript v3 as it is: all that it is told is the endpoint, by AWS_ENDPOINT_URL_SQS.
import assert from "node:assert/strict";
import * as sqs from "@aws-sdk/client-sqs";

const client = new sqs.SQSClient({});
const call = (Command, input) => client.send(new Command(input));

async function receive(QueueUrl, count, more = {}) {
  const found = [];
  for (let rounds = 0; found.length < count && rounds < 20; rounds++) {
    const answer = await call(sqs.ReceiveMessageCommand, {
      QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 2, MessageAttributeNames: ["All"],
      MessageSystemAttributeNames: ["All"], ...more,
    });
    found.push(...(answer.Messages ?? []));
  }
  return found;
}

const { QueueUrl } = await call(sqs.CreateQueueCommand, { QueueName: "node", Attributes: { VisibilityTimeout: "5" } });
assert.equal((await call(sqs.GetQueueUrlCommand, { QueueName: "node" })).QueueUrl, QueueUrl);

// Sent, received, held for longer, deleted: the SDK checks the MD5s.
const attributes = {
  price: { DataType: "Number", StringValue: "3.5" },
  raw: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
};
await call(sqs.SendMessageCommand, { QueueUrl, MessageBody: "grüße", MessageAttributes: attributes });
const [first] = await receive(QueueUrl, 1);
assert.equal(first.Body, "grüße");
assert.deepEqual([...first.MessageAttributes.raw.BinaryValue], [0, 1, 255]);
assert.equal(first.Attributes.ApproximateReceiveCount, "1");
const held = { QueueUrl, ReceiptHandle: first.ReceiptHandle };
await call(sqs.ChangeMessageVisibilityCommand, { ...held, VisibilityTimeout: 0 });
const [again] = await receive(QueueUrl, 1);
assert.equal(again.MessageId, first.MessageId);
assert.equal(again.Attributes.ApproximateReceiveCount, "2");
await call(sqs.DeleteMessageCommand, { QueueUrl, ReceiptHandle: again.ReceiptHandle });

// Delays: a second, and twenty years.
const begun = Date.now();
await call(sqs.SendMessageBatchCommand, {
  QueueUrl,
  Entries: [
    { Id: "soon", MessageBody: "soon", DelaySeconds: 1 },
    { Id: "far", MessageBody: "far", DelaySeconds: 20 * 365 * 86400 },
  ],
});
const [soon] = await receive(QueueUrl, 1);
assert.equal(soon.Body, "soon");
assert.ok(Date.now() - begun >= 1000);
await call(sqs.DeleteMessageBatchCommand, { QueueUrl, Entries: [{ Id: "soon", ReceiptHandle: soon.ReceiptHandle }] });
const counts = await call(sqs.GetQueueAttributesCommand, { QueueUrl, AttributeNames: ["All"] });
assert.equal(counts.Attributes.ApproximateNumberOfMessagesDelayed, "1");

// Order, and what was sent twice.
const fifo = await call(sqs.CreateQueueCommand, {
  QueueName: "node.fifo", Attributes: { FifoQueue: "true", ContentBasedDeduplication: "true" },
});
for (const MessageBody of ["one", "two", "two", "three"]) {
  await call(sqs.SendMessageCommand, { QueueUrl: fifo.QueueUrl, MessageBody, MessageGroupId: "g" });
}
const order = [];
for (let turn = 0; turn < 3; turn++) {
  const [next] = await receive(fifo.QueueUrl, 1, { MaxNumberOfMessages: 1 });
  order.push(next.Body);
  await call(sqs.DeleteMessageCommand, { QueueUrl: fifo.QueueUrl, ReceiptHandle: next.ReceiptHandle });
}
assert.deepEqual(order, ["one", "two", "three"]);

// Errors by their classes.
await assert.rejects(call(sqs.GetQueueUrlCommand, { QueueName: "none" }), sqs.QueueDoesNotExist);
await assert.rejects(
  call(sqs.DeleteMessageCommand, { QueueUrl, ReceiptHandle: "nonsense" }), sqs.ReceiptHandleIsInvalid,
);
await assert.rejects(call(sqs.SendMessageBatchCommand, { QueueUrl, Entries: [] }), sqs.EmptyBatchRequest);
const stranger = new sqs.SQSClient({ credentials: { accessKeyId: "nobody", secretAccessKey: "nothing" } });
await assert.rejects(stranger.send(new sqs.ListQueuesCommand({})), { name: "InvalidClientTokenId" });
for (const each of [QueueUrl, fifo.QueueUrl]) await call(sqs.DeleteQueueCommand, { QueueUrl: each });
console.log("node: ok");
