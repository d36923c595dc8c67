"""What operators may ask of a node over HTTP, and who may: the `OperatorPort`."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from mayfly.cluster.versions import LEVEL_QUEUE_MOVES, LEVEL_SHARDS_ADDED, LEVEL_SWITCHES
from mayfly.node.catalog import (
    AddShards,
    CatalogCommand,
    MoveQueue,
    PlaceGroup,
    PreferLeader,
    Refusal,
    RemoveMember,
    SetSwitch,
)
from mayfly.node.catalog.refusals import needs_level
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.data_copies import DataCopies
from mayfly.node.operating.dead_letters import DeadLetters
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.own_token import OwnToken
from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.trace_wish import TraceWish
from mayfly.node.operating.shard_sources import unknown_text
from mayfly.node.operating.views.members import group_rows, is_own_or_down, member_rows

Traced = tuple[list[dict[str, Any]], int]
"""Events, as `node.broker.watching` has them, and how many were left out."""


class NodeControl(Protocol):
    """What an operator does with the process of this node."""

    def begin_drain(self) -> None:
        """Begin, or go on."""
        ...

    async def revive(self) -> None:
        """Serve clients again. Raises OSError if it can't, or if the node was told to stop."""
        ...

    def drain_status(self) -> dict[str, object]:
        """How far it has come."""
        ...

    async def trace(self, queue_id: int, user: str, seconds: float, most: int) -> Traced | None:
        """What clients of this node do for so long. None: too many look already."""
        ...

    def log_levels(self) -> dict[str, str]:
        """By part, those that have one of their own; of "" that of the process."""
        ...

    def set_log_level(self, part: str, level: str) -> None:
        """From now on; "": as what it is a part of. Raises ValueError."""
        ...


@dataclass(frozen=True, slots=True)
class AskedOfOthers:
    """What is asked of other nodes as well, where this one does not have it."""

    freshness: Freshness
    groups: Groups
    dead_letters: DeadLetters
    copies: DataCopies


