"""What notices of heartbeats stand for."""

import struct

from mayfly.cluster import notice_kinds
from mayfly.cluster.raft import MessageType, RaftMessage


def heartbeats_as_messages(notice: tuple[int, bytes], sender: int, to: int) -> list[tuple[int, RaftMessage]]:
    """The Raft messages, with their groups, that a notice of beats or answers stands for; nothing for any other."""
    kind, data = notice
    if kind == notice_kinds.HEARTBEATS:
        return [
            (id, RaftMessage(MessageType.HEARTBEAT, to, sender, term, commit=commit))
            for id, term, commit in struct.iter_unpack("<HQQ", data)
        ]
    if kind == notice_kinds.ANSWERS:
        answers = struct.iter_unpack("<HQ", data)
        return [(id, RaftMessage(MessageType.HEARTBEAT_RESP, to, sender, term)) for id, term in answers]
    return []
