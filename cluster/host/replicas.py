"""Which groups have a replica at a node, from its start to the day that it is given up (pure).

A replica goes on from what is stored. Where nothing is, it begins with its group's first members, or with nothing, and
waits to be sent a snapshot. It is given up when the plan does not name its node and the group's leader says that the
node is no member of it; what its node promised stays (Raft 5.2). The node's session with a group is there all the
time: it is told by the replica, or fed (`cluster.host.feeding`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from mayfly.cluster.group.group import Group, Traces
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.rebuilding import Rebuild
from mayfly.cluster.host.first_state import (
    bootstrap,
    founding_members,
    given_up,
    is_given_up,
    nothing_left,
    set_aside,
)
from mayfly.cluster.host.leadership import Leadership
from mayfly.cluster.host.parts import HostParts
from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import StoredGroup, WriteBatch
from mayfly.cluster.log.group_log import GroupLog
from mayfly.cluster.raft import ConfState

PREFERRED_CAMPAIGNS_WITHIN_TICKS: Final = 4
"""How soon the preferred leader of a group stands for election when it starts."""


class Replicas:
    """The replicas of one node, as they come and go. The parts of its host read `groups` and `sessions`, and only this
    one changes which there are."""

    def __init__(
        self,
        settings: HostSettings,
        ids: Iterable[int],
        parts: HostParts,
        incarnation: int,
        leadership: Leadership,
        writes: PendingWrites,
        has_work: Callable[[int], None],
    ) -> None:
        """`ids`: the groups that are known so far. `leadership` has the plan, and the groups that have a replica here:
        none yet. `has_work(id)`: something is to be done for a group in the next pump."""
        self.groups: dict[int, Group] = leadership.groups
        """Those that have a replica here."""
        self.sessions: dict[int, OwnSession] = {}
        """With all groups of the cluster."""
        self.is_planned: bool = False
        """Whether it is known from the catalog where replicas shall be."""
        self._settings = settings
        self._node = settings.node
        self._parts = parts
        self._incarnation = incarnation
        self._leadership = leadership
        self._writes = writes
        self._has_work = has_work
        self._is_member = True
        self._is_alone = set(settings.nodes) <= {settings.node}
        self._stored: dict[int, StoredGroup] = {}
        """What is stored of groups that are not known yet."""
        self._promised: dict[int, StoredGroup] = {}
        """What this node's word was in groups of which it has no replica: it never had one, or has given it up."""
        for id in ids:
            self.sessions[id] = self._new_session(id)

    def start(self, stored: dict[int, StoredGroup]) -> WriteBatch:
        """Take up what is stored of the groups that are known, or begin them. What is returned must be on disk before
        anything else is done."""
        first = WriteBatch()
        self._stored = dict(stored)
        for id in self.sessions:
            founds = self._settings.bootstrap and not stored and self.shall_be_here(id)
            self._begin(id, founding_members(self._settings, id), founds, first)
        return first

    def add(self, id: int, first_voters: Sequence[int]) -> None:
        """A group that the cluster has got since its founding: at any time after `start`, in every life of this node.

        It goes on from what is stored. Where nothing is, it begins: on a node that is one of the `first_voters`, the
        preferred leader first, as all of these do, whenever they hear of it and whoever votes by then; on others with
        nothing, if they are to have a replica, until its leader sends them its state. So a node must not lose what it
        had of a group, and come under the same id to begin it once more: it could vote twice in a term.
        """
        self.sessions[id] = self._new_session(id)
        self._leadership.plan.setdefault(id, tuple(first_voters))
        first = WriteBatch()
        self._begin(id, ConfState(voters=sorted(first_voters)), self._node in first_voters, first)
        for write in first.groups.values():
            # What the group writes next comes behind it, and what it says that has to be on disk waits for that.
            self._writes.gather(write)

    def _new_session(self, id: int) -> OwnSession:
        parts, settings = self._parts, self._settings
        return OwnSession(id, self._node, self._incarnation, settings.group, parts.events, parts.lost)

    def _begin(self, id: int, began: ConfState, begins: bool, first: WriteBatch) -> None:
        """Take up what is stored of a group that `began` with those members, or, if `begins` and nothing is stored,
        begin it with them; a replica of which no more is left than what this node promised stays given up. What has to
        be stored before the group's next write goes into `first`."""
        known = self._stored.pop(id, None)
        if known is None and begins:
            known = bootstrap(began, first.group(id))
        if known is None or (known.snapshot is None and not known.damage) or is_given_up(known):
            if known is not None:
                self._promised[id] = known
            if self._leadership.is_everywhere(id):
                self._open(id, first)
            return
        rebuild: Rebuild | None = None
        if known.damage:
            known, rebuild = set_aside(self._node, began, known, self._is_alone)
            self._tell(f"group {id} is damaged and will be rebuilt from the other nodes: {rebuild.damage}")
        self.sessions[id].is_told_by_replica()
        self._take_up(id, known, rebuild, first)
        self._open_session(id)

    def _open(self, id: int, first: WriteBatch) -> None:
        """Begin a replica with nothing, which waits to be sent a snapshot. What this node promised stays (Raft 5.2),
        and what it had said that it has: it was counted for what is committed (5.4.1)."""
        nothing = nothing_left(self._promised.pop(id, None))
        if self._leadership.is_everywhere(id):
            self.sessions[id].is_told_by_replica()
            self._open_session(id)
        self._take_up(id, nothing, None, first)

    def _open_session(self, id: int) -> None:
        """By its first batch, which is empty."""
        self.sessions[id].give([b""], 0, False, None, True)
        self._has_work(id)

    def _take_up(self, id: int, known: StoredGroup, rebuild: Rebuild | None, first: WriteBatch) -> None:
        parts = self._parts
        machine = parts.machine(id)
        log = GroupLog(id, parts.reader, parts.cache)
        group = Group(
            self.sessions[id], known, log, machine, self._settings.group, parts.random,
            Traces(parts.trace, self._detail_of(id)), rebuild,
        )  # fmt: skip
        live = set(group.state_entries())
        orphans = [index for index in known.retained if index not in live]
        if orphans:
            first.group(id).release += orphans
        self.groups[id] = group
        if self._leadership.preferred(id) == self._node:
            # So leaders are spread from the start.
            group.raw.campaign_within(PREFERRED_CAMPAIGNS_WITHIN_TICKS)
        self._has_work(id)
        parts.events.group_taken_up(id)

    def _detail_of(self, id: int) -> Callable[[str], None] | None:
        detail = self._parts.detail
        return None if detail is None else lambda text: detail(f"group {id}: {text}")

    def _tell(self, text: str) -> None:
        if self._parts.trace is not None:
            self._parts.trace(text)

    # ------------------------------------------------------------------ the plan

    def shall_be_here(self, id: int) -> bool:
        """Whether this node shall have a replica of a group, as far as it knows by now."""
        return self._leadership.is_everywhere(id) or self._node in self._leadership.replicas(id)

    def set_members(self, members: Collection[int]) -> None:
        """The catalog has told of members, and of the plan, which `leadership` has by now."""
        self.is_planned = True
        self._is_member = self._node in members
        self._is_alone = set(members) <= {self._node}
        if not self._is_member:
            for group in self.groups.values():
                group.leave()
        self.follow_plan()

    def follow_plan(self) -> None:
        """Begin replicas that shall be here, and have sessions fed whose replica shall not."""
        if not self.is_planned or not self._is_member:
            return
        for id, session in self.sessions.items():
            if self.shall_be_here(id):
                if id not in self.groups and id not in self._writes.groups:
                    self._open(id, WriteBatch())
                elif session.is_fed:
                    self._has_work(id)
                else:
                    session.stay_with_replica()
            elif id in self.groups and not session.is_fed and not session.wants_feeds:
                session.ask_to_be_fed()
                self._has_work(id)

    def is_told_out(self, group: Group) -> bool:
        """A leader says that this node is no member of its group, later than anything that the replica here has heard;
        whether the replica is given up by that: dropped, but for what this node promised."""
        if not self.is_planned or self._leadership.is_everywhere(group.id):
            return False
        if group.leads or group.in_flight is not None:
            return False
        if not group.session.is_fed:
            # Its replica will hear nothing more.
            group.stop_telling()
        if self.shall_be_here(group.id):
            return False
        self._give_up(group)
        return True

    def _give_up(self, group: Group) -> None:
        # Whoever reads here waits for ever else: its own log may have this node as a member still.
        group.leave()
        write = given_up(group.id, group.hard_state, group.vouched)
        self._promised[group.id] = StoredGroup(group.hard_state, write.snapshot, [], [])
        del self.groups[group.id]
        self._parts.cache.discard_group(group.id)
        self._writes.gather(write)
        self._tell(f"group {group.id} has no replica at node {self._node} any more")
        self._parts.events.group_given_up(group.id)
        # It would hold itself, and the collector does not come to what is old (`node.shell.process`).
        group.log.make_snapshot = None
