"""What a node does so that the cluster has the members that the catalog names: it follows, and as a leader it acts.

    the catalog's members change -> the host, and the shell with its connections, follow
    a group led here differs from the plan -> its next step, after a barrier: what the plan says is then not out of date
    a leaving member votes nowhere any more -> MemberGone, by the catalog's leader; from LEVEL_PLANS on this, and
    all that changes the plan, is in `plan_duty`
    the catalog has this node in another failure domain, or none, or without the name of its data, or as one that knows
    other feature levels -> the node announces itself once more: what a founder says when it starts may come before the
    catalog has members
    nobody has founded the cluster -> FoundCluster, by each founder, at the highest level that the founders know
    all members are there and know a higher feature level -> RaiseLevel, by the catalog's leader
    all members are there and there are fewer shards than `shards_per_node` says -> AddShards, by the catalog's leader

Nothing is remembered that could not be forgotten: any leader looks at what is there and goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from mayfly.cluster.host.host import Host
from mayfly.cluster.versions import LEVEL_FEEDS, LEVEL_PLANS, LEVEL_SHARDS_ADDED
from mayfly.node.catalog import AddShards, Catalog, CatalogCommand, FoundCluster, MemberGone, MemberRecord, RaiseLevel
from mayfly.node.limits import SHARDS
from mayfly.node.membership.group_loads import Work
from mayfly.node.membership.plan_duty import PlanDuty
from mayfly.node.membership.queue_loads import QueueWork
from mayfly.node.membership.settings import MembershipSettings
from mayfly.node.numbers import CATALOG_GROUP, STARTS_SHIFT

LOOK_EVERY_MS: Final = 250
AGAIN_MS: Final = 2000
"""A command or a barrier without an answer for so long is given again."""
LEVELS_AGAIN_MS: Final = 10_000
"""As long as the cluster's level is below what this node knows, it says so again and again: a replica that came from a
snapshot of a member that knows of no levels has not heard it."""


class MembershipPort(Protocol):
    """What the duties need of the node around them."""

    def submit_catalog(self, command: CatalogCommand, done: Callable[[object], None]) -> None:
        """See `ClusterFacade.submit_catalog`."""
        ...

    def announce(self) -> None:
        """Tell the catalog that this node is up, and what is to be known of it."""
        ...

    def catalog_barrier(self, done: Callable[[object], None]) -> None:
        """See `ClusterFacade.catalog_barrier`."""
        ...


class MembershipDuties:
    """The membership duties of one node."""

    def __init__(
        self,
        host: Host,
        catalog: Catalog,
        port: MembershipPort,
        settings: MembershipSettings,
        work: Callable[[int], Work],
        queue_works: Callable[[int], Iterator[QueueWork]],
    ) -> None:
        """`work` and `queue_works` are for `PlanDuty`."""
        self.plan: PlanDuty = PlanDuty(host, catalog, port, work, queue_works, settings.plan)
        self._settings = settings
        self._levels = settings.levels
        self._added_ms = -AGAIN_MS
        self._raised_ms = -AGAIN_MS
        self._level_seen = 0
        self.level_changed: Callable[[int], None] = _no_level
        """Called with the cluster's feature level when it is known here, and when it was raised."""
        self._announced_ms = -1
        self.version: int = settings.members_version
        self.changed: Callable[[], None] = _nothing
        """Called when there are other members, or one of them has started again."""
        self._host = host
        self._catalog = catalog
        self._port = port
        self._next_look_ms = 0
        self._barrier_since_ms = -1
        self._gone_proposed_ms: dict[int, int] = {}
        self._founded_proposed_ms = -AGAIN_MS
        self._listed_ms = -1
        """Since when the catalog, which has no members yet, has this node."""
        self._seen = (-1, False)
        """The members that the host follows, and whether shards are on the nodes of the plan alone."""
        self.starts: dict[int, int] = {}
        """Node -> the count of its last start, as the catalog has it."""

    def catalog_changed(self, now_ms: int) -> None:
        """The catalog has changed here. Older members than those this node knew when it started are passed over."""
        self.plan.catalog_changed(now_ms)
        if self._catalog.level != self._level_seen and self._catalog.members.founded:
            self._level_seen = self._catalog.level
            self.level_changed(self._level_seen)
        members = self._catalog.members
        if not members.founded:
            self._next_look_ms = now_ms
        if members.version < self.version or not members.founded:
            return
        starts = {node.id: node.incarnation >> STARTS_SHIFT for node in self._catalog.nodes()}
        has_started = starts != self.starts
        self.starts = starts
        seen = (members.version, self._catalog.level >= LEVEL_FEEDS)
        if seen == self._seen:
            if has_started:
                self.changed()
            return
        self._seen = seen
        self.version = members.version
        self._next_look_ms = now_ms
        present = [record.id for record in members.with_replicas()]
        self._host.set_members(present, members.plan, now_ms, everywhere=self._catalog.level < LEVEL_FEEDS)
        self.changed()

    @property
    def removed(self) -> bool:
        """Whether the catalog says that this node was removed."""
        record = self._catalog.members.get(self._host.node)
        return record is not None and record.state == "removed"

    def tick(self, now_ms: int) -> None:
        """Time has passed: look whether something is to be done."""
        self.plan.tick(now_ms)
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_EVERY_MS
        members = self._catalog.members
        if not members.founded:
            self._found(now_ms)
            return
        self._tell_of_itself(now_ms)
        waits = self._barrier_since_ms >= 0 and now_ms - self._barrier_since_ms <= AGAIN_MS
        if not waits and any(self._host.leadership.reconfiguration(id, now_ms) is not None for id in self._host.groups):
            self._barrier_since_ms = now_ms
            self._port.catalog_barrier(lambda result: self._up_to_date(now_ms, result is None))
        if self._host.groups[CATALOG_GROUP].established:
            self._see_off_leaving(now_ms)
            self._raise_level(now_ms)
            self._follow_nodes(now_ms)

    def _found(self, now_ms: int) -> None:
        if not self._settings.founders or now_ms - self._founded_proposed_ms <= AGAIN_MS:
            return
        if self._catalog.node(self._host.node) is None:
            return  # The catalog has no leader yet, who would hear of founders.
        if self._listed_ms < 0:
            self._listed_ms = now_ms
        level = self._founding_level(now_ms, now_ms - self._listed_ms <= AGAIN_MS)
        if level:
            self._founded_proposed_ms = now_ms
            command = FoundCluster(self._settings.founders, self._host.settings.replication_factor, level)
            self._port.submit_catalog(command, _ignore)

    def _founding_level(self, now_ms: int, patient: bool) -> int:
        """The highest level that all founders know; 0: one is there that has not said yet what it knows.

        Of one that is not there the same is expected as of this node. If it is older it is not let in when it comes:
        it has no data that could be lost."""
        heard_ms = self._host.settings.election_timeout_ms
        level = self._levels.highest
        for id, _, _ in self._settings.founders:
            node = self._catalog.node(id)
            if node is not None:
                level = min(level, node.levels[1])
            elif patient and self._host.liveness.heard_within(id, now_ms, heard_ms):
                return 0
        return max(level, self._levels.lowest)

    def _tell_of_itself(self, now_ms: int) -> None:
        member = self._catalog.members.get(self._host.node)
        if member is None or member.state == "removed":
            return
        node = self._catalog.node(self._host.node)
        known = not self._settings.failure_domain or member.failure_domain == self._settings.failure_domain
        # What others have been told it is called stays: it is not said again if it is another one's.
        known = known and (not self._settings.store or bool(member.store))
        known = known and node is not None and node.levels == (self._levels.lowest, self._levels.highest)
        if self._announced_ms < 0:
            # The engine has done so when it started.
            self._announced_ms = now_ms if known else now_ms - AGAIN_MS - 1
        pause_ms = AGAIN_MS if not known else LEVELS_AGAIN_MS
        if (not known or self._catalog.level < self._levels.highest) and now_ms - self._announced_ms > pause_ms:
            self._announced_ms = now_ms
            self._port.announce()

    def _raise_level(self, now_ms: int) -> None:
        """Raise the feature level to what all members know, if they are all there to say so."""
        highest = self._levels.highest
        if self._catalog.level >= highest or now_ms - self._raised_ms < AGAIN_MS:
            return
        present = self._catalog.members.with_replicas()
        if not self._are_there(present, now_ms):
            return
        nodes: list[tuple[int, int]] = []
        for member in present:
            node = self._catalog.node(member.id)
            if node is not None:
                highest = min(highest, node.levels[1])
                nodes.append((node.id, node.incarnation))
        if highest > self._catalog.level:
            self._raised_ms = now_ms
            self._port.submit_catalog(RaiseLevel(highest, tuple(nodes)), _ignore)

    def _follow_nodes(self, now_ms: int) -> None:
        """Add the shards that are missing for the members there are, if these are all there: so that none of them is
        left out as a voter, and none comes to the command late without need."""
        shards_per_node = self._settings.plan.shards_per_node
        if not shards_per_node or now_ms - self._added_ms < AGAIN_MS or self._catalog.level < LEVEL_SHARDS_ADDED:
            return
        present = self._catalog.members.with_replicas()
        total = min(SHARDS, shards_per_node * sum(member.state == "member" for member in present))
        if total > self._catalog.shard_count and self._are_there(present, now_ms):
            self._added_ms = now_ms
            self._port.submit_catalog(AddShards(total), _ignore)

    def _are_there(self, members: Sequence[MemberRecord], now_ms: int) -> bool:
        """Whether these are up, by the catalog and as far as this node hears."""
        heard_ms = self._host.settings.election_timeout_ms
        nodes = [self._catalog.node(member.id) for member in members]
        return all(
            node is not None and node.alive and self._host.liveness.heard_within(node.id, now_ms, heard_ms)
            for node in nodes
        )

    def _up_to_date(self, asked_ms: int, passed: bool) -> None:
        """The catalog here has all that was committed when the barrier was asked for: act on it."""
        if self._barrier_since_ms == asked_ms:
            self._barrier_since_ms = -1
            if passed:
                self._host.reconfigure(asked_ms)

    def _see_off_leaving(self, now_ms: int) -> None:
        """A leaving member is gone when every group has the voters that it should have, as its replica here shows;
        below LEVEL_PLANS there is one of each."""
        members = self._catalog.members
        if self._catalog.level >= LEVEL_PLANS:
            return
        leaving = [record.id for record in members.with_replicas() if record.state == "leaving"]
        if not leaving:
            return
        for id, voters in members.plan.items():
            group = self._host.groups.get(id)
            if group is None or group.conf_state.voters_outgoing or set(group.conf_state.voters) != set(voters):
                return
        for node in leaving:
            if now_ms - self._gone_proposed_ms.get(node, -AGAIN_MS) >= AGAIN_MS:
                self._gone_proposed_ms[node] = now_ms
                self._port.submit_catalog(MemberGone(node), _ignore)


def _no_level(level: int) -> None:
    """No shell keeps the level."""


def _nothing() -> None:
    """No shell follows the members."""


def _ignore(result: object) -> None:
    """What came of it shows in the catalog."""
