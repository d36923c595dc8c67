"""Queues with something in them, as a shop might have: what the page shows is to be seen in them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal

import pika

from mayfly.node.settings.kinds import Address

HOUR_MS = 3_600_000


class Traffic:
    """Made over a connection of its own, which stays open with a consumer for as long as the context."""

    def __init__(self, amqp: Address, user: str, password: str) -> None:
        self._parameters = pika.ConnectionParameters(
            amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password),
            client_properties={"connection_name": "orders-worker"}, heartbeat=0,
        )  # fmt: skip

    @contextmanager
    def here(self) -> Iterator[None]:
        """Queues are there, and a client holds some of their messages."""
        with ExitStack() as stack:
            connection = stack.enter_context(pika.BlockingConnection(self._parameters))
            channel = connection.channel()
            channel.confirm_delivery()
            self._declare(channel)
            self._publish(channel)
            channel.basic_qos(prefetch_count=12)
            channel.basic_consume("orders", lambda *_: None, consumer_tag="orders-worker")
            channel.basic_consume("session.4711", lambda *_: None)
            connection.process_data_events(time_limit=1)
            yield

    def _declare(self, channel: "pika.adapters.blocking_connection.BlockingChannel") -> None:
        channel.exchange_declare("shop", "topic", durable=True)
        channel.exchange_declare("late", "fanout", durable=True)
        queues: dict[str, dict[str, object]] = {
            "orders": {"x-dead-letter-exchange": "late"},
            "payments.retry": {"x-message-ttl": 90_000, **_dead_letters_to("shop", "orders.new")},
            "mail.outgoing": {"x-message-ttl": 6 * HOUR_MS},
            "reservations": {"x-message-ttl": 15 * 60_000, **_dead_letters_to("", "reservations.lapsed")},
            "session.4711": {"x-expires": 120_000},
            "session.4712": {"x-expires": 3_600_000, "x-message-ttl": 240_000},
            "session.4713": {"x-expires": 1_800_000},
            "thumbnails": {"x-max-length": 50},
            "audit": {"x-dead-letter-exchange": "nowhere", "x-message-ttl": 1},
        }
        for name, arguments in queues.items():
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
        for queue, key in (("orders", "orders.#"), ("mail.outgoing", "mail.*"), ("thumbnails", "images.#")):
            channel.queue_bind(queue, "shop", key)

    def _publish(self, channel: "pika.adapters.blocking_connection.BlockingChannel") -> None:
        durable = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        for name, number in (
            ("orders", 240), ("payments.retry", 18), ("mail.outgoing", 64), ("reservations", 37), ("session.4712", 3),
            ("thumbnails", 50), ("audit", 5),
        ):
            for each in range(number):
                channel.basic_publish("", name, f'{{"number": {each}}}'.encode(), durable)


def _dead_letters_to(exchange: str, key: str) -> dict[str, object]:
    return {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}


def reject(amqp: Address, user: str, password: str, queue: str, count: int) -> None:
    """So many messages are published to a durable queue with a brake, and the first two are rejected: for an hour it
    delivers nothing."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        arguments: dict[str, object] = {
            "x-dead-letter-brake-rate": Decimal("0.0003"), "x-dead-letter-brake-window": HOUR_MS
        }
        channel.queue_declare(queue, durable=True, arguments=arguments)
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))
        for _ in range(2):
            (method, _, _) = channel.basic_get(queue)
            channel.basic_reject(method.delivery_tag, requeue=False)


