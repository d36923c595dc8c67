"""Large items of lanes on their way to other shards in pieces: from one node one after the other (pure).

They go by this node's sessions (`cluster.group.pieces`), which see to it that they come whatever leaders do. What is
bounded here is what their bodies take of this node's memory, and of others' patience. What waits for a shard without a
leader does not hold up the others (RULES D8).
"""

from collections.abc import Callable
from typing import Final

from mayfly.node.limits import LARGE_TRANSFERS_BYTES

ASKS_AGAIN_WITHIN_MS: Final = 250
"""Who stands in line and has not asked for so long has gone away."""


class LargeTransfers:
    """Of one node, from all shards that it leads."""

    def __init__(
        self, leader_of: Callable[[int], int], submit: Callable[[int, list[bytes], int, Callable[[object], None]], None]
    ) -> None:
        """`leader_of(shard)`: 0 if none is known. `submit(shard, parts, size_bytes, applied)` gives a command to this
        node's session."""
        self._leader_of = leader_of
        self._submit = submit
        self._under_way: dict[int, int] = {}
        """Shard -> octets."""
        self._line: dict[tuple[int, int], tuple[int, int]] = {}
        """Source and queue of those who wait, in this order -> the queue's shard, and when they asked last."""

    def give(
        self, shard: int, queue: int, source: int, size_bytes: int, parts: Callable[[], list[bytes]],
        done: Callable[[], None], now_ms: int,
    ) -> bool:
        """A TRANSFER of a single item for a queue of a replicated shard, from `source`: `parts()`, of which the last is
        a body of `size_bytes`. It comes, as long as this node lives: `done` once it was applied. False: it can't go
        now, or others go first; ask again."""
        self._line[(source, queue)] = (shard, now_ms)
        if not self._can_go(shard) or not self._has_room(size_bytes) or not self._is_next((source, queue), now_ms):
            return False
        del self._line[(source, queue)]
        made = parts()
        self._under_way[shard] = size_bytes

        def applied(_: object) -> None:
            self._under_way.pop(shard, None)
            done()

        self._submit(shard, made, sum(map(len, made)), applied)
        return True

    def _can_go(self, shard: int) -> bool:
        return shard not in self._under_way and self._leader_of(shard) != 0

    def _has_room(self, size_bytes: int) -> bool:
        """One goes at a time, which may be of any size, and others only beside those that are stuck."""
        if any(self._leader_of(shard) for shard in self._under_way):
            return False
        return not self._under_way or sum(self._under_way.values()) + size_bytes <= LARGE_TRANSFERS_BYTES

    def _is_next(self, asking: tuple[int, int], now_ms: int) -> bool:
        """Whether nobody who could go has waited longer."""
        for other, (shard, asked_ms) in list(self._line.items()):
            if other == asking:
                break
            if now_ms - asked_ms > ASKS_AGAIN_WITHIN_MS:
                del self._line[other]
            elif self._can_go(shard):
                return False
        return True
