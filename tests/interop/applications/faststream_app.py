"""A FastStream application for tests/interop/test_faststream.py."""

import os

from faststream import FastStream
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue

broker = RabbitBroker(os.environ["BROKER_URL"])
app = FastStream(broker)
PREFIX = os.environ["TASK_QUEUE"]
exchange = RabbitExchange(PREFIX, type=ExchangeType.TOPIC, durable=True)


@broker.subscriber(RabbitQueue(PREFIX + "-in", durable=True, routing_key="number.*"), exchange)
@broker.publisher(RabbitQueue(PREFIX + "-out", durable=True))
async def double(number: int) -> int:
    """Twice the number, into the other queue."""
    return 2 * number


@broker.subscriber(RabbitQueue(PREFIX + "-square", durable=True))
async def square(number: int) -> int:
    """Answered to whoever asks."""
    return number * number
