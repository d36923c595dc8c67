"""Snapshots on networks without a wire."""

from mayfly.cluster.log.snapshot_codec import STEP_BYTES, ReceivedSnapshot, outgoing
from mayfly.cluster.raft import RaftMessage, Snapshot


def carried(group: int, message: RaftMessage) -> RaftMessage:
    """The message as a peer gets it. Raises what reading the log raises."""
    if message.snapshot is None:
        return message
    source = outgoing(group, message.snapshot)
    for _ in source.prepare():
        pass
    data = b"".join(source.pieces(0, STEP_BYTES))
    metadata = message.snapshot.metadata
    body = ReceivedSnapshot(
        lambda offset, size: data[offset : offset + size], source.total_bytes, source.digest, metadata.index
    )
    for _ in body.check():
        pass
    snapshot = Snapshot(metadata, body.state, body)
    return RaftMessage(message.type, message.to, message.from_, message.term, snapshot=snapshot)
