"""Class tx: publishes and settlements wait for their commit (AMQP 0-9-1, 1.9), refusals as RabbitMQ 3.10 has them."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import Done, MoveQueue, QueueMoved
from mayfly.node.shard.commands import CROSS, TRANSACTION
from mayfly.node.transient.local_shard import LocalHandle
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import closed


def select(client: Any, channel: int = 1) -> None:
    assert isinstance(client.call(channel, commands.Tx.Select()), commands.Tx.SelectOk)


def commit(client: Any, channel: int = 1) -> Any:
    return client.call(channel, commands.Tx.Commit())


def test_publishes_wait_for_the_commit(world: Any, client: Any) -> None:
    queues = [f"q{number}" for number in range(6)]
    for name in queues:
        client.declare(name)
    other = world.client()
    select(client)
    for name in queues:
        client.publish(1, name, b"one")
        client.publish(1, name, b"two")
    assert [other.count(name) for name in queues] == [0] * 6
    assert isinstance(commit(client), commands.Tx.CommitOk)
    assert [other.count(name) for name in queues] == [2] * 6
    client.publish(1, "q0", b"three")
    assert isinstance(client.call(1, commands.Tx.Rollback()), commands.Tx.RollbackOk)
    assert isinstance(commit(client), commands.Tx.CommitOk)
    assert [other.get("q0").body for _ in range(2)] == [b"one", b"two"]
    assert isinstance(other.get("q0"), commands.Basic.GetEmpty)


def test_what_was_not_committed_goes_with_its_channel(world: Any, client: Any) -> None:
    client.declare("q")
    select(client)
    client.publish(1, "q")
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.open_channel(2)
    assert client.count("q", 2) == 0


def test_acknowledgements_wait_for_the_commit(world: Any, client: Any) -> None:
    client.declare("q")
    for number in range(5):
        client.publish(1, "q", b"%d" % number)
    other = world.client()
    select(client)
    got = client.consume("q")
    client.send(1, commands.Basic.Ack(delivery_tag=got[1].tag))
    client.send(1, commands.Basic.Ack(delivery_tag=got[2].tag, multiple=True))
    assert isinstance(client.call(1, commands.Tx.Rollback()), commands.Tx.RollbackOk)
    client.send(1, commands.Basic.Ack(delivery_tag=got[1].tag))
    client.send(1, commands.Basic.Reject(delivery_tag=got[3].tag, requeue=False))
    assert isinstance(commit(client), commands.Tx.CommitOk)
    client.lose()
    assert [other.get("q").body for _ in range(3)] == [b"0", b"2", b"4"]
    assert isinstance(other.get("q"), commands.Basic.GetEmpty)


def test_a_nack_gives_back_with_the_commit(client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    select(client)
    got = client.get("q", no_ack=False)
    client.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    assert client.count("q") == 0
    commit(client)
    assert client.count("q") == 1


@pytest.mark.parametrize("multiple", [False, True])
def test_a_tag_settles_once_in_a_transaction(client: Any, multiple: bool) -> None:
    client.declare("q")
    client.publish(1, "q")
    select(client)
    got = client.get("q", no_ack=False)
    client.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    refused = client.call(1, commands.Basic.Ack(delivery_tag=got.tag, multiple=multiple))
    assert closed(refused) == ("channel", 406, f"PRECONDITION_FAILED - unknown delivery tag {got.tag}")
    assert (refused.class_id, refused.method_id) == (60, 80)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("q") == 1


def test_recover_leaves_what_the_commit_will_settle(client: Any) -> None:
    client.declare("q")
    for number in range(3):
        client.publish(1, "q", b"%d" % number)
    select(client)
    tags = [client.get("q", no_ack=False).tag for _ in range(3)]
    client.send(1, commands.Basic.Ack(delivery_tag=tags[1]))
    assert isinstance(client.call(1, commands.Basic.Recover(requeue=True)), commands.Basic.RecoverOk)
    assert client.count("q") == 2
    assert isinstance(commit(client), commands.Tx.CommitOk)
    assert [client.get("q").body for _ in range(2)] == [b"0", b"2"]


@pytest.mark.parametrize(
    "before, method, text",
    [
        (None, commands.Tx.Commit(), "channel is not transactional"),
        (None, commands.Tx.Rollback(), "channel is not transactional"),
        (commands.Confirm.Select(), commands.Tx.Select(), "cannot switch from confirm to tx mode"),
        (commands.Tx.Select(), commands.Confirm.Select(), "cannot switch from tx to confirm mode"),
    ],
)
def test_refusals(client: Any, before: Any, method: Any, text: str) -> None:
    if before is not None:
        client.call(1, before)
    got = client.call(1, method)
    assert closed(got) == ("channel", 406, f"PRECONDITION_FAILED - {text}")
    assert got.class_id << 16 | got.method_id == method.index


def test_selecting_twice_changes_nothing(client: Any) -> None:
    client.declare("q")
    select(client)
    client.publish(1, "q")
    select(client)
    commit(client)
    assert client.count("q") == 1


def test_publishes_are_checked_at_once_and_returned_with_the_commit(client: Any) -> None:
    select(client)
    client.publish(1, "nowhere", mandatory=True)
    assert client.take(1) == []
    client.send(1, commands.Tx.Commit())
    returned, done = client.take(1)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert isinstance(done, commands.Tx.CommitOk)
    client.publish(1, "nowhere", mandatory=True)
    assert isinstance(client.call(1, commands.Tx.Rollback()), commands.Tx.RollbackOk)
    client.send_bytes(client.publish_bytes(1, "k", exchange="nonesuch"))
    (refused,) = client.take(1)
    assert closed(refused) == ("channel", 404, "NOT_FOUND - no exchange 'nonesuch' in vhost '/'")


def test_a_full_queue_refuses_the_whole_part_of_its_shard(world: Any, client: Any) -> None:
    """RabbitMQ takes what fits, and settles: it says only that the transaction is partial."""
    client.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    shard = world.cluster.catalog.queue("/", "full").shard
    names = (f"q{number}" for number in range(50))
    for name in names:
        client.declare(name)
        if world.cluster.catalog.queue("/", name).shard == shard:
            break
    client.publish(1, name)
    select(client)
    got = client.get(name, no_ack=False)
    client.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    for _ in range(2):
        client.publish(1, "full")
    client.publish(1, name, b"too")
    refused = commit(client)
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - partial tx completion")
    assert (refused.class_id, refused.method_id) == (90, 20)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("full") == 0
    assert client.count(name) == 1 and client.get(name).method.redelivered


def test_nothing_is_acknowledged_unless_publishes_elsewhere_are_stored(world: Any, client: Any) -> None:
    client.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish(1, "full")
    shard = world.cluster.catalog.queue("/", "full").shard
    name = ""
    for name in (f"q{number}" for number in range(50)):
        client.declare(name)
        if world.cluster.catalog.queue("/", name).shard != shard:
            break
    client.publish(1, name)
    select(client)
    got = client.get(name, no_ack=False)
    client.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    client.publish(1, "full", b"too much")
    assert closed(commit(client))[1:] == (406, "PRECONDITION_FAILED - partial tx completion")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count(name) == 1


def test_a_transaction_has_a_largest_size(client: Any) -> None:
    client.declare("q")
    select(client)
    client.connection.channels[1].publisher.transaction.most_bytes = 2000
    client.publish(1, "q", b"x" * 900)
    client.publish(1, "q", b"x" * 900)
    (refused,) = client.take(1)
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - transaction is larger than 2000 bytes")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("q") == 0


# -- queues that go before the commit -------------------------------------------------


def test_a_queue_declared_anew_before_the_commit_gets_what_was_published(client: Any) -> None:
    """RabbitMQ (3.10, rabbit_channel:deliver_to_queues) looks queues up by their names at the commit."""
    client.declare("q", arguments={"x-message-ttl": 60_000})
    client.declare("other")
    for name in ("q", "other"):
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    select(client)
    client.publish(1, "q", b"one")
    client.publish(1, "", b"two", exchange="amq.fanout", mandatory=True)
    client.publish(1, "q", b"three", mandatory=True, expiration="50000")
    client.call(1, commands.Queue.Delete(queue="q"))
    client.declare("q")
    client.send(1, commands.Tx.Commit())
    assert [item.name for item in client.take(1)] == ["Tx.CommitOk"]
    assert [client.get("q").body for _ in range(3)] == [b"one", b"two", b"three"]
    assert client.get("other").body == b"two"


def test_without_the_queue_what_is_mandatory_is_returned_in_order(client: Any) -> None:
    """A fan-out comes back if all of its queues are gone."""
    for name in ("q", "stays"):
        client.declare(name)
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    select(client)
    client.publish(1, "q", b"gone", mandatory=True, headers={"BCC": ["elsewhere"]})
    client.publish(1, "nowhere", b"unroutable", mandatory=True)
    client.publish(1, "q", b"dropped")
    client.publish(1, "", b"partly", exchange="amq.fanout", mandatory=True)
    client.publish(1, "q", b"last", mandatory=True)
    client.call(1, commands.Queue.Delete(queue="q"))
    client.send(1, commands.Tx.Commit())
    *returned, done = client.take(1)
    assert [each.body for each in returned] == [b"gone", b"unroutable", b"last"]
    assert {each.method.reply_text for each in returned} == {"NO_ROUTE"}
    assert returned[0].properties.headers == {"BCC": ["elsewhere"]}
    assert isinstance(done, commands.Tx.CommitOk)
    assert client.get("stays").body == b"partly"


def test_a_queue_in_another_shard_takes_the_place_of_one_that_is_gone(world: Any, client: Any) -> None:
    client.declare("q")
    shard = world.cluster.catalog.queue("/", "q").shard
    select(client)
    client.publish(1, "q", b"new")
    client.call(1, commands.Queue.Delete(queue="q"))
    client.declare("in its shard")
    client.declare("q")
    assert world.cluster.catalog.queue("/", "q").shard != shard
    assert isinstance(commit(client), commands.Tx.CommitOk)
    assert client.get("q").body == b"new"


def test_a_queue_that_seems_gone_is_looked_for_in_a_catalog_that_is_fresh(world: Any, client: Any) -> None:
    client.declare("q")
    select(client)
    client.publish(1, "q", b"one", mandatory=True)
    client.call(1, commands.Queue.Delete(queue="q"))
    other = world.client()
    world.running = False
    client.send(1, commands.Tx.Commit())
    other.send(1, commands.Queue.Declare(queue="q", durable=True))
    world.running = True
    world.settle()
    assert [item.name for item in client.take(1)] == ["Tx.CommitOk"]
    assert other.get("q").body == b"one"


def test_a_channel_closed_before_its_commit_begins_returns_nothing(world: Any, client: Any) -> None:
    """The catalog is asked first, since the queue is gone: meanwhile another channel has got the number."""
    client.declare("q")
    client.declare("other")
    select(client)
    client.publish(1, "q", b"one", mandatory=True)
    client.publish(1, "other", b"two")
    client.call(1, commands.Queue.Delete(queue="q"))
    world.running = False
    client.send(1, commands.Tx.Commit())
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.send(1, commands.Channel.Open())
    client.take()
    world.running = True
    world.settle()
    assert client.take() == []
    assert client.get("other").body == b"two"


def test_a_transaction_through_one_node_finds_a_queue_that_was_replaced_through_another() -> None:
    brokers = ThreeBrokers()
    home, elsewhere = brokers.nodes[1].client(), brokers.nodes[2].client()

    def do(client: Any, method: Any) -> Any:
        client.send(1, method)
        brokers.run_until(lambda: client.received)
        return client.take(1)[0]

    for durable in (True, False):
        do(home, commands.Queue.Declare(queue="q", durable=durable))
        do(elsewhere, commands.Tx.Select())
        elsewhere.publish(1, "q")
        do(home, commands.Queue.Delete(queue="q"))
        do(home, commands.Queue.Declare(queue="q", durable=not durable))
        assert isinstance(do(elsewhere, commands.Tx.Commit()), commands.Tx.CommitOk)
        assert do(home, commands.Queue.Declare(queue="q", passive=True)).message_count == 1
        do(home, commands.Queue.Delete(queue="q"))


def test_transactions_through_any_node_on_queues_of_any_node() -> None:
    """Replicated queues, and one that lives on another node."""
    brokers = ThreeBrokers()
    home, elsewhere = brokers.nodes[1].client(), brokers.nodes[2].client()
    for name, durable in (("a", True), ("b", True), ("c", True), ("transient", False)):
        home.send(1, commands.Queue.Declare(queue=name, durable=durable))
        brokers.run_until(lambda: home.received)
        assert isinstance(home.take(1)[0], commands.Queue.DeclareOk)
    elsewhere.send(1, commands.Tx.Select())
    for name in ("a", "b", "c", "transient"):
        elsewhere.publish(1, name)
    elsewhere.send(1, commands.Tx.Commit())
    brokers.run_until(lambda: len(elsewhere.received) == 2)
    assert [item.name for item in elsewhere.take(1)] == ["Tx.SelectOk", "Tx.CommitOk"]
    elsewhere.send(1, commands.Basic.Consume(queue="transient", consumer_tag="t"))
    brokers.run_until(lambda: len(elsewhere.received) >= 4)
    _, got = elsewhere.take(1)
    elsewhere.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    elsewhere.publish(1, "a")
    elsewhere.send(1, commands.Tx.Commit())
    brokers.run_until(lambda: elsewhere.received)
    assert [item.name for item in elsewhere.take(1)] == ["Tx.CommitOk"]
    for name, left in (("a", 2), ("b", 1), ("c", 1), ("transient", 0)):
        home.send(1, commands.Queue.Declare(queue=name, passive=True))
        brokers.run_until(lambda: home.received)
        assert home.take(1)[0].message_count == left, name


def test_a_queue_that_moves_on_while_a_commit_goes_over_is_gone_over_to_once_more(
    world: Any, client: Any, monkeypatch: Any
) -> None:
    """What was committed before, in the shard that the queue has left meanwhile, may still be on its way from there."""
    client.declare("q")
    catalog = world.cluster.catalog
    record = catalog.queue("/", "q")
    shards = [record.shard, record.shard % 4 + 1, (record.shard + 1) % 4 + 1]

    def move_on(number: int) -> None:
        source, target = shards[number - 1], shards[number]
        catalog.apply(MoveQueue("/", "q", target))
        assert catalog.apply(QueueMoved(record.id, source, target, number)) == Done(True)

    asked: list[tuple[int, int]] = []
    submit = LocalHandle.submit

    def watch(handle: LocalHandle, command: bytes, done: Any) -> None:
        asked.append((handle.shard_id, command[0]))
        submit(handle, command, done)
        if len(asked) == 1:
            move_on(2)

    move_on(1)
    select(client)
    client.publish(1, "q")
    monkeypatch.setattr(LocalHandle, "submit", watch)
    commit(client)
    assert asked == [
        (shards[0], CROSS),
        (shards[0], CROSS),
        (shards[1], CROSS),
        (shards[2], TRANSACTION),
    ]
