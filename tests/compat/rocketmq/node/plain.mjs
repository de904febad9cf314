// Messages without a delay, with Producer and SimpleConsumer: content, filters, leases, limits.

import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { FilterExpression } from 'rocketmq-client-nodejs';
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js';
import { INVISIBLE_MS, check, count, drain, nothing, nowMs, receive, refused, same, texts } from './base.mjs';

const MIB = 1 << 20;
const STALE_HANDLE = { side: 'server', code: 40013 };
const TOO_MANY_PROPERTIES = { side: 'server', code: 43101 };

// Ten messages come as they were sent, are acknowledged, and nothing is left.
async function normal(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const sent = new Map();
  for (let index = 0; index < 10; index++) {
    const receipt = await producer.send(context.message(`normal ${index}`, {
      tag: `tag-${index % 3}`,
      keys: [`key-${index}`, `second-${index}`],
      properties: new Map([['index', `${index}`], ['colour', 'blue']]),
    }));
    sent.set(receipt.messageId, index);
  }
  same('message ids', sent.size, 10);
  for (const { message, text, atMs } of await drain(consumer, 10)) {
    const index = sent.get(message.messageId);
    check(sent.delete(message.messageId), `unknown message id ${message.messageId}`);
    same('topic', message.topic, context.topic);
    same('body', text, `normal ${index}`);
    same('tag', message.tag, `tag-${index % 3}`);
    same('keys', new Set(message.keys), new Set([`key-${index}`, `second-${index}`]));
    same('properties', Object.fromEntries(message.properties), { index: `${index}`, colour: 'blue' });
    same('attempt', message.deliveryAttempt, 1);
    check(!message.corrupted, 'said to be corrupted');
    const ageMs = atMs - message.bornTimestamp.getTime();
    check(ageMs >= -1000 && ageMs <= 60_000, `born ${ageMs} ms ago`);
  }
  await nothing(consumer);
  return { messages: 10 };
}

// Of four kinds of tags, two are wanted.
async function tagFilter(context) {
  const producer = await context.producer();
  const consumer = await context.simple({ expression: new FilterExpression('A || B') });
  for (let index = 0; index < 5; index++) {
    for (const tag of ['A', 'B', 'C', undefined]) await producer.send(context.message(`${tag} ${index}`, { tag }));
  }
  const expected = ['A', 'B'].flatMap((tag) => count(5, (index) => `${tag} ${index}`));
  same('bodies', texts(await drain(consumer, 10)), expected);
  await nothing(consumer);
  return { sent: 20, received: 10 };
}

// A condition over properties.
async function sqlFilter(context) {
  const producer = await context.producer();
  const expression = new FilterExpression("a > 3 AND b = 'x'", definition.FilterType.SQL);
  const consumer = await context.simple({ expression });
  const cases = [{ a: '5', b: 'x' }, { a: '4', b: 'x' }, { a: '3', b: 'x' }, { a: '10', b: 'y' }, { b: 'x' }, { a: '10' }];
  for (const one of cases) {
    await producer.send(context.message(`${one.a} ${one.b}`, { properties: new Map(Object.entries(one)) }));
  }
  same('bodies', texts(await drain(consumer, 2)), ['4 x', '5 x']);
  await nothing(consumer);
  return { sent: cases.length, received: 2 };
}

// What is not acknowledged comes again when its ten seconds are over, as attempt 2.
async function redelivery(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  await producer.send(context.message('redelivered'));
  const [first] = await receive(consumer, 1, 10_000);
  const [second] = await receive(consumer, 1);
  const waitedMs = second.atMs - first.atMs;
  same('message id', second.message.messageId, first.message.messageId);
  same('attempts', [first.message.deliveryAttempt, second.message.deliveryAttempt], [1, 2]);
  // The lease began before the answer was here, so a little less than ten seconds are seen.
  check(waitedMs >= 9_800 && waitedMs <= 20_000, `came again after ${waitedMs} ms`);
  const ended = await refused('the acknowledgement of the first delivery', () => consumer.ack(first.message));
  same('refusal of the ended lease', ended, STALE_HANDLE);
  await consumer.ack(second.message);
  await nothing(consumer);
  return { waited_s: waitedMs / 1000, stale_code: ended.code };
}

