"""What a node says of itself and of the cluster: for `mayfly status`, `/status`, `/queues` and `/metrics`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from mayfly.cluster.group.commit_times import COMMIT_BOUNDS_MS, CommitTimes
from mayfly.cluster.group.group import Group
from mayfly.node.broker.failed_logins import FailedLogins
from mayfly.node.catalog import QueueRecord
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.duties.alarms import DISK, MEMORY
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating.ports.metrics import Histogram, Metric, Sample
from mayfly.node.operating.views.lanes import lane_steps
from mayfly.node.operating.views.queue_counts import QueueViewCounts
from mayfly.node.operating.views.queue_views import policies_of
from mayfly.node.operating.views.rabbitmq_metrics import queue_totals
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.operating.views.stream_copies import CopyLag, copy_lag_steps
from mayfly.node.operating.views.upstream_views import upstream_lags
from mayfly.node.shard.counts import COUNTS
from mayfly.node.shard.expiry_lag import BOUNDS_MS, ExpiryLag
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.statistics import ShardStatistics

COPIES_SHOWN = 20
"""Of a shard's streams, those that are furthest behind."""
LANES_SHOWN = 100
"""Lanes with metrics of their own, those with the most messages; the others are in the sums only."""


def group_steps(engine: Engine, ids: Iterable[int], now_ms: int) -> Iterator[dict[str, Any] | None]:
    """A row for each of these groups that has a replica here, for `engine_status`; None for each step on the way."""
    names = {record.id: record.name for record in engine.catalog.nodes()}
    for id in ids:
        group = engine.host.groups.get(id)
        if group is not None:
            yield from _group_steps(engine, group, names, now_ms)


def unknown_group(engine: Engine, id: int) -> dict[str, Any]:
    """A row for a group of which nobody has told anything: what this node knows without a replica."""
    names = {record.id: record.name for record in engine.catalog.nodes()}
    leader = engine.leader_of(id)
    return {"group": id, "role": "none", "leader": leader, "leader_name": _name(names, leader)}


def engine_status(
    engine: Engine, own_name: str, now_ms: int, groups: list[dict[str, Any]]
) -> dict[str, Any]:
    """The whole cluster as this node sees it; `groups` are of `group_steps` and `unknown_group`, of which nothing is in
    the sums, `own_name` stands in for a name that the catalog does not have yet."""
    names = {record.id: record.name for record in engine.catalog.nodes()}
    summed = ("queues", "ready", "scheduled", "unacknowledged", "outbox")
    totals = {key: sum(row[key] for row in groups if key in row) for key in summed}
    return {
        "name": names.get(engine.node_id, own_name),
        "id": engine.node_id,
        "nodes": [_node_status(engine, id, names, now_ms) for id in engine.host.members],
        "shards": engine.catalog.shard_count,
        "groups": groups,
        "groups_left_alone": engine.catalog.members.left_alone(),
        "queues": totals,
        "unknown_shards": [row["group"] for row in groups if "unknown" in row],
        "switched_off": [
            {"vhost": record.vhost, "feature": record.feature} for record in engine.catalog.switches.records()
        ],
        "alarms": alarm_texts(engine),
        "blocked": engine.blocked,
        "clock_excess_ms": engine.host.clocks.excess_ms(),
        "clock_refusals": engine.host.clock_refusals,
    }


def _name(names: Mapping[int, str], node: int) -> str:
    return names.get(node, f"node{node}") if node else ""


def alarm_texts(engine: Engine) -> list[str]:
    """Why publishers are blocked: this node's alarms in full, of others which there are."""
    texts = [text for text in map(engine.alarms.own, (MEMORY, DISK)) if text is not None]
    names = {record.id: record.name for record in engine.catalog.nodes()}
    texts += [
        f"{names.get(peer, f'node{peer}')} is low on {' & '.join(engine.alarms.of_peer(peer))}"
        for peer in engine.alarms.with_alarms()
    ]
    return texts


