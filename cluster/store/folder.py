"""The folder of a node's log: one process at a time, and no silent start from nothing."""

import errno
import fcntl
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.log.batch import StoreDamaged, StoreRefused

DATA_FILE: Final = "data.mdb"
DAMAGED_FILE: Final = DATA_FILE + ".damaged"
LOCK_FILE: Final = "in-use"
MARKER_FILE: Final = "format"
FOR_ITS_USER: Final = 0o700

OUT_OF_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system says when there is no room left."""

_META_PAGES: Final = 2
_LMDB_MAGIC: Final = struct.Struct("<I")
_LMDB_MAGIC_AT: Final = 16
_LMDB_TRANSACTION: Final = struct.Struct("<Q")
_LMDB_TRANSACTION_AT: Final = 144


def make_folder(path: Path, may_exist: bool = True) -> None:
    """A folder, and those above it that are missing, for their owner alone; they stay after a crash. Raises OSError."""
    for folder in reversed([parent for parent in path.parents if not parent.exists()]):
        folder.mkdir(FOR_ITS_USER, exist_ok=True)
        sync_folder(folder.parent)
    if not (may_exist and path.is_dir()):
        path.mkdir(FOR_ITS_USER, exist_ok=may_exist)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Which files a folder has, under which names, stays so after a crash. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class StoreFolder:
    """Holds the folder's lock from construction to `close`. Raises `StoreRefused`, which may be over the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_file = path / DATA_FILE
        try:
            make_folder(path)
            self._lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreRefused(f"can't open the data folder {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            who = f"process {owner}" if owner else "another process"
            raise StoreRefused(f"the data folder {path} is in use by {who}") from error
        with suppress(OSError):  # Only to be told to others. On a full disk the log itself may have room.
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def check_not_emptied(self) -> None:
        """Raise `StoreDamaged` when the folder held a log whose file is gone.

        Starting from nothing then would forget the votes this node gave and the entries it confirmed.
        """
        if not (self.path / MARKER_FILE).exists():
            return
        if not self.data_file.exists() or self.data_file.stat().st_size == 0:
            raise StoreDamaged(
                f"{self.data_file} is missing or empty, but {self.path / MARKER_FILE} says that there was a log"
            )

    def clear_unfinished_start(self) -> None:
        """Empty a data file whose very first pages never reached the disk: a crash ended the first start.

        LMDB would refuse it. Nothing can be lost: without the marker no start has ever been finished, and pages are
        only missing before the first commit.
        """
        if (self.path / MARKER_FILE).exists() or not self.data_file.exists():
            return
        with self.data_file.open("r+b") as file:
            pages = [file.read(mmap.PAGESIZE) for _ in range(_META_PAGES)]
            missing = [not any(page) for page in pages]
            if any(missing) and all(gone or _is_uncommitted(page) for gone, page in zip(missing, pages, strict=True)):
                file.truncate(0)

    def mark(self, text: str) -> None:
        """Note durably that the folder holds a log, of this format."""
        marker = self.path / MARKER_FILE
        if not marker.exists() or marker.read_text(encoding="utf-8", errors="replace") != text:
            draft = self.path / (MARKER_FILE + ".new")
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(marker)
        # At every start: an earlier one may have ended just before this.
        sync_folder(self.path)

    def close(self) -> None:
        """Let others use the folder."""
        os.close(self._lock)


def _is_uncommitted(page: bytes) -> bool:
    """Whether this is a meta page of LMDB as it prepares it for a new file, or the beginning of one."""
    page = page.ljust(mmap.PAGESIZE, b"\0")
    magic: int = _LMDB_MAGIC.unpack_from(page, _LMDB_MAGIC_AT)[0]
    transaction: int = _LMDB_TRANSACTION.unpack_from(page, _LMDB_TRANSACTION_AT)[0]
    return magic == 0xBEEFC0DE and transaction == 0
