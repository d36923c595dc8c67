"""LMDB's pages as they are read without LMDB: what LMDB writes fits together, and what does not is told."""

import os
import struct
from pathlib import Path
from random import Random

import lmdb
import pytest

from mayfly.cluster.log.batch import CorruptStore
from mayfly.cluster.store.lmdb_file import Meta, check_pages, meta_pages
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from tests.cluster.store import flips


def newest(file: Path) -> Meta:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        pages = [page for page in meta_pages(descriptor) if page is not None]
    finally:
        os.close(descriptor)
    return max(pages, key=lambda page: page.transaction)


def check(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        check_pages(descriptor, newest(file))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_lmdb_writes_fits_together(in_memory: Path, seed: int) -> None:
    """Also where the last pages of the file were freed before they were ever written."""
    random = Random(seed)
    with lmdb.open(str(in_memory), map_size=1 << 28, max_dbs=4, sync=False, metasync=False) as environment:
        tables = {name: environment.open_db(name) for name in (b"entries", b"states", b"snapshots", b"meta")}
        for _ in range(60):
            with environment.begin(write=True) as transaction:
                for _ in range(random.randrange(1, 120)):
                    name = random.choice((b"entries", b"entries", b"states", b"snapshots"))
                    length, numbers = (12, 4000) if name == b"entries" else (4, 60)
                    key = random.randrange(numbers).to_bytes(length, "big")
                    if random.random() < 0.55:
                        size = random.choice((0, 1, 30, 100, 900, 2000, 2100, 5000, 30_000))
                        transaction.put(key, random.randbytes(size), db=tables[name])
                    else:
                        transaction.delete(key, db=tables[name])
            environment.sync(True)
            check(in_memory / "data.mdb")


def test_a_free_page_that_is_in_use_or_listed_twice_is_told(in_memory: Path) -> None:
    """LMDB would write over what it holds."""
    store = LmdbLogStore(in_memory, flips.MAP_BYTES)
    flips.fill(store, Random(1))
    store.close()
    file = in_memory / "data.mdb"
    with lmdb.open(str(in_memory), map_size=flips.MAP_BYTES, max_dbs=4) as environment:
        last_page = environment.info()["last_pgno"]
    root = newest(file).free.root
    octets = file.read_bytes()
    page = octets[root * flips.PAGE_BYTES : (root + 1) * flips.PAGE_BYTES]
    count = (struct.unpack_from("=H", page, 12)[0] - 16) // 2
    told = 0
    for offset in struct.unpack_from(f"={count}H", page, 16):
        flags, key_bytes = struct.unpack_from("=HH", page, offset + 4)
        assert (flags, key_bytes) == (0, 8)
        first = offset + 16 + 8
        for place in range(first, first + 8 * struct.unpack_from("=Q", page, offset + 16)[0], 8):
            listed = struct.unpack_from("=Q", page, place)[0]
            assert listed <= last_page
            for bit in range(14):
                _put(file, root * flips.PAGE_BYTES + place, struct.pack("=Q", listed ^ 1 << bit))
                with pytest.raises(CorruptStore, match="free pages"):
                    check(file)
                told += 1
            _put(file, root * flips.PAGE_BYTES + place, struct.pack("=Q", listed))
    assert told
    check(file)


def _put(file: Path, place: int, octets: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(octets)


def test_a_file_without_its_last_page_that_is_in_use_is_cut_off(in_memory: Path) -> None:
    store = LmdbLogStore(in_memory, flips.MAP_BYTES)
    flips.fill(store, Random(2))
    store.close()
    file = in_memory / "data.mdb"
    os.truncate(file, 100 * flips.PAGE_BYTES)
    with pytest.raises(CorruptStore, match=r"cut off: it has 409600 bytes"):
        check(file)
