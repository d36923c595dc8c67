"""LMDB's file, read without LMDB: whether its pages fit together.

LMDB trusts its pages. Of one that a disk gave back wrongly it makes what it can: other data, or an end of the process
(it aborts, or reads beyond its map), at every start again. So the file is looked through before LMDB has it. Every
page of the trees is read, those of large values by their head: that each is what it says and is there once, that keys
ascend and stay within what leads to them, that nodes fill their page without gap or overlap, that the counts are
those that LMDB keeps, and that no free page is in use. What values hold is none of this module's business: they have
checksums of their own.

The format is that of LMDB 0.9 on a machine with 64 bits, in the machine's own order of octets (`mdb.c`, "Page
structure").
"""

import os
import struct
from collections.abc import Sequence
from typing import Final

from mayfly.cluster.log.batch import CorruptStore

META_BYTES: Final = 152
"""Of a meta page: what LMDB writes."""
META_PAGES: Final = 2

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_NO_PAGE: Final = (1 << 64) - 1

_PAGE: Final = struct.Struct("=QHHHH")  # number, padding, flags, end of the pointers, begin of the nodes
_OVERFLOW: Final = struct.Struct("=QHHI")  # number, padding, flags, count of pages
_META: Final = struct.Struct("=IIQQ")  # magic, version, address, size of the map
_TREE: Final = struct.Struct("=IHHQQQQQ")  # size of a page, flags, depth, three counts of pages, entries, root
_LAST: Final = struct.Struct("=QQ")  # last page, transaction
_NODE: Final = struct.Struct("=HHHH")  # two halves of the size, flags, size of the key
_NUMBER: Final = struct.Struct("=Q")
_PAGE_HEAD_BYTES: Final = 16
_NODE_HEAD_BYTES: Final = 8
_META_AT: Final = _PAGE_HEAD_BYTES
_TREES_AT: Final = _META_AT + _META.size
_LAST_AT: Final = _TREES_AT + 2 * _TREE.size

_IS_BRANCH: Final = 0x01
_IS_LEAF: Final = 0x02
_IS_OVERFLOW: Final = 0x04
_IS_META: Final = 0x08
_KEYS_ARE_NUMBERS: Final = 0x08
_IS_LARGE: Final = 0x01
_IS_TREE: Final = 0x02
_SMALLEST_PAGE_BYTES: Final = 512
_LARGEST_PAGE_BYTES: Final = 0x8000
_DEEPEST: Final = 32

KEY_BYTES: Final[dict[bytes, int]] = {b"entries": 12, b"states": 4, b"snapshots": 4, b"meta": 0}
"""The tables of a log and how long their keys are; 0: of any length."""


class Tree:
    """What LMDB notes of a table: where its root is, and how much there is of it."""

    __slots__ = ("branches", "depth", "entries", "flags", "leaves", "overflows", "page_bytes", "root")

    def __init__(self, record: bytes) -> None:
        page_bytes, flags, depth, branches, leaves, overflows, entries, root = _TREE.unpack(record)
        self.page_bytes: int = page_bytes
        self.flags: int = flags
        self.depth: int = depth
        self.branches: int = branches
        self.leaves: int = leaves
        self.overflows: int = overflows
        self.entries: int = entries
        self.root: int = root


class Meta:
    """A meta page: the state of one commit. `octets` is the page as LMDB wrote it."""

    __slots__ = ("free", "last_page", "main", "octets", "page_bytes", "transaction")

    def __init__(self, octets: bytes) -> None:
        self.octets: bytes = octets
        self.free: Tree = Tree(octets[_TREES_AT : _TREES_AT + _TREE.size])
        self.main: Tree = Tree(octets[_TREES_AT + _TREE.size : _LAST_AT])
        self.page_bytes: int = self.free.page_bytes
        last_page, transaction = _LAST.unpack_from(octets, _LAST_AT)
        self.last_page: int = last_page
        self.transaction: int = transaction


