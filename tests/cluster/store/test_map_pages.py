"""The pages of the log's map that a process holds on to are let go; what is in them stays readable."""

import os
import sys
from pathlib import Path

import pytest

from mayfly.cluster import limits
from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.raft import Entry, EntryType
from mayfly.cluster.store.lmdb_store import LmdbLogStore

MIB = 1024 * 1024
ENTRY_BYTES = MIB // 2
ENTRIES = 96

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no /proc")


def held_bytes(store: Path) -> int:
    """How much of the map of the store's file is in this process's page tables."""
    name = str((store / "data.mdb").resolve())
    held, counting = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0]:
            counting = fields[-1] == name
        elif counting and fields[0] == "Rss:":
            held += int(fields[1]) * 1024
    return held


def append(store: LmdbLogStore, index: int, data: bytes) -> None:
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, EntryType.NORMAL, data)]
    store.write(batch)


def test_a_log_that_was_read_from_end_to_end_does_not_stay_in_the_process(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, 256 * MIB)
    payloads = [os.urandom(ENTRY_BYTES) for _ in range(ENTRIES)]
    for index, payload in enumerate(payloads, 1):
        append(store, index, payload)
    most, last = 0, ENTRIES
    for _ in range(2):
        for index, payload in enumerate(payloads, 1):
            assert store.read_entry(1, index).data == payload
            if index % 8 == 0:
                # Any write of a node has the pages let go that reading has gathered.
                last += 1
                append(store, last, b"a heartbeat's worth")
                most = max(most, held_bytes(tmp_path))
    assert most < 2 * limits.LOG_MAP_HELD_BYTES < ENTRIES * ENTRY_BYTES // 2
    store.close()


def test_a_reader_that_holds_a_page_keeps_what_is_in_it(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, 64 * MIB)
    payload = os.urandom(ENTRY_BYTES)
    append(store, 1, payload)
    with store._environment.begin(buffers=True) as transaction:
        cursor = transaction.cursor(store._tables.entries)
        assert cursor.last()
        value = cursor.value()
        for _ in range(3):
            store._pages.touched(limits.LOG_MAP_HELD_BYTES)
            store._pages.let_go_if_due()
            assert bytes(value).endswith(payload)
    store.close()
