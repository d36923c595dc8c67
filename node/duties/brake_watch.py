"""Says in the log which queues are on brake, and which go on (RULES R5)."""

import logging
from collections.abc import Sequence
from typing import Final

from mayfly.node.shard.queue import Queue

logger = logging.getLogger(__name__)

LINES_AT_ONCE: Final = 100
"""Queues that are named one by one; of more that brake at once only the number is told."""


class BrakeWatch:
    """What one shard's leader has told. A new leader tells once more of queues that are on brake."""

    def __init__(self) -> None:
        self._told: dict[int, Queue] = {}

    def tell(self, braked: Sequence[Queue]) -> None:
        """Tell of what has changed: these queues are on brake now."""
        if not braked and not self._told:
            return
        now = {queue.queue_id: queue for queue in braked}
        new = [queue for id, queue in now.items() if id not in self._told]
        for queue in new[:LINES_AT_ONCE]:
            brake = queue.brake
            if brake is not None:
                logger.warning(
                    "queue %r in vhost %r is on brake: %d messages have failed within %d ms",
                    queue.name, queue.vhost, brake.count, brake.window_ms,
                )  # fmt: skip
        if len(new) > LINES_AT_ONCE:
            logger.warning("%d more queues are on brake", len(new) - LINES_AT_ONCE)
        for id, queue in self._told.items():
            if id not in now:
                logger.info("queue %r in vhost %r is no longer on brake", queue.name, queue.vhost)
        self._told = now
