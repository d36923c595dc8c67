"""What a shard is told about a queue of the catalog."""

from __future__ import annotations

from typing import Final

from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.shard.settings import DROP_HEAD, MAX_NUMBER, ShardQueueSettings, encode_terms

_NO_LIMIT: Final = 2**31 - 1
"""A delivery limit that is never reached.  Without any, what is requeued goes to the back of the queue,
as in RabbitMQ's quorum queues; in its classic queues, which transient ones are, it goes where it was."""

_MOST_KNOWN: Final = 1024


def shard_settings(catalog: Catalog, record: QueueRecord) -> ShardQueueSettings:
    """What the queue state machine depends on: of the record, and of the policies that apply to it now."""
    settings = catalog.effective_settings(record)
    limit = settings.delivery_limit
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
        ttl_retroactive=settings.ttl_retroactive,
        dead_letter_at_most_once=settings.dead_letter_strategy == "at-most-once",
        max_length=_at_most(settings.max_length),
        max_length_bytes=_at_most(settings.max_length_bytes),
        overflow=settings.overflow,
        expires_if_empty=settings.expires_only_if_empty,
        expires_dead_letter=settings.expires_dead_letter,
        max_priority=settings.max_priority or 0,
    )


class KnownTerms:
    """The terms of queues (`node.shard.settings`), worked out once for each combination of arguments, policy and
    operator policy: thousands of queues are declared alike, and share their arguments (`node.catalog.state`)."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[QueueRecord, object, object, bytes]] = {}
        """By the identities of what they follow from, which is kept beside them: so nothing else can have these."""

    def of(self, catalog: Catalog, record: QueueRecord) -> bytes:
        """The same as `encode_terms(shard_settings(catalog, record))`, for a queue of the catalog."""
        policy, operator_policy = catalog.policies_of_queue(record)
        key = (
            id(record.arguments), id(record.settings), id(policy), id(operator_policy),
            record.replicated, record.auto_delete,
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            terms = encode_terms(shard_settings(catalog, record))
            known = self._known[key] = (record, policy, operator_policy, terms)
        return known[3]


def refuses_publishes(catalog: Catalog, record: QueueRecord) -> bool:
    """Whether the queue refuses what is published while it is full, so that publishers have to be told. It is asked for
    each queue of a new route: no name is held against policies that say nothing of it."""
    if record.settings.overflow == DROP_HEAD and not catalog.a_policy_says("overflow", record.vhost):
        return False
    settings = catalog.effective_settings(record)
    return settings.overflow != DROP_HEAD and (
        settings.max_length is not None or settings.max_length_bytes is not None
    )


def _at_most(limit: int | None) -> int | None:
    """A limit that no queue reaches is as good as any larger one."""
    return None if limit is None else min(limit, MAX_NUMBER)
