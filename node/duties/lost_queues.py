"""Says in the log which queues have expired (RULES L10)."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from mayfly.node.shard.tombstone import EXPIRED, Tombstone

logger = logging.getLogger(__name__)

LINES_AT_ONCE: Final = 100
"""Queues that are named one by one; of more than that only the number is told."""
_MS_PER_S: Final = 1000


class LostQueues:
    """What one shard's leader has told. A new leader may tell once more of a queue that is still in the catalog."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def tell(self, deleted: Mapping[int, Tombstone]) -> None:
        """Tell of those of these queues that have expired and were not told of yet."""
        expired = [id for id, tombstone in deleted.items() if tombstone.reason == EXPIRED and id not in self._told]
        for id in expired[:LINES_AT_ONCE]:
            logger.info("%s", _told(deleted[id]))
        if len(expired) > LINES_AT_ONCE:
            logger.info("%d more queues are gone, reason expired", len(expired) - LINES_AT_ONCE)
        self._told.intersection_update(deleted)
        self._told.update(expired)


def _told(tombstone: Tombstone) -> str:
    last = datetime.fromtimestamp(tombstone.last_activity_ms / _MS_PER_S, UTC)
    return (
        f"queue {tombstone.name!r} in vhost {tombstone.vhost!r} is gone, reason {tombstone.reason}; last activity "
        f"{last.isoformat(timespec='milliseconds')} ({tombstone.last_use}), "
        f"{tombstone.time_ms - tombstone.last_activity_ms} ms before; {tombstone.messages} messages went with it"
    )
