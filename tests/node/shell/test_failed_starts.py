"""A node that can't start leaves nothing open in its process, whichever step fails, and starts once the fault is gone.

What is looked at: files of the data folder, listening sockets, threads.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest

from mayfly.cluster.log.batch import CorruptStore, DiskFailed
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.cluster.transport.peer_transport import PeerTransport
from mayfly.node.http.server import HttpServer
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell import assembly, opening
from mayfly.node.shell.data_folder import OwnRecord
from mayfly.node.shell.process import NodeProcess
from mayfly.node.shell.store_opening import open_store
from tests.integration.nodes import Ports
from tests.waiting import BOUND_S, until

_LISTENS: Final = "0A"

Fault = Callable[[NodeSettings, pytest.MonkeyPatch], AbstractContextManager[NodeSettings]]
"""While it is entered a start with the settings that it gives must fail."""


def _open_files(folder: Path) -> set[str]:
    """What the process has open in the folder, or mapped from it."""
    found = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # that of the listing itself
    return {name for name in found if name.startswith(str(folder))}


def _listening() -> set[str]:
    """The process's listening sockets, by inode."""
    listening: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                listening.add(f"socket:[{fields[9]}]")
    own: set[str] = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return listening & own


def _threads() -> set[str]:
    """All but those of the loop, which go with it, and gRPC's own, which goes with the last that refers to gRPC, such
    as an error's traceback."""
    passed_over = ("asyncio_", "_poll_wrapper")
    names = (one.name for one in threading.enumerate())
    return {f"thread {name}" for name in names if not any(part in name for part in passed_over)}


def _held(folder: Path) -> set[str]:
    return _open_files(folder) | _listening() | _threads()


async def _until_nothing_is_left(folder: Path, before: set[str]) -> None:
    """gRPC closes its sockets in threads of its own, a moment later."""
    try:
        await until(lambda: not _held(folder) - before, "everything is closed", BOUND_S)
    except AssertionError as error:
        raise AssertionError(f"left open: {sorted(_held(folder) - before)}") from error


async def _starts(settings: NodeSettings) -> None:
    process = NodeProcess(settings)
    node = await asyncio.wait_for(process.start(), BOUND_S)
    assert node.catching_up.serving
    await process.stop()


@pytest.fixture(scope="module", autouse=True)
def _what_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first node of a process has gRPC make threads that are the process's from then on."""
    asyncio.run(_starts(_settings(tmp_path_factory.mktemp("first"))))


def _settings(folder: Path) -> NodeSettings:
    here = Address("127.0.0.1", 0)
    return NodeSettings(
        data_dir=folder / "data", amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=1
    )


# ---------------------------------------------------------------------- faults, by the step that they make fail


