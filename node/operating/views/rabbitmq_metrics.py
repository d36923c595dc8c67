"""A node's metrics under the names that RabbitMQ's plugin gives them, by its families.

So dashboards, rules and exporters that were made for RabbitMQ show figures. What is not kept here has no sample: a zero
would be taken for one. docs/operations/rabbitmq-metrics.md says what is left out, and why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mayfly.cluster.group.commit_times import NOT_KNOWN
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.traffic import SIZE_BOUNDS, Traffic
from mayfly.node.duties.alarms import DISK, MEMORY
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.metrics import Histogram, Metric, Sample
from mayfly.node.operating.ports.rabbitmq_metrics import AGGREGATED, DETAILED, MetricsSelection
from mayfly.node.shard.statistics import ShardStatistics
from mayfly.node.version import VERSION

_MS_PER_S: Final = 1000
_PROTOCOL: Final = {"protocol": "amqp091"}
_PREFIXES: Final = {DETAILED: "rabbitmq_detailed_"}
_CLUSTER_PREFIX: Final = "rabbitmq_cluster_"
"""Of families that RabbitMQ has in its detailed metrics alone: they are the same on every node."""
_EXCHANGES_AT_ONCE: Final = 200
_ALWAYS: Final = "identity"
_TOTALS: Final = "totals"
_GLOBAL: Final = "global"

Families = dict[str, list[Metric]]
"""Metrics by the family's name; theirs are without prefix, unless they have one in all cases."""


class NodeFigures(NamedTuple):
    """What the node's process knows of itself; what it does not know is None."""

    name: str
    cluster_name: str
    cluster: str
    rabbitmq_version: str
    uptime_ms: int
    open_files: int | None
    most_files: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    disk_free_bytes: int | None
    disk_limit_bytes: int
    logins_accepted: int
    logins_refused: int
    syncs: int
    sync_s: float


def node_metrics(engine: Engine, broker: Broker, figures: NodeFigures, wanted: MetricsSelection) -> list[Metric]:
    """Those of the node as a whole; of what single queues or groups have, their sums if they are `AGGREGATED`."""
    by_group = wanted.endpoint != AGGREGATED
    families = {
        _ALWAYS: _identity(figures, wanted.endpoint),
        "connection_churn_metrics": _churn(broker.traffic),
        "node_coarse_metrics": [
            *_known("process_open_fds", "Open file descriptors", figures.open_files),
            *_known("process_resident_memory_bytes", "Memory used, without mapped files", figures.memory_bytes),
            *_known("disk_space_available_bytes", "Disk space available", figures.disk_free_bytes),
        ],
        "node_metrics": [
            *_known("process_max_fds", "Open file descriptors limit", figures.most_files),
            *_known("resident_memory_limit_bytes", "Above it publishers are blocked", figures.memory_limit_bytes),
            *_known("disk_space_available_limit_bytes", "Below it publishers are blocked", figures.disk_limit_bytes),
            _gauge("erlang_uptime_seconds", "Node uptime; no Erlang in it", figures.uptime_ms / _MS_PER_S),
        ],
        "auth_attempt_metrics": [
            _counter("auth_attempts", "Logins", figures.logins_accepted + figures.logins_refused),
            _counter("auth_attempts_succeeded", "Logins that were accepted", figures.logins_accepted),
            _counter("auth_attempts_failed", "Logins that were refused", figures.logins_refused),
        ],
        "ra_metrics": _raft(engine, by_group),
        "node_persister_metrics": [
            _counter("io_sync_ops", "Syncs of the log", figures.syncs),
            _counter("io_sync_time_seconds", "What they and the writes before them took", figures.sync_s),
        ],
    }
    if wanted.endpoint != DETAILED:
        families[_TOTALS] = _client_totals(broker)
        families[_GLOBAL] = [*_global(broker), *_alarms(engine)]
    return _chosen(families, wanted)


