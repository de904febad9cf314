// What the scenarios share: clients of the official package, and checks that give a reason.

import { isDeepStrictEqual, inspect } from 'node:util';
import { FilterExpression, Producer, PushConsumer, SimpleConsumer, ConsumeResult } from 'rocketmq-client-nodejs';

export const INVISIBLE_MS = 30_000;
export const TIMEOUT_MS = 30_000;
// Long polling of a simple consumer: short, so that "nothing comes" is seen soon; the original refuses 2 s.
const AWAIT_MS = 3_000;
// For how long nothing may come where nothing is expected any more.
export const QUIET_MS = 3_000;

// The server, or the client with it, did not do what a scenario expects.
export class Failed extends Error {}

export function check(condition, reason) {
  if (!condition) throw new Failed(reason);
}

export function same(what, found, expected) {
  const short = (value) => inspect(value, { depth: 4, maxArrayLength: 30, maxStringLength: 100 });
  check(isDeepStrictEqual(found, expected), `${what}: ${short(found)} instead of ${short(expected)}`);
}

export const nowMs = () => performance.timeOrigin + performance.now();
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const rounded = (value) => Math.round(value * 10) / 10;
export const count = (number, make) => Array.from({ length: number }, (_, index) => make(index));

// The call must fail: who refused it, and the server's status code (five digits; fewer are gRPC's own).
export async function refused(what, call) {
  try {
    await call();
  } catch (error) {
    const code = Number.isInteger(error.code) ? error.code : Number(/code: (\d+)/.exec(error.message)?.[1]);
    return code >= 10_000 ? { side: 'server', code } : { side: 'client', code: null };
  }
  throw new Failed(`${what} was not refused`);
}

// Keeps what it was given, and answers what it was told to.
export class Listener {
  received = [];

  constructor({ done = () => true, pauseMs = 0 } = {}) {
    this.done = done;
    this.pauseMs = pauseMs;
  }

  async consume(message) {
    this.received.push({ message, text: message.body.toString(), atMs: nowMs() });
    if (this.pauseMs) await pause(this.pauseMs);
    return this.done(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
  }

  async wait(number, timeoutMs) {
    const deadline = nowMs() + timeoutMs;
    while (this.received.length < number) {
      check(nowMs() < deadline, `${this.received.length} of ${number} messages after ${timeoutMs} ms`);
      await pause(5);
    }
    return this.received.slice();
  }
}

// What the command line says, and clients for it; producers and simple consumers are closed at the end.
export class Context {
  #open = [];

  constructor(endpoint, topic, group, extra, sessionCredentials) {
    Object.assign(this, { endpoint, topic, group, extra, sessionCredentials });
  }

  number(index, other) {
    return this.extra.length > index ? Number(this.extra[index]) : other;
  }

  async producer({ namespace = '', checker } = {}) {
    const client = new Producer({
      endpoints: this.endpoint, namespace, topic: this.topic, checker, sessionCredentials: this.sessionCredentials,
    });
    return this.#started(client);
  }

  async simple({ namespace = '', expression = new FilterExpression('*') } = {}) {
    const client = new SimpleConsumer({
      endpoints: this.endpoint,
      namespace,
      consumerGroup: this.group,
      subscriptions: new Map([[this.topic, expression]]),
      awaitDuration: AWAIT_MS,
      sessionCredentials: this.sessionCredentials,
    });
    return this.#started(client);
  }

  // Not closed at the end.
  async push(messageListener) {
    const client = new PushConsumer({
      endpoints: this.endpoint,
      namespace: '',
      consumerGroup: this.group,
      subscriptions: new Map([[this.topic, new FilterExpression('*')]]),
      messageListener,
    });
    await client.startup();
    return client;
  }

  message(body, more = {}) {
    return { topic: this.topic, body: Buffer.from(body), ...more };
  }

  async close() {
    for (const client of this.#open) await client.shutdown();
  }

  async #started(client) {
    await client.startup();
    this.#open.push(client);
    return client;
  }
}

// So many messages, in the order in which they came, not acknowledged.
export async function receive(consumer, number, invisibleMs = INVISIBLE_MS) {
  const deadline = nowMs() + TIMEOUT_MS;
  const found = [];
  while (found.length < number) {
    check(nowMs() < deadline, `${found.length} of ${number} messages after ${TIMEOUT_MS} ms`);
    const messages = await consumer.receive(16, invisibleMs);
    const atMs = nowMs();
    for (const message of messages) found.push({ message, text: message.body.toString(), atMs });
  }
  same('messages received', found.length, number);
  return found;
}

// So many messages, each acknowledged as it comes.
export async function drain(consumer, number, timeoutMs = TIMEOUT_MS) {
  const deadline = nowMs() + timeoutMs;
  const found = [];
  while (found.length < number) {
    check(nowMs() < deadline, `${found.length} of ${number} messages after ${timeoutMs} ms`);
    const messages = await consumer.receive(16, INVISIBLE_MS);
    const atMs = nowMs();
    for (const message of messages) {
      found.push({ message, text: message.body.toString(), atMs });
      await consumer.ack(message);
    }
  }
  return found;
}

// Nothing may come for so long.
export async function nothing(consumer, ms = QUIET_MS) {
  const deadline = nowMs() + ms;
  while (nowMs() < deadline) {
    const messages = await consumer.receive(16, INVISIBLE_MS);
    check(!messages.length, `something is left: ${messages.map((message) => message.body.subarray(0, 40))}`);
  }
}

export const texts = (received) => received.map((one) => one.text).sort();
