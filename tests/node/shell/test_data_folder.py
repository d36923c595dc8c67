"""The names of what a node keeps about itself, and how it looks: an earlier node's is read, and an earlier one reads
this one's. Hooks beside a node and operators know the names, too."""

import os
from pathlib import Path
from typing import Final

import pytest

from mayfly.node.membership.identity import Identity, KnownMembers, MalformedIdentity
from mayfly.node.shell.data_folder import DataFolder, OwnRecord, is_own
from mayfly.node.shell.process_clock import kept_clock
from simulation.cluster.memory_store import MemoryStore

IDENTITY: Final = Identity("blue", 2, "two", "a1b2", 16, 3, "", True)
MEMBERS: Final = KnownMembers(7, {1: ("one", "h:1"), 2: ("two", "h:2")}, {1: "c3d4"}, {2: 9})

STORED: Final = {
    "store": b"a1b2",
    "starts": b"28000000",
    "level": b"3",
    "unproven": b"1",
    "identity": b'{"cluster":"blue","node":2,"name":"two","store":"a1b2","shards":16,"replication_factor":3,'
    b'"founded":"","joined":true}',
    "members": b'{"version":7,"members":{"1":["one","h:1"],"2":["two","h:2"]},"stores":{"1":"c3d4"},"starts":{"2":9}}',
}


class Metadata(MemoryStore):
    """Notes under which keys something is kept, in this order."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def put_meta(self, key: str, value: bytes) -> None:
        self.keys.append(key)
        super().put_meta(key, value)


def test_what_is_written_into_the_metadata() -> None:
    store = Metadata()
    record = OwnRecord(store)
    record.keep_store_name("a1b2")
    record.keep_starts(28_000_000)
    record.keep_level(3)
    record.begin_unproven()
    record.arrived(IDENTITY, MEMBERS)
    assert {key: store.get_meta(key) for key in STORED} == STORED
    assert store.keys[-2:] == ["members", "identity"], "who has an identity knows members"
    record.keep_level(3)
    assert store.keys.count("level") == 1, "what is known already costs no write"
    record.keep_proven()
    record.keep_proven()
    assert store.get_meta("unproven") == b"" and store.keys.count("unproven") == 2


def test_what_is_read_from_it() -> None:
    store = MemoryStore()
    record = OwnRecord(store)
    assert (record.identity(), record.members(), record.level()) == (None, None, None)
    assert (record.starts(), record.is_unproven()) == (0, False)
    for key, value in STORED.items():
        store.put_meta(key, value)
    assert (record.identity(), record.members(), record.level()) == (IDENTITY, MEMBERS, 3)
    assert (record.starts(), record.is_unproven(), record.store_name()) == (28_000_000, True, "a1b2")
    store.put_meta("identity", b"{}")
    with pytest.raises(MalformedIdentity):
        record.identity()


def test_starts_before_are_known_as_far_as_every_version_that_counted_them_kept_them() -> None:
    record = OwnRecord(MemoryStore())
    assert record.earlier_starts() == ()
    for starts in range(7, 200):
        record.keep_starts(starts)
    assert record.earlier_starts() == tuple(range(100, 200))
    store = MemoryStore()
    record = OwnRecord(store)
    record.keep_starts(7)
    store.put_meta("starts", b"9")
    assert record.earlier_starts() == (9,), "an earlier version was started in between, perhaps more than once"


def test_data_has_a_name_from_the_first_question_on() -> None:
    store = MemoryStore()
    name = OwnRecord(store).store_name()
    assert len(name) == 16 and OwnRecord(store).store_name() == name
    assert OwnRecord(MemoryStore()).store_name() != name


def test_the_files_of_a_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    origin_ns = kept_clock(folder, "boot-1").origin_ns
    token = folder.write_own_token()
    folder.keep_ahead("boot-1", origin_ns, {0: (3, 9_000), 7: (5, 3_600_000)})
    folder.join_again()
    assert {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)} == {
        "clock": f"boot-1 {origin_ns}\n", "own-token": f"{token}\n", "join-again": "",
        "clocks-ahead": f"boot-1 {origin_ns}\n0 3 9000\n7 5 3600000\n",
    }  # fmt: skip
    assert (folder.log, folder.snapshots) == (tmp_path / "log", tmp_path / "snapshots")
    for name in ("log", "snapshots", "log.given-up", "snapshots.given-up", "process2", *os.listdir(tmp_path)):
        assert is_own(name), name
    for name in ("clock.new", "clocks-ahead.new", "own-token.unfinished"):
        assert is_own(name), f"{name}: what a crash may leave is the node's as well"
    assert not any(map(is_own, ("lost+found", "process", "processed", "notes")))


def test_who_has_arrived_joins_no_more(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "log.given-up").mkdir()
    folder.join_again()
    assert folder.joins_again()
    folder.arrived()
    assert not folder.joins_again() and not os.listdir(tmp_path)
