"""Appends for followers that a majority does not need, and where nobody waits for them: they may leave a little later.

One message at a time costs a frame, a turn, a write and an answer on each follower, and with three replicas only one
of two followers counts towards the majority. The other is the *extra* follower: its appends are gathered, one message
of many entries, and leave with the next frame for that node, or when

- the eldest has waited `HELD_MS`,
- the eldest that is not committed has waited `LATE_MS`: then the majority is not as quick as was hoped, no follower
  of that group is extra for `SUSPENDED_MS`, and every follower has the entries at once as without any of this,
- there are `MOST_BYTES` of them, or one comes that is large by itself: then there is no lack of company.

Raft lets a leader send when it likes, so nothing here matters to safety: an entry counts as committed when a majority
has it on disk, whoever that is. Never extra: a node with consumers of the group or commands under way to it,
because it answers its clients from its own replica; a node that the majority needs; and, where no client decides that,
the node that leads next if the leader dies, so that its log is complete then (`succession`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from mayfly.cluster.group.group import Group
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import RaftMessage, succession

HELD_MS: Final = 20
LATE_MS: Final = 5
SUSPENDED_MS: Final = 1_000
MOST_BYTES: Final = 32_768
LARGE_BYTES: Final = 8_192
NEVER_DUE: Final = 1 << 62


class HeldAppend:
    """What is held of one group for one node: one message that grows."""

    __slots__ = ("message", "size_bytes", "uncommitted")

    def __init__(self, message: RaftMessage, size_bytes: int, now_ms: int) -> None:
        self.message = RaftMessage(
            message.type, message.to, message.from_, message.term, message.log_term, message.index, message.commit,
            entries=list(message.entries),
        )
        self.size_bytes = size_bytes
        self.uncommitted: list[tuple[int, int]] = [(self.last_index, now_ms)]
        """(last index, since when it is held) of what is not known to be committed."""

    @property
    def last_index(self) -> int:
        """Up to which the log is there where this has come."""
        return self.message.index + len(self.message.entries)

    def add(self, message: RaftMessage, size_bytes: int, now_ms: int) -> bool:
        """Take in an append that goes on where this one ends; False if it does not."""
        mine = self.message
        if message.term != mine.term or message.index != self.last_index:
            return False
        mine.commit = message.commit
        if message.entries:
            mine.entries += message.entries
            self.size_bytes += size_bytes
            self.uncommitted.append((self.last_index, now_ms))
        return True

    def uncommitted_since_ms(self, committed: int) -> int:
        """Since when the eldest entry that is not committed has been held; `NEVER_DUE` if all are."""
        while self.uncommitted and self.uncommitted[0][0] <= committed:
            del self.uncommitted[0]
        return self.uncommitted[0][1] if self.uncommitted else NEVER_DUE


class DelayedAppends:
    """What one node, as the leader of groups, holds for others."""

    def __init__(self, node: int, groups: Mapping[int, Group], is_there: Callable[[int, int], bool]) -> None:
        """`is_there(node, now_ms)`: whether a node is connected, and was heard of lately."""
        self._node = node
        self._groups = groups
        self._is_there = is_there
        self._held: dict[int, dict[int, HeldAppend]] = {}
        """By node and group."""
        self._since_ms: dict[int, int] = {}
        """By node: since when the eldest was held."""
        self._suspended_until_ms: dict[int, int] = {}

    def take(self, id: int, message: RaftMessage, now_ms: int) -> bool:
        """An append of a group that is led here: whether it is held. If not it has to leave now, behind the held."""
        peer = message.to
        size_bytes = 0
        for entry in message.entries:
            size_bytes += len(entry.data)
        of_peer = self._held.get(peer)
        held = None if of_peer is None else of_peer.get(id)
        if held is None and not message.entries:
            return False
        if size_bytes >= LARGE_BYTES or not self._is_extra(self._groups[id], peer, now_ms):
            return False
        if held is not None:
            return held.size_bytes + size_bytes <= MOST_BYTES and held.add(message, size_bytes, now_ms)
        if of_peer is None:
            of_peer = self._held[peer] = {}
            self._since_ms[peer] = now_ms
        of_peer[id] = HeldAppend(message, size_bytes, now_ms)
        return True

    def _is_extra(self, group: Group, peer: int, now_ms: int) -> bool:
        """Whether a majority is quick enough without this node, and nobody waits there."""
        voters = group.conf_state.voters
        if (
            group.conf_state.voters_outgoing
            or peer not in voters
            or not group.raw.is_replicating(peer)
            or self._node not in voters
            or group.raw.lead_transferee
            or group.upkeep.wants_all_to_follow
            or now_ms < self._suspended_until_ms.get(group.id, 0)
            or group.is_awaited_by(peer)
        ):
            return False
        missing = len(voters) // 2
        for voter in succession(voters, self._node, group.id):
            if voter != peer and group.is_awaited_by(voter) and self._is_quick(group, voter, now_ms):
                missing -= 1
        for voter in succession(voters, self._node, group.id):
            if missing <= 0:
                return True
            if voter == peer:
                return False
            if not group.is_awaited_by(voter) and self._is_quick(group, voter, now_ms):
                missing -= 1
        return missing <= 0

    def _is_quick(self, group: Group, voter: int, now_ms: int) -> bool:
        return group.raw.is_replicating(voter) and self._is_there(voter, now_ms)

    def due_ms(self) -> int:
        """When something has to leave, if nothing happens before; `NEVER_DUE` if nothing is held."""
        due_ms = NEVER_DUE
        for peer, of_peer in self._held.items():
            due_ms = min(due_ms, self._since_ms[peer] + HELD_MS)
            for id, held in of_peer.items():
                due_ms = min(due_ms, held.uncommitted_since_ms(self._groups[id].committed) + LATE_MS)
        return due_ms

    def take_due(self, now_ms: int) -> list[int]:
        """The nodes to which what is held for them has to go now."""
        due: list[int] = []
        for peer, of_peer in self._held.items():
            late = [
                id for id, held in of_peer.items()
                if now_ms >= held.uncommitted_since_ms(self._groups[id].committed) + LATE_MS
            ]
            for id in late:
                self._suspended_until_ms[id] = now_ms + SUSPENDED_MS
            if late or now_ms >= self._since_ms[peer] + HELD_MS:
                due.append(peer)
        return due

    def join(self, peer: int, frame: Frame) -> None:
        """A frame leaves for a node: what is held for it goes in front."""
        of_peer = self._held.pop(peer, None)
        if of_peer is None:
            return
        del self._since_ms[peer]
        first = [
            (id, held.message)
            for id, held in of_peer.items()
            if self._groups[id].leads and self._groups[id].term == held.message.term
        ]
        frame.raft = first + frame.raft

    def forget(self, peer: int) -> None:
        """The way to a node is broken, or it is no member any more: what was sent to it is lost anyway."""
        if self._held.pop(peer, None) is not None:
            del self._since_ms[peer]

