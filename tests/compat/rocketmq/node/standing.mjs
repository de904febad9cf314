// Clients that stay: through restarts of the broker, and many that only wait.

import { Listener, QUIET_MS, check, count, nowMs, pause, same, texts } from './base.mjs';

// After the last send, until all is received: a lease that a restart cut short has to end first.
const TIMEOUT_MS = 120_000;

// One message each 100 ms while the broker is killed and started again; what was acknowledged is received.
async function reconnect(context) {
  const consumer = await context.simple();
  const bodies = [];
  receiveForEver(consumer, bodies);
  return await sendAndWait(context, () => bodies);
}

async function receiveForEver(consumer, bodies) {
  for (;;) {
    try {
      for (const message of await consumer.receive(16, 10_000)) {
        bodies.push(message.body.toString());
        await consumer.ack(message);
      }
    } catch {
      await pause(200); // the broker is away
    }
  }
}

// The same with a PushConsumer.
async function reconnectPush(context) {
  const listener = new Listener();
  await context.push(listener);
  return await sendAndWait(context, () => listener.received.map((one) => one.text));
}

async function sendAndWait(context, bodies) {
  const wanted = context.number(0, 300);
  const producer = await context.producer();
  const acknowledged = new Set();
  let errors = 0;
  let longestMs = 0;
  let answeredMs = nowMs();
  for (let attempt = 0; acknowledged.size < wanted; attempt++) {
    try {
      await producer.send(context.message(`reconnect ${attempt}`));
      longestMs = Math.max(longestMs, nowMs() - answeredMs);
      answeredMs = nowMs();
      acknowledged.add(`reconnect ${attempt}`);
      if (acknowledged.size === 1) console.error('ready');
    } catch {
      errors++;
      check(nowMs() - answeredMs < TIMEOUT_MS, `no send succeeds for ${TIMEOUT_MS} ms`);
    }
    await pause(100);
  }
  const deadline = nowMs() + TIMEOUT_MS;
  for (;;) {
    const received = new Set(bodies());
    const missing = [...acknowledged].filter((body) => !received.has(body));
    if (!missing.length) break;
    check(nowMs() < deadline, `lost: ${missing.length} of ${wanted}, such as ${missing.slice(0, 5)}`);
    await pause(100);
  }
  const received = bodies();
  const distinct = new Set(received);
  return {
    acknowledged: wanted,
    send_errors: errors,
    outage_ms: Math.round(longestMs),
    received: received.length,
    duplicates: received.length - distinct.size,
    unacknowledged_received: [...distinct].filter((body) => !acknowledged.has(body)).length,
  };
}

// Many PushConsumers of one group that only wait; then they still share what comes.
async function idle(context) {
  const clients = context.number(0, 20);
  const seconds = context.number(1, 10);
  const listener = new Listener();
  const producer = await context.producer();
  const beganMs = nowMs();
  for (let index = 0; index < clients; index++) await context.push(listener);
  const connectedMs = nowMs() - beganMs;
  console.error('ready');
  await pause(seconds * 1000);
  same('messages while idle', listener.received.length, 0);
  for (let index = 0; index < clients; index++) await producer.send(context.message(`idle ${index}`));
  await listener.wait(clients, TIMEOUT_MS);
  await pause(QUIET_MS);
  same('bodies', texts(listener.received), count(clients, (index) => `idle ${index}`).sort());
  return { clients, connected_s: connectedMs / 1000, idle_s: seconds };
}

export const scenarios = { reconnect, 'reconnect-push': reconnectPush, idle };
