"""Raft messages and heartbeats of peers, as they reach the groups of a host (pure).

What does not fit is left out, and told; only damage of this node's own log is raised.
"""

from collections.abc import Callable, Mapping

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.host.disk_watch import DiskWatch
from mayfly.cluster.host.heartbeats import BadHeartbeats, GroupHeartbeats
from mayfly.cluster.log.batch import CorruptEntry, CorruptStore
from mayfly.cluster.raft import LogLost, MessageType, RaftError, RaftMessage


class RaftInput:
    """Gives a node's groups what peers sent them."""

    def __init__(
        self,
        node: int,
        groups: Mapping[int, Group],
        heartbeats: GroupHeartbeats,
        disk: DiskWatch,
        has_work: Callable[[int], None],
        ask_anew: Callable[[int, Group], None],
        tell: Callable[[str], None],
    ) -> None:
        """`groups` may grow and shrink. `has_work(id)`: something is to be done for a group in the next pump;
        `ask_anew(leader, group)`: all of the group is to be sent."""
        self.log_lost: str | None = None
        """Why this node must not go on: entries that it once stored are gone, its votes could lose them for all."""
        self._node = node
        self._groups = groups
        self._heartbeats = heartbeats
        self._disk = disk
        self._has_work = has_work
        self._ask_anew = ask_anew
        self._tell = tell

    def step(self, peer: int, id: int, message: RaftMessage, now_ms: int) -> None:
        """A message of a peer for a group."""
        if message.from_ != peer or message.to != self._node:
            self.refuse(peer, f"Raft message for group {id} from {message.from_} to {message.to}")
            return
        group = self._groups.get(id)
        if group is None:
            return  # Its replica here was given up, or it was added, and the catalog here has not told of it yet.
        if message.type == MessageType.TIMEOUT_NOW and not self._disk.may_lead(now_ms):
            return  # Who leads means to hand over to us, and has not heard yet that our disk was late.
        try:
            group.step(message, now_ms)
        except (RaftError, CorruptStore) as error:
            self._not_taken(peer, id, error)
        self._tell_of_intake(group)
        self._has_work(id)

    def read_snapshot(self, group: Group, now_ms: int) -> None:
        """Go on with a snapshot that came in an earlier message: it is stepped only when all of it was read."""
        peer = group.intake.reading_from
        try:
            group.read_snapshot(now_ms)
        except (RaftError, CorruptStore) as error:
            self._not_taken(peer, group.id, error)
        self._tell_of_intake(group)
        self._has_work(group.id)

    def heartbeats(self, peer: int, kind: int, data: bytes, now_ms: int) -> None:
        """HEARTBEATS of a peer, or ANSWERS to ours, for many groups."""
        changed: list[int] = []
        try:
            if kind == notice_kinds.HEARTBEATS:
                changed, messages = self._heartbeats.take_heartbeats(peer, data)
            else:
                messages = self._heartbeats.take_answers(peer, data)
        except BadHeartbeats as error:
            self.refuse(peer, str(error))
            return
        for id in changed:
            self._has_work(id)
        for id, message in messages:
            self.step(peer, id, message, now_ms)

    def refuse(self, peer: int, text: str) -> None:
        """A peer sent what can't be used."""
        self._tell(f"node {peer} sent what can't be used: {text}")

    def _not_taken(self, peer: int, id: int, error: Exception) -> None:
        if isinstance(error, LogLost):
            group = self._groups[id]
            if group.gave_up_more:
                # What the replica before this one had acknowledged came late, when this one was a member already.
                self._ask_anew(peer, group)
            else:
                self.log_lost = f"group {id}: {error}"
        elif isinstance(error, CorruptEntry):
            raise error  # Of our own disk: we must not go on.
        else:
            self.refuse(peer, str(error))

    def _tell_of_intake(self, group: Group) -> None:
        complaint = group.intake.take_complaint()
        if complaint:
            self._tell(complaint)
