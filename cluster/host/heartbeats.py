"""The heartbeats of all groups of a node in one notice for each peer, and their answers in another.

A heartbeat that asks nothing has three numbers. As a Raft message of its own, with a turn of its group on both sides,
it costs a hundred times that, and an idle node does little else. What a heartbeat means is unchanged: what is not the
ordinary case (another term, another leader, a log that is too short) becomes the Raft message that it stands for, and
goes the way of all messages.

    heartbeats    (group u16, term u64, commit u64)*
    answers       (group u16, term u64)*
"""

import struct
from collections.abc import Mapping
from typing import Final

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType, RaftMessage

_HEARTBEAT: Final = struct.Struct("<HQQ")
_ANSWER: Final = struct.Struct("<HQ")

GroupMessage = tuple[int, RaftMessage]


class BadHeartbeats(Exception):
    """A notice that is none of the two."""


class GroupHeartbeats:
    """What one node has to say of its own groups' heartbeats, and to answer to those of others."""

    def __init__(self, node: int, groups: Mapping[int, Group]) -> None:
        self._node = node
        self._groups = groups
        self._due: dict[int, list[bytes]] = {}
        self._answers: dict[int, dict[int, int]] = {}
        """Peer -> group -> term. They go with the next frame, at the next heartbeat at the latest."""

    def are_due(self, group: Group) -> None:
        """The group is led here, and its heartbeat is due."""
        term = group.term
        for peer, commit in group.raw.heartbeats():
            self._due.setdefault(peer, []).append(_HEARTBEAT.pack(group.id, term, commit))

    def take_due(self) -> list[tuple[int, bytes]]:
        """(peer, notice) of what became due."""
        due, self._due = self._due, {}
        return [(peer, b"".join(heartbeats)) for peer, heartbeats in due.items()]

    def owes_answers(self, peer: int) -> bool:
        """Whether a peer's heartbeats have not been answered yet."""
        return bool(self._answers.get(peer))

    def answer(self, peer: int, frame: Frame) -> None:
        """A frame leaves for a peer: the answers go with it."""
        answers = self._answers.pop(peer, None)
        if answers:
            told = b"".join([_ANSWER.pack(*each) for each in answers.items()])
            frame.notices.append((notice_kinds.ANSWERS, told))

    def take_heartbeats(self, peer: int, data: bytes) -> tuple[list[int], list[GroupMessage]]:
        """Heartbeats of a peer: the groups in which something is to be done by them, and what was not ordinary as
        messages. Raises BadHeartbeats."""
        if len(data) % _HEARTBEAT.size:
            raise BadHeartbeats(f"heartbeats in {len(data)} bytes, a multiple of {_HEARTBEAT.size} expected")
        changed: list[int] = []
        messages: list[GroupMessage] = []
        answers = self._answers.setdefault(peer, {})
        for id, term, commit in _HEARTBEAT.iter_unpack(data):
            group = self._groups.get(id)
            if group is None or group.rebuild is not None or not group.raw.take_heartbeat(peer, term, commit):
                messages.append((id, RaftMessage(MessageType.HEARTBEAT, self._node, peer, term, commit=commit)))
                continue
            answers[id] = term
            if group.raw.has_ready():
                changed.append(id)
        return changed, messages

    def take_answers(self, peer: int, data: bytes) -> list[GroupMessage]:
        """Answers of a peer: those that were not ordinary as messages. Raises BadHeartbeats."""
        if len(data) % _ANSWER.size:
            raise BadHeartbeats(f"answers to heartbeats in {len(data)} bytes, a multiple of {_ANSWER.size} expected")
        messages: list[GroupMessage] = []
        for id, term in _ANSWER.iter_unpack(data):
            group = self._groups.get(id)
            if group is None or not group.raw.take_heartbeat_response(peer, term):
                messages.append((id, RaftMessage(MessageType.HEARTBEAT_RESP, self._node, peer, term)))
        return messages

    def forget(self, peer: int) -> None:
        """A peer is no member any more."""
        self._answers.pop(peer, None)
