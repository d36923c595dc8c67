"""What goes to other shards by which way: small letters together, large ones and the few before them in pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Catalog, DeclareQueue, FoundCluster
from mayfly.node.duties.lane_transfers import LaneTransfers
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.shard.commands import TRANSFER_HEAD, encode_route
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, PUBLISHED, as_item
from mayfly.node.shard.room import ANY_ROOM, Room
from tests.node.shard.test_dead_letters import routed, with_deaths

LARGER_THAN_BYTES = 100
LARGE = "x" * 200
SHORT_WAIT_MS = 10
PIECE_BYTES = 100
AT_ONCE = 3
"""So many of these are under way together."""


class Lanes:
    """A shard whose lane to a queue of another one has these letters, and what is given for that one."""

    def __init__(self, *bodies: str) -> None:
        catalog = Catalog(4)
        catalog.apply(FoundCluster(((1, "n1", "h:1"),), 1, LEVEL_HIGHEST))
        catalog.apply(DeclareQueue("/", "elsewhere", durable=True, arguments={}))
        (record,) = catalog.queues()
        self.queue, self.shard = record.id, record.shard
        self.catalog = catalog
        self.driver = with_deaths(len(bodies))
        decisions = [
            routed(number, body, [], [(self.shard, self.queue)]) for number, body in enumerate(bodies, 1)
        ]
        self.driver.lead(encode_route(decisions))
        self.received = 0
        self.now_ms = 1_000
        self.together: list[range] = []
        """The sequences of each TRANSFER that was sent whole."""
        self.in_pieces: list[int] = []
        self.under_way: list[Callable[[object], None]] = []
        self.transfers = LargeTransfers(lambda shard: 1, self._submit, PIECE_BYTES)
        large = LargeBodies(self, lambda *_: None, self.transfers, catalog, LARGER_THAN_BYTES)
        self.lanes = LaneTransfers(self.driver.shard, 1, self, self.driver.lead, self.data, lambda ms: ms, large)

    def look(self, after_ms: int = SHORT_WAIT_MS) -> None:
        self.now_ms += after_ms
        self.lanes.move(self.now_ms)

    def apply(self, *, is_received: bool) -> None:
        """What is first under way to the other shard is applied there."""
        self.received += is_received
        self.under_way.pop(0)(None)

    def _submit(self, shard: int, parts: list[bytes], size_bytes: int, applied: Callable[[object], None]) -> None:
        if shard == self.shard:
            self.in_pieces.append(TRANSFER_HEAD.unpack_from(parts[0])[4])
            self.under_way.append(applied)

    def stick(self) -> None:
        """Something of another queue is under way to a third shard."""
        assert self.transfers.give(self.shard + 1, 99, 1, 1 << 20, lambda: [b"", b""], lambda: None, self.now_ms)

    def head(self, index: int) -> bytes:
        return self.driver.log[index].data

    def elsewhere(self, index: int, start: int) -> int:
        return -1

    def octets(self, index: int, start: int, length: int) -> bytes:
        return self.driver.log[index].data[start : start + length]

    def data(self, index: int) -> bytes:
        return self.driver.log[index].data

    def transfer(self, target_shard: int, command: bytes) -> None:
        _, count, _, _, first = TRANSFER_HEAD.unpack_from(command)
        self.together.append(range(first, first + count))

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return self.received

    def ask_again(self, target_shard: int, queue: int, source: int) -> None: ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return ANY_ROOM

    def queue_moved(self, queue: int, source: int, target: int) -> None: ...

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None: ...

    def barrier(self, done: Callable[[], None]) -> None: ...

    is_waited_for = False


def test_d7_small_ones_go_together_and_a_few_before_a_large_one_with_it() -> None:
    it = Lanes("a", "b", LARGE, "c", LARGE, "d")
    it.look()
    assert (it.together, it.in_pieces) == ([], [1, 2, 3, 4, 5]), "what follows goes when all these are there"
    for _ in range(5):
        it.apply(is_received=True)
        it.look()
    assert it.together == [range(6, 7)] and it.in_pieces == [1, 2, 3, 4, 5]


def test_many_small_ones_before_a_large_one_go_together() -> None:
    it = Lanes(*"abcdefghijk", LARGE)
    it.look()
    assert (it.together, it.in_pieces) == ([range(1, 12)], [])
    it.received = 11
    it.look()
    assert it.in_pieces == [12]


def test_d8_small_ones_do_not_wait_for_the_turn_of_a_large_one() -> None:
    it = Lanes("a", "b", LARGE)
    it.stick()
    it.look()
    assert (it.together, it.in_pieces) == ([range(1, 3)], [])


def test_d8_what_is_refused_is_followed_by_few_and_given_again_one_by_one() -> None:
    """RULES D8: else all that waits would be sent in vain."""
    it = Lanes(*[LARGE] * 200)
    it.look()
    assert it.in_pieces == list(range(1, 1 + AT_ONCE))
    while it.under_way:
        it.apply(is_received=False)
        it.look()
    sent = len(it.in_pieces)
    assert AT_ONCE < sent < 20
    it.look(AGAIN_MS)
    assert it.in_pieces[sent:] == [1]
    it.apply(is_received=True)
    it.look()
    assert it.in_pieces[sent + 1 :] == list(range(2, 2 + AT_ONCE))


@pytest.mark.parametrize("kind", [LETTER, PUBLISHED])
def test_of_small_messages_in_large_entries_one_entry_is_in_memory(kind: int) -> None:
    it = Lanes("a")
    items = [as_item(Message(1_000 + number, 100, 3, 20, 100, 1_000, -1, 0), kind) for number in range(100)]
    lanes = LaneTransfers(it.driver.shard, 1, it, it.driver.lead, lambda index: bytes(1 << 20), lambda ms: ms, None)
    tracemalloc.start()
    try:
        lanes._encode(it.queue, 1, items, 0)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
