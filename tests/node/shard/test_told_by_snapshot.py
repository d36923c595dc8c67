"""A node falls behind, and a leader's snapshot takes the place of its replica: its clients are told what they missed,
each thing once, and keep their consumers (docs/decisions/consensus.md, 10)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from mayfly.cluster.raft import MessageType
from mayfly.node.shard.consumers import Holder
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client, Delivery

ENTRIES = 10
"""A log is shortened when it has so many more."""


class Lagging:
    """Three nodes with one shard. One of them, which leads nothing, is soon `deaf`: what its clients ask for is
    applied elsewhere, and is told here by a snapshot alone."""

    def __init__(self) -> None:
        self.brokers = brokers = ThreeBrokers(shards=1, compact_entries=ENTRIES)
        engines = {id: node.engine for id, node in brokers.nodes.items()}
        leading = {id for id in brokers.ids if any(group.leads for group in engines[id].host.groups.values())}
        self.id = next(id for id in brokers.ids if id not in leading)
        self.node = brokers.nodes[self.id]
        self.elsewhere = brokers.nodes[min(leading)]
        self.near, self.far = self.node.client(), self.elsewhere.client()
        self.lost: list[int] = []
        self.node.engine.broker = _Watched(self.node.broker, self.lost)

    def call(self, client: Client, method: Any, channel: int = 1) -> Any:
        client.take(channel)
        client.send(channel, method)
        self.brokers.run_until(lambda: client.received)
        return client.take(channel)[-1]

    def declare(self, name: str = "q", client: Client | None = None, **arguments: Any) -> None:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        answer = self.call(client or self.far, commands.Queue.Declare(queue=name, durable=True, arguments=named))
        assert isinstance(answer, commands.Queue.DeclareOk)

    def consume(self, queue: str = "q", tag: str = "c", channel: int = 1, **options: Any) -> None:
        answer = self.call(self.near, Basic.Consume(queue=queue, consumer_tag=tag, **options), channel)
        assert isinstance(answer, Basic.ConsumeOk)

    def publish(self, *bodies: str, queue: str = "q", **properties: Any) -> None:
        for body in bodies:
            self.far.publish(1, queue, body.encode(), **properties)
        self.brokers.step()

    def deaf(self) -> None:
        lost = (MessageType.APP, MessageType.SNAP)
        self.brokers.loses = lambda sender, to, message: to == self.id and message.type in lost

    def misses_entries(self) -> None:
        """More than the logs of shards and catalog keep."""
        filling = self.elsewhere.client()
        filling.open_channel(2)
        number = 0
        while not self.needs_snapshots():
            number += 1
            assert number < 20 * ENTRIES, "the logs still reach back"
            filling.send(1, commands.Queue.Declare(queue=f"filling {number}", durable=True))
            for queue in range(1, 5):
                filling.publish(2, f"filling {queue}")
            self.brokers.step()

    def needs_snapshots(self) -> bool:
        """Whether no leader's log has what comes next here."""
        groups = [node.engine.host.groups for node in self.brokers.nodes.values()]
        return all(
            max(its[id].log.first_index() for its in groups if its[id].leads) > index + 1
            for id, index in self.applied().items()
        )

    def applied(self) -> dict[int, int]:
        return {id: group.applied for id, group in self.node.engine.host.groups.items()}

    def hears_again(self) -> None:
        before = self.applied()
        self.brokers.loses = lambda sender, to, message: False
        for node in self.brokers.nodes.values():
            if node is not self.node:
                node.engine.host.peer_up(self.id, self.brokers.now_ms)
        self.brokers.run_until(lambda: all(index > before[id] for id, index in self.applied().items()))
        for id, group in self.node.engine.host.groups.items():
            assert group.log.snapshot_metadata.index > before[id], f"group {id} came by its log"
        for _ in range(5):
            self.brokers.step()

    def away(self) -> None:
        self.misses_entries()
        self.hears_again()
        assert self.lost == []

    def holders(self, node: Any = None) -> list[Holder]:
        shard = (node or self.elsewhere).engine.shards[1]
        return [holder for row in shard._state.sessions.values() for holder in row.values()]

    def check_same(self) -> None:
        shards = [node.engine.shards[1] for node in self.brokers.nodes.values()]
        self.brokers.run_until(lambda: len({shard.digest() for shard in shards}) == 1)


class _Watched:
    """A broker, and the sessions that were lost to it."""

    def __init__(self, broker: Any, lost: list[int]) -> None:
        self._broker = broker
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def session_lost(self, shard_id: int) -> None:
        self._lost.append(shard_id)
        self._broker.session_lost(shard_id)


@pytest.fixture
def lagging() -> Lagging:
    return Lagging()


def bodies(got: list[Any]) -> list[str]:
    assert all(isinstance(each, Delivery) for each in got), got
    return [each.body.decode() for each in got]


