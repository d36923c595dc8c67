"""What a node counts of its clients' doings: each thing once, where it happens."""

from __future__ import annotations

from pamqp import commands

from mayfly.node.broker.traffic import SIZE_BOUNDS
from tests.node.conftest import World

MESSAGES = (
    "received", "received_confirm", "routed", "confirmed", "unroutable_dropped", "unroutable_returned",
    "delivered_manual_ack", "delivered_auto_ack", "got_manual_ack", "got_auto_ack", "get_empty", "redelivered",
    "acknowledged",
)  # fmt: skip


def counted(world: World) -> dict[str, int]:
    """What was counted of messages since the last call, without zeros."""
    traffic = world.broker.traffic
    found = {name: getattr(traffic, name) for name in MESSAGES if getattr(traffic, name)}
    for name in MESSAGES:
        setattr(traffic, name, 0)
    return found


def test_publishes_are_counted_by_what_becomes_of_them() -> None:
    world = World()
    client = world.client()
    client.open_channel(2, confirms=True)
    for name in ("a", "b"):
        client.declare(name)
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    client.publish(1, "a")
    client.publish(1, "", exchange="amq.fanout")
    assert counted(world) == {"received": 2, "routed": 3}
    client.publish(1, "nowhere")
    client.publish(1, "nowhere", mandatory=True)
    assert counted(world) == {"received": 2, "unroutable_dropped": 1, "unroutable_returned": 1}
    client.send_bytes(b"".join([client.publish_bytes(2, "a")] * 3 + [client.publish_bytes(2, "nowhere")]))
    assert counted(world) == {
        "received": 4, "received_confirm": 4, "routed": 3, "confirmed": 4, "unroutable_dropped": 1,
    }  # fmt: skip
    assert world.broker.traffic.publishers == 2
    client.call(1, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    client.lose()
    assert world.broker.traffic.publishers == 0


def test_transactions_count_with_their_commit() -> None:
    world = World()
    client = world.client()
    client.declare("a")
    client.publish(1, "a")
    got = client.get("a", no_ack=False)
    client.call(1, commands.Tx.Select())
    counted(world)
    client.publish(1, "a")
    client.publish(1, "nowhere")
    client.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    assert counted(world) == {"received": 2, "unroutable_dropped": 1}
    client.call(1, commands.Tx.Commit())
    assert counted(world) == {"routed": 1, "acknowledged": 1}


def test_deliveries_are_counted_by_how_they_went_out() -> None:
    world = World()
    client = world.client()
    client.declare("a")
    for _ in range(3):
        client.publish(1, "a")
    counted(world)
    client.get("a")
    got = client.get("a", no_ack=False)
    assert counted(world) == {"got_auto_ack": 1, "got_manual_ack": 1}
    client.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    assert counted(world) == {}
    deliveries = client.consume("a")
    assert counted(world) == {"delivered_manual_ack": 2, "redelivered": 1}
    client.send(1, commands.Basic.Ack(delivery_tag=deliveries[-1].tag, multiple=True))
    assert counted(world) == {"acknowledged": 2}
    client.call(1, commands.Basic.Cancel(consumer_tag="tag"))
    client.get("a")
    assert counted(world) == {"get_empty": 1}
    client.consume("a", no_ack=True)
    client.publish(1, "a")
    assert counted(world)["delivered_auto_ack"] == 1


def test_sizes_go_into_their_buckets() -> None:
    """A body as large as a bound is below it, as in Prometheus."""
    world = World()
    client = world.client()
    for size in (0, 100, 101, 1_000, 20_000):
        client.publish(1, "nowhere", b"x" * size)
    assert world.broker.traffic.by_size == [2, 2, 0, 1, *[0] * (len(SIZE_BOUNDS) - 3)]
    assert world.broker.traffic.body_bytes == 21_201


def test_what_comes_and_goes_is_counted_twice() -> None:
    world = World()
    traffic = world.broker.traffic
    client = world.client()
    client.open_channel(2)
    client.declare("a")
    client.declare("a")
    client.call(2, commands.Queue.Declare(queue="a", passive=True))
    client.call(1, commands.Queue.Delete(queue="a"))
    client.call(2, commands.Queue.Declare(queue="absent", passive=True))
    assert (traffic.queues_declared, traffic.queues_created, traffic.queues_deleted) == (2, 1, 1)
    assert (traffic.channels_opened, traffic.channels_closed) == (2, 1)
    refused = world.login(password="wrong")
    refused.lose()
    assert (traffic.connections_opened, traffic.connections_closed) == (1, 0)
    client.lose()
    assert (traffic.connections_opened, traffic.connections_closed) == (1, 1)
    assert (traffic.channels_opened, traffic.channels_closed) == (2, 2)
