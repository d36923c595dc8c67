"""Who tells this node's sessions that are fed, turn by turn (pure).

Where the node has no replica of a group, its leader is asked to (`cluster.host.feeding`). Where it has one, that one
tells the session if it has kept all that the session was not told: one that shall stay takes the session over, which is
fed no more then; one that shall go tells what it has, as long as it has it. If it can't, the leader is asked. A leader
that can't tell the session of its own node makes way for another one, for nobody else is asked while it leads.
"""

from mayfly.cluster.group.group import Group
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.host.feeding import NO_LEADER, Feeding, Leader
from mayfly.cluster.host.leadership import Leadership
from mayfly.cluster.host.replicas import Replicas
from mayfly.cluster.host.settings import HostSettings


class FedSessions:
    """Has the sessions of one node that are fed told by whoever can."""

    def __init__(self, settings: HostSettings, replicas: Replicas, leadership: Leadership, feeding: Feeding) -> None:
        self._node = settings.node
        self._repeat_after_ms = settings.group.repeat_after_ms
        self._replicas = replicas
        self._leadership = leadership
        self._feeding = feeding
        self._made_way: dict[int, int] = {}
        """Groups -> the term in which this node gave up the lead for the sake of its session."""

    def unfinished(self) -> list[int]:
        """The groups whose session has something to give, or to be told, or to be ended."""
        return [
            id
            for id, session in self._replicas.sessions.items()
            if session.is_fed and (session.is_broken or not session.sender.idle or self._feeding.waits(session))
        ]

    def advance(self, session: OwnSession, group: Group | None, now_ms: int) -> Leader:
        """See that a session that is fed is told by whoever can; the leader that gets what it gives, and the term.
        `group`: the replica here, if there is one."""
        if not self._replicas.is_planned:
            # Perhaps every node is to have a replica of everything: then nothing is fed.
            return NO_LEADER
        leader = self._feeding.leader_of(session.group)
        if group is None or not self._tell_here(group, leader[0] == self._node, now_ms):
            self._feeding.attend(session, leader, now_ms, self._repeat_after_ms)
        elif session.is_fed:
            self._feeding.rests(session)
        return leader

    def _tell_here(self, group: Group, leads: bool, now_ms: int) -> bool:
        """Have the replica here tell the session; False if it can't."""
        if self._replicas.shall_be_here(group.id):
            told_here = group.tell_session() or group.tell_from_here()
        else:
            # As long as it goes the session stays fed, for its replica goes. But nobody else tells it while this one
            # leads.
            told_here = group.tell_from_here() or (leads and group.tell_session())
        if not told_here and leads and group.established:
            self._make_way(group, now_ms)
        return told_here

    def _make_way(self, group: Group, now_ms: int) -> None:
        """The replica here leads, and has not kept all that this node's session was not told: it came by a snapshot of
        later. Others may have; the next leader tells it, or says that it has to end. It does if nobody takes over."""
        if group.session.is_broken or group.hands_over:
            return
        if self._made_way.get(group.id) != group.term and self._leadership.hand_over(group, self._node, now_ms):
            self._made_way[group.id] = group.term
        else:
            group.session.is_broken = True
