"""Messages that leave a piece by their offsets, the later ones before the earlier ones: noted, and counted off, many at
once. HOT.

Each of many pieces of a stream has a few messages whose time is up in any tick. To look for each, to clear its byte and
to count off its log entry then would take longer than all else. How many are there, and how long their bodies are, is
right at once. The rest is of this replica: a piece says who is there when it is asked, and entries are let go of a
little later than they could be.
"""

from array import array
from bisect import bisect_left
from typing import Final

GONE: Final = -1
"""The place, or the length of the body, of none."""


class Leavers:
    """Those of one piece: the ``offsets`` of which nobody has asked yet where they stand, and the ``places`` of the
    others, of which the first ``noted`` are known to the piece itself."""

    __slots__ = ("_above", "_body_length", "_departed", "_first", "_lengths", "_size", "noted", "offsets", "places")

    def __init__(
        self, size: int, offsets: "tuple[int, array[int] | None]", body_lengths: "tuple[int, array[int] | None]",
        departed: list[tuple[int, int]],
    ) -> None:
        """What the piece has, so many: the least, and how much each is above it, if they are not all the same."""
        self._size = size
        self._first, above = offsets
        # Without a gap an offset says the place.
        self._above = None if above is None or above[size - 1] == size - 1 else above
        self._body_length, self._lengths = body_lengths
        self._departed = departed
        self.offsets: list[int] = []
        self.places: list[int] = []
        self.noted = 0

    def count(self) -> int:
        """How many they are."""
        return len(self.offsets) + len(self.places)

    def place_of(self, offset: int) -> int:
        """Where the message with this offset stands; GONE if there is none."""
        above = offset - self._first
        if above < 0:
            return GONE
        places = self._above
        if places is None:
            return above if above < self._size else GONE
        place = bisect_left(places, above)
        return place if place < self._size and places[place] == above else GONE

    def leave(self, offsets: list[int]) -> int:
        """Those with these offsets leave, all of which are there: how long their bodies are together."""
        self.offsets += offsets
        lengths = self._lengths
        if lengths is None:
            return self._body_length * len(offsets)
        before = len(self.places)
        self.find()
        return self._body_length * len(offsets) + sum([lengths[place] for place in self.places[before:]])

    def find(self) -> None:
        """Know the places of all."""
        offsets, first, places = self.offsets, self._first, self._above
        if not offsets:
            return
        self.offsets = []
        if places is None:
            self.places += [offset - first for offset in offsets]
            return
        offsets.sort()
        # From one offset to the next there are no more places than numbers.
        place = 0
        before = first
        for offset in offsets:
            place = bisect_left(places, offset - first, place, min(self._size, place + offset - before + 1))
            self.places.append(place)
            before = offset

    def depart(self, indexes: "tuple[int, array[int] | None]") -> None:
        """Tell in which entries all of them stand, and how many one after the other in each."""
        least, above = indexes
        places = self.places
        if not places:
            return
        if above is None:
            self._departed.append((least, len(places)))
            return
        places.sort()
        last = above[places[0]]
        run = 0
        for place in places:
            each = above[place]
            if each != last:
                self._departed.append((least + last, run))
                last = each
                run = 0
            run += 1
        self._departed.append((least + last, run))
