"""Whether this node has clients, as far as the others must know: a change of the catalog is not waited for where not.

A node without clients says that it is *quiet*: nobody there could notice that its catalog is some milliseconds behind.
Before its first client is served it is waited for again, and has all that was answered before:

    the first client comes -> SERVES to all whose streams are open, number n
    a peer hears it        -> waits for this node from now on; HEARD n
    all have heard         -> a barrier: the catalog here gets all that was committed by now; then clients are served

A change that a peer answered before it heard is committed, so the barrier brings it; one that it answers later waits
for this node. A peer that does not answer is not waited for longer than it would itself wait for this node. What a
leader here does by the catalog for clients of others, it does after a barrier of its own (`serves`).

    word = kind u8, incarnation u64, number u64

A word with a lower number than one that was heard of that node is from before it, and says nothing.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final

from mayfly.node import notice_kinds

QUIET_AFTER_MS: Final = 10_000
"""Without a client. One that comes back soon finds its node as it was."""
ANNOUNCE_EVERY_MS: Final = 5_000
"""A peer whose stream broke on its side alone has forgotten that this node is quiet."""
HEARD_WITHIN_MS: Final = 500
"""As long as a peer waits for this node at most."""
CURRENT_WITHIN_MS: Final = 10_000
"""Longer than an election. Without a leader of the catalog clients are served after that as the node can."""

_WORD: Final = struct.Struct("<BQQ")
_QUIET: Final = 0
_SERVES: Final = 1
_HEARD: Final = 2

Number = tuple[int, int]
"""Of this life of the node, and within it: grows with every change."""


class QuietPort:
    """What `Quiet` needs of its node."""

    def __init__(
        self,
        peers: Callable[[], Sequence[int]],
        is_connected: Callable[[int], bool],
        send: Callable[[int, int, bytes], None],
        send_unhurried: Callable[[int, int, bytes], None],
        barrier: Callable[[Callable[[object], None]], None],
        has_clients: Callable[[], bool],
    ) -> None:
        self.peers: Callable[[], Sequence[int]] = peers
        self.is_connected: Callable[[int], bool] = is_connected
        self.send: Callable[[int, int, bytes], None] = send
        self.send_unhurried: Callable[[int, int, bytes], None] = send_unhurried
        self.barrier: Callable[[Callable[[object], None]], None] = barrier
        self.has_clients: Callable[[], bool] = has_clients


class Quiet:
    """Of one node, and what it has heard of the others. It begins as quiet: peers may take it for its last life."""

    def __init__(self, port: QuietPort, incarnation: int, heard: Callable[[], None]) -> None:
        """`heard()`: a peer has become quiet."""
        self.quiet_after_ms: int = QUIET_AFTER_MS
        self.serves: bool = False
        """Whether peers wait for this node, and its catalog has what they answered before they did."""
        self._port = port
        self._told = heard
        self._number: Number = (incarnation, 0)
        self._is_quiet = True
        self._last_client_ms = 0
        self._announced_ms = 0
        self._began_ms = 0
        self._heard_by: dict[int, None] = {}
        """Peers that have answered that this node serves."""
        self._up: dict[int, None] = {}
        """Nodes whose stream is open. One may be before the catalog here has it as a member."""
        self._asked_barrier = False
        self._waiting: list[Callable[[], None]] = []
        self._now_ms = 0
        self._quiet_peers: dict[int, None] = {}
        self._heard: dict[int, Number] = {}

    def peer_is_quiet(self, peer: int) -> bool:
        """Whether a peer has said that it has no clients."""
        return peer in self._quiet_peers

    def has_told(self, peer: int) -> bool:
        """Whether a peer has answered that this node serves."""
        return peer in self._heard_by

    def serve(self, done: Callable[[], None]) -> None:
        """A client is there: `done()`, perhaps at once, when it may be served."""
        self._last_client_ms = self._now_ms
        if self.serves:
            done()
            return
        self._waiting.append(done)
        if self._is_quiet:
            self._begin_to_serve()

    def _begin_to_serve(self) -> None:
        self._is_quiet = False
        self._began_ms = self._now_ms
        self._asked_barrier = False
        self._number = (self._number[0], self._number[1] + 1)
        self._heard_by = {}
        self._say_serves()
        self._look()

    def _unheard(self) -> list[int]:
        return [peer for peer in {**self._up, **dict.fromkeys(self._port.peers())} if peer not in self._heard_by]

    def _say_serves(self) -> None:
        for peer in self._unheard():
            self._say(peer, _SERVES)

    def _say(self, peer: int, kind: int) -> None:
        self._port.send(peer, notice_kinds.QUIET, _WORD.pack(kind, *self._number))

    def _look(self) -> None:
        """Go on if all that are there have heard, or had the time."""
        if self.serves or self._is_quiet or self._asked_barrier:
            return
        late = self._now_ms - self._began_ms >= HEARD_WITHIN_MS
        if late or not any(map(self._port.is_connected, self._unheard())):
            self._asked_barrier = True
            number = self._number

            def current(_: object) -> None:
                if self._number == number:
                    self._may_serve()

            self._port.barrier(current)

    def _may_serve(self) -> None:
        self.serves = True
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = now_ms
        if self._port.has_clients():
            self._last_client_ms = now_ms
        if self._is_quiet:
            if now_ms - self._announced_ms >= ANNOUNCE_EVERY_MS:
                self._say_quiet()
            return
        self._say_serves()
        if not self.serves:
            self._look()
            if now_ms - self._began_ms >= CURRENT_WITHIN_MS:
                self._may_serve()
        elif now_ms - self._last_client_ms >= self.quiet_after_ms:
            self._is_quiet = True
            self.serves = False
            self._number = (self._number[0], self._number[1] + 1)
            self._say_quiet()

    def _say_quiet(self) -> None:
        self._announced_ms = self._now_ms
        for peer in self._port.peers():
            self._port.send_unhurried(peer, notice_kinds.QUIET, _WORD.pack(_QUIET, *self._number))

    # ------------------------------------------------------------------ peers

    def notice(self, peer: int, data: bytes) -> None:
        """A word of a peer; what is none says nothing."""
        if len(data) != _WORD.size:
            return
        kind, incarnation, count = _WORD.unpack(data)
        number = (incarnation, count)
        if kind == _HEARD:
            if number == self._number:
                self._heard_by[peer] = None
                self._look()
            return
        if kind not in (_QUIET, _SERVES) or number < self._heard.get(peer, number):
            return
        self._heard[peer] = number
        if kind == _QUIET:
            self._quiet_peers[peer] = None
            self._told()
        else:
            self._quiet_peers.pop(peer, None)
            self._port.send(peer, notice_kinds.QUIET, _WORD.pack(_HEARD, *number))

    def peer_up(self, peer: int) -> None:
        """The stream to a peer opened; what was said before may be lost."""
        self._up[peer] = None
        self._quiet_peers.pop(peer, None)
        if self._is_quiet:
            self._say(peer, _QUIET)
        else:
            self._heard_by.pop(peer, None)
            self._say(peer, _SERVES)

    def peer_down(self, peer: int) -> None:
        """The stream to a peer broke: it is waited for when it comes back, until it says again that it is quiet."""
        self._up.pop(peer, None)
        self._quiet_peers.pop(peer, None)
        self._look()
