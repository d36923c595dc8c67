"""Transports in one process, on ports of the system's choosing."""

import asyncio
import atexit
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings
from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.cluster.versions import PROTOCOLS, VersionRange
from tests.waiting import BOUND_S
from tests.waiting import until as until  # for the tests that want it with their members

Result = TypeVar("Result")

_FOLDERS: ContextVar[str] = ContextVar("folders of a test")


def own_folder() -> Path:
    """A new one, until the test ends that is being `run`."""
    return Path(tempfile.mkdtemp(dir=_FOLDERS.get()))


class Member:
    """A transport and what it reported."""

    def __init__(
        self,
        node_id: int,
        port: int = 0,
        cluster_id: str = "blue",
        tls: PeerTlsFiles | None = None,
        folder: Path | None = None,
        known: ClusterSecrets = NO_SECRET,
        protocols: VersionRange = PROTOCOLS,
        snapshot_bytes_per_second: int = 0,
    ) -> None:
        self.node_id = node_id
        self.frames: list[tuple[int, Frame]] = []
        self.events: list[tuple[str, int]] = []
        self.snapshots: list[tuple[int, int, bool]] = []
        self.transport = PeerTransport(
            LocalPeer(node_id, f"node-{node_id}", cluster_id, protocols=protocols),
            {},
            PeerEvents(
                on_frame=lambda peer, frame: self.frames.append((peer, frame)),
                on_up=lambda peer: self.events.append(("up", peer)),
                on_down=lambda peer: self.events.append(("down", peer)),
                on_gone=lambda peer: self.events.append(("gone", peer)),
                on_snapshot_sent=lambda peer, group, ok: self.snapshots.append((peer, group, ok)),
            ),
            TransportSettings(
                f"127.0.0.1:{port}",
                folder or own_folder(),
                tls=tls,
                known=known,
                snapshot_bytes_per_second=snapshot_bytes_per_second,
            ),
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.transport.port}"

    @property
    def up(self) -> set[int]:
        """The peers to which the stream is up."""
        last = {peer: event for event, peer in self.events}
        return {peer for peer, event in last.items() if event == "up"}

    def clocks(self, peer: int) -> list[int]:
        return [frame.clock_ms for sender, frame in self.frames if sender == peer]


class Members:
    """Members that know each other, and end with the test."""

    def __init__(self) -> None:
        self.all: list[Member] = []

    async def add(
        self,
        node_id: int,
        port: int = 0,
        cluster_id: str = "blue",
        tls: PeerTlsFiles | None = None,
        folder: Path | None = None,
        known: ClusterSecrets = NO_SECRET,
        protocols: VersionRange = PROTOCOLS,
        snapshot_bytes_per_second: int = 0,
    ) -> Member:
        member = Member(node_id, port, cluster_id, tls, folder, known, protocols, snapshot_bytes_per_second)
        await member.transport.start()
        self.all.append(member)
        return member

    async def introduce(self) -> None:
        addresses = {member.node_id: member.address for member in self.all}
        for member in self.all:
            await member.transport.set_peers(addresses)

    async def full_mesh(self, count: int) -> list[Member]:
        for node_id in range(1, count + 1):
            await self.add(node_id)
        await self.introduce()
        await until(
            lambda: all(len(member.up) == count - 1 for member in self.all), "connections"
        )
        return self.all

    async def stop(self) -> None:
        for member in self.all:
            await member.transport.stop()


@asynccontextmanager
async def members() -> AsyncIterator[Members]:
    group = Members()
    try:
        yield group
    finally:
        await group.stop()


# One loop for all tests, as a node has one for all its life: gRPC reports the last operations of a channel
# after it was closed, and logs an error when their loop is gone by then while another one runs.
RUNNER = asyncio.Runner()
atexit.register(RUNNER.close)


def run(test: Awaitable[None]) -> None:
    """Run a test to its end, up to a bound that only a broken program reaches."""

    async def bounded(folder: str) -> None:
        _FOLDERS.set(folder)
        async with asyncio.timeout(5 * BOUND_S):
            await test

    with tempfile.TemporaryDirectory(prefix="mayfly-snapshots-") as folder:
        RUNNER.run(bounded(folder))
