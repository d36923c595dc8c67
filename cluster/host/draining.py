"""Nodes that nobody shall make lead: those that are about to stop, and those whose disk was late or is slow (pure).

A node that drains says so to its peers, at once and every second after that, and hands every group that it leads to
another voter that is there and has caught up. Peers do not give it its preferred groups back meanwhile. Nothing is
stored: what a peer has not heard again for a while it forgets, and a node that starts again does not drain.

A node whose disk hangs, or did a moment ago (`cluster.host.disk_watch`), says that it wants no lead: it would not take
one, and whoever hands a group over proposes nothing until the attempt is given up. One whose disk is slow
(`cluster.host.disk_pace`) says the same, though it would take one.

    notice    one octet, 1: drains, 2: wants no lead, 0: neither any more
"""

from typing import Final

ANNOUNCE_EVERY_MS: Final = 1000
REMEMBERED_MS: Final = 3 * ANNOUNCE_EVERY_MS
TRANSFER_AGAIN_MS: Final = 500
"""A handover that has come to nothing is tried with the next one after so long."""

_DRAINS: Final = b"\x01"
_WANTS_NO_LEAD: Final = b"\x02"
_NEITHER: Final = b"\x00"


class Draining:
    """Who drains or wants no lead, as one node knows it, and its own attempts to hand over what it leads."""

    def __init__(self) -> None:
        self.here: bool = False
        self.disk_was_late: bool = False
        """Whether this node wants no lead because of its disk, which hangs, did so a moment ago, or is slow."""
        self._heard: dict[int, tuple[bytes, int]] = {}
        self._announced = _NEITHER
        self._next_announcement_ms = 0
        self._attempts: dict[int, tuple[int, int]] = {}

    def set(self, here: bool) -> None:
        """This node drains, or does not any more. Who calls this says so to the peers."""
        self.here = here
        self._announced, self._next_announcement_ms = self.word(), 0
        self._attempts.clear()

    def word(self) -> bytes:
        """What this node says of itself."""
        if self.here:
            return _DRAINS
        return _WANTS_NO_LEAD if self.disk_was_late else _NEITHER

    def announcement_is_due(self, now_ms: int) -> bool:
        """Whether it is time to say the word: it is another one, or has to be said once more."""
        word = self.word()
        if word == self._announced and (word == _NEITHER or now_ms < self._next_announcement_ms):
            return False
        self._announced, self._next_announcement_ms = word, now_ms + ANNOUNCE_EVERY_MS
        return True

    def heard(self, peer: int, data: bytes, now_ms: int) -> bool:
        """A peer's notice; False if it is none."""
        if data not in (_DRAINS, _WANTS_NO_LEAD, _NEITHER):
            return False
        self._heard[peer] = (data, now_ms)
        return True

    def drains(self, peer: int, now_ms: int) -> bool:
        """Whether a peer has said a moment ago that it drains."""
        return self._word_of(peer, now_ms) == _DRAINS

    def wants_no_lead(self, peer: int, now_ms: int) -> bool:
        """Whether a peer has said a moment ago that it drains, or that its disk was late."""
        return self._word_of(peer, now_ms) != _NEITHER

    def disk_is_late(self, peer: int, now_ms: int) -> bool:
        """Whether a peer has said a moment ago that its disk was late. One that drains as well does not say so."""
        return self._word_of(peer, now_ms) == _WANTS_NO_LEAD

    def _word_of(self, peer: int, now_ms: int) -> bytes:
        word, heard_ms = self._heard.get(peer, (_NEITHER, now_ms))
        return word if now_ms - heard_ms <= REMEMBERED_MS else _NEITHER

    def attempt(self, group: int, successors: int, now_ms: int) -> int:
        """Which of so many successors a group is handed to now; -1: it is too early for another attempt."""
        count, last_ms = self._attempts.get(group, (0, now_ms - TRANSFER_AGAIN_MS))
        if now_ms - last_ms < TRANSFER_AGAIN_MS:
            return -1
        self._attempts[group] = (count + 1, now_ms)
        return count % successors
