"""What a node says of itself and of the cluster: for `mayfly status`, `/status`, `/queues` and `/metrics`."""

from collections.abc import Mapping
from typing import Any

from cluster.group import Group
from node.catalog import QueueRecord
from node.catalog.arguments import queue_type
from node.dead_letter_office import lane_rows
from node.engine import CATALOG_GROUP, Engine
from node.settings import NodeSettings
from node.shard.shard import Shard

Sample = tuple[Mapping[str, str], float]
Metric = tuple[str, str, str, list[Sample]]


def engine_status(engine: Engine, settings: NodeSettings, now_ms: int) -> dict[str, Any]:
    """The whole cluster as this node sees it."""
    names = {record.id: record.name for record in engine.catalog.nodes()}
    groups = [_group_status(engine, group, names, now_ms) for group in engine.host.groups.values()]
    totals = {
        key: sum(row[key] for row in groups if key in row) for key in ("queues", "ready", "unacknowledged", "outbox")
    }
    return {
        "name": names.get(engine.node_id, settings.name),
        "id": engine.node_id,
        "nodes": [_node_status(engine, id, names, now_ms) for id in engine.host.members],
        "groups": groups,
        "queues": totals,
        "alarms": [engine.disk_alarm] if engine.disk_alarm else [],
        "clock_excess_ms": engine.host.clocks.excess_ms(),
        "clock_refusals": engine.host.clock_refusals,
    }


def _node_status(engine: Engine, id: int, names: Mapping[int, str], now_ms: int) -> dict[str, Any]:
    is_self = id == engine.node_id
    record = engine.catalog.node(id)
    return {
        "id": id,
        "name": names.get(id, f"node{id}"),
        "up": is_self or engine.host.heard_within(id, now_ms, engine.host.settings.election_timeout_ms),
        "clock_offset_ms": 0 if is_self else engine.host.clocks.offset_ms(id),
        "addresses": dict(record.addresses) if record is not None else {},
    }


def _group_status(engine: Engine, group: Group, names: Mapping[int, str], now_ms: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "group": group.id,
        "role": "leader" if group.leads else "follower",
        "leader": group.leader,
        "leader_name": names.get(group.leader, f"node{group.leader}") if group.leader else "",
        "term": group.term,
        "commit": group.committed,
        "applied": group.applied,
        "compacted": group.log.snapshot_metadata.index,
        "voters": list(group.conf_state.voters),
        "learners": list(group.conf_state.learners),
    }
    if group.id == CATALOG_GROUP:
        return row
    shard = engine.shards[group.id]
    statistics = shard.statistics()
    row.update(
        queues=statistics.queues,
        ready=statistics.ready,
        unacknowledged=statistics.unacknowledged,
        consumers=statistics.consumers,
        outbox=statistics.outbox,
        parked=statistics.parked,
        remains=statistics.remains,
        stalled_lanes=len([lane for lane in lane_rows(engine, shard) if lane["waits_for"]]),
        expiry_lag_ms=expiry_lag_ms(shard, group, now_ms),
    )
    return row


def expiry_lag_ms(shard: Shard, group: Group, now_ms: int) -> int:
    """How long the most overdue head or lease has been waiting for its expiry; 0 when nothing is due."""
    lag_ms = 0
    message_due_ms = shard.next_message_due_ms()
    if message_due_ms > 0:
        lag_ms = group.clock.current_ms(now_ms) - message_due_ms
    lease_due_ms = shard.next_lease_due_ms()
    if lease_due_ms >= 0:
        lag_ms = max(lag_ms, group.clock.led_ms - lease_due_ms)
    return max(0, lag_ms)


def queue_info(engine: Engine, vhost: str, name: str) -> dict[str, Any] | None:
    """One queue as the local replica has it; None when there is no such queue."""
    record = engine.catalog.queue(vhost, name)
    if record is None:
        return None
    info: dict[str, Any] = {
        "id": record.id,
        "vhost": vhost,
        "name": name,
        "durable": record.durable,
        "exclusive": record.exclusive,
        "auto_delete": record.auto_delete,
        "arguments": record.arguments,
        **_policies_of(engine, record),
    }
    if record.replicated:
        info.update(_replicated_queue(engine, record))
    else:
        info.update(node=record.owner_node)
    return info


def _policies_of(engine: Engine, record: QueueRecord) -> dict[str, Any]:
    """The policies of a queue, by name, and what they say together, as RabbitMQ shows them."""
    policy, operator_policy = engine.catalog.policies_of_queue(record)
    return {
        "policy": None if policy is None else policy.name,
        "operator_policy": None if operator_policy is None else operator_policy.name,
        "effective_policy_definition": engine.catalog.policy_definition(record),
    }


