"""What memory this process uses and may use, and how the C library gives back what was freed. Linux; elsewhere nothing
happens.

glibc gives every thread a heap of its own, and keeps what was freed for what may come. A node's threads take turns
anyway (the interpreter's lock), so one heap serves all: 35 MB less over three nodes after 200 000 messages of 1 KB, for
no more CPU. What is a mapping of its own, and how much may be free at the heap's end, glibc adapts to what occurs: the
first password's hash, of 16 MiB, and from then on the next ones are in the heap, and 32 MiB may be free at its end. So
both are set. One alone is no way: the other one stays as small as it begins, every large entry becomes a mapping of its
own, and a message costs 70 % more CPU.
"""

import ctypes
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.node.duties.alarms import memory_watermark
from mayfly.node.shell.library_pages import let_go_of_libraries

_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1
_MIB: Final = 1024 * 1024
OWN_MAPPING_BYTES: Final = 8 * _MIB
"""So large, something is a mapping of its own: passwords' hashes, and no write of ordinary messages."""
FREE_AT_END_BYTES: Final = 4 * _MIB
"""More than this at the heap's end goes back to the system at once."""
FASTEST_BYTES_PER_S: Final = 2 * 1024 * _MIB
"""No process takes in more: one core copies about so much from its sockets, and does nothing else then."""
_STATUS_MAX_BYTES: Final = 1 << 16
BUSY_BYTES: Final = 4 * _MIB
"""A node that writes so much between two looks is busy: what it frees it soon needs again."""
GROWN_BYTES: Final = 8 * _MIB
"""What a node has taken while it was not busy may have been for a moment: a large page, or an export."""


def share_one_heap() -> None:
    """Have all threads allocate from one heap, which keeps little of what was freed at its end. To be called before
    there is a second thread."""
    with suppress(OSError, AttributeError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(_M_ARENA_MAX, 1)
        c_library.mallopt(_M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
        c_library.mallopt(_M_TRIM_THRESHOLD, FREE_AT_END_BYTES)


def used_bytes() -> int | None:
    """Memory of this process that only it can give back: in RAM or swapped out, without mapped files, whose pages the
    system may take. None where that can't be known."""
    try:
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    # Looked at ten times a second, by a node at rest as well: as text, line by line, it took a tenth of its CPU.
    try:
        status = os.read(descriptor, _STATUS_MAX_BYTES)
        return sum(_kib_of(status, name) for name in (b"\nRssAnon:", b"\nRssShmem:", b"\nVmSwap:")) * 1024
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _kib_of(status: bytes, name: bytes) -> int:
    start = status.index(name) + len(name)
    return int(status[start : status.index(b"kB", start)])


def limit_bytes(given_bytes: int, percent: int) -> int:
    """What the settings `memory_limit_bytes` and `memory_limit_percent` come to here; 0: no limit."""
    return given_bytes or (available_bytes() or 0) * percent // 100


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that this process may use: that of the machine, or what its control group (v2 or v1) or one above it is
    limited to. None where that can't be known."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = (proc / "meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers == "":
                found += _limits(groups, path, "memory.max")
            elif "memory" in controllers.split(","):
                found += _limits(groups / "memory", path, "memory.limit_in_bytes")
    return min(found, default=None)


def _limits(root: Path, path: str, file: str) -> list[int]:
    """The limits of a control group and all above it, down from the one that is mounted at `root`."""
    limits = []
    folder = root / path.strip("/")
    for each in (folder, *folder.parents):
        with suppress(OSError, ValueError):
            limits.append(int((each / file).read_text()))
        if each == root:
            break
    return limits


class MemoryWatch:
    """Says when this process uses too much, and until it uses clearly less."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` 0: never."""
        self.limit_bytes: int = limit_bytes
        self.used_bytes: int = 0
        self._seen_bytes: int = 0
        """When it was looked at last, in whatever way."""
        self._watermark = memory_watermark(limit_bytes)

    def is_overrun(self) -> bool:
        """Whether the limit was passed since the last look. Quick: what was freed and kept counts."""
        self._seen_bytes = used_bytes() or 0
        return 0 < self.limit_bytes <= self._seen_bytes and not self._watermark.is_short

    @property
    def rest_s(self) -> float:
        """How long it takes at least from the last time that it was seen until it can be overrun."""
        if not self.limit_bytes or self._watermark.is_short:
            return math.inf
        return max(0, self.limit_bytes - self._seen_bytes) / FASTEST_BYTES_PER_S

    def look(self) -> str | None:
        """To be called about once a second, and when it is overrun: why publishers must be blocked, or None.

        What was freed and kept does not count: it is given back first. That takes some milliseconds."""
        self.used_bytes = used_bytes() or 0
        if self.limit_bytes and self.used_bytes >= self._watermark.relief:
            give_back()
            self.used_bytes = used_bytes() or 0
        self._seen_bytes = self.used_bytes
        if not self._watermark.look(self.used_bytes):
            return None
        return f"{self.used_bytes} bytes of memory in use, the limit is {self.limit_bytes} (memory_limit_bytes)"


def give_back() -> None:
    """Give what is free back to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class FreedMemory:
    """Gives what is free back to the system when a busy time is over, and when the process has grown without one; pages
    of libraries go then as well.

    Not while it lasts: all would be asked for again, page by page, for 6 to 13 % more CPU and 10 MB."""

    def __init__(self) -> None:
        self._seen_bytes = 0
        self._was_busy = False
        self._least_bytes: float = math.inf
        """What the process used at least since memory was given back."""

    def look(self, written_bytes: int, used_bytes: int) -> bool:
        """To be called about once a second; whether memory was given back. `written_bytes`: how much this process has
        written to its log so far; `used_bytes`: how much memory it uses, see `used_bytes`.

        Takes some milliseconds. For the first of them the interpreter goes on, as long as it needs no new memory; for
        the others see `let_go_of_libraries`."""
        busy = written_bytes - self._seen_bytes >= BUSY_BYTES
        self._seen_bytes = written_bytes
        over = self._was_busy and not busy
        self._was_busy = busy
        self._least_bytes = min(self._least_bytes, used_bytes)
        if not over and (busy or used_bytes - self._least_bytes < GROWN_BYTES):
            return False
        give_back()
        let_go_of_libraries()
        self._least_bytes = math.inf
        return True
