"""Failed comparisons of much data, explained in a few lines.

pytest compares line by line where it is not to shorten what it prints (with -vv, or where the environment says CI), and
with megabytes of octets that ends after hours."""

import dataclasses
import reprlib
from collections.abc import Iterator
from typing import Any, Final, TypeVar

LARGE: Final = 1 << 16
"""So many octets, characters and items, on both sides together, are no longer compared line by line."""
_SHOWN: Final = 16
_DEEPEST: Final = 5
_Text = TypeVar("_Text", bytes, str)


def explained(op: str, left: object, right: object) -> list[str]:
    """The lines that say what differs, as `pytest_assertrepr_compare` gives them; none where little is compared."""
    if _size(left) + _size(right) <= LARGE:
        return []
    summary = f"{reprlib.repr(left)} {op} {reprlib.repr(right)}"
    return [summary, "", *(_differences(left, right, "") if op == "==" else ("too much to be shown",))]


def _size(value: object, depth: int = 0) -> int:
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if depth < _DEEPEST:
        if isinstance(value, (list, tuple, set, frozenset)):
            return sum(_size(item, depth + 1) for item in value)
        if isinstance(value, dict):
            return sum(_size(key, depth + 1) + _size(item, depth + 1) for key, item in value.items())
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _size(_fields(value), depth)
    return 1


def _fields(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _differences(left: object, right: object, place: str) -> Iterator[str]:
    """The lengths that differ, and the first place that does."""
    where = place or "in all"
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) != len(right):
            yield f"{where}: {len(left)} and {len(right)} items"
        for index, (one, other) in enumerate(zip(left, right, strict=False)):
            if one != other:
                yield from _differences(one, other, f"{place}[{index}]")
                return
    elif dataclasses.is_dataclass(left) and type(left) is type(right) and not isinstance(left, type):
        yield from _differences(_fields(left), _fields(right), place)
    elif isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            yield f"{where}: the keys {reprlib.repr(left.keys() ^ right.keys())} are on one side alone"
        for key in left:
            if key in right and left[key] != right[key]:
                yield from _differences(left[key], right[key], f"{place}[{reprlib.repr(key)}]")
                return
    elif isinstance(left, (bytes, bytearray, memoryview)) and isinstance(right, (bytes, bytearray, memoryview)):
        yield from _of_text(bytes(left), bytes(right), where)
    elif isinstance(left, str) and isinstance(right, str):
        yield from _of_text(left, right, where)
    else:
        yield f"{where}: {reprlib.repr(left)} and {reprlib.repr(right)}"


def _of_text(left: _Text, right: _Text, where: str) -> Iterator[str]:
    if len(left) != len(right):
        yield f"{where}: {len(left)} and {len(right)} long"
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            yield f"{where}: first at {at}, {left[at : at + _SHOWN]!r} and {right[at : at + _SHOWN]!r}"
            return
