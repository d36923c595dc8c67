"""What one node sends its peers next (pure): one frame for each, with all that is due for all groups.

A message that nobody waits for does not make a frame of its own: it goes with the next one, at the next heartbeat at
the latest; so do notices that are not urgent. Entries that a majority does without go late
(`cluster.host.delayed_appends`), heartbeats' answers with any frame (`cluster.host.heartbeats`).
"""

from collections.abc import Mapping

from mayfly.cluster.group.group import Group
from mayfly.cluster.host.delayed_appends import DelayedAppends
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.heartbeats import GroupHeartbeats
from mayfly.cluster.host.liveness import Liveness
from mayfly.cluster.raft import MessageType, RaftMessage


class OutgoingFrames:
    """The frames of one node, as they are until the next pump; `groups` may grow."""

    def __init__(
        self, node: int, peers: list[int], groups: Mapping[int, Group], liveness: Liveness, heartbeats: GroupHeartbeats
    ) -> None:
        self.peers: list[int] = peers
        """Those who are members: entries may come late to these alone."""
        self._node = node
        self._groups = groups
        self._heartbeats = heartbeats
        self._delayed_appends: DelayedAppends = DelayedAppends(node, groups, liveness.is_there)
        self._frames: dict[int, Frame] = {}
        self._unhurried: dict[int, dict[tuple[int, int], tuple[int, RaftMessage]]] = {}
        """By node, then by group and type: what goes with the next frame, at the next heartbeat at the latest. Of two
        messages of a type the later one says all that the earlier one did."""
        self._notices: dict[int, dict[int, bytes]] = {}
        """By node, then by kind: notices that go in the same way, before those that are given later. Of two of a kind
        the later one alone goes."""
        self._acknowledged: dict[int, tuple[int, int, int]] = {}
        """Group -> the leader, its term, and the index up to which it was last told that the log is here."""

    def to(self, peer: int) -> Frame:
        """The frame that a peer gets next."""
        frame = self._frames.get(peer)
        if frame is None:
            frame = self._frames[peer] = Frame()
            if peer in self._notices:
                frame.notices += self._notices.pop(peer).items()
        return frame

    def add_unhurried(self, peer: int, kind: int, data: bytes) -> None:
        """A notice for a peer, in the order in which all are given."""
        if peer in self._frames:
            self._frames[peer].notices.append((kind, data))
        else:
            self._notices.setdefault(peer, {})[kind] = data

    def post(self, id: int, messages: list[RaftMessage], now_ms: int) -> None:
        """Raft messages of a group, those to this node left out."""
        for message in messages:
            peer = message.to
            if peer == self._node:
                continue
            delayable = message.type == MessageType.APP and peer in self.peers
            if delayable and self._delayed_appends.take(id, message, now_ms):
                if peer in self._unhurried:
                    self._unhurried[peer].pop((id, message.type), None)
                continue
            if self._can_wait(id, message) and peer in self.peers:
                self._unhurried.setdefault(peer, {})[(id, message.type)] = (id, message)
                continue
            if peer in self._unhurried:
                self._unhurried[peer].pop((id, message.type), None)
            self.to(peer).raft.append((id, message))

    def _can_wait(self, id: int, message: RaftMessage) -> bool:
        """Whether nobody waits for a message: it may go with whatever the same node is sent next.

        That is the answer to a heartbeat that asks nothing, the news of a commit for a node where nobody waits for it,
        and the acknowledgement of what was acknowledged before (the answer to such news)."""
        kind = message.type
        if kind == MessageType.APP:
            group = self._groups[id]
            owed = group.owes(message.to, message.commit)
            return not (message.entries or owed or group.hands_over) and group.raw.is_replicating(message.to)
        if kind == MessageType.APP_RESP:
            if message.reject:
                return False
            leader, term, index = self._acknowledged.get(id, (0, 0, 0))
            if (message.to, message.term) == (leader, term) and message.index <= index:
                return True
            self._acknowledged[id] = (message.to, message.term, message.index)
            return False
        return kind == MessageType.HEARTBEAT_RESP and not message.context

    @property
    def has_frames(self) -> bool:
        """Whether there is something to leave now."""
        return bool(self._frames)

    def has_unhurried(self, peer: int) -> bool:
        """Whether something waits for the next frame to a peer."""
        waits = self._unhurried.get(peer) or self._notices.get(peer)
        return bool(waits) or self._heartbeats.owes_answers(peer)

    def take(self, now_ms: int) -> dict[int, Frame]:
        """All that is to leave now, by peer."""
        for peer in self._delayed_appends.take_due(now_ms):
            self.to(peer)
        frames, self._frames = self._frames, {}
        for peer, frame in frames.items():
            frame.clock_ms = now_ms
            self._delayed_appends.join(peer, frame)
            self._heartbeats.answer(peer, frame)
            if peer in self._unhurried:
                frame.raft += self._unhurried.pop(peer).values()
        return frames

    def due_ms(self) -> int:
        """When something has to leave though nothing happens until then; `delayed_appends.NEVER_DUE`: never."""
        return self._delayed_appends.due_ms()

    def stream_changed(self) -> None:
        """A stream opened or broke: what was sent on it may be lost."""
        self._acknowledged.clear()

    def peer_down(self, peer: int) -> None:
        """The stream to a peer broke."""
        self.stream_changed()
        self._delayed_appends.forget(peer)

    def forget(self, peer: int) -> None:
        """It is no peer any more."""
        self._unhurried.pop(peer, None)
        self._notices.pop(peer, None)
        self._delayed_appends.forget(peer)