class Operator:
    """Implements `OperatorPort`."""

    def __init__(
        self,
        engine: Engine,
        logins: Logins,
        cluster: ClusterControl,
        gathered: AskedOfOthers,
        now_ms: Callable[[], int],
        node: NodeControl,
        own_token: OwnToken | None = None,
    ) -> None:
        """Without `own_token` everything takes a login."""
        self._own_token = own_token
        self._node = node
        self._engine = engine
        self._logins = logins
        self._cluster = cluster
        self._gathered = gathered
        self._now_ms = now_ms

    async def tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """See `OperatorPort.tags`."""
        record = await self._logins.login(user, password, loopback, self._cluster.catch_up)
        return () if record is None else record.tags

    async def monitor_tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """See `OperatorPort.monitor_tags`."""
        record = await self._logins.login(user, password, loopback)
        return () if record is None else record.tags

    def is_own_token(self, text: str) -> bool:
        """See `OperatorPort.is_own_token`."""
        return self._own_token is not None and self._own_token.is_shown(text)

    def may_be_removed_by_token(self, name: str) -> bool:
        """See `OperatorPort.may_be_removed_by_token`."""
        return is_own_or_down(self._engine, name, self._now_ms())

    async def freshness(self) -> dict[str, Any]:
        """See `OperatorPort.freshness`."""
        return await self._gathered.freshness.of_all()

    async def members(self) -> dict[str, Any]:
        """See `OperatorPort.members`."""
        replicas = await self._gathered.groups.replicas()
        unknown = [group for group in self._gathered.groups.all() if group not in replicas]
        return {"members": member_rows(self._engine, replicas, self._now_ms()), "unknown_shards": unknown}

    def cluster(self) -> str:
        """See `OperatorPort.cluster`."""
        return self._cluster.cluster_id

    def level(self) -> int:
        """See `OperatorPort.level`."""
        return self._engine.catalog.level

    async def groups(self) -> list[dict[str, Any]]:
        """See `OperatorPort.groups`."""
        replicas = await self._gathered.groups.replicas()
        rows = group_rows(self._engine, self._gathered.groups.all(), replicas)
        return [row if row["group"] in replicas else row | {"unknown": unknown_text(row["group"])} for row in rows]

    async def replicas(self) -> list[dict[str, Any]]:
        """See `OperatorPort.replicas`."""
        return await self._gathered.groups.by_nodes()

    async def remove_member(self, name: str) -> Answer:
        """See `OperatorPort.remove_member`."""
        return await self._run(RemoveMember(name))

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        """See `OperatorPort.move_group`."""
        return await self._run(PlaceGroup(group, voters))

    async def move_queue(self, vhost: str, name: str, shard: int) -> Answer:
        """See `OperatorPort.move_queue`."""
        level = self._engine.catalog.level
        if level < LEVEL_QUEUE_MOVES:  # As in `add_shards`.
            refused = needs_level("moving a queue to another shard", LEVEL_QUEUE_MOVES, level)
            return HTTPStatus.CONFLICT, {"error": refused.text}
        record = self._engine.catalog.queue(vhost, name)
        return await self._run(MoveQueue(vhost, name, shard, id=0 if record is None else record.id))

    def shard_count(self) -> int:
        """See `OperatorPort.shard_count`."""
        return self._engine.catalog.shard_count

    async def add_shards(self, total: int) -> Answer:
        """See `OperatorPort.add_shards`."""
        level = self._engine.catalog.level
        if level < LEVEL_SHARDS_ADDED:  # Members that don't know the command are not to be given it.
            return HTTPStatus.CONFLICT, {"error": needs_level("adding shards", LEVEL_SHARDS_ADDED, level).text}
        return await self._run(AddShards(total))

    async def switch(self, vhost: str | None, feature: str, on: bool) -> Answer:
        """See `OperatorPort.switch`."""
        level = self._engine.catalog.level
        if level < LEVEL_SWITCHES:  # As in `add_shards`.
            refused = needs_level("switching something off", LEVEL_SWITCHES, level)
            return HTTPStatus.CONFLICT, {"error": refused.text}
        answer = await self._run(SetSwitch(vhost, feature, on))
        await self._cluster.spread()
        return answer

    async def transfer_group(self, group: int, leader: str) -> Answer:
        """See `OperatorPort.transfer_group`."""
        return await self._run(PreferLeader(group, leader))

    def drain(self) -> Answer:
        """See `OperatorPort.drain`."""
        self._node.begin_drain()
        return HTTPStatus.OK, {"drain": self._node.drain_status()}

    async def snapshot(self, folder: str, whole: bool) -> Answer:
        """See `OperatorPort.snapshot`."""
        if not Path(folder).is_absolute() or "\0" in folder:
            text = f"folder = '{folder}': an absolute path on the node's machine is expected"
            return HTTPStatus.BAD_REQUEST, {"error": text}
        try:
            copied = await (self._gathered.copies.whole(folder) if whole else self._gathered.copies.here(folder))
            return HTTPStatus.OK, copied
        except OSError as error:
            return HTTPStatus.CONFLICT, {"error": f"folder = '{folder}': {error}"}

    async def revive(self) -> Answer:
        """See `OperatorPort.revive`."""
        try:
            await self._node.revive()
        except OSError as error:
            return HTTPStatus.CONFLICT, {"error": f"clients can't be taken again: {error}"}
        return HTTPStatus.OK, {"drain": self._node.drain_status()}

    def log_levels(self) -> dict[str, Any]:
        """See `OperatorPort.log_levels`."""
        return {"levels": self._node.log_levels()}

    def set_log_level(self, part: str, level: str) -> Answer:
        """See `OperatorPort.set_log_level`."""
        self._node.set_log_level(part, level)
        return HTTPStatus.OK, self.log_levels()

    async def trace(self, wish: TraceWish) -> Answer:
        """See `OperatorPort.trace`."""
        catalog = self._engine.catalog
        record = catalog.queue(wish.vhost, wish.queue) if wish.queue else None
        if wish.queue and record is None:
            return HTTPStatus.NOT_FOUND, {"error": f"there is no queue '{wish.queue}' in vhost '{wish.vhost}'"}
        found = await self._node.trace(0 if record is None else record.id, wish.user, wish.seconds, wish.most)
        if found is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too many traces are under way on this node"}
        events, left_out = found
        for event in events:
            queues = [catalog.queue_by_id(id) for id in event.pop("queue_ids")]
            event["queues"] = [queue.name for queue in queues if queue is not None]
        return HTTPStatus.OK, {"events": events, "left_out": left_out}

    async def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """See `OperatorPort.dead_letters`."""
        return await self._gathered.dead_letters.listed(selection)

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        """See `OperatorPort.settle_dead_letters`."""
        return await self._gathered.dead_letters.settle(release, selection)

    async def _run(self, command: CatalogCommand) -> Answer:
        result = await self._cluster.command(command)
        if isinstance(result, Refusal):
            status = HTTPStatus.NOT_FOUND if result.code == HTTPStatus.NOT_FOUND else HTTPStatus.CONFLICT
            return status, {"error": result.text}
        if result is None:
            text = "the catalog did not answer in time; whether it is done shows later"
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": text}
        return HTTPStatus.OK, {"changed": getattr(result, "changed", True)}
