"""What clients have asked for and is not done: methods under way, and events that wait behind them.

All of it counts by what it takes in memory, decoded, and not by its number. A connection with too much of it is not
read (`Pressure.wants_reading`); nor is one with more than a little, as long as all of the node have too much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mayfly.node.amqp.events import Event, MethodReceived, PublishesReceived, SettlementsReceived
from mayfly.node.amqp.field_table import values_in

EVENT_BYTES: Final = 512
"""What an event counts for besides what it carries: with its method of pamqp's 400 (measured), and its place."""

_CONTENT_BYTES: Final = 160
"""A message's objects, besides its octets (143 measured)."""

_SETTLEMENT_BYTES: Final = 120
"""A settlement: a tuple, and its tag (112 measured)."""

_CHARACTER_BYTES: Final = 4
"""The widest character: one is enough for all of a string to take so much."""

_VALUE_BYTES: Final = 256
"""A value in a decoded table, with its name (261 measured, less its octets)."""


def waiting_bytes(event: Event) -> int:
    """What an event that waits takes."""
    if isinstance(event, PublishesReceived):
        octets = sum([content.size_bytes for content in event.contents])
        return EVENT_BYTES + _CONTENT_BYTES * len(event.contents) + octets
    if isinstance(event, SettlementsReceived):
        return EVENT_BYTES + _SETTLEMENT_BYTES * len(event.settlements)
    if isinstance(event, MethodReceived):
        names = event.size_bytes - len(event.arguments)
        return EVENT_BYTES + _CHARACTER_BYTES * names + len(event.arguments)
    return EVENT_BYTES


def working_bytes(event: Event) -> int:
    """What an event takes while it is worked on: its table is decoded then."""
    size = waiting_bytes(event)
    if isinstance(event, MethodReceived) and event.arguments:
        size += _VALUE_BYTES * values_in(event.arguments) + _CHARACTER_BYTES * len(event.arguments)
    return size


class WaitingEvents:
    """What waits and is worked on, on all connections of a node."""

    def __init__(self, most_bytes: int, low_bytes: int, changed: Callable[[], None]) -> None:
        """`changed()`: `is_too_much` has."""
        self.size_bytes: int = 0
        self.is_too_much: bool = False
        """Whether it has passed `most_bytes`, and not gone below `low_bytes` since."""
        self._most_bytes = most_bytes
        self._low_bytes = low_bytes
        self._changed = changed

    def add(self, more_bytes: int) -> None:
        """So much more of it (or less)."""
        self.size_bytes += more_bytes
        too_much = self.size_bytes > (self._low_bytes if self.is_too_much else self._most_bytes)
        if too_much != self.is_too_much:
            self.is_too_much = too_much
            self._changed()
