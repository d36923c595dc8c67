"""Large dead letters: routed without their body written again, and sent to other shards in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.group.pieces import PIECE_BYTES, PIECES_UNDER_WAY
from mayfly.cluster.versions import LEVEL_LARGE_DEAD_LETTERS, LEVELS, VersionRange
from tests.node.broker.test_in_pieces import BODY, OVERHEAD_BYTES, SHARDS, Measured, shards_of_queues
from tests.node.broker.three_brokers import start_anew
from tests.node.readings import statistics_of

OLDER = VersionRange(LEVELS.lowest, LEVEL_LARGE_DEAD_LETTERS - 1)
TTL_MS = 1000


class Dying(Measured):
    """What is published to `dying` dies after a second, and goes to the large queues."""

    def __init__(self, levels: VersionRange = LEVELS, arguments: Mapping[str, object] | None = None) -> None:
        super().__init__(levels)
        terms = {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "amq.fanout", **(arguments or {})}
        self.publisher.declare("dying", arguments=terms)
        self.settle()
        self.publisher.take()

    def publish_dying(self, *bodies: bytes) -> None:
        for number, body in enumerate(bodies):
            self.publish_large(body, "", "dying", message_id=str(number))
        self.run_until(lambda: [tag for tag, _, _ in self.publisher.acks(2)][-1:] == [len(bodies)])

    def count(self) -> None:
        """Measure from here on."""
        self.largest_frame = 0
        for store in self.counting:
            store.octets = store.largest_write = store.largest_entry = 0

    def have_all(self, messages: int) -> bool:
        return all(self.messages_in(f"large{number}") == messages for number in range(SHARDS))

    def shard_of(self, name: str) -> int:
        record = self.nodes[1].engine.catalog.queue("/", name)
        assert record is not None
        return record.shard

    def messages_in(self, name: str) -> int:
        record = self.nodes[1].engine.catalog.queue("/", name)
        assert record is not None
        statistics = self.nodes[1].engine.shards[record.shard].queue_statistics(record.id)
        return 0 if statistics is None else statistics.ready

    def pass_until(self, condition: Any, turns: int = 400) -> None:
        for _ in range(turns):
            if condition():
                return
            self.step()
        raise AssertionError("it did not come true")

    def taken(self, name: str) -> list[bytes]:
        """All that is in the queue, whole."""
        client = self.nodes[2].client()
        return [bytes(client.get(name).body) for _ in range(self.messages_in(name))]

    def refused(self) -> int:
        shards = [shard for node in self.nodes.values() for shard in node.engine.shards.values()]
        return sum(statistics_of(shard).refused_transfers for shard in shards)


def test_d6_no_write_frame_or_entry_has_more_than_some_pieces_of_a_large_dead_letter() -> None:
    brokers = Dying()
    assert len(shards_of_queues(brokers, "large")) >= 3
    brokers.publish_dying(BODY)
    brokers.count()
    brokers.pass_until(lambda: brokers.have_all(1))
    bound = PIECES_UNDER_WAY * PIECE_BYTES + OVERHEAD_BYTES
    assert max(store.largest_entry for store in brokers.counting) <= PIECE_BYTES + OVERHEAD_BYTES
    assert max(store.largest_write for store in brokers.counting) <= bound
    assert brokers.largest_frame <= bound
    for number in range(SHARDS):
        assert brokers.taken(f"large{number}") == [BODY]


def test_d6_in_its_own_shard_a_large_dead_letter_is_not_written_again() -> None:
    brokers = Dying()
    own = brokers.shard_of("dying")
    here = [f"large{number}" for number in range(SHARDS) if brokers.shard_of(f"large{number}") == own]
    assert here, "a queue of the same shard"
    for number in range(SHARDS):
        if f"large{number}" not in here:
            brokers.publisher.send(1, commands.Queue.Unbind(queue=f"large{number}", exchange="amq.fanout"))
    brokers.settle()
    brokers.publish_dying(BODY)
    brokers.count()
    brokers.pass_until(lambda: all(brokers.messages_in(name) == 1 for name in here))
    assert max(store.octets for store in brokers.counting) < OVERHEAD_BYTES * 8
    for id in brokers.ids:
        start_anew(brokers, id, LEVELS)
    assert all(brokers.taken(name) == [BODY] for name in here)
    groups = [node.engine.host.groups[own] for node in brokers.nodes.values()]
    brokers.pass_until(lambda: not any(list(group.state_entries()) for group in groups))


def test_d7_small_and_large_dead_letters_keep_their_order_and_none_comes_too_early() -> None:
    brokers = Dying()
    bodies = [b"first", BODY, b"second", b"third", BODY[1:], BODY[2:], b"last"]
    brokers.publish_dying(*bodies)
    brokers.pass_until(lambda: brokers.have_all(len(bodies)))
    for number in range(SHARDS):
        assert brokers.taken(f"large{number}") == bodies
    assert brokers.refused() == 0, "what is behind a large letter would be refused before that is there"


@pytest.mark.parametrize("rounds", [1, 8, 16])
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_d6_d7_each_comes_once_and_in_order_though_a_node_dies_meanwhile(rounds: int, victim: int) -> None:
    """Leaders of the source and of targets, in the middle of pieces."""
    brokers = Dying()
    bodies = [b"first", BODY, b"second", BODY[1:], b"last"]
    brokers.publish_dying(*bodies)
    brokers.pass_until(lambda: any(brokers.messages_in(f"large{number}") for number in range(SHARDS)))
    for _ in range(rounds):
        brokers._work()
    start_anew(brokers, victim, LEVELS)
    brokers.pass_until(lambda: brokers.have_all(len(bodies)))
    for number in range(SHARDS):
        assert brokers.taken(f"large{number}") == bodies


def test_below_its_level_a_large_dead_letter_is_one_entry() -> None:
    brokers = Dying(OLDER)
    brokers.publish_dying(BODY)
    brokers.count()
    brokers.pass_until(lambda: brokers.have_all(1))
    assert max(store.largest_entry for store in brokers.counting) > len(BODY)
    assert brokers.taken("large0") == [BODY]


def test_d8_a_large_dead_letter_to_a_shard_without_a_leader_does_not_hold_up_others() -> None:
    brokers = Dying()
    stuck = min(shards_of_queues(brokers, "large") - {brokers.shard_of("dying")})
    brokers.publish_dying(BODY, BODY[1:])
    brokers.silent.add(stuck)
    brokers.pass_until(lambda: not any(node.engine.host.leader_of(stuck) for node in brokers.nodes.values()))
    others = [f"large{number}" for number in range(SHARDS) if brokers.shard_of(f"large{number}") != stuck]
    brokers.pass_until(lambda: all(brokers.messages_in(name) == 2 for name in others))
    brokers.silent.clear()
    brokers.pass_until(lambda: brokers.have_all(2))
    for number in range(SHARDS):
        assert brokers.taken(f"large{number}") == [BODY, BODY[1:]]
