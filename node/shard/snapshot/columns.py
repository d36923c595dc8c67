"""Columns of numbers: as bytes, or as the one number that all of a column are."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.packing import NUMBER_BYTES, pack_signed, unpack_signed


class Column:
    """Numbers as bytes, or the one number that all of them are: lengths and TTLs often are."""

    __slots__ = ("count", "parts", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0
        """The number that all of them are, as long as there are no ``parts``."""
        self.parts: list[bytes] = []

    def add(self, numbers: list[int]) -> None:
        """More of them."""
        if not numbers:
            return
        if not self.parts:
            value = self.value if self.count else numbers[0]
            if numbers[-1] == value and numbers.count(value) == len(numbers):
                self.value = value
                self.count += len(numbers)
                return
            if self.count:
                self.parts.append(pack_signed([value]) * self.count)
        self.parts.append(pack_signed(numbers))
        self.count += len(numbers)

    def packed(self) -> object:
        """As it stands in the snapshot."""
        if self.parts:
            return b"".join(self.parts)
        return self.value if self.count else b""


def column_of(numbers: list[int]) -> object:
    """These numbers, as they stand in the snapshot."""
    column = Column()
    column.add(numbers)
    return column.packed()


def rows_of(row: Any, columns: int) -> int:
    """How many rows these columns, behind their length, say they have; ShardError when they have others."""
    count: int = row[0]
    if len(row) != columns + 1:
        raise ShardError(f"{len(row) - 1} columns, {columns} expected")
    for column in row[1:]:
        if not isinstance(column, int) and len(column) != count * NUMBER_BYTES:
            raise ShardError(f"a column of {len(column)} bytes for {count} rows")
    return count


def column_piece(column: Any, start: int, stop: int) -> Iterable[int]:
    """Some rows of a column."""
    if isinstance(column, int):
        return repeat(column, stop - start)
    return unpack_signed(column[start * NUMBER_BYTES : stop * NUMBER_BYTES])
