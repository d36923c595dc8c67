"""The rules of time as a client sees them, over the whole AMQP layer with fake time."""

from __future__ import annotations

from typing import Any

from pamqp import commands


def test_t5_t7_a_message_goes_on_its_deadline_not_before(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-message-ttl": 1000})
    client.publish(1, "q")
    world.advance(999, step_ms=1)
    assert client.count("q") == 1
    world.advance(2, step_ms=1)
    assert client.count("q") == 0
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)


def test_t3_the_lower_of_queue_and_message_ttl_counts(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-message-ttl": 1000})
    client.publish(1, "q", b"short", expiration="300")
    client.publish(1, "q", b"long", expiration="9000")
    world.advance(400)
    assert client.get("q").body == b"long"
    client.publish(1, "q", b"long", expiration="9000")
    world.advance(1050)
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)


def test_t8_ttl_zero_reaches_a_waiting_consumer_and_nobody_else(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-message-ttl": 0})
    client.publish(1, "q", mandatory=True)
    assert client.take(1) == [], "no return for what expires at once"
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)
    client.consume("q", no_ack=True)
    client.publish(1, "q", b"in time")
    assert [each.body for each in client.take(1)] == [b"in time"]


def test_t9_each_queue_has_its_own_deadline(world: Any, client: Any) -> None:
    for name, ttl in (("a", 300), ("b", 900), ("n", None)):
        client.declare(name, arguments={} if ttl is None else {"x-message-ttl": ttl})
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    client.publish(1, "", exchange="amq.fanout")
    world.advance(650)
    assert [client.count(name) for name in "abn"] == [0, 1, 1]
    world.advance(650)
    assert [client.count(name) for name in "abn"] == [0, 0, 1]


def test_t10_what_a_consumer_holds_does_not_expire(world: Any, client: Any) -> None:
    client.declare("dead")
    client.declare(
        "q",
        arguments={"x-message-ttl": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    client.publish(1, "q", b"acked late")
    client.publish(1, "q", b"requeued late")
    first, second = client.get("q", no_ack=False), client.get("q", no_ack=False)
    world.advance(1000)
    assert client.count("dead") == 0
    client.send(1, commands.Basic.Ack(delivery_tag=first.tag))
    client.send(1, commands.Basic.Nack(delivery_tag=second.tag, requeue=True))
    world.advance(100)
    got = client.get("dead")
    assert got.body == b"requeued late"
    assert got.properties.headers["x-death"][0]["reason"] == "expired"
    assert client.count("dead") == 0
    assert client.count("q") == 0


def test_t11_d4_expiration_goes_with_death_alone(world: Any, client: Any) -> None:
    client.declare("dead")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish(1, "q", expiration="100")
    world.advance(200)
    got = client.get("dead")
    assert got.properties.expiration is None
    assert got.properties.headers["x-death"][0]["original-expiration"] == "100"


def test_l2_use_renews_the_lease_publishing_does_not(world: Any, client: Any) -> None:
    for name in ("declared", "looked at", "got", "published", "untouched"):
        client.declare(name, arguments={"x-expires": 1000})
    for _ in range(4):
        world.advance(400)
        client.declare("declared", arguments={"x-expires": 1000})
        client.declare("looked at", passive=True)
        client.get("got")
        client.publish(1, "published")
    catalog = world.cluster.catalog
    assert {queue.name for queue in catalog.queues("/")} == {"declared", "looked at", "got"}


def test_l3_consumers_suspend_the_lease_and_so_does_what_they_hold(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-expires": 1000})
    client.publish(1, "q")
    (held,) = client.consume("q")
    world.advance(3000)
    assert world.cluster.catalog.queue("/", "q") is not None
    client.call(1, commands.Basic.Cancel(consumer_tag="tag"))
    world.advance(3000)
    assert world.cluster.catalog.queue("/", "q") is not None, "a message is still held"
    client.send(1, commands.Basic.Ack(delivery_tag=held.tag))
    world.advance(900)
    assert world.cluster.catalog.queue("/", "q") is not None, "the full period starts again"
    world.advance(200)
    assert world.cluster.catalog.queue("/", "q") is None


def test_l4_an_expired_queue_takes_its_messages_along(world: Any, client: Any) -> None:
    client.declare("dead")
    client.declare(
        "q", arguments={"x-expires": 500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    client.publish(1, "q")
    world.advance(600)
    assert world.cluster.catalog.queue("/", "q") is None
    assert client.count("dead") == 0


def test_d6_dead_letters_cross_shards_once_and_in_order(world: Any, client: Any) -> None:
    """D6, D7: source and target in different shards, a transient one among them."""
    client.declare("target", durable=False)
    for number in range(6):
        client.declare(
            f"source{number}",
            arguments={
                "x-message-ttl": 200,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "target",
            },
        )
        client.send_bytes(b"".join(client.publish_bytes(1, f"source{number}", b"%d" % i) for i in range(20)))
    world.advance(500)
    got: dict[str, list[bytes]] = {}
    for _ in range(120):
        each = client.get("target")
        got.setdefault(each.properties.headers["x-death"][0]["queue"], []).append(each.body)
    assert isinstance(client.get("target"), commands.Basic.GetEmpty)
    assert got == {f"source{n}": [b"%d" % i for i in range(20)] for n in range(6)}


def test_dead_letters_leave_transient_queues_too(world: Any, client: Any) -> None:
    client.declare("target")
    client.declare(
        "mine",
        durable=False,
        exclusive=True,
        arguments={"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"},
    )
    client.publish(1, "mine", b"x")
    world.advance(300)
    got = client.get("target")
    assert (got.body, got.properties.headers["x-first-death-queue"]) == (b"x", "mine")