def catalog_steps(engine: Engine, wanted: MetricsSelection) -> Iterator[Metric | None]:
    """What RabbitMQ tells of the whole cluster, and only among its detailed metrics; None for each step on the way."""
    catalog, asked = engine.catalog, wanted.families or ()
    if wanted.endpoint != DETAILED:
        return
    vhosts = [each.name for each in catalog.vhosts() if not wanted.vhosts or each.name in wanted.vhosts]
    if "vhost_status" in asked:
        yield f"{_CLUSTER_PREFIX}vhost_status", "1: it runs", "gauge", [({"vhost": vhost}, 1.0) for vhost in vhosts]
    names: list[Sample] = []
    bindings: list[Sample] = []
    if "exchange_names" in asked or "exchange_bindings" in asked:
        for vhost in vhosts:
            for number, each in enumerate(list(catalog.exchanges(vhost)), 1):
                labels = {"vhost": vhost, "exchange": each.name, "type": each.type}
                names.append((labels, 1.0))
                bindings.append((labels, float(catalog.bindings_count_from(vhost, each.name))))
                if number % _EXCHANGES_AT_ONCE == 0:
                    yield None
    if "exchange_names" in asked:
        yield f"{_CLUSTER_PREFIX}exchange_name", "Exchanges", "gauge", names
    if "exchange_bindings" in asked:
        yield f"{_CLUSTER_PREFIX}exchange_bindings", "Bindings of an exchange", "gauge", bindings


def queue_totals(statistics: Iterable[ShardStatistics]) -> list[Metric]:
    """Sums of the queues that this node tells of, by the statistics of the shards that it leads, and of its own."""
    told = list(statistics)

    def total(value: Callable[[ShardStatistics], int]) -> int:
        return sum(map(value, told))

    names = {
        **{name: (help, total(value)) for name, (help, value) in _TOTALS_OF_SHARD.items()},
        "queues": ("Queues", total(lambda it: it.queues)),
    }
    return [_gauge(f"rabbitmq_{name}", help, value) for name, (help, value) in names.items()]


