"""What a node does beside its loop: it notes its members for the next start, and keeps nothing that it is done with."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.cluster.log.batch import DiskFailed, DiskFull
from mayfly.node.membership.identity import KnownMembers, decode_members
from mayfly.node.shell import following as following_module
from mayfly.node.shell.data_folder import OwnRecord
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.following import Following
from mayfly.node.shell.tasks import Tasks

BOUND_S = 30


class Store:
    """Notes what it is given; the first thing only when it may."""

    def __init__(self, known: KnownMembers) -> None:
        self._known = known
        self.noted: dict[str, bytes] = {}
        self.writing = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()
        self.errors: list[Exception] = []

    def put_meta(self, key: str, value: bytes) -> None:
        if not self.writing.is_set():
            self.writing.set()
            assert self.may_write.wait(BOUND_S)
        if self.errors:
            raise self.errors.pop(0)
        self.noted[key] = value

    def get_meta(self, key: str) -> bytes | None:
        return self._known.encode() if key == "members" else None

    @property
    def members(self) -> KnownMembers:
        return decode_members(self.noted["members"])


class Transport:
    """Whom it was told to be connected to."""

    def __init__(self) -> None:
        self.told: list[dict[int, str]] = []

    def peers(self) -> dict[int, str]:
        return {}

    async def set_peers(self, peers: dict[int, str]) -> None:
        self.told.append(peers)
        await asyncio.sleep(0)


class Record:
    def __init__(self, id: int) -> None:
        self.id, self.name, self.address, self.state, self.store = id, f"node{id}", f"host{id}:1", "member", ""


class Members:
    """The members of a catalog."""

    def __init__(self) -> None:
        self.version = 0
        self.ids: list[int] = []

    def change(self, ids: list[int]) -> None:
        self.version, self.ids = self.version + 1, ids

    def all(self) -> list[Record]:
        return [Record(id) for id in self.ids]

    with_replicas = all

    def get(self, id: int) -> Record | None:
        return None


class Node:
    """What follows these; to be made in a loop."""

    def __init__(self, starts: dict[int, int] | None = None) -> None:
        """`starts` are known from before."""
        self.store, self.transport, self.members = Store(KnownMembers(0, {}, {}, starts or {})), Transport(), Members()
        self.starts: dict[int, int] = {}
        self.tasks = Tasks(asyncio.get_running_loop())
        engine = SimpleNamespace(
            node_id=1, catalog=SimpleNamespace(members=self.members),
            membership=SimpleNamespace(removed=False, starts=self.starts),
        )  # fmt: skip
        self.following = Following(
            cast(Any, engine), "node1", OwnRecord(cast(Any, self.store)), cast(Any, self.transport), Ending(Path()),
            self.tasks, lambda: None, 0,
        )  # fmt: skip

    def change(self, ids: list[int]) -> None:
        self.members.change(ids)
        self.following.members_changed()

    async def done(self) -> None:
        """All that it has begun."""
        await asyncio.wait_for(asyncio.gather(*self.tasks.under_way), BOUND_S)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_of_two_quick_changes_the_later_one_is_noted() -> None:
    async def scenario() -> None:
        node = Node()
        store, transport = node.store, node.transport
        store.may_write.clear()
        for ids in ([1, 2], [1, 2, 3], [1, 3]):
            node.change(ids)
            await until(store.writing.is_set)
        # Whoever does not wait for the write under way comes past it now.
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        store.may_write.set()
        await node.done()
        assert store.members.version == 3
        assert sorted(store.members.members) == [1, 3]
        assert sorted(transport.told[-1]) == [1, 3]

    asyncio.run(scenario())


def test_starts_are_noted_and_no_earlier_ones_while_the_catalog_catches_up() -> None:
    async def scenario() -> None:
        node = Node({2: 70, 3: 71})
        for starts, noted in (({}, {1: 0, 2: 70}), ({1: 60, 2: 61}, {1: 60, 2: 70}), ({2: 80}, {1: 60, 2: 80})):
            node.starts.update(starts)
            node.change([1, 2])
            await node.done()
            assert node.store.members.starts == noted

    asyncio.run(scenario())


def test_members_that_had_no_room_on_the_disk_are_noted_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following_module, "RETRY_FULL_DISK_S", 0.001)

    async def scenario() -> None:
        node = Node()
        store = node.store
        store.errors = [DiskFull("no room"), DiskFull("no room")]
        node.change([1, 2])
        await node.done()
        assert sorted(store.members.members) == [1, 2]

    asyncio.run(scenario())
    assert "the members were not noted for the next start, tried again: no room" in caplog.text


def test_a_disk_that_failed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        node = Node()
        store = node.store
        store.errors = [DiskFailed("broken")]
        node.change([1, 2])
        await node.done()
        assert store.noted == {}

    asyncio.run(scenario())
    assert "the members were not noted for the next start: broken" in caplog.text


def test_what_is_done_is_not_kept_and_what_failed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        node = Node()
        store = node.store

        async def fails() -> None:
            raise ValueError("no such thing")

        for _ in range(5):
            node.change([1, 2])
        node.tasks.begin(fails())
        await until(lambda: not node.tasks.under_way)
        assert sorted(store.members.members) == [1, 2]

    asyncio.run(scenario())
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "fails" in record.getMessage()
    assert record.exc_info is not None and "no such thing" in str(record.exc_info[1])
