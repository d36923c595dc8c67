"""What is due soon of the pieces of a line from which messages leave anywhere (RULES X2). HOT for such queues.

Each of many pieces has a few that are due in any tick, and a look at a piece takes longer than those few. So all pieces
are looked at for several ticks at once, and each tick takes a part of what was found. No part of any state: pieces know
the same by themselves.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

from mayfly.node.shard.packed import BODY_LENGTH, INDEX, Departures, Packed, numbers_in
from mayfly.node.shard.returning import ReturningMessages

_AHEAD_MS: Final = 2000
"""So far ahead pieces are looked at, ..."""
_MOST: Final = 16_384
"""...unless more than this is due by then: not at all."""
_ROOM: Final = 1 << 16
"""So many are known at most, but for what is packed anew meanwhile, ..."""
_NUMBER_BITS: Final = 24
"""...which this has room for, many times: a number that ran over would be another deadline."""
_NUMBER: Final = (1 << _NUMBER_BITS) - 1
NOT_KNOWN: Final = -2


class NearDeaths:
    """Messages of the pieces of a line that are due until ``until_ms``, by their deadlines, of the same one in line.

    Pieces that have come since (`add`) are looked at when somebody asks. Of those that are in no line any more
    (`Packed.has_left`) nothing counts.
    """

    __slots__ = ("_at", "_body_lengths", "_from_ms", "_indexes", "_keys", "_new", "_pieces", "_places", "until_ms")

    def __init__(self, from_ms: int, until_ms: int) -> None:
        """No deadline of any piece is before ``from_ms``."""
        self._from_ms = from_ms
        self.until_ms = until_ms
        self._keys: list[int] = []
        """How much each deadline is above the first, and behind that the message's number in the lists below."""
        self._at = 0
        self._pieces: list[Packed] = []
        self._places: list[int] = []
        self._indexes: list[int] = []
        self._body_lengths: list[int] = []
        self._new: list[Packed] = []

    def add(self, piece: Packed) -> None:
        """One more piece is in line."""
        self._new.append(piece)

    def has_room(self) -> bool:
        """Whether what is due of the pieces that came since can be known here, too."""
        return len(self._places) + sum([piece.count for piece in self._new]) <= _ROOM

    def look(self) -> None:
        """Know the pieces that came since."""
        if not self._new:
            return
        keys = self._keys[self._at :]
        self._at = 0
        for piece in self._new:
            if piece.has_left:
                continue
            first_ms = piece.first_deadline_ms()
            if not 0 <= first_ms <= self.until_ms:
                continue
            if first_ms < self._from_ms:
                lower = self._from_ms - first_ms << _NUMBER_BITS
                keys = [key + lower for key in keys]
                self._from_ms = first_ms
            deadlines_ms, places = piece.soonest(self.until_ms)
            from_ms = self._from_ms
            number = len(self._places)
            for deadline_ms in deadlines_ms:
                keys.append(deadline_ms - from_ms << _NUMBER_BITS | number)
                number += 1
            self._places += places
            self._pieces += [piece] * len(places)
            self._indexes += numbers_in(piece.columns[INDEX], places)
            self._body_lengths += numbers_in(piece.columns[BODY_LENGTH], places)
        self._new.clear()
        keys.sort()
        self._keys = keys

    def _end(self, until_ms: int) -> int:
        """Up to where it is due until then."""
        return bisect_left(self._keys, until_ms - self._from_ms + 1 << _NUMBER_BITS, self._at)

    def count(self, until_ms: int) -> int:
        """How many are due until then, which is not after the end of what is known."""
        count = 0
        pieces = self._pieces
        for key in self._keys[self._at : self._end(until_ms)]:
            if not pieces[key & _NUMBER].has_left:
                count += 1
        return count

    def leave(self, until_ms: int, gone: Departures) -> bool:
        """Those leave; whether a piece is thin by now (`Packed.is_thin`)."""
        stop = self._end(until_ms)
        pieces, places, indexes, body_lengths = self._pieces, self._places, self._indexes, self._body_lengths
        from_ms = self._from_ms
        thin = False
        for key in self._keys[self._at : stop]:
            number = key & _NUMBER
            piece = pieces[number]
            if piece.has_left:
                continue
            piece.first_leaves(places[number])
            if piece.is_thin():
                thin = True
            gone.deadlines_ms.append(from_ms + (key >> _NUMBER_BITS))
            gone.indexes.append(indexes[number])
            gone.body_bytes += body_lengths[number]
        self._at = stop
        return thin

    def first_ms(self) -> int:
        """The earliest deadline, NOT_KNOWN if it is after the end of what is known."""
        keys, pieces = self._keys, self._pieces
        while self._at < len(keys):
            key = keys[self._at]
            if not pieces[key & _NUMBER].has_left:
                return self._from_ms + (key >> _NUMBER_BITS)
            self._at += 1
        return NOT_KNOWN


def near_deaths(packed: "deque[Packed | ReturningMessages]", now_ms: int) -> NearDeaths | None:
    """What is due soon of these pieces. None if it is too much: then a look at each takes less."""
    until_ms = now_ms + _AHEAD_MS
    first_ms = now_ms
    count = 0
    found: list[Packed] = []
    for piece in packed:
        if isinstance(piece, Packed):
            piece_ms = piece.first_deadline_ms()
            if 0 <= piece_ms <= until_ms:
                first_ms = min(first_ms, piece_ms)
                count += piece.due_count(until_ms)
                found.append(piece)
    if count > _MOST:
        return None
    near = NearDeaths(first_ms, until_ms)
    for piece in found:
        near.add(piece)
    near.look()
    return near
