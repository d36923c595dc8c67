"""Frames between nodes as protobuf writes and reads them: what `cluster.transport.frame_octets` is held against."""

from google.protobuf.message import DecodeError

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft.messages import Entry, RaftMessage
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import frame_octets

_HELLO_TAG = b"\x32"


def written_by_protobuf(frame: Frame) -> bytes:
    wire = peer_pb2.Frame(clock_ms=frame.clock_ms)
    for group, each in frame.raft:
        message = wire.raft.add(
            group=group, type=each.type, term=each.term, log_term=each.log_term, index=each.index, commit=each.commit,
            vote=each.vote, reject=each.reject, reject_hint=each.reject_hint, context=each.context,
        )
        for entry in each.entries:
            message.entries.add(term=entry.term, index=entry.index, type=entry.type, data=entry.data)
    for group, time_ms, led_ms in frame.group_clocks:
        wire.group_clocks.add(group=group, time_ms=time_ms, led_ms=led_ms)
    for group, envelope in frame.proposals:
        wire.proposals.add(group=group, envelope=envelope)
    for kind, data in frame.notices:
        wire.notices.add(kind=kind, data=data)
    return wire.SerializeToString()


def read_by_protobuf(data: bytes, sender: int, receiver: int) -> Frame | None:
    """Nothing in it is checked; None if it is no frame."""
    try:
        wire = peer_pb2.Frame.FromString(data)
    except DecodeError:
        return None
    frame = Frame(wire.clock_ms)
    for each in wire.raft:
        entries = [Entry(entry.term, entry.index, entry.type, entry.data) for entry in each.entries]
        message = RaftMessage(
            each.type, receiver, sender, each.term, each.log_term, each.index, each.commit, each.vote, each.reject,
            each.reject_hint, entries, None, each.context,
        )
        frame.raft.append((each.group, message))
    frame.group_clocks = [(clock.group, clock.time_ms, clock.led_ms) for clock in wire.group_clocks]
    frame.proposals = [(proposal.group, proposal.envelope) for proposal in wire.proposals]
    frame.notices = [(notice.kind, notice.data) for notice in wire.notices]
    return frame


def read_alike(data: bytes, sender: int, receiver: int) -> None:
    """What `frame_octets` reads, protobuf reads as well. It looks into a hello, which stands in no such frame."""
    try:
        read = frame_octets.decode(data, sender, receiver)
    except ValueError:
        return
    expected = read_by_protobuf(data, sender, receiver)
    assert expected == read or (expected is None and _HELLO_TAG in data)
