"""What operators may ask of a node over HTTP, and who may: the `OperatorPort`."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from mayfly.node.catalog import CatalogCommand, PlaceGroup, PreferLeader, Refusal, RemoveMember
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.own_token import OwnToken
from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.views.dead_letter_office import DeadLetterOffice
from mayfly.node.operating.views.members import group_rows, is_own_or_down, member_rows

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.05
_PATIENCE_S: Final = 10.0



class NodeControl(Protocol):
    """What an operator does with the process of this node."""

    def begin_drain(self) -> None:
        """Begin, or go on."""
        ...

    async def revive(self) -> None:
        """Serve clients again. Raises OSError if it can't, or if the node was told to stop."""
        ...

    async def copy_data(self, folder: Path) -> int:
        """Copy the node's data to a folder that is not there yet; its bytes. Raises OSError."""
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
        office: DeadLetterOffice,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        node: NodeControl,
        own_token: OwnToken | None = None,
    ) -> None:
        """`wake()`: the engine has something to do. Without `own_token` everything takes a login."""
        self._own_token = own_token
        self._node = node
        self._engine = engine
        self._logins = logins
        self._cluster = cluster
        self._office = office
        self._now_ms = now_ms
        self._wake = wake

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
        return await self._cluster.freshness()

    def members(self) -> list[dict[str, Any]]:
        """See `OperatorPort.members`."""
        return member_rows(self._engine, self._now_ms())

    def cluster(self) -> str:
        """See `OperatorPort.cluster`."""
        return self._cluster.cluster_id

    def level(self) -> int:
        """See `OperatorPort.level`."""
        return self._engine.catalog.level

    def groups(self) -> list[dict[str, Any]]:
        """See `OperatorPort.groups`."""
        return group_rows(self._engine)

    async def remove_member(self, name: str) -> Answer:
        """See `OperatorPort.remove_member`."""
        return await self._run(RemoveMember(name))

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        """See `OperatorPort.move_group`."""
        return await self._run(PlaceGroup(group, voters))

    async def transfer_group(self, group: int, leader: str) -> Answer:
        """See `OperatorPort.transfer_group`."""
        return await self._run(PreferLeader(group, leader))

    def drain(self) -> Answer:
        """See `OperatorPort.drain`."""
        self._node.begin_drain()
        return HTTPStatus.OK, {"drain": self._node.drain_status()}

    async def snapshot(self, folder: str) -> Answer:
        """See `OperatorPort.snapshot`."""
        path = Path(folder)
        if not path.is_absolute() or "\0" in folder:
            text = f"folder = '{folder}': an absolute path on the node's machine is expected"
            return HTTPStatus.BAD_REQUEST, {"error": text}
        try:
            # All that was confirmed by now is to be in it, though others may have confirmed it.
            known = await self.freshness()
            return HTTPStatus.OK, {"folder": folder, "bytes": await self._node.copy_data(path)} | known
        except OSError as error:
            return HTTPStatus.CONFLICT, {"error": f"folder = '{folder}': {error}"}

    async def revive(self) -> Answer:
        """See `OperatorPort.revive`."""
        try:
            await self._node.revive()
        except OSError as error:
            return HTTPStatus.CONFLICT, {"error": f"clients can't be taken again: {error}"}
        return HTTPStatus.OK, {"drain": self._node.drain_status()}

    def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """See `OperatorPort.dead_letters`."""
        return self._office.parked(selection, self._now_ms()) | {"lanes": self._office.lanes(selection, self._now_ms())}

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        """See `OperatorPort.settle_dead_letters`."""
        chosen = left = self._office.chosen(selection)
        wanted = sum(map(len, chosen.values()))
        patience, again = _PATIENCE_S, 0.0
        while left and patience > 0:
            if again <= 0:
                again = _AGAIN_S
                self._office.give(release, left)
                self._wake()
            await asyncio.sleep(_LOOK_S)
            again -= _LOOK_S
            patience -= _LOOK_S
            left = self._office.still_parked(left)
        undone = sum(map(len, left.values()))
        done: dict[str, Any] = {"released" if release else "dropped": wanted - undone}
        if undone:
            text = f"{undone} of {wanted} are still parked as far as this node knows; a shard has no leader?"
            return HTTPStatus.GATEWAY_TIMEOUT, done | {"error": text}
        return HTTPStatus.OK, done

    async def _run(self, command: CatalogCommand) -> Answer:
        result = await self._cluster.command(command)
        if isinstance(result, Refusal):
            status = HTTPStatus.NOT_FOUND if result.code == HTTPStatus.NOT_FOUND else HTTPStatus.CONFLICT
            return status, {"error": result.text}
        if result is None:
            text = "the catalog did not answer in time; whether it is done shows later"
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": text}
        return HTTPStatus.OK, {"changed": getattr(result, "changed", True)}
