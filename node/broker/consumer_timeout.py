"""Deliveries that are not acknowledged in time: RabbitMQ's delivery acknowledgement timeout (3.10, `consumer_timeout`).

No delivery is noted with its time. Now and then a channel is asked how long its oldest one has waited, and notes then
which delivery tag is next: what is below that tag and open later has waited since then, or a little longer.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mayfly.node.broker.operation import AmqpError
from mayfly.node.limits import CONSUMER_TIMEOUT_LOOKS

if TYPE_CHECKING:
    from mayfly.node.broker.unacknowledged import Unacknowledged


class DeliveryMarks:
    """How far deliveries of one channel had come at times past."""

    def __init__(self) -> None:
        # (ms, the next delivery tag then): rising, and only those above the oldest outstanding tag.
        self._marks: list[tuple[int, int]] = []

    def waited_ms(self, unacknowledged: Unacknowledged, now_ms: int) -> int:
        """How long the oldest outstanding delivery has waited at least, 0 where there is none: too little by the time
        between two calls at most."""
        marks = self._marks
        oldest = unacknowledged.oldest_tag
        if oldest == 0:
            marks.clear()
            return 0
        settled = 0
        while settled < len(marks) and marks[settled][1] <= oldest:
            settled += 1
        del marks[:settled]
        if not marks or marks[-1][1] < unacknowledged.next_tag:
            marks.append((now_ms, unacknowledged.next_tag))
        return now_ms - marks[0][0]


class LookTimes:
    """When the channels of one connection are looked at: so often that a timeout is kept within a part of it."""

    def __init__(self, timeout_ms: int) -> None:
        """`timeout_ms` 0: never."""
        self.timeout_ms: int = timeout_ms
        self._next_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; the caller looks then."""
        if now_ms < self._next_ms or self.timeout_ms == 0:
            return False
        self._next_ms = now_ms + self.timeout_ms // CONSUMER_TIMEOUT_LOOKS
        return True


def timed_out(channel_id: int, timeout_ms: int) -> AmqpError:
    """Why the channel is closed, in RabbitMQ's words."""
    return AmqpError(
        406,
        f"delivery acknowledgement on channel {channel_id} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more",
    )
