"""What the log on disk costs: python -m tests.bench.log_store [FOLDER]

Writes by size and number of groups, alone and beside a thread that computes (as the event loop does), with
the usual and a shorter switch interval; reading back; loading; and what a long run with entries of mixed
sizes, mostly first in, first out, does to writes and to the file.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.log.group_log import EntryCache, GroupLog
from mayfly.cluster.raft import NO_LIMIT, ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.lmdb_store import LmdbLogStore

MIB = 1024 * 1024


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


class Filler:
    """Writes entries to groups, each behind the last."""

    def __init__(self, store: LmdbLogStore) -> None:
        self.store = store
        self.last: dict[int, int] = {}

    def batch(self, groups: int, size_bytes: int) -> WriteBatch:
        batch = WriteBatch()
        for group in range(groups):
            index = self.last[group] = self.last.get(group, 0) + 1
            write = batch.group(group)
            write.entries = [Entry(1, index, 0, bytes(size_bytes))]
            write.hard_state = HardState(1, 1, index - 1)
        return batch

    def time_writes(self, groups: int, size_bytes: int, count: int) -> list[float]:
        """Seconds of each write."""
        times: list[float] = []
        for _ in range(count):
            batch = self.batch(groups, size_bytes)
            start = time.perf_counter()
            self.store.write(batch)
            times.append(time.perf_counter() - start)
        return times


def writes(folder: Path, busy: bool, switch_seconds: float = 0.005) -> None:
    sys.setswitchinterval(switch_seconds)
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(200))

    thread = threading.Thread(target=compute)
    store = LmdbLogStore(folder / f"writes-{busy}-{switch_seconds}", 8 << 30)
    filler = Filler(store)
    if busy:
        thread.start()
    for groups, size_bytes in ((1, 200), (1, 16_000), (1, 100_000), (16, 200), (16, 16_000), (1, 1_000_000)):
        times = filler.time_writes(groups, size_bytes, 200)
        beside = f", busy thread, switch {switch_seconds * 1e3} ms" if busy else ""
        print(
            f"write {groups:2} x {size_bytes:7} bytes{beside}: p50 {median(times) * 1e3:6.2f} ms,"
            f" p99 {sorted(times)[-3] * 1e3:6.2f} ms,"
            f" {groups * size_bytes * len(times) / sum(times) / 1e6:6.1f} MB/s"
        )
    stop.set()
    if busy:
        thread.join()
    store.close()


def reads(folder: Path) -> None:
    store = LmdbLogStore(folder / "reads", 8 << 30)
    entries = [Entry(1 + index // 1000, index, 0, bytes(1000)) for index in range(1, 100_001)]
    for start in range(0, len(entries), 5000):
        batch = WriteBatch()
        batch.group(1).entries = entries[start : start + 5000]
        store.write(batch)
    store.close()
    begin = time.perf_counter()
    store = LmdbLogStore(folder / "reads", 8 << 30)
    stored = store.load()[1]
    print(f"open and load 100 000 entries of 1000 bytes: {time.perf_counter() - begin:.2f} s")
    begin = time.perf_counter()
    for index in range(1, 20_001):
        store.read_entry(1, index)
    print(f"read an entry of 1000 bytes: {(time.perf_counter() - begin) / 20_000 * 1e6:.1f} us")
    log = GroupLog(1, store.read_entry, EntryCache(1 << 30))
    log.load(stored)
    log.entries(1, 20_001, NO_LIMIT)
    begin = time.perf_counter()
    for low in range(1, 20_001, 20):
        log.entries(low, low + 20, NO_LIMIT)
    print(f"an entry from the cache, 20 at a time: {(time.perf_counter() - begin) / 20_000 * 1e6:.2f} us")
    batch = WriteBatch()
    metadata = SnapshotMetadata(90_000, 90, ConfState([1]))
    batch.group(1).snapshot = StoredSnapshot(metadata, bytes(10 * MIB))
    batch.group(1).release = [index for index in range(1, 90_001) if index % 10]
    begin = time.perf_counter()
    store.write(batch)
    print(f"snapshot of 10 MiB and release of 81 000 entries: {time.perf_counter() - begin:.2f} s")
    store.close()


def long_run(folder: Path) -> None:
    """Ten times the file's size goes through it, while about half of it is live."""
    store = LmdbLogStore(folder / "long", 256 * MIB)
    random = Random(1)
    live: list[tuple[int, int]] = []
    live_bytes, index, times, written = 0, 0, [], 0
    while written < 2560 * MIB:
        batch = WriteBatch()
        write = batch.group(1)
        index += 1
        size_bytes = random.choice((300, 3_000, 30_000, 300_000))
        write.entries = [Entry(1, index, 0, bytes(size_bytes))]
        live.append((index, size_bytes))
        live_bytes += size_bytes
        written += size_bytes
        if index % 50 == 0:
            metadata = SnapshotMetadata(index - 1, 1, ConfState([1]))
            write.snapshot = StoredSnapshot(metadata, bytes(10_000))
        while live_bytes > 128 * MIB:
            # Mostly the oldest, sometimes one in the middle, as consumers with requeues do it.
            place = 0 if random.random() < 0.8 else random.randrange(len(live) // 2)
            dead, size_bytes = live.pop(place)
            live_bytes -= size_bytes
            write.release.append(dead)
        write.release = [dead for dead in write.release if dead <= index // 50 * 50 - 1]
        start = time.perf_counter()
        store.write(batch)
        times.append(time.perf_counter() - start)
    half = len(times) // 2
    print(
        f"mixed sizes, 2.5 GiB through 256 MiB: p50 {median(times[:half]) * 1e3:.2f} ms then"
        f" {median(times[half:]) * 1e3:.2f} ms, p99 {sorted(times)[-len(times) // 100] * 1e3:.1f} ms,"
        f" used {store._room.used_bytes() / MIB:.0f} MiB for {live_bytes / MIB:.0f},"
        f" free {store.free_bytes() / MIB:.0f}"
    )
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        writes(Path(name), busy=False)
        writes(Path(name), busy=True)
        writes(Path(name), busy=True, switch_seconds=0.0005)
        reads(Path(name))
        long_run(Path(name))
