"""How much room a log has left, in the file system, in LMDB's map, and between what is stored."""

import os
import threading
from itertools import chain
from pathlib import Path

from mayfly.cluster import limits
from mayfly.cluster.log.batch import DiskFull, GroupWrite
from mayfly.cluster.store.folder import OUT_OF_ROOM
from mayfly.cluster.store.lmdb_tables import LmdbTables


class LmdbRoom:
    """The room of one open environment. Reserves the file's blocks ahead of use."""

    def __init__(self, tables: LmdbTables, file: Path) -> None:
        self._tables = tables
        self._file = file
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._file_bytes = os.fstat(self._descriptor).st_size
        self._unchecked_bytes = 0
        self._asking = threading.Lock()
        reserve = tables.map_bytes // limits.LOG_RESERVE_DIVISOR
        self.reserve_bytes: int = max(
            limits.LOG_RESERVE_MIN_BYTES, min(limits.LOG_RESERVE_MAX_BYTES, reserve)
        )
        """What only batches may use that add nothing: deleting needs pages, too."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    # --- how much there is ----------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """How many bytes can surely be written: what map and file system allow, and free pages in the file.

        Values above 2 KB need neighbouring pages. What lies free between them is in pieces: by the fifty-percent
        rule (Knuth, The Art of Computer Programming, 2.5) up to half as much as they take themselves may be of no
        use to others of their kind. So much of the free pages is not counted.
        """
        splintered_bytes = self._tables.used_pages()[1] * self._tables.page_bytes // 2
        return self._ahead_bytes() + max(0, self._inside_bytes() - splintered_bytes)

    def used_bytes(self) -> int:
        """How many bytes of the file hold data; the rest of it is free for use."""
        return sum(self._tables.used_pages()) * self._tables.page_bytes

    def file_system_is_short(self) -> bool:
        """Whether the file system has less left than the reserve."""
        return self._file_system_bytes() < self.reserve_bytes

    def _ahead_bytes(self) -> int:
        """Room behind what LMDB has ever used: all of one piece."""
        used_up_bytes = self._tables.used_up_bytes()
        file_bytes = max(self._file_bytes, used_up_bytes)
        return max(0, min(self._tables.map_bytes, file_bytes + self._file_system_bytes()) - used_up_bytes)

    def _inside_bytes(self) -> int:
        """Free pages within what LMDB has used, of any size."""
        return max(0, self._tables.used_up_bytes() - self.used_bytes())

    def _file_system_bytes(self) -> int:
        file_system = os.fstatvfs(self._descriptor)
        return file_system.f_bavail * file_system.f_frsize

    # --- asking for it --------------------------------------------------------------------------------

    def needed_bytes(self, write: GroupWrite) -> int:
        """About what the data of a write takes on disk, page borders included."""
        page = self._tables.page_bytes
        total = 0
        for entry in chain(write.live_entries, write.entries):
            size = len(entry.data) + 64
            total += 2 * size if 2 * size < page else size + page
        if write.snapshot is not None:
            total += len(write.snapshot.state) + page
        return total

    def demand(self, added_bytes: int, reserve_bytes: int, waiting_bytes: int = 0, later: bool = False) -> None:
        """Raise `DiskFull` when there is no room for so much, after what waits to be written, with this reserve left
        over. Any thread may ask.

        `later`: it is acknowledged before it is written, so only room counts that is surely of use (`free_bytes`).
        How much is free is looked at only after a quarter of what was free is gone.
        """
        with self._asking:
            self._demand(added_bytes, reserve_bytes, waiting_bytes, later)

    def _demand(self, added_bytes: int, reserve_bytes: int, waiting_bytes: int, later: bool) -> None:
        if added_bytes:
            self._unchecked_bytes -= added_bytes
            if self._unchecked_bytes < 0:
                # All of it, if it is written now: what does not fit in the end, LMDB will say.
                free_bytes = self.free_bytes() if later else self._ahead_bytes() + self._inside_bytes()
                spare_bytes = free_bytes - reserve_bytes - added_bytes - waiting_bytes
                if spare_bytes < 0:
                    raise DiskFull(f"{self._file}: no room for {added_bytes} bytes")
                self._unchecked_bytes = spare_bytes // 4 if reserve_bytes else 0
        needed_bytes = min(
            self._tables.map_bytes,
            self._tables.used_up_bytes() + 2 * (added_bytes + waiting_bytes) + self.reserve_bytes,
        )
        if needed_bytes > self._file_bytes:
            self._lengthen_file(needed_bytes, added_bytes + waiting_bytes)

    def look_again(self) -> None:
        """LMDB found no room where some was expected: the next demand looks."""
        self._unchecked_bytes = 0

    def _lengthen_file(self, needed_bytes: int, added_bytes: int) -> None:
        """Reserve room for the file ahead of use, a step more than needed if possible."""
        step_bytes = limits.LOG_FILE_STEP_BYTES
        for target_bytes in (min(self._tables.map_bytes, needed_bytes + step_bytes), needed_bytes):
            try:
                os.posix_fallocate(self._descriptor, 0, target_bytes)
            except OSError as error:
                if error.errno not in OUT_OF_ROOM:
                    return  # Not every file system can do this; then LMDB finds out by itself.
            else:
                self._file_bytes = target_bytes
                return
        # Free pages inside the file may do: that is where deletions make room.
        if added_bytes and self._tables.used_up_bytes() - self.used_bytes() < 2 * added_bytes + self.reserve_bytes:
            raise DiskFull(f"{self._file}: the file system has no room for {added_bytes} bytes")
