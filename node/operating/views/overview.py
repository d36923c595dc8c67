"""The cluster and its nodes as RabbitMQ's management API shows them, as far as they are known here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mayfly.node.broker.access_counts import CHANNELS_OF_USER, CONNECTIONS_OF_USER, CONNECTIONS_OF_VHOST
from mayfly.node.catalog.exchange import EXCHANGE_TYPES
from mayfly.node.duties.alarms import DISK, MEMORY, NAMES
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.views.queue_counts import QueueViewCounts, shard_here
from mayfly.node.version import VERSION

_RATES_MODE: Final = "basic"
_FEATURE_FLAGS: Final = (
    "detailed_queues_endpoint", "maintenance_mode_status", "quorum_queue", "stream_queue", "user_limits",
    "virtual_host_metadata",
)  # fmt: skip
"""Of RabbitMQ's those for something that is here: tools ask for them by name."""
_LISTENERS: Final = {"amqp": "amqp", "amqps": "amqp/ssl", "http": "http", "https": "https", "peer": "clustering"}
"""What the addresses of nodes are called here and there."""


class ShardTotals(NamedTuple):
    """What is in a shard."""

    ready: int
    unacknowledged: int
    consumers: int


def overview(rabbitmq_version: str, cluster_name: str) -> dict[str, Any]:
    """What is said to everybody; totals come to it."""
    return {
        "management_version": rabbitmq_version,
        "rabbitmq_version": rabbitmq_version,
        "product_name": "MayflyMQ",
        "product_version": VERSION,
        "cluster_name": cluster_name,
        "rates_mode": _RATES_MODE,
        "disable_stats": False,
        "enable_queue_totals": False,
        "exchange_types": [{"name": name, "enabled": True} for name in sorted(EXCHANGE_TYPES)],
    }


def feature_flags(rabbitmq_version: str) -> list[dict[str, Any]]:
    """Those of RabbitMQ's that tools go by: for what is here, and one for each release of 4.x up to that version."""
    release = tuple(int(part) for part in rabbitmq_version.split(".")[:2])
    names = [*_FEATURE_FLAGS, *(f"rabbitmq_4.{minor}.0" for minor in range(release[1] + 1) if release[0] == 4)]
    return [
        {"name": name, "desc": "", "doc_url": "", "state": "enabled", "stability": "required", "provided_by": "rabbit"}
        for name in names
    ]


def totals_in_steps(engine: Engine, shards: Iterable[int]) -> Iterator[tuple[int, ShardTotals] | None]:
    """What is in those of these shards that this node has, by their numbers; None for each step on the way."""
    for id in shards:
        shard = shard_here(engine, id)
        if shard is not None:
            for it in shard.statistics_in_steps():
                yield None if it is None else (id, ShardTotals(it.ready, it.unacknowledged, it.consumers))


def totals_of_all(engine: Engine, totals: Sequence[ShardTotals]) -> dict[str, Any]:
    """Of the whole cluster; of transient queues those of this node."""
    catalog = engine.catalog
    counts = engine.access_counts
    objects = {
        "queues": catalog.queues_count,
        "exchanges": sum(len(list(catalog.exchanges(vhost.name))) for vhost in catalog.vhosts()),
        "consumers": sum(each.consumers for each in totals),
        "connections": counts.everywhere(CONNECTIONS_OF_VHOST),
        "channels": counts.everywhere(CHANNELS_OF_USER),
    }
    return _totals(objects, sum(each.ready for each in totals), sum(each.unacknowledged for each in totals))


class TotalsOfUser:
    """What a user sees who does not see all: what is in some vhosts, and of connections and channels the own ones to
    this node: other nodes tell of users with limits only."""

    def __init__(self, engine: Engine, vhosts: Iterable[str], user: str) -> None:
        catalog = engine.catalog
        self._objects: dict[str, int] = {
            "queues": 0,
            "exchanges": sum(len(list(catalog.exchanges(vhost))) for vhost in vhosts),
            "consumers": 0,
            "connections": engine.access_counts.here(CONNECTIONS_OF_USER, user),
            "channels": engine.access_counts.here(CHANNELS_OF_USER, user),
        }
        self._ready = 0
        self._held = 0

    def add(self, queues: int, counts: Iterable[QueueViewCounts]) -> None:
        """So many queues are in the vhosts, and in those of which it is known there is so much."""
        self._objects["queues"] += queues
        for each in counts:
            self._objects["consumers"] += each.consumers
            self._ready += each.ready
            self._held += each.unacknowledged

    def shown(self) -> dict[str, Any]:
        """In RabbitMQ's fields."""
        return _totals(self._objects, self._ready, self._held)


def _totals(objects: dict[str, int], ready: int, held: int) -> dict[str, Any]:
    return {"object_totals": objects, "queue_totals": queue_totals(ready, held)}


def queue_totals(ready: int, held: int) -> dict[str, Any]:
    """Messages in queues, in RabbitMQ's fields."""
    return {"messages": ready + held, "messages_ready": ready, "messages_unacknowledged": held}


def listener_rows(engine: Engine, is_tls: bool) -> list[dict[str, Any]]:
    """Where the nodes listen, by their own word; those for clients are taken to have TLS as this node's."""
    rows = []
    for node in engine.catalog.nodes():
        if engine.catalog.members.get(node.id) is None:
            continue
        for kind, protocol in _LISTENERS.items():
            if kind in node.addresses:
                host, _, port = node.addresses[kind].rpartition(":")
                name = f"{protocol}/ssl" if kind == "amqp" and is_tls else protocol
                rows.append({"node": node.name, "protocol": name, "ip_address": host.strip("[]"), "port": int(port)})
    return sorted(rows, key=lambda row: (row["protocol"], row["port"], row["node"]))


def context_rows(listeners: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where the management API is, of these listeners."""
    return [
        {
            "node": row["node"], "description": "RabbitMQ Management", "path": "/", "ip": row["ip_address"],
            "port": str(row["port"]),
        }
        for row in listeners
        if row["protocol"] in ("http", "https")
    ]  # fmt: skip


def own_alarms(engine: Engine) -> list[str]:
    """What this node is short of."""
    return [name for alarm, name in NAMES.items() if engine.alarms.own(alarm)]


def node_rows(engine: Engine, now_ms: int, told: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The members by name; `told` is what nodes alone know of themselves."""
    of_all = {"type": "disc", "partitions": [], "rates_mode": _RATES_MODE, "enabled_plugins": []}
    host = engine.host
    names = {record.id: record.name for record in engine.catalog.nodes()}
    rows = []
    for id in host.members:
        is_self = id == engine.node_id
        on = own_alarms(engine) if is_self else engine.alarms.of_peer(id)
        row = {
            "name": names.get(id, f"node{id}"),
            **of_all,
            "running": is_self or host.liveness.heard_within(id, now_ms, host.settings.election_timeout_ms),
            "mem_alarm": NAMES[MEMORY] in on,
            "disk_free_alarm": NAMES[DISK] in on,
        }
        rows.append({**row, **told.get(id, {})})
    return sorted(rows, key=lambda row: str(row["name"]))
