"""The pages of programs and libraries that this process holds on to.

A page of code that was looked at stays in the process's tables, sixteen neighbours with it, until the system is short
of memory: most of what a node has mapped of its libraries when it serves it needed for its start only. It is let go, as
LMDB's map is (`cluster.store.map_pages`): the data stays in the page cache, which all nodes of a machine share, and the
next look costs one soft fault for sixteen pages.

What is loaded is asked for library by library, and each is held for good before it is looked at, so that none goes
meanwhile. `dl_iterate_phdr`, which would say it at once, keeps a lock of the C library while it calls back: Python that
is called gives the interpreter to another thread now and then, and if that one loads a module both wait for ever.

Linux with 64-bit addresses, glibc from 2.36 on; elsewhere nothing happens.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

_MADV_DONTNEED: Final = 4
_DI_LINKMAP: Final = 2
_DI_PHDR: Final = 11
"""What `dlinfo` is asked."""

LOADED: Final = 1
DYNAMIC: Final = 2
"""What segments are, of those that are looked at."""
WRITABLE: Final = 2
"""In a segment's flags."""

END: Final = 0
TEXT_IS_WRITTEN: Final = 22
FLAGS: Final = 30
TEXT_IS_WRITTEN_FLAG: Final = 4
"""Entries of a dynamic segment, and one of those flags: addresses are written into the code when it is loaded."""


class Segment(ctypes.Structure):
    """Elf64_Phdr: a part of a library's file."""

    _fields_ = (
        ("kind", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64), ("physical", ctypes.c_uint64), ("file_size", ctypes.c_uint64),
        ("size", ctypes.c_uint64), ("alignment", ctypes.c_uint64),
    )  # fmt: skip


class Library(NamedTuple):
    """Where it is, and its segments as its file gives them."""

    base: int
    segments: Sequence[Segment]


class _LinkMap(ctypes.Structure):
    """The beginning of link_map (dlinfo(3))."""

    _fields_ = (("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_void_p))


Entry: Final = ctypes.c_uint64 * 2
"""Of a dynamic segment: what it is, and its value."""


_held: Final[dict[str | None, Library]] = {}
"""What is loaded for good, by the paths of the files; None is the program itself."""


def let_go_of_libraries() -> int:
    """Let go of all pages of programs and libraries that nothing can have been written to; of how many bytes."""
    found = 0

    def let_go(start: int, size: int) -> None:
        nonlocal found
        if c_library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED) == 0:
            found += size

    with suppress(OSError, AttributeError):
        c_library = _c_library()
        for_each_unwritten(let_go)
    return found


def for_each_unwritten(take: Callable[[int, int], None]) -> None:
    """Give address and size of each part of a loaded file that is `unwritten`. What is given stays loaded."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return
    for path in (None, *_files_with_code(Path("/proc/self/maps").read_text(errors="surrogateescape"))):
        if path not in _held:
            _hold(path)
    for library in _held.values():
        for start, size in unwritten(library):
            take(start, size)


def _hold(path: str | None) -> None:
    """From now on for good, if it is loaded: what has gone since, or is no library, is not."""
    with suppress(OSError, AttributeError):
        library = _described(ctypes.PyDLL(path, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)._handle)
        if library is not None:
            _held[path] = library


def _files_with_code(maps: str) -> dict[str, None]:
    """The paths of what may be executed, each once, in the text of `/proc/PID/maps` (proc(5))."""
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    return dict.fromkeys(fields[5] for fields in lines if "x" in fields[1] and len(fields) > 5 and fields[5][0] == "/")


def _described(handle: int) -> Library | None:
    """What the C library says of what it has loaded; None if it is too old to say."""
    ask = _c_library().dlinfo
    link_map, segments = ctypes.POINTER(_LinkMap)(), ctypes.POINTER(Segment)()
    if ask(ctypes.c_void_p(handle), _DI_LINKMAP, ctypes.byref(link_map)) != 0:
        return None
    count = ask(ctypes.c_void_p(handle), _DI_PHDR, ctypes.byref(segments))
    return Library(link_map.contents.base, segments[:count]) if count > 0 else None


def unwritten(library: Library) -> Iterator[tuple[int, int]]:
    """Address and size, in whole pages, of what is mapped of a library without leave to write to it."""
    base, segments = library
    if any(_text_is_written(base + each.address) for each in segments if each.kind == DYNAMIC):
        return
    page = mmap.PAGESIZE
    for each in segments:
        if each.kind == LOADED and not each.flags & WRITABLE:
            start = -(-(base + each.address) // page) * page
            end = (base + each.address + each.size) // page * page
            if start < end:
                yield start, end - start


def _text_is_written(address: int) -> bool:
    """Whether the dynamic segment at this address says so. Hardly any does today."""
    while True:
        tag, value = Entry.from_address(address)
        if tag == END:
            return False
        if tag == TEXT_IS_WRITTEN or (tag == FLAGS and value & TEXT_IS_WRITTEN_FLAG):
            return True
        address += ctypes.sizeof(Entry)


def _c_library() -> Any:
    """Its functions keep the interpreter while they run."""
    return ctypes.PyDLL(None)
