"""Queues as operators are shown them. Pure: reads the replicas of this node, and what is told is as old as they are."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.views.shard_clocks import ShardNow, shard_now
from mayfly.node.shard.counts import COUNTS
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.waiting import CHUNK, Waiting, WaitingIndex

LOOKED_AT: Final = 100_000
"""Messages that are looked at in one go; other work of the node waits for so long."""
INDEXES: Final = 16
FORGET_AFTER_MS: Final = 60_000
"""Indexes of long queues are kept for those that were asked about last, 8 bytes for each of their messages."""

NUMBERS: Final = ("ready", "ready_bytes", "unacknowledged", "unacknowledged_bytes", "consumers", *COUNTS)


class QueueViews:
    """For one node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._indexes: dict[int, WaitingIndex] = {}
        self._used_ms: dict[int, int] = {}

    def one(self, vhost: str, name: str, now_ms: int) -> dict[str, Any] | None:
        """All about a queue; None when this node knows of none. No use of it (RULES L2).

        Where `exact` is false not all of its messages were looked at yet: `ready_live` may be too high and
        `oldest_ready_age_ms` too low. Every further call looks at some more.
        """
        engine = self._engine
        record = engine.catalog.queue(vhost, name)
        if record is None:
            return None
        self._forget_unused(now_ms)
        return {
            **self._row(record, now_ms, LOOKED_AT, True),
            "durable": record.durable,
            "exclusive": record.exclusive,
            "auto_delete": record.auto_delete,
            "arguments": record.arguments,
            **policies_of(engine.catalog, record),
            "settings": msgspec.structs.asdict(engine.catalog.effective_settings(record)),
        }

    def some(self, selection: QueueSelection, now_ms: int) -> tuple[Iterator[dict[str, Any]], int]:
        """These queues by vhost and name, one for each step, and how many more there are: those that were declared
        first have precedence. What is shown of each is as at its step.

        Long queues are looked at, as in `one`, if they were asked for by name.
        """
        self._forget_unused(now_ms)
        found = self._selected(selection)
        shown = sorted(found[: selection.limit], key=lambda record: (record.vhost, record.name))
        return self._rows(shown, now_ms, bool(selection.names)), len(found) - len(shown)

    def _rows(self, records: list[QueueRecord], now_ms: int, by_name: bool) -> Iterator[dict[str, Any]]:
        most = LOOKED_AT
        for record in records:
            row = self._row(record, now_ms, max(0, most), by_name)
            most -= row.pop("looked_at", 0)
            yield row

    def _selected(self, selection: QueueSelection) -> list[QueueRecord]:
        catalog, part = self._engine.catalog, selection.part
        if not selection.names:
            return [record for record in catalog.queues(selection.vhost) if part in record.name]
        vhosts = [each.name for each in catalog.vhosts()] if selection.vhost is None else [selection.vhost]
        named = [catalog.queue(vhost, name) for vhost in vhosts for name in sorted(selection.names)]
        return [record for record in named if record is not None and part in record.name]

    def _row(self, record: QueueRecord, now_ms: int, most: int, by_name: bool) -> dict[str, Any]:
        row: dict[str, Any] = {"id": record.id, "vhost": record.vhost, "name": record.name}
        engine = self._engine
        shard: Shard | None = None
        if record.replicated:
            group = engine.group(record.shard)
            row |= {"shard": record.shard, "leader": group.leader, "applied": group.applied}
            shard = engine.shards[record.shard]
        else:
            row["node"] = record.owner_node
            if record.owner_node == engine.node_id:
                shard = engine.transient.local.shard
        queue = None if shard is None else shard.queue(record.id)
        statistics = None if shard is None else shard.queue_statistics(record.id)
        if shard is None or queue is None or statistics is None:
            return row
        now = shard_now(engine, shard, now_ms)
        row |= {field: getattr(statistics, field) for field in NUMBERS}
        row |= self._waiting(queue, now, now_ms, most, by_name)
        row |= _next_deadline(queue, now)
        row |= _lease(queue, now)
        row["time_ms"] = now.time_ms
        return row

    def _waiting(self, queue: Queue, now: ShardNow, now_ms: int, most: int, by_name: bool) -> dict[str, Any]:
        """What waits: exact, or as far as `most` messages say."""
        seen = self._look(queue, now.time_ms, now_ms, most, by_name)
        row: dict[str, Any] = {
            "ready_live": queue.ready_count() - seen.expired,
            "oldest_ready_age_ms": None if seen.oldest_ms < 0 else max(0, now.time_ms - seen.oldest_ms),
            "exact": seen.exact,
        }
        if not by_name:
            row["looked_at"] = seen.looked_at
        return row

    def _look(self, queue: Queue, time_ms: int, now_ms: int, most: int, by_name: bool) -> Waiting:
        queue_id, is_long = queue.queue_id, queue.ready_count() > CHUNK
        index = self._indexes.get(queue_id)
        if index is None or index.queue is not queue:
            index = WaitingIndex(queue)
            if not by_name:
                return index.look(time_ms, 0 if is_long else most)
            self._indexes[queue_id] = index
        if by_name:
            self._used_ms[queue_id] = now_ms
        return index.look(time_ms, most)

    def _forget_unused(self, now_ms: int) -> None:
        used = sorted((moment, id) for id, moment in self._used_ms.items())
        for place, (moment, id) in enumerate(used):
            if place < len(used) - INDEXES or now_ms - moment >= FORGET_AFTER_MS:
                del self._used_ms[id]
                del self._indexes[id]


def policies_of(catalog: Catalog, record: QueueRecord) -> dict[str, Any]:
    """The policies of a queue, by name, and what they say together, as RabbitMQ shows them."""
    policy, operator_policy = catalog.policies_of_queue(record)
    return {
        "policy": None if policy is None else policy.name,
        "operator_policy": None if operator_policy is None else operator_policy.name,
        "effective_policy_definition": catalog.policy_definition(record),
    }


def _next_deadline(queue: Queue, now: ShardNow) -> dict[str, Any]:
    """What expires next, as things are, is the head of the queue or of what came back (RULES T6)."""
    deadline_ms = queue.next_deadline_ms()
    if deadline_ms < 0:
        return {"next_deadline_ms": None, "next_deadline_in_ms": None}
    return {"next_deadline_ms": deadline_ms, "next_deadline_in_ms": deadline_ms - now.time_ms}


def _lease(queue: Queue, now: ShardNow) -> dict[str, Any]:
    """The lease and what used it last; None without `expires` (RULES L)."""
    lease = queue.lease
    shown: Mapping[str, Any] | None = None
    if queue.expires_ms >= 0:
        suspended = lease.suspended_by > 0
        left_ms = max(0, lease.started_ms + queue.expires_ms - now.led_ms)
        shown = {
            "period_ms": queue.expires_ms,
            "remaining_ms": None if suspended else left_ms,
            "suspended": suspended,
            "kept": queue.kept,
        }
    return {
        "lease": shown,
        "last_use": lease.last_use,
        "last_use_ms": lease.last_activity_ms,
        "last_use_age_ms": max(0, now.time_ms - lease.last_activity_ms),
    }