@contextmanager
def _no_folder(settings: NodeSettings, _: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    settings.data_dir.write_text("a file")
    yield settings
    settings.data_dir.unlink()


@contextmanager
def _store_in_use(settings: NodeSettings, _: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    settings.data_dir.mkdir()
    other = WriteAheadStore(settings.data_dir / "log", settings.disk_map_bytes)
    yield settings
    other.close()


@contextmanager
def _made_otherwise(settings: NodeSettings, _: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    asyncio.run(_starts(settings))
    yield replace(settings, shards=2)


@contextmanager
def _raises(
    where: object, name: str, error: Exception, settings: NodeSettings, patch: pytest.MonkeyPatch
) -> Iterator[NodeSettings]:
    """What is called there by that name raises."""
    with patch.context() as patched:
        patched.setattr(where, name, _failing(error))
        yield settings


def _failing(error: Exception) -> Callable[..., Any]:
    def fails(*arguments: Any, **named: Any) -> None:
        raise error

    return fails


@contextmanager
def _taken(address: str, settings: NodeSettings, _: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        here = Address("127.0.0.1", other.getsockname()[1])
        yield replace(settings, **cast(Any, {address: here}))


@contextmanager
def _no_snapshots(settings: NodeSettings, _: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    settings.data_dir.mkdir()
    file = settings.data_dir / "snapshots"
    file.write_text("a file")
    yield settings
    file.unlink()


@contextmanager
def _refused(settings: NodeSettings, patch: pytest.MonkeyPatch) -> Iterator[NodeSettings]:
    """A peer sends the node away as soon as it listens."""
    start = PeerTransport.start

    async def start_and_hear(transport: PeerTransport) -> None:
        await start(transport)
        transport._admission.refused(2, "node 1 was removed from the cluster", True)

    with patch.context() as patched:
        patched.setattr(PeerTransport, "start", start_and_hear)
        yield settings


def _no_definitions(settings: NodeSettings, _: pytest.MonkeyPatch) -> AbstractContextManager[NodeSettings]:
    return nullcontext(replace(settings, load_definitions=settings.data_dir / "none.json"))


FAULTS: Final[dict[str, tuple[Fault, str]]] = {
    "folder": (_no_folder, "data"),
    "store": (_store_in_use, "use"),
    "clock": (partial(_raises, opening, "kept_clock", OSError("no clock")), "no clock"),
    "identity": (_made_otherwise, "was made with shards = 1, the settings say 2"),
    "start counted": (partial(_raises, opening, "next_start", DiskFailed("no start")), "no start"),
    "load": (partial(_raises, LmdbLogStore, "load", CorruptStore("bits")), "is damaged: bits"),
    "write": (partial(_raises, LmdbLogStore, "write_together", DiskFailed("broken")), "broken"),
    "certificates": (partial(_raises, assembly, "client_tls", OSError("amqp_tls_cert")), "amqp_tls_cert"),
    "snapshots": (_no_snapshots, "File exists"),
    "frames": (partial(_taken, "frames_address"), "for frames"),
    "peers": (partial(_taken, "peer_address"), "for peers: Address already in use"),
    "http": (partial(_taken, "http_address"), "in use"),
    "refused": (_refused, "node 2 says: node 1 was removed from the cluster"),
    "definitions": (_no_definitions, "No such file"),
    "proven": (partial(_raises, OwnRecord, "keep_proven", DiskFailed("no proof")), "no proof"),
    "amqp": (partial(_taken, "amqp_address"), "can't listen on 127.0.0.1"),
}


@pytest.mark.parametrize("step", FAULTS)
def test_a_failed_start_leaves_nothing_open(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same data can be started in the same process, at the same addresses, when the fault is gone."""
    fault, text = FAULTS[step]
    good = _settings(tmp_path)

    async def fails(settings: NodeSettings) -> None:
        before = _held(tmp_path)
        # Kept: what only the garbage collection closes is open.
        process = NodeProcess(settings)
        with pytest.raises(Exception, match=text) as raised:
            await asyncio.wait_for(process.start(), BOUND_S)
        await _until_nothing_is_left(tmp_path, before)
        assert raised is not None
        assert process.node is None or not process.node.catching_up.serving

    with fault(good, monkeypatch) as settings:
        asyncio.run(fails(settings))
    again = good if settings.shards != good.shards or settings.load_definitions else settings
    asyncio.run(_starts(again))


@contextmanager
def _free() -> Iterator[Address]:
    """An address that no other test takes, nor the system for an outgoing connection."""
    ports = Ports(1)
    try:
        yield Address("127.0.0.1", ports.base)
    finally:
        ports.release()


@pytest.mark.parametrize("fault", ["nobody else", "peer_address", "http_address"])
def test_a_node_that_asks_for_a_place_leaves_nothing_open(fault: str, tmp_path: Path) -> None:
    """It is told to stop meanwhile, or can't listen for the others, or for those who ask about its health."""

    async def fails() -> None:
        with _free() as free, socket.create_server(("127.0.0.1", 0)) as other:
            taken = Address("127.0.0.1", other.getsockname()[1])
            own = taken if fault == "peer_address" else free
            seeds = (own, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
            settings = replace(_settings(tmp_path), peer_address=own, seeds=seeds)
            if fault == "http_address":
                settings = replace(settings, http_address=taken)
            before = _held(tmp_path)
            process = NodeProcess(settings)
            starting = asyncio.ensure_future(process.start())
            if fault == "nobody else":
                await until(lambda: len(_listening() - before) >= 2 or starting.done(), "it listens", BOUND_S)
                starting.cancel()
            await asyncio.wait_for(asyncio.wait([starting]), BOUND_S)
            assert starting.cancelled() or isinstance(starting.exception(), OSError)
            assert starting.cancelled() == (fault == "nobody else")
            await _until_nothing_is_left(tmp_path, before)

    asyncio.run(fails())


def test_a_start_that_is_given_up_while_the_store_opens_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that opens it goes on, and what it has opened is closed."""
    opens, may_open = threading.Event(), threading.Event()
    def opens_late(settings: NodeSettings) -> WriteAheadStore:
        opens.set()
        assert may_open.wait(BOUND_S)
        return open_store(settings)

    async def fails() -> None:
        before = _held(tmp_path)
        process = NodeProcess(_settings(tmp_path))
        starting = asyncio.ensure_future(process.start())
        await until(opens.is_set, "the store is being opened", BOUND_S)
        starting.cancel()
        await asyncio.sleep(0)
        may_open.set()
        await asyncio.wait_for(asyncio.wait([starting]), BOUND_S)
        assert starting.cancelled()
        await _until_nothing_is_left(tmp_path, before)

    with monkeypatch.context() as patched:
        patched.setattr(opening, "open_store", opens_late)
        asyncio.run(fails())
    asyncio.run(_starts(_settings(tmp_path)))


def test_a_part_that_can_not_end_hides_no_error_and_keeps_no_other_one_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = HttpServer.stop

    async def stop_and_fail(server: HttpServer) -> None:
        await stop(server)
        raise RuntimeError("no end")

    async def fails(settings: NodeSettings) -> None:
        before = _held(tmp_path)
        process = NodeProcess(settings)
        with pytest.raises(OSError, match=r"can't listen on 127\.0\.0\.1"):
            await asyncio.wait_for(process.start(), BOUND_S)
        await _until_nothing_is_left(tmp_path, before)

    with monkeypatch.context() as patched, _taken("amqp_address", _settings(tmp_path), monkeypatch) as settings:
        patched.setattr(HttpServer, "stop", stop_and_fail)
        asyncio.run(fails(settings))
    assert "no end" in caplog.text
    asyncio.run(_starts(settings))
