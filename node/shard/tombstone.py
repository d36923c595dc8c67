"""What is left of a queue that was deleted, until the catalog has forgotten it."""

from typing import Final

DELETED: Final = "deleted"
EXPIRED: Final = "expired"
AUTO_DELETED: Final = "auto-delete"
DROPPED: Final = "dropped"
"""The catalog had no such queue: there is no tombstone."""
GONE_FOR: Final = (EXPIRED, DELETED, AUTO_DELETED, DROPPED)


class Tombstone:
    """A queue that is gone (RULES L10): DELETED, EXPIRED or AUTO_DELETED at ``time_ms``, last used at
    ``last_activity_ms`` (shard time, both) by ``last_use``, with ``messages`` dropped, ready and held together.
    """

    __slots__ = ("last_activity_ms", "last_use", "messages", "name", "reason", "time_ms", "vhost")

    def __init__(
        self, reason: str, time_ms: int, last_activity_ms: int, messages: int, vhost: str, name: str,
        last_use: str,
    ) -> None:
        self.reason = reason
        self.time_ms = time_ms
        self.last_activity_ms = last_activity_ms
        self.messages = messages
        self.vhost = vhost
        self.name = name
        self.last_use = last_use
