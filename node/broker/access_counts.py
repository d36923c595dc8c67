"""How many connections vhosts and users have, and channels users, over all nodes: what limits are held against.

Each node counts its own and tells the others at its next tick, of what has limits, and the sums. So a limit is exact
for connections of one node; of several that are opened on different nodes within a tick (50 ms), some may pass it. What
a node that can't be reached has is not counted. What is told may get lost, so counts are repeated if there are limits;
without any, the sums of a node may be old until it tells them at its next change, or over its next stream.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mayfly.node.catalog import Catalog

REPEAT_MS: Final = 3_000
"""How often counts are repeated that have not changed."""

REPEATED_AFTER_MS: Final = 60_000
"""How long it is repeated that there are none any more."""

CONNECTIONS_OF_VHOST: Final = "vhost connections"
CONNECTIONS_OF_USER: Final = "user connections"
CHANNELS_OF_USER: Final = "user channels"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[tuple[str, str, int]]] = msgspec.msgpack.Decoder(list[tuple[str, str, int]])
_ALL: Final = ""
"""Stands for all vhosts, or users, together: no name is empty."""


class AccessCounts:
    """One node's counts, and what it was told of the others'."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], int] = {}
        self._others: dict[int, dict[tuple[str, str], int]] = {}
        self._changed = True
        self._version = -1
        self._next_repeat_ms = 0
        self._last_repeat_ms = -1

    def add(self, what: str, name: str, by: int) -> None:
        """So many more here, or fewer, of the vhost or user."""
        key = (what, name)
        count = self._own.get(key, 0) + by
        if count:
            self._own[key] = count
        else:
            self._own.pop(key, None)
        self._changed = True

    def here(self, what: str, name: str) -> int:
        """How many there are on this node."""
        return self._own.get((what, name), 0)

    def total(self, what: str, name: str) -> int:
        """How many there are on all nodes, as far as is known here: of other nodes only if the vhost or user has
        limits."""
        return self.here(what, name) + sum(counts.get((what, name), 0) for counts in self._others.values())

    def everywhere(self, what: str) -> int:
        """How many there are on all nodes for all vhosts, or users, together, as far as is known here."""
        return self._sum(what) + sum(counts.get((what, _ALL), 0) for counts in self._others.values())

    def _sum(self, what: str) -> int:
        return sum(count for (counted, _), count in self._own.items() if counted == what)

    def news(self, catalog: Catalog, now_ms: int) -> bytes | None:
        """What the other nodes are to be told; None if they know it. To be asked for at every tick."""
        version = catalog.permissions_version
        is_repeat_due = self._next_repeat_ms <= now_ms <= self._last_repeat_ms
        if not self._changed and version == self._version and not is_repeat_due:
            return None
        self._changed = False
        self._version = version
        self._next_repeat_ms = now_ms + REPEAT_MS
        if self._limited(catalog):
            self._last_repeat_ms = now_ms + REPEATED_AFTER_MS
        return self.encoded(catalog)

    def encoded(self, catalog: Catalog) -> bytes:
        """The counts of what has limits, and of all together; none that is 0."""
        sums = [(what, _ALL, self._sum(what)) for what in (CONNECTIONS_OF_VHOST, CHANNELS_OF_USER)]
        return _encoder.encode([*self._limited(catalog), *(row for row in sums if row[2])])

    def _limited(self, catalog: Catalog) -> list[tuple[str, str, int]]:
        rows = []
        for (what, name), count in self._own.items():
            limited = catalog.vhost(name) if what == CONNECTIONS_OF_VHOST else catalog.user(name)
            if limited is not None and limited.limits:
                rows.append((what, name, count))
        return rows

    def told(self, peer: int, data: bytes) -> None:
        """A peer has told its counts; what can't be read says nothing."""
        try:
            rows = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        self._others[peer] = {(what, name): count for what, name, count in rows}

    def forget(self, peer: int) -> None:
        """The peer can't be reached; it tells again when it can."""
        self._others.pop(peer, None)
