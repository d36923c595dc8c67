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
        # Everything below is settled and every frame about it was taken or is due.
        self.lowest_open: int = 1
        self.acknowledged: int = 0
        """How many, since whoever counts them has set it to 0."""
        # Everything below has been told to the client.
        self.told: int = 1
        # Ranges from `told` to `lowest_open`, ascending, that are not acknowledgements still to be told: (first, last,
        # whether it is a refusal; else it was told when it was ahead).
        self.exceptions: list[tuple[int, int, bool]] = []
        # Settled ranges beyond lowest_open: first -> (last, refused, told), disjoint and never adjacent to it.
        self.ahead: dict[int, tuple[int, bool, bool]] = {}
        # Where ranges ahead begin that have not been told, in the order in which they were settled.
        self.ahead_untold: list[int] = []

    def assign(self, count: int) -> int:
        """Number `count` publishes; the first of the numbers."""
        first = self.next_sequence
        self.next_sequence = first + count
        return first

    @property
    def has_news(self) -> bool:
        """Whether `take` would answer anything."""
        return self.told < self.lowest_open or bool(self.ahead_untold)

    @property
    def unsettled(self) -> int:
        """How many are neither stored nor refused."""
        ahead = sum(last - first + 1 for first, (last, _, _) in self.ahead.items())
        return self.next_sequence - self.lowest_open - ahead

    def acknowledge(self, first: int, last: int) -> None:
        """All numbers first..last are stored (or unroutable)."""
        self.acknowledged += last - first + 1
        if first == self.lowest_open:
            self.lowest_open = last + 1
            if self.ahead:
                self._absorb()
        else:
            self.ahead[first] = (last, False, False)
            self.ahead_untold.append(first)

    def refuse(self, first: int, last: int) -> None:
        """The numbers first..last could not be stored: basic.nack."""
        if first == self.lowest_open:
            self.exceptions.append((first, last, True))
            self.lowest_open = last + 1
            if self.ahead:
                self._absorb()
        else:
            self.ahead[first] = (last, True, False)
            self.ahead_untold.append(first)

    def take(self) -> list[tuple[int, bool, bool]]:
        """The frames due, as (sequence, multiple, refused), in the order to send them.

        Each of them settles something, and nothing is settled twice. None bears a number that was told before, though a
        `multiple` one may cover such: there are clients (aiormq) that take no notice of a frame whose number they have
        forgotten.
        """
        frames: list[tuple[int, bool, bool]] = []
        if self.told < self.lowest_open:
            position = looked_at = self.told
            untold = position - 1  # The last acknowledgement from `position` on that is still to be told.
            for first, last, refused in self.exceptions:
                if looked_at < first:
                    untold = first - 1
                looked_at = last + 1
                if refused:
                    if position <= untold:
                        frames.append((untold, untold > position, False))
                    frames.append((last, last > first, True))
                if refused or untold < position:
                    position, untold = looked_at, last
            if looked_at < self.lowest_open:
                untold = self.lowest_open - 1
            if position <= untold:
                frames.append((untold, untold > position, False))
            self.exceptions.clear()
            self.told = self.lowest_open
        for first in self.ahead_untold:
            if first in self.ahead:
                last, refused, _ = self.ahead[first]
                self.ahead[first] = (last, refused, True)
                frames += [(sequence, False, refused) for sequence in range(first, last + 1)]
        self.ahead_untold.clear()
        return frames

    def _absorb(self) -> None:
        """Let lowest_open pass over the ranges that were settled ahead and now touch it."""
        ahead = self.ahead
        while self.lowest_open in ahead:
            first = self.lowest_open
            last, refused, told = ahead.pop(first)
            if told or refused:
                self.exceptions.append((first, last, not told))
            self.lowest_open = last + 1


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

    def leave_out(self, offsets: list[int]) -> None:
        """The publishes at these offsets are settled otherwise."""
        for offset in offsets:
            self.open_shards[offset] = 1

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
