// PushConsumer: every message once, retries, dead letters; and the order of FIFO messages, with SimpleConsumer too.

import { Listener, QUIET_MS, check, count, drain, nothing, nowMs, pause, same, texts } from './base.mjs';

const TIMEOUT_MS = 60_000;
// The original's default back-off is 10 s, then 30 s. This client does not know the list of back-offs that servers send,
// and gives a failed message back at once, with an invisible duration of 0.
const RETRIES_MS = 150_000;

// 500 messages, each exactly once; and the consumer is closed in order, which waits for its long poll.
async function push(context) {
  const number = context.number(0, 500);
  const listener = new Listener();
  const producer = await context.producer();
  const consumer = await context.push(listener);
  const beganMs = nowMs();
  const receipts = await Promise.all(count(number, (index) => producer.send(context.message(`push ${index}`))));
  same('message ids', new Set(receipts.map((receipt) => receipt.messageId)).size, number);
  const sentMs = nowMs();
  const lastMs = (await listener.wait(number, TIMEOUT_MS)).at(-1).atMs;
  await pause(QUIET_MS);
  same('bodies', texts(listener.received), count(number, (index) => `push ${index}`).sort());
  const closingMs = nowMs();
  await consumer.shutdown();
  return {
    messages: number,
    sent_ms: Math.round(sentMs - beganMs),
    received_ms: Math.round(lastMs - beganMs),
    close_ms: Math.round(nowMs() - closingMs),
  };
}

// The listener fails the first two attempts of each message: attempts 1, 2 and 3 come.
async function pushRetry(context) {
  const listener = new Listener({ done: (message) => message.deliveryAttempt >= 3 });
  const producer = await context.producer();
  await context.push(listener);
  const bodies = count(5, (index) => `retry ${index}`);
  for (const body of bodies) await producer.send(context.message(body));
  await listener.wait(3 * bodies.length, RETRIES_MS);
  await pause(QUIET_MS);
  same('attempts', attempts(listener.received), Object.fromEntries(bodies.map((body) => [body, [1, 2, 3]])));
  return { messages: bodies.length, gaps_ms: gapsMs(listener.received) };
}

// The listener always fails: so many attempts as the group has, then no more.
async function pushDead(context) {
  const most = context.number(0, 3);
  const quietS = context.number(1, 10);
  const listener = new Listener({ done: () => false });
  const producer = await context.producer();
  await context.push(listener);
  await producer.send(context.message('dead'));
  await listener.wait(most, RETRIES_MS);
  await pause(quietS * 1000);
  same('attempts', attempts(listener.received), { dead: count(most, (index) => index + 1) });
  return { attempts: most, quiet_s: quietS, gaps_ms: gapsMs(listener.received) };
}

function attempts(received) {
  const found = {};
  for (const { text, message } of received) (found[text] ??= []).push(message.deliveryAttempt);
  return found;
}

// Between the attempts of the first message.
function gapsMs(received) {
  const times = received.filter((one) => one.text === received[0].text).map((one) => one.atMs);
  return times.slice(1).map((time, index) => Math.round(time - times[index]));
}

// Three message groups of 20, interleaved: the order within each is kept, by SimpleConsumer and by PushConsumer.
async function fifo(context) {
  const producer = await context.producer();
  const consumer = await context.simple();
  await sendGroups(context, producer, 'simple');
  inOrder(await drain(consumer, 60, TIMEOUT_MS), 'simple');
  await nothing(consumer);
  const listener = new Listener({ pauseMs: 5 });
  await context.push(listener);
  await sendGroups(context, producer, 'push');
  await listener.wait(60, TIMEOUT_MS);
  await pause(QUIET_MS);
  inOrder(listener.received, 'push');
  return { messages: 120, groups: 3, push: true };
}

async function sendGroups(context, producer, phase) {
  for (let index = 0; index < 20; index++) {
    for (const messageGroup of ['red', 'green', 'blue']) {
      await producer.send(context.message(`${phase} ${index}`, { messageGroup }));
    }
  }
}

function inOrder(received, phase) {
  check(received.length === 60, `${received.length} of 60 messages`);
  for (const group of ['red', 'green', 'blue']) {
    const found = received.filter(({ message }) => message.messageGroup === group).map((one) => one.text);
    same(`order in ${group}`, found, count(20, (index) => `${phase} ${index}`));
  }
}

export const scenarios = { push, 'push-retry': pushRetry, 'push-dead': pushDead, fifo };
