"""Synced writes without a thread: the kernel takes one, and tells a descriptor when it is on disk (Linux).

A thread that writes has to be woken, waits for the interpreter after each system call, and wakes the event loop again:
for a write that comes alone that is dearer than the write. The kernel's own asynchronous writes (io_submit(2)) need
none of it, if they go past the page cache (O_DIRECT), into blocks that were written before and are not cached, and may
not wait on their way in (RWF_NOWAIT). O_DSYNC makes each as durable as `pwrite` with `fdatasync`. Where a system or
file system does not do all that, `open_direct` or the first write finds out, and a thread writes as ever.

Whole blocks are written. What stands in a record's first block before it is written again as it is, so a torn block
has lost nothing of that: a disk writes a sector whole or not at all.
"""

import ctypes
import errno
import mmap
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.store.folder import OUT_OF_ROOM

BLOCK_BYTES: Final = 4096
"""Where direct writes begin and end. No disk in use has larger blocks."""

_MOST_SKIPPED: Final = 1024
_CALLS: Final = {
    # io_setup, io_destroy, io_submit, io_getevents
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_WRITE: Final = 1
_NOTIFY: Final = 1
_NOWAIT: Final = 0x08


class _Request(ctypes.Structure):
    """struct iocb of linux/aio_abi.h, on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("told", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class DirectWrites:
    """Direct writes into some files, one at a time. For one thread at a time."""

    def __init__(self, paths: Sequence[Path], most_bytes: int) -> None:
        """Raises `OSError` where there is no such thing. `most_bytes`: of one write."""
        # The numbers are those of 64-bit programs; the machine's name is that of the kernel.
        if platform.machine() not in _CALLS or sys.maxsize < 1 << 32 or not hasattr(os, "O_DIRECT"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        setup, self._destroy, self._submit, self._get_events = _CALLS[platform.machine()]
        self._system = ctypes.CDLL(None, use_errno=True).syscall
        self._system.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._descriptors: list[int] = []
        self.told: int = -1
        """Becomes readable when a write has ended."""
        self._skipped = 0
        self._to_skip = 0
        """So many writes are not begun in a row."""
        self._size = 0
        try:
            for path in paths:
                self._descriptors.append(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT | os.O_DSYNC))
            self.told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            # Two blocks for what stands before and behind. A mapping begins at a page.
            self._buffer = mmap.mmap(-1, (most_bytes // BLOCK_BYTES + 3) * BLOCK_BYTES)
            if self._system(setup, 1, ctypes.byref(self._context)):
                raise _error()
        except BaseException:
            self.close()
            raise
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._request = _Request(
            rw_flags=_NOWAIT, opcode=_WRITE, buffer=self._address, flags=_NOTIFY, told=self.told
        )
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = _Event()
        self._no_time = (ctypes.c_long * 2)(0, 0)

    def begin(self, file: int, start: int, before: bytes, record: bytes, file_bytes: int) -> bool:
        """Begin to write a record at `start` of a file in which nothing but zeros follows; False if it can't be.

        `before` is what stands before it in its first block."""
        if self._skipped < self._to_skip:
            self._skipped += 1
            return False
        block_start = start - len(before)
        end = start + len(record)
        size = end + -end % BLOCK_BYTES - block_start
        if block_start + size > file_bytes or size > len(self._buffer):
            return False
        buffer, inside = self._buffer, len(before)
        buffer[:inside] = before
        buffer[inside : inside + len(record)] = record
        buffer[inside + len(record) : size] = bytes(size - inside - len(record))
        request = self._request
        request.descriptor, request.offset, request.size = self._descriptors[file], block_start, size
        if self._system(self._submit, self._context, ctypes.c_long(1), self._requests) != 1:
            self._skip_more()
            return False
        self._size = size
        return True

    def ended(self, wait: bool = False) -> bool:
        """Whether the write that was begun has ended, well or not (`result`); `wait`: until it has."""
        time = None if wait else self._no_time
        while (
            count := self._system(
                self._get_events, self._context, ctypes.c_long(int(wait)), ctypes.c_long(1),
                ctypes.byref(self._event), time,
            )
        ) < 0:
            if ctypes.get_errno() != errno.EINTR:
                raise _error()
        return bool(count)

    def take_notice(self) -> None:
        """What made `told` readable is known."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.told)

    def result(self) -> bool:
        """Of the write that has ended: whether it is on disk. If not, it is to be written in another way, and any part
        of it may be there: the system tells of one error, and not of what it had written by then. Raises `OSError` when
        nobody knows what is on disk."""
        result = self._event.result
        if result == self._size:
            self._to_skip = 0
            return True
        if result < 0:
            self._skip_more()
            if -result not in _NOT_IN_THIS_WAY and -result not in OUT_OF_ROOM:
                raise OSError(-result, os.strerror(-result))
        return False

    def _skip_more(self) -> None:
        """A system that would have to wait may do better later; so it is asked ever less often."""
        self._skipped = 0
        self._to_skip = min(_MOST_SKIPPED, 2 * self._to_skip + 1)

    def close(self) -> None:
        """Close all; a write under way is waited for."""
        if self._context:
            self._system(self._destroy, self._context)
            self._context = ctypes.c_ulong(0)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        if self.told >= 0:
            os.close(self.told)
            self.told = -1


_NOT_IN_THIS_WAY: Final = frozenset({errno.EAGAIN, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR})
"""Answers after which an ordinary write may do."""


def open_direct(paths: Sequence[Path], most_bytes: int) -> DirectWrites | None:
    """Direct writes into these files; None where the system has no such thing."""
    try:
        return DirectWrites(paths, most_bytes)
    except OSError:
        return None


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
