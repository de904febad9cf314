// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the official Node.js client, one line of JSON.

import { createRequire } from 'node:module';
import { Context, Failed } from './base.mjs';
import * as delayed from './delayed.mjs';
import * as identities from './identities.mjs';
import * as plain from './plain.mjs';
import * as pushed from './pushed.mjs';
import * as standing from './standing.mjs';

const all = [plain, delayed, pushed, standing, identities].map((some) => some.scenarios);
const scenarios = Object.assign({}, ...all);
const client = `rocketmq-client-nodejs ${createRequire(import.meta.url)('rocketmq-client-nodejs/package.json').version}`;
const [endpoint, name, topic, group, ...extra] = process.argv.slice(2);

async function run() {
  if (!group || !Object.hasOwn(scenarios, name)) {
    console.error(`usage: ENDPOINT SCENARIO TOPIC GROUP [...]; scenarios: ${Object.keys(scenarios).join(' ')}`);
    return 2;
  }
  const context = new Context(endpoint, topic, group, extra);
  try {
    const facts = await scenarios[name](context);
    await context.close();
    console.log(JSON.stringify({ client, scenario: name, ...facts }));
    return 0;
  } catch (error) {
    console.error(error instanceof Failed ? `${name}: ${error.message}` : error);
    return 1;
  }
}

// What fails in the background of the client, and would end the program: said, and counted as a failure.
process.on('unhandledRejection', (error) => {
  console.error('unhandled rejection:', error);
  process.exit(1);
});

// Push consumers are left open: closing one waits for its long poll. Only "push" does, and says how long.
process.exit(await run());
