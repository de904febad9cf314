// A program with amqplib, as for the delayed-message plugin. It is told RabbitMQ's URL and the delayed exchange's name.
import assert from "node:assert";
import amqp from "amqplib";

const delayed = process.env.DELAYED_EXCHANGE;
const connection = await amqp.connect(process.env.AMQP_URL);
const channel = await connection.createConfirmChannel();
await channel.assertExchange("orders", "direct", { durable: true });
await channel.assertQueue("node", { durable: true });
await channel.bindQueue("node", "orders", "node");

const publish = (body, delay, more = {}) =>
  channel.publish(delayed, "node", Buffer.from(body), {
    persistent: true,
    ...more,
    headers: { "x-delay": delay, ...more.headers },
  });

const began = Date.now();
publish("third", 3000);
publish("second", 2000, { contentType: "text/plain", timestamp: 1700000000, headers: { nested: { list: [1, "x", true] }, ratio: 0.1 } });
publish("first", 1000);
publish("job", 1500, { messageId: "job-1", headers: { "x-retry": 0 } });
await channel.waitForConfirms();

const found = [];
await new Promise((resolve, reject) => {
  const giveUp = setTimeout(() => reject(new Error(`only ${found} came`)), 60_000);
  channel.consume("node", (message) => {
    const { headers, contentType, timestamp, messageId } = message.properties;
    const body = message.content.toString();
    if (body === "job" && headers["x-retry"] < 3) {
      publish("job", 500, { messageId, headers: { "x-retry": headers["x-retry"] + 1 } });
    } else {
      found.push(body);
    }
    if (body === "first") {
      assert(Date.now() - began >= 1000, "it has come early");
      assert.strictEqual(headers["x-delay"], -1000);
    }
    if (body === "second") {
      assert.deepStrictEqual({ ...headers }, { "x-delay": -2000, nested: { list: [1, "x", true] }, ratio: 0.1 });
      assert.deepStrictEqual([contentType, timestamp], ["text/plain", 1700000000]);
    }
    channel.ack(message);
    if (found.length === 4) {
      clearTimeout(giveUp);
      resolve();
    }
  }).catch(reject);
});
assert.deepStrictEqual(found.filter((body) => body !== "job"), ["first", "second", "third"]);
await channel.close();
await connection.close();
console.log("amqplib ok");
