"""Declarations and publishes as frameworks make them that use RabbitMQ's delayed message exchange (RULES S1)."""

from __future__ import annotations

from typing import Any

from pamqp import commands

DELAYED = "x-delayed-message"


def declare(client: Any, exchange: str, kind: str, **options: Any) -> None:
    arguments = options.pop("arguments", None) or {}
    options.setdefault("durable", True)
    answer = client.call(
        1, commands.Exchange.Declare(exchange=exchange, exchange_type=kind, arguments=arguments, **options)
    )
    assert isinstance(answer, commands.Exchange.DeclareOk), answer


def bodies(client: Any, queue: str) -> list[bytes]:
    found = []
    while hasattr(got := client.get(queue), "body"):
        found.append(got.body)
    return found


def test_s1_masstransit(world: Any, client: Any) -> None:
    """Its scheduler: a delayed exchange beside the exchange of each endpoint, bound to it."""
    declare(client, "order", "fanout")
    client.declare("order")
    client.call(1, commands.Queue.Bind(queue="order", exchange="order"))
    declare(client, "order_delay", DELAYED, arguments={"x-delayed-type": "fanout"})
    client.call(1, commands.Exchange.Bind(destination="order", source="order_delay", routing_key=""))
    headers = {"Content-Type": "application/vnd.masstransit+json", "x-delay": 30_000}
    client.publish(
        1, "", b"redelivered", exchange="order_delay", headers=headers, delivery_mode=2, mandatory=True,
        message_id="08dc0000-ac12-0242-0000-000000000001",
    )  # fmt: skip
    assert client.take() == []
    world.advance(29_900)
    assert bodies(client, "order") == []
    world.advance(400)
    got = client.get("order")
    assert (got.body, got.method.exchange) == (b"redelivered", "order_delay")
    assert got.properties.headers == {**headers, "x-delay": -30_000}


def test_s1_spring(world: Any, client: Any) -> None:
    """@Exchange(name = "events", type = "topic", delayed = "true") and setDelayLong."""
    declare(client, "events", DELAYED, arguments={"x-delayed-type": "topic"})
    client.declare("listener")
    client.call(1, commands.Queue.Bind(queue="listener", exchange="events", routing_key="order.*"))
    headers = {"__TypeId__": "com.example.Order", "x-delay": 2**33}
    client.publish(1, "order.late", b"late", exchange="events", headers=headers, delivery_mode=2)
    client.publish(1, "order.soon", b"soon", exchange="events", headers={"x-delay": 1500}, delivery_mode=2)
    client.publish(1, "order.now", b"now", exchange="events", delivery_mode=2)
    assert bodies(client, "listener") == [b"now"]
    world.advance(1800)
    assert bodies(client, "listener") == [b"soon"]
    # The admin declares everything anew whenever it connects.
    declare(client, "events", DELAYED, arguments={"x-delayed-type": "topic"})


def test_s1_symfony_messenger(world: Any, client: Any) -> None:
    """A transport whose exchange is of the type: with confirms, and a DelayStamp as x-delay."""
    client.open_channel(2, confirms=True)
    declare(client, "messages", DELAYED, arguments={"x-delayed-type": "direct"})
    client.declare("messages")
    client.call(1, commands.Queue.Bind(queue="messages", exchange="messages", routing_key="messages"))
    headers = {"type": "App\\Message\\Mail", "X-Message-Stamp-DelayStamp": "[]", "x-delay": 5000}
    client.publish(2, "messages", b"{}", exchange="messages", headers=headers, delivery_mode=2)
    assert client.acks(2) == [(1, False, False)]
    world.advance(5300)
    assert bodies(client, "messages") == [b"{}"]


def test_s1_laravel(world: Any, client: Any) -> None:
    """php-amqplib: flags by position, the type of integer by size, a job that is released with another delay."""
    declare(client, "delayed", DELAYED, arguments={"x-delayed-type": "direct"}, auto_delete=False, internal=False)
    client.declare("default", arguments={"x-max-priority": 2})
    client.call(1, commands.Queue.Bind(queue="default", exchange="delayed", routing_key="default"))
    for attempt, delay in enumerate((1000, 100_000)):
        headers = {"laravel": {"attempts": attempt}, "x-delay": delay}
        client.publish(1, "default", b"job", exchange="delayed", headers=headers, delivery_mode=2, priority=1)
        world.advance(delay - 100)
        assert bodies(client, "default") == []
        world.advance(400)
        got = client.get("default")
        assert got.properties.headers == {"laravel": {"attempts": attempt}, "x-delay": -delay}


def test_ladders_of_ttls_need_no_plugin(world: Any, client: Any) -> None:
    """NServiceBus: a queue for each bit of a delay in seconds; what expires in one goes on to the next. Three of 28
    levels: 5 s are 101."""
    for level in range(2, -1, -1):
        declare(client, f"nsb.v2.delay-level-{level}", "topic")
    declare(client, "nsb.v2.delay-delivery", "topic")
    for level in range(2, -1, -1):
        name, after = f"nsb.v2.delay-level-{level}", f"nsb.v2.delay-level-{level - 1}" if level else (
            "nsb.v2.delay-delivery"
        )
        client.declare(name, arguments={
            "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
            "x-message-ttl": 1000 * 2**level, "x-dead-letter-exchange": after,
        })  # fmt: skip
        prefix = "*." * (2 - level)
        client.call(1, commands.Queue.Bind(queue=name, exchange=name, routing_key=f"{prefix}1.#"))
        client.call(1, commands.Exchange.Bind(destination=after, source=name, routing_key=f"{prefix}0.#"))
    client.declare("endpoint")
    declare(client, "endpoint", "fanout")
    client.call(1, commands.Queue.Bind(queue="endpoint", exchange="endpoint"))
    client.call(
        1, commands.Exchange.Bind(destination="endpoint", source="nsb.v2.delay-delivery", routing_key="#.endpoint")
    )
    client.publish(1, "1.0.1.endpoint", b"later", exchange="nsb.v2.delay-level-2", delivery_mode=2)
    world.advance(4900)
    assert bodies(client, "endpoint") == []
    world.advance(900)
    assert bodies(client, "endpoint") == [b"later"]
