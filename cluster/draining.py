"""Nodes that are about to stop: they lead nothing any more, and nobody makes them lead (pure).

A node that drains says so to its peers, at once and every second after that, and hands every group that it leads to
another voter that is there and has caught up. Peers do not give it its preferred groups back meanwhile. Nothing is
stored: what a peer has not heard again for a while it forgets, and a node that starts again does not drain.

    datagram    one octet, 1: drains, 0: does not any more
"""

from typing import Final

SAID_EVERY_MS: Final = 1000
REMEMBERED_MS: Final = 3 * SAID_EVERY_MS
TRANSFER_AGAIN_MS: Final = 500
"""A handover that has come to nothing is tried with the next one after so long."""

_DRAINS: Final = b"\x01"
_DOES_NOT: Final = b"\x00"


class Draining:
    """Who drains, as one node knows it, and its own attempts to hand over what it leads."""

    def __init__(self) -> None:
        self.here: bool = False
        self._said_ms: dict[int, int] = {}
        self._next_said_ms = 0
        self._attempts: dict[int, tuple[int, int]] = {}

    def set(self, here: bool) -> None:
        """This node drains, or does not any more."""
        self.here = here
        self._next_said_ms = 0
        self._attempts.clear()

    def word(self) -> bytes:
        """What this node says of itself."""
        return _DRAINS if self.here else _DOES_NOT

    def is_to_be_said(self, now_ms: int) -> bool:
        """Whether it is time to say once more that this node drains."""
        if not self.here or now_ms < self._next_said_ms:
            return False
        self._next_said_ms = now_ms + SAID_EVERY_MS
        return True

    def heard(self, peer: int, data: bytes, now_ms: int) -> bool:
        """A peer's datagram; False if it is none."""
        if data == _DRAINS:
            self._said_ms[peer] = now_ms
        elif data == _DOES_NOT:
            self._said_ms.pop(peer, None)
        else:
            return False
        return True

    def drains(self, peer: int, now_ms: int) -> bool:
        """Whether a peer has said a moment ago that it drains."""
        said_ms = self._said_ms.get(peer)
        return said_ms is not None and now_ms - said_ms <= REMEMBERED_MS

    def attempt(self, group: int, successors: int, now_ms: int) -> int:
        """Which of so many successors a group is handed to now; -1: it is too early for another attempt."""
        count, last_ms = self._attempts.get(group, (0, now_ms - TRANSFER_AGAIN_MS))
        if now_ms - last_ms < TRANSFER_AGAIN_MS:
            return -1
        self._attempts[group] = (count + 1, now_ms)
        return count % successors
