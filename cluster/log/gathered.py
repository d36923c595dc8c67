"""What is in the write-ahead files and not yet in the log file: many batches as one, and their replay (pure)."""

from collections.abc import Iterator, Sequence
from typing import Final

from mayfly.cluster.log.batch import CorruptStore, GroupWrite, MissingEntry, WriteBatch
from mayfly.cluster.log.write_ahead_format import decode_record, is_clear, scan
from mayfly.cluster.raft import Entry

GATHERED_OVERHEAD_BYTES: Final = 200
"""About what an entry or a group takes in memory besides its payload."""


class GatheredBatches:
    """Batches without snapshots, one after the other, as one batch of the same outcome."""

    def __init__(self) -> None:
        self.batch: WriteBatch = WriteBatch()
        self.memory_bytes: int = 0
        """About what all that was added took; what was replaced since counts as well."""
        self.disk_bytes: int = 0
        """What the caller expects it to take in the log file."""

    def add(self, batch: WriteBatch, disk_bytes: int = 0) -> None:
        """Put a batch after those that are here. The checksums of its entries must be known."""
        self.disk_bytes += disk_bytes
        for number, write in batch.groups.items():
            if not write.empty():
                self._add(self.batch.group(number), write)

    def _add(self, all_of_it: GroupWrite, write: GroupWrite) -> None:
        self.memory_bytes += 8 * len(write.release)
        if write.hard_state is not None:
            all_of_it.hard_state = write.hard_state
        all_of_it.release += write.release
        if not write.entries:
            return
        if all_of_it.entries:
            # They follow without a gap, so what they do not replace ends just before them.
            keep = max(0, write.entries[0].index - all_of_it.entries[0].index)
            del all_of_it.entries[keep:]
            del all_of_it.checksums[keep:]
        all_of_it.entries += write.entries
        all_of_it.checksums += write.checksums
        for entry in write.entries:
            self.memory_bytes += len(entry.data) + GATHERED_OVERHEAD_BYTES

    def empty(self) -> bool:
        """Whether nothing is here."""
        return not self.batch.groups

    def find(self, group: int, index: int) -> Entry | None:
        """An entry that is here; None if what was stored before is as it was. Raises `MissingEntry` if it is gone."""
        write = self.batch.groups.get(group)
        if write is None:
            return None
        if write.entries and index >= write.entries[0].index:
            position = index - write.entries[0].index
            if position >= len(write.entries):
                raise MissingEntry(group, index)
            return write.entries[position]
        if index in write.release:
            raise MissingEntry(group, index)
        return None


def replay(files: Sequence[tuple[str, bytes]], moved: int) -> tuple[GatheredBatches, int]:
    """What files of these names and contents hold beyond record `moved`, and the number of the last record.

    Raises `CorruptStore` for damage, and when records in between are missing.
    """
    gathered, last = GatheredBatches(), moved
    for number, batch in beyond(files, moved):
        gathered.add(batch)
        last = number
    return gathered, last


def beyond(files: Sequence[tuple[str, bytes]], moved: int) -> Iterator[tuple[int, WriteBatch]]:
    """The records beyond `moved`, one by one with their numbers. Raises what `replay` does."""
    found = []
    for name, image in files:
        kept = scan(image, name, moved)
        if kept:
            found.append((kept[0].number, name, image, kept))
    last = moved
    for _, name, image, kept in sorted(found, key=lambda each: each[0]):
        for record in kept:
            if record.number <= last:
                continue
            if record.number != last + 1:
                raise CorruptStore(f"{name} goes on with record {record.number}, but record {last + 1} is missing")
            yield record.number, decode_record(image, record)
            last = record.number


def done_with(files: Sequence[tuple[str, bytes]], last: int) -> int:
    """Up to which number records are of no account once all up to `last` are moved. To be noted before files are
    cleared.

    One that was torn behind the last has the next number: were it still to count, a crash in the middle of the
    clearing could leave it behind zeros, as if records were missing.
    """
    return last if all(is_clear(image) for _, image in files) else last + 1
