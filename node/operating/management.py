"""What RabbitMQ's management API asks of a node: the `ManagementPort`."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from mayfly.node.amqp.errors import NOT_ALLOWED, PRECONDITION_FAILED
from mayfly.node.catalog import (
    ClearPolicy,
    Done,
    PolicyRecord,
    PolicySet,
    Refusal,
    RemoveQueues,
    SetPolicy,
    UserRecord,
    check_policy,
    refusals,
)
from mayfly.node.catalog.expressions import expression
from mayfly.node.catalog.permissions import check_access
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.catalog.values import json_term
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.definitions.names import checked_size
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.management import PolicyWish
from mayfly.node.operating.ports.users import ADMINISTRATOR
from mayfly.node.operating.queues import COUNTS_AT_ONCE, Queues
from mayfly.node.operating.views.overview import (
    TotalsOfUser,
    feature_flags,
    listener_rows,
    node_rows,
    overview,
    totals_of_all,
)
from mayfly.node.operating.visibility import sees_all, sees_vhost
from mayfly.node.shard.commands import encode_create_queue, encode_delete_queue
from mayfly.node.shard.results import IN_USE, Deleted, Gone, Refused
from mayfly.node.version import RABBITMQ_VERSION

_NO_VHOST: Final = 530
_PATIENCE_S: Final = 5.0
"""So long a shard may take to answer."""


class ThisNode(Protocol):
    """What a node knows of itself alone."""

    def now_ms(self) -> int: ...

    def clients_use_tls(self) -> bool: ...

    def resources(self) -> dict[str, Any]:
        """In the fields of RabbitMQ's `/api/nodes`."""


