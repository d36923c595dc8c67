"""Retries that wait (RULES S5): what their arguments and policy keys take, and what they come to.

With a type they are as in RabbitMQ 4.3's quorum queues, without one as in LavinMQ 2.11, where the least delay alone
turns them on; the jitter is our own.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mayfly.node.catalog.records import QueueSettings
from mayfly.node.shard.retries import LINEAR, ON_FAILED, ON_GIVEN_BACK, PPM, Retries

TYPE: Final = "delayed-retry-type"
MIN: Final = "delayed-retry-min"
MAX: Final = "delayed-retry-max"
MULTIPLIER: Final = "delayed-retry-multiplier"
JITTER: Final = "delayed-retry-jitter"
KEYS: Final = (TYPE, MIN, MAX, MULTIPLIER, JITTER)
"""Of policies; arguments have an x- before it."""

DISABLED: Final = "disabled"
TYPES: Final = ("all", "failed", "returned", DISABLED)
MOST_MS: Final = (1 << 32) - 1
"""The longest delay where none is set, as in LavinMQ."""
MOST_MULTIPLIER: Final = 1_000_000
_WAYS: Final = {"all": ON_FAILED | ON_GIVEN_BACK, "failed": ON_FAILED, "returned": ON_GIVEN_BACK, DISABLED: 0}


def is_jitter(value: Any) -> bool:
    """Whether this is a jitter: a number from 0 to 1."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def pair_fault(said: Mapping[str, Any], prefix: str = "") -> str | None:
    """What is wrong with good values that do not go together; None if nothing is. Golden policy4.keys_of_4."""
    kind, least, most = said.get(prefix + TYPE), said.get(prefix + MIN), said.get(prefix + MAX)
    if least is None and kind not in (None, DISABLED):
        return f"{MIN} is required when {TYPE} is {kind}"
    if least is None and kind is None:
        for key in (MAX, MULTIPLIER, JITTER):
            if prefix + key in said:
                return f"{MIN} is required when there is {key}"
    if least is not None and most is not None and most < least:
        return f"{MAX} ({most}) must not be smaller than {MIN} ({least})"
    return None


def retries(settings: QueueSettings) -> Retries | None:
    """What the settings that count come to; None: nothing waits.

    RabbitMQ takes the least delay for the greatest where none is set. A multiplier is LavinMQ's, and so is what it
    counts then.
    """
    least_ms, kind = settings.retry_min_ms, settings.retry_type
    if least_ms is None or kind == DISABLED:
        return None
    as_lavinmq = kind is None or settings.retry_multiplier is not None
    most_ms = settings.retry_max_ms
    if most_ms is None:
        most_ms = MOST_MS if as_lavinmq else least_ms
    return Retries(
        _WAYS[kind or "all"], least_ms, max(least_ms, most_ms) if as_lavinmq else most_ms,
        LINEAR if settings.retry_multiplier is None else settings.retry_multiplier, as_lavinmq,
        round((settings.retry_jitter or 0) * PPM),
    )
