"""The patterns of policies: regular expressions of Python's `re`, searched in the names of queues and exchanges.

Names come from clients, and a search can't be interrupted. So patterns whose search can take exponential time are
refused, and those that repeat so often that it could take seconds: see `pattern_fault`.
"""
from __future__ import annotations

import re
import warnings
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # the parse tree of `re`, not in its published part
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

LONGEST_PATTERN: Final = 1024
"""In characters; the names it is held against have at most 255 octets."""

LONGEST_NAME: Final = 255
"""In octets."""

MOST_WAYS: Final = 2**21
"""How many ways there may be to hold a pattern against a name, as `_ways` counts: three repeats without bound, of
which a search that may begin anywhere is one. It is paid for each name, on every node."""

_OPEN_WAYS: Final = 128
"""A repeat without bound, or a search that may begin anywhere, counts as so many ways."""

_REPEATS: Final = frozenset({codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT})


class _Nested(ValueError):
    """A repeat or an alternative within a repeat; exact repeats too, whose counts multiply: ((){300}){300}."""


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    if len(pattern) > LONGEST_PATTERN:
        return f"it has {len(pattern)} characters, at most {LONGEST_PATTERN} are taken"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern, re.ASCII)
            tree = parser.parse(pattern, re.ASCII)
        anchored = len(tree) > 0 and tree[0] == (codes.AT, codes.AT_BEGINNING)
        ways = _ways(tree, in_repeat=False) * (1 if anchored else _OPEN_WAYS)
    except _Nested:
        return (
            "a repeat or an alternative within a repeat, as in (a+)*, (a{2}){2} or (ab|cd)+, can take for ever to "
            "search; write it without"
        )
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        return str(error)
    if ways > MOST_WAYS:
        return "with so many repeats and alternatives it can take very long to search; begin it with ^ or simplify it"
    return None


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern, or None for one that this version of Python does not understand: it matches nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError):
        return None


def _ways(items: Any, in_repeat: bool) -> int:
    """The ways to match one sequence of the parse tree, about. Raises _Nested; `in_repeat`: more than once repeated."""
    ways = 1
    for code, argument in items:
        if code in _REPEATS:
            least, most, body = argument
            if in_repeat:
                raise _Nested
            if least > LONGEST_NAME:  # what matches nothing may be repeated without any end of the name: (){1000000}
                raise ValueError(f"it repeats something {least} times, and names have at most {LONGEST_NAME} octets")
            own = 1 if most == least else min(2 * (most - least + 1), _OPEN_WAYS)
            ways *= own * _ways(body, in_repeat or most > 1)
        elif code is codes.BRANCH or code is codes.GROUPREF_EXISTS:
            if in_repeat:
                raise _Nested
            branches = argument[1] if code is codes.BRANCH else argument[1:]
            ways *= 2 * sum(_ways(branch or (), in_repeat) for branch in branches)
        elif code is codes.SUBPATTERN:
            ways *= _ways(argument[-1], in_repeat)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            ways *= _ways(argument[1], in_repeat)
        elif code is codes.ATOMIC_GROUP:
            ways *= _ways(argument, in_repeat)
        if ways > MOST_WAYS:
            break
    return ways