class Management:
    """Implements `ManagementPort`. The local replica is read, brought up to date at the login."""

    def __init__(
        self, engine: Engine, cluster: ClusterControl, logins: Logins, pump: Callable[[], None],
        this_node: ThisNode, clients: Clients, queues: Queues, groups: Groups,
        rabbitmq_version: str = RABBITMQ_VERSION,
    ) -> None:  # fmt: skip
        """`pump` has what was given to the engine go on its way. `rabbitmq_version` is what tools are told."""
        self._rabbitmq_version = rabbitmq_version
        self._clients = clients
        self._queues = queues
        self._groups = groups
        self._pump = pump
        self._engine = engine
        self._catalog = engine.catalog
        self._cluster = cluster
        self._logins = logins
        self._this_node = this_node

    async def login(self, user: str, password: str, loopback: bool) -> UserRecord | None:
        """See `ManagementPort.login`."""
        return await self._logins.login(user, password, loopback, self._cluster.catch_up)

    def has_vhost(self, vhost: str) -> bool:
        """See `ManagementPort.has_vhost`."""
        return self._catalog.has_vhost(vhost)

    def may_see(self, user: str, vhost: str) -> bool:
        """See `ManagementPort.may_see`."""
        return sees_vhost(self._catalog, user, vhost)

    def may_have_policies(self, user: str, vhost: str) -> bool:
        """See `ManagementPort.may_have_policies`."""
        record = self._catalog.user(user)
        if record is None:
            return False
        return ADMINISTRATOR in record.tags or self._catalog.permission(user, vhost) is not None

    def policies(self, vhost: str | None, operator: bool) -> list[dict[str, Any]]:
        """See `ManagementPort.policies`."""
        return [_shown(record) for record in self._catalog.policies(vhost, operator)]

    async def set_policy(self, wish: PolicyWish) -> Answer:
        """See `ManagementPort.set_policy`."""
        try:
            command = _command(wish)
            check_policy(command, self._catalog.policies(command.vhost, command.operator))
            checked_size(command.definition, "definition")
        except Refusal as refusal:
            return _refused(refusal)
        except ValueError as error:
            return bad_request(f"Validation failed\n\n{error}\n")
        result = await self._cluster.command(command)
        if isinstance(result, PolicySet):
            return HTTPStatus.CREATED if result.created else HTTPStatus.NO_CONTENT, {}
        return _failed(result)

    async def clear_policy(self, vhost: str, name: str, operator: bool) -> Answer:
        """See `ManagementPort.clear_policy`."""
        result = await self._cluster.command(ClearPolicy(vhost, name, operator))
        if not isinstance(result, Done):
            return _failed(result)
        if not result.changed:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        return HTTPStatus.NO_CONTENT, {}

    def vhosts_seen(self, user: str) -> list[str]:
        """See `ManagementPort.vhosts_seen`."""
        return [vhost.name for vhost in self._catalog.vhosts() if self.may_see(user, vhost.name)]

    async def queues(self, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """See `ManagementPort.queues`."""
        return await self._queues.managed(names)

    async def queue_names(self, vhosts: Iterable[str]) -> list[tuple[str, str]]:
        """See `ManagementPort.queue_names`."""
        names: list[tuple[str, str]] = []
        for vhost in vhosts:
            names += [(vhost, record.name) for record in self._catalog.queues(vhost)]
            await asyncio.sleep(0)
        return names

    async def overview(self, user: str) -> dict[str, Any]:
        """See `ManagementPort.overview`."""
        engine = self._engine
        if not self.sees_all(user):
            return overview(self._rabbitmq_version) | await self._totals_of(user)
        node = self._catalog.node(engine.node_id)
        totals, unknown = await self._groups.totals()
        return overview(self._rabbitmq_version) | totals_of_all(engine, totals) | _without(unknown) | {
            "node": f"node{engine.node_id}" if node is None else node.name,
            "listeners": listener_rows(engine, self._this_node.clients_use_tls()),
            "contexts": [],
        }

    async def _totals_of(self, user: str) -> dict[str, Any]:
        vhosts = self.vhosts_seen(user)
        totals = TotalsOfUser(self._engine, vhosts, user)
        records = [record for vhost in vhosts for record in self._catalog.queues(vhost)]
        unknown: set[int] = set()
        for start in range(0, len(records), COUNTS_AT_ONCE):
            some = records[start : start + COUNTS_AT_ONCE]
            counts, missing = await self._queues.counts(some)
            totals.add(len(some), counts.values())
            unknown.update(missing)
        return totals.shown() | _without(unknown)

    def sees_all(self, user: str) -> bool:
        """See `ClientsPort.sees_all`."""
        return sees_all(self._catalog, user)

    def may_close_all(self, user: str) -> bool:
        """See `ClientsPort.may_close_all`."""
        record = self._catalog.user(user)
        return record is not None and ADMINISTRATOR in record.tags

    async def count_clients(self, kind: Kind, selection: ClientSelection) -> int:
        """See `ClientsPort.count_clients`."""
        return await self._clients.count(kind, selection)

    async def clients(
        self, kind: Kind, selection: ClientSelection, start: int, most: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """See `ClientsPort.clients`."""
        return await self._clients.some(kind, selection, start, most)

    async def client(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """See `ClientsPort.client`."""
        return await self._clients.one(kind, name)

    async def close_connection(self, name: str, reason: str) -> bool:
        """See `ClientsPort.close_connection`."""
        return await self._clients.close(name, reason)

    def feature_flags(self) -> list[dict[str, Any]]:
        """See `ManagementPort.feature_flags`."""
        return feature_flags(self._rabbitmq_version)

    def nodes(self) -> list[dict[str, Any]]:
        """See `ManagementPort.nodes`."""
        return node_rows(self._engine, self._this_node.now_ms(), self._this_node.resources())

    async def delete_queue(self, user: str, vhost: str, name: str, if_unused: bool, if_empty: bool) -> Answer:
        """See `ManagementPort.delete_queue`."""
        refusal = check_access(self._catalog, user, "configure", "queue", vhost, name)
        if refusal is not None:
            return HTTPStatus.UNAUTHORIZED, {"error": "not_authorised", "reason": refusal.text}
        record = self._catalog.queue(vhost, name)
        if record is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        if record.exclusive:
            return bad_request(refusals.exclusive_lock(vhost, name).text)
        command = encode_delete_queue(record.id, if_unused, if_empty)
        result = await self._in_shard(record.shard, command)
        if isinstance(result, Gone) and not result.reason:
            # Declared, and not made there yet: it is to be a queue that is deleted, or it would be made later.
            await self._in_shard(record.shard, encode_create_queue(record.id, shard_settings(self._catalog, record)))
            result = await self._in_shard(record.shard, command)
        if isinstance(result, Refused):
            why = "in use" if result.reason == IN_USE else "not empty"
            return bad_request(f"queue '{name}' in vhost '{vhost}' {why}")
        if not isinstance(result, Deleted | Gone):
            return _failed(result)
        removed = await self._cluster.command(RemoveQueues((record.id,)))
        if removed is None or isinstance(removed, Refusal):
            return _failed(removed)
        await self._cluster.spread()
        return HTTPStatus.NO_CONTENT, {}

    async def _in_shard(self, shard: int, command: bytes) -> object:
        """What the shard answers; None if it is lost or takes too long."""
        answers: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def answered(result: object) -> None:
            if not answers.done():
                answers.set_result(result)

        self._engine.shard(shard).submit(command, answered)
        self._pump()
        try:
            return await asyncio.wait_for(answers, _PATIENCE_S)
        except TimeoutError:
            return None


def _without(unknown: Iterable[int]) -> dict[str, Any]:
    """Beside totals, the shards that are not in them because no node has told what is there; nothing if all are."""
    shards = sorted(unknown)
    return {"unknown_shards": shards} if shards else {}


def _command(wish: PolicyWish) -> SetPolicy:
    """The command for what is asked for, as far as the types of the values go. Raises Refusal."""
    if not isinstance(wish.pattern, str):
        raise Refusal(
            PRECONDITION_FAILED, f"pattern takes a string\npattern should be a binary but was {json_term(wish.pattern)}"
        )
    if not isinstance(wish.definition, dict):
        raise Refusal(PRECONDITION_FAILED, f"definition must be a dictionary: {json_term(wish.definition)}")
    apply_to = "all" if wish.apply_to is None else wish.apply_to
    if not isinstance(apply_to, str):
        apply_to = json_term(apply_to)  # which is none of the words
    priority = 0 if wish.priority is None else wish.priority
    return SetPolicy(wish.vhost, wish.name, wish.pattern, wish.definition, priority, apply_to, wish.operator)


def _shown(record: PolicyRecord) -> dict[str, Any]:
    fault = expression(record.pattern).fault
    return {
        "vhost": record.vhost,
        "name": record.name,
        "pattern": record.pattern,
        "apply-to": record.apply_to,
        "definition": record.definition,
        "priority": record.priority,
        **({} if fault is None else {"fault": fault}),
    }


def _failed(result: object) -> Answer:
    return _refused(result) if isinstance(result, Refusal) else in_doubt()


def _refused(refusal: Refusal) -> Answer:
    if refusal.code == NOT_ALLOWED:
        return no_such(refusal.text)
    return bad_request(f"Validation failed\n\n{refusal.text}\n")