def _node_status(engine: Engine, id: int, names: Mapping[int, str], now_ms: int) -> dict[str, Any]:
    is_self = id == engine.node_id
    record = engine.catalog.node(id)
    members = engine.catalog.members
    member = members.get(id)
    return {
        "id": id,
        "name": names.get(id, f"node{id}"),
        "failure_domain": member.failure_domain if member is not None else "",
        "up": _is_up(engine, id, now_ms),
        "away": member is not None and member.away,
        "replicas_to_move": members.to_move_from(id),
        "clock_offset_ms": 0 if is_self else engine.host.clocks.offset_ms(id),
        "addresses": dict(record.addresses) if record is not None else {},
    }


def _is_up(engine: Engine, id: int, now_ms: int) -> bool:
    within_ms = engine.host.settings.election_timeout_ms
    return id == engine.node_id or engine.host.liveness.heard_within(id, now_ms, within_ms)


def _group_steps(
    engine: Engine, group: Group, names: Mapping[int, str], now_ms: int
) -> Iterator[dict[str, Any] | None]:
    row: dict[str, Any] = {
        "group": group.id,
        "role": "leader" if group.leads else "follower",
        "leader": group.leader,
        "leader_name": _name(names, group.leader),
        "preferred_leader": engine.host.leadership.preferred(group.id),
        "term": group.term,
        "commit": group.committed,
        "applied": group.applied,
        "compacted": group.log.snapshot_metadata.index,
        "voters": list(group.conf_state.voters),
        "learners": list(group.conf_state.learners),
    }
    if group.id == CATALOG_GROUP:
        yield row
        return
    shard = engine.shards.get(group.id)
    if shard is None:
        return
    stalled = 0
    for lane in lane_steps(engine, shard, now_ms):
        stalled += bool(lane["waits_for"])
        yield None
    copies: list[CopyLag] = []
    for copy in copy_lag_steps(engine, shard) if group.leads else ():
        if copy is not None:
            copies.append(copy)
        yield None
    counted: ShardStatistics | None = None
    for step in shard.statistics_in_steps():
        counted = step
        yield None
    statistics = cast(ShardStatistics, counted)  # the last step
    row.update(
        queues=statistics.queues,
        ready=statistics.ready,
        scheduled=statistics.scheduled,
        next_due_in_ms=_next_due_in_ms(engine, shard, statistics, now_ms),
        unacknowledged=statistics.unacknowledged,
        consumers=statistics.consumers,
        outbox=statistics.outbox,
        parked=statistics.parked,
        braked=statistics.queues_braked,
        orphans=statistics.orphans,
        stalled_lanes=stalled,
        expiry_lag_ms=expiry_lag_ms(engine, shard, now_ms),
        counts={name: getattr(statistics, name) for name in COUNTS},
    )
    if group.leads:
        # Nobody else knows.
        copies.sort(key=lambda copy: -copy.offsets)
        links = [link for link in upstream_lags(engine) if link.shard == group.id]
        row.update(
            stream_copies=[copy.shown() for copy in copies[:COPIES_SHOWN]],
            upstreams=[link.shown() for link in links[:COPIES_SHOWN]],
        )
    yield row


def _next_due_in_ms(engine: Engine, shard: Shard, statistics: ShardStatistics, now_ms: int) -> int | None:
    """How long until the first of what is scheduled is due, below 0 when it is late; None when nothing is."""
    if statistics.next_due_ms < 0:
        return None
    return statistics.next_due_ms - shard_now(engine, shard, now_ms).time_ms


def expiry_lag_ms(engine: Engine, shard: Shard, now_ms: int) -> int:
    """How long the most overdue head or lease has been waiting for its expiry; 0 when nothing is due."""
    now = shard_now(engine, shard, now_ms)
    lag_ms = 0
    message_due_ms = shard.next_message_due_ms()
    if message_due_ms > 0:
        lag_ms = now.time_ms - message_due_ms
    lease_due_ms = shard.next_lease_due_ms()
    if lease_due_ms >= 0:
        lag_ms = max(lag_ms, now.led_ms - lease_due_ms)
    return max(0, lag_ms)


