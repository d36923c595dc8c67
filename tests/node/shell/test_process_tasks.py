"""What a node does beside its loop: it notes its members for the next start, and keeps nothing that it is done with."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.cluster.log.batch import DiskFailed, DiskFull
from mayfly.node.membership.identity import KnownMembers, decode_members
from mayfly.node.settings import NodeSettings
from mayfly.node.shell import process as process_module
from mayfly.node.shell.process import NodeProcess

BOUND_S = 30


class Store:
    """Notes what it is given; the first thing only when it may."""

    def __init__(self) -> None:
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


def a_node() -> tuple[NodeProcess, Store, Transport, Members]:
    """A process around these; to be called in a loop."""
    process, store, transport, members = NodeProcess(NodeSettings()), Store(), Transport(), Members()
    process._loop = asyncio.get_running_loop()
    process._store = cast(Any, store)
    process._transport = cast(Any, transport)
    process.identity = cast(Any, SimpleNamespace(node=1))
    process.engine = cast(
        Any, SimpleNamespace(catalog=SimpleNamespace(members=members), membership=SimpleNamespace(removed=False))
    )
    return process, store, transport, members


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def done(process: NodeProcess) -> None:
    """All that the process has begun."""
    await asyncio.wait_for(asyncio.gather(*process._tasks), BOUND_S)


def test_of_two_quick_changes_the_later_one_is_noted() -> None:
    async def scenario() -> None:
        process, store, transport, members = a_node()
        store.may_write.clear()
        for ids in ([1, 2], [1, 2, 3], [1, 3]):
            members.change(ids)
            process._members_changed()
            await until(store.writing.is_set)
        # Whoever does not wait for the write under way comes past it now.
        for _ in range(20):
            await asyncio.sleep(0)
        await process._loop.run_in_executor(None, lambda: None)
        store.may_write.set()
        await done(process)
        assert store.members.version == 3
        assert sorted(store.members.members) == [1, 3]
        assert sorted(transport.told[-1]) == [1, 3]

    asyncio.run(scenario())


def test_members_that_had_no_room_on_the_disk_are_noted_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "RETRY_FULL_DISK_S", 0.001)

    async def scenario() -> None:
        process, store, _, members = a_node()
        store.errors = [DiskFull("no room"), DiskFull("no room")]
        members.change([1, 2])
        process._members_changed()
        await done(process)
        assert sorted(store.members.members) == [1, 2]

    asyncio.run(scenario())
    assert "the members were not noted for the next start, tried again: no room" in caplog.text


def test_a_disk_that_failed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        process, store, _, members = a_node()
        store.errors = [DiskFailed("broken")]
        members.change([1, 2])
        process._members_changed()
        await done(process)
        assert store.noted == {}

    asyncio.run(scenario())
    assert "the members were not noted for the next start: broken" in caplog.text


def test_what_is_done_is_not_kept_and_what_failed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        process, store, _, members = a_node()

        async def fails() -> None:
            raise ValueError("no such thing")

        for _ in range(5):
            members.change([1, 2])
            process._members_changed()
        process._begin(fails())
        await until(lambda: not process._tasks)
        assert sorted(store.members.members) == [1, 2]

    asyncio.run(scenario())
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "fails" in record.getMessage()
    assert record.exc_info is not None and "no such thing" in str(record.exc_info[1])
