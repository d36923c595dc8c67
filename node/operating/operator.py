"""What operators may ask of a node over HTTP, and who may: the `OperatorPort`."""

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from mayfly.cluster.versions import LEVEL_QUEUE_MOVES, LEVEL_SHARDS_ADDED
from mayfly.node.catalog import (
    AddShards,
    CatalogCommand,
    MoveQueue,
    PlaceGroup,
    PreferLeader,
    Refusal,
    RemoveMember,
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
from mayfly.node.operating.shard_sources import unknown_text
from mayfly.node.operating.views.members import group_rows, is_own_or_down, member_rows


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


class Operator:
    """Implements `OperatorPort`."""

    def __init__(
        self,
        engine: Engine,
        logins: Logins,
        cluster: ClusterControl,
        freshness: Freshness,
        groups: Groups,
        dead_letters: DeadLetters,
        copies: DataCopies,
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
        self._freshness = freshness
        self._groups = groups
        self._dead_letters = dead_letters
        self._copies = copies
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
        return await self._freshness.of_all()

    async def members(self) -> dict[str, Any]:
        """See `OperatorPort.members`."""
        replicas = await self._groups.replicas()
        unknown = [group for group in self._groups.all() if group not in replicas]
        return {"members": member_rows(self._engine, replicas, self._now_ms()), "unknown_shards": unknown}

    def cluster(self) -> str:
        """See `OperatorPort.cluster`."""
        return self._cluster.cluster_id

    def level(self) -> int:
        """See `OperatorPort.level`."""
        return self._engine.catalog.level

    async def groups(self) -> list[dict[str, Any]]:
        """See `OperatorPort.groups`."""
        replicas = await self._groups.replicas()
        rows = group_rows(self._engine, self._groups.all(), replicas)
        return [row if row["group"] in replicas else row | {"unknown": unknown_text(row["group"])} for row in rows]

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
        return await self._run(MoveQueue(vhost, name, shard))

    def shard_count(self) -> int:
        """See `OperatorPort.shard_count`."""
        return self._engine.catalog.shard_count

    async def add_shards(self, total: int) -> Answer:
        """See `OperatorPort.add_shards`."""
        level = self._engine.catalog.level
        if level < LEVEL_SHARDS_ADDED:  # Members that don't know the command are not to be given it.
            return HTTPStatus.CONFLICT, {"error": needs_level("adding shards", LEVEL_SHARDS_ADDED, level).text}
        return await self._run(AddShards(total))

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
            copied = await (self._copies.whole(folder) if whole else self._copies.here(folder))
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

    async def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """See `OperatorPort.dead_letters`."""
        return await self._dead_letters.listed(selection)

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        """See `OperatorPort.settle_dead_letters`."""
        return await self._dead_letters.settle(release, selection)

    async def _run(self, command: CatalogCommand) -> Answer:
        result = await self._cluster.command(command)
        if isinstance(result, Refusal):
            status = HTTPStatus.NOT_FOUND if result.code == HTTPStatus.NOT_FOUND else HTTPStatus.CONFLICT
            return status, {"error": result.text}
        if result is None:
            text = "the catalog did not answer in time; whether it is done shows later"
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": text}
        return HTTPStatus.OK, {"changed": getattr(result, "changed", True)}
