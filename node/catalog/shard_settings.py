"""What a shard is told about a queue of the catalog."""

from __future__ import annotations

from typing import Any, Final

from mayfly.cluster.versions import LEVEL_QUORUM_PRIORITIES
from mayfly.node.catalog import Catalog, QueueRecord, brakes, delayed_retries
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.streams import STREAM
from mayfly.node.catalog.ttl_dialects import LAVINMQ, OTTERMQ, RABBITMQ
from mayfly.node.shard.settings import DROP_HEAD, MAX_NUMBER, ShardQueueSettings, encode_terms
from mayfly.node.shard.stream_ttls import LEAST_MS

_NO_LIMIT: Final = 2**31 - 1
"""A delivery limit that is never reached.  Without any, what is requeued goes to the back of the queue,
as in RabbitMQ's quorum queues; in its classic queues, which transient ones are, it goes where it was."""

_QUORUM_MAX_PRIORITY: Final = 31
_QUORUM_DEFAULT_PRIORITY: Final = 4
"""Of all RabbitMQ's quorum queues, unasked (RULES Q2)."""

_MOST_KNOWN: Final = 1024


def shard_settings(
    catalog: Catalog, record: QueueRecord, definition: dict[str, Any] | None = None
) -> ShardQueueSettings:
    """What the queue state machine depends on: of the record, and of the policies that apply to it now; with a
    `definition`, if they said that (`node.catalog.policy_trial`)."""
    if record.delays:
        # What is due dies there, in a way, and goes to the exchange.
        return ShardQueueSettings(
            record.vhost, record.name, dead_letter_exchange=record.name, allow_schedule=True, delays=True
        )
    settings = catalog.effective_settings(record, definition)
    limit = settings.delivery_limit
    kind = queue_type(record.arguments)
    dialect = RABBITMQ if kind == STREAM else catalog.ttl_dialect(record, definition)
    quorum = kind == "quorum" and catalog.level >= LEVEL_QUORUM_PRIORITIES
    retries = delayed_retries.retries(settings)
    brake_limit, brake_window_ms = brakes.limit_and_window_ms(settings)
    return ShardQueueSettings(
        vhost=record.vhost,
        name=record.name,
        message_ttl_ms=settings.message_ttl_ms,
        expires_ms=settings.expires_ms,
        dead_letter_exchange=settings.dead_letter_exchange,
        dead_letter_routing_key=settings.dead_letter_routing_key,
        delivery_limit=_NO_LIMIT if limit is None and not record.replicated else _at_most(limit),
        auto_delete=record.auto_delete,
        single_active_consumer=settings.single_active_consumer,
        ttl_retroactive=settings.ttl_retroactive or dialect == LAVINMQ,
        dead_letter_at_most_once=settings.dead_letter_strategy == "at-most-once"
        or (dialect == OTTERMQ and not catalog.says_dead_letter_strategy(record, definition)),
        max_length=_at_most(settings.max_length),
        max_length_bytes=_at_most(settings.max_length_bytes),
        overflow=settings.overflow,
        expires_if_empty=settings.expires_only_if_empty,
        expires_dead_letter=settings.expires_dead_letter,
        max_priority=_QUORUM_MAX_PRIORITY if quorum else settings.max_priority or 0,
        default_priority=_QUORUM_DEFAULT_PRIORITY if quorum else 0,
        ttl_dialect=dialect,
        allow_schedule=settings.allow_schedule,
        expire_anywhere=settings.expire_anywhere,
        retry_ways=0 if retries is None else retries.ways,
        retry_min_ms=0 if retries is None else retries.min_ms,
        retry_max_ms=0 if retries is None else retries.max_ms,
        retry_multiplier=0 if retries is None else retries.multiplier,
        retry_counts_all=False if retries is None else retries.counts_all,
        retry_jitter_ppm=0 if retries is None else retries.jitter_ppm,
        is_stream=kind == STREAM,
        marker_ttl_ms=settings.marker_ttl_ms,
        key_index=settings.key_index,
        honours_ttls=settings.allow_msg_ttl,
        is_mirror=settings.mirror is not None,
        journal=settings.journal,
        brake_limit=brake_limit,
        brake_window_ms=brake_window_ms,
    )


class KnownTerms:
    """The terms of queues (`node.shard.settings`), worked out once for each combination of arguments, policy,
    operator policy, level and switches: thousands of queues are declared alike, and share their arguments
    (`node.catalog.state`)."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[QueueRecord, object, object, bytes]] = {}
        """By the identities of what they follow from, which is kept beside them: so nothing else can have these."""

    def of(self, catalog: Catalog, record: QueueRecord) -> bytes:
        """The same as `encode_terms(shard_settings(catalog, record))`, for a queue of the catalog."""
        if record.delays:
            return encode_terms(shard_settings(catalog, record))
        policy, operator_policy = catalog.policies_of_queue(record)
        key = (
            id(record.arguments), id(record.settings), id(policy), id(operator_policy),
            record.replicated, record.auto_delete, catalog.level, catalog.switches.off_in(record.vhost),
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            terms = encode_terms(shard_settings(catalog, record))
            known = self._known[key] = (record, policy, operator_policy, terms)
        return known[3]


def refuses_publishes(catalog: Catalog, record: QueueRecord) -> bool:
    """Whether the queue refuses what is published while it is full, or, a mirror, always (RULES J4), so that publishers
    have to be told. It is asked for each queue of a new route: no name is held against policies that say nothing of
    it."""
    if record.delays:
        return False
    if record.settings.mirror is not None:
        return True
    if record.settings.overflow == DROP_HEAD and not catalog.a_policy_says("overflow", record.vhost):
        return False
    settings = catalog.effective_settings(record)
    return settings.overflow != DROP_HEAD and (
        settings.max_length is not None or settings.max_length_bytes is not None
    )


def allows_schedules(catalog: Catalog, record: QueueRecord) -> bool:
    """Whether publishes to the queue may say when they are due (RULES S2); asked as `refuses_publishes` is."""
    if record.delays:
        return True
    if not record.settings.allow_schedule and not catalog.a_policy_says("allow-schedule", record.vhost):
        return False
    return catalog.effective_settings(record).allow_schedule


def stream_ttl_floor_ms(catalog: Catalog, record: QueueRecord) -> int:
    """The least TTL that a message has in this stream (RULES J2): that of its markers, else a second; -1 where
    publishes may not say how long they live."""
    settings = catalog.effective_settings(record)
    if not settings.allow_msg_ttl:
        return -1
    return LEAST_MS if settings.marker_ttl_ms is None else settings.marker_ttl_ms


def _at_most(limit: int | None) -> int | None:
    """A limit that no queue reaches is as good as any larger one."""
    return None if limit is None else min(limit, MAX_NUMBER)
