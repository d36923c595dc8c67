// amqplib as its tutorials have it. Arguments: the addresses of two nodes.
'use strict';
const assert = require('node:assert');
const amqplib = require('amqplib');

async function main(one, two) {
  const [publishing, consuming] = await Promise.all([amqplib.connect(one), amqplib.connect(two)]);
  const channel = await publishing.createConfirmChannel();
  const name = `amqplib-${process.pid}`;
  await channel.assertExchange(name, 'topic', { durable: true });
  await channel.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
  await channel.bindQueue(name, name, 'a.#');
  for (let number = 0; number < 50; number += 1) {
    channel.publish(name, `a.${number}`, Buffer.from(String(number)), { persistent: true, headers: { number } });
  }
  await channel.waitForConfirms();

  const returned = new Promise((done) => channel.once('return', done));
  channel.publish(name, 'b', Buffer.from('nowhere'), { mandatory: true });
  assert.strictEqual((await returned).content.toString(), 'nowhere');

  const worker = await consuming.createChannel();
  await worker.prefetch(5);
  const got = [];
  let again = 0;
  await new Promise((done, failed) => {
    worker.on('error', failed);
    worker.consume(name, (message) => {
      const number = Number(message.content.toString());
      assert.strictEqual(message.properties.headers.number, number);
      if (number === 7 && !message.fields.redelivered) {
        worker.nack(message);
        return;
      }
      again += message.fields.redelivered ? 1 : 0;
      got.push(number);
      worker.ack(message);
      if (got.length === 50) done();
    }).catch(failed);
  });
  assert.deepStrictEqual([...got].sort((a, b) => a - b), [...Array(50).keys()]);
  assert.ok(again >= 1);
  await worker.close();

  // A refusal closes the channel, with RabbitMQ's code, and nothing else.
  const refused = await publishing.createChannel();
  const closed = new Promise((done) => refused.once('error', done));
  await assert.rejects(refused.checkQueue(`${name}-missing`));
  assert.strictEqual((await closed).code, 404);
  assert.strictEqual((await channel.deleteQueue(name)).messageCount, 0);
  await publishing.close();
  await consuming.close();
  console.log('all well');
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