def managed_queue(
    engine: Engine, record: QueueRecord, counts: QueueViewCounts | None, in_full: bool = True
) -> dict[str, Any]:
    """One queue as RabbitMQ's management API shows it; without `counts` what the catalog says of it, and not `in_full`
    how many messages there are besides.

    The messages of another node's transient queue are known there alone.
    """
    info: dict[str, Any] = {
        "name": record.name,
        "vhost": record.vhost,
        "type": queue_type(record.arguments),
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
        "arguments": record.arguments,
        "state": "running",
        **policies_of(engine.catalog, record),
    }
    names = {node.id: node.name for node in engine.catalog.nodes()}
    if record.replicated:
        group = engine.host.groups.get(record.shard)
        planned = engine.catalog.members.plan.get(record.shard, ())
        voters = sorted(planned) if group is None else group.conf_state.voters
        leader = names.get(engine.leader_of(record.shard))
        if leader is not None:
            info["node"] = info["leader"] = leader
        info["members"] = [names.get(id, f"node{id}") for id in voters]
        limit = engine.catalog.effective_settings(record).delivery_limit
        if limit is not None or info["type"] == "quorum":
            info["delivery_limit"] = "unlimited" if limit is None else limit
    else:
        info["node"] = names.get(record.owner_node)
    if counts is not None:
        info.update(
            messages=counts.ready + counts.unacknowledged,
            messages_ready=counts.ready,
            messages_unacknowledged=counts.unacknowledged,
        )
    if counts is not None and in_full:
        info.update(
            message_bytes=counts.ready_bytes + counts.unacknowledged_bytes,
            message_bytes_ready=counts.ready_bytes,
            message_bytes_unacknowledged=counts.unacknowledged_bytes,
            consumers=counts.consumers,
        )
    return info


def metric_steps(engine: Engine, now_ms: int) -> Iterator[Metric | None]:
    """All metrics of this node, and None for each step on the way to one: of the shards that it has a replica of,
    labelled by their number, and of its own transient shard as "transient"."""
    shards = {str(id): shard for id, shard in engine.shards.items()}
    shards["transient"] = engine.transient.local.shard
    statistics: dict[str, ShardStatistics] = {}
    for id, shard in shards.items():
        for each in shard.statistics_in_steps():
            if each is not None:
                statistics[id] = each
            yield None

    def by_shard(field: str) -> list[Sample]:
        return [({"shard": id}, float(getattr(each, field))) for id, each in statistics.items()]

    def by_reason(field: str) -> list[Sample]:
        return [
            ({"shard": id, "reason": reason}, float(count))
            for id, each in statistics.items()
            for reason, count in getattr(each, field).items()
        ]

    yield from _own_metrics(engine, shards, by_reason, now_ms)
    for field, explanation in _SHARD_GAUGES.items():
        yield (f"mayfly_{field}", explanation, "gauge", by_shard(field))
    for field, explanation in _SHARD_COUNTERS.items():
        yield (f"mayfly_{field}", explanation, "counter", by_shard(field))
    yield from queue_totals(each for id, each in statistics.items() if engine.leads(shards[id].shard_id))
    yield from _clock_metrics(engine, shards, now_ms)
    yield from _outbox_steps(engine, shards, now_ms)
    yield from _copy_steps(engine, shards)
    yield _brake_metric(engine, shards)
    yield from _upstream_metrics(engine)


def _delayed(engine: Engine) -> Iterator[Sample]:
    """What waits for each delayed exchange, where its shard is led."""
    for record in engine.catalog.delay_queues():
        statistics = engine.shards[record.shard].queue_statistics(record.id) if engine.leads(record.shard) else None
        if statistics is not None:
            yield {"vhost": record.vhost, "exchange": record.name}, float(statistics.scheduled)


