// node example.mjs PORT: a message that comes two seconds later. The broker: tarry serve --set link=127.0.0.1:PORT
import { connect } from './tarry.mjs';

const client = await connect({ port: Number(process.argv[2] ?? 7610) });
const [receipt] = await client.schedule([{ topic: 'orders', body: 'unpaid?', delay_ms: 2000 }]);
console.log(`scheduled ${receipt.seq}, due ${new Date(receipt.due_ms).toISOString()}`);
for await (const message of client.consume('orders', 'billing')) {
  console.log(`${message.body} at ${new Date().toISOString()}, try ${message.attempt}`);
  await message.ack();
  break;
}
await client.close();
