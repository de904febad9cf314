// Messages that are not delivered when they are sent: delays, recalls, transactions.

import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js';
import { check, count, drain, nothing, nowMs, refused, rounded, same, texts } from './base.mjs';

// RocketMQ is up to 1.1 s late; Tarry is measured elsewhere.
const LATE_MS_MAX = 2_500;
// RocketMQ asks for a transaction that is left undecided about 30 s later.
const ASKED_MS = 120_000;

// Never early; due times to the millisecond. RocketMQ rounds them to a second.
async function delay(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const firstMs = Date.now() + 2_000;
  const due = new Map(count(20, (index) => [`delay ${index}`, firstMs + index * 137]));
  for (const [body, dueMs] of due) {
    await producer.send(context.message(body, { deliveryTimestamp: new Date(dueMs) }));
  }
  const came = await drain(consumer, due.size);
  await nothing(consumer, 1_000);
  same('bodies', texts(came), [...due.keys()].sort());
  for (const { message, text } of came) same('delivery timestamp', message.deliveryTimestamp?.getTime(), due.get(text));
  const lateness = came.map((one) => one.atMs - due.get(one.text)).sort((one, other) => one - other);
  check(lateness[0] >= 0, `${-lateness[0]} ms early`);
  check(lateness.at(-1) <= LATE_MS_MAX, `${lateness.at(-1)} ms late`);
  return {
    messages: came.length,
    precision_ms: 1,
    lateness_ms_min: rounded(lateness[0]),
    lateness_ms_mean: rounded(lateness.reduce((sum, one) => sum + one, 0) / lateness.length),
    lateness_ms_max: rounded(lateness.at(-1)),
  };
}

// Due already: delivered at once.
async function pastDelay(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const sentMs = nowMs();
  for (const past of [1, 60, 86_400]) {
    await producer.send(context.message(`${past} s ago`, { deliveryTimestamp: new Date(Date.now() - past * 1000) }));
  }
  const waitedMs = Math.max(...(await drain(consumer, 3)).map((one) => one.atMs)) - sentMs;
  check(waitedMs <= 3_000, `came after ${waitedMs} ms`);
  await nothing(consumer);
  return { messages: 3, waited_ms: rounded(waitedMs) };
}

// A recalled message never comes. What cannot be recalled is refused. The original says OK to any well-formed handle, of
// messages that are delivered or unknown, too; and it has recalls off unless recallMessageEnable is set.
async function recall(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  const deliveryTimestamp = new Date(Date.now() + 4_000);
  const unwanted = await producer.send(context.message('recalled', { deliveryTimestamp }));
  const control = await producer.send(context.message('control', { deliveryTimestamp }));
  check(unwanted.recallHandle, 'no recall handle');
  const receipt = await producer.recallMessage(context.topic, unwanted.recallHandle);
  same('recalled id', receipt.messageId, unwanted.messageId);
  same('body', (await drain(consumer, 1))[0].text, 'control');
  await nothing(consumer);
  const handles = {
    delivered: control.recallHandle,
    'recalled already': unwanted.recallHandle,
    unknown: 'bm8gc3VjaCBoYW5kbGU',
  };
  const codes = {};
  for (const [name, handle] of Object.entries(handles)) {
    const what = `recall of a message that is ${name}`;
    const { side, code } = await refused(what, () => producer.recallMessage(context.topic, handle));
    check(side === 'server' && Math.floor(code / 10_000) === 4, `refusal of ${name}: ${side} ${code}`);
    codes[name] = code;
  }
  return { codes };
}

// Committed: delivered. Rolled back: not. Undecided: the checker is asked, and commits.
async function transaction(context) {
  const asked = [];
  let askedMs = 0;
  const checker = {
    async check(message) {
      askedMs ||= nowMs();
      asked.push(`${message.body} ${message.messageId}`);
      return definition.TransactionResolution.COMMIT;
    },
  };
  const producer = await context.producer({ checker });
  const consumer = await context.simple();
  const ids = {};
  for (const body of ['commit', 'rollback', 'undecided']) {
    const begun = producer.beginTransaction();
    ids[body] = (await producer.send(context.message(body, { tag: 'transaction' }), begun)).messageId;
    if (body === 'commit') await begun.commit();
    if (body === 'rollback') await begun.rollback();
  }
  const sentMs = nowMs();
  const [committed] = await drain(consumer, 1);
  same('first message', [committed.text, committed.message.messageId], ['commit', ids.commit]);
  const [decided] = await drain(consumer, 1, ASKED_MS);
  same('second message', [decided.text, decided.message.messageId], ['undecided', ids.undecided]);
  same('its tag', decided.message.tag, 'transaction');
  await nothing(consumer);
  // Asked twice where the answer was slow, but about nothing else.
  same('messages that the checker was asked about', new Set(asked), new Set([`undecided ${ids.undecided}`]));
  return { asked: asked.length, asked_after_ms: Math.round(askedMs - sentMs) };
}

export const scenarios = { delay, 'past-delay': pastDelay, recall, transaction };
