"""What a crash in the middle of a commit can leave of LMDB's data file.

A commit writes the pages it has made anew, syncs, then writes one of the two meta pages, again durably. Until the
first sync has returned, any part of the new pages may be on the disk: whole pages, or sectors of them. The meta page
is begun only after it; what is written of it lies within one sector, which a disk writes or doesn't.
"""

import struct
from pathlib import Path
from random import Random

PAGE_BYTES = 4096
SECTOR_BYTES = 512
META_PAGES = 2

_META_PAGE_NUMBERS = struct.Struct("<QQ")
_META_PAGE_NUMBERS_AT = 136
"""Within a meta page (LMDB 0.9): number of the last page in use, and of the transaction that wrote it."""


class DataFile:
    """The bytes of a data file as far as its newest meta page says that they are used, and its whole length."""

    def __init__(self, content: bytes, length_bytes: int) -> None:
        self.content = content
        self.length_bytes = length_bytes

    @staticmethod
    def read(path: Path) -> "DataFile":
        with path.open("rb") as file:
            metas = file.read(META_PAGES * PAGE_BYTES)
            used_bytes = used_by_newest_meta(metas)
            file.seek(0)
            return DataFile(file.read(used_bytes), path.stat().st_size)

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.content[: self.length_bytes])
            file.truncate(self.length_bytes)


def used_by_newest_meta(content: bytes) -> int:
    """How many bytes the newest meta page counts on."""
    newest = max(range(META_PAGES), key=lambda page: _numbers(content, page)[1])
    return (_numbers(content, newest)[0] + 1) * PAGE_BYTES


def _numbers(content: bytes, page: int) -> tuple[int, int]:
    last_page, transaction = _META_PAGE_NUMBERS.unpack_from(content, page * PAGE_BYTES + _META_PAGE_NUMBERS_AT)
    return int(last_page), int(transaction)


class Commit:
    """One commit, seen by the data file before and after it."""

    def __init__(self, before: DataFile, after: DataFile) -> None:
        self.before = before
        self.after = after
        size = max(len(before.content), len(after.content))
        self._old = before.content.ljust(size, b"\0")
        self._new = after.content.ljust(size, b"\0")

    def changed(self, first_byte: int, end_byte: int, unit_bytes: int) -> list[int]:
        """Where units differ, in bytes from the start of the file."""
        end_byte = min(end_byte, len(self._old))
        return [
            start
            for start in range(first_byte, end_byte, unit_bytes)
            if self._old[start : start + unit_bytes] != self._new[start : start + unit_bytes]
        ]

    def changed_meta_sectors(self) -> list[int]:
        return self.changed(0, META_PAGES * PAGE_BYTES, SECTOR_BYTES)

    def changed_data(self, unit_bytes: int) -> list[int]:
        return self.changed(META_PAGES * PAGE_BYTES, len(self._old), unit_bytes)

    def not_synced(self, random: Random) -> DataFile:
        """A crash before the sync has returned: the old meta pages, and any part of the new data pages."""
        unit_bytes = random.choice((PAGE_BYTES, SECTOR_BYTES))
        units = self.changed_data(unit_bytes)
        count = random.choice((0, 1, len(units) - 1, len(units), random.randint(0, len(units))))
        content = bytearray(self._old)
        for start in random.sample(units, max(0, min(count, len(units)))):
            content[start : start + unit_bytes] = self._new[start : start + unit_bytes]
        return DataFile(bytes(content), self._some_length(used_by_newest_meta(self._old), random))

    def synced(self, random: Random) -> DataFile:
        """A crash before the meta page: all of the data pages are there."""
        content = self._old[: META_PAGES * PAGE_BYTES] + self._new[META_PAGES * PAGE_BYTES :]
        return DataFile(content, self._some_length(used_by_newest_meta(self._old), random))

    def finished(self, random: Random) -> DataFile:
        """A crash after the meta page."""
        return DataFile(self._new, self._some_length(used_by_newest_meta(self._new), random))

    def out_of_order(self, random: Random) -> DataFile:
        """What must NOT be possible: the new meta page is there and a part of the data pages is not."""
        content = bytearray(self._new)
        units = self.changed_data(PAGE_BYTES)
        for start in random.sample(units, random.randint(1, len(units))):
            content[start : start + PAGE_BYTES] = self._old[start : start + PAGE_BYTES]
        return DataFile(bytes(content), self.after.length_bytes)

    def _some_length(self, needed_bytes: int, random: Random) -> int:
        """The file may have been lengthened, or not yet; only what a sync has covered is certain."""
        longest = max(self.before.length_bytes, self.after.length_bytes, needed_bytes)
        return random.choice(
            (needed_bytes, max(needed_bytes, self.before.length_bytes), longest, random.randint(needed_bytes, longest))
        )
