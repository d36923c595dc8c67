"""What a broker is told once."""

from __future__ import annotations

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


class BrokerSettings:
    """`loopback_users` may log in from this machine only; `transactions_bytes` is what all open transactions may hold,
    `unfinished_bytes` what may have come of messages that are not whole yet; `consumer_timeout_ms` is how long a
    delivery may be unacknowledged, 0 for ever; `consumer_window_bytes` is the largest window of a consumer,
    `consumer_windows_bytes` are those of all; a message with a body larger than `large_body_bytes` goes to its
    shards in pieces."""

    def __init__(
        self,
        connection: ConnectionSettings | None = None,
        loopback_users: frozenset[str] = frozenset(("guest",)),
        transactions_bytes: int = OPEN_TRANSACTIONS_BYTES,
        unfinished_bytes: int = UNFINISHED_BYTES,
        unfinished_bytes_of_connection: int = UNFINISHED_BYTES_OF_CONNECTION,
        consumer_timeout_ms: int = CONSUMER_TIMEOUT_MS,
        consumer_window_bytes: int = CONSUMER_WINDOW_BYTES,
        consumer_windows_bytes: int = CONSUMER_WINDOWS_BYTES,
        large_body_bytes: int = LARGE_BODY_BYTES,
    ) -> None:
        self.connection: ConnectionSettings = connection or ConnectionSettings()
        self.loopback_users: frozenset[str] = loopback_users
        self.transactions_bytes: int = transactions_bytes
        self.unfinished_bytes: int = unfinished_bytes
        self.unfinished_bytes_of_connection: int = unfinished_bytes_of_connection
        self.consumer_timeout_ms: int = consumer_timeout_ms
        self.consumer_window_bytes: int = consumer_window_bytes
        self.consumer_windows_bytes: int = consumer_windows_bytes
        self.large_body_bytes: int = large_body_bytes
