"""The log file's last commit, in a second place.

LMDB has two meta pages, which take turns. One that is lost, or is what it was two commits ago, is no damage to LMDB:
it goes on from the other one, and what was confirmed with the last commit is gone without a trace. So each commit's
meta page is put down once more, synced, in a file of its own, before anybody is told that the commit is on disk. At
start the two are compared. A page that is missing in the log file is put back: nothing has been written since to the
pages it leads to.

The file has a part for each of the two, as far apart as a disk may tear or lose at once. A part has the meta page, a
checksum of LMDB's table `meta` (what it holds has no checksums of its own) as of that commit, and a checksum of the
part. A crash between a commit and its note leaves a commit that nobody was told of, and no note of it.
"""

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mayfly.cluster.log.batch import CorruptStore
from mayfly.cluster.store.lmdb_file import META_BYTES, Meta, check_pages, meta_pages, read_meta, renumbered

FILE_NAME: Final = "last-commit"

_MAGIC: Final = b"mayfly commit\0\0\0"
_VERSION: Final = 1
_NOTE: Final = struct.Struct(f"=16sII{META_BYTES}s")  # magic, version, checksum of the table, meta page
_CHECKSUM: Final = struct.Struct("=I")
_PART_BYTES: Final = 4096
_PARTS: Final = 2
_TOGETHER: Final = "the files of this folder belong together: restore all of them from one copy"


class LastCommit:
    """The file, open. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Opens the file, or makes it. Raises OSError."""
        self._path = folder / FILE_NAME
        # Blocks that were written once need no change of the file system's own records when they are synced.
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size_bytes = os.fstat(self._descriptor).st_size
            if size_bytes < _PARTS * _PART_BYTES:
                os.pwrite(self._descriptor, bytes(_PARTS * _PART_BYTES - size_bytes), size_bytes)
                os.fsync(self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise

    def notes(self) -> list[tuple[Meta, int]]:
        """What is noted and can be read: meta pages with the table's checksum, the last one first. Raises OSError."""
        found: list[tuple[Meta, int]] = []
        for place in range(_PARTS):
            part = os.pread(self._descriptor, _NOTE.size + _CHECKSUM.size, place * _PART_BYTES)
            if len(part) < _NOTE.size + _CHECKSUM.size:
                continue
            magic, version, table_checksum, octets = _NOTE.unpack_from(part)
            checksum = _CHECKSUM.unpack_from(part, _NOTE.size)[0]
            meta = read_meta(octets, place)
            if (magic, version) == (_MAGIC, _VERSION) and checksum == zlib.crc32(part[: _NOTE.size]) and meta:
                found.append((meta, table_checksum))
        return sorted(found, key=lambda each: -each[0].transaction)

    def note(self, meta: Meta, table_checksum: int) -> None:
        """Put down durably that this commit is on disk. Raises OSError."""
        part = _NOTE.pack(_MAGIC, _VERSION, table_checksum, meta.octets)
        part += _CHECKSUM.pack(zlib.crc32(part))
        os.pwrite(self._descriptor, part, meta.transaction % _PARTS * _PART_BYTES)
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def clear(self) -> None:
        """The log begins anew. Raises OSError."""
        if self.notes():
            os.pwrite(self._descriptor, bytes(_PARTS * _PART_BYTES), 0)
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._descriptor)


class CheckedFile(NamedTuple):
    """What a look at the file came to."""

    table_checksum: int | None
    """What is noted of its table `meta`; None: nothing."""
    mended: str
    """What was put back; "": nothing."""


def checked(file: Path, last: LastCommit) -> CheckedFile:
    """Look through a log file before LMDB has it (`lmdb_file`), and put its last meta page back if that is lost.

    Raises `CorruptStore` for a file that can't be used, which is left as it is; OSError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        pages = meta_pages(descriptor)
        notes = last.notes()
        meta = _wanted(pages, [note for note, _ in notes])
        try:
            check_pages(descriptor, meta)
        except CorruptStore as misfit:
            there = [page for page in pages if page is not None]
            if all(page.octets != meta.octets for page in there) and any(_fits(descriptor, page) for page in there):
                text = f"of another moment than {FILE_NAME}, or of another log ({misfit}); {_TOGETHER}"
                raise CorruptStore(text) from None
            raise
        mended = _put_back(descriptor, pages, meta)
    finally:
        os.close(descriptor)
    sums = [table_checksum for note, table_checksum in notes if note.octets == meta.octets]
    return CheckedFile(sums[0] if sums else None, mended)


def _fits(descriptor: int, meta: Meta) -> bool:
    try:
        check_pages(descriptor, meta)
    except CorruptStore:
        return False
    return True


def _wanted(pages: list[Meta | None], notes: list[Meta]) -> Meta:
    """The commit to go on from, of those that the meta pages and the notes tell of. Raises `CorruptStore`."""
    there = sorted([page for page in pages if page is not None], key=lambda page: -page.transaction)
    # Of a file that was only prepared both are 0.
    in_turn = len(there) == _PARTS and there[0].transaction - there[1].transaction in (0, 1)
    if not notes:
        if in_turn:
            return there[0]
        what = "one of its two meta pages is lost, and what was written last may be" if there else "it has no meta page"
        raise CorruptStore(f"damaged, or not the log of a MayflyMQ node: {what}")
    noted = notes[0]
    if not there or there[0].transaction <= noted.transaction:
        if there and there[0].transaction < noted.transaction - 1:
            raise CorruptStore(
                f"of an earlier moment than {FILE_NAME}: its last commit is {there[0].transaction}, but "
                f"{noted.transaction} was confirmed; {_TOGETHER}"
            )
        return noted
    newest = there[0]
    if any(renumbered(note, newest.transaction) == newest.octets for note in notes):
        return noted  # No commit leaves all roots where they were: it is an earlier one with a damaged number.
    # One more than was noted: the process ended before anybody was told. Many more, in turn: a release without notes.
    return newest if in_turn or newest.transaction == noted.transaction + 1 else noted


def _put_back(descriptor: int, pages: list[Meta | None], meta: Meta) -> str:
    """Have LMDB find this commit, and in the other place what it takes for the one before; what was done."""
    if meta.transaction == 0:
        return ""
    place = meta.transaction % _PARTS
    page, other = pages[place], pages[1 - place]
    wrong = page is None or page.octets != meta.octets
    odd = other is None or other.transaction != meta.transaction - 1
    if wrong:
        os.pwrite(descriptor, meta.octets, place * meta.page_bytes)
    if odd:
        # LMDB reads it only to see that it is older; the next commit goes there.
        os.pwrite(descriptor, renumbered(meta, meta.transaction - 1), (1 - place) * meta.page_bytes)
    if not (wrong or odd):
        return ""
    os.fsync(descriptor)
    which = "last commit" if wrong else "last commit but one"
    return f"the meta page of the {which} was lost, and is there again (commit {meta.transaction}, from {FILE_NAME})"
