"""The pages of programs and libraries that this process holds on to.

A page of code that was looked at stays in the process's tables, sixteen neighbours with it, until the system is short
of memory: most of what a node has mapped of its libraries when it serves it needed for its start only. It is let go, as
LMDB's map is (`cluster.store.map_pages`): the data stays in the page cache, which all nodes of a machine share, and the
next look costs one soft fault for sixteen pages.

Linux with 64-bit addresses; elsewhere nothing happens.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

_MADV_DONTNEED: Final = 4
_OF_THE_KERNEL: Final = b"linux-"
"""So the names of what it maps into every process begin."""

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


class Library(ctypes.Structure):
    """dl_phdr_info, as far as it is looked at."""

    _fields_ = (
        ("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("segments", ctypes.POINTER(Segment)),
        ("count", ctypes.c_uint16),
    )  # fmt: skip


Entry: Final = ctypes.c_uint64 * 2
"""Of a dynamic segment: what it is, and its value."""
_Look: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Library), ctypes.c_size_t, ctypes.c_void_p)


def let_go_of_libraries() -> int:
    """Let go of all pages of programs and libraries that nothing can have been written to; of how many bytes.

    It keeps the interpreter for the 3 to 5 ms that it takes: the C library's lock is held meanwhile, and whoever loads
    a module waits for that one with the interpreter in hand."""
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
    """Give address and size of each part of a loaded file that is `unwritten`. None is loaded or goes meanwhile."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return

    def look(library: Any, _size: int, _nothing: object) -> int:
        for start, size in unwritten(library.contents):
            take(start, size)
        return 0

    # A system that lets nobody make code at run time does not let this be called.
    with suppress(OSError, AttributeError, MemoryError):
        _c_library().dl_iterate_phdr(_Look(look), None)


def unwritten(library: Library) -> Iterator[tuple[int, int]]:
    """Address and size, in whole pages, of what is mapped of a library without leave to write to it."""
    if library.name.startswith(_OF_THE_KERNEL):
        return
    base, segments = library.base, library.segments[: library.count]
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
