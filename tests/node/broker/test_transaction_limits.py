"""What transactions may hold: each, and all of a node together; how much work one is to a shard."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.broker.transaction import OpenTransactions, Transaction
from mayfly.node.broker.unacknowledged import DeliveryHolder, Unacknowledged, UnknownTag
from mayfly.node.limits import (
    OPEN_TRANSACTIONS_BYTES,
    TRANSACTION_BYTES,
    TRANSACTION_STEP_BYTES,
    TRANSACTION_STEPS,
    open_transactions_bytes,
)
from mayfly.node.shard.commands import ACK

REPLY_ADDRESS = "amq.rabbitmq.reply-to.1.abc"
MANY = "transaction has more than 20000 publishes and acknowledgements"


def select(client: Any, channel: int = 1) -> Any:
    assert isinstance(client.call(channel, commands.Tx.Select()), commands.Tx.SelectOk)
    return client.connection.channels[channel].publisher.transaction


def refusal(client: Any, channel: int = 1) -> str:
    """Why the channel was closed, as the last thing that came on it."""
    closed = client.take(channel)[-1]
    assert isinstance(closed, commands.Channel.Close) and closed.reply_code == 406, closed
    return str(closed.reply_text).removeprefix("PRECONDITION_FAILED - ")


def of_node(world: Any) -> OpenTransactions:
    transactions: OpenTransactions = world.broker.open_transactions
    return transactions


def test_returns_replies_and_acknowledgements_count(world: Any, client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    transaction = select(client)
    body = b"x" * 1000
    sizes = [0]

    def grown() -> int:
        sizes.append(transaction.size_bytes)
        return sizes[-1] - sizes[-2]

    client.publish(1, "nowhere", body, mandatory=True)
    assert grown() > 1000 + TRANSACTION_STEP_BYTES
    client.publish(1, REPLY_ADDRESS, body)
    assert grown() > 1000 + TRANSACTION_STEP_BYTES
    client.publish(1, "q", body)
    assert grown() > 1000 + TRANSACTION_STEP_BYTES
    client.send(1, commands.Basic.Ack(client.get("q", no_ack=False).tag))
    assert grown() == TRANSACTION_STEP_BYTES
    assert transaction.steps == 4
    assert of_node(world).size_bytes == transaction.size_bytes


@pytest.mark.parametrize("key", ["nowhere", REPLY_ADDRESS])
def test_a_transaction_of_returns_or_replies_has_a_largest_size(world: Any, client: Any, key: str) -> None:
    select(client).most_bytes = 3000
    for _ in range(3):
        client.publish(1, key, b"x" * 1000, mandatory=True)
    assert refusal(client) == "transaction is larger than 3000 bytes"
    assert of_node(world).size_bytes == 0


def test_acknowledgements_of_nothing_are_not_kept(client: Any) -> None:
    transaction = select(client)
    client.send(1, *[commands.Basic.Ack(0, True)] * 100)
    assert (transaction.size_bytes, transaction._settled) == (0, [])
    assert isinstance(client.call(1, commands.Tx.Commit()), commands.Tx.CommitOk)


@pytest.mark.parametrize(
    "end", [commands.Tx.Commit(), commands.Tx.Rollback(), commands.Channel.Close(200, "", 0, 0), None]
)
def test_what_is_over_counts_no_more(world: Any, client: Any, end: Any) -> None:
    client.declare("q")
    transaction = select(client)
    client.publish(1, "q")
    client.publish(1, "nowhere", mandatory=True)
    assert of_node(world).size_bytes == transaction.size_bytes > 0
    if end is None:
        client.lose()
    else:
        client.send(1, end)
    assert of_node(world).size_bytes == 0


def test_a_commit_counts_until_its_shards_have_it(world: Any, client: Any) -> None:
    client.declare("q")
    select(client)
    client.publish(1, "q")
    world.running = False
    client.send(1, commands.Tx.Commit())
    assert of_node(world).size_bytes > 0
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    assert of_node(world).size_bytes > 0
    world.running = True
    world.settle()
    assert of_node(world).size_bytes == 0


@pytest.mark.parametrize("too_large", [True, False])
def test_a_commit_counts_a_copy_for_each_shard_that_the_queues_are_in_then(
    world: Any, client: Any, too_large: bool
) -> None:
    """A fan-out to queues of one shard, which are declared anew in as many shards."""
    every = [f"q{number}" for number in range(16)]
    for name in every:
        client.declare(name)
    in_one = [name for name in every if world.cluster.catalog.queue("/", name).shard == 1]
    for name in in_one:
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    transaction = select(client)
    client.publish(1, "", b"x" * 1000, exchange="amq.fanout", mandatory=True)
    counted = transaction.size_bytes
    for name in every:
        client.call(1, commands.Queue.Delete(queue=name))
    for name in in_one:
        client.declare(name)
    assert len(in_one) == len({world.cluster.catalog.queue("/", name).shard for name in in_one}) == 4
    transaction.most_bytes = 4 * counted - too_large
    client.send(1, commands.Tx.Commit())
    if too_large:
        assert refusal(client) == f"transaction is larger than {4 * counted - 1} bytes"
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    else:
        assert [item.name for item in client.take(1)[-1:]] == ["Tx.CommitOk"]
    assert of_node(world).size_bytes == transaction.size_bytes == 0
    assert [client.count(name) for name in in_one] == [0 if too_large else 1] * 4


def test_all_transactions_of_a_node_together_have_a_largest_size(world: Any, client: Any) -> None:
    client.declare("q")
    of_node(world).most_bytes = 3000
    other = world.client()
    for each in (client, other):
        select(each)
        each.publish(1, "q", b"x" * 1000)
    other.publish(1, "q", b"x" * 1000)
    assert refusal(other) == "the transactions of this node are larger than 3000 bytes"
    assert isinstance(client.call(1, commands.Tx.Commit()), commands.Tx.CommitOk)
    assert client.count("q") == 1


def test_a_node_with_little_memory_has_less_for_transactions() -> None:
    assert open_transactions_bytes(0) == OPEN_TRANSACTIONS_BYTES
    assert open_transactions_bytes(1 << 40) == OPEN_TRANSACTIONS_BYTES
    assert open_transactions_bytes(400) == 100


# -- alarms --------------------------------------------------------------------------


def test_an_alarm_ends_the_largest_transactions_and_lets_small_ones_wait(world: Any) -> None:
    """Who is not read cannot commit: large transactions could keep the alarm on forever."""
    of_node(world).most_bytes = 20_000  # 2000 in an alarm
    large, small, also_large = (world.client() for _ in range(3))
    large.declare("q")
    for client, size in ((large, 5000), (small, 500), (also_large, 3000)):
        select(client)
        client.publish(1, "q", b"x" * size)
    world.alarm("low on memory")
    assert not any(client.connection.pressure.wants_reading for client in (large, small, also_large))
    for client in (large, also_large):
        assert refusal(client) == "the transactions of this node are larger than 2000 bytes during an alarm"
    assert 500 < of_node(world).size_bytes <= 2000
    assert small.take(1) == []
    world.alarm(None)
    assert isinstance(small.call(1, commands.Tx.Commit()), commands.Tx.CommitOk)
    assert small.count("q") == 1


def test_during_an_alarm_transactions_stay_small(world: Any, client: Any) -> None:
    """Those who have not published are read on: they may acknowledge."""
    of_node(world).most_bytes = 20_000
    client.declare("q")
    world.client().send_bytes(client.publish_bytes(1, "q") * 20)
    select(client)
    tags = [client.get("q", no_ack=False).tag for _ in range(20)]
    world.alarm("low on memory")
    assert client.connection.pressure.wants_reading
    client.send(1, *[commands.Basic.Ack(tag) for tag in tags])
    assert refusal(client) == "the transactions of this node are larger than 2000 bytes during an alarm"
    assert of_node(world).size_bytes == 0


def test_a_transaction_that_begins_during_an_alarm_waits_in_front_of_its_first_publish(world: Any, client: Any) -> None:
    of_node(world).most_bytes = 20_000
    client.declare("q")
    world.alarm("low on memory")
    select(client)
    client.send_bytes(client.publish_bytes(1, "q", b"x" * 3000))
    assert of_node(world).size_bytes == 0
    assert not client.connection.pressure.wants_reading
    world.alarm(None)
    assert of_node(world).size_bytes > 3000
    assert isinstance(client.call(1, commands.Tx.Commit()), commands.Tx.CommitOk)
    assert client.count("q") == 1


def test_an_alarm_does_not_end_small_transactions_for_a_commit_under_way(world: Any, client: Any) -> None:
    of_node(world).most_bytes = 20_000
    client.declare("q")
    other = world.client()
    for each, size in ((client, 5000), (other, 500)):
        select(each)
        each.publish(1, "q", b"x" * size)
    world.running = False
    client.send(1, commands.Tx.Commit())
    world.alarm("low on memory")
    world.running = True
    world.settle()
    assert [item.name for item in client.take(1)[-1:]] == ["Tx.CommitOk"]
    assert other.take(1) == []


# -- how much work -------------------------------------------------------------------


def test_C4_a_transaction_has_a_largest_number_of_publishes(world: Any, client: Any) -> None:
    client.declare("q")
    transaction = select(client)
    transaction.most_steps = 10
    client.send_bytes(client.publish_bytes(1, "q") * 10)
    assert client.take(1) == []
    client.publish(1, "q")
    assert refusal(client) == MANY.replace("20000", "10")


def test_C4_a_publish_counts_once_for_each_queue(client: Any) -> None:
    for number in range(5):
        client.declare(f"q{number}")
        client.call(1, commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"))
    transaction = select(client)
    client.publish(1, "", b"", exchange="amq.fanout")
    client.publish(1, "", b"x", exchange="amq.fanout")
    assert transaction.steps == 10


def test_C4_a_transaction_has_a_largest_number_of_acknowledgements(client: Any) -> None:
    unacknowledged = client.connection.channels[1].unacknowledged
    select(client)
    assert unacknowledged.hold(DeliveryHolder(1, 1, 1), 1, TRANSACTION_STEPS + 1) == 1
    client.send(1, commands.Basic.Ack(TRANSACTION_STEPS, True))
    assert client.take(1) == []
    client.send(1, commands.Basic.Ack(TRANSACTION_STEPS + 1))
    assert refusal(client) == MANY
    assert TRANSACTION_STEPS * TRANSACTION_STEP_BYTES < TRANSACTION_BYTES


def test_what_is_acknowledged_up_to_a_tag_is_looked_at_once() -> None:
    tags = Unacknowledged()
    one, two = DeliveryHolder(1, 1, 100), DeliveryHolder(2, 1, 101)
    for first in range(1, 101):
        tags.hold(one if first % 2 else two, first, 10)
    transaction = Transaction(OpenTransactions())
    transaction.settle(tags, 35, False, ACK)
    transaction.settle(tags, 30, True, ACK)
    transaction.settle(tags, 0, True, ACK)
    assert [len(each) for _, each in transaction._settled] == [1, 30, 969]
    assert transaction._all_up_to == 1000
    assert [tags.outstanding(0, True, after) for after in (1000, 998, 989)] == [[], [999, 1000], [*range(990, 1001)]]
    transaction.settle(tags, 0, True, ACK)
    assert tags.hold(one, 2000, 2) == 1001
    transaction.settle(tags, 1002, True, ACK)
    assert transaction._settled[3:] == [(ACK, [1001, 1002])]
    with pytest.raises(UnknownTag):
        transaction.settle(tags, 500, True, ACK)
    with pytest.raises(UnknownTag):
        transaction.settle(tags, 1003, True, ACK)


def test_recover_in_a_transaction_looks_at_each_delivery_once(client: Any) -> None:
    client.declare("q")
    client.send_bytes(client.publish_bytes(1, "q") * 3)
    transaction = select(client)
    tags = [client.get("q", no_ack=False).tag for _ in range(3)]
    client.send(1, commands.Basic.Ack(tags[1]))
    client.call(1, commands.Basic.Recover(requeue=True))
    assert client.connection.channels[1].unacknowledged.outstanding(0, True) == [tags[1]]
    assert transaction._all_up_to == tags[2]
    assert transaction.take_unsettled(client.connection.channels[1].unacknowledged) == []


# -- a channel that is closed during its commit ---------------------------------------


def reopened_during_its_commit(world: Any, client: Any) -> None:
    world.running = False
    client.send(1, commands.Tx.Commit())
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.send(1, commands.Channel.Open())
    client.take()


def test_what_waited_for_room_does_not_come_on_the_next_channel_of_the_same_number(world: Any, client: Any) -> None:
    """The commit makes room below a prefetch; what waited for it was for the channel before."""
    client.declare("q")
    client.send_bytes(client.publish_bytes(1, "q") * 4)
    client.call(1, commands.Basic.Qos(prefetch_count=1))
    client.consume("q", "a")
    client.consume("q", "b")
    select(client)
    client.send(1, commands.Basic.Ack(delivery_tag=1))
    reopened_during_its_commit(world, client)
    world.running = True
    world.settle()
    assert client.take() == []
    assert client.count("q") == 3


def test_deliveries_do_not_come_on_the_next_channel_of_the_same_number(world: Any, client: Any) -> None:
    names = [f"q{number}" for number in range(20)]
    for name in names:
        client.declare(name)
    # The shard that delivers comes before the one that the commit waits for.
    names.sort(key=lambda name: int(world.cluster.catalog.queue("/", name).shard))
    client.consume(names[0], "a")
    select(client)
    client.publish(1, names[-1])
    publisher = world.client()
    reopened_during_its_commit(world, client)
    publisher.publish(1, names[0])
    world.running = True
    world.settle()
    assert client.take() == []
    assert [client.count(name) for name in (names[0], names[-1])] == [1, 1]
