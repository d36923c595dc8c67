"""The two write-ahead files of a log's folder: one takes records, the other is cleared for its turn.

Both have their full size from the beginning and are written over and over: an append changes no length and takes no
room, and one sync makes it durable.
"""

import errno
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.limits import KIB
from mayfly.cluster.log.batch import DiskFailed, DiskFull, StoreDamaged, StoreRefused
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES, file_header, file_salt, is_clear
from mayfly.cluster.store.folder import OUT_OF_ROOM, sync_folder

FILE_NAMES: Final = ("ahead-1", "ahead-2")

CREATED_AT_ONCE_BYTES: Final = 16 * KIB
"""The system keeps a file's pages in the pieces in which they were first written, and counts a piece as written
whenever a part of it is: in what it says of a process, and in what may be dirty before writers have to wait."""

_DRAFT: Final = ".new"


class WriteAheadFiles:
    """The files, open. `append` and `turn` are for one thread at a time, `clear_other` may run beside `append`."""

    def __init__(self, folder: Path, segment_bytes: int, may_create: bool) -> None:
        """Opens the files, or makes them if there never were any. Raises `StoreDamaged`, `StoreRefused`."""
        self._descriptors: list[int] = []
        self._salts: list[int] = []
        self._ends: list[int] = []
        self._sizes: list[int] = []
        self._active = 0
        self._begun = b""
        """The record that was last begun."""
        self._leftover_ends: list[int] = []
        """Of each file, up to where there may be something behind its records that is of no account: parts of the one
        that was begun, or what is in the log file by now. 0: it is clear."""
        paths = [folder / name for name in FILE_NAMES]
        try:
            for path in paths:
                if not path.exists():
                    if not may_create:
                        raise StoreDamaged(f"{path} is missing, and with it what was written last")
                    _create(path, segment_bytes)
            sync_folder(folder)
            for path in paths:
                self._descriptors.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            self.close()
            raise StoreRefused(f"can't open the write-ahead files in {folder}: {error}") from error
        except BaseException:
            self.close()
            raise
        self._paths = paths

    def images(self) -> list[tuple[str, bytes]]:
        """Name and content of each file. Raises `StoreRefused`."""
        try:
            return [(str(path), path.read_bytes()) for path in self._paths]
        except OSError as error:
            raise StoreRefused(f"can't read the write-ahead files in {self._paths[0].parent}: {error}") from error

    def begin(self, images: list[tuple[str, bytes]]) -> None:
        """Clear both files, whose content is in the log file by now; without room for that, later. Raises
        `DiskFailed`."""
        for number, (name, image) in enumerate(images):
            self._salts.append(file_salt(image, name))
            self._ends.append(FILE_HEADER_BYTES)
            self._sizes.append(len(image))
            self._leftover_ends.append(0 if is_clear(image) else len(image))
            with suppress(DiskFull):
                self._clear(number)

    # --- records --------------------------------------------------------------------------------------

    @property
    def salt(self) -> int:
        """The salt of the file that takes records now."""
        return self._salts[self._active]

    def fits(self, record: bytes) -> bool:
        """Whether there is room for a record; if not, it is the other file's turn."""
        return self._ends[self._active] + len(record) <= self._sizes[self._active]

    def _is_in_the_way(self, record: bytes) -> bool:
        """Whether there are parts of another record where this one is to be. Its own are written over as they are."""
        return bool(self._leftover_ends[self._active]) and record != self._begun

    def clear_unfinished(self) -> None:
        """No trace is left of a record that was begun and is not there. To be called before something else is done than
        writing it once more. Raises `DiskFull` (it is to be called again), `DiskFailed`."""
        self._clear(self._active)

    def append(self, record: bytes) -> None:
        """Write a record that fits, and sync it. Raises `DiskFull` (see `clear_unfinished`), `DiskFailed`."""
        if self._is_in_the_way(record):
            self.clear_unfinished()
        self._begun = record
        try:
            self._write_synced(self._active, record, self._ends[self._active])
        except DiskFull:
            self._leftover_ends[self._active] = self._ends[self._active] + len(record)
            raise
        self._leftover_ends[self._active] = 0
        self._ends[self._active] += len(record)

    def turn(self) -> None:
        """The other file takes records from now on. Both have to be clear behind their records."""
        self._active = 1 - self._active

    def clear_other(self) -> None:
        """The records of the file that takes none are in the log file by now. Raises `DiskFull` (it is to be called
        again), `DiskFailed`."""
        other = 1 - self._active
        if self._ends[other] > FILE_HEADER_BYTES:
            self._leftover_ends[other] = self._ends[other]
            self._ends[other] = FILE_HEADER_BYTES
        self._clear(other)

    def _clear(self, number: int) -> None:
        """Zeros: what a torn record lacks must not look like something. Raises `DiskFull`, `DiskFailed`."""
        start, end = self._ends[number], self._leftover_ends[number]
        if not end:
            return
        self._write_synced(number, bytes(end - start), start)
        self._leftover_ends[number] = 0

    def _write_synced(self, number: int, data: bytes, start: int) -> None:
        """Raises `DiskFull`: any part of it may be there, and all of it is to be written once more; `DiskFailed`.

        Only file systems and volumes that never write in place can run short here, some when they sync."""
        try:
            _write(self._descriptors[number], data, start)
            _sync(self._descriptors[number])
        except OSError as error:
            if error.errno in OUT_OF_ROOM:
                raise DiskFull(self._text(error)) from error
            raise DiskFailed(self._text(error)) from error

    def _text(self, error: OSError) -> str:
        return f"{self._paths[0].parent / 'ahead-*'}: {error.strerror}"

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _create(path: Path, segment_bytes: int) -> None:
    """A file of full size with its header, or none at all."""
    draft = path.with_name(path.name + _DRAFT)
    with draft.open("wb", buffering=0) as file:
        try:
            _write(file.fileno(), file_header(segment_bytes, random.SystemRandom().getrandbits(64)), 0)
            # Blocks that were written once need no change of the file system's own records when they are synced.
            start = FILE_HEADER_BYTES
            while start < segment_bytes:
                end = min(start - start % CREATED_AT_ONCE_BYTES + CREATED_AT_ONCE_BYTES, segment_bytes)
                _write(file.fileno(), bytes(end - start), start)
                start = end
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
    draft.rename(path)


def _write(descriptor: int, data: bytes, start: int) -> None:
    done = os.pwrite(descriptor, data, start)
    while done < len(data):
        written = os.pwrite(descriptor, data[done:], start + done)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done += written


def _sync(descriptor: int) -> None:
    """Not every system has fdatasync."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
