// A stream with Rascal: a publication with confirms, and a subscription that begins at an offset.
// Arguments: a name, then the addresses.
'use strict';
const assert = require('node:assert');
const { BrokerAsPromised: Broker } = require('rascal');

const COUNT = 30;
const FROM = 10;

async function main(name, addresses) {
  const broker = await Broker.create({
    vhosts: {
      '/': {
        connections: addresses.map((url) => ({ url: `${url}?heartbeat=5` })),
        queues: { [name]: { options: { durable: true, arguments: { 'x-queue-type': 'stream' } } } },
        publications: { append: { queue: name, confirm: true } },
        subscriptions: {
          read: {
            queue: name, prefetch: 7, options: { arguments: { 'x-stream-offset': FROM } },
          },
        },
      },
    },
  });
  broker.on('error', (error) => console.log('broker:', error.message));
  for (let number = 0; number < COUNT; number += 1) {
    const publication = await broker.publish('append', String(number));
    await new Promise((done, failed) => publication.on('success', done).on('error', failed));
  }
  const got = [];
  const subscription = await broker.subscribe('read');
  await new Promise((done, failed) => {
    subscription.on('error', failed);
    subscription.on('message', (message, content, ackOrNack) => {
      got.push([message.properties.headers['x-stream-offset'], Number(content)]);
      ackOrNack();
      if (got.length === COUNT - FROM) done();
    });
  });
  assert.deepStrictEqual(got, [...Array(COUNT - FROM).keys()].map((number) => [number + FROM, number + FROM]));
  await broker.shutdown();
  console.log('all well');
}

main(process.argv[2], process.argv.slice(3)).catch((error) => {
  console.error(error);
  process.exit(1);
});
