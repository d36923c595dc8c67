"""Goes through MessagePack without making objects of it, so that a large array can be read some items at a time."""
from __future__ import annotations

from typing import Final


class NotMessagePack(ValueError):
    """The octets end too early, or are not what was asked for."""


_MAP: Final = 0x80
_ARRAY: Final = 0x90
_TEXT: Final = 0xA0
_NIL: Final = 0xC0
_ARRAY_16: Final = 0xDC
_ARRAY_32: Final = 0xDD
_MAP_16: Final = 0xDE
_MAP_32: Final = 0xDF
_NEGATIVE: Final = 0xE0
_NUMBERS: Final = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
"""Kinds of numbers, and the octets behind the kind."""
_EXTENSIONS: Final = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Kinds that say how many octets they have: in how many octets they say it."""


def _octets_of(kind: int) -> int:
    """Octets of an item that begins so, what it holds aside; 0: that is said behind its kind, or there is none such."""
    if kind < _TEXT or kind >= _NEGATIVE or _NIL <= kind <= _NIL + 3:
        return 1
    if kind < _NIL:
        return 1 + kind - _TEXT
    return 1 + found if (found := _NUMBERS.get(kind) or _EXTENSIONS.get(kind)) else 0


def _items_in(kind: int) -> int:
    """How many items are in an item that begins so, where its kind says it."""
    if _MAP <= kind < _ARRAY:
        return 2 * (kind - _MAP)
    return kind - _ARRAY if _ARRAY <= kind < _TEXT else 0


_OCTETS: Final = bytes(0 if kind == _NIL + 1 else _octets_of(kind) for kind in range(256))
_ITEMS: Final = bytes(_items_in(kind) for kind in range(256))


def array_head(count: int) -> bytes:
    """What stands before the items of an array."""
    if count < 1 << 4:
        return bytes((_ARRAY + count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


class Walk:
    """A place in MessagePack, which moves on."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data: bytes = data
        self.position: int = position

    def enter_array(self) -> int:
        """Move on to the first item of the array here; how many there are. Raises NotMessagePack."""
        kind = self.data[self.position] if self.position < len(self.data) else _NIL
        self.position += 1
        if _ARRAY <= kind < _TEXT:
            return kind - _ARRAY
        if kind not in (_ARRAY_16, _ARRAY_32):
            raise NotMessagePack(f"no array at octet {self.position - 1}")
        return self._number(2 if kind == _ARRAY_16 else 4)

    def skip(self, most_items: int, most_octets: int) -> int:
        """Move on behind so many items, or fewer where those have as many octets; how many. Raises NotMessagePack."""
        data = self.data
        position = self.position
        stop = min(len(data), position + most_octets)
        skipped = 0
        try:
            while skipped < most_items and position < stop:
                left = 1
                while left > 0:
                    kind = data[position]
                    octets = _OCTETS[kind]
                    if octets:
                        position += octets
                        left += _ITEMS[kind] - 1
                        continue
                    self.position = position + 1
                    left += self._enter_long(kind) - 1
                    position = self.position
                skipped += 1
        except IndexError:
            raise NotMessagePack(f"it ends within an item, at octet {len(data)}") from None
        self.position = position
        if not skipped and most_items:
            raise NotMessagePack(f"it ends before an item, at octet {len(data)}")
        return skipped

    def _enter_long(self, kind: int) -> int:
        """Move on behind the head of an item that says its length behind its kind, and behind its octets; how many
        items it has."""
        if kind in (_ARRAY_16, _MAP_16):
            return self._number(2) * (1 if kind == _ARRAY_16 else 2)
        if kind in (_ARRAY_32, _MAP_32):
            return self._number(4) * (1 if kind == _ARRAY_32 else 2)
        head = _LENGTHS.get(kind)
        if head is None:
            raise NotMessagePack(f"no item begins with {kind:#x}, at octet {self.position - 1}")
        octets = self._number(head)
        self.position += octets + (1 if 0xC7 <= kind <= 0xC9 else 0)
        return 0

    def _number(self, octets: int) -> int:
        start = self.position
        self.position += octets
        return int.from_bytes(self.data[start : self.position], "big")

    def taken(self, start: int) -> bytes:
        """The octets from `start` to here. Raises NotMessagePack if there are not so many."""
        if self.position > len(self.data):
            raise NotMessagePack(f"it ends within an item, at octet {len(self.data)}")
        return self.data[start : self.position]
