"""Large items of lanes on their way to other shards in pieces: from one node to one shard at a time (pure).

They go by this node's sessions (`cluster.group.pieces`), which see to it that they come, in order, whatever leaders do.
So what follows the first to a shard need not wait until that is there: while a shard has its turn, more may go. What is
bounded here is what their bodies take of this node's memory, and of others' patience. What is stuck, for its shard has
no leader or no majority, does not hold up the others (RULES D8).

What goes to one node's memory has no session that could cut it: it goes whole, and waits until others had their time.
"""

from collections.abc import Callable
from typing import Final

from mayfly.node.limits import LARGE_TRANSFERS_AHEAD_PIECES, LARGE_TRANSFERS_BYTES

_ANY_SIZE: Final = 1 << 62

ASKS_AGAIN_WITHIN_MS: Final = 250
"""Who stands in line and has not asked for so long has gone away."""

TURN_MS: Final = 100
"""For so long more may go to the same shard while something for others waits."""

STUCK_MS: Final = 5_000
"""If for so long nothing of what is under way to a shard has come, it is stuck, whatever is known of a leader: one
without a majority may not be known to have stepped down. 16 MiB take a second on a busy machine."""


WHOLE_BYTES_PER_MS: Final = 160 * 1024
"""What goes whole takes a node, and the one that gets it, less time than this in copying: 16 MiB has 100 ms."""


class _Turn:
    """What is under way to one shard: octets, of so many, the first since ``began_ms``. Something has come since
    ``came_ms`` if ``has_come``."""

    __slots__ = ("began_ms", "came_ms", "count", "has_come", "size_bytes")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.came_ms = now_ms
        self.has_come = False
        self.count = 0
        self.size_bytes = 0


class LargeTransfers:
    """Of one node, from all shards that it leads."""

    def __init__(
        self,
        leader_of: Callable[[int], int],
        submit: Callable[[int, list[bytes], int, Callable[[object], None]], None],
        piece_bytes: int,
    ) -> None:
        """`leader_of(shard)`: 0 if none is known. `submit(shard, parts, size_bytes, applied)` gives a command to this
        node's session, which cuts it into pieces of `piece_bytes`."""
        self._ahead_bytes = LARGE_TRANSFERS_AHEAD_PIECES * piece_bytes
        self._leader_of = leader_of
        self._submit = submit
        self._now_ms = 0
        self._next_whole_ms = 0
        self._whole_line: dict[tuple[int, int], int] = {}
        """Source and queue of those who wait to go whole, in this order -> when they asked last."""
        self._turns: dict[int, _Turn] = {}
        """By shard. None begins beside one that is not stuck; one that was may go on beside another."""
        self._line: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Source and queue of those who wait, in this order -> the queue's shard, octets, and when they asked last."""

    def give(
        self, shard: int, queue: int, source: int, size_bytes: int, parts: Callable[[], list[bytes]],
        done: Callable[[], None], now_ms: int,
    ) -> bool:
        """A TRANSFER of a single item of `size_bytes` for a queue of a replicated shard, from `source`: `parts()`, of
        which the last is its body. It comes, as long as this node lives, behind all that was given for that shard:
        `done` once it was applied. False: it can't go now, or others go first; ask again."""
        self._now_ms = now_ms
        for each in self._turns.values():
            if each.has_come:
                each.has_come, each.came_ms = False, now_ms
        self._line[(source, queue)] = (shard, size_bytes, now_ms)
        if not self._can_go(shard, size_bytes) or not self._is_next((source, queue)):
            return False
        del self._line[(source, queue)]
        made = parts()
        turn = self._turns.get(shard)
        if turn is None:
            turn = self._turns[shard] = _Turn(now_ms)
        turn.count += 1
        turn.size_bytes += size_bytes

        def applied(_: object) -> None:
            turn.count -= 1
            turn.size_bytes -= size_bytes
            turn.has_come = True
            if not turn.count:
                del self._turns[shard]
            done()

        self._submit(shard, made, sum(map(len, made)), applied)
        return True

    def may_go_whole(self, queue: int, source: int, size_bytes: int, now_ms: int) -> bool:
        """Whether something large may go from there to a queue in one node's memory now; if so, it must. Those who ask
        take turns."""
        asking = (source, queue)
        self._whole_line[asking] = now_ms
        if now_ms < self._next_whole_ms:
            return False
        for other, asked_ms in list(self._whole_line.items()):
            if other == asking:
                break
            if now_ms - asked_ms <= ASKS_AGAIN_WITHIN_MS:
                return False
            del self._whole_line[other]
        del self._whole_line[asking]
        self._next_whole_ms = now_ms + size_bytes // WHOLE_BYTES_PER_MS
        return True

    def _can_go(self, shard: int, size_bytes: int) -> bool:
        """Whether it may go now, if it is its turn."""
        if self._leader_of(shard) == 0:
            return False
        turn = self._turns.get(shard)
        if turn is None:
            return size_bytes <= self._room_bytes()
        if self._is_stuck(shard, turn) or turn.size_bytes + size_bytes > self._ahead_bytes:
            return False
        if turn.count >= LARGE_TRANSFERS_AHEAD_PIECES:
            return False  # Small ones that go before a large one are batches as well, behind which others stand.
        return self._now_ms - turn.began_ms < TURN_MS or not self._others_wait(shard)

    def _room_bytes(self) -> int:
        """How large what goes to another shard may be: any size beside nothing; nothing beside what is not stuck."""
        left = LARGE_TRANSFERS_BYTES
        for shard, turn in self._turns.items():
            if not self._is_stuck(shard, turn):
                return -1
            left -= turn.size_bytes
        return left if self._turns else _ANY_SIZE

    def _is_stuck(self, shard: int, turn: _Turn) -> bool:
        return self._leader_of(shard) == 0 or self._now_ms - turn.came_ms >= STUCK_MS

    def _others_wait(self, shard: int) -> bool:
        """Whether somebody has asked lately who may have a turn of his own after this shard's."""
        return any(
            other not in self._turns and self._leader_of(other) != 0 and self._now_ms - asked_ms <= ASKS_AGAIN_WITHIN_MS
            for other, _, asked_ms in self._line.values()
        )

    def _is_next(self, asking: tuple[int, int]) -> bool:
        """Whether nobody has waited longer who could go, or who only waits for room in this turn: smaller ones would
        take it for ever."""
        gone: list[tuple[int, int]] = []
        wanted = self._line[asking][0]
        is_next = True
        for other, (shard, size_bytes, asked_ms) in self._line.items():
            if other == asking:
                break
            if self._now_ms - asked_ms > ASKS_AGAIN_WITHIN_MS:
                gone.append(other)
            elif self._can_go(shard, size_bytes) or (shard == wanted and shard in self._turns):
                is_next = False
                break
        for other in gone:
            del self._line[other]
        return is_next
