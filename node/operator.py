"""What operators may ask of a node over HTTP, and who may: the `OperatorPort` of `node.http`."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from node.catalog import Catalog, CatalogCommand, PlaceGroup, PreferLeader, Refusal, RemoveMember
from node.engine import CATALOG_GROUP
from node.membership_shell import MembershipShell
from node.operator_login import login

_ADMINISTRATOR: Final = "administrator"

Answer = tuple[HTTPStatus, dict[str, Any]]


class Operator:
    """Implements `node.http.provider.OperatorPort`."""

    def __init__(self, catalog: Catalog, membership: MembershipShell, now_ms: Callable[[], int]) -> None:
        self._catalog = catalog
        self._membership = membership
        self._now_ms = now_ms

    async def may_operate(self, user: str, password: str, loopback: bool) -> bool:
        """See `OperatorPort.may_operate`."""
        await self._membership.current.behind((CATALOG_GROUP,))
        record = await login(self._catalog, user, password, loopback)
        return record is not None and _ADMINISTRATOR in record.tags

    async def freshness(self) -> dict[str, Any]:
        """See `OperatorPort.freshness`."""
        return await self._membership.freshness()

    def members(self) -> list[dict[str, Any]]:
        """See `OperatorPort.members`."""
        return self._membership.members(self._now_ms())

    def groups(self) -> list[dict[str, Any]]:
        """See `OperatorPort.groups`."""
        return self._membership.groups()

    async def remove_member(self, name: str) -> Answer:
        """See `OperatorPort.remove_member`."""
        return await self._run(RemoveMember(name))

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        """See `OperatorPort.move_group`."""
        return await self._run(PlaceGroup(group, voters))

    async def transfer_group(self, group: int, leader: str) -> Answer:
        """See `OperatorPort.transfer_group`."""
        return await self._run(PreferLeader(group, leader))

    async def _run(self, command: CatalogCommand) -> Answer:
        result = await self._membership.command(command)
        if isinstance(result, Refusal):
            status = HTTPStatus.NOT_FOUND if result.code == HTTPStatus.NOT_FOUND else HTTPStatus.CONFLICT
            return status, {"error": result.text}
        if result is None:
            text = "the catalog did not answer in time; whether it is done shows later"
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": text}
        return HTTPStatus.OK, {"changed": getattr(result, "changed", True)}
