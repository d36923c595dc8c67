"""Where publishes go: routes remembered per vhost and user.  HOT.

A route is found in the catalog once per (exchange, routing key) and kept until
the catalog's routing or permissions change.  Exchanges whose routes depend on headers, and
messages with CC or BCC, are routed anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.field_table import ARRAY, LONG_STRING
from mayfly.node.broker.cluster_facade import ClusterFacade, ShardHandle
from mayfly.node.broker.crossings import Crossings
from mayfly.node.broker.operation import AmqpError, as_error, check
from mayfly.node.broker.stream_ttls import NO_FLOOR
from mayfly.node.catalog import Refusal, refusals
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.permissions import check_access, check_topic
from mayfly.node.catalog.routing_steps import RoutingTurns, TooManySteps
from mayfly.node.catalog.shard_settings import allows_schedules, refuses_publishes, stream_ttl_floor_ms
from mayfly.node.catalog.streams import STREAM
from mayfly.node.catalog.token_user import AnyUser, TokenUser
from mayfly.node.content_header import HEADERS
from mayfly.node.limits import (
    COPIES_CHARACTERS,
    ROUTES_CACHED,
    ROUTES_CACHED_OF_TOKEN,
    ROUTING_STEPS_OF_MESSAGE,
    WIDE_ROUTE_QUEUES,
)

if TYPE_CHECKING:
    from mayfly.node.catalog import QueueRecord


class Target:
    """The queues of one shard that a message goes to; `guarded` when one of them may refuse it, `schedules` when one
    allows that it says when it is due. `ttl_floors_ms`: what each of them that is a stream says of TTLs."""

    def __init__(
        self, shard_id: int, handle: ShardHandle, queue_ids: tuple[int, ...], guarded: bool = False,
        schedules: bool = False, ttl_floors_ms: Sequence[int] = (),
    ) -> None:
        self.shard_id: int = shard_id
        self.handle: ShardHandle = handle
        self.queue_ids: tuple[int, ...] = queue_ids
        self.guarded: bool = guarded
        self.schedules: bool = schedules
        self.ttl_floors_ms: Sequence[int] = ttl_floors_ms


class Route:
    """The targets of one (exchange, routing key); none when it is unroutable."""

    def __init__(
        self, targets: list[Target], by_headers: bool, uncrossed: Sequence[QueueRecord] = (), may_delay: bool = False
    ) -> None:
        self.targets: list[Target] = targets
        # Whether it leads through a delayed exchange, which keeps what has a delay (RULES S1).
        self.may_delay: bool = may_delay
        # Where what has a delay waits, once that was asked for.
        self.waiting: Route | None = None
        # Queues among them that have moved, and to which nothing is to be published yet (`Crossings`).
        self.uncrossed: Sequence[QueueRecord] = uncrossed
        # How many queues, if those are so many that a copy for each counts as routing does; else 0.
        copies = sum([len(target.queue_ids) for target in targets])
        self.wide_copies: int = copies if copies > WIDE_ROUTE_QUEUES else 0
        # The only target, the hot way; None when there are several or none, or so many queues, headers decide, or a
        # queue may refuse.
        hot = len(targets) == 1 and not by_headers and not targets[0].guarded and not uncrossed and not self.wide_copies
        self.only: Target | None = targets[0] if hot else None
        self.by_headers: bool = by_headers
        # Why it leads nowhere, if it was to lead to a mirror (RULES J4).
        self.read_only: Refusal | None = None
        self.schedules: bool = any(target.schedules for target in targets)
        floors_ms = [floor_ms for target in targets for floor_ms in target.ttl_floors_ms]
        # The least TTL that its streams take, NO_FLOOR if one takes none; None if there are no streams.
        self.ttl_floor_ms: int | None = None
        if floors_ms:
            self.ttl_floor_ms = NO_FLOOR if NO_FLOOR in floors_ms else max(floors_ms)


class Routes:
    """The routes of one vhost as one user may use them."""

    def __init__(self, cluster: ClusterFacade, vhost: str, user: AnyUser, crossings: Crossings) -> None:
        self._cluster = cluster
        self.crossings: Crossings = crossings
        self.turns: RoutingTurns = cluster.catalog.routing_turns
        self._vhost = vhost
        self._user = user
        self._most_known: int = ROUTES_CACHED_OF_TOKEN if isinstance(user, TokenUser) else ROUTES_CACHED
        self.version: int = -1
        self.known: dict[bytes, Route] = {}

    def change_user(self, user: AnyUser) -> None:
        """For the routes of one connection alone, whose user has shown another token."""
        self._user = user
        self.known.clear()

    def renew(self) -> None:
        """Forget all routes if the catalog has changed since they were found, or who may use them."""
        catalog = self._cluster.catalog
        # All only grow, so an equal sum means that none has changed.
        version = catalog.routing_version + catalog.permissions_version + self.crossings.version
        if version != self.version:
            self.version = version
            self.known.clear()

    def find(self, content: Content) -> Route:
        """Look the route up in the catalog and remember it if it leads anywhere.

        Raises AmqpError 404 (no such exchange, as far as the local replica knows) or 403.
        """
        exchange = content.exchange
        catalog = self._cluster.catalog
        check(check_access(catalog, self._user, "write", "exchange", self._vhost, exchange))
        record = catalog.find_exchange_to_publish(self._vhost, exchange)
        if isinstance(record, Refusal):
            raise as_error(record)
        if record.routes_as == "topic":
            check(check_topic(catalog, self._user, "write", self._vhost, exchange, content.routing_key))
        may_delay = catalog.may_delay(self._vhost, exchange)
        if catalog.looks_at_headers(self._vhost, exchange):
            route = Route([], True, may_delay=may_delay)
        else:
            queues = self._queues(content, None, (), False)
            route = Route(self._targets(queues), False, self.crossings.uncrossed(queues), may_delay)
            if not queues:
                route.read_only = self._read_only(content.exchange, (content.routing_key,))
                return route
        if len(self.known) >= self._most_known:
            self.known.clear()
        self.known[content.exchange_and_key] = route
        return route

    def find_by_content(self, content: Content, copies: tuple[str, ...], waits: bool = False) -> Route:
        """The route of one message, by its headers and the further routing keys of CC and BCC; if it `waits`, no
        further than to the queues of delayed exchanges."""
        catalog = self._cluster.catalog
        record = catalog.exchange(self._vhost, content.exchange)
        if record is not None and record.routes_as == "topic":
            for key in copies:
                check(check_topic(catalog, self._user, "write", self._vhost, content.exchange, key))
        headers: Any = content.properties().headers if content.has_property(HEADERS) else None
        queues = self._queues(content, headers, copies, waits)
        route = Route(self._targets(queues), False, self.crossings.uncrossed(queues))
        route.read_only = self._read_only(content.exchange, (content.routing_key, *copies))
        return route

    def _read_only(self, exchange: str, keys: tuple[str, ...]) -> Refusal | None:
        """Why a message is not taken that is for a mirror by its name."""
        if exchange:
            return None  # Nothing else leads there.
        for key in keys:
            queue = self._cluster.catalog.queue(self._vhost, key)
            if queue is not None and queue.settings.mirror is not None:
                return refusals.read_only(self._vhost, key, queue.settings.mirror)
        return None

    def _queues(
        self, content: Content, headers: Any, copies: tuple[str, ...], waits: bool
    ) -> tuple[QueueRecord, ...]:
        try:
            return self._cluster.catalog.route(
                self._vhost, content.exchange, content.routing_key, headers, extra_keys=copies, waits=waits
            )
        except TooManySteps:
            raise AmqpError(
                406,
                f"invalid message: exchange '{content.exchange}' in vhost '{self._vhost}' leads to so many exchanges "
                f"that {1 + len(copies)} routing keys, with those in CC and BCC, take more than "
                f"{ROUTING_STEPS_OF_MESSAGE} steps",
            ) from None

    def queues_of(self, route: Route) -> list[QueueRecord]:
        """The queues of a route, as the local replica has them."""
        catalog = self._cluster.catalog
        ids = [queue_id for target in route.targets for queue_id in target.queue_ids]
        return [queue for queue in map(catalog.queue_by_id, ids) if queue is not None]

    def _targets(self, queues: tuple[QueueRecord, ...]) -> list[Target]:
        by_shard: dict[int, list[int]] = {}
        guarded: set[int] = set()
        schedules: set[int] = set()
        floors_ms: dict[int, list[int]] = {}
        for queue in queues:
            by_shard.setdefault(queue.shard, []).append(queue.id)
            if refuses_publishes(self._cluster.catalog, queue):
                guarded.add(queue.shard)
            if allows_schedules(self._cluster.catalog, queue):
                schedules.add(queue.shard)
            if queue_type(queue.arguments) == STREAM:
                floors_ms.setdefault(queue.shard, []).append(stream_ttl_floor_ms(self._cluster.catalog, queue))
        return [
            Target(
                shard, self._cluster.shard(shard), tuple(ids), shard in guarded, shard in schedules,
                floors_ms.get(shard, ()),
            )
            for shard, ids in by_shard.items()
        ]


class NodeRoutes:
    """The routes of one node: connections of one user to one vhost share theirs."""

    def __init__(self, cluster: ClusterFacade) -> None:
        self._cluster = cluster
        self.crossings: Crossings = Crossings(cluster)
        self._routes: dict[tuple[str, str], Routes] = {}

    def of(self, vhost: str, user: AnyUser) -> Routes:
        """Those of one vhost as one user may use them. A token is one connection's, and so are its routes."""
        if isinstance(user, TokenUser):
            return Routes(self._cluster, vhost, user, self.crossings)
        key = (vhost, user)
        routes = self._routes.get(key)
        if routes is None:
            routes = self._routes[key] = Routes(self._cluster, vhost, user, self.crossings)
        return routes


def copies_of(content: Content) -> tuple[str, ...]:
    """The routing keys in the CC and BCC headers.

    Raises AmqpError 406 if either is not an array, as RabbitMQ does, or if there are too many: each is routed.
    """
    table = content.headers_table()
    if table is None:
        return ()
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = table.get(name)
        if value is None:
            continue
        if value.tag != ARRAY:
            raise AmqpError(
                406, f'invalid message: {{unacceptable_type_in_header,"{name}",{value.type_name()}}}'
            )
        keys.extend(each.text() for each in value.array() if each.tag == LONG_STRING)
    total = sum([len(key) + 1 for key in keys])
    if total > COPIES_CHARACTERS:
        raise AmqpError(
            406,
            f"invalid message: the routing keys in CC and BCC have {total} characters, with one more for each, "
            f"at most {COPIES_CHARACTERS} are taken",
        )
    return tuple(keys)
