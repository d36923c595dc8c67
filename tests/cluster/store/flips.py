"""One flipped bit in a log's `data.mdb`, and what becomes of the log: for tests that run this as a program.

A page that is wrong may end the process that reads it. So each range of seeds has a process of its own, and a seed
that is not reported is one that ended it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from mayfly.cluster.log.batch import CorruptEntry, MissingEntry, StoreDamaged, StoredGroup, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.lmdb_file import meta_pages
from mayfly.cluster.store.lmdb_store import LmdbLogStore

MAP_BYTES: Final = 64 << 20
PAGE_BYTES: Final = 4096
GROUPS: Final = 6
KINDS: Final = ("meta", "branch", "leaf", "overflow", "free list")

Shown = tuple[dict[int, StoredGroup], dict[tuple[int, int], bytes | str], bytes | None]


def fill(store: LmdbLogStore, random: Random) -> None:
    """A history with entries of all sizes, snapshots, releases, votes."""
    for number in range(1, GROUPS):
        batch = WriteBatch()
        write = batch.group(number)
        write.install = True
        write.snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1, 2, 3])), b"begin")
        write.hard_state = HardState(1, 0, 1)
        store.write(batch)
    store.put_meta("identity", b"cluster-id/3")
    for _ in range(40):
        go_on(store, random)


def go_on(store: LmdbLogStore, random: Random) -> None:
    """One more batch: all groups append, some take a snapshot and release what is below it."""
    batch = WriteBatch()
    for number in range(1, GROUPS):
        write = batch.group(number)
        begin, last = store.extent(number)
        sizes = [random.choice((0, 40, 300, 1500, 5000, 20_000)) for _ in range(random.randrange(1, 12))]
        write.entries = [Entry(2, last + 1 + place, 0, random.randbytes(size)) for place, size in enumerate(sizes)]
        write.hard_state = HardState(2, 1 + random.randrange(3), last)
        if random.random() < 0.2 and last > begin + 3:
            at = random.randrange(begin + 1, last)
            state = random.randbytes(random.choice((50, 3000, 9000)))
            write.snapshot = StoredSnapshot(SnapshotMetadata(at, 2, ConfState([1, 2, 3])), state)
            write.release = [index for index in range(begin, at) if random.random() < 0.7]
    store.write(batch)


def shown(store: LmdbLogStore) -> Shown:
    """All that a store shows."""
    groups = store.load()
    entries: dict[tuple[int, int], bytes | str] = {}
    for number, group in groups.items():
        for index in [*group.retained, *[index for index, _ in group.entries]]:
            try:
                entries[number, index] = store.read_entry(number, index).data
            except (CorruptEntry, MissingEntry) as error:
                entries[number, index] = type(error).__name__
    return groups, entries, store.get_meta("identity")


class Pages(NamedTuple):
    """Which pages of a file are what. Not by the code under test: free pages still look like what they were."""

    of_kind: dict[str, list[int]]


def classified(content: bytes, free: list[int]) -> Pages:
    """Pages of the newest commit by kind; `free` are those that hold lists of free pages."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    found["meta"], found["free list"] = [0, 1], free
    for page in range(2, len(content) // PAGE_BYTES):
        number = int.from_bytes(content[page * PAGE_BYTES : page * PAGE_BYTES + 8], sys.byteorder)
        flags = int.from_bytes(content[page * PAGE_BYTES + 10 : page * PAGE_BYTES + 12], sys.byteorder)
        kind = {1: "branch", 2: "leaf", 4: "overflow"}.get(flags)
        if number == page and kind is not None and page not in free:
            found[kind].append(page)
    return Pages(found)


def free_list_root(folder: Path) -> list[int]:
    """The page with which the list of free pages begins."""
    descriptor = os.open(folder / "data.mdb", os.O_RDONLY)
    try:
        newest = max((meta for meta in meta_pages(descriptor) if meta is not None), key=lambda meta: meta.transaction)
    finally:
        os.close(descriptor)
    return [newest.free.root]


def place_to_flip(pages: Pages, random: Random) -> tuple[str, int, int]:
    """Kind, octet and bit. Half of them in the head of a page or its pointers, where they do most."""
    kind = random.choice([kind for kind in KINDS if pages.of_kind[kind]])
    page = random.choice(pages.of_kind[kind])
    within = {"meta": 152, "overflow": 16}.get(kind, 60)
    offset = random.randrange(within if random.random() < 0.5 or kind == "meta" else PAGE_BYTES)
    return kind, page * PAGE_BYTES + offset, random.randrange(8)


def wrong(expected: Shown, found: Shown) -> str:
    """What is shown that was never written, and not told to be damaged; "" for nothing."""
    groups, entries, identity = found
    if identity != expected[2]:
        return f"identity {identity!r}"
    if set(groups) != set(expected[0]):
        return f"groups {sorted(groups)}"
    for number, group in groups.items():
        before = expected[0][number]
        if group.hard_state != before.hard_state:
            return f"hard state of group {number}"
        if not group.damage and (group.snapshot, group.entries) != (before.snapshot, before.entries):
            return f"log of group {number}"
        if not group.damage and group.retained != before.retained:
            return f"retained entries of group {number}"
    for key, data in entries.items():
        if data not in (expected[1].get(key), "CorruptEntry"):
            return f"entry {key}"
    return ""


def outcome(folder: Path, expected: Shown, random: Random) -> str:
    """What opening a log comes to, and going on with it."""
    try:
        store = LmdbLogStore(folder, MAP_BYTES)
    except StoreDamaged:
        return "refused"
    try:
        found = shown(store)
        mistake = wrong(expected, found)
        if mistake:
            return f"WRONG: {mistake}"
        told = any(group.damage for group in found[0].values()) or "CorruptEntry" in found[1].values()
        # As the caller would: what is damaged is not gone on with.
        for _ in range(0 if told else 6):
            go_on(store, random)
        after = shown(store)
    finally:
        store.close()
    try:
        store = LmdbLogStore(folder, MAP_BYTES)
    except StoreDamaged:
        return "WRONG: refused after going on"
    try:
        mistake = wrong(after, shown(store))
        return f"WRONG: after going on: {mistake}" if mistake else "told" if told else "same"
    finally:
        store.close()


def main() -> None:
    """`flips FOLDER FIRST LAST`: a line for each seed."""
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    content = (folder / "data.mdb").read_bytes()
    pages = classified(content, free_list_root(folder))
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        whole = Path(scratch) / "whole"
        shutil.copytree(folder, whole)
        store = LmdbLogStore(whole, MAP_BYTES)
        expected = shown(store)
        store.close()
        for seed in range(first, last):
            random = Random(seed)
            kind, at, bit = place_to_flip(pages, random)
            flipped = Path(scratch) / "flipped"
            shutil.copytree(folder, flipped)
            with (flipped / "data.mdb").open("r+b") as file:
                file.seek(at)
                file.write(bytes((content[at] ^ 1 << bit,)))
            print(f"{seed} {kind} {at}.{bit}: ", end="", flush=True)
            try:
                print(outcome(flipped, expected, random), flush=True)
            except Exception as error:
                print(f"RAISED {type(error).__name__}: {error}", flush=True)
            shutil.rmtree(flipped)


if __name__ == "__main__":
    main()
