"""Numbered records in blocks, so that somebody can read them all as they are now, bit by bit, while they change.

A table of a million records can't be copied in one go without holding the node. Its blocks can be lent: whoever changes
a block that was lent changes a copy of it, and the reader keeps what it was given.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS
"""Numbers that belong together, and the most records in a block."""

_Record = TypeVar("_Record")


class Blocks(Generic[_Record]):
    """Records that never change, by number. New numbers are higher than all that were there: the order is theirs."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, _Record]] = {}
        self._lent: dict[int, None] = {}
        """The blocks that a reader may have."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> _Record | None:
        """The record of that number."""
        block = self._blocks.get(number >> BLOCK_BITS)
        return None if block is None else block.get(number)

    def put(self, number: int, record: _Record) -> None:
        """Add a record of a new number, or put it in the place of the one of that number."""
        of = number >> BLOCK_BITS
        block = self._blocks.get(of)
        if block is None:
            block = self._blocks[of] = {}
        elif of in self._lent:
            block = self._own(of)
        self._count += number not in block
        block[number] = record

    def remove(self, number: int) -> None:
        """Remove the record of that number, which must be there."""
        of = number >> BLOCK_BITS
        block = self._own(of) if of in self._lent else self._blocks[of]
        del block[number]
        self._count -= 1
        left = len(block)
        if not left:
            del self._blocks[of]
        elif not left & (left - 1):
            # A dictionary keeps its room: the few that are left of a full block would hold it all.
            self._blocks[of] = dict(block)

    def _own(self, of: int) -> dict[int, _Record]:
        del self._lent[of]
        block = self._blocks[of] = dict(self._blocks[of])
        return block

    def values(self) -> Iterable[_Record]:
        """All records."""
        return chain.from_iterable(block.values() for block in self._blocks.values())

    def newest_first(self) -> Iterator[_Record]:
        """All records, the last one first."""
        for block in reversed(self._blocks.values()):
            yield from reversed(block.values())

    def lend(self) -> deque[dict[int, _Record]]:
        """The blocks as they are now, in order: to be read, however late, and not to be changed."""
        self._lent = dict.fromkeys(self._blocks)
        return deque(self._blocks.values())
