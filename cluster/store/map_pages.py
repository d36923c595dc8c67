"""The pages of LMDB's map that this process holds on to.

LMDB reads its file through a shared map. Every page that is looked at stays in the process's tables, sixteen
neighbours with it, until the system is short of memory: after a while the whole file counts as this process's memory
though it is the page cache's. What was looked at is seldom looked at again, so it is let go now and then. The data
stays in the page cache; the next look costs one soft fault for sixteen pages.

Only Linux can do this (madvise(2), MADV_DONTNEED: of a shared map of a file it forgets the table entries, never data).
Elsewhere nothing happens.
"""

import ctypes
import sys
from pathlib import Path
from typing import Final

NEIGHBOURS_BYTES: Final = 64 * 1024
"""What Linux maps at once around a page that is looked at (fault_around_bytes): what deleting one entry touches."""

_MADV_DONTNEED: Final = 4


class MapPages:
    """The map of one file. Any thread may call `touched`; what two of them do at once may count as one."""

    def __init__(self, file: Path, every_bytes: int) -> None:
        """The file has to be mapped already; its pages are let go whenever so many bytes were touched."""
        self._every_bytes = every_bytes
        self._touched_bytes = 0
        self._ranges = _mapped(file)
        self._library = ctypes.CDLL(None, use_errno=True) if self._ranges else None

    def touched(self, count_bytes: int) -> None:
        """So much was read or written, without letting anything go yet."""
        self._touched_bytes += count_bytes

    def let_go_if_due(self) -> None:
        """Let all pages go if enough was touched. Takes about 0.1 ms for each MB that is held; lets go of the
        interpreter."""
        if self._library is not None and self._touched_bytes >= self._every_bytes:
            self._touched_bytes = 0
            for start, size in self._ranges:
                self._library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


def _mapped(file: Path) -> list[tuple[int, int]]:
    """Address and size of the maps of a file in this process."""
    if not sys.platform.startswith("linux"):
        return []
    ranges = []
    name = str(file.resolve())
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        # Shared maps only: of a private one MADV_DONTNEED would forget what was written.
        if len(fields) == 6 and fields[5] == name and fields[1].endswith("s"):
            start, _, end = fields[0].partition("-")
            ranges.append((int(start, 16), int(end, 16) - int(start, 16)))
    return ranges