def test_a_consumer_goes_on_and_gets_each_message_once(lagging: Lagging) -> None:
    lagging.declare()
    lagging.call(lagging.near, Basic.Qos(prefetch_count=6))
    lagging.consume()
    lagging.publish("a", "b")
    lagging.brokers.run_until(lambda: lagging.near.received)
    assert bodies(lagging.near.take(1)) == ["a", "b"]
    lagging.deaf()
    lagging.near.send(1, Basic.Ack(delivery_tag=1))
    lagging.publish("c", "d", "e", "f", "g", "h")
    assert lagging.near.take(1) == []
    lagging.away()
    got = lagging.near.take(1)
    assert bodies(got) == ["c", "d", "e", "f", "g"], "with b as many as it may have"
    assert [each.tag for each in got] == [3, 4, 5, 6, 7]
    assert not any(each.method.redelivered for each in got)
    lagging.near.send(1, Basic.Ack(delivery_tag=7, multiple=True))
    lagging.brokers.run_until(lambda: lagging.near.received)
    assert bodies(lagging.near.take(1)) == ["h"]
    (consumer,) = lagging.node.broker.consumers.by_id.values()
    (holder,) = lagging.holders()
    lagging.brokers.run_until(lambda: consumer._taken_bytes == holder.given_bytes)
    lagging.check_same()


def test_without_acknowledgements_only_who_missed_something_is_cancelled(lagging: Lagging) -> None:
    """What was given to it is gone: it was told to nobody, and is not held."""
    lagging.declare()
    lagging.declare("quiet")
    lagging.consume("q", "missed", no_ack=True)
    lagging.consume("quiet", "quiet", no_ack=True)
    lagging.publish("told", queue="q")
    lagging.publish("told", queue="quiet")
    lagging.brokers.run_until(lambda: len(lagging.near.received) == 6)
    lagging.near.take(1)
    lagging.deaf()
    lagging.publish("missed")
    lagging.away()
    (cancelled,) = lagging.near.take(1)
    assert isinstance(cancelled, Basic.Cancel) and cancelled.consumer_tag == "missed"
    lagging.publish("next", queue="quiet")
    assert bodies(lagging.near.take(1)) == ["next"]
    lagging.brokers.run_until(lambda: len(lagging.holders()) == 1)
    lagging.publish("stays")
    lagging.near.send(1, Basic.Consume(queue="q", consumer_tag="again", no_ack=True))
    lagging.brokers.run_until(lambda: len(lagging.near.received) == 4)
    assert bodies(lagging.near.take(1)[1:]) == ["stays"]
    lagging.check_same()


def test_a_consumer_whose_queue_is_gone_is_cancelled_and_no_other(lagging: Lagging) -> None:
    lagging.declare("gone")
    lagging.declare("stays")
    lagging.consume("gone", "gone")
    lagging.consume("stays", "stays")
    lagging.deaf()
    lagging.publish("x", queue="gone")
    lagging.publish("y", queue="stays")
    lagging.far.send(1, commands.Queue.Delete(queue="gone"))
    lagging.away()
    delivery, cancelled = lagging.near.take(1)
    assert bodies([delivery]) == ["y"]
    assert isinstance(cancelled, Basic.Cancel) and cancelled.consumer_tag == "gone"
    lagging.check_same()


def test_what_was_asked_for_is_answered_in_order(lagging: Lagging) -> None:
    """basic.consume, basic.cancel and basic.get were applied where the node could not see it."""
    near = lagging.near
    for channel in (2, 3):
        near.open_channel(channel)
    lagging.declare("c")
    lagging.declare("g")
    lagging.declare("q")
    lagging.consume("c", "cancelled")
    lagging.publish("0", queue="c")
    lagging.publish("1", "2", queue="g")
    lagging.brokers.run_until(lambda: near.received)
    assert bodies(near.take(1)) == ["0"]
    lagging.deaf()
    lagging.publish("1", queue="c")
    near.send(1, Basic.Cancel(consumer_tag="cancelled"))
    near.send(2, Basic.Consume(queue="q", consumer_tag="new"))
    near.send(3, Basic.Get(queue="g"))
    lagging.publish("2", queue="c")
    lagging.publish("new", queue="q")
    lagging.away()
    delivery, cancelled = near.take(1)
    assert bodies([delivery]) == ["1"] and isinstance(cancelled, Basic.CancelOk)
    consuming, *deliveries = near.take(2)
    assert isinstance(consuming, Basic.ConsumeOk) and bodies(deliveries) == ["new"]
    (got,) = near.take(3)
    assert isinstance(got.method, Basic.GetOk) and bodies([got]) == ["1"]
    near.send(3, Basic.Ack(delivery_tag=got.tag))
    near.send(3, Basic.Get(queue="g"))
    lagging.brokers.run_until(lambda: near.received)
    (got,) = near.take(3)
    assert bodies([got]) == ["2"]
    lagging.check_same()
    queue = lagging.elsewhere.engine.shards[1].queue(lagging.elsewhere.engine.catalog.queue("/", "g").id)  # type: ignore[union-attr]
    assert queue is not None and (queue.ready_count(), queue.held_count) == (0, 1)


