// A Rascal broker that knows all nodes: consumes for good, answers into another queue, connects again by itself.
// Arguments: a name for its queues, then the addresses. Prints 'ready', and ends when its input does.
'use strict';
const { BrokerAsPromised: Broker } = require('rascal');

async function main(name, addresses) {
  const broker = await Broker.create({
    vhosts: {
      '/': {
        connections: addresses.map((url) => ({ url: `${url}?heartbeat=2` })),
        connectionStrategy: 'fixed',
        exchanges: [name],
        queues: { [`${name}-in`]: {}, [`${name}-out`]: {} },
        bindings: [`${name}[in] -> ${name}-in`, `${name}[out] -> ${name}-out`],
        publications: { answer: { exchange: name, routingKey: 'out', timeout: 10000 } },
        subscriptions: { numbers: { queue: `${name}-in`, prefetch: 5, retry: { min: 100, max: 500 } } },
      },
    },
  });
  broker.on('error', (error) => console.log('broker:', error.message));
  const subscription = await broker.subscribe('numbers');
  subscription.on('error', (error) => console.log('subscription:', error.message));
  subscription.on('message', async (message, content, ackOrNack) => {
    try {
      const publication = await broker.publish('answer', String(2 * Number(content)));
      publication.on('success', () => ackOrNack());
      publication.on('error', (error) => ackOrNack(error, { strategy: 'nack', requeue: true, defer: 100 }));
      publication.on('return', () => ackOrNack(new Error('returned'), { strategy: 'nack', requeue: true }));
    } catch (error) {
      ackOrNack(error, { strategy: 'nack', requeue: true, defer: 100 });
    }
  });
  console.log('ready');
}

main(process.argv[2], process.argv.slice(3)).catch((error) => {
  console.error(error);
  process.exit(1);
});
