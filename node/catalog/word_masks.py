"""Many topic patterns held against a key at once, a step for each word of the key whatever the patterns are.

A pattern of n words and `*` has n + 1 places: before the first, and behind each. Each place is a bit of a number; a bit
that is set says that the key so far leads to that place. A word of the key moves those bits on by one at whose
place that word or `*` comes next, and leaves those where a `#` stands:

    at = ((at << 1) & takes[word]) | (at & stays)

Patterns share numbers of some thousand bits, a `_Chunk` each: an operation on one takes a fraction of a microsecond.
"""
from __future__ import annotations

from typing import Final

from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Targets

CHUNK_BITS: Final = 4096
"""Patterns that are longer have a chunk for themselves."""


class _Chunk:
    """Some patterns. The numbers are made when they are needed."""

    __slots__ = ("bits", "ends", "patterns", "start", "stays", "takes", "takes_any", "targets_at", "to_make")

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], Targets] = {}
        self.bits = 0
        self.to_make = True
        self.start = 0
        self.stays = 0
        self.ends = 0
        self.takes_any = 0
        self.takes: dict[str, int] = {}
        self.targets_at: dict[int, Targets] = {}

    def make(self) -> None:
        """The numbers, from the patterns."""
        starts: list[int] = []
        stays: list[int] = []
        ends: dict[int, Targets] = {}
        takes: dict[str, list[int]] = {"*": []}
        place = 0
        for pattern, targets in self.patterns.items():
            starts.append(place)
            for word in pattern:
                if word == "#":
                    stays.append(place)
                    continue
                place += 1
                places = takes.get(word)
                if places is None:
                    takes[word] = [place]
                else:
                    places.append(place)
            ends[place] = targets
            place += 1
        self.start, self.stays, self.ends = _number(starts), _number(stays), _number(list(ends))
        self.takes_any = any_word = _number(takes.pop("*"))
        self.takes = {word: _number(places) | any_word for word, places in takes.items()}
        self.targets_at = ends
        self.to_make = False


class WordMasks:
    """Patterns as `topics.canonical` gives them, each once, and their targets."""

    def __init__(self, steps: RoutingSteps) -> None:
        self._steps = steps
        self._chunks: dict[int, _Chunk] = {}
        self._chunk_of: dict[tuple[str, ...], int] = {}
        self._bits = 0
        self._last = 0
        """The number of the chunk that was begun last."""

    def add(self, pattern: tuple[str, ...], targets: Targets) -> None:
        """One pattern more."""
        bits = _bits(pattern)
        chunk = self._chunks.get(self._last)
        if chunk is None or chunk.bits + bits > CHUNK_BITS:
            self._last += 1
            chunk = self._chunks[self._last] = _Chunk()
        chunk.patterns[pattern] = targets
        chunk.bits += bits
        chunk.to_make = True
        self._bits += bits
        self._chunk_of[pattern] = self._last

    def remove(self, pattern: tuple[str, ...]) -> bool:
        """Undo `add`. False if so much has gone that what is left should be gathered anew, in fewer chunks."""
        number = self._chunk_of.pop(pattern)
        chunk = self._chunks[number]
        bits = _bits(pattern)
        del chunk.patterns[pattern]
        chunk.bits -= bits
        chunk.to_make = True
        self._bits -= bits
        if not chunk.patterns:
            del self._chunks[number]
        return len(self._chunks) <= 1 or 4 * self._bits >= len(self._chunks) * CHUNK_BITS

    def match(self, words: list[str]) -> list[Targets]:
        """The targets of the patterns that match these words. A step for each word and chunk, at most."""
        found: list[Targets] = []
        for chunk in self._chunks.values():
            if chunk.to_make:
                chunk.make()
                self._steps.taken += chunk.bits
            takes, takes_any, stays = chunk.takes, chunk.takes_any, chunk.stays
            at = chunk.start
            for word in words:
                at = at << 1 & takes.get(word, takes_any) | at & stays
                self._steps.taken += 1
                if not at:
                    break
            at &= chunk.ends
            while at:
                lowest = at & -at
                found.append(chunk.targets_at[lowest.bit_length() - 1])
                at ^= lowest
        return found


def _number(places: list[int]) -> int:
    """The number with these bits; they ascend."""
    if not places:
        return 0
    octets = bytearray((places[-1] >> 3) + 1)
    for place in places:
        octets[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(octets, "little")


def _bits(pattern: tuple[str, ...]) -> int:
    return 1 + len(pattern) - pattern.count("#")
