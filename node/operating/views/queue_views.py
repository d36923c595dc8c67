"""Queues as operators are shown them: what the catalog says of them, and what the node with a replica counts.

Pure. What is told of messages is as old as the replica here; who has none asks another node
(`node.operating.queues`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.views.brake_views import brake_of
from mayfly.node.operating.views.queue_counts import Behind, shard_here
from mayfly.node.operating.views.setting_sources import setting_sources
from mayfly.node.operating.views.shard_clocks import ShardNow, shard_now
from mayfly.node.operating.views.stream_views import offsets_of
from mayfly.node.shard.counts import COUNTS
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.statistics import QueueStatistics
from mayfly.node.shard.waiting import CHUNK, Waiting, WaitingIndex

LOOKED_AT: Final = 100_000
"""Messages that are looked at in one go; other work of the node waits for so long."""
INDEXES: Final = 16
FORGET_AFTER_MS: Final = 60_000
"""Indexes of long queues are kept for those that were asked about last, 8 bytes for each of their messages."""

NUMBERS: Final = (
    "ready", "ready_bytes", "scheduled", "scheduled_bytes", "unacknowledged", "unacknowledged_bytes", "consumers",
    *COUNTS,
)


class QueueViews:
    """For one node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._indexes: dict[int, WaitingIndex] = {}
        self._used_ms: dict[int, int] = {}

    def selected(self, selection: QueueSelection) -> tuple[list[QueueRecord], int]:
        """These queues by vhost and name, and how many more there are: those that were declared first have
        precedence."""
        found = self._selected(selection)
        if selection.told_here:
            found = [record for record in found if self._is_told_here(record)]
        shown = sorted(found[: selection.limit], key=lambda record: (record.vhost, record.name))
        return shown, len(found) - len(shown)

    def of_catalog(self, record: QueueRecord) -> dict[str, Any]:
        """What every node knows of a queue without a replica of its shard."""
        row: dict[str, Any] = {"id": record.id, "vhost": record.vhost, "name": record.name}
        row["type"] = queue_type(record.arguments)
        if record.replicated:
            return row | {"shard": record.shard, "leader": self._engine.leader_of(record.shard)}
        return row | {"node": record.owner_node}

    def kind_of(self, record: QueueRecord) -> dict[str, Any]:
        """What kind of queue it is: what a list says beside its counts."""
        policy, operator_policy = self._engine.catalog.policies_of_queue(record)
        return {
            "durable": record.durable,
            "exclusive": record.exclusive,
            "auto_delete": record.auto_delete,
            "policy": None if policy is None else policy.name,
            "operator_policy": None if operator_policy is None else operator_policy.name,
        }

    def all_of_catalog(self, record: QueueRecord) -> dict[str, Any]:
        """What a page about that queue alone has beside its counts."""
        catalog = self._engine.catalog
        return {
            "durable": record.durable,
            "exclusive": record.exclusive,
            "auto_delete": record.auto_delete,
            "arguments": record.arguments,
            **policies_of(catalog, record),
            "settings": msgspec.structs.asdict(catalog.effective_settings(record)),
            "settings_from": setting_sources(catalog, record),
        }

    def move(self, record: QueueRecord, behind: Mapping[int, Behind]) -> dict[str, Any]:
        """Where a queue moves to, and how many of its messages still wait where it was, as far as that is known:
        `behind` by shard. Nothing for one that has never moved."""
        if record.moves is None:
            return {}
        return {
            "moving_to": record.moving_to or None,
            "move": "" if not record.moving_to else "moving" if record.shard in behind else "waiting",
            "left_behind": sum([left.messages for left in behind.values()]),
            "held_behind": sum([left.held for left in behind.values()]),
        }

    def counted(
        self, shard_id: int, queues: Iterable[int], now_ms: int, most: int, by_name: bool
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The counts of queues of a shard here, one for each step and as at its step; `most` is how many messages may
        be looked at. No use of them (RULES L2).

        Long queues are looked at `by_name`, if they were asked for by name. Where `exact` is false not all of the
        messages were looked at yet: `ready_live` may be too high and `oldest_ready_age_ms` too low. Every further call
        looks at some more.
        """
        self._forget_unused(now_ms)
        for id in queues:
            shard = shard_here(self._engine, shard_id)
            if shard is None:
                return
            row = self._row(shard, id, now_ms, max(0, most), by_name)
            most -= row.get("looked_at", 0)
            yield id, row

    def _selected(self, selection: QueueSelection) -> list[QueueRecord]:
        catalog, part = self._engine.catalog, selection.part
        if not selection.names:
            return [record for record in catalog.queues(selection.vhost) if part in record.name]
        vhosts = [each.name for each in catalog.vhosts()] if selection.vhost is None else [selection.vhost]
        named = [catalog.queue(vhost, name) for vhost in vhosts for name in sorted(selection.names)]
        return [record for record in named if record is not None and part in record.name]

    def _is_told_here(self, record: QueueRecord) -> bool:
        engine = self._engine
        where = engine.leader_of(record.shard) if record.replicated else record.owner_node
        return where == engine.node_id

    def _row(self, shard: Shard, queue_id: int, now_ms: int, most: int, by_name: bool) -> dict[str, Any]:
        group = self._engine.host.groups.get(shard.shard_id)
        row: dict[str, Any] = {} if group is None else {"leader": group.leader, "applied": group.applied}
        queue, statistics = shard.queue(queue_id), shard.queue_statistics(queue_id)
        if queue is None or statistics is None:
            return row
        now = shard_now(self._engine, shard, now_ms)
        row |= {field: getattr(statistics, field) for field in NUMBERS}
        row |= self._waiting(queue, now, now_ms, most, by_name)
        row |= _next_deadline(queue, now)
        row |= _next_due(statistics, now)
        row |= _lease(queue, now)
        row |= {"brake": brake_of(queue, now.time_ms), "braked": queue.is_braked}
        if queue.stream is not None:
            row |= offsets_of(queue, queue.stream)
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


def _next_due(statistics: QueueStatistics, now: ShardNow) -> dict[str, Any]:
    """When the first of what is scheduled is due (RULES S2)."""
    due_ms = statistics.next_due_ms
    if due_ms < 0:
        return {"next_due_ms": None, "next_due_in_ms": None}
    return {"next_due_ms": due_ms, "next_due_in_ms": due_ms - now.time_ms}


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
