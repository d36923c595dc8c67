// Declarations and publishes of frameworks that delay messages, by amqplib. Arguments: a node's address, the file with
// them, and what stands in place of the `P` in its names.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const amqplib = require('amqplib');

async function replay(connection, scenario) {
  const channel = await connection.createConfirmChannel();
  for (const { name, type, arguments: args } of scenario.exchanges) {
    await channel.assertExchange(name, type, { durable: true, arguments: args });
  }
  for (const { name, arguments: args } of scenario.queues) {
    await channel.assertQueue(name, { durable: true, arguments: args });
  }
  for (const { queue, exchange, key } of scenario.bindings) await channel.bindQueue(queue, exchange, key);
  for (const { destination, source, key } of scenario.exchange_bindings) {
    await channel.bindExchange(destination, source, key);
  }
  const { arrives, publish } = scenario;
  const arrived = new Promise((done) => {
    channel.consume(arrives.queue, (message) => done([Date.now(), message]), { noAck: true });
  });
  const sent = Date.now();
  channel.publish(publish.exchange, publish.key, Buffer.from(scenario.framework), {
    persistent: true, mandatory: publish.mandatory, headers: publish.headers,
  });
  await channel.waitForConfirms();
  const [came, message] = await arrived;
  assert.strictEqual(message.content.toString(), scenario.framework);
  assert.ok(came - sent >= arrives.after_ms, `${scenario.framework}: after ${came - sent} ms`);
  for (const [name, value] of Object.entries(arrives.headers)) {
    assert.deepStrictEqual(message.properties.headers[name], value, `${scenario.framework}: ${name}`);
  }
  await channel.close();
}

async function main(address, file, prefix) {
  const scenarios = JSON.parse(fs.readFileSync(file, 'utf8').replace(/P\./g, `${prefix}.`));
  const connection = await amqplib.connect(address);
  await Promise.all(scenarios.map((scenario) => replay(connection, scenario)));
  await connection.close();
  console.log('all well');
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
