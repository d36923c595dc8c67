"""Large items of lanes on their way to other shards in pieces: from one node one after the other (pure).

They go by this node's sessions (`cluster.group.pieces`), which see to it that they come whatever leaders do. What is
bounded here is what their bodies take of this node's memory, and of others' patience. What is stuck, for its shard has
no leader or no majority, does not hold up the others (RULES D8).
"""

from collections.abc import Callable
from typing import Final

from mayfly.node.limits import LARGE_TRANSFERS_BYTES

_ANY_SIZE: Final = 1 << 62

ASKS_AGAIN_WITHIN_MS: Final = 250
"""Who stands in line and has not asked for so long has gone away."""

STUCK_MS: Final = 5_000
"""What is under way for so long is stuck, whatever is known of a leader: one without a majority may not be known to
have stepped down. 16 MiB take a second on a busy machine."""


class LargeTransfers:
    """Of one node, from all shards that it leads."""

    def __init__(
        self, leader_of: Callable[[int], int], submit: Callable[[int, list[bytes], int, Callable[[object], None]], None]
    ) -> None:
        """`leader_of(shard)`: 0 if none is known. `submit(shard, parts, size_bytes, applied)` gives a command to this
        node's session."""
        self._leader_of = leader_of
        self._submit = submit
        self._under_way: dict[int, tuple[int, int]] = {}
        """Shard -> octets, and since when."""
        self._line: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Source and queue of those who wait, in this order -> the queue's shard, octets, and when they asked last."""

    def give(
        self, shard: int, queue: int, source: int, size_bytes: int, parts: Callable[[], list[bytes]],
        done: Callable[[], None], now_ms: int,
    ) -> bool:
        """A TRANSFER of a single item for a queue of a replicated shard, from `source`: `parts()`, of which the last is
        a body of `size_bytes`. It comes, as long as this node lives: `done` once it was applied. False: it can't go
        now, or others go first; ask again."""
        self._line[(source, queue)] = (shard, size_bytes, now_ms)
        room_bytes = self._room_bytes(now_ms)
        if not self._can_go(shard, size_bytes, room_bytes) or not self._is_next((source, queue), room_bytes, now_ms):
            return False
        del self._line[(source, queue)]
        made = parts()
        self._under_way[shard] = (size_bytes, now_ms)

        def applied(_: object) -> None:
            self._under_way.pop(shard, None)
            done()

        self._submit(shard, made, sum(map(len, made)), applied)
        return True

    def _room_bytes(self, now_ms: int) -> int:
        """How large the next may be. One goes at a time, of any size, and others only beside those that are stuck."""
        left = LARGE_TRANSFERS_BYTES
        for shard, (size_bytes, since_ms) in self._under_way.items():
            if self._leader_of(shard) != 0 and now_ms - since_ms < STUCK_MS:
                return -1
            left -= size_bytes
        return left if self._under_way else _ANY_SIZE

    def _can_go(self, shard: int, size_bytes: int, room_bytes: int) -> bool:
        return size_bytes <= room_bytes and shard not in self._under_way and self._leader_of(shard) != 0

    def _is_next(self, asking: tuple[int, int], room_bytes: int, now_ms: int) -> bool:
        """Whether nobody who could go has waited longer."""
        gone: list[tuple[int, int]] = []
        is_next = True
        for other, (shard, size_bytes, asked_ms) in self._line.items():
            if other == asking:
                break
            if now_ms - asked_ms > ASKS_AGAIN_WITHIN_MS:
                gone.append(other)
            elif self._can_go(shard, size_bytes, room_bytes):
                is_next = False
                break
        for other in gone:
            del self._line[other]
        return is_next
