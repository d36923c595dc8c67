"""The one place where a queue's arguments, policy and operator policy become the settings that count.

    message-ttl, expires, max-length, max-length-bytes, delivery-limit,
    dead-letter-brake-rate                                               the lowest of all that are given (T3, L1)
    dead-letter-exchange, -routing-key, -strategy, ttl-applies,
    allow-schedule, journal, delayed-retry-multiplier, -jitter,
    dead-letter-brake-window                                             argument, then policy, then operator (D1)
    consumer-timeout                                                     the lowest; a consumer's own before all (Q3)
    overflow                                                             policy, then operator policy, then argument
    delayed-retry-type                                                   operator policy, then policy, then argument
    delayed-retry-min, -max                                              the lowest; of two policies the longer minimum

The last three are what RabbitMQ's quorum queues do. Each key goes by itself: a routing key of the policy goes with the
exchange of an argument. A stream's settings go by rules of their own (`streams.with_policies`). Nothing of this
is stored: it is computed from the catalog when a shard is to be told.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mayfly.node.catalog import brakes, delayed_retries
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.policies import lowest
from mayfly.node.catalog.records import QueueSettings
from mayfly.node.catalog.streams import STREAM, with_policies


def effective_settings(
    settings: QueueSettings, arguments: Mapping[str, Any], definition: Mapping[str, Any]
) -> QueueSettings:
    """`settings` are those of the arguments; `definition` is what the policies say (`policies.merged_definition`)."""
    if not definition:
        return settings
    if queue_type(arguments) == STREAM:
        return with_policies(settings, definition)
    changes: dict[str, Any] = {}
    for key, field in _LOWEST.items():
        if key in definition:
            own = getattr(settings, field)
            changes[field] = definition[key] if own is None else min(own, definition[key])
    for key, field in _ARGUMENT_FIRST.items():
        if key in definition and f"x-{key}" not in arguments:
            changes[field] = definition[key]
    if "ttl-applies" in definition and "x-ttl-applies" not in arguments:
        changes["ttl_retroactive"] = definition["ttl-applies"] == "retroactive"
    if "expire-scope" in definition and "x-expire-scope" not in arguments:
        changes["expire_anywhere"] = definition["expire-scope"] == "any"
    if delayed_retries.TYPE in definition:
        changes["retry_type"] = definition[delayed_retries.TYPE]
    if "overflow" in definition:
        changes["overflow"] = definition["overflow"]
    if "delivery-limit" in definition:
        limit = definition["delivery-limit"]
        if "x-delivery-limit" in arguments:
            limit = lowest("delivery-limit", arguments["x-delivery-limit"], limit)
        changes["delivery_limit"] = None if limit < 0 else limit
    return msgspec.structs.replace(settings, **changes)


CONSUMER_TIMEOUT: Final = "consumer-timeout"


def consumer_timeout_ms(arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> int | None:
    """How long a consumer of such a queue may hold a delivery, None where nothing is said. (A log from before
    `LEVEL_CONSUMER_TIMEOUTS` may have arguments that were not looked at.)"""
    said = (arguments.get(f"x-{CONSUMER_TIMEOUT}"), definition.get(CONSUMER_TIMEOUT))
    return min([ms for ms in said if isinstance(ms, int) and not isinstance(ms, bool) and ms >= 0], default=None)


_LOWEST = {
    "message-ttl": "message_ttl_ms",
    "expires": "expires_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
    delayed_retries.MIN: "retry_min_ms",
    delayed_retries.MAX: "retry_max_ms",
    brakes.RATE: "brake_rate",
}
_ARGUMENT_FIRST = {
    "dead-letter-exchange": "dead_letter_exchange",
    "dead-letter-routing-key": "dead_letter_routing_key",
    "dead-letter-strategy": "dead_letter_strategy",
    "allow-schedule": "allow_schedule",
    "journal": "journal",
    delayed_retries.MULTIPLIER: "retry_multiplier",
    delayed_retries.JITTER: "retry_jitter",
    brakes.WINDOW: "brake_window_ms",
}
