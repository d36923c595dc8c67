"""Why publishers are blocked: this node, or another one, is short of memory or disk (pure).

As in RabbitMQ an alarm on one node blocks publishers on all: wherever a message is published, every node gets it.
A node tells the others of its alarms when they change, and whoever has just connected; since what is told may get lost
(a peer that lags far behind misses frames), it repeats them while there are any and for a while after. Alarms of a node
that is not connected do not count. Clients are told in RabbitMQ's words (3.10), operators which node it is, and why.

    notice    one octet, the sum of the alarms that are on
"""

from collections.abc import Callable, Iterable
from typing import Final

from mayfly.node import notice_kinds

REPEAT_MS: Final = 1_000
"""How often alarms are repeated."""

REPEATED_AFTER_MS: Final = 60_000
"""How long it is repeated that there are none any more."""

MEMORY: Final = 1
DISK: Final = 2
NAMES: Final = {DISK: "disk", MEMORY: "memory"}
"""In the order in which RabbitMQ names them."""


class Alarms:
    """The alarms of the cluster as one node knows them."""

    def __init__(
        self, peers: Callable[[], Iterable[int]], tell: Callable[[int, int, bytes], None], changed: Callable[[], None]
    ) -> None:
        """`tell(peer, kind, data)` sends a notice; `changed()` is called when `reason` has become another."""
        self.reason: str | None = None
        """What clients are told, such as "low on disk & memory"; None: publishers go on."""
        self._peers = peers
        self._tell = tell
        self._changed = changed
        self._own: dict[int, str] = {}
        self._of_peers: dict[int, int] = {}
        self._has_told = False
        self._changed_since_tick = False
        self._next_repeat_ms = 0
        self._last_repeat_ms = 0

    def own(self, alarm: int) -> str | None:
        """Why this alarm is on at this node; None when it is not."""
        return self._own.get(alarm)

    def of_peer(self, peer: int) -> list[str]:
        """The names of the alarms that are on at another node."""
        bits = self._of_peers.get(peer, 0)
        return [name for alarm, name in NAMES.items() if bits & alarm]

    def with_alarms(self) -> list[int]:
        """The other nodes that have some."""
        return sorted(self._of_peers)

    def set(self, alarm: int, text: str | None) -> None:
        """An alarm of this node is on, for the reason `text`, or off."""
        was_on = alarm in self._own
        if text is None:
            self._own.pop(alarm, None)
        else:
            self._own[alarm] = text
        if was_on != (text is not None):
            self._has_told = self._changed_since_tick = True
            self._tell_all()
            self._look()

    def tick(self, now_ms: int) -> None:
        """Repeat what was told, if it is time to."""
        if self._changed_since_tick:
            self._changed_since_tick = False
            self._next_repeat_ms = now_ms + REPEAT_MS
            self._last_repeat_ms = now_ms + REPEATED_AFTER_MS
        if self._own:
            self._last_repeat_ms = now_ms + REPEATED_AFTER_MS
        if self._has_told and self._next_repeat_ms <= now_ms <= self._last_repeat_ms:
            self._next_repeat_ms = now_ms + REPEAT_MS
            self._tell_all()

    def _tell_all(self) -> None:
        for peer in self._peers():
            self._tell(peer, notice_kinds.ALARMS, bytes((sum(self._own),)))

    def notice(self, peer: int, data: bytes) -> None:
        """A peer tells its alarms; what has another length says nothing."""
        if len(data) != 1:
            return
        if data[0]:
            self._of_peers[peer] = data[0]
        else:
            self._of_peers.pop(peer, None)
        self._look()

    def peer_up(self, peer: int) -> None:
        """The stream to a peer opened: it knows nothing, or what was told before. Who never had one says nothing."""
        if self._has_told:
            self._tell(peer, notice_kinds.ALARMS, bytes((sum(self._own),)))

    def peer_down(self, peer: int) -> None:
        """The stream to a peer broke."""
        self._of_peers.pop(peer, None)
        self._look()

    def _look(self) -> None:
        bits = sum(self._own)
        for others in self._of_peers.values():
            bits |= others
        on = [name for alarm, name in NAMES.items() if bits & alarm]
        reason = f"low on {' & '.join(on)}" if on else None
        if reason != self.reason:
            self.reason = reason
            self._changed()


class Watermark:
    """Whether something is short, without going back and forth at the limit (pure): it is once `limit` is passed, and
    no more once `relief` is reached. A limit of 0 is none."""

    def __init__(self, limit: int, relief: int) -> None:
        """Above its limit it is short if `relief` is below, else below."""
        self.limit: int = limit
        self.relief: int = relief
        self.is_short: bool = False

    @property
    def threshold(self) -> int:
        """What decides at the next look."""
        return self.relief if self.is_short else self.limit

    def look(self, value: int) -> bool:
        """Whether it is short now."""
        if self.limit == 0:
            return False
        if self.relief < self.limit:
            self.is_short = value > self.threshold
        else:
            self.is_short = value < self.threshold
        return self.is_short


def memory_watermark(limit_bytes: int) -> Watermark:
    """Of what a process uses: over at nine tenths of the limit."""
    return Watermark(limit_bytes, limit_bytes - limit_bytes // 10)


def disk_watermark(limit_bytes: int) -> Watermark:
    """Of what is free on a disk: over at five quarters of the limit."""
    return Watermark(limit_bytes, limit_bytes + limit_bytes // 4)
