"""How far the other nodes have applied what this node's clients changed in the catalog.

A client that was told bind-ok may publish through any node, and no node asks others before it routes. So the answer
waits until the nodes that are there have the change:

    an entry with commands of node X is applied on node Y -> Y tells X how far it has applied (notice: u64)
    X answers its client once every connected peer that has clients has told so of the entry, or has taken too long

Who has no clients says so (`node.duties.quiet`), and gets what it lacks before it serves its first one. What operators
change, users above all, is waited for everywhere: who logs in is no client yet.

Whoever takes too long is not waited for again until it has caught up, so a node that hangs costs each client at most
one such wait, and a node that is gone none. Nothing here is needed for safety: a lost notice costs time.
"""

import struct
from collections.abc import Callable
from typing import Final

from mayfly.cluster.host.host import Host
from mayfly.node import notice_kinds
from mayfly.node.catalog.machine import CatalogMachine
from mayfly.node.numbers import CATALOG_GROUP

SPREAD_WITHIN_MS: Final = 500
"""Longer than an answer ever takes to come, unless something is wrong with a node."""

_INDEX: Final = struct.Struct("<Q")

OnDone = Callable[[object], None]


class _Wait:
    """One who waits for the entry at `index` to be everywhere."""

    __slots__ = ("done", "everywhere", "index", "since_ms")

    def __init__(self, index: int, since_ms: int, everywhere: bool, done: OnDone) -> None:
        self.index = index
        self.everywhere = everywhere
        self.since_ms = since_ms
        self.done = done


class CatalogSpread:
    """One node's view of the others' catalogs, and its word to them about its own."""

    def __init__(self, host: Host, machine: CatalogMachine, is_quiet: Callable[[int], bool]) -> None:
        """`is_quiet(peer)`: it has no clients."""
        self._host = host
        self._is_quiet = is_quiet
        self._machine = machine
        self._known: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._slow: dict[int, int] = {}
        """Peers that have not applied an entry in time -> the newest such entry."""
        self._waiting: list[_Wait] = []

    @property
    def changed_up_to(self) -> int:
        """The newest entry applied here with commands of this node's clients."""
        return self._machine.last_commands.get(self._host.node, 0)

    def is_slow(self, peer: int) -> bool:
        """Whether a peer has taken too long, and is not waited for until it has caught up."""
        return peer in self._slow

    def wait(self, now_ms: int, everywhere: bool, done: OnDone) -> None:
        """`done(None)` once all peers that can be waited for, those without clients only with `everywhere`, have
        applied what was changed through this node, as far as it is applied here; perhaps at once."""
        index = self.changed_up_to
        if self._lagging(index, everywhere):
            self._waiting.append(_Wait(index, now_ms, everywhere, done))
        else:
            done(None)

    def _lagging(self, index: int, everywhere: bool) -> list[int]:
        return [
            peer
            for peer in self._host.peers
            if self._known.get(peer, 0) < index
            and (everywhere or not self._is_quiet(peer))
            and peer not in self._slow
            and self._host.liveness.is_connected(peer)
        ]

    def tick(self, now_ms: int) -> None:
        """Time has passed: give up those who take too long."""
        for wait in self._waiting:
            if now_ms - wait.since_ms >= SPREAD_WITHIN_MS:
                for peer in self._lagging(wait.index, wait.everywhere):
                    self._slow[peer] = wait.index
        self.look()

    def look(self) -> None:
        """Answer those who need not wait any longer."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        ready: list[_Wait] = []
        for wait in waiting:
            (self._waiting if self._lagging(wait.index, wait.everywhere) else ready).append(wait)
        for wait in ready:
            wait.done(None)

    # ------------------------------------------------------------------ what others tell, and are told

    def notice(self, peer: int, data: bytes) -> None:
        """A peer says how far it has applied the catalog; what has another length says nothing."""
        if len(data) != _INDEX.size:
            return
        (applied,) = _INDEX.unpack(data)
        self._known[peer] = applied
        if applied >= self._slow.get(peer, 0):
            self._slow.pop(peer, None)
        self.look()

    def applied(self) -> None:
        """The catalog here has changed: tell those whose commands were in it."""
        if self._machine.restored:
            self._machine.restored = False
            for peer in self._host.peers:
                self._tell(peer)
        for node, index in self._machine.last_commands.items():
            if index > self._told.get(node, 0) and node in self._host.peers:
                self._told[node] = index
                self._tell(node)

    def _tell(self, peer: int) -> None:
        applied = self._host.groups[CATALOG_GROUP].applied
        self._host.send_notice(peer, notice_kinds.APPLIED, _INDEX.pack(applied))

    def peer_up(self, peer: int) -> None:
        """The stream to a peer opened; what was told before may be lost."""
        self._tell(peer)

    def peer_down(self, peer: int) -> None:
        """The stream to a peer broke: when it comes back it may have begun anew."""
        self._known.pop(peer, None)
        self._slow.pop(peer, None)
        self.look()