def queue_metrics(rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> list[Metric]:
    """Of the queues in `rows`, from `QueueViews.some`."""
    families: Families = {
        family: [(name, help, "gauge", _of_rows(rows, value)) for name, (help, value) in metrics.items()]
        for family, metrics in _OF_QUEUE.items()
        # It is part of the other.
        if family != _CONSUMER_COUNT or (wanted.families is not None and "queue_metrics" not in wanted.families)
    }
    infos: list[Sample] = [
        (
            {
                "vhost": row["vhost"], "queue": row["name"], "queue_type": f"rabbit_{row['type']}_queue",
                "membership": "leader",
            },
            1.0,
        )
        for row in rows
    ]  # fmt: skip
    families[_ALWAYS] = [("queue_info", "What kind of queue it is", "gauge", infos)]
    return _chosen(families, wanted)


def _chosen(families: Families, wanted: MetricsSelection) -> list[Metric]:
    prefix = _PREFIXES.get(wanted.endpoint, "rabbitmq_")
    return [
        (name if name.startswith("rabbitmq_") else prefix + name, help, kind, samples)
        for family, metrics in families.items()
        if family == _ALWAYS or wanted.families is None or family in wanted.families
        for name, help, kind, samples in metrics
    ]


def _identity(figures: NodeFigures, endpoint: str) -> list[Metric]:
    build = {
        "rabbitmq_version": figures.rabbitmq_version, "product_name": "MayflyMQ", "product_version": VERSION,
    }  # fmt: skip
    identity = {
        "rabbitmq_node": figures.name, "rabbitmq_cluster": figures.cluster_name,
        "rabbitmq_cluster_permanent_id": figures.cluster, "rabbitmq_endpoint": endpoint,
    }  # fmt: skip
    return [
        ("rabbitmq_build_info", "Versions", "gauge", [(build, 1.0)]),
        ("rabbitmq_identity_info", "Node and cluster", "gauge", [(identity, 1.0)]),
    ]


def _churn(traffic: Traffic) -> list[Metric]:
    return [
        _counter("connections_opened", "Connections opened", traffic.connections_opened),
        _counter("connections_closed", "Connections closed", traffic.connections_closed),
        _counter("channels_opened", "Channels opened", traffic.channels_opened),
        _counter("channels_closed", "Channels closed", traffic.channels_closed),
        _counter("queues_declared", "Queues that clients of this node declared", traffic.queues_declared),
        _counter("queues_created", "Of these, those that were new", traffic.queues_created),
        _counter("queues_deleted", "Queues gone from the shards that this node leads", traffic.queues_deleted),
    ]


def _client_totals(broker: Broker) -> list[Metric]:
    traffic = broker.traffic
    return [
        _gauge("connections", "Connections open", traffic.connections_opened - traffic.connections_closed),
        _gauge("channels", "Channels open", traffic.channels_opened - traffic.channels_closed),
        _gauge("consumers", "Consumers connected", len(broker.consumers.by_id)),
    ]


def _global(broker: Broker) -> list[Metric]:
    traffic = broker.traffic
    counters = {
        "received": ("received from publishers", traffic.received),
        "received_confirm": ("received from publishers that expect confirms", traffic.received_confirm),
        "routed": ("routed to queues", traffic.routed),
        "unroutable_dropped": ("not mandatory and without a route", traffic.unroutable_dropped),
        "unroutable_returned": ("mandatory and without a route", traffic.unroutable_returned),
        "confirmed": ("confirmed to publishers", traffic.confirmed),
        "delivered": ("delivered", traffic.delivered),
        "delivered_consume_manual_ack": ("delivered to consumers that acknowledge", traffic.delivered_manual_ack),
        "delivered_consume_auto_ack": ("delivered to consumers that do not acknowledge", traffic.delivered_auto_ack),
        "delivered_get_manual_ack": ("got, to be acknowledged", traffic.got_manual_ack),
        "delivered_get_auto_ack": ("got, without acknowledgement", traffic.got_auto_ack),
        "get_empty": ("that were not there when one was asked for", traffic.get_empty),
        "redelivered": ("delivered or got again", traffic.redelivered),
        "acknowledged": ("acknowledged", traffic.acknowledged),
    }
    bounds = tuple(float(bound) for bound in SIZE_BOUNDS)
    sizes = Histogram(bounds, tuple(traffic.by_size), float(traffic.body_bytes))
    metrics = [
        _counter(f"global_messages_{name}", f"Messages {help}", value, _PROTOCOL)
        for name, (help, value) in counters.items()
    ]
    return [
        *metrics,
        _gauge("global_publishers", "Channels that have published", traffic.publishers, _PROTOCOL),
        _gauge("global_consumers", "Consumers", len(broker.consumers.by_id), _PROTOCOL),
        ("message_size_bytes", "Bodies received from publishers", "histogram", [(_PROTOCOL, sizes)]),
    ]


def _alarms(engine: Engine) -> list[Metric]:
    return [
        _gauge("alarms_free_disk_space_watermark", "1 while the disk is short", bool(engine.alarms.own(DISK))),
        _gauge("alarms_memory_used_watermark", "1 while memory is short", bool(engine.alarms.own(MEMORY))),
    ]


def _raft(engine: Engine, by_group: bool) -> list[Metric]:
    groups = list(engine.host.groups.values())
    values: dict[str, tuple[str, str, list[int]]] = {
        "raft_term": ("gauge", "Term", [group.term for group in groups]),
        "raft_term_total": ("counter", "Term, as older dashboards have it", [group.term for group in groups]),
        "raft_log_commit_index": ("gauge", "Commit index", [group.committed for group in groups]),
        "raft_log_last_applied_index": ("gauge", "Applied index", [group.applied for group in groups]),
        "raft_log_last_written_index": ("gauge", "Last index of the log", [group.log.last_index() for group in groups]),
        "raft_log_snapshot_index": ("gauge", "Snapshot index", [group.log.snapshot_metadata.index for group in groups]),
    }
    metrics: list[Metric] = []
    for name, (kind, help, numbers) in values.items():
        samples: list[Sample] = [({}, float(sum(numbers)))]
        if by_group:
            samples = [({"group": str(group.id)}, float(number)) for group, number in zip(groups, numbers, strict=True)]
        metrics.append((name, help, kind, samples))
    took = {group.id: group.awaited_commits.last_ms for group in groups if group.awaited_commits.last_ms != NOT_KNOWN}
    return metrics + _commit_latency({id: took_ms / _MS_PER_S for id, took_ms in took.items()}, by_group)


def _commit_latency(took_s: Mapping[int, float], by_group: bool) -> list[Metric]:
    """Of the groups that are led here, with the names of RabbitMQ 4 and 3: by group what its last entry took, or their
    mean and, as 4.2 has it, the longest."""
    if not took_s:
        return []
    names = ("raft_commit_latency_seconds", "raft_entry_commit_latency_seconds")
    help = "Until the last entry was committed, by the leaders here"
    if by_group:
        samples: list[Sample] = [({"group": str(id)}, value) for id, value in took_s.items()]
        return [(name, help, "gauge", samples) for name in names]
    mean = sum(took_s.values()) / len(took_s)
    return [
        *[_gauge(name, f"{help}: mean of the groups", mean) for name in names],
        _gauge("raft_max_commit_latency_seconds", f"{help}: the longest", max(took_s.values())),
    ]


def _known(name: str, help: str, value: float | None) -> list[Metric]:
    return [] if value is None else [_gauge(name, help, value)]


def _gauge(name: str, help: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    return name, help, "gauge", [(labels or {}, float(value))]


def _counter(name: str, help: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    return f"{name}_total", help, "counter", [(labels or {}, float(value))]


def _of_rows(rows: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], int]) -> list[Sample]:
    known = (row for row in rows if "ready" in row)
    return [({"vhost": row["vhost"], "queue": row["name"]}, float(value(row))) for row in known]


_CONSUMER_COUNT: Final = "queue_consumer_count"
_TOTALS_OF_SHARD: Final[dict[str, tuple[str, Callable[[Any], int]]]] = {
    "queue_messages_ready": ("Messages ready", lambda it: it.ready),
    "queue_messages_unacked": ("Messages held by consumers", lambda it: it.unacknowledged),
    "queue_messages": ("Messages ready and held", lambda it: it.ready + it.unacknowledged),
    "queue_consumers": ("Consumers of queues", lambda it: it.consumers),
    "queue_messages_bytes": ("Bytes of bodies", lambda it: it.ready_bytes + it.unacknowledged_bytes),
    "queue_messages_ready_bytes": ("Bytes of bodies ready", lambda it: it.ready_bytes),
    "queue_messages_unacked_bytes": ("Bytes of bodies held", lambda it: it.unacknowledged_bytes),
}
_OF_QUEUE: Final[dict[str, dict[str, tuple[str, Callable[[Mapping[str, Any]], int]]]]] = {
    "queue_coarse_metrics": {
        "queue_messages_ready": ("Messages ready", lambda row: row["ready"]),
        "queue_messages_unacked": ("Messages held by consumers", lambda row: row["unacknowledged"]),
        "queue_messages": ("Messages ready and held", lambda row: row["ready"] + row["unacknowledged"]),
    },
    _CONSUMER_COUNT: {"queue_consumers": ("Consumers", lambda row: row["consumers"])},
    "queue_metrics": {
        "queue_consumers": ("Consumers", lambda row: row["consumers"]),
        "queue_messages_bytes": ("Bytes of bodies", lambda row: row["ready_bytes"] + row["unacknowledged_bytes"]),
        "queue_messages_ready_bytes": ("Bytes of bodies ready", lambda row: row["ready_bytes"]),
        "queue_messages_unacked_bytes": ("Bytes of bodies held", lambda row: row["unacknowledged_bytes"]),
    },
}
