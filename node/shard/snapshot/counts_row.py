"""What has happened to messages, of a queue or of all that are gone, in the snapshot."""

from typing import Any

from mayfly.node.shard.queue import Queue
from mayfly.node.shard.state import Past


def counts_row(of: Queue | Past) -> list[int]:
    """Its nine counts."""
    return [
        of.enqueued, of.delivered, of.acknowledged,
        of.expired, of.dead_lettered, of.duplicates,
        of.overflowed, of.refused, of.delivery_limited,
    ]


def restore_counts(of: Queue | Past, row: Any) -> None:
    """Set the counts of a ``counts_row``."""
    (
        of.enqueued, of.delivered, of.acknowledged,
        of.expired, of.dead_lettered, of.duplicates,
        of.overflowed, of.refused, of.delivery_limited,
    ) = row
