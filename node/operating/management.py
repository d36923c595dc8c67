"""What RabbitMQ's management API asks of a node: the `ManagementPort` of `node.http`."""

from http import HTTPStatus
from typing import Any, Final

from node.catalog import (
    ClearPolicy,
    Done,
    PolicyRecord,
    PolicySet,
    Refusal,
    SetPolicy,
    UserRecord,
    check_policy,
)
from node.catalog.values import json_term
from node.engine import CATALOG_GROUP, Engine
from node.http.management import NOT_FOUND
from node.http.provider import PolicyWish
from node.membership_shell import MembershipShell
from node.operating.operator_login import Logins
from node.operating.status import managed_queue

Answer = tuple[HTTPStatus, dict[str, Any]]

_ADMINISTRATOR: Final = "administrator"
_SEES_ALL: Final = frozenset({_ADMINISTRATOR, "monitoring"})
_NO_VHOST: Final = 530


class Management:
    """Implements `node.http.provider.ManagementPort`. The local replica is read, brought up to date at the login."""

    def __init__(self, engine: Engine, membership: MembershipShell, logins: Logins) -> None:
        self._engine = engine
        self._catalog = engine.catalog
        self._membership = membership
        self._logins = logins

    async def login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        """See `ManagementPort.login`."""
        return await self._logins.login(user, password, loopback, self._catch_up)

    async def _catch_up(self) -> None:
        await self._membership.current.behind((CATALOG_GROUP,))

    def has_vhost(self, vhost: str) -> bool:
        """See `ManagementPort.has_vhost`."""
        return self._catalog.has_vhost(vhost)

    def may_see(self, user: str, vhost: str) -> bool:
        """See `ManagementPort.may_see`."""
        record = self._catalog.user(user)
        if record is None:
            return False
        return bool(_SEES_ALL & set(record.tags)) or self._catalog.permission(user, vhost) is not None

    def may_have_policies(self, user: str, vhost: str) -> bool:
        """See `ManagementPort.may_have_policies`."""
        record = self._catalog.user(user)
        if record is None:
            return False
        return _ADMINISTRATOR in record.tags or self._catalog.permission(user, vhost) is not None

    def policies(self, vhost: str | None, operator: bool) -> list[dict[str, Any]]:
        """See `ManagementPort.policies`."""
        return [_shown(record) for record in self._catalog.policies(vhost, operator)]

    async def set_policy(self, wish: PolicyWish) -> Answer:
        """See `ManagementPort.set_policy`."""
        try:
            command = _command(wish)
            check_policy(command)
        except Refusal as refusal:
            return _refused(refusal)
        result = await self._membership.command(command)
        if isinstance(result, PolicySet):
            return HTTPStatus.CREATED if result.created else HTTPStatus.NO_CONTENT, {}
        return _failed(result)

    async def clear_policy(self, vhost: str, name: str, operator: bool) -> Answer:
        """See `ManagementPort.clear_policy`."""
        result = await self._membership.command(ClearPolicy(vhost, name, operator))
        if not isinstance(result, Done):
            return _failed(result)
        if not result.changed:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        return HTTPStatus.NO_CONTENT, {}

    def queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """See `ManagementPort.queue`."""
        return managed_queue(self._engine, vhost, name)


def _command(wish: PolicyWish) -> SetPolicy:
    """The command for what is asked for, as far as the types of the values go. Raises Refusal."""
    if not isinstance(wish.pattern, str):
        raise Refusal(406, f"pattern takes a string\npattern should be a binary but was {json_term(wish.pattern)}")
    if not isinstance(wish.definition, dict):
        raise Refusal(406, f"definition must be a dictionary: {json_term(wish.definition)}")
    apply_to = "all" if wish.apply_to is None else wish.apply_to
    if not isinstance(apply_to, str):
        apply_to = json_term(apply_to)  # which is none of the words
    priority = 0 if wish.priority is None else wish.priority
    return SetPolicy(wish.vhost, wish.name, wish.pattern, wish.definition, priority, apply_to, wish.operator)


def _shown(record: PolicyRecord) -> dict[str, Any]:
    return {
        "vhost": record.vhost,
        "name": record.name,
        "pattern": record.pattern,
        "apply-to": record.apply_to,
        "definition": record.definition,
        "priority": record.priority,
    }


def _failed(result: object) -> Answer:
    if isinstance(result, Refusal):
        return _refused(result)
    reason = "the catalog did not answer in time; whether it is done shows later"
    return HTTPStatus.GATEWAY_TIMEOUT, {"error": "timeout", "reason": reason}


def _refused(refusal: Refusal) -> Answer:
    if refusal.code == _NO_VHOST:
        return HTTPStatus.NOT_FOUND, {"error": "Object Not Found", "reason": refusal.text}
    return HTTPStatus.BAD_REQUEST, {"error": "bad_request", "reason": f"Validation failed\n\n{refusal.text}\n"}
