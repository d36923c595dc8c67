"""What goes to other shards by which way: small letters together, large ones and the few before them in pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_RELEASES_GET_THROUGH
from mayfly.node.catalog import Catalog, DeclareQueue, FoundCluster
from mayfly.node.duties.lane_transfers import LaneTransfers
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.shard.commands import (
    ACK,
    KEPT,
    TRANSFER_HEAD,
    encode_attach,
    encode_detach,
    encode_drop_queue,
    encode_get,
    encode_move_out,
    encode_raise_level,
    encode_route,
    encode_settle,
)
from mayfly.node.shard.consumers import UNLIMITED
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, PUBLISHED, RELEASED, as_item, item_kind
from mayfly.node.shard.room import ANY_ROOM, NO_ROOM, Room
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import Driver, publish
from tests.node.shard.moving_shards import MovingShards
from tests.node.shard.test_dead_letters import routed, with_deaths
from tests.node.shard.test_moves import DLQ, Q, route

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

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None: ...

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


class Leaving(Lanes):
    """A queue of the shard that is on its way to shard 2, where its lane goes, by shards."""

    LEAVES = 77

    def __init__(self, *bodies: str) -> None:
        super().__init__()
        self.sent_to: list[int] = []
        self.driver.lead(encode_raise_level(LEVEL_HIGHEST))
        self.driver.create(self.LEAVES)
        for body in bodies:
            self.driver.run(publish(body, self.LEAVES))
        self.driver.lead(encode_move_out(self.LEAVES, 2, 1))

    def transfer(self, target_shard: int, command: bytes) -> None:
        self.sent_to.append(target_shard)


@pytest.mark.parametrize("received", [-1, 0, 9])
def test_a_queue_that_is_dropped_before_it_went_leaves_its_lane_to_nobody(received: int) -> None:
    """Its old row in the other shard says that it has received something: the queue itself is not here any more."""
    it = Leaving("a")
    it.received = received
    it.driver.lead(encode_drop_queue(it.LEAVES))
    assert it.driver.shard.lane(it.LEAVES) is not None
    assert it.lanes.move(it.now_ms) == (it.LEAVES,)
    assert not it.sent_to
    it.lanes.may_close((it.LEAVES,))
    it.look()
    assert it.driver.shard.lane(it.LEAVES) is None


def test_what_was_in_a_queue_that_leaves_goes_where_the_queue_goes_whatever_the_catalog_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A word about another move has come late: only the shard that takes the queue takes what was in it. What comes
    behind that goes where the catalog has the queue."""
    it = Leaving("a", "b")
    record = next(record for record in it.catalog.queues() if record.id == it.queue)
    elsewhere = replace(record, id=it.LEAVES, name="leaves", shard=4)
    monkeypatch.setattr(it.catalog, "queue_by_id", {it.LEAVES: elsewhere, it.queue: record}.get)
    it.look()
    assert it.sent_to == [2], "the queue itself"
    lane = it.driver.shard.lane(it.LEAVES)
    assert lane is not None
    for received in (lane.first_sequence, lane.last_sequence()):
        it.received = received
        it.look(2 * AGAIN_MS)
    assert it.sent_to and set(it.sent_to) == {2}
    it.sent_to.clear()
    it.driver.run(publish("late", it.LEAVES))
    it.look(2 * AGAIN_MS)
    it.look(2 * AGAIN_MS)
    assert it.sent_to and set(it.sent_to) == {4}


def test_a_queue_that_leaves_or_comes_back_is_compared_with_the_catalog_again() -> None:
    it = Leaving()
    changes = it.driver.shard.queue_changes
    there = Driver()
    there.lead(encode_raise_level(LEVEL_HIGHEST))
    there.create(it.LEAVES)
    before = there.shard.queue_changes
    there.lead(encode_move_out(it.LEAVES, 2, 1))
    assert there.shard.queue_changes == before + 1
    there.shard = Shard(2, 1)
    there.lead(encode_raise_level(LEVEL_HIGHEST))
    there.create(it.LEAVES)
    there.lead(encode_move_out(it.LEAVES, 1, 1))
    before = there.shard.queue_changes
    there.lead(it.driver.shard.move_in(it.LEAVES))
    queue = there.shard.queue(it.LEAVES)
    assert queue is not None and not queue.has_left
    assert there.shard.queue_changes == before + 1 and it.driver.shard.queue_changes == changes


class Told(Lanes):
    """What is told of the other shard's room."""

    there = ANY_ROOM

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return self.there


@pytest.mark.parametrize(
    ("level", "room", "sent"),
    [
        (LEVEL_HIGHEST, ANY_ROOM, 4), (LEVEL_HIGHEST, Room(0, UNLIMITED), 3), (LEVEL_HIGHEST, NO_ROOM, 0),
        (LEVEL_RELEASES_GET_THROUGH - 1, Room(0, UNLIMITED), 0), (LEVEL_RELEASES_GET_THROUGH - 1, Room(1, 99), 1),
    ],
)  # fmt: skip
def test_d8_letters_before_what_lets_a_queue_be_used_need_no_room(level: int, room: Room, sent: int) -> None:
    """RULES D8: of four items after two letters comes the word that nothing of the queue is held here any more. Where
    the queue takes nothing at all now, nothing is sent."""
    shards = MovingShards(level=level)
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, max_length=2, overflow="reject-publish")
    shards.publish(1, Q, "m0")
    shards.run(1, encode_get(Q, 9, False))
    shards.run(1, encode_attach(Q, 5, 1, False, False, 0))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    for number in range(3):
        shards.publish(1, DLQ, "letter")
        shards.now_ms += 2
        shards.tick(1)
        route(shards, 1, (2, Q))
        if number == 1:
            shards.run(1, encode_detach(Q, 5, KEPT), encode_settle(Q, 9, ACK, [1]))
    shard = shards.shards[1].shard
    lane = shard.lane(Q)
    assert lane is not None and [item_kind(item) for item in lane.items] == [LETTER, LETTER, RELEASED, LETTER]
    port = Told()
    port.there = room
    lanes = LaneTransfers(shard, 1, port, port.driver.lead, port.data, lambda ms: ms, None)
    first = lane.first_sequence
    assert lanes._last_that_fits(lane, 2, first, 0) == first + sent - 1
    assert lanes._last_that_fits(lane, 2, first + 3, 0) == first + 2 + (room == ANY_ROOM or room.messages)
