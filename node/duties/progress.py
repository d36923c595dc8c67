"""How far what one shard sends to a queue of another has come: items of a lane, messages of a stream."""

from typing import Final

AGAIN_MS: Final = 1000
"""What is on its way for so long without an effect is given again."""


_UNSEEN: Final = 8
"""So many items that were sent in pieces and are applied may not be known yet to be there: news takes its way."""


class TargetProgress:
    """What was sent and, of lanes, settled, by sequence; and since when nothing has moved.

    ``wanted``: the first that the target has not, as far as is known here. ``probing``: what was sent did not arrive,
    so one message at a time goes until one does. ``large``: the last that was sent in pieces, behind which only such go
    until it is there; ``large_under_way``: how many of these are not applied yet.
    """

    __slots__ = ("large", "large_under_way", "moved_ms", "probing", "sent", "settled", "target_shard", "wanted")

    def __init__(self, target_shard: int, wanted: int, now_ms: int) -> None:
        self.target_shard = target_shard
        self.wanted = wanted
        self.sent = wanted - 1
        self.settled = 0
        self.moved_ms = now_ms
        self.probing = False
        self.large = 0
        self.large_under_way = 0

    def wants(self, wanted: int, now_ms: int) -> None:
        """All before this one is there."""
        if wanted > self.wanted:
            self.wanted, self.moved_ms, self.probing = wanted, now_ms, False

    def is_stalled(self, now_ms: int) -> bool:
        """Whether nothing has moved for a while. What goes in pieces is not given up: its session sees to it."""
        return not self.large_under_way and now_ms - self.moved_ms >= AGAIN_MS

    @property
    def waits_for_large(self) -> bool:
        """Whether what was sent in pieces is not known to be there."""
        return self.large >= self.wanted

    @property
    def may_send_large(self) -> bool:
        """Whether the next to be sent may go in pieces: what came too early would be refused only when all of it is
        there. It is what is wanted, or goes behind such a one, the same way."""
        if self.sent + 1 == self.wanted:
            return True
        # Of those that are applied some must be known to be there: they may have been refused, and all behind them.
        unseen = self.sent - self.large_under_way + 1 - self.wanted
        return self.large_under_way > 0 and self.sent == self.large and unseen < _UNSEEN

    def sends_large(self, sequence: int) -> None:
        """The next one, of this sequence, is sent in pieces."""
        self.sent = self.large = sequence
        self.large_under_way += 1

    def large_was_applied(self, now_ms: int) -> None:
        """One of them is there now, or was refused."""
        self.large_under_way -= 1
        self.moved_ms = now_ms

    def go_on(self, stalled: bool, now_ms: int) -> None:
        """More is to be sent; if it is stalled, or the target has more than was sent, from what is wanted on."""
        if self.sent < self.wanted - 1 or stalled:
            self.probing = self.probing or self.sent >= self.wanted
            self.sent, self.moved_ms = self.wanted - 1, now_ms
            if stalled:
                self.large = 0