def read_meta(octets: bytes, place: int) -> Meta | None:
    """The meta page that stands at a place (0 or 1); None if it is not one, or not of there."""
    if len(octets) < META_BYTES:
        return None
    number, _, flags, _, _ = _PAGE.unpack_from(octets)
    magic, version, _, _ = _META.unpack_from(octets, _META_AT)
    if (number, flags, magic, version) != (place, _IS_META, _MAGIC, _VERSION):
        return None
    meta = Meta(octets[:META_BYTES])
    size = meta.page_bytes
    fits = (
        _SMALLEST_PAGE_BYTES <= size <= _LARGEST_PAGE_BYTES
        and size & (size - 1) == 0
        and (meta.free.flags, meta.main.flags) == (_KEYS_ARE_NUMBERS, 0)
        and meta.last_page >= META_PAGES - 1
        # LMDB prepares both for transaction 0; from then on they take turns.
        and (meta.transaction % 2 == place or meta.transaction == 0)
    )
    return meta if fits else None


def renumbered(meta: Meta, transaction: int) -> bytes:
    """The same state as the meta page of another transaction, in that one's place."""
    octets = bytearray(meta.octets)
    octets[: _NUMBER.size] = _NUMBER.pack(transaction % 2)
    _LAST.pack_into(octets, _LAST_AT, meta.last_page, transaction)
    return bytes(octets)


def meta_pages(descriptor: int) -> list[Meta | None]:
    """Both meta pages of an open file; None where there is none. Raises OSError."""
    # The second one is where the first one says how large a page is; if that one is damaged, where the system's is.
    first = read_meta(os.pread(descriptor, META_BYTES, 0), 0)
    page_bytes = os.sysconf("SC_PAGE_SIZE") if first is None else first.page_bytes
    return [first, read_meta(os.pread(descriptor, META_BYTES, page_bytes), 1)]


def check_pages(descriptor: int, meta: Meta) -> None:
    """Look through the state of a commit. Raises `CorruptStore` with what does not fit; OSError.

    Memory: one octet a page. Time: docs/measurements/log.md."""
    look = _Look(descriptor, meta)
    main = _Walk(look, meta.main, "the list of tables", 0, False)
    main.run()
    for name, record in main.trees:
        if name not in KEY_BYTES or len(record) != _TREE.size:
            raise CorruptStore(f"damaged, or not the log of a MayflyMQ node: it has a table {name!r}")
        tree = Tree(record)
        if tree.flags:
            raise CorruptStore(f"damaged: flags of the table {name!r}")
        _Walk(look, tree, f"table {name.decode()}", KEY_BYTES[name], False).run()
    free = _Walk(look, meta.free, "the list of free pages", _NUMBER.size, True)
    free.run()
    for _, listed in free.pairs:
        look.take_free(listed)


def read_tables(descriptor: int, meta: Meta, names: Sequence[bytes]) -> list[list[tuple[bytes, bytes]]]:
    """Keys and values of small tables in the state of a commit, whatever became of others. Raises `CorruptStore`,
    OSError."""
    look = _Look(descriptor, meta)
    main = _Walk(look, meta.main, "the list of tables", 0, False)
    main.run()
    trees = dict(main.trees)
    found: list[list[tuple[bytes, bytes]]] = []
    for name in names:
        record = trees.get(name, b"")
        if len(record) != _TREE.size:
            raise CorruptStore(f"damaged: it has no table {name!r}")
        walk = _Walk(look, Tree(record), f"table {name.decode()}", KEY_BYTES[name], False)
        walk.keep = True
        walk.run()
        found.append(walk.pairs)
    return found


