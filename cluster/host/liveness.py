"""Which peers a node hears (pure): when the last frame of each came, and since when the stream to it has been open."""

from collections.abc import Sequence
from typing import Final

_NEVER_MS: Final = -1 << 40


class Liveness:
    """What one node has heard of its peers, and when; times are those of its process clock."""

    def __init__(self, node: int, election_timeout_ms: int) -> None:
        self._node = node
        self._election_timeout_ms = election_timeout_ms
        self._heard_ms: dict[int, int] = {}
        self._up_since_ms: dict[int, int] = {}

    def expect(self, peers: Sequence[int], now_ms: int) -> None:
        """These are peers now: one that was not counts as heard, since it had no occasion to speak yet."""
        for peer in peers:
            self._heard_ms.setdefault(peer, now_ms)

    def forget(self, peer: int) -> None:
        """It is no peer any more."""
        self._heard_ms.pop(peer, None)
        self._up_since_ms.pop(peer, None)

    def heard(self, peer: int, now_ms: int) -> None:
        """A frame of it came, so the stream to it is open."""
        self._heard_ms[peer] = now_ms
        self._up_since_ms.setdefault(peer, now_ms)

    def up(self, peer: int, now_ms: int) -> None:
        """The stream to it is open (again)."""
        self._heard_ms[peer] = now_ms
        self._up_since_ms[peer] = now_ms

    def down(self, peer: int) -> None:
        """The stream to it broke."""
        self._up_since_ms.pop(peer, None)

    def gone(self, peer: int) -> None:
        """Its process has ended: unless the stream is open again, it counts as silent from now on."""
        if peer not in self._up_since_ms:
            self._heard_ms.pop(peer, None)

    def heard_within(self, peer: int, now_ms: int, period_ms: int) -> bool:
        """Whether a frame of the peer came within the period (a node always hears itself)."""
        return peer == self._node or now_ms - self._heard_ms.get(peer, _NEVER_MS) <= period_ms

    def is_connected(self, peer: int) -> bool:
        """Whether the stream to a peer is open."""
        return peer in self._up_since_ms

    def up_since_ms(self, peer: int) -> int | None:
        """Since when the stream to a peer has been open; None: it is not."""
        return self._up_since_ms.get(peer)

    def is_there(self, peer: int, now_ms: int) -> bool:
        """Whether a peer is connected, and was heard within an election timeout."""
        return self.is_connected(peer) and self.heard_within(peer, now_ms, self._election_timeout_ms)