def _own_metrics(
    engine: Engine, shards: Mapping[str, Shard], by_reason: Callable[[str], list[Sample]], now_ms: int
) -> list[Metric]:
    """What needs no look at queues."""
    groups = list(engine.host.groups.values())

    def by_group(value: Any) -> list[Sample]:
        return [({"group": str(group.id)}, float(value(group))) for group in groups]

    down = sum(not _is_up(engine, id, now_ms) for id in engine.host.members)
    unled = sum(engine.leader_of(id) == 0 for id in range(engine.catalog.shard_count + 1))
    return [
        ("mayfly_members_down", "Members that this node does not hear", "gauge", _one(down)),
        (
            "mayfly_members_away", "Members that were silent for so long that others vote in their place", "gauge",
            _one(len(engine.catalog.members.those_away())),
        ),
        (
            "mayfly_groups_left_alone", "Groups most of whose voters are away", "gauge",
            _one(len(engine.catalog.members.left_alone())),
        ),
        (
            "mayfly_queues_moved_by_load", "Queues that this node, leading the catalog, had moved from hot shards",
            "counter", _one(engine.membership.plan.queues_moved),
        ),
        ("mayfly_shards", "Shards of the cluster", "gauge", _one(engine.catalog.shard_count)),
        ("mayfly_groups_without_leader", "Groups of which this node knows no leader", "gauge", _one(unled)),
        ("mayfly_raft_term", "Current term", "gauge", by_group(lambda group: group.term)),
        ("mayfly_raft_leader", "1 where this node leads", "gauge", by_group(lambda group: group.leads)),
        ("mayfly_raft_commit_index", "Commit index", "gauge", by_group(lambda group: group.committed)),
        ("mayfly_raft_applied_index", "Applied index", "gauge", by_group(lambda group: group.applied)),
        (
            "mayfly_expiry_lag_ms", "Age of the most overdue head or lease", "gauge",
            [
                ({"shard": id}, float(expiry_lag_ms(engine, shard, now_ms))) for id, shard in shards.items()
            ],
        ),
        (
            "mayfly_expiry_lag_seconds", "From a message's deadline to the entry that expired it", "histogram",
            [({"shard": id}, _lag(shard.expiry_lag)) for id, shard in shards.items()],
        ),
        (
            "mayfly_due_lag_seconds", "From a scheduled message's due time to the entry in which it became ready",
            "histogram", [({"shard": id}, _lag(shard.due_lag)) for id, shard in shards.items()],
        ),
        (
            "mayfly_exchange_delayed", "Messages that wait for a delayed exchange", "gauge",
            list(_delayed(engine)),
        ),
        ("mayfly_deaths", "Messages dead-lettered, by reason", "counter", by_reason("dead_lettered_for")),
        ("mayfly_queues_gone", "Queues that are gone, by reason", "counter", by_reason("gone_for")),
        ("mayfly_clock_excess_ms", "This node's clock beyond the bound", "gauge", _one(engine.host.clocks.excess_ms())),
        ("mayfly_clock_refusals", "Campaigns held back by the clock", "counter", _one(engine.host.clock_refusals)),
        (
            "mayfly_commit_seconds", "From when an entry gathers at the leader of its group until it is committed",
            "histogram", [({}, _commits(engine.host.commit_times))],
        ),
        (
            "mayfly_late_writes", "Writes of the log that took longer than their limit", "counter",
            _one(engine.host.disk.late_writes),
        ),
        ("mayfly_disk_alarm", "1 while this node is short of disk", "gauge", _one(bool(engine.alarms.own(DISK)))),
        ("mayfly_memory_alarm", "1 while this node is short of memory", "gauge", _one(bool(engine.alarms.own(MEMORY)))),
        ("mayfly_publishers_blocked", "1 while an alarm of any node stops them", "gauge", _one(bool(engine.blocked))),
        (
            "mayfly_pending_bytes", "Commands given and not yet applied, and large messages that wait for their turn",
            "gauge", _one(engine.pending_bytes()),
        ),
        ("mayfly_entry_cache_bytes", "Log entries in memory", "gauge", _one(engine.host.cache.used_bytes)),
    ]


def login_metrics(by_protocol: Mapping[str, FailedLogins]) -> list[Metric]:
    """Logins on this node."""
    results: list[Sample] = []
    addresses: list[Sample] = []
    for protocol, logins in by_protocol.items():
        for result, count in (("accepted", logins.accepted), ("refused", logins.refused)):
            results.append(({"protocol": protocol, "result": result}, float(count)))
        addresses.append(({"protocol": protocol}, float(logins.addresses)))
    return [
        ("mayfly_logins", "Logins, by result", "counter", results),
        ("mayfly_failed_login_addresses", "Addresses whose failed logins are remembered", "gauge", addresses),
    ]


