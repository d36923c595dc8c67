"""The queues of all vhosts by id, and which of them each shard has.

A shard's queues are found without looking at those of others, a block of ids at a time: two octets a queue.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from mayfly.node.catalog.blocks import BLOCK, BLOCK_BITS, Blocks
from mayfly.node.catalog.records import QueueRecord

_OFFSET: Final = BLOCK - 1
_OFFSET_TYPE: Final = "H"


class QueueTable:
    """Records of queues, in the order of their ids, which are never used again."""

    def __init__(self) -> None:
        self._records: Blocks[QueueRecord] = Blocks()
        self._of_shard: dict[int, dict[int, array[int]]] = {}
        """Shard -> block -> the ids in it, from the block's first, ascending."""

    def __len__(self) -> int:
        return len(self._records)

    def get(self, queue_id: int) -> QueueRecord | None:
        """The queue with that id."""
        return self._records.get(queue_id)

    def put(self, record: QueueRecord) -> None:
        """Add a queue, or put its record in the place of the one that it had, which may be of another shard."""
        before = self._records.get(record.id)
        self._records.put(record.id, record)
        if before is not None:
            if before.shard == record.shard:
                return
            self._leave(before)
        self._enter(record)

    def remove(self, record: QueueRecord) -> None:
        """Remove a queue that is there."""
        self._records.remove(record.id)
        self._leave(record)

    def values(self) -> Iterable[QueueRecord]:
        """All queues, the oldest first."""
        return self._records.values()

    def newest_first(self) -> Iterator[QueueRecord]:
        """All queues, the youngest first."""
        return self._records.newest_first()

    def lend(self) -> deque[dict[int, QueueRecord]]:
        """All queues as they are now; see `Blocks.lend`."""
        return self._records.lend()

    # The queues of one shard, replicated or transient

    def blocks_of(self, shard: int) -> list[int]:
        """The blocks in which the shard has queues, ascending."""
        return sorted(self._of_shard.get(shard, ()))

    def in_block(self, shard: int, block: int) -> list[QueueRecord]:
        """The queues that the shard has in the block, at most `BLOCK`, by id."""
        offsets = self._of_shard.get(shard, {}).get(block, ())
        found = (self._records.get(block << BLOCK_BITS | offset) for offset in offsets)
        return [record for record in found if record is not None]

    def _enter(self, record: QueueRecord) -> None:
        block, offset = record.id >> BLOCK_BITS, record.id & _OFFSET
        blocks = self._of_shard.setdefault(record.shard, {})
        offsets = blocks.get(block)
        if offsets is None:
            blocks[block] = array(_OFFSET_TYPE, (offset,))
        elif offsets[-1] < offset:
            offsets.append(offset)
        else:
            insort(offsets, offset)

    def _leave(self, record: QueueRecord) -> None:
        block = record.id >> BLOCK_BITS
        blocks = self._of_shard[record.shard]
        offsets = blocks[block]
        del offsets[bisect_left(offsets, record.id & _OFFSET)]
        left = len(offsets)
        if left:
            if not left & (left - 1):
                blocks[block] = offsets[:]  # An array keeps the room that it once took.
            return
        del blocks[block]
        if not blocks:
            del self._of_shard[record.shard]
