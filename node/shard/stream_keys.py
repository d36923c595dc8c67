"""Where in a stream the messages of each routing key are (RULES J3, J5), for streams that ask for it. HOT.

A key has a number as long as it has messages, and each of its messages has the number; so what leaves says itself whose
it was. The index follows from the messages: snapshots have the keys alone.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from mayfly.node.shard.errors import BrokenInvariant, ShardError
from mayfly.node.shard.message import key_number_of, mark_of, marker_reason_of

NO_OFFSET: Final = -1
_CHUNK: Final = 512
_NO_CHUNKS: Final[list["array[int]"]] = []
"""What all keys with one message have in common; never added to."""


class KeyOffsets:
    """The offsets of one key's messages, rising: ``only``, while there was never more than one, or in ``chunks``.
    ``count`` of them are there, ``markers`` of these are markers."""

    __slots__ = ("chunks", "count", "markers", "name", "number", "only")

    def __init__(self, name: bytes, number: int) -> None:
        self.name = name
        self.number = number
        self.only = NO_OFFSET
        self.count = 0
        self.markers = 0
        self.chunks = _NO_CHUNKS

    def add(self, offset: int, reason: int) -> None:
        """One more, behind all others; a marker if there is a ``reason``."""
        if reason:
            self.markers += 1
        if not self.count and not self.chunks:
            self.only = offset
        elif not self.chunks:
            self.chunks = [array("Q", (self.only, offset))]
        elif not self.count or len(self.chunks[-1]) >= _CHUNK:
            self.chunks.append(array("Q", (offset,)))
        else:
            self.chunks[-1].append(offset)
        self.count += 1

    def remove(self, offset: int, reason: int) -> None:
        """One of them has left."""
        if reason:
            self.markers -= 1
        self.count -= 1
        if not self.chunks:
            return
        number = self._chunk_of(offset)
        chunk = self.chunks[number]
        place = bisect_left(chunk, offset)
        if place == len(chunk) or chunk[place] != offset:
            raise BrokenInvariant(f"no message of key {self.number} is at offset {offset}")
        del chunk[place]
        if not chunk and len(self.chunks) > 1:
            del self.chunks[number]

    def latest(self) -> int:
        """The last of them, of at least one."""
        return self.chunks[-1][-1] if self.chunks else self.only

    def some_from(self, offset: int, most: int) -> list[int]:
        """The first of them from this offset on, at most so many; fewer only where there are no more, or a few at a
        time."""
        if not self.chunks:
            return [self.only] if self.count and self.only >= offset else []
        number = self._chunk_of(offset)
        chunk = self.chunks[number]
        place = bisect_left(chunk, offset)
        if place == len(chunk) and number + 1 < len(self.chunks):
            chunk = self.chunks[number + 1]
            place = 0
        return list(chunk[place : place + most])

    def some_before(self, offset: int, most: int) -> list[int]:
        """The last of them before this offset, at most so many, the last one first; fewer only where there are no more,
        or a few at a time."""
        if not self.chunks:
            return [self.only] if self.count and self.only < offset else []
        number = self._chunk_of(offset)
        place = bisect_left(self.chunks[number], offset)
        if place == 0 and number:
            number -= 1
            place = len(self.chunks[number])
        found = list(self.chunks[number][max(0, place - most) : place])
        found.reverse()
        return found

    def count_to(self, offset: int) -> int:
        """How many of them are at this offset or before."""
        if not self.chunks:
            return 1 if self.count and self.only <= offset else 0
        return sum([bisect_right(chunk, offset) for chunk in self.chunks if chunk and chunk[0] <= offset])

    def _chunk_of(self, offset: int) -> int:
        """The last chunk that begins at this offset or before; the first if none does."""
        low, high = 0, len(self.chunks)
        while low + 1 < high:
            middle = (low + high) // 2
            if self.chunks[middle][0] <= offset:
                low = middle
            else:
                high = middle
        return low


class StreamKeys:
    """The keys of one stream that have messages. ``next_number`` is that of the next key that comes."""

    __slots__ = ("by_number", "keys", "next_number")

    def __init__(self) -> None:
        self.keys: dict[bytes, KeyOffsets] = {}
        self.by_number: dict[int, KeyOffsets] = {}
        self.next_number = 1

    def add(self, name: bytes, offset: int, reason: int = 0) -> int:
        """A message of this key is at this offset, behind all others, a marker if there is a ``reason``; its mark."""
        key = self.keys.get(name)
        if key is None:
            number = self.next_number
            self.next_number = number + 1
            key = KeyOffsets(name, number)
            self.keys[name] = key
            self.by_number[number] = key
        key.add(offset, reason)
        return mark_of(key.number, reason)

    def remove(self, mark: int, offset: int) -> KeyOffsets:
        """The message with this mark has left that offset; its key, which is forgotten if it was the last."""
        number = key_number_of(mark)
        key = self.by_number[number]
        key.remove(offset, marker_reason_of(mark))
        if not key.count:
            del self.keys[key.name]
            del self.by_number[number]
        return key

    def note(self, mark: int, offset: int) -> None:
        """The message with this mark is at this offset, behind all others: while the index is made anew, of keys that
        have no names yet."""
        number = key_number_of(mark)
        key = self.by_number.get(number)
        if key is None:
            key = self.by_number[number] = KeyOffsets(b"", number)
        key.add(offset, marker_reason_of(mark))

    def name_all(self, names: list[bytes], next_number: int) -> None:
        """The names of the keys that were noted, in the order of their numbers."""
        numbers = sorted(self.by_number)
        if len(numbers) != len(names) or (numbers and numbers[-1] >= next_number):
            raise ShardError(f"{len(numbers)} keys of messages, with {len(names)} names and numbers to {next_number}")
        for number, name in zip(numbers, names, strict=True):
            key = self.by_number[number]
            key.name = name
            self.keys[name] = key
        self.next_number = next_number


def routing_key(data: bytes, start: int) -> bytes:
    """The routing key of content that begins there: behind the exchange, both short strings as on the wire."""
    key_at = start + 1 + data[start]
    return data[key_at + 1 : key_at + 1 + data[key_at]]
