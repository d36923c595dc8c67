"""The one place where a queue's arguments, policy and operator policy become the settings that count.

    message-ttl, expires, max-length, max-length-bytes, delivery-limit   the lowest of all that are given (T3, L1)
    dead-letter-exchange, -routing-key, -strategy, ttl-applies           argument, then policy, then operator (D1)
    overflow                                                             policy, then operator policy, then argument

The last line is what RabbitMQ's quorum queues do. Each key goes by itself: a routing key of the policy goes with the
exchange of an argument. Nothing of this is stored: it is computed from the catalog when a shard is to be told.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mayfly.node.catalog.policies import lowest
from mayfly.node.catalog.records import QueueSettings


def effective_settings(
    settings: QueueSettings, arguments: Mapping[str, Any], definition: Mapping[str, Any]
) -> QueueSettings:
    """`settings` are those of the arguments; `definition` is what the policies say (`policies.merged_definition`)."""
    if not definition:
        return settings
    changes: dict[str, Any] = {}
    for key, field in _LOWEST.items():
        if key in definition:
            own = getattr(settings, field)
            changes[field] = definition[key] if own is None else lowest(key, own, definition[key])
    for key, field in _ARGUMENT_FIRST.items():
        if key in definition and f"x-{key}" not in arguments:
            changes[field] = definition[key]
    if "ttl-applies" in definition and "x-ttl-applies" not in arguments:
        changes["ttl_retroactive"] = definition["ttl-applies"] == "retroactive"
    if "overflow" in definition:
        changes["overflow"] = definition["overflow"]
    if "delivery-limit" in definition:
        limit = definition["delivery-limit"]
        if "x-delivery-limit" in arguments:
            limit = lowest("delivery-limit", arguments["x-delivery-limit"], limit)
        changes["delivery_limit"] = None if limit < 0 else limit
    return msgspec.structs.replace(settings, **changes)


_LOWEST = {
    "message-ttl": "message_ttl_ms",
    "expires": "expires_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
}
_ARGUMENT_FIRST = {
    "dead-letter-exchange": "dead_letter_exchange",
    "dead-letter-routing-key": "dead_letter_routing_key",
    "dead-letter-strategy": "dead_letter_strategy",
}
