"""How deep msgpack is nested, told without recursion."""
from __future__ import annotations

from typing import Final

_LENGTH_BYTES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4,  # bin, str
    0xC7: 1, 0xC8: 2, 0xC9: 4,  # ext, whose type is one octet more
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,  # array, map
}
_FIXED_BYTES: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}


def nested_deeper(data: bytes, depth: int) -> bool:
    """Whether the value at the start of the data has more than so many maps and arrays within each other. What is cut
    off is looked at as far as it goes."""
    position, end = 0, len(data)
    left = [1]
    """Values still to come, of each map or array that the position is in."""
    while position < end and left:
        if left[-1] == 0:
            left.pop()
            continue
        left[-1] -= 1
        kind = data[position]
        items, position = _items(data, kind, position + 1)
        if items >= 0:
            left.append(items)
            if len(left) - 1 > depth:
                return True
    return False


def _items(data: bytes, kind: int, position: int) -> tuple[int, int]:
    """How many values are within this one, -1 for one that has none, and where what follows its head or it begins."""
    if kind < 0x80 or kind >= 0xE0:
        return -1, position
    if kind < 0x90:
        return 2 * (kind & 0x0F), position
    if kind < 0xA0:
        return kind & 0x0F, position
    if kind < 0xC0:
        return -1, position + (kind & 0x1F)
    size = _LENGTH_BYTES.get(kind)
    if size is None:
        return -1, position + _FIXED_BYTES.get(kind, 0)
    length = int.from_bytes(data[position : position + size])
    position += size
    if kind >= 0xDC:
        return (length if kind < 0xDE else 2 * length), position
    return -1, position + length + (kind <= 0xC9 and kind >= 0xC7)
