"""Publisher confirms of one channel: which publishes are settled, and the fewest
frames that say so.

Sequence numbers start at 1 after confirm.select.  Every publish is settled once:
acknowledged when all shards it was routed to have stored it (or when it was
routed nowhere), refused when it could not be stored.  Settled numbers are
gathered until `take`, which turns them into basic.ack and basic.nack frames: one
`multiple` frame for everything up to the lowest number that is still open, and
single frames for what was settled ahead of it.
"""

from __future__ import annotations


class Confirms:
    """Sequence numbers of one channel in confirm mode."""

    def __init__(self) -> None:
        self.next_sequence: int = 1
        # Everything below is settled and every frame about it was taken or is due as `multiple`.
        self.lowest_open: int = 1
        # Everything below has been told to the client.
        self.told: int = 1
        # Settled ranges beyond lowest_open: first -> last, disjoint and never adjacent to it.
        self.ahead: dict[int, int] = {}
        # Ranges settled ahead and not told yet: (first, last, refused).
        self.ahead_untold: list[tuple[int, int, bool]] = []
        # Frames in the order in which they must leave: (sequence, multiple, refused).
        self.frames: list[tuple[int, bool, bool]] = []

    def assign(self, count: int) -> int:
        """Number `count` publishes; the first of the numbers."""
        first = self.next_sequence
        self.next_sequence = first + count
        return first

    @property
    def has_news(self) -> bool:
        """Whether `take` would answer anything."""
        return self.told < self.lowest_open or bool(self.ahead_untold) or bool(self.frames)

    def acknowledge(self, first: int, last: int) -> None:
        """All numbers first..last are stored (or unroutable)."""
        if first == self.lowest_open:
            self.lowest_open = last + 1
            if self.ahead:
                self._absorb()
        else:
            self.ahead[first] = last
            self.ahead_untold.append((first, last, False))

    def refuse(self, first: int, last: int) -> None:
        """The numbers first..last could not be stored: basic.nack."""
        if first == self.lowest_open:
            # What was settled below must be told apart, or the multiple nack would take it in.
            self._tell_ahead_below(first)
            self._tell_settled()
            self.frames.append((last, last > first, True))
            self.lowest_open = self.told = last + 1
            if self.ahead:
                self._absorb()
        else:
            self.ahead[first] = last
            self.ahead_untold.append((first, last, True))

    def take(self) -> list[tuple[int, bool, bool]]:
        """The frames due, as (sequence, multiple, refused), in the order to send them."""
        self._tell_ahead_below(self.lowest_open)
        self._tell_settled()
        for first, last, refused in self.ahead_untold:
            for sequence in range(first, last + 1):
                self.frames.append((sequence, False, refused))
        self.ahead_untold.clear()
        frames = self.frames
        self.frames = []
        return frames

    def _absorb(self) -> None:
        """Let lowest_open pass over the ranges that were settled ahead and now touch it."""
        ahead = self.ahead
        while True:
            last = ahead.pop(self.lowest_open, 0)
            if not last:
                return
            self.lowest_open = last + 1

    def _tell_ahead_below(self, limit: int) -> None:
        """Refusals that lowest_open has passed need frames of their own; acknowledgements
        do not: the multiple frame covers them."""
        if not self.ahead_untold:
            return
        keep: list[tuple[int, int, bool]] = []
        for first, last, refused in self.ahead_untold:
            if last >= limit:
                keep.append((first, last, refused))
            elif refused:
                for sequence in range(first, last + 1):
                    self.frames.append((sequence, False, True))
        self.ahead_untold = keep

    def _tell_settled(self) -> None:
        if self.told < self.lowest_open:
            last = self.lowest_open - 1
            self.frames.append((last, last > self.told, False))
            self.told = self.lowest_open


class PublishGroup:
    """The publishes of one event whose shards differ: each number is settled when the
    last of its shards has answered."""

    def __init__(self, confirms: Confirms, first: int, count: int) -> None:
        self.confirms = confirms
        self.first = first
        self.open_shards: list[int] = [0] * count
        self.refused: set[int] = set()

    def expect(self, offsets: list[int]) -> None:
        """One shard more will answer for the publishes at these offsets."""
        open_shards = self.open_shards
        for offset in offsets:
            open_shards[offset] += 1

    def settle_unexpected(self) -> None:
        """Acknowledge the publishes that go to no shard at all (they were unroutable)."""
        start = -1
        for offset, shards in enumerate(self.open_shards):
            if shards == 0:
                if start < 0:
                    start = offset
            elif start >= 0:
                self.confirms.acknowledge(self.first + start, self.first + offset - 1)
                start = -1
        if start >= 0:
            self.confirms.acknowledge(self.first + start, self.first + len(self.open_shards) - 1)

    def settled(self, offsets: list[int], refused: bool) -> None:
        """One shard has answered for the publishes at these (ascending) offsets."""
        open_shards = self.open_shards
        confirms = self.confirms
        first = self.first
        start = end = -1
        for offset in offsets:
            if refused:
                self.refused.add(offset)
            open_shards[offset] -= 1
            if open_shards[offset]:
                continue
            if offset in self.refused:
                confirms.refuse(first + offset, first + offset)
                continue
            if offset == end + 1 and start >= 0:
                end = offset
                continue
            if start >= 0:
                confirms.acknowledge(first + start, first + end)
            start = end = offset
        if start >= 0:
            confirms.acknowledge(first + start, first + end)
