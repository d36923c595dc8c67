"""The cluster and its nodes as RabbitMQ's management API shows them, as far as they are known here."""

import asyncio
from typing import Any, Final

from node.amqp.settings import CLUSTER_NAME
from node.broker.access_counts import CHANNELS_OF_USER, CONNECTIONS_OF_USER, CONNECTIONS_OF_VHOST
from node.catalog import QueueRecord
from node.catalog.exchange import EXCHANGE_TYPES
from node.duties.alarms import DISK, MEMORY, NAMES
from node.engine import Engine
from node.settings.kinds import Address
from node.shard.statistics import QueueStatistics
from node.version import RABBITMQ_VERSION, VERSION

_AT_ONCE: Final = 500
"""Queues that are counted before other work gets its turn."""
_LISTENERS: Final = {"amqp": "amqp", "http": "http", "peer": "clustering"}
"""What the addresses of nodes are called here and there."""


def queue_statistics(engine: Engine, record: QueueRecord) -> QueueStatistics | None:
    """Of a queue, None where they are not known here: those of another node's transient queue are known there alone."""
    if record.replicated:
        return engine.shards[record.shard].queue_statistics(record.id)
    if record.owner_node == engine.node_id:
        return engine.transient.local.shard.queue_statistics(record.id)
    return None


def overview(engine: Engine) -> dict[str, Any]:
    """What is said to everybody; totals come to it."""
    return {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "MayflyMQ",
        "product_version": VERSION,
        "cluster_name": CLUSTER_NAME,
        "rates_mode": "none",
        "exchange_types": [{"name": name, "enabled": True} for name in sorted(EXCHANGE_TYPES)],
        "message_stats": {},
        "statistics_db_event_queue": 0,
    }


def totals_of_all(engine: Engine) -> dict[str, Any]:
    """Of the whole cluster; of transient queues those of this node."""
    catalog = engine.catalog
    statistics = [shard.statistics() for shard in (*engine.shards.values(), engine.transient.local.shard)]
    counts = engine.access_counts
    objects = {
        "queues": len(list(catalog.queues())),
        "exchanges": sum(len(list(catalog.exchanges(vhost.name))) for vhost in catalog.vhosts()),
        "consumers": sum(each.consumers for each in statistics),
        "connections": counts.everywhere(CONNECTIONS_OF_VHOST),
        "channels": counts.everywhere(CHANNELS_OF_USER),
    }
    ready, held = sum(each.ready for each in statistics), sum(each.unacknowledged for each in statistics)
    return _totals(objects, ready, held)


async def totals_of(engine: Engine, vhosts: list[str], user: str) -> dict[str, Any]:
    """Of some vhosts, and of connections and channels the user's own; the node does other work in between."""
    catalog = engine.catalog
    records = [record for vhost in vhosts for record in catalog.queues(vhost)]
    consumers = ready = held = 0
    for number, record in enumerate(records):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        statistics = queue_statistics(engine, record)
        if statistics is not None:
            consumers += statistics.consumers
            ready += statistics.ready
            held += statistics.unacknowledged
    objects = {
        "queues": len(records),
        "exchanges": sum(len(list(catalog.exchanges(vhost))) for vhost in vhosts),
        "consumers": consumers,
        "connections": engine.access_counts.total(CONNECTIONS_OF_USER, user),
        "channels": engine.access_counts.total(CHANNELS_OF_USER, user),
    }
    return _totals(objects, ready, held)


def _totals(objects: dict[str, int], ready: int, held: int) -> dict[str, Any]:
    queues = {"messages": ready + held, "messages_ready": ready, "messages_unacknowledged": held}
    return {"object_totals": objects, "queue_totals": queues}


def listener_rows(engine: Engine, is_tls: bool) -> list[dict[str, Any]]:
    """Where the nodes listen, by their own word; those for clients are taken to have TLS as this node's."""
    rows = []
    for node in engine.catalog.nodes():
        if engine.catalog.members.get(node.id) is None:
            continue
        for kind, protocol in _LISTENERS.items():
            if kind in node.addresses:
                address = Address.parse(node.addresses[kind])
                name = f"{protocol}/ssl" if kind == "amqp" and is_tls else protocol
                rows.append({"node": node.name, "protocol": name, "ip_address": address.host, "port": address.port})
    return sorted(rows, key=lambda row: (row["protocol"], row["port"], row["node"]))


def node_rows(engine: Engine, now_ms: int, own: dict[str, Any]) -> list[dict[str, Any]]:
    """The members by name; `own` is what this node alone knows of itself."""
    host = engine.host
    names = {record.id: record.name for record in engine.catalog.nodes()}
    rows = []
    for id in host.members:
        is_self = id == engine.node_id
        on = [NAMES[alarm] for alarm in NAMES if engine.alarms.own(alarm)] if is_self else engine.alarms.of_peer(id)
        row = {
            "name": names.get(id, f"node{id}"),
            "type": "disc",
            "running": is_self or host.heard_within(id, now_ms, host.settings.election_timeout_ms),
            "partitions": [],
            "mem_alarm": NAMES[MEMORY] in on,
            "disk_free_alarm": NAMES[DISK] in on,
        }
        rows.append({**row, **own} if is_self else row)
    return sorted(rows, key=lambda row: str(row["name"]))
