"""Large items on their way to other shards: to one at a time, in turn, and what is stuck holds up nobody (RULES D8)."""

from collections.abc import Callable

from mayfly.node.duties.large_transfers import (
    ASKS_AGAIN_WITHIN_MS,
    STUCK_MS,
    TURN_MS,
    WHOLE_BYTES_PER_MS,
    LargeTransfers,
)
from mayfly.node.duties.progress import AGAIN_MS, TargetProgress
from mayfly.node.limits import LARGE_TRANSFERS_AHEAD_PIECES, LARGE_TRANSFERS_BYTES, MIB

PIECE_BYTES = 1000


class Sessions:
    """What was given to which shard, and is applied when a test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []
        self.applied: dict[int, list[Callable[[object], None]]] = {}
        self.leaderless: set[int] = set()
        self.done: list[tuple[int, int]] = []
        self.now_ms = 0
        self.transfers = LargeTransfers(lambda shard: shard not in self.leaderless, self._submit, PIECE_BYTES)

    def _submit(self, shard: int, parts: list[bytes], size_bytes: int, applied: Callable[[object], None]) -> None:
        assert size_bytes == sum(map(len, parts))
        self.applied.setdefault(shard, []).append(applied)

    def ask(self, shard: int, queue: int, size_bytes: int = 4 * MIB) -> bool:
        """Source 9 has something for a queue of this shard."""
        made: list[int] = []

        def parts() -> list[bytes]:
            made.append(queue)
            return [b"head", b"body"]

        done = self.done
        taken = self.transfers.give(
            shard, queue, 9, size_bytes, parts, lambda: done.append((shard, queue)), self.now_ms
        )
        assert made == [queue] * taken, "nothing is read before it goes"
        if taken:
            self.given.append((shard, queue))
        return taken

    def apply(self, shard: int) -> None:
        """The oldest that was given for this shard."""
        self.applied[shard].pop(0)(None)
        if not self.applied[shard]:
            del self.applied[shard]


def test_d8_one_goes_at_a_time_and_all_have_their_turns() -> None:
    it = Sessions()
    for _ in range(4):
        for shard, queue in ((1, 10), (1, 11), (2, 20), (3, 30)):
            it.ask(shard, queue)
        assert len(it.applied) == 1
        it.apply(next(iter(it.applied)))
        it.now_ms += 50
    assert it.given == it.done == [(1, 10), (1, 11), (2, 20), (3, 30)]


def test_d8_more_go_to_the_same_shard_while_nobody_else_waits() -> None:
    it = Sessions()
    size = LARGE_TRANSFERS_AHEAD_PIECES * PIECE_BYTES // 4
    assert [it.ask(1, queue, size) for queue in (10, 10, 11, 10, 11)] == [True] * 4 + [False], "so much at a time"
    for _ in range(8):
        it.now_ms += TURN_MS
        it.apply(1)
        assert it.ask(1, 11, size) and not it.ask(1, 11, size)
    assert it.done == it.given[:8], "in the order in which they were given"


def test_d8_a_turn_ends_when_others_wait() -> None:
    it = Sessions()
    assert it.ask(1, 10, 1000) and not it.ask(2, 20, 1000)
    it.now_ms += TURN_MS - 1
    assert it.ask(1, 11, 1000) and not it.ask(2, 20, 1000)
    it.now_ms += 1
    assert not it.ask(1, 10, 1000)
    it.apply(1)
    assert not it.ask(2, 20, 1000), "it has not come yet"
    it.apply(1)
    assert not it.ask(1, 10, 1000) and it.ask(2, 20, 1000)
    it.leaderless = {1}
    it.now_ms += TURN_MS
    assert it.ask(2, 20, 1000), "who can't go does not count"


def test_d8_a_very_large_one_has_its_turn_among_smaller_ones() -> None:
    it = Sessions()
    size = LARGE_TRANSFERS_AHEAD_PIECES * PIECE_BYTES
    assert it.ask(1, 10, size // 4) and not it.ask(1, 11, 2 * size) and not it.ask(1, 10, size // 4)
    it.apply(1)
    assert it.ask(1, 11, 2 * size)


def test_d7_only_what_goes_the_same_way_follows_a_large_item_that_is_not_there_yet() -> None:
    it = TargetProgress(1, 5, 0)
    assert it.may_send_large
    for sequence in (5, 6, 7):
        it.sends_large(sequence)
        assert it.may_send_large and it.waits_for_large
    it.large_was_applied(10)
    it.wants(6, 10)
    assert it.waits_for_large and it.may_send_large
    it.large_was_applied(20)
    assert not it.is_stalled(20 + AGAIN_MS), "something is under way"
    it.large_was_applied(30)
    assert not it.may_send_large, "nothing that it could go behind"
    it.wants(8, 40)
    assert not it.waits_for_large and it.may_send_large
    it.sent += 1
    assert not it.may_send_large, "what was sent otherwise may arrive later"


def test_d8_what_waits_for_a_leader_holds_up_nobody() -> None:
    it = Sessions()
    it.leaderless = {4}
    assert not it.ask(4, 40), "not even begun"
    assert it.ask(1, 10)
    assert not it.ask(2, 20)
    it.leaderless = {1, 4}
    assert it.ask(2, 20)
    assert not it.ask(1, 11), "one behind the other to a shard"
    it.apply(2)
    it.leaderless = set()
    assert not it.ask(3, 30), "it goes on"
    it.apply(1)
    assert not it.ask(3, 30), "others have waited longer"
    assert it.ask(4, 40)


def test_who_does_not_ask_any_more_holds_up_nobody() -> None:
    it = Sessions()
    assert it.ask(1, 10) and not it.ask(2, 20)
    it.apply(1)
    assert not it.ask(3, 30)
    it.now_ms += ASKS_AGAIN_WITHIN_MS + 1
    assert it.ask(3, 30)


def test_what_is_stuck_is_bounded() -> None:
    it = Sessions()
    size = LARGE_TRANSFERS_BYTES // 4
    for shard in range(1, 7):
        it.ask(shard, shard * 10, size)
        it.leaderless.add(shard)
    assert it.given == [(1, 10), (2, 20), (3, 30), (4, 40)]
    it.apply(2)
    assert it.ask(8, 80, size)


def test_one_larger_than_all_bounds_goes_alone() -> None:
    it = Sessions()
    assert it.ask(1, 10, 2 * LARGE_TRANSFERS_BYTES)
    it.leaderless = {1}
    assert not it.ask(2, 20)
    it.apply(1)
    assert it.ask(2, 20)


def test_d8_what_does_not_come_for_long_holds_up_nobody_though_a_leader_is_known() -> None:
    """A leader that has lost its majority and steps down, or one that is silent, may be known as one for long."""
    it = Sessions()
    assert it.ask(1, 10)
    it.now_ms += STUCK_MS - 1
    assert not it.ask(2, 20)
    it.now_ms += 1
    assert it.ask(2, 20) and not it.ask(3, 30)
    it.apply(2)
    assert it.ask(3, 30) and not it.ask(1, 11)


def test_d8_what_has_no_room_beside_what_is_stuck_holds_up_nothing_smaller() -> None:
    it = Sessions()
    assert it.ask(1, 10, LARGE_TRANSFERS_BYTES // 2)
    it.leaderless = {1}
    assert not it.ask(2, 20, LARGE_TRANSFERS_BYTES)
    assert it.ask(3, 30, LARGE_TRANSFERS_BYTES // 4)


def test_what_goes_whole_to_a_nodes_memory_leaves_others_their_time() -> None:
    it = Sessions().transfers
    size = 16 << 20
    assert it.may_go_whole(1, 9, size, 1_000)
    pause_ms = size // WHOLE_BYTES_PER_MS
    assert not it.may_go_whole(1, 9, 1, 1_000 + pause_ms - 1)
    assert it.may_go_whole(1, 9, size // 16, 1_000 + pause_ms)
    assert not it.may_go_whole(1, 9, 1, 1_000 + pause_ms + pause_ms // 16 - 1)
    assert it.may_go_whole(1, 9, 1, 1_000 + pause_ms + pause_ms // 16)


def test_d8_those_who_go_whole_take_turns_and_who_has_gone_away_holds_up_nobody() -> None:
    it = Sessions().transfers
    size = WHOLE_BYTES_PER_MS * 100
    gone: list[int] = []
    for now_ms in range(0, 1_200, 20):
        gone += [queue for queue in (1, 2, 3) if it.may_go_whole(queue, 9, size, now_ms)]
    assert gone == [1, 2, 3] * 4
    assert not it.may_go_whole(3, 9, size, 1_201)
    later_ms = 1_202 + ASKS_AGAIN_WITHIN_MS
    assert it.may_go_whole(3, 9, size, later_ms), "those before it have not asked for long"
