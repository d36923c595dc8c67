"""Messages that leave a piece by their offsets, the later ones before the earlier ones: noted, and counted off, many at
once. HOT.

Each of many pieces of a stream has a few messages whose time is up in any tick. To clear their bytes and to count off
their log entries then would take longer than all else. How many are there, and how long their bodies are, is right at
once. The rest is of this replica: a piece says who is there when it is asked, and entries are let go of a little later
than they could be.
"""

from array import array
from bisect import bisect_left
from typing import Final

GONE: Final = -1
"""The place, or the length of the body, of none."""


class Leavers:
    """Those of one piece, in the order in which they left. ``places``: where they stand, of which the first ``noted``
    are known to the piece itself."""

    __slots__ = ("_above", "_body_length", "_departed", "_first", "_lengths", "noted", "places")

    def __init__(
        self, offsets: "tuple[int, array[int] | None]", body_lengths: "tuple[int, array[int] | None]",
        departed: list[tuple[int, int]],
    ) -> None:
        """What the piece has: the least, and how much each is above it, if they are not all the same."""
        self._first, above = offsets
        # Without a gap an offset says the place.
        self._above = None if above is not None and above[-1] == len(above) - 1 else above or array("B", b"\0")
        self._body_length, self._lengths = body_lengths
        self._departed = departed
        self.places: list[int] = []
        self.noted = 0

    def place_of(self, offset: int) -> int:
        """Where the message with this offset stands, of a piece that reaches to it; GONE if there is none."""
        above = offset - self._first
        places = self._above
        if places is None or above < 0:
            return above if above >= 0 else GONE
        place = bisect_left(places, above)
        return place if place < len(places) and places[place] == above else GONE

    def leave(self, offsets: list[int]) -> int:
        """Those with these offsets, all of them there and in order, leave: how long their bodies are together."""
        first, above, lengths = self._first, self._above, self._lengths
        if above is None:
            places = [offset - first for offset in offsets]
        else:
            places = []
            place = 0
            for offset in offsets:
                place = bisect_left(above, offset - first, place)
                places.append(place)
        self.places += places
        body_bytes = self._body_length * len(places)
        return body_bytes if lengths is None else body_bytes + sum([lengths[place] for place in places])

    def body_length_at(self, place: int) -> int:
        """How long the body of the message in this place is."""
        lengths = self._lengths
        return self._body_length if lengths is None else self._body_length + lengths[place]

    def depart(self, indexes: "tuple[int, array[int] | None]") -> None:
        """Tell in which entries all of them stand, and how many one after the other in each."""
        least, above = indexes
        if not self.places:
            return
        if above is None:
            self._departed.append((least, len(self.places)))
            return
        self.places.sort()
        last = above[self.places[0]]
        run = 0
        for place in self.places:
            each = above[place]
            if each != last:
                self._departed.append((least + last, run))
                last = each
                run = 0
            run += 1
        self._departed.append((least + last, run))
