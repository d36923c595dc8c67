"""What RabbitMQ's management API asks of a node: the `ManagementPort`."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from mayfly.cluster.versions import LEVEL_GLOBAL_PARAMETERS
from mayfly.node.amqp.errors import NOT_ALLOWED, PRECONDITION_FAILED
from mayfly.node.catalog import (
    ClearGlobalParameter,
    ClearPolicy,
    Done,
    PolicyRecord,
    PolicySet,
    Refusal,
    SetGlobalParameter,
    SetPolicy,
    check_policy,
)
from mayfly.node.catalog.expressions import expression
from mayfly.node.catalog.journals import check_journal_of_policy
from mayfly.node.catalog.permissions import may_enter
from mayfly.node.catalog.records import CLUSTER_ID_PARAMETER, CLUSTER_NAME_PARAMETER, CLUSTER_TAGS_PARAMETER
from mayfly.node.catalog.refusals import needs_level
from mayfly.node.catalog.token_user import AnyUser, name_of
from mayfly.node.catalog.values import json_term
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.definitions.names import checked_global_parameter, checked_size
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.message_totals import MessageTotals
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import Cancelled
from mayfly.node.operating.ports.management import MOST_COUNTED, PolicyWish
from mayfly.node.operating.ports.queue_selection import Figures
from mayfly.node.operating.ports.users import ADMINISTRATOR, User
from mayfly.node.operating.queues import COUNTS_AT_ONCE, Queues
from mayfly.node.operating.resources import Resources
from mayfly.node.operating.views.overview import (
    TotalsOfUser,
    context_rows,
    feature_flags,
    listener_rows,
    node_rows,
    overview,
    queue_totals,
    totals_of_all,
)
from mayfly.node.operating.visibility import sees_all, sees_vhost, tags_of
from mayfly.node.version import RABBITMQ_VERSION


class ThisNode(Protocol):
    """What a node knows of itself alone."""

    def now_ms(self) -> int: ...

    def clients_use_tls(self) -> bool: ...

    def resources(self) -> dict[str, Any]:
        """In the fields of RabbitMQ's `/api/nodes`."""

    def login_attempts(self) -> list[dict[str, Any]]:
        """In RabbitMQ's shape."""

    def forget_login_attempts(self) -> None: ...


class ToldByOthers(NamedTuple):
    """What other nodes are asked about."""

    clients: Clients
    queues: Queues
    groups: Groups
    resources: Resources
    messages: MessageTotals


