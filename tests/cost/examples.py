"""Code whose cost is known, for `test_metered`."""

from __future__ import annotations

from collections import deque


def nothing(items: list[int]) -> int:
    return items[0] + len(items)


def a_loop(items: list[int]) -> int:
    total = 0
    for item in items:
        total += item
    return total


def a_comprehension(items: list[int]) -> int:
    return len({item: item for item in items if item})


def a_generator(items: list[int]) -> bool:
    return any(item < 0 for item in items)


def a_copy(items: list[int]) -> int:
    return len(list(items))


def a_slice(items: list[int]) -> int:
    return len(items[1:])


def unpacked(items: list[int]) -> int:
    return len([0, *items])


def added(items: list[int]) -> int:
    return len([0] + items)  # noqa: RUF005  (that is what is counted)


def a_sorting(items: list[int]) -> int:
    return sorted(items)[0]


def a_search(items: list[int]) -> bool:
    return -1 in items


def taken_out_of_a_row(items: list[int]) -> int:
    row = deque(items)
    row.remove(items[0])
    return len(row)