class _Look:
    """The file, and which of its pages were met."""

    __slots__ = ("_descriptor", "_file_bytes", "_met", "last_page", "page_bytes")

    def __init__(self, descriptor: int, meta: Meta) -> None:
        self._descriptor = descriptor
        self.page_bytes: int = meta.page_bytes
        self.last_page: int = meta.last_page
        self._file_bytes = os.fstat(descriptor).st_size
        self._met = bytearray(meta.last_page + 1)
        self._met[0] = self._met[1] = 1

    def take_used(self, page: int, count: int, why: str) -> None:
        """So many pages from this one on hold something. Free ones may be beyond the end of the file."""
        self.take(page, count, why)
        if (page + count) * self.page_bytes > self._file_bytes:
            raise CorruptStore(
                f"cut off: it has {self._file_bytes} bytes of at least {(page + count) * self.page_bytes}"
            )

    def take(self, page: int, count: int, why: str) -> None:
        """So many pages from this one on belong to something."""
        if page + count > self.last_page + 1 or any(self._met[page : page + count]):
            raise CorruptStore(f"damaged: {why} has page {page}, which is another's or beyond the last one")
        for each in range(page, page + count):
            self._met[each] = 1

    def take_free(self, octets: bytes) -> None:
        """A list of free pages: their count, then the pages, descending."""
        count = len(octets) // _NUMBER.size - 1
        listed = struct.unpack_from(f"={count + 1}Q", octets) if count >= 0 else (0,)
        if count < 0 or listed[0] > count:
            raise CorruptStore("damaged: a list of free pages has more of them than it is long")
        before = self.last_page + 1
        for page in listed[1 : listed[0] + 1]:
            if page >= before:
                raise CorruptStore("damaged: a list of free pages is not in order, or beyond the last one")
            self.take(page, 1, "the list of free pages")
            before = page

    def read(self, page: int, most_bytes: int) -> bytes:
        """The beginning of a page."""
        octets = os.pread(self._descriptor, most_bytes, page * self.page_bytes)
        if len(octets) < most_bytes:
            raise CorruptStore(f"cut off: it has {self._file_bytes} bytes, and no page {page}")
        return octets

    def large_value(self, page: int, size: int, why: str) -> int:
        """How many pages the large value takes that begins at this one."""
        if page > self.last_page:
            raise CorruptStore(f"damaged: {why} has a value at page {page}, beyond the last one")
        number, _, flags, count = _OVERFLOW.unpack(self.read(page, _OVERFLOW.size))
        # One that was written over by a shorter one keeps its pages.
        least = (_PAGE_HEAD_BYTES - 1 + size) // self.page_bytes + 1
        if (number, flags) != (page, _IS_OVERFLOW) or not least <= count <= self.last_page:
            raise CorruptStore(f"damaged: page {page} is not the value that {why} has there")
        self.take_used(page, count, why)
        return int(count)

    def octets(self, page: int, size: int) -> bytes:
        """The content of a large value."""
        return os.pread(self._descriptor, size, page * self.page_bytes + _PAGE_HEAD_BYTES)