class Management:
    """Implements `ManagementPort`. The local replica is read, brought up to date at the login."""

    def __init__(
        self, engine: Engine, cluster: ClusterControl, logins: Logins, this_node: ThisNode, told: ToldByOthers,
        rabbitmq_version: str = RABBITMQ_VERSION,
    ) -> None:  # fmt: skip
        """`rabbitmq_version` is what tools are told."""
        self._rabbitmq_version = rabbitmq_version
        self._clients = told.clients
        self._queues = told.queues
        self._groups = told.groups
        self._engine = engine
        self._catalog = engine.catalog
        self._cluster = cluster
        self._logins = logins
        self._this_node = this_node
        self._resources = told.resources
        self._messages = told.messages

    async def login(self, user: str, password: str, loopback: bool) -> User | None:
        """See `ManagementPort.login`."""
        return await self._logins.login(user, password, loopback, self._cluster.catch_up)

    def auth(self) -> dict[str, Any]:
        """See `ManagementPort.auth`."""
        tokens = self._logins.tokens
        if tokens is None:
            return {"oauth_enabled": False}
        # Whoever comes has a token already: nobody is sent to the provider for one.
        return {
            "oauth_enabled": True,
            "oauth_initiated_logon_type": "idp_initiated",
            "oauth_disable_basic_auth": tokens.only,
        }

    def has_vhost(self, vhost: str) -> bool:
        """See `ManagementPort.has_vhost`."""
        return self._catalog.has_vhost(vhost)

    def may_see(self, user: AnyUser, vhost: str) -> bool:
        """See `ManagementPort.may_see`."""
        return sees_vhost(self._catalog, user, vhost)

    def may_have_policies(self, user: AnyUser, vhost: str) -> bool:
        """See `ManagementPort.may_have_policies`."""
        tags = tags_of(self._catalog, user)
        return tags is not None and (ADMINISTRATOR in tags or may_enter(self._catalog, user, vhost))

    def policies(self, vhost: str | None, operator: bool) -> list[dict[str, Any]]:
        """See `ManagementPort.policies`."""
        return [_shown(record) for record in self._catalog.policies(vhost, operator)]

    async def set_policy(self, wish: PolicyWish) -> Answer:
        """See `ManagementPort.set_policy`."""
        try:
            command = policy_command(wish)
            check_policy(command, self._catalog.policies(command.vhost, command.operator))
            check_journal_of_policy(self._catalog, command.vhost, command.name, command.definition)
            checked_size(command.definition, "definition")
        except Refusal as refusal:
            return refused_policy(refusal)
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

    def vhosts_seen(self, user: AnyUser) -> list[str]:
        """See `ManagementPort.vhosts_seen`."""
        return [vhost.name for vhost in self._catalog.vhosts() if self.may_see(user, vhost.name)]

    async def queues(self, names: Sequence[tuple[str, str]], figures: Figures = "all") -> list[dict[str, Any]]:
        """See `ManagementPort.queues`."""
        return await self._queues.managed(names, figures)

    async def timed_queues(self, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """See `ManagementPort.timed_queues`."""
        return await self._queues.timed(names)

    async def timed_queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """See `ManagementPort.timed_queue`."""
        return await self._queues.one(vhost, name)

    def queues_count(self) -> int:
        """See `ManagementPort.queues_count`."""
        return self._catalog.queues_count

    async def queue_names_by(self, column: str, vhosts: Collection[str]) -> Sequence[tuple[str, str]] | None:
        """See `ManagementPort.queue_names_by`."""
        return await self._queues.names_by(column, vhosts)

    async def queue_names(self, vhosts: Iterable[str]) -> list[tuple[str, str]]:
        """See `ManagementPort.queue_names`."""
        names: list[tuple[str, str]] = []
        for vhost in vhosts:
            names += [(vhost, record.name) for record in self._catalog.queues(vhost)]
            await asyncio.sleep(0)
        return names

    async def overview(self, user: AnyUser, with_stats: bool = True) -> dict[str, Any]:
        """See `ManagementPort.overview`."""
        engine = self._engine
        if not self.sees_all(user):
            return self._named() | await self._totals_of(user)
        stats = {"message_stats": await self._messages.of_cluster()} if with_stats else {}
        node = self._catalog.node(engine.node_id)
        totals, unknown = await self._groups.totals()
        listeners = listener_rows(engine, self._this_node.clients_use_tls())
        return self._named() | totals_of_all(engine, totals) | _without(unknown) | stats | {
            "node": f"node{engine.node_id}" if node is None else node.name,
            "listeners": listeners,
            "contexts": context_rows(listeners),
        }

    def _named(self) -> dict[str, Any]:
        """What everybody is told of the cluster."""
        tags = self._catalog.global_parameter(CLUSTER_TAGS_PARAMETER)
        told = overview(self._rabbitmq_version, self._catalog.cluster_name)
        return told if tags is None else told | {CLUSTER_TAGS_PARAMETER: tags.value}

    async def vhost_totals(self, vhosts: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `ManagementPort.vhost_totals`."""
        stats = await self._messages.of_vhosts(vhosts)
        totals: dict[str, dict[str, Any]] = {name: {"message_stats": each} for name, each in stats.items()}
        if self._catalog.queues_count > MOST_COUNTED:
            return totals
        for vhost in vhosts:
            counts, unknown = await self._queues.counts(list(self._catalog.queues(vhost)))
            if not unknown:
                ready = sum([each.ready for each in counts.values()])
                held = sum([each.unacknowledged for each in counts.values()])
                totals[vhost] |= queue_totals(ready, held)
        return totals

    async def exchange_stats(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        """See `ManagementPort.exchange_stats`."""
        return await self._messages.of_exchanges(names)

    async def delayed(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        """See `ManagementPort.delayed`."""
        named = [self._catalog.delay_queue(vhost, name) for vhost, name in names]
        records = [record for record in named if record is not None]
        rows = await self._queues.delayed(records) if records else {}
        return {
            (record.vhost, record.name): {
                "messages_delayed": rows[record.id]["scheduled"],
                "next_due_in_ms": rows[record.id].get("next_due_in_ms"),
            }
            for record in records
            if record.id in rows
        }

    async def _totals_of(self, user: AnyUser) -> dict[str, Any]:
        vhosts = self.vhosts_seen(user)
        totals = TotalsOfUser(self._engine, vhosts, name_of(user))
        records = [record for vhost in vhosts for record in self._catalog.queues(vhost)]
        unknown: set[int] = set()
        for start in range(0, len(records), COUNTS_AT_ONCE):
            some = records[start : start + COUNTS_AT_ONCE]
            counts, missing = await self._queues.counts(some)
            totals.add(len(some), counts.values())
            unknown.update(missing)
        return totals.shown() | _without(unknown)

    def sees_all(self, user: AnyUser) -> bool:
        """See `ClientsPort.sees_all`."""
        return sees_all(self._catalog, user)

    def may_close_all(self, user: AnyUser) -> bool:
        """See `ClientsPort.may_close_all`."""
        return ADMINISTRATOR in (tags_of(self._catalog, user) or ())

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

    async def close_channel(self, name: str, reason: str) -> bool:
        """See `ClientsPort.close_channel`."""
        return await self._clients.close_channel(name, reason)

    async def cancel_consumer(self, channel: str, tag: str) -> Cancelled:
        """See `ClientsPort.cancel_consumer`."""
        return await self._clients.cancel_consumer(channel, tag)

    def feature_flags(self) -> list[dict[str, Any]]:
        """See `ManagementPort.feature_flags`."""
        return feature_flags(self._rabbitmq_version)

    def global_parameters(self) -> list[dict[str, Any]]:
        """See `ManagementPort.global_parameters`."""
        given = {
            CLUSTER_NAME_PARAMETER: self._catalog.cluster_name,
            CLUSTER_ID_PARAMETER: f"rabbitmq-cluster-id-{self._cluster.cluster_id}",
        }
        given |= {record.name: record.value for record in self._catalog.global_parameters()}
        return [{"name": name, "value": value} for name, value in given.items()]

    async def set_global_parameter(self, name: str, value: object) -> Answer:
        """See `ManagementPort.set_global_parameter`."""
        checked_global_parameter(name, value)
        existed = self._catalog.global_parameter(name) is not None
        done = await self._change_global_parameters(SetGlobalParameter(name, value))
        return (HTTPStatus.CREATED, {}) if done[0] == HTTPStatus.NO_CONTENT and not existed else done

    async def clear_global_parameter(self, name: str) -> Answer:
        """See `ManagementPort.clear_global_parameter`."""
        return await self._change_global_parameters(ClearGlobalParameter(name))

    async def _change_global_parameters(self, command: SetGlobalParameter | ClearGlobalParameter) -> Answer:
        level = self._catalog.level
        if level < LEVEL_GLOBAL_PARAMETERS:  # Members that are older could not read the command.
            return bad_request(needs_level("setting global parameters", LEVEL_GLOBAL_PARAMETERS, level).text)
        result = await self._cluster.command(command)
        if not isinstance(result, Done):
            return _failed(result)
        await self._cluster.spread()
        if isinstance(command, ClearGlobalParameter) and not result.changed:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        return HTTPStatus.NO_CONTENT, {}

    async def nodes(self) -> list[dict[str, Any]]:
        """See `ManagementPort.nodes`."""
        return node_rows(self._engine, self._this_node.now_ms(), await self._resources.of_all())

    def login_attempts(self, node: str) -> list[dict[str, Any]] | None:
        """See `ManagementPort.login_attempts`."""
        record = self._catalog.node(self._engine.node_id)
        return self._this_node.login_attempts() if record is not None and record.name == node else None

    def forget_login_attempts(self) -> None:
        """See `ManagementPort.forget_login_attempts`."""
        self._this_node.forget_login_attempts()


def _without(unknown: Iterable[int]) -> dict[str, Any]:
    """Beside totals, the shards that are not in them because no node has told what is there; nothing if all are."""
    shards = sorted(unknown)
    return {"unknown_shards": shards} if shards else {}


def policy_command(wish: PolicyWish) -> SetPolicy:
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
    return refused_policy(result) if isinstance(result, Refusal) else in_doubt()


def refused_policy(refusal: Refusal) -> Answer:
    """What is answered to a policy that can't be."""
    if refusal.code == NOT_ALLOWED:
        return no_such(refusal.text)
    return bad_request(f"Validation failed\n\n{refusal.text}\n")
