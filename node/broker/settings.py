"""What a broker is told once."""

from __future__ import annotations

from dataclasses import dataclass, field

from mayfly.node.amqp.settings import ConnectionSettings
from mayfly.node.limits import (
    CONSUMER_TIMEOUT_MS,
    CONSUMER_WINDOW_BYTES,
    CONSUMER_WINDOWS_BYTES,
    LARGE_BODY_BYTES,
    OPEN_TRANSACTIONS_BYTES,
    UNFINISHED_BYTES,
    UNFINISHED_BYTES_OF_CONNECTION,
)


@dataclass(slots=True, eq=False)
class BrokerSettings:
    """`loopback_users` may log in from this machine only; `transactions_bytes` is what all open transactions may hold,
    `unfinished_bytes` what may have come of messages that are not whole yet; `consumer_timeout_ms` is how long a
    delivery may be unacknowledged, 0 for ever; `consumer_window_bytes` is the largest window of a consumer,
    `consumer_windows_bytes` are those of all; a message with a body larger than `large_body_bytes` goes to its
    shards in pieces; `cluster_id` tells this cluster from all others."""

    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    loopback_users: frozenset[str] = frozenset(("guest",))
    transactions_bytes: int = OPEN_TRANSACTIONS_BYTES
    unfinished_bytes: int = UNFINISHED_BYTES
    unfinished_bytes_of_connection: int = UNFINISHED_BYTES_OF_CONNECTION
    consumer_timeout_ms: int = CONSUMER_TIMEOUT_MS
    consumer_window_bytes: int = CONSUMER_WINDOW_BYTES
    consumer_windows_bytes: int = CONSUMER_WINDOWS_BYTES
    large_body_bytes: int = LARGE_BODY_BYTES
    cluster_id: str = ""
