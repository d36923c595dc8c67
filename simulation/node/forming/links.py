"""What becomes of frames for a place that is not a node yet, and when the next ones are tried."""

from __future__ import annotations

from collections.abc import Callable

from mayfly.cluster import limits
from mayfly.cluster.host.attempts import Attempts
from simulation.cluster.events import MILLISECOND_US


class Links:
    """The streams between nodes, by their ids (source, target): as `cluster.transport.outgoing` opens them.

    They break only when an end stops; what is cut off keeps them, and frames are lost by the network."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._attempts: dict[tuple[int, int], Attempts] = {}
        self._open: set[tuple[int, int]] = set()
        self._again_at_us: dict[tuple[int, int], int] = {}

    def carries(self, source: int, target: int, listens: bool) -> bool:
        """Whether a frame of one gets to the other: the stream is up, or can be opened. The first frame is the
        greeting, upon which the other tries its own."""
        link = source, target
        if link in self._open:
            return listens
        if self._again_at_us.get(link, 0) > self._now_us():
            return False
        attempts = self._attempts.get(link)
        if attempts is None:
            attempts = self._attempts[link] = Attempts(
                limits.RECONNECT_FIRST_MS, limits.RECONNECT_LAST_MS, limits.REFUSED_RETRY_MS
            )
        attempts.begun()
        if listens:
            attempts.was_up()
            self._open.add(link)
            self._again_at_us.pop((target, source), None)
        else:
            pause_ms = attempts.ended(refused=False)
            self._again_at_us[link] = self._now_us() + pause_ms * MILLISECOND_US
        return listens

    def ended(self, node: int) -> None:
        """Its process has stopped: no stream from it or to it is up, and its own begin anew."""
        self._open = {link for link in self._open if node not in link}
        for link in [link for link in self._attempts if link[0] == node]:
            del self._attempts[link]
            self._again_at_us.pop(link, None)
