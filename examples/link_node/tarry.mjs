// A client of Tarry's link in Node, written from docs/formats-link.md: it schedules, consumes, settles and calls.
import net from 'node:net';
import tls from 'node:tls';
import * as arrow from 'apache-arrow';

const HELLO = 1, SUBMIT = 2, POLL = 4, SETTLE = 8, RENEW = 9, CLOSE = 10, CALL = 14, GROUP = 15;
const WELCOME = 64, ACCEPTED = 65, REFUSED = 66, BATCH = 67, POLLED = 68, SETTLED = 69, RESULT = 74, ROWS = 75;
const ACK = 1, NACK = 3;
const HEAD_BYTES = 9, PLACED_BYTES = 37; // i64 seq, i64 due_ms, i64 first_seq, u32 rows, 8 B token, u8 outcome
const FRAME_BYTES_MAX = 320 * 2 ** 20, TIMER_MS_MAX = 2 ** 31 - 1; // of the broker; of Node
const HELD_MS_MAX = 3_600_000n; // a message that is worked on for longer than an hour goes to another consumer

const STRING = new arrow.Utf8(), LONG = new arrow.Int64(), INT = new arrow.Int32();
const ENTRIES = new arrow.Struct([new arrow.Field('key', STRING, false), new arrow.Field('value', STRING, true)]);
const PROPERTIES = new arrow.Map_(new arrow.Field('entries', ENTRIES, false));
const DELIVERY = new arrow.Schema(Object.entries({
  seq: LONG, topic: STRING, due_ms: LONG, id: STRING, key: STRING, tag: STRING, properties: PROPERTIES,
  body: new arrow.Binary(), born_ms: LONG, expire_ms: LONG, tries: INT, repeat: STRING, kind: new arrow.Int8(),
  offset: LONG, lease: LONG, attempt: INT,
}).map(([name, type]) => new arrow.Field(name, type, true)));
const SENT_TYPES = {
  body: new arrow.Binary(), due_ms: LONG, delay_ms: LONG, delay_level: LONG, ttl_ms: LONG, tries: INT,
  properties: PROPERTIES,
};
// The schema's message, which a BATCH comes without: a stream that ends right after it, less its end of 8 bytes.
const SCHEMA_MESSAGE = arrow.tableToIPC(new arrow.Table(DELIVERY), 'stream').slice(0, -8);
const STREAM_END = new Uint8Array([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);

/** What the broker refuses, or why there is no answer; `code` is stable (tarry.errors). */
export class TarryError extends Error {
  constructor({ code, message }) {
    super(message);
    Object.assign(this, { name: 'TarryError', code });
  }
}

/** Connect to `{host, port}` or `{path}`; with `tls`, options of node:tls, by TLS. */
export async function connect({ host = '127.0.0.1', port, path, tls: tlsOptions }) {
  const socket = tlsOptions
    ? tls.connect({ host, port, ...tlsOptions })
    : net.connect(path ? { path } : { host, port, noDelay: true });
  const client = new Client(socket);
  return client.welcomed.then(() => client);
}

class Client {
  #socket;
  #received = [];
  #receivedBytes = 0;
  #next = 1;
  #waiting = new Map(); // question -> {resolve, reject}
  #consumers = new Map(); // number -> Consumer
  #ended = null; // the error for which the connection has ended
  #reason = null; // what was said of the connection

  constructor(socket) {
    this.#socket = socket;
    this.welcomed = new Promise((resolve, reject) => this.#waiting.set(0, { resolve, reject }));
    socket.on('data', (data) => this.#onData(data));
    socket.on('error', ({ message }) => { this.#reason ??= new TarryError({ code: 'unavailable', message }); });
    socket.on('close', () => this.#onEnd());
    this.#send(HELLO, 0, json({ version: 1, as: 'client' }));
  }

  /**
   * Schedule messages, all of them or none: objects with `topic`, `body` (a string or bytes), one of `due_ms` and
   * `delay_ms`, and optionally `id`, `key`, `tag`, `properties` (an object), `tries`, ... Gives `{seq, due_ms}` each.
   */
  async schedule(messages) {
    return receipts((await this.#ask(SUBMIT, streamOf(messages))).payload, messages);
  }

  /** Call an operation: its JSON result, or an Arrow table where the result is rows. */
  async call(op, fields = {}) {
    const { kind, payload } = await this.#ask(CALL, json({ op, ...fields }));
    return kind === ROWS ? arrow.tableFromIPC(payload) : parse(payload);
  }

  /** Messages of a topic for a group, as they fall due: an async iterator; awaited, a Consumer with `close`. */
  consume(topic, group, options = {}) {
    const opened = this.#consume(topic, group, options);
    return Object.assign(opened, { async *[Symbol.asyncIterator]() { yield* (await opened).once(); } });
  }

  async #consume(topic, group, { prefetch = 100, leaseMs = 0, ...options } = {}) {
    const { payload } = await this.#ask(GROUP, json({ topic, group, ...options }));
    const { number: groupNumber, lease_ms: groupLeaseMs } = parse(payload);
    const number = this.#number();
    const head = packed([['u32', groupNumber], ['u32', prefetch], ['i64', leaseMs]]);
    const consumer = new Consumer({
      prefetch,
      renewMs: (leaseMs || groupLeaseMs) / 3,
      poll: (rows) => this.#send(POLL, number, Buffer.concat([head, packed([['u32', rows]])])),
      renew: () => this.#send(RENEW, number, packed([['i64', HELD_MS_MAX]])),
      settle: (op, argument, lease, offset, reason) => this.#settle(groupNumber, op, argument, lease, offset, reason),
      close: () => { if (this.#consumers.delete(number)) this.#send(CLOSE, number); },
    });
    this.#consumers.set(number, consumer);
    consumer.ask();
    return consumer;
  }

  /** End the connection once what was sent has left: what consumers hold goes to others at once. */
  async close() {
    for (const consumer of this.#consumers.values()) consumer.close();
    if (!this.#socket.destroyed) await new Promise((resolve) => this.#socket.once('close', resolve).end());
  }

  async #settle(group, op, argument, lease, offset, reason = '') {
    const text = Buffer.from(reason);
    const head = packed([['u8', op], ['u32', group], ['i64', argument], ['u32', text.length]]);
    await this.#ask(SETTLE, Buffer.concat([head, packed([['i64', lease], ['i64', offset]]), text]));
  }

  #ask(kind, payload) {
    const large = payload.length > FRAME_BYTES_MAX && new TarryError({ code: 'message_too_large', message: 'a frame' });
    if (this.#ended || large) return Promise.reject(this.#ended ?? large);
    const number = this.#number();
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#send(kind, number, payload);
    });
  }

  #number() {
    do this.#next = (this.#next % 0xffffffff) + 1;
    while (this.#waiting.has(this.#next) || this.#consumers.has(this.#next));
    return this.#next;
  }

  #send(kind, number, payload = Buffer.alloc(0)) {
    if (this.#ended || this.#socket.destroyed) return;
    const head = packed([['u32', payload.length], ['u8', kind], ['u32', number]]);
    this.#socket.write(Buffer.concat([head, payload]));
  }

  #onData(data) {
    this.#received.push(data);
    this.#receivedBytes += data.length;
    for (;;) {
      if (this.#receivedBytes < HEAD_BYTES) return;
      if (this.#received[0].length < HEAD_BYTES) this.#received = [Buffer.concat(this.#received)];
      const length = this.#received[0].readUInt32LE(0), end = HEAD_BYTES + length;
      if (this.#receivedBytes < end) return;
      const whole = this.#received.length === 1 ? this.#received[0] : Buffer.concat(this.#received);
      this.#received = [whole.subarray(end)];
      this.#receivedBytes -= end;
      this.#onFrame(whole.readUInt8(4), whole.readUInt32LE(5), whole.subarray(HEAD_BYTES, end));
    }
  }

  #onFrame(kind, number, payload) {
    if (kind === BATCH) {
      this.#consumers.get(number)?.onBatch(payload.subarray(4));
    } else if (kind === POLLED) {
      const error = new TarryError(parse(payload));
      this.#consumers.get(number)?.onEnd(error);
      if (this.#consumers.delete(number) && ['closed', 'not_found'].includes(error.code)) this.#send(CLOSE, number);
    } else if (kind === REFUSED && number === 0) {
      this.#reason = new TarryError(parse(payload));
    } else if ([WELCOME, ACCEPTED, SETTLED, RESULT, ROWS, REFUSED].includes(kind)) {
      const waiting = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (kind === REFUSED) waiting?.reject(new TarryError(parse(payload)));
      else waiting?.resolve({ kind, payload });
    } // what is not known here is newer than this client
  }

  #onEnd() {
    const message = 'the connection has ended; what was asked for may or may not have been done';
    this.#ended = this.#reason ?? new TarryError({ code: 'unavailable', message });
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
    for (const consumer of this.#consumers.values()) consumer.onEnd(this.#ended);
    this.#consumers.clear();
  }
}

/** Messages, by `for await`. Leases are renewed while the consumer is there; close it to give back what it holds. */
class Consumer {
  #link;
  #messages = [];
  #held = 0;
  #asked = false;
  #wakes = []; // of the loops that wait: several may share a consumer
  #ended = false;
  #error = null;
  #timer;

  constructor(link) {
    this.#link = link;
    this.#timer = setInterval(() => this.#held && link.renew(), Math.min(link.renewMs, TIMER_MS_MAX));
    this.#timer.unref();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#messages.length) yield this.#messages.shift();
      if (this.#error) throw this.#error;
      if (this.#ended) return;
      await new Promise((resolve) => { this.#wakes.push(resolve); });
    }
  }

  /** The same, and a loop that is left closes it. */
  async *once() {
    try { yield* this; } finally { this.close(); }
  }

  close() {
    if (this.#ended) return;
    this.#link.close();
    this.onEnd(null);
  }

  /** Ask for more, where there is room and nothing is asked for yet. */
  ask() {
    const room = this.#link.prefetch - this.#held;
    if ((room < 1 && this.#held) || this.#asked || this.#ended) return; // no room at all is refused by the broker
    this.#asked = true;
    this.#link.poll(Math.max(room, 0));
  }

  onBatch(message) {
    this.#asked = false;
    const table = arrow.tableFromIPC(Buffer.concat([SCHEMA_MESSAGE, message, STREAM_END]));
    for (const row of table) this.#messages.push(this.#messageOf(row));
    this.#held += table.numRows;
    this.ask();
    for (const wake of this.#wakes.splice(0)) wake();
  }

  onEnd(error) {
    clearInterval(this.#timer);
    [this.#ended, this.#error] = [true, error];
    if (!error) this.#messages = [];
    for (const wake of this.#wakes.splice(0)) wake();
  }

  #messageOf(row) {
    let settled = false;
    const settle = async (op, argument, reason) => {
      this.#held -= Number(!settled); // also where the lease had ended: then it is somebody else's
      settled = true;
      await this.#link.settle(op, argument, row.lease, row.offset, reason).finally(() => this.ask());
    };
    return {
      id: row.id ?? BigInt.asUintN(64, row.seq).toString(16).padStart(16, '0'),
      topic: row.topic,
      body: Buffer.from(row.body ?? []),
      due_ms: Number(row.due_ms),
      key: row.key,
      tag: row.tag,
      properties: row.properties ? Object.fromEntries(row.properties) : {},
      attempt: row.attempt,
      /** Settle it for good; resolves when that is durable, and rejects where it is not: await it. */
      ack: () => settle(ACK, 0),
      /** Have it come again after so many ms (-1: by the group's back-off); `reason` is shown to people. */
      nack: (delayMs = -1, reason = '') => settle(NACK, delayMs, reason),
    };
  }
}

function streamOf(messages) {
  const names = [...new Set(messages.flatMap(Object.keys))];
  const columns = names.map((name) => [name, columnOf(name, messages.map((each) => each[name] ?? null))]);
  return arrow.tableToIPC(new arrow.Table(Object.fromEntries(columns)), 'stream');
}

function columnOf(name, values) {
  const type = SENT_TYPES[name] ?? STRING;
  const text = (value) => (typeof value === 'object' ? JSON.stringify(value) : String(value)); // `repeat` is JSON
  const convert = {
    [arrow.Type.Binary]: (value) => (typeof value === 'string' ? Buffer.from(value) : value),
    [arrow.Type.Int]: (value) => (type.bitWidth === 64 ? BigInt(value) : value),
    [arrow.Type.Map]: (value) => new Map(Object.entries(value)),
  }[type.typeId] ?? text;
  return arrow.vectorFromArray(values.map((value) => (value === null ? null : convert(value))), type);
}

function receipts(answer, messages) {
  const end = 4 + answer.readUInt32LE(0), accepted = answer.subarray(4, end), placed = answer.subarray(end);
  const placedOf = (at) => ({ seq: placed.readBigInt64LE(at), due_ms: Number(placed.readBigInt64LE(at + 8)) });
  if (placed.length) return messages.map((_, row) => placedOf(5 + row * PLACED_BYTES));
  const first = accepted.readBigInt64LE(1), hasDue = accepted.readUInt8(21) === 1;
  const dueOf = (message, row) => (hasDue ? Number(accepted.readBigInt64LE(22 + 8 * row)) : message.due_ms);
  return messages.map((message, row) => ({ seq: first + BigInt(row), due_ms: dueOf(message, row) }));
}

function packed(fields) {
  return Buffer.concat(fields.map(([type, value]) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(value));
    return bytes.subarray(0, { u8: 1, u32: 4, i64: 8 }[type]);
  }));
}

const plain = (_, each) => (typeof each === 'bigint' ? Number(each) : each);
const json = (value) => Buffer.from(JSON.stringify(value, plain));
const parse = (payload) => JSON.parse(payload.toString());
