"""What has happened to messages, of one queue or of many: nine counts that never go back."""

from __future__ import annotations

from typing import Final

COUNTS: Final = {
    "enqueued": "Messages enqueued",
    "delivered": "Messages delivered",
    "acknowledged": "Messages acknowledged",
    "expired": "Messages expired",
    "dead_lettered": "Messages dead-lettered",
    "duplicates": "Repeated transfers dropped",
    "overflowed": "Messages dropped from the head of a full queue",
    "refused": "Publishes and dead letters refused by a full queue",
    "delivery_limited": "Messages that came back more often than the delivery limit allows",
}
"""Their names and what they count, in the order of a snapshot's row."""


class Counts:
    """The counts; whatever has some inherits them."""

    __slots__ = (
        "acknowledged",
        "dead_lettered",
        "delivered",
        "delivery_limited",
        "duplicates",
        "enqueued",
        "expired",
        "overflowed",
        "refused",
    )

    def __init__(self) -> None:
        self.enqueued = 0
        self.delivered = 0
        self.acknowledged = 0
        self.expired = 0
        self.dead_lettered = 0
        self.duplicates = 0
        self.overflowed = 0
        self.refused = 0
        self.delivery_limited = 0

    def add_counts(self, other: Counts) -> None:
        """What happened there has happened here, too."""
        self.enqueued += other.enqueued
        self.delivered += other.delivered
        self.acknowledged += other.acknowledged
        self.expired += other.expired
        self.dead_lettered += other.dead_lettered
        self.duplicates += other.duplicates
        self.overflowed += other.overflowed
        self.refused += other.refused
        self.delivery_limited += other.delivery_limited

    def counts_row(self) -> list[int]:
        """As a row of the snapshot."""
        return [
            self.enqueued, self.delivered, self.acknowledged,
            self.expired, self.dead_lettered, self.duplicates,
            self.overflowed, self.refused, self.delivery_limited,
        ]  # fmt: skip

    def restore_counts(self, row: list[int]) -> None:
        """Be those of such a row."""
        (
            self.enqueued, self.delivered, self.acknowledged,
            self.expired, self.dead_lettered, self.duplicates,
            self.overflowed, self.refused, self.delivery_limited,
        ) = row  # fmt: skip
