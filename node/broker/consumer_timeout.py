"""Deliveries that are not acknowledged in time: RabbitMQ's delivery acknowledgement timeout (RULES Q3).

How long that is each consumer knows from the moment in which it comes: its own `x-consumer-timeout`, else the lowest of
what its queue's arguments and policies say, else the node's setting. When it is over, the consumer is cancelled, and
all it holds returns; later acknowledgements of that do nothing. A client that takes no cancel notices loses its
channel, and so does one that holds what it got with basic.get, or from a consumer that it has cancelled itself.

No delivery is noted with its time. Now and then a channel is asked how long the oldest one of each holder has waited,
and notes then which delivery tag is next: what is below that tag and open later has waited since then, or a little
longer.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mayfly.node.broker.operation import AmqpError
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.limits import CONSUMER_TIMEOUT_LOOKS

NEVER: Final = -1
"""A timeout of a holder that may hold for ever."""

_SHORTEST_PAUSE_MS: Final = 100
"""Between two looks at a connection, however short a timeout is."""


def holder_timeout_ms(catalog: Catalog, queue: QueueRecord, node_ms: int, arguments: Mapping[str, Any]) -> int:
    """How long somebody new may hold deliveries of a queue. `node_ms` is the node's setting, 0 for never; `arguments`
    are the consumer's, and were checked."""
    asked_ms = arguments.get("x-consumer-timeout")
    said_ms = catalog.consumer_timeout_ms(queue) if asked_ms is None else int(asked_ms)
    return said_ms if said_ms is not None else node_ms or NEVER


def mark_every_ms(timeout_ms: int) -> int:
    """How often it is noted how far deliveries have come."""
    return max(_SHORTEST_PAUSE_MS, timeout_ms // CONSUMER_TIMEOUT_LOOKS)


class DeliveryMarks:
    """How far the deliveries of a channel had come at times past, for one that holds some of them."""

    def __init__(self) -> None:
        # (ms, the next delivery tag then): rising, and only those above the oldest outstanding tag.
        self._marks: list[tuple[int, int]] = []

    def waited_ms(self, oldest_tag: int, next_tag: int, now_ms: int, every_ms: int) -> int:
        """How long the holder's oldest outstanding delivery has waited at least: too little by `every_ms` and the time
        between two calls at most. `next_tag` is the channel's."""
        marks = self._marks
        settled = 0
        while settled < len(marks) and marks[settled][1] <= oldest_tag:
            settled += 1
        del marks[:settled]
        if not marks or (marks[-1][1] < next_tag and now_ms - marks[-1][0] >= every_ms):
            marks.append((now_ms, next_tag))
        return now_ms - marks[0][0]


class LookTimes:
    """When the channels of one connection are looked at: so often that the shortest timeout is kept within a part of
    it."""

    def __init__(self) -> None:
        """Never, until somebody is there with a timeout."""
        self._every_ms = 0
        self._next_ms = 0

    def shorten(self, timeout_ms: int) -> None:
        """Somebody is there with this timeout, or NEVER."""
        if timeout_ms == NEVER:
            return
        every_ms = mark_every_ms(timeout_ms)
        if self._every_ms == 0 or every_ms < self._every_ms:
            self._every_ms = every_ms
            self._next_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; the caller looks then."""
        if self._every_ms == 0 or now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._every_ms
        return True


def timed_out(channel_id: int, timeout_ms: int) -> AmqpError:
    """Why the channel is closed, in RabbitMQ's words."""
    return AmqpError(
        406,
        f"delivery acknowledgement on channel {channel_id} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more",
    )