def _commits(times: CommitTimes) -> Histogram:
    bounds = tuple(bound_ms / _MS_PER_S for bound_ms in COMMIT_BOUNDS_MS)
    return Histogram(bounds, tuple(times.by_bucket), times.sum_ms / _MS_PER_S)


def _lag(lag: ExpiryLag) -> Histogram:
    bounds = tuple(bound_ms / _MS_PER_S for bound_ms in BOUNDS_MS)
    return Histogram(bounds, tuple(lag.by_bucket()), lag.sum_ms() / _MS_PER_S)


def _clock_metrics(engine: Engine, shards: Mapping[str, Shard], now_ms: int) -> list[Metric]:
    now = {id: shard_now(engine, shard, now_ms) for id, shard in shards.items()}
    times: list[Sample] = [({"shard": id}, each.time_ms / _MS_PER_S) for id, each in now.items()]
    led: list[Sample] = [({"shard": id}, each.led_ms / _MS_PER_S) for id, each in now.items()]
    return [
        ("mayfly_shard_clock_seconds", "Shard time", "gauge", times),
        ("mayfly_lease_clock_seconds", "Time with a leader, on which leases run", "gauge", led),
    ]


def _outbox_steps(engine: Engine, shards: Mapping[str, Shard], now_ms: int) -> Iterator[Metric | None]:
    """How long dead letters have been on their way; ages are on the shard clock."""
    waiting: list[Sample] = []
    parked: list[Sample] = []
    lanes: list[Sample] = []
    rows: list[tuple[str, dict[str, Any]]] = []
    for id, shard in shards.items():
        time_ms = shard_now(engine, shard, now_ms).time_ms
        before = len(rows)
        for row in lane_steps(engine, shard, now_ms):
            rows.append((id, row))
            yield None
        lanes.append(({"shard": id}, float(len(rows) - before)))
        first = next(iter(shard.unrouted(1)), None)
        oldest = next(iter(shard.parked()), None)
        waiting.append(({"shard": id}, 0.0 if first is None else max(0, time_ms - first.time_ms) / _MS_PER_S))
        parked.append(({"shard": id}, 0.0 if oldest is None else max(0, time_ms - oldest.time_ms) / _MS_PER_S))
    rows.sort(key=lambda each: -each[1]["messages"])
    shown: list[tuple[Mapping[str, str], dict[str, Any]]] = [
        (
            {"shard": id, "target_shard": str(row["target_shard"]), "vhost": row["vhost"], "queue": row["queue"]},
            row,
        )
        for id, row in rows[:LANES_SHOWN]
    ]
    metrics: list[Metric] = [
        ("mayfly_unrouted_oldest_seconds", "Since the first death without a decision", "gauge", waiting),
        ("mayfly_parked_oldest_seconds", "Since the death of what was parked first", "gauge", parked),
        ("mayfly_lanes", "Lanes in which dead letters wait", "gauge", lanes),
        (
            "mayfly_lane_messages", "Dead letters in a lane", "gauge",
            [(labels, float(row["messages"])) for labels, row in shown],
        ),
        (
            "mayfly_lane_oldest_seconds", "Since the oldest dead letter in a lane was put there", "gauge",
            [(labels, row["oldest_age_ms"] / _MS_PER_S) for labels, row in shown],
        ),
        (
            "mayfly_lane_waits", "1 for a lane that cannot move", "gauge",
            [({**labels, "waits_for": row["waits_for"]}, 1.0) for labels, row in shown if row["waits_for"]],
        ),
    ]
    yield from metrics