def managed_queue(engine: Engine, vhost: str, name: str) -> dict[str, Any] | None:
    """One queue as RabbitMQ's management API shows it, as far as it is known here; None when there is none.

    The messages of another node's transient queue are known there alone.
    """
    record = engine.catalog.queue(vhost, name)
    if record is None:
        return None
    info: dict[str, Any] = {
        "name": record.name,
        "vhost": record.vhost,
        "type": queue_type(record.arguments),
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
        "arguments": record.arguments,
        "state": "running",
        **_policies_of(engine, record),
    }
    names = {node.id: node.name for node in engine.catalog.nodes()}
    if record.replicated:
        group = engine.group(record.shard)
        info["node"] = info["leader"] = names.get(group.leader)
        info["members"] = [names.get(id, f"node{id}") for id in group.conf_state.voters]
        statistics = engine.shards[record.shard].queue_statistics(record.id)
    else:
        info["node"] = names.get(record.owner_node)
        is_here = record.owner_node == engine.node_id
        statistics = engine.transient.local.shard.queue_statistics(record.id) if is_here else None
    if statistics is not None:
        info.update(
            messages=statistics.ready + statistics.unacknowledged,
            messages_ready=statistics.ready,
            messages_unacknowledged=statistics.unacknowledged,
            message_bytes=statistics.ready_bytes + statistics.unacknowledged_bytes,
            message_bytes_ready=statistics.ready_bytes,
            message_bytes_unacknowledged=statistics.unacknowledged_bytes,
            consumers=statistics.consumers,
        )
    return info


def _replicated_queue(engine: Engine, record: QueueRecord) -> dict[str, Any]:
    group = engine.group(record.shard)
    info: dict[str, Any] = {"shard": record.shard, "leader": group.leader}
    statistics = engine.shards[record.shard].queue_statistics(record.id)
    if statistics is not None:
        info.update({field: getattr(statistics, field) for field in _QUEUE_FIELDS})
    return info


def engine_metrics(engine: Engine, settings: NodeSettings, now_ms: int) -> list[Metric]:
    """All metrics of this node; shards are labelled by their number."""
    groups = list(engine.host.groups.values())
    shards = {id: shard.statistics() for id, shard in engine.shards.items()}

    def by_group(value: Any) -> list[Sample]:
        return [({"group": str(group.id)}, float(value(group))) for group in groups]

    def by_shard(field: str) -> list[Sample]:
        return [({"shard": str(id)}, float(getattr(statistics, field))) for id, statistics in shards.items()]

    metrics: list[Metric] = [
        ("mayfly_raft_term", "Current term", "gauge", by_group(lambda group: group.term)),
        ("mayfly_raft_leader", "1 where this node leads", "gauge", by_group(lambda group: group.leads)),
        ("mayfly_raft_commit_index", "Commit index", "gauge", by_group(lambda group: group.committed)),
        ("mayfly_raft_applied_index", "Applied index", "gauge", by_group(lambda group: group.applied)),
        (
            "mayfly_expiry_lag_ms", "Age of the most overdue head or lease", "gauge",
            [
                ({"shard": str(id)}, float(expiry_lag_ms(shard, engine.group(id), now_ms)))
                for id, shard in engine.shards.items()
            ],
        ),
        ("mayfly_clock_excess_ms", "This node's clock beyond the bound", "gauge", _one(engine.host.clocks.excess_ms())),
        ("mayfly_clock_refusals", "Campaigns held back by the clock", "counter", _one(engine.host.clock_refusals)),
        ("mayfly_disk_alarm", "1 while publishes are refused for lack of disk", "gauge", _one(bool(engine.disk_alarm))),
        ("mayfly_pending_bytes", "Commands given and not yet applied", "gauge", _one(engine.pending_bytes())),
        ("mayfly_entry_cache_bytes", "Log entries in memory", "gauge", _one(engine.host.cache.used_bytes)),
    ]
    for field, explanation in _SHARD_GAUGES.items():
        metrics.append((f"mayfly_{field}", explanation, "gauge", by_shard(field)))
    for field, explanation in _SHARD_COUNTERS.items():
        metrics.append((f"mayfly_{field}", explanation, "counter", by_shard(field)))
    return metrics


def _one(value: float) -> list[Sample]:
    return [({}, float(value))]


_QUEUE_FIELDS = (
    "ready", "ready_bytes", "unacknowledged", "unacknowledged_bytes", "consumers", "enqueued", "delivered",
    "acknowledged", "expired", "dead_lettered", "duplicates", "overflowed", "refused", "delivery_limited",
)
_SHARD_GAUGES = {
    "queues": "Queues",
    "ready": "Messages ready",
    "unacknowledged": "Messages held by consumers",
    "ready_bytes": "Bytes of bodies ready",
    "consumers": "Consumers",
    "outbox": "Dead letters on their way",
    "parked": "Dead letters without a route",
    "remains": "Messages of expired queues still to be dead-lettered",
    "live_entries": "Log entries that hold messages",
}
_SHARD_COUNTERS = {
    "enqueued": "Messages enqueued",
    "delivered": "Messages delivered",
    "acknowledged": "Messages acknowledged",
    "expired": "Messages expired",
    "dead_lettered": "Messages dead-lettered",
    "duplicates": "Repeated transfers dropped",
    "overflowed": "Messages dropped from the head of a full queue",
    "refused": "Publishes and dead letters refused by a full queue",
    "delivery_limited": "Messages that came back more often than the delivery limit allows",
    "queue_expired": "Messages dead-lettered because their queue expired",
    "expired_queues": "Queues whose lease ran out",
    "dropped_by_operator": "Parked dead letters dropped by an operator",
    "dropped_cycle": "Dead letters dropped in a cycle",
    "dropped_unroutable": "Dead letters dropped without a route",
}
