// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with ali-ons, the classic client in JavaScript, one line of JSON.

import { createRequire } from 'node:module';
import { isDeepStrictEqual, inspect } from 'node:util';
import ons from 'ali-ons';
import httpclient from 'urllib';

const client = `ali-ons ${createRequire(import.meta.url)('ali-ons/package.json').version}`;
const [endpoint, scenario, topic, group, ...extra] = process.argv.slice(2);
const WAIT_MS = 60_000;
const RUN_MS = 25_000;
const logger = { info() {}, debug() {}, warn: console.error, error: console.error };
const REFUSED = 'refused by the program';
const problems = [];

function same(what, found, expected) {
  if (!isDeepStrictEqual(found, expected)) throw new Error(`${what}: ${inspect(found)} instead of ${inspect(expected)}`);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What the client cannot do it says beside, and does something else: a retry that the broker refused goes out as a new message.
function watched(what, started) {
  started.on('error', (error) => error.message.endsWith(REFUSED) || problems.push(`${what}: ${error.message}`));
  return started;
}

const options = (more) => ({ httpclient, nameSrv: endpoint, logger, ...more });

async function producer(more = {}) {
  const started = watched('producer', new ons.Producer(options({ producerGroup: `${group}-producers`, ...more })));
  await started.ready();
  return started;
}

function message(body, { tag = '', to = topic } = {}) {
  return new ons.Message(to, tag, body);
}

// Messages as they come, and when; refuses: whether one is to come again.
async function inbox({ of = topic, as = group, selector = '*', refuses = () => false, ...more } = {}) {
  const names = { consumerGroup: as, instanceName: more.instanceName ?? as, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' };
  const consumer = watched('consumer', new ons.Consumer(options({ ...names, ...more })));
  const received = [];
  consumer.subscribe(of, selector, async (got) => {
    const refused = refuses(got);
    received.push({ text: got.body.toString(), atMs: Date.now(), got, refused });
    if (!refused) return undefined;
    // Of what comes again, the client takes no notice of what is returned.
    if (got.reconsumeTimes > 0) throw new Error(REFUSED);
    return ons.Consumer.ACTION_RETRY;
  });
  await consumer.ready();
  return {
    received,
    async wait(count) {
      for (const end = Date.now() + WAIT_MS; received.length < count; await pause(5)) {
        if (Date.now() > end) throw new Error(`${received.length} of ${count} messages came: ${inspect(received.map((r) => r.text))}`);
      }
      return received.map((one) => one.text).sort();
    },
  };
}

async function send() {
  const from = await producer();
  const box = await inbox();
  const full = message('full', { tag: 'tag' });
  full.keys = ['key-1', 'key-2'];
  full.properties.name = 'größe';
  same('status', (await from.send(full)).sendStatus, 'SEND_OK');
  for (let i = 0; i < 40; i++) await from.send(message(String(i)));
  same('bodies', await box.wait(41), [...Array(40).keys()].map(String).concat('full').sort());
  const { got } = box.received.find((one) => one.text === 'full');
  same('message', [got.tags, got.keys, got.properties.name], ['tag', 'key-1 key-2', 'größe']);
}

// Sent compressed, and as long as it may be.
async function large() {
  const from = await producer();
  const box = await inbox();
  const bodies = [Buffer.alloc(5_000, 'a'), Buffer.from(Array.from({ length: 1 << 20 }, (_, i) => (i * 7919) % 251))];
  for (const body of bodies) await from.send(message(body));
  await box.wait(2);
  const sizes = box.received.map(({ got }) => got.body.length).sort((a, b) => a - b);
  same('bodies', sizes, [5_000, 1 << 20]);
  for (const { got } of box.received) same('body', bodies.some((body) => body.equals(got.body)), true);
}

// By level, and by the time that ONS clients name.
async function delay() {
  const from = await producer();
  const box = await inbox();
  const due = {};
  for (const [text, afterMs, set] of [
    ['now', 0, () => {}],
    ['level 1', 1_000, (m) => { m.delayTimeLevel = 1; }],
    ['level 2', 5_000, (m) => { m.delayTimeLevel = 2; }],
    ['moment', 2_345, (m, at) => m.setStartDeliverTime(at)],
    ['past', 0, (m, at) => m.setStartDeliverTime(at - 60_000)],
  ]) {
    const one = message(text);
    due[text] = Date.now() + afterMs;
    set(one, due[text]);
    await from.send(one);
  }
  await box.wait(5);
  const late = box.received.map(({ text, atMs }) => [text, atMs - due[text]]);
  for (const [text, ms] of late) if (ms < 0) throw new Error(`${text} came ${-ms} ms early`);
  return { latest_ms: Math.max(...late.map(([, ms]) => ms)) };
}

// Sent back, it comes again by level 3, 10 s later; after the last try it is dead.
async function retry() {
  const from = await producer();
  const refuses = (got) => got.body.toString() === 'never' || got.reconsumeTimes === 0;
  const box = await inbox({ refuses, maxReconsumeTimes: 1 });
  const dead = await inbox({ of: `%DLQ%${group}`, as: `${group}-dead` });
  for (const text of ['once', 'never']) await from.send(message(text));
  same('handled', await box.wait(4), ['never', 'never', 'once', 'once']);
  same('dead', await dead.wait(1), ['never']);
  const [first, second] = box.received.filter((one) => one.text === 'once');
  same('tries', [first.got.reconsumeTimes, second.got.reconsumeTimes], [0, 1]);
  if (second.atMs - first.atMs < 10_000) throw new Error(`it came again after ${second.atMs - first.atMs} ms`);
}

async function filter() {
  const from = await producer();
  const byTag = await inbox({ as: `${group}-tag`, selector: 'b || c' });
  const bySql = await inbox({ as: `${group}-sql`, selector: { expressionType: 'SQL92', subString: "price > 10 AND TAGS = 'a'" } });
  for (const tag of ['a', 'b', 'c']) {
    const one = message(tag, { tag });
    one.properties.price = '11';
    await from.send(one);
  }
  same('by tag', await byTag.wait(2), ['b', 'c']);
  same('by condition', await bySql.wait(1), ['a']);
}

async function broadcast() {
  const from = await producer();
  const boxes = [];
  for (const instanceName of ['one', 'two']) boxes.push(await inbox({ isBroadcast: true, instanceName: group + instanceName }));
  for (let i = 0; i < 8; i++) await from.send(message(String(i)));
  for (const box of boxes) same('bodies', await box.wait(8), [...Array(8).keys()].map(String));
}

// With an access key; what has a wrong one is refused.
async function signed() {
  const [accessKey, secretKey] = extra;
  const from = await producer({ accessKey, secretKey });
  const box = await inbox({ accessKey, secretKey, refuses: (got) => got.reconsumeTimes === 0 });
  await from.send(message('größe'));
  same('bodies', await box.wait(2), ['größe', 'größe']);
  const other = new ons.Producer(options({ producerGroup: `${group}-others`, instanceName: 'other', accessKey, secretKey: 'wrong' }));
  other.on('error', () => {});
  const refused = await other.send(message('refused')).then(() => null, (error) => error);
  if (refused === null) throw new Error('what has a wrong signature was taken');
  return { refused: refused.name };
}

// The broker is killed three times meanwhile: what was acknowledged comes, and nothing comes early.
async function restarts() {
  const from = await producer();
  const box = await inbox({ refuses: (got) => got.reconsumeTimes === 0 && got.body.toString().endsWith('7') });
  const due = {};
  const acknowledged = new Set();
  let failed = 0;
  console.error('ready');
  const end = Date.now() + RUN_MS;
  for (let i = 0; Date.now() < end; i++) {
    const one = message(String(i));
    due[i] = Date.now() + [0, 1_000, 5_000][i % 3];
    if (i % 3) one.setStartDeliverTime(due[i]);
    try {
      await from.send(one);
      acknowledged.add(String(i));
    } catch {
      failed++;
      await pause(100);
    }
    await pause(10);
  }
  const handled = () => box.received.filter((one) => !one.refused).map((one) => one.text);
  const missing = () => {
    const came = new Set(handled());
    return [...acknowledged].filter((text) => !came.has(text)).length;
  };
  for (const limit = Date.now() + 2 * WAIT_MS; missing(); await pause(200)) {
    if (Date.now() > limit) throw new Error(`${missing()} of ${acknowledged.size} did not come`);
  }
  const early = box.received.filter(({ text, atMs }) => atMs < due[text]);
  same('early', early.map((one) => one.text), []);
  problems.length = 0; // of connections, while the broker was away
  return { sent: acknowledged.size, failed, again: handled().length - new Set(handled()).size };
}

const scenarios = {
  'classic-send': send, 'classic-large': large, 'classic-delay': delay, 'classic-retry': retry, 'classic-filter': filter,
  'classic-broadcast': broadcast, 'classic-signed': signed, 'classic-restarts': restarts,
};

async function run() {
  if (!group) {
    console.error('usage: ENDPOINT SCENARIO TOPIC GROUP [...]');
    return 2;
  }
  const program = scenarios[scenario];
  const facts = program ? await program() : { skipped: 'no program for it with ali-ons' };
  same('problems', problems, []);
  console.log(JSON.stringify({ client, scenario, ...facts }));
  return 0;
}

process.exit(
  await run().catch((error) => {
    console.error(`${scenario}:`, error);
    return 1;
  }),
);
