"""Snapshots to send, as leaders make them."""

import os
from hashlib import sha256

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import MissingEntry
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, ReceivedSnapshot
from mayfly.cluster.raft import ConfState, Entry, MessageType, RaftMessage, Snapshot, SnapshotMetadata
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.local_peer import LocalPeer
from tests.cluster.transport.members import Member, Members, until
from tests.cluster.transport.wire import Wire

GROUP = 4
NOISE = os.urandom(1 << 16)


class MadeSnapshot:
    """A snapshot with so many entries of 64 KB, as a leader makes it."""

    def __init__(self, count: int, index: int = 1000, term: int = 5) -> None:
        self.metadata = SnapshotMetadata(index, term, ConfState([1, 2], [3]))
        self.state = b"state %d" % index
        numbers = range(1, count + 1)
        self.entries = {number: Entry(1, number, 0, number.to_bytes(4, "big") + NOISE) for number in numbers}
        self.body = OutgoingSnapshot(GROUP, self.state, list(self.entries), self.read)
        for _ in self.body.prepare():
            pass

    def read(self, group: int, index: int) -> Entry:
        if group != GROUP or index not in self.entries:
            raise MissingEntry(group, index)
        return self.entries[index]

    @property
    def name(self) -> codec.SnapshotName:
        metadata = self.metadata
        return codec.SnapshotName(GROUP, metadata.index, metadata.term, self.body.total_bytes, self.body.digest)

    def message(self, sender: int = 1, receiver: int = 2, term: int = 6) -> RaftMessage:
        snapshot = Snapshot(self.metadata, self.state, self.body)
        return RaftMessage(MessageType.SNAP, receiver, sender, term, snapshot=snapshot)

    def pieces(self, size: int) -> list[bytes]:
        """The messages that bring all of it."""
        wire, offset = [], 0
        for piece in self.body.pieces(0, size):
            wire.append(codec.encode_snapshot_data(offset, piece))
            offset += len(piece)
        return wire

    def header(self, sender: int = 2, receiver: int = 1, term: int = 6) -> bytes:
        """The first message."""
        hello = LocalPeer(sender, f"node-{sender}", "blue").hello()
        return codec.encode_snapshot_header(hello, self.message(sender, receiver, term), self.metadata, self.name)

    def arrived(self, member: Member) -> int:
        """How often the member was given exactly this snapshot."""
        return sum(self._is(message) for _, frame in member.frames for group, message in frame.raft if group == GROUP)

    def _is(self, message: RaftMessage) -> bool:
        snapshot = message.snapshot
        if snapshot is None or snapshot.metadata != self.metadata:
            return False
        assert isinstance(snapshot.body, ReceivedSnapshot)
        return snapshot.data == self.state and list(snapshot.body) == list(self.entries.values())


def tiny(group: int, data: bytes = b"x" * 100) -> tuple[bytes, bytes]:
    """Header and one piece of something that is no snapshot, for a group; the digest is right, one byte is missing."""
    hello = LocalPeer(2, "node-2", "blue").hello()
    metadata = SnapshotMetadata(5, 1)
    message = RaftMessage(MessageType.SNAP, 1, 2, 1, snapshot=Snapshot(metadata))
    name = codec.SnapshotName(group, 5, 1, len(data) + 1, sha256(data + b"x").digest())
    return codec.encode_snapshot_header(hello, message, metadata, name), codec.encode_snapshot_data(0, data)


async def connected_by_wire(group: Members, receiver: Member) -> tuple[Member, Wire]:
    """A member 1 that reaches the receiver, which is member 2, by a wire; both have heard of each other."""
    wire = Wire(receiver.transport.port)
    await wire.start()
    sender = await group.add(1)
    await sender.transport.set_peers({2: f"127.0.0.1:{wire.port}"})
    await receiver.transport.set_peers({1: sender.address})
    await heard(sender, receiver)
    return sender, wire


async def heard(sender: Member, receiver: Member) -> None:
    """Have the receiver hear of the sender."""
    await until(lambda: 2 in sender.up, "connection")
    sender.transport.send(2, Frame(1))
    await until(lambda: bool(receiver.frames), "a first frame")


async def send(sender: Member, made: MadeSnapshot) -> bool:
    """Send it once, when the peer is up; whether it arrived."""
    await until(lambda: 2 in sender.up, "connection")
    frame, before = Frame(2), len(sender.snapshots)
    frame.raft.append((GROUP, made.message()))
    sender.transport.send(2, frame)
    await until(lambda: len(sender.snapshots) > before, "report")
    assert len(sender.snapshots) == before + 1
    return sender.snapshots[-1][2]


def kept_bytes(member: Member, group: int) -> int:
    """How much has come of a group's snapshot that has not come whole."""
    spool = member.transport._spool
    return spool._partials[group].received_bytes if group in spool._partials else 0


def receiving(member: Member) -> list[int]:
    """Groups of which a snapshot is being received, or waits for its turn."""
    spool = member.transport._spool
    return [group for group, each in spool._partials.items() if each.owner is not None]
