"""The windows of all consumers of a node, which together are what slow ones may have waiting here.

A consumer's window bounds what its shard gives it ahead (`Pressure.next_window_bytes`), so one that takes nothing keeps
so much in the node's memory; a thousand of them kept a thousand windows. There is a budget for all: each gets an eighth
of what is left of it at most, and the least when it is used up.
"""

from __future__ import annotations

from typing import Final

_SHARE: Final = 8


class ConsumerWindows:
    """How much consumers of one node may be given ahead."""

    def __init__(self, most_bytes: int, least_bytes: int) -> None:
        self.open_bytes: int = 0
        """The windows that are open; no more than `most_bytes`, but for a `least_bytes` for each consumer."""
        self._most_bytes = most_bytes
        self._least_bytes = least_bytes
        self._windows: dict[int, int] = {}

    def open(self, consumer_id: int, wanted_bytes: int) -> int:
        """The window of a consumer: what it wants, or less. 0, for none, stays 0."""
        if wanted_bytes:
            share_bytes = (self._most_bytes - self.open_bytes) // _SHARE
            wanted_bytes = min(wanted_bytes, max(share_bytes, self._least_bytes))
            self._windows[consumer_id] = wanted_bytes
            self.open_bytes += wanted_bytes
        return wanted_bytes

    def rename(self, consumer_id: int, new_id: int) -> None:
        """A consumer is known by another id from now on."""
        window_bytes = self._windows.pop(consumer_id, 0)
        if window_bytes:
            self._windows[new_id] = window_bytes

    def close(self, consumer_id: int) -> None:
        """The consumer is gone, if it ever was there."""
        self.open_bytes -= self._windows.pop(consumer_id, 0)
