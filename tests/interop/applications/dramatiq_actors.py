"""Actors for tests/interop/test_dramatiq.py. What they do is told through a queue of its own, since Dramatiq has no
results with RabbitMQ."""

import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import CurrentMessage

broker = RabbitmqBroker(
    url=os.environ["BROKER_URLS"].split(";"),
    confirm_delivery=True,
    max_priority=int(os.environ["MAX_PRIORITY"]) if os.environ.get("MAX_PRIORITY") else None,
)
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)
QUEUE = os.environ["TASK_QUEUE"]


@dramatiq.actor(queue_name=QUEUE + "-done")
def report(word: str) -> None:
    """Nobody runs it: the test reads the queue."""


@dramatiq.actor(queue_name=QUEUE)
def do(word: str) -> None:
    """Reports it."""
    report.send(word)


@dramatiq.actor(queue_name=QUEUE, max_retries=3, min_backoff=100, max_backoff=200)
def fail_once(word: str) -> None:
    """Reports it at its second try."""
    message = CurrentMessage.get_current_message()
    if not message.options.get("retries"):
        raise RuntimeError("on purpose")
    report.send(word)


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def fail_for_good() -> None:
    """Ends among the dead."""
    raise RuntimeError("on purpose")