// A changed lease gives a new handle, holds as long as it says, and ends the old handle.
async function invisible(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  await producer.send(context.message('invisible'));
  const [{ message: first }] = await receive(consumer, 1);
  const old = Object.assign(Object.create(Object.getPrototypeOf(first)), first);
  const began = nowMs();
  await consumer.changeInvisibleDuration(first, 5_000);
  check(first.receiptHandle && first.receiptHandle !== old.receiptHandle, 'the handle did not change');
  const superseded = await consumer.ack(old).then(() => 'not refused', (error) => error.code);
  const [{ message: second }] = await receive(consumer, 1);
  const waitedMs = nowMs() - began;
  same('attempt', second.deliveryAttempt, 2);
  check(waitedMs >= 5_000 && waitedMs <= 15_000, `came again after ${waitedMs} ms`);
  const ended = await refused('the handle whose lease ended', () => consumer.ack(first));
  same('refusal of the ended lease', ended, STALE_HANDLE);
  await consumer.changeInvisibleDuration(second, INVISIBLE_MS);
  await consumer.ack(second);
  await nothing(consumer);
  // Last, for the original does not refuse it; it refuses the other one.
  same('refusal of the superseded handle', superseded, STALE_HANDLE.code);
  return { waited_s: waitedMs / 1000, stale_code: ended.code };
}

// Almost 4 MiB come back equal; more than 4 MiB are refused.
async function large(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const body = randomBytes(4 * MIB - 4096);
  await producer.send(context.message(body));
  const [{ message }] = await drain(consumer, 1);
  check(message.body.equals(body), 'another body came back');
  const { side, code } = await refused('4 MiB + 1 byte', () => producer.send(context.message(Buffer.alloc(4 * MIB + 1))));
  await nothing(consumer);
  return { bytes: body.length, refused_by: side, code };
}

// 128 properties are the limit.
async function manyProperties(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const properties = new Map(count(128, (index) => [`name-${index}`, `value ${index}`]));
  await producer.send(context.message('128', { properties }));
  const [{ message }] = await drain(consumer, 1);
  same('properties', Object.fromEntries(message.properties), Object.fromEntries(properties));
  const excess = context.message('129', { properties: new Map([...properties, ['one', 'more']]) });
  const refusal = await refused('129 properties', () => producer.send(excess));
  same('refusal', refusal, TOO_MANY_PROPERTIES);
  await nothing(consumer);
  return { refused_by: refusal.side, code: refusal.code };
}

// Bodies that some clients compress by themselves, and one that is gzip already, come back equal.
async function compressible(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const text = Buffer.from('It was the best of times, it was the worst of times. '.repeat(1300));
  const bodies = [text, text.subarray(0, 5000), gzipSync(text)];
  for (const [index, body] of bodies.entries()) {
    await producer.send(context.message(body, { properties: new Map([['index', `${index}`]]) }));
  }
  for (const { message } of await drain(consumer, bodies.length)) {
    const index = Number(message.properties.get('index'));
    check(message.body.equals(bodies[index]), `another body ${index} came back`);
    check(!message.corrupted, `body ${index} is said to be corrupted`);
  }
  await nothing(consumer);
  return { bytes: bodies.map((body) => body.length), compressed_by_client: false };
}

// Text beyond ASCII in body, tag, property and keys; and a key with a blank stays one key.
async function unicode(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const body = 'Grüße 日本語 🚀';
  const tag = 'märz-三月';
  const properties = new Map([['größe', 'übergroß 🦒'], ['leer zeichen', 'a b']]);
  await producer.send(context.message(body, { tag, keys: ['Schlüssel-鍵', 'key with blanks'], properties }));
  const [{ message, text }] = await drain(consumer, 1);
  same('body', text, body);
  same('tag', message.tag, tag);
  same('properties', Object.fromEntries(message.properties), Object.fromEntries(properties));
  // The original splits a key at its blanks.
  same('keys', new Set(message.keys), new Set(['Schlüssel-鍵', 'key with blanks']));
  await nothing(consumer);
  return { messages: 1 };
}

// One topic and group in two namespaces, and in none: three topics and three groups. This client names the namespace in
// the resource only when it sends, and else only in the header x-mq-namespace, which the original does not look at.
async function namespaces(context) {
  const names = ['', 'compat-a', 'compat-b'];
  for (const namespace of names) {
    const producer = await context.producer({ namespace });
    for (let index = 0; index < 3; index++) await producer.send(context.message(`${namespace} ${index}`));
  }
  for (const namespace of names) {
    const consumer = await context.simple({ namespace });
    const came = await drain(consumer, 3);
    same(`bodies in namespace '${namespace}'`, texts(came), count(3, (index) => `${namespace} ${index}`));
    for (const { message } of came) same('topic', message.topic, context.topic);
    await nothing(consumer, 1_000);
  }
  return { namespaces: names.length };
}

export const scenarios = {
  normal,
  'tag-filter': tagFilter,
  'sql-filter': sqlFilter,
  redelivery,
  invisible,
  large,
  'many-properties': manyProperties,
  gzip: compressible,
  unicode,
  namespaces,
};
