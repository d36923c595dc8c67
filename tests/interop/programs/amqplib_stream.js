// A stream with amqplib: confirms, the offset header, credit by acknowledgements, coming back at an offset, a TTL.
// Arguments: a name, the addresses of two nodes.
'use strict';
const assert = require('node:assert');
const amqplib = require('amqplib');

const COUNT = 40;

async function read(connection, name, from, count) {
  const channel = await connection.createChannel();
  await channel.prefetch(10);
  const got = [];
  await new Promise((done, failed) => {
    channel.on('error', failed);
    channel.consume(name, (message) => {
      got.push([message.properties.headers['x-stream-offset'], message.content.toString()]);
      channel.ack(message);
      if (got.length === count) done();
    }, { arguments: { 'x-stream-offset': from } }).catch(failed);
  });
  await channel.close();
  return got;
}

async function main(name, one, two) {
  const [publishing, consuming] = await Promise.all([amqplib.connect(one), amqplib.connect(two)]);
  const channel = await publishing.createConfirmChannel();
  const options = { durable: true, arguments: { 'x-queue-type': 'stream', 'x-allow-msg-ttl': true } };
  await channel.assertQueue(name, options);
  for (let number = 0; number < COUNT; number += 1) {
    channel.sendToQueue(name, Buffer.from(String(number)), { headers: { 'x-ttl': number % 2 ? 'never' : '1h' } });
  }
  await channel.waitForConfirms();
  const all = [...Array(COUNT).keys()].map((number) => [number, String(number)]);
  assert.deepStrictEqual(await read(consuming, name, 'first', COUNT), all);
  assert.deepStrictEqual(await read(publishing, name, 25, COUNT - 25), all.slice(25));
  assert.deepStrictEqual(await read(consuming, name, 'last', 1), all.slice(-1));

  const refused = await publishing.createConfirmChannel();
  refused.on('error', () => {});
  const nacked = new Promise((done) => refused.sendToQueue(name, Buffer.from('no'), { headers: { 'x-ttl': 'soon' } }, done));
  assert.ok(await nacked);
  assert.strictEqual((await channel.checkQueue(name)).messageCount, COUNT);
  await channel.deleteQueue(name);
  await publishing.close();
  await consuming.close();
  console.log('all well');
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
