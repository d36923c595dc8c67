"""What the catalog's leader does so that every group has voters that are there, spread and evened out; from level 6 on.

    a member is silent for `replace_after_ms` -> MemberAway: others are to vote in its place
    one that is away is there again, and stays for a tenth of that time -> MemberBack
    the plan is not as it should be -> PlanGroups, a few groups at a time (`cluster.host.plan_moves`); the next ones
    when the leaders of those groups have told that they are done
    a leaving member is planned on nowhere, and votes in no group any more -> MemberGone
    one shard is too much for a node, and nothing else is to be done or under way -> MoveQueue (`queue_balance`)

Every node tells the catalog's leader about the groups it leads (`group_reports`). How long a member has been silent is
the catalog's time, from NodeLost on, so a new leader does not begin to count anew. What is decided from it goes through
the log, and by the version of the members that it was decided for: of two leaders' words one counts.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from mayfly.cluster.host.host import Host
from mayfly.cluster.host.plan_moves import NO_LOADS, next_changes
from mayfly.cluster.versions import LEVEL_PLANS
from mayfly.node import notice_kinds
from mayfly.node.catalog import (
    NEVER_STARTED,
    Catalog,
    CatalogCommand,
    Done,
    MemberAway,
    MemberBack,
    MemberGone,
    MoveQueue,
    PlanGroups,
)
from mayfly.node.membership.group_loads import GroupLoads, Work
from mayfly.node.membership.group_reports import REPEAT_MS, GroupReport, KnownGroups, encode_reports, reports_of_led
from mayfly.node.membership.queue_balance import HOT_FOR_MS, Loads, QueueBalance, QueueMove
from mayfly.node.membership.queue_loads import QueueLoads, QueueWork
from mayfly.node.numbers import CATALOG_GROUP

logger = logging.getLogger(__name__)

LOOK_EVERY_MS: Final = 250
AGAIN_MS: Final = 2_000
"""A command without an answer for so long is given again."""
NEVER: Final = 0
BACK_AFTER_PART: Final = 10
"""A member that was away may vote again when it has been there for one of so many parts of the time of silence that
makes one away: who comes and goes is not filled with replicas each time."""
MS_PER_S: Final = 1_000


class PlanSettings:
    """What a cluster's plan shall follow. A member that is silent for `replace_after_ms` is replaced where it votes;
    NEVER: none is. There are to be `shards_per_node` shards for each member; 0: as many as there are. Unless `by_load`,
    groups count alike when votes and leads are evened out. Unless that and `moves_queues`, no queue moves by itself;
    before one does its shard was hot for `hot_for_ms`."""

    def __init__(
        self,
        replace_after_ms: int = NEVER,
        shards_per_node: int = 0,
        by_load: bool = True,
        hot_for_ms: int = HOT_FOR_MS,
        moves_queues: bool = True,
    ) -> None:
        self.replace_after_ms: int = replace_after_ms
        self.shards_per_node: int = shards_per_node
        self.by_load: bool = by_load
        self.moves_queues: bool = by_load and moves_queues
        self.hot_for_ms: int = hot_for_ms


class PlanPort(Protocol):
    """What the duty needs of the node around it."""

    def submit_catalog(self, command: CatalogCommand, done: Callable[[object], None]) -> None:
        """See `ClusterFacade.submit_catalog`."""
        ...


class PlanDuty:
    """One node's part in it: it tells, and while it leads the catalog it decides."""

    def __init__(
        self,
        host: Host,
        catalog: Catalog,
        port: PlanPort,
        work: Callable[[int], Work],
        queue_works: Callable[[int], Iterator[QueueWork]],
        settings: PlanSettings,
    ) -> None:
        """For `work` see `GroupLoads`, for `queue_works` `QueueLoads`."""
        self.loads: GroupLoads = GroupLoads(work)
        self.queues_moved: int = 0
        """How many queues were told by this node to move."""
        self.queue_loads: QueueLoads = QueueLoads(queue_works)
        self._queue_balance: QueueBalance = QueueBalance(settings.hot_for_ms)
        self._host = host
        self._catalog = catalog
        self._port = port
        self._replace_after_ms = settings.replace_after_ms
        self._by_load = settings.by_load
        self._moves_queues = settings.moves_queues
        self._known: KnownGroups = KnownGroups()
        self._next_look_ms = 0
        self._seen = -1
        self._told: tuple[int, int, list[tuple[int, int, tuple[int, ...]]]] | None = None
        self._told_ms = 0
        self._proposed_ms: dict[CatalogCommand, int] = {}
        self._fruitless: object = None
        """The situation from which nothing followed."""
        self._left_alone: list[int] = []

    def notice(self, data: bytes, now_ms: int) -> None:
        """A peer tells of the groups that it leads."""
        self._known.told(data, now_ms)
        self._next_look_ms = now_ms

    def catalog_changed(self, now_ms: int) -> None:
        """The catalog has changed here; the members perhaps."""
        if self._catalog.members.version != self._seen:
            self._seen = self._catalog.members.version
            self._next_look_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Time has passed: look whether something is to be told or done."""
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_EVERY_MS
        groups = self._host.groups
        self.loads.tick(list(groups), lambda group: groups[group].leads, now_ms)
        if self._moves_queues:
            self.queue_loads.look(self.loads.of_groups, lambda group: group in groups and groups[group].leads, now_ms)
        if self._catalog.level < LEVEL_PLANS or not self._catalog.members.founded:
            return
        self._tell(now_ms)
        if not groups[CATALOG_GROUP].established:
            self._known.forget()
            self._proposed_ms.clear()
            self._fruitless = None
            self._queue_balance.rest()
            return
        self._mind_who_is_away(now_ms)
        if self._plan(now_ms) and self._moves_queues:
            self._even_queues(now_ms)
        else:
            self._queue_balance.rest()
        self._see_off_leaving(now_ms)

    # ------------------------------------------------------------------ telling

    def _tell(self, now_ms: int) -> None:
        members = self._catalog.members
        leader = self._host.groups[CATALOG_GROUP].leader
        reports = reports_of_led(self._host, members, self.loads.of_groups, self.queue_loads.busiest)
        if any(report.voters for report in reports):
            # That they are done is waited for.
            self._next_look_ms = now_ms
        if leader == self._host.node:
            self._known.take(members.version, reports, now_ms)
            return
        news = (leader, members.version, [_without_load(report) for report in reports])
        if not leader or (news == self._told and now_ms - self._told_ms < REPEAT_MS):
            return
        send = self._host.send_unhurried_notice if news == self._told else self._host.send_notice
        self._told, self._told_ms = news, now_ms
        send(leader, notice_kinds.GROUPS, encode_reports(members.version, reports))

    # ------------------------------------------------------------------ deciding

    def _give(self, command: CatalogCommand, now_ms: int) -> bool:
        """Give a command, unless the same was given a moment ago."""
        if now_ms - self._proposed_ms.get(command, -AGAIN_MS) < AGAIN_MS:
            return False
        self._proposed_ms = {each: ms for each, ms in self._proposed_ms.items() if now_ms - ms < AGAIN_MS}
        self._proposed_ms[command] = now_ms
        self._port.submit_catalog(command, _ignore)
        return True

    def _is_heard(self, node: int, now_ms: int) -> bool:
        return self._host.liveness.heard_within(node, now_ms, self._host.settings.election_timeout_ms)

    def _mind_who_is_away(self, now_ms: int) -> None:
        if self._replace_after_ms == NEVER:
            return
        catalog_ms = self._host.groups[CATALOG_GROUP].clock.current_ms(now_ms)
        for member in self._catalog.members.with_replicas():
            node = self._catalog.node(member.id)
            alive = node is not None and node.alive
            if member.away:
                if alive and self._has_been_there(member.id, now_ms) and self._give(MemberBack(member.id), now_ms):
                    logger.info("%s (node %d) is there again, and may vote", member.name, member.id)
                continue
            # A founder that never came is silent from the beginning of the cluster on.
            silent_ms = catalog_ms - (member.changed_ms if node is None else node.changed_ms)
            if alive or silent_ms < self._replace_after_ms or self._is_heard(member.id, now_ms):
                continue
            incarnation = NEVER_STARTED if node is None else node.incarnation
            if member.state == "member" and self._give(MemberAway(member.id, incarnation), now_ms):
                logger.warning(
                    "%s (node %d) has been silent for %d s: others are to vote in its place",
                    member.name, member.id, silent_ms // MS_PER_S,
                )  # fmt: skip

    def _has_been_there(self, node: int, now_ms: int) -> bool:
        since_ms = self._host.liveness.up_since_ms(node)
        if node == self._host.node:
            return True
        least_ms = self._replace_after_ms // BACK_AFTER_PART
        return since_ms is not None and now_ms - since_ms >= least_ms and self._is_heard(node, now_ms)

    def _plan(self, now_ms: int) -> bool:
        """Whether nothing is to be changed, all members are there, and all groups have their voters."""
        members = self._catalog.members
        down = [record.id for record in members.with_replicas() if not self._is_heard(record.id, now_ms)]
        self._tell_of_left_alone()
        loads = self._known.loads() if self._by_load else NO_LOADS
        moving = self._known.moving(members.plan, members.version, now_ms)
        looked_at = (members.version, down, moving, loads)
        if looked_at != self._fruitless:
            changes = next_changes(members.situation(down, loads, moving))
            if changes:
                self._give(PlanGroups(members.version, tuple(changes)), now_ms)
                return False
            self._fruitless = looked_at
        return not down and not moving

    def _even_queues(self, now_ms: int) -> None:
        """Move a queue if a shard is too much for a node, no member is about to go, and no queue moves."""
        busiest, members = self._known.busiest(), self._catalog.members
        goes = any(
            record.state != "member" or record.away or self._host.leadership.drains(record.id, now_ms)
            for record in members.with_replicas()
        )
        if not busiest or goes or self._catalog.moving_queues():
            self._queue_balance.rest()
            return
        shards = {group: load for group, load in self._known.loads().items() if group != CATALOG_GROUP}
        leaders = {shard: voters[0] for shard, voters in members.plan.items() if voters}
        queues = {
            shard: [each for each in told if self._move_of(each[0], shard, shard) is not None]
            for shard, told in busiest.items()
        }
        move = self._queue_balance.next_move(Loads(shards, leaders, queues, len(members.voting())), now_ms)
        if move is None:
            return
        command = self._move_of(*move)
        if command is None:
            self._queue_balance.not_made(move.queue)
        else:
            loads = shards[move.source], shards[move.target]
            self._port.submit_catalog(command, partial(self._queue_moves, command, move, loads))

    def _move_of(self, queue: int, source: int, target: int) -> MoveQueue | None:
        """The command that moves a queue of a shard; None if it is not there, or can't move."""
        record = self._catalog.queue_by_id(queue)
        if record is None or record.shard != source:
            return None
        command = MoveQueue(
            record.vhost, record.name, target, delays=record.delays, id=record.id, number=record.move_number + 1
        )
        return command if self._catalog.may_move(command) else None

    def _queue_moves(self, command: MoveQueue, move: QueueMove, loads: tuple[int, int], result: object) -> None:
        if result == Done():
            self.queues_moved += 1
            logger.info(
                "queue %s of vhost %s moves from shard %d (%d thousandths of a core), which is hot, to shard %d (%d)",
                command.name, command.vhost, move.source, loads[0], move.target, loads[1],
            )  # fmt: skip
        else:
            self._queue_balance.not_made(move.queue)

    def _tell_of_left_alone(self) -> None:
        alone = self._catalog.members.left_alone()
        for group in alone:
            if group not in self._left_alone:
                logger.error("group %d is left alone: most of its voters are away", group)
        self._left_alone = alone

    def _see_off_leaving(self, now_ms: int) -> None:
        members = self._catalog.members
        leaving = [record.id for record in members.with_replicas() if record.state == "leaving"]
        if not leaving:
            return
        moving = self._known.moving(members.plan, members.version, now_ms).values()
        for node in leaving:
            is_out = not members.still_planned_on(node) and all(voters and node not in voters for voters in moving)
            if is_out:
                self._give(MemberGone(node), now_ms)


def _without_load(report: GroupReport) -> tuple[int, int, tuple[int, ...]]:
    return report.group, report.term, report.voters


def _ignore(result: object) -> None:
    """What came of it shows in the catalog."""
