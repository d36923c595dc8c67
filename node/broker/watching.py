"""What clients of this node publish, are given and settle, as it happens, for an operator who looks for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mayfly.node.amqp.content import Content

PUBLISHED: Final = "published"
DELIVERED: Final = "delivered"
SETTLED: Final = "settled"


class Watch:
    """Of one queue, of one user, or of that user at that queue. Keeps the first `most` events."""

    def __init__(self, queue_id: int, user: str, most: int, now_ms: Callable[[], int]) -> None:
        """`queue_id` 0: of all queues; `user` "": of all users."""
        self.events: list[dict[str, Any]] = []
        self.left_out: int = 0
        self._queue_id = queue_id
        self._user = user
        self._most = most
        self._now_ms = now_ms

    def published(self, user: str, connection: str, content: Content, queue_ids: Sequence[int]) -> None:
        """A message was routed to these queues, if any."""
        if self._is_meant(user) and (not self._queue_id or self._queue_id in queue_ids):
            self._keep(
                PUBLISHED, user, connection, exchange=content.exchange, key=content.routing_key,
                bytes=len(content.body), queue_ids=list(queue_ids),
            )  # fmt: skip

    def delivered(self, user: str, connection: str, queue_id: int, count: int, again: int) -> None:
        """So many messages went to a client, some of them again."""
        if self._is_meant(user) and self._queue_id in (0, queue_id):
            self._keep(DELIVERED, user, connection, queue_ids=[queue_id], count=count, redelivered=again)

    def settled(self, user: str, connection: str, queue_id: int, count: int, outcome: int) -> None:
        """A client has settled so many; `outcome` as in SETTLE."""
        if self._is_meant(user) and self._queue_id in (0, queue_id):
            self._keep(SETTLED, user, connection, queue_ids=[queue_id], count=count, outcome=outcome)

    def _is_meant(self, user: str) -> bool:
        return not self._user or self._user == user

    def _keep(self, what: str, user: str, connection: str, **more: Any) -> None:
        if len(self.events) >= self._most:
            self.left_out += 1
            return
        self.events.append(
            {"time_ms": self._now_ms(), "what": what, "user": user, "connection": connection, **more}
        )