def bury(amqp: Address, user: str, password: str, queue: str, count: int) -> None:
    """So many messages die in a durable queue, and go to one that is called NAME.dead."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(f"{queue}.dead", durable=True)
        channel.queue_declare(queue, durable=True, arguments=_dead_letters_to("", f"{queue}.dead"))
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2, expiration="1"))


def dead_letters(amqp: Address, user: str, password: str, queue: str, exchange: str, key: str, count: int) -> None:
    """So many messages die at once in a queue, for that exchange."""
    with _channel(amqp, user, password) as channel:
        arguments = {"x-message-ttl": 1, **_dead_letters_to(exchange, key)}
        channel.queue_declare(queue, durable=True, arguments=arguments)
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def bound(amqp: Address, user: str, password: str, exchange: str, queue: str) -> None:
    """Make an exchange, and a queue that gets all of it."""
    with _channel(amqp, user, password) as channel:
        channel.exchange_declare(exchange, "fanout", durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange)


def full(amqp: Address, user: str, password: str, queue: str) -> None:
    """A queue that takes no more than the one message in it."""
    with _channel(amqp, user, password) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.basic_publish("", queue, b"the one", pika.BasicProperties(delivery_mode=2))


@contextmanager
def _channel(amqp: Address, user: str, password: str) -> Iterator["pika.adapters.blocking_connection.BlockingChannel"]:
    """With confirms."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def declare(amqp: Address, user: str, password: str, name: str) -> None:
    """Make a queue."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare(name, durable=True)


def run_out(amqp: Address, user: str, password: str, name: str) -> None:
    """A queue NAME.leased, whose lease ends in half an hour, and NAME.timed with a message for a quarter of one."""
    with _channel(amqp, user, password) as channel:
        channel.queue_declare(f"{name}.leased", durable=True, arguments={"x-expires": 30 * 60_000})
        channel.queue_declare(f"{name}.timed", durable=True, arguments={"x-message-ttl": 15 * 60_000})
        channel.basic_publish("", f"{name}.timed", b"brief", pika.BasicProperties(delivery_mode=2))


def wait_for_hours(amqp: Address, user: str, password: str, queue: str, exchange: str, message_ids: list[str]) -> None:
    """Make a queue and a delayed exchange, with a message each that waits under each of these ids."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-allow-schedule": True})
        kind = {"x-delayed-type": "fanout"}
        channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=kind)
        for message_id in message_ids:
            properties = pika.BasicProperties(message_id=message_id, headers={"x-delay": HOUR_MS})
            channel.basic_publish("", queue, b"later", properties)
            channel.basic_publish(exchange, "", b"later", properties)


def note_deaths(amqp: Address, user: str, password: str, queue: str, journal: str, message_id: str) -> None:
    """A message with this id dies of its TTL in a queue with a journal."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(journal, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare(queue, durable=True, arguments={"x-message-ttl": 1, "x-journal": journal})
        channel.basic_publish("", queue, b"brief", pika.BasicProperties(message_id=message_id))


def copied(amqp: Address, user: str, password: str, stream: str, mirror: str, elsewhere: str) -> None:
    """A stream with a mirror, and a mirror of one in a cluster that no node knows, "nowhere"."""
    parameters = pika.ConnectionParameters(amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for name, more in (
            (stream, {}), (mirror, {"x-mirror": stream}), (elsewhere, {"x-mirror": "far", "x-upstream": "nowhere"}),
        ):  # fmt: skip
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", **more})


@contextmanager
def reading(amqp: Address, user: str, password: str, stream: str, tag: str, messages: int) -> Iterator[None]:
    """A stream with so many messages, and a consumer that has been given two of them and settles none."""
    parameters = pika.ConnectionParameters(
        amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password), heartbeat=0
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        for number in range(messages):
            channel.basic_publish("", stream, b"%d" % number)
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume(stream, print, consumer_tag=tag, arguments={"x-stream-offset": "first"})
        yield


@contextmanager
def another_client(amqp: Address, user: str, password: str) -> Iterator[str]:
    """A client that may be closed meanwhile; its address, as its connection's name begins."""
    parameters = pika.ConnectionParameters(
        amqp.host, amqp.port, credentials=pika.PlainCredentials(user, password),
        client_properties={"connection_name": "another client"}, heartbeat=0,
    )  # fmt: skip
    connection = pika.BlockingConnection(parameters)
    connection.channel()
    host, port = connection._impl._transport._sock.getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        with suppress(pika.exceptions.AMQPError):
            connection.close()
