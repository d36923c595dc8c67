"""Limits of vhosts and users, as RabbitMQ has them: which there are, and what they refuse.

A limit that is not set, or is negative, is none.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from mayfly.node.catalog import refusals
from mayfly.node.catalog.records import LimitedKind, UserRecord, VhostRecord

MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
MAX_CHANNELS: Final = "max-channels"

LIMITS: Final[dict[LimitedKind, tuple[str, ...]]] = {
    "vhost": (MAX_CONNECTIONS, MAX_QUEUES),
    "user": (MAX_CONNECTIONS, MAX_CHANNELS),
}
HIGHEST: Final = 2**31 - 1

_Limited = TypeVar("_Limited", VhostRecord, UserRecord)


def limit_fault(kind: LimitedKind, limit: str, value: object) -> str | None:
    """What is wrong with a limit that is to be set, in words; or None."""
    if limit not in LIMITS[kind]:
        return f"'{limit}' is no limit of a {kind}; there are {', '.join(LIMITS[kind])}"
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= HIGHEST:
        return f"value of {limit} is {value!r}, an integer from 0 to {HIGHEST}, or -1 for no limit, is expected"
    return None


def with_limit(record: _Limited, limit: str, value: int | None) -> _Limited:
    """The record with the limit set, or without it (None)."""
    limits = {key: known for key, known in record.limits.items() if key != limit}
    if value is not None:
        limits[limit] = value
    return replace(record, limits=dict(sorted(limits.items())))


def allowed(record: VhostRecord | UserRecord | None, limit: str) -> int | None:
    """The limit's value; None: no limit."""
    value = None if record is None else record.limits.get(limit)
    return None if value is None or value < 0 else value


def check_room_for_queue(vhost: VhostRecord, queues: int, name: str) -> None:
    """Raise Refusal when a vhost with so many queues may not have one more, called `name`."""
    most = allowed(vhost, MAX_QUEUES)
    if most is not None and queues >= most:
        raise refusals.queue_limit(vhost.name, name, most)
