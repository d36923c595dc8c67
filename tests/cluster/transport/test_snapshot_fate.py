"""Raft waits until it is told what became of a snapshot, so none may go without a word."""

import asyncio
from pathlib import Path

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType, RaftMessage, Snapshot, SnapshotMetadata
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings


def test_a_snapshot_for_an_unknown_peer_is_reported_as_failed(tmp_path: Path) -> None:
    told: list[tuple[int, int, bool]] = []

    async def send() -> None:
        transport = PeerTransport(
            LocalPeer(1, "one", "test"), {},
            PeerEvents(on_snapshot_sent=lambda peer, group, ok: told.append((peer, group, ok))),
            TransportSettings("127.0.0.1:0", tmp_path),
        )  # fmt: skip
        frame = Frame()
        frame.raft.append((5, RaftMessage(MessageType.SNAP, 9, 1, 1, snapshot=Snapshot(SnapshotMetadata(7, 1), b""))))
        frame.raft.append((5, RaftMessage(MessageType.HEARTBEAT, 9, 1, 1)))
        transport.send(9, frame)
        assert told == [], "not while the caller is in the middle of sending"
        await asyncio.sleep(0)

    asyncio.run(send())
    assert told == [(9, 5, False)]