def test_a_get_that_found_nothing_or_took_without_acknowledgement_is_asked_again(lagging: Lagging) -> None:
    near = lagging.near
    near.open_channel(2)
    lagging.declare("e")
    lagging.declare("n")
    lagging.publish("1", "2", queue="n")
    lagging.deaf()
    near.send(1, Basic.Get(queue="e"))
    near.send(2, Basic.Get(queue="n", no_ack=True))
    lagging.away()
    lagging.brokers.run_until(lambda: len(near.received) >= 4)
    (empty,) = near.take(1)
    assert isinstance(empty, Basic.GetEmpty)
    assert bodies(near.take(2)) == ["2"], "the first one is as good as sent"


def test_confirms_are_given_for_what_was_stored_and_for_nothing_else(lagging: Lagging) -> None:
    """A queue that refuses what is too much says with a count whether it has. Whoever may have been refused is told so,
    for he can publish again."""
    lagging.declare("plain")
    lagging.declare("roomy", max_length=10, overflow="reject-publish")
    lagging.declare("full", max_length=1, overflow="reject-publish")
    publisher = lagging.node.client(channel=False)
    publisher.open_channel(confirms=True)
    lagging.deaf()
    for queue in ("plain", "roomy"):
        publisher.publish(1, queue)
        lagging.brokers.step()
    publisher.publish(1, "full")
    lagging.brokers.step()
    publisher.publish(1, "full")
    lagging.brokers.step()
    assert publisher.acks() == []
    lagging.away()
    acks = publisher.acks()
    told = {tag for tag, multiple, refused in acks if not refused}
    assert max(told) == 2 and [tag for tag, _, refused in acks if refused] in ([3, 4], [4])
    assert all(refused or tag <= 2 for tag, _, refused in acks)


@pytest.mark.parametrize("full", [False, True])
def test_a_commit_is_answered_if_it_is_known(lagging: Lagging, full: bool) -> None:
    near = lagging.near
    near.open_channel(2)
    lagging.declare("q")
    lagging.declare("t", max_length=1, overflow="reject-publish")
    if full:
        lagging.publish("before", queue="t")
    lagging.consume("q", channel=2)
    lagging.publish("settled")
    lagging.brokers.run_until(lambda: near.received)
    near.take(2)
    assert isinstance(lagging.call(near, commands.Tx.Select(), 2), commands.Tx.SelectOk)
    lagging.deaf()
    near.publish(2, "t", b"in the transaction")
    near.send(2, Basic.Ack(delivery_tag=1))
    near.send(2, commands.Tx.Commit())
    lagging.brokers.step()
    lagging.away()
    answer = next(each for each in near.take(2) if not isinstance(each, Delivery))
    if full:
        assert isinstance(answer, commands.Channel.Close) and answer.reply_code == 406
    else:
        assert isinstance(answer, commands.Tx.CommitOk)
    counts = lagging.call(lagging.far, commands.Queue.Declare(queue="t", durable=True, passive=True))
    assert counts.message_count == 1
    lagging.check_same()


def test_what_is_held_past_its_deadline_was_given_in_time(lagging: Lagging) -> None:
    """RULES T5: when it was decided that the client gets it, it was live; while it is held it does not expire."""
    lagging.declare("t", message_ttl=200)
    lagging.consume("t")
    lagging.deaf()
    lagging.publish("in time", queue="t")
    lagging.away()
    (got,) = lagging.near.take(1)
    assert bodies([got]) == ["in time"]
    lagging.near.send(1, Basic.Reject(delivery_tag=got.tag, requeue=True))
    lagging.brokers.run_until(lambda: all(not holder.held for holder in lagging.holders()))
    for _ in range(20):
        lagging.brokers.step()
    assert lagging.near.take(1) == [], "given back it expires"


def test_declarations_are_answered(lagging: Lagging) -> None:
    near = lagging.near
    near.open_channel(2)
    lagging.declare("b")
    lagging.deaf()
    near.send(1, commands.Queue.Declare(queue="mine", exclusive=True))
    near.send(2, commands.Queue.Bind(queue="b", exchange="amq.topic", routing_key="x"))
    lagging.away()
    lagging.brokers.run_until(lambda: len(near.received) >= 2)
    assert isinstance(near.take(1)[0], commands.Queue.DeclareOk)
    assert isinstance(near.take(2)[0], commands.Queue.BindOk)
    assert isinstance(lagging.call(near, commands.Queue.Declare(queue="mine", passive=True)), commands.Queue.DeclareOk)
