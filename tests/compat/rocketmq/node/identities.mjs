// Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.

import { Context, check, drain, pause } from './base.mjs';

// For what has to be answered or refused.
const ANSWERED_MS = 20_000;

async function say(name, act) {
  const late = pause(ANSWERED_MS).then(() => `no answer in ${ANSWERED_MS} ms`);
  const answer = act().then(
    () => 'done',
    (error) => `refused: ${error.name}: ${error.message} ${error.cause ?? ''}`.replace(/\s+/g, ' ').trim(),
  );
  console.log(`${name}: ${await Promise.race([answer, late])}`);
}

async function sends(context) {
  const producer = await context.producer();
  try {
    await producer.send(context.message('hello'));
  } finally {
    await context.close();
  }
}

// One message, acknowledged.
async function receives(context) {
  const consumer = await context.simple();
  try {
    await drain(consumer, 1, ANSWERED_MS);
  } finally {
    await context.close();
  }
}

// Both run when "ready" is said, for the runner to remove their keys.
async function untilRevoked(sending, receiving) {
  const producer = await sending.producer();
  const consumer = await receiving.simple();
  await producer.send(sending.message('hello'));
  await drain(consumer, 1);
  console.log('ready');
  const received = say('running-receiver', async () => {
    for (;;) {
      for (const message of await consumer.receive(16, ANSWERED_MS)) await consumer.ack(message);
    }
  });
  await say('running-sender', async () => {
    for (;;) {
      await producer.send(sending.message('hello'));
      await pause(50);
    }
  });
  await received;
}

// More words: another topic, the sender's key and secret, the receiver's key and secret.
async function twoKeys({ endpoint, topic, group, extra }) {
  check(extra.length >= 5, 'more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET');
  const [other, senderKey, senderSecret, receiverKey, receiverSecret] = extra;
  const sender = { accessKey: senderKey, accessSecret: senderSecret };
  const receiver = { accessKey: receiverKey, accessSecret: receiverSecret };
  const wrong = (keys) => ({ ...keys, accessSecret: 'wrong' });
  const as = (keys, itsTopic = topic, itsGroup = group) => new Context(endpoint, itsTopic, itsGroup, [], keys);
  await say('send', () => sends(as(sender)));
  await say('receive', () => receives(as(receiver)));
  await say('receive-by-sender', () => receives(as(sender)));
  await say('send-by-receiver', () => sends(as(receiver)));
  await say('send-elsewhere', () => sends(as(sender, other)));
  await say('receive-elsewhere', () => receives(as(receiver, other)));
  await say('receive-as-others', () => receives(as(receiver, topic, `${group}-others`)));
  await say('anonymous-sends', () => sends(as(undefined, other)));
  await say('anonymous-sends-elsewhere', () => sends(as(undefined)));
  await say('anonymous-receives', () => receives(as(undefined)));
  await say('wrong-secret-sends', () => sends(as(wrong(sender))));
  await say('wrong-secret-receives', () => receives(as(wrong(receiver))));
  await untilRevoked(as(sender), as(receiver));
  await say('revoked-sends', () => sends(as(sender)));
  await say('revoked-receives', () => receives(as(receiver)));
  return {};
}

export const scenarios = { identities: twoKeys };