def _copy_steps(engine: Engine, shards: Mapping[str, Shard]) -> Iterator[Metric | None]:
    """How far copies of streams are behind, of those in the shards that are led here; the furthest alone, if many."""
    rows: list[CopyLag] = []
    for shard in shards.values():
        if engine.leads(shard.shard_id):
            for row in copy_lag_steps(engine, shard):
                if row is not None:
                    rows.append(row)
                yield None
    rows.sort(key=lambda row: -row.offsets)
    samples: list[Sample] = [
        ({"vhost": row.vhost, "stream": row.stream, "copy": row.copy}, float(row.offsets)) for row in rows[:LANES_SHOWN]
    ]
    yield ("mayfly_stream_copy_lag", "Offsets of a stream that a copy of it has not yet", "gauge", samples)


def _brake_metric(engine: Engine, shards: Mapping[str, Shard]) -> Metric:
    """Which queues are on brake, of the shards that are led here: those for longest alone, if many."""
    queues = [queue for shard in shards.values() if engine.leads(shard.shard_id) for queue in shard.braked()]
    queues.sort(key=lambda queue: 0 if queue.brake is None else queue.brake.since_ms)
    samples: list[Sample] = [({"vhost": queue.vhost, "queue": queue.name}, 1.0) for queue in queues[:LANES_SHOWN]]
    return ("mayfly_brake_on", "1 for a queue that is on brake", "gauge", samples)


def _upstream_metrics(engine: Engine) -> Iterator[Metric]:
    """Of mirrors of streams in other clusters that are led here; those furthest behind alone, if there are many."""
    rows = sorted(upstream_lags(engine), key=lambda row: (row.reading, -row.offsets))[:LANES_SHOWN]
    labels = [{"vhost": row.vhost, "mirror": row.mirror, "cluster": row.cluster} for row in rows]
    yield (
        "mayfly_stream_upstream_reading", "1 for a mirror that reads its stream in another cluster", "gauge",
        [(label, float(row.reading)) for label, row in zip(labels, rows, strict=True)],
    )
    yield (
        "mayfly_stream_upstream_lag", "Offsets of a stream in another cluster that a mirror has not yet", "gauge",
        [(label, float(row.offsets)) for label, row in zip(labels, rows, strict=True) if row.offsets >= 0],
    )


def _one(value: float) -> list[Sample]:
    return [({}, float(value))]


_MS_PER_S = 1000
_SHARD_GAUGES = {
    "queues": "Queues",
    "queues_braked": "Queues that deliver nothing, because too much has failed in them",
    "tombstones": "Queues that are gone and still in the catalog",
    "ready": "Messages ready",
    "unacknowledged": "Messages held by consumers",
    "ready_bytes": "Bytes of bodies ready",
    "scheduled": "Messages that wait for their time",
    "scheduled_bytes": "Bytes of bodies that wait for their time",
    "stream_expiring": "Messages of streams with deadlines of their own",
    "stream_keys": "Routing keys in the indexes of streams",
    "stream_markers": "Markers made by the streams that are there",
    "consumers": "Consumers",
    "outbox": "Dead letters on their way",
    "parked": "Dead letters without a route",
    "redrives": "Redrives under way, paused ones among them",
    "redrives_paused": "Redrives that are paused",
    "redriven": "Messages moved by the last redrive of each queue",
    "redrive_left": "Messages that redrives under way have still to look at",
    "orphans": "Messages of queues that are gone or were purged, still to be dead-lettered or released",
    "live_entries": "Log entries that hold messages",
    "message_timers": "Queues whose head has a deadline, or with scheduled messages",
    "lease_timers": "Queues whose lease runs",
}
_SHARD_COUNTERS = {
    **COUNTS,
    "queue_expired": "Messages dead-lettered because their queue expired",
    "dropped_by_operator": "Parked dead letters dropped by an operator",
    "dropped_cycle": "Dead letters dropped in a cycle",
    "dropped_unroutable": "Dead letters dropped without a route",
    "dropped_due": "Messages of delayed exchanges dropped, without a route when they were due",
    "routed": "Dead letters that reached a queue or a lane",
    "journaled": "Records of deaths that reached a journal or a lane",
    "settled": "Dead letters that another shard has committed",
    "lost": "Dead letters whose target was gone",
    "missing_targets": "Publishes to a queue that was gone",
    "transfers_lost": "Dead letters that came for a queue that was gone",
    "refused_transfers": "Transfers refused after a gap",
}
