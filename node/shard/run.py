"""A run of a schedule: messages that wait, in order of their due times, packed but for the first. HOT."""

from bisect import bisect_left
from collections import deque
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import DIGEST_BYTES, NO_DIGEST
from mayfly.node.shard.packed import ENQUEUED_MS, Packed, pack
from mayfly.node.shard.returning import ReturningMessages

PACKED_TOGETHER: Final = 16
"""So many packed pieces make a run: each is small, because the first of every run is unpacked at the same time."""
_AT_HAND: Final = 8
"""The first of a run that are objects, as part of a piece."""
_INDEX_SHIFT: Final = 40
TIME_SHIFT: Final = 104
_NONE: Final = bytes(DIGEST_BYTES)


def place_of(message: Message) -> int:
    """Where a message that waits stands among the others: they come in the order of these numbers."""
    return message.enqueued_ms << TIME_SHIFT | message.index << _INDEX_SHIFT | message.offset


def due_of(place: int) -> int:
    """When what stands in that place is due."""
    return place >> TIME_SHIFT


def place_from(due_ms: int, index: int, offset: int) -> int:
    """The same of its numbers."""
    return due_ms << TIME_SHIFT | index << _INDEX_SHIFT | offset


class ScheduleRun(Line):
    """``digests``: those of the messages' ids (`node.shard.message_id`), one behind the other, in their order; zeros
    for a message without one, and nothing at all if none has one."""

    __slots__ = ("digests",)

    def __init__(self, piece: int) -> None:
        super().__init__(piece)
        self.digests = NO_DIGEST

    def fill(self, messages: list[Message], digests: list[bytes]) -> None:
        """Be a run of these messages, which are in order and at least one."""
        piece = self.piece
        at_hand = max(1, piece // _AT_HAND)
        packed: deque[Packed | ReturningMessages] = deque()
        for start in range(at_hand, len(messages), piece):
            packed.append(pack(messages[start : start + piece]))
        timed = sum([1 for message in messages if message.deadline_ms >= 0])
        self.put_together(messages[:at_hand], packed, [], timed)
        self.digests = joined(digests)

    def digest_list(self) -> list[bytes]:
        """The digest of each message, NO_DIGEST for those without."""
        return split(self.digests, self.count())

    def take_digests(self, count: int) -> list[bytes]:
        """Those of the first messages, which have left."""
        taken = split(self.digests[: count * DIGEST_BYTES], count)
        self.digests = self.digests[count * DIGEST_BYTES :]
        return taken

    def places_of(self, digest: bytes, most: int) -> list[int]:
        """At most so many messages with this digest: how far behind the head they are, rising."""
        places: list[int] = []
        digests = self.digests
        at = digests.find(digest)
        while at >= 0 and len(places) < most:
            if at % DIGEST_BYTES == 0:
                places.append(at // DIGEST_BYTES)
                at = digests.find(digest, at + DIGEST_BYTES)
            else:
                at = digests.find(digest, at + 1)
        return places

    def remove(self, places: list[int]) -> list[Message]:
        """The messages that are so many behind the head, rising and at least one, leave, with their digests."""
        self._cut_digests(places)
        at_hand = len(self.items) - self.head
        first_packed = bisect_left(places, at_hand)
        removed = [self.items.pop(self.head + place) for place in reversed(places[:first_packed])]
        removed.reverse()
        if first_packed < len(places):
            removed += self._remove_packed([place - at_hand for place in places[first_packed:]])
        self.timed -= sum([1 for message in removed if message.deadline_ms >= 0])
        if self.head == len(self.items):
            self.advance(0)
        return removed

    def _cut_digests(self, places: list[int]) -> None:
        """Those of these messages leave."""
        digests = self.digests
        if not digests:
            return
        kept: list[bytes] = []
        start = 0
        for place in places:
            stop = place * DIGEST_BYTES
            if start < stop:
                kept.append(digests[start:stop])
            start = stop + DIGEST_BYTES
        kept.append(digests[start:])
        self.digests = b"".join(kept)

    def _remove_packed(self, places: list[int]) -> list[Message]:
        """Those that are so many behind the first that is packed leave their pieces, which keep their places, or are
        packed anew once half of one has left."""
        removed: list[Message] = []
        kept: deque[Packed | ReturningMessages] = deque()
        start = 0
        at = 0
        for piece in self.packed:
            stop = start + piece.count
            first = at
            while at < len(places) and places[at] < stop:
                at += 1
            if at > first and isinstance(piece, Packed):
                for place in piece.places([place - start for place in places[first:at]]):
                    removed.append(piece.message(place))
                    piece.leave(place)
                if 2 * piece.count > piece.size:
                    kept.append(piece)
                elif piece.count:
                    kept.append(piece.without_gaps())
            else:
                kept.append(piece)
            start = stop
        self.packed = kept
        self.packed_count -= len(removed)
        return removed

    def named_behind(self, digest: bytes, place: int, most: int) -> list[Message]:
        """At most so many messages with this digest of those that stand behind a ``place_of``, in order."""
        numbers = self.places_of(digest, self.count())
        low = 0
        high = len(numbers)
        while low < high:
            middle = (low + high) // 2
            if place_of(self.message_at(numbers[middle])) > place:
                high = middle
            else:
                low = middle + 1
        return [self.message_at(number) for number in numbers[low : low + most]]

    def message_at(self, place: int) -> Message:
        """The one that is so many behind the head."""
        place += self.head
        if place < len(self.items):
            return self.items[place]
        place -= len(self.items)
        for piece in self.packed:
            if place < piece.count and isinstance(piece, Packed):
                return piece.message(piece.places([place])[0])
            place -= piece.count
        raise IndexError(f"{place} behind the last of a run")

    def behind(self, place: int, most: int) -> list[Message]:
        """At most so many of those that stand behind a ``place_of``."""
        found = [message for message in self.items[self.head :] if place_of(message) > place][:most]
        time_ms = place >> TIME_SHIFT
        for piece in self.packed:
            if len(found) >= most:
                break
            if isinstance(piece, Packed) and piece.last(ENQUEUED_MS) < time_ms:
                continue
            found += [message for message in piece.messages() if place_of(message) > place]
        return found[:most]


def joined(digests: list[bytes]) -> bytes:
    """As they stand in a run."""
    return b"".join([digest or _NONE for digest in digests]) if any(digests) else NO_DIGEST


def split(digests: bytes, count: int) -> list[bytes]:
    """The digests of so many messages, as `joined` joined them."""
    if not digests:
        return [NO_DIGEST] * count
    found: list[bytes] = []
    for start in range(0, count * DIGEST_BYTES, DIGEST_BYTES):
        digest = digests[start : start + DIGEST_BYTES]
        found.append(NO_DIGEST if digest == _NONE else digest)
    return found


def run_of(messages: list[Message], digests: list[bytes], half: int) -> ScheduleRun:
    """A run of these messages, which are in order and at least one. ``half``: as many as a run has at first."""
    run = ScheduleRun(piece_of(half))
    run.fill(messages, digests)
    return run


def piece_of(half: int) -> int:
    """How many of a run are packed together."""
    return max(1, half // PACKED_TOGETHER)