class _Walk:
    """Goes through one tree, from its first key to its last."""

    __slots__ = (
        "_branches", "_entries", "_key_bytes", "_leaves", "_look", "_name", "_numbered", "_overflows", "_previous",
        "_tree", "keep", "pairs", "trees",
    )  # fmt: skip

    def __init__(self, look: _Look, tree: Tree, name: str, key_bytes: int, numbered: bool) -> None:
        self._look = look
        self._tree = tree
        self._name = name
        self._key_bytes = key_bytes
        self._numbered = numbered
        """Whether keys are numbers in the machine's order of octets."""
        self.keep: bool = numbered
        self._branches = 0
        self._leaves = 0
        self._overflows = 0
        self._entries = 0
        self._previous: bytes | None = None
        self.trees: list[tuple[bytes, bytes]] = []
        """What the list of tables holds."""
        self.pairs: list[tuple[bytes, bytes]] = []
        """Keys and values, if `keep` is set."""

    def run(self) -> None:
        """Raises `CorruptStore`."""
        tree = self._tree
        if tree.root == _NO_PAGE:
            if tree.depth:
                raise CorruptStore(f"damaged: {self._name} has no root")
        elif not 0 < tree.depth <= _DEEPEST:
            raise CorruptStore(f"damaged: {self._name} is {tree.depth} pages deep")
        else:
            self._page(tree.root, 1, None, None)
        counted = (self._branches, self._leaves, self._overflows, self._entries)
        if counted != (tree.branches, tree.leaves, tree.overflows, tree.entries):
            raise CorruptStore(
                f"damaged: {self._name} has {counted} branches, leaves, overflow pages and entries, and should have "
                f"{(tree.branches, tree.leaves, tree.overflows, tree.entries)}"
            )

    def _page(self, page: int, level: int, low: bytes | None, high: bytes | None) -> None:
        """A page whose keys are from `low` on and below `high`."""
        look = self._look
        look.take_used(page, 1, self._name)
        octets = look.read(page, look.page_bytes)
        number, _, flags, lower, upper = _PAGE.unpack_from(octets)
        is_leaf = level == self._tree.depth
        count = (lower - _PAGE_HEAD_BYTES) // 2
        if (
            number != page
            or flags != (_IS_LEAF if is_leaf else _IS_BRANCH)
            or not _PAGE_HEAD_BYTES < lower <= upper <= look.page_bytes
            or lower % 2
        ):
            raise self._misfit(page)
        nodes = self._nodes(page, octets, count, upper, is_leaf)
        if is_leaf:
            self._leaves += 1
            self._leaf(page, octets, nodes, low, high)
            return
        self._branches += 1
        for place in range(count):
            at, key_end, child = nodes[place]
            first = low if place == 0 else octets[at:key_end]
            last = high
            if place + 1 < count:
                following = nodes[place + 1]
                last = octets[following[0] : following[1]]
            self._page(child, level + 1, first, last)

    def _nodes(
        self, page: int, octets: bytes, count: int, upper: int, is_leaf: bool
    ) -> list[tuple[int, int, int]]:
        """Of each node of a page where its key begins and ends; of a branch's the page it leads to, of a leaf's its
        size and flags. Together they fill the page."""
        page_bytes = self._look.page_bytes
        nodes: list[tuple[int, int, int]] = []
        spans: list[tuple[int, int]] = []
        for offset in struct.unpack_from(f"={count}H", octets, _PAGE_HEAD_BYTES):
            if offset < upper or offset + _NODE_HEAD_BYTES > page_bytes:
                raise self._misfit(page)
            low, high, flags, key_bytes = _NODE.unpack_from(octets, offset)
            key_at = offset + _NODE_HEAD_BYTES
            end = key_at + key_bytes
            if is_leaf:
                size = low | high << 16
                end += _NUMBER.size if flags & _IS_LARGE else size
                nodes.append((key_at, key_at + key_bytes, size << 16 | flags))
            else:
                nodes.append((key_at, end, low | high << 16 | flags << 32))
            spans.append((offset, end + end % 2))
        spans.sort()
        at = upper
        for start, end in spans:
            if start != at:
                raise self._misfit(page)
            at = end
        if at != page_bytes:
            raise self._misfit(page)
        return nodes

    def _leaf(
        self, page: int, octets: bytes, nodes: list[tuple[int, int, int]], low: bytes | None, high: bytes | None
    ) -> None:
        key_bytes, previous = self._key_bytes, self._previous
        for key_at, key_end, size_and_flags in nodes:
            key = octets[key_at:key_end]
            if (key_bytes and len(key) != key_bytes) or (previous is not None and not self._ascends(previous, key)):
                raise self._misfit(page)
            previous = key
            flags = size_and_flags & 0xFFFF
            size = size_and_flags >> 16
            if flags == _IS_LARGE:
                value = _NUMBER.unpack_from(octets, key_end)[0]
                self._overflows += self._look.large_value(value, size, self._name)
                if self.keep:
                    self.pairs.append((key, self._look.octets(value, size)))
            elif flags == _IS_TREE and self._tree.flags == 0 and self._name == "the list of tables":
                self.trees.append((key, octets[key_end : key_end + size]))
            elif flags:
                raise self._misfit(page)
            elif self.keep:
                self.pairs.append((key, octets[key_end : key_end + size]))
        first = octets[nodes[0][0] : nodes[0][1]]
        if (low is not None and self._ascends(first, low)) or (high is not None and not self._ascends(key, high)):
            raise self._misfit(page)
        self._previous = previous
        self._entries += len(nodes)

    def _ascends(self, key: bytes, following: bytes) -> bool:
        """Whether a key comes before another one."""
        if self._numbered:
            if len(key) != _NUMBER.size or len(following) != _NUMBER.size:
                return False
            return int(_NUMBER.unpack(key)[0]) < int(_NUMBER.unpack(following)[0])
        return key < following

    def _misfit(self, page: int) -> CorruptStore:
        return CorruptStore(f"damaged: page {page} is not a page of {self._name}")
