"""What a simulated disk holds in octets: write-ahead files that a crash tears, in front of what was moved (pure).

The order of writes is that of `cluster.store.write_ahead_store`: a record is durable with its sync; what gathered in
one file is moved while the other takes records; only then the first is cleared. A crash can come between any two of
these, and in the middle of clearing. `replay` shows what a start finds, through the same code that reads the real
files.
"""

import zlib
from collections.abc import Callable
from typing import Final

from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.log.gathered import GatheredBatches, done_with, replay
from mayfly.cluster.log.write_ahead_format import (
    FILE_HEADER_BYTES,
    SECTOR_BYTES,
    encode_record,
    file_header,
    may_be_recorded,
)

FILE_BYTES: Final = 4096
"""Small, so that files take turns often."""

_MOVES_AFTER: Final = 3
"""So many records into one file, the content of the other is moved."""
_SALT: Final = 77


class SimulatedAhead:
    """The two write-ahead files of one disk. `move` takes what leaves them for good, in order."""

    def __init__(self, move: Callable[[WriteBatch], None]) -> None:
        self._move: Callable[[WriteBatch], None] = move
        self._files: list[bytearray] = [_empty(), _empty()]
        self._ends: list[int] = [FILE_HEADER_BYTES, FILE_HEADER_BYTES]
        self._active: int = 0
        self._number: int = 0
        self._moved: int = 0
        self._gathered: GatheredBatches = GatheredBatches()
        self._moving: GatheredBatches | None = None
        self._moving_number: int = 0
        self._records: int = 0
        self._clearing: bytearray | None = None
        """What was in the file that takes no records, when the last thing done was to clear it."""

    def write(self, batch: WriteBatch) -> None:
        """A batch that is durable from here on."""
        self._clearing = None
        record = self._record_of(batch)
        if record is None:
            self.settle()
            self._move(batch)
            return
        start = self._ends[self._active]
        self._files[self._active][start : start + len(record)] = record
        self._ends[self._active] += len(record)
        self._gathered.add(batch)
        self._number += 1
        self._records += 1
        if self._records == _MOVES_AFTER:
            self._finish_move()

    def tear(self, batch: WriteBatch) -> None:
        """A batch whose write was under way when the power went: some of its sectors are there, at least one is not."""
        record = self._record_of(batch)
        if record is None:
            return
        start = self._ends[self._active]
        pieces = [(max(at, start), min(at + SECTOR_BYTES, start + len(record))) for at in _sectors(start, len(record))]
        luck = zlib.crc32(record)
        missing = luck % len(pieces)
        for number, (first, end) in enumerate(pieces):
            if number != missing and (luck >> number % 29) & 1:
                self._files[self._active][first:end] = record[first - start : end - start]

    def replay(self) -> None:
        """A start after a crash: what is in the files leaves them.

        The crash may have come while a file was being cleared, and so may another one, at this start."""
        luck = zlib.crc32(b"".join(self._files))
        if self._clearing is not None:
            other = 1 - self._active
            self._files[other] = _half_cleared(self._clearing, luck)
            self._clearing = None
        self._take_out()
        if luck & 1:
            self._files = [_half_cleared(file, luck >> 1) for file in self._files]
            self._take_out()
        self._clear_all()

    def _take_out(self) -> None:
        images = [(f"ahead-{number}", bytes(file)) for number, file in enumerate(self._files, 1)]
        gathered, last = replay(images, self._moved)
        self._move(gathered.batch)
        self._number = self._moved = done_with(images, last)

    def settle(self) -> None:
        """Move everything."""
        self._finish_move()
        if not self._gathered.empty():
            self._move(self._gathered.batch)
            self._gathered = GatheredBatches()
        self._moved = self._number

    def forget(self) -> None:
        """Nothing was ever written here."""
        self._number = 0
        self._clear_all()

    def _record_of(self, batch: WriteBatch) -> bytes | None:
        """The record of a batch, with room for it made; None if it is none."""
        if not may_be_recorded(batch, FILE_BYTES // 4):
            return None
        record = encode_record(self._number + 1, batch, _SALT)
        if len(record) > FILE_BYTES // 2:
            return None
        if self._ends[self._active] + len(record) > FILE_BYTES:
            self._turn()
        return record

    def _turn(self) -> None:
        self._finish_move()
        self._moving, self._moving_number = self._gathered, self._number
        self._gathered = GatheredBatches()
        self._active = 1 - self._active
        self._clearing = None
        self._records = 0

    def _finish_move(self) -> None:
        if self._moving is not None:
            self._move(self._moving.batch)
            self._moved = self._moving_number
            self._moving = None
            other = 1 - self._active
            self._clearing = self._files[other]
            self._files[other], self._ends[other] = _empty(), FILE_HEADER_BYTES

    def _clear_all(self) -> None:
        self._moved = self._number
        self._moving, self._gathered, self._clearing = None, GatheredBatches(), None
        self._files = [_empty(), _empty()]
        self._ends = [FILE_HEADER_BYTES, FILE_HEADER_BYTES]


def _empty() -> bytearray:
    return bytearray(file_header(FILE_BYTES, _SALT).ljust(FILE_BYTES, b"\0"))


def _half_cleared(file: bytearray, luck: int) -> bytearray:
    """A file whose clearing was broken off: its sectors are cleared in order, up to any of them."""
    end = FILE_HEADER_BYTES + luck % (FILE_BYTES // SECTOR_BYTES) * SECTOR_BYTES
    return file[:FILE_HEADER_BYTES] + bytes(end - FILE_HEADER_BYTES) + file[end:]


def _sectors(start: int, size: int) -> range:
    return range(start // SECTOR_BYTES * SECTOR_BYTES, start + size, SECTOR_BYTES)
