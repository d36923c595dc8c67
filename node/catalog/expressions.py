"""All regular expressions of users: patterns of policies, expressions of permissions and of topic permissions.

Names come from clients and expressions from operators, and a search can't be interrupted. So an expression is made into
a table first, in a bounded number of steps, and a search is one step for each character of the name, whatever both are.
An expression that would need a larger table has a `fault` instead, and so has a text that is not one: it matches
nothing. All this follows from the text alone: all nodes, fast and slow, on all versions of Python, find the same.

The table is of a deterministic automaton that reads names from their end. From there what follows a place is known
when it is reached, so look-aheads are states like others. What look-behinds need is found in a pass from the beginning,
by a table of their own.
"""
from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mayfly.node.catalog.expression_syntax import (
    BEGIN,
    END,
    END_OR_NEWLINE,
    LINE_BEGIN,
    LINE_END,
    NEWLINE,
    NO_WORD_EDGE,
    WORD,
    WORD_EDGE,
    Alternatives,
    At,
    Chars,
    ExpressionError,
    Look,
    Node,
    Ranges,
    Repeat,
    Sequence,
    parse,
)

logger = logging.getLogger(__name__)

LONGEST_EXPRESSION: Final = 1024
"""In characters, as users may write it."""

LONGEST_FILLED_IN: Final = 16_384
"""In characters, when names are in the place of `{username}` and `{vhost}`."""

MOST_PARTS: Final = 4096
"""Characters, choices and places of an expression, repeats written out."""

MOST_CELLS: Final = 2**16
"""Of a table, which has a row for each state and a column for each kind of character that is told apart."""

MOST_STEPS: Final = 2**17
"""Of making the tables of one expression: some 50 ms, where an ordinary one takes some hundred steps."""

_MOST_LOOK_BEHINDS: Final = 4

_KNOWN: Final = 1024
"""Expressions whose tables are kept: 128 KiB each at most."""

_CHARACTERS_KNOWN: Final = 512
"""Whose column an expression remembers."""

# What is on either side of a place.
_NOTHING, _OTHER, _LETTER, _NEWLINE, _LAST_NEWLINE = range(5)


class Expression:
    """A regular expression to be searched in names."""

    __slots__ = ("_after", "_matches_all", "_prefix", "_steps", "_table", "fault")

    def __init__(self, text: str) -> None:
        self.fault: str | None = None
        """Why it matches nothing, or None for one that is searched."""
        self._steps = _Steps()
        self._table: _Table | None = None
        self._after: _Table | None = None
        """Of the look-behinds."""
        self._prefix = ""
        """How every name begins that matches."""
        self._matches_all = False
        try:
            if len(text) > LONGEST_FILLED_IN:
                raise ExpressionError(f"it has {len(text)} characters, at most {LONGEST_FILLED_IN} are taken")
            self._make(parse(text))
        except ExpressionError as error:
            self.fault = str(error)

    def _make(self, tree: Node) -> None:
        parts = _Parts()
        layer = parts.layer(tree)
        table = _Maker(parts, [layer], len(parts.behind), self._steps).table(searched=True)
        if parts.behind:
            behind = _Parts()
            layers = [behind.layer(each) for each in parts.behind]
            self._after = _Maker(behind, layers, 0, self._steps).table(searched=False)
        else:
            row = table.cells[table.first : table.first + table.width]
            self._matches_all = table.first in table.matching and not any(row)
        self._table = table
        self._prefix = _prefix(tree)

    @property
    def steps(self) -> int:
        """What making its tables took, or finding out that it takes too many."""
        return self._steps.taken

    @property
    def cells(self) -> int:
        """Of its tables."""
        return sum(len(table.cells) for table in (self._table, self._after) if table is not None)

    def search(self, name: str) -> bool:
        """Whether it matches anywhere in the name. One step for each character; two with look-behinds."""
        table = self._table
        if table is None or not name.startswith(self._prefix):
            return False
        if self._matches_all:
            return True
        cells, columns, at = table.cells, table.columns, table.first
        if self._after is None:
            for character in reversed(name):
                at = cells[at + columns[character]]
            return at in table.matching
        after = self._after.trace(name)
        for place in range(len(name), 0, -1):
            at = cells[at + columns[name[place - 1]] + after[place] * table.width]
        return at + after[0] in table.matching


@lru_cache(maxsize=_KNOWN)
def expression(text: str) -> Expression:
    """The expression, made once. One that matches nothing is in a catalog from before it was refused: it is logged."""
    made = Expression(text)
    if made.fault is not None:
        logger.warning("the regular expression %r matches nothing: %s", text[:LONGEST_EXPRESSION], made.fault)
    return made


def expression_fault(text: str) -> str | None:
    """What is wrong with an expression that a user gives, or None."""
    if len(text) > LONGEST_EXPRESSION:
        return f"it has {len(text)} characters, at most {LONGEST_EXPRESSION} are taken"
    return Expression(text).fault


class _Steps:
    """Of making the tables of one expression."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0

    def count(self, steps: int) -> None:
        """So many are taken next."""
        self.taken += steps
        if self.taken > MOST_STEPS:
            raise ExpressionError(f"it takes more than {MOST_STEPS} steps to make a table of it; simplify it")


class _Columns(dict[str, int]):
    """The column of each character."""

    def __init__(self, starts: list[int], columns: list[int]) -> None:
        """Characters from the n-th number on have the n-th column."""
        super().__init__()
        self._starts = starts
        self._columns = columns

    def __missing__(self, character: str) -> int:
        column = self._columns[bisect_right(self._starts, ord(character)) - 1]
        if len(self) < _CHARACTERS_KNOWN:
            self[character] = column
        return column


class _Table:
    """States are numbers: where their row begins in `cells`."""

    __slots__ = ("cells", "columns", "first", "matching", "width")

    def __init__(
        self, cells: array[int], columns: _Columns, width: int, first: int, matching: dict[int, int]
    ) -> None:
        self.cells = cells
        self.columns = columns
        self.width = width
        self.first = first
        self.matching = matching
        """States that match at the name's beginning, with what look-behinds found there added; of a table of
        look-behinds which of them match, as bits, for each state."""

    def trace(self, name: str) -> list[int]:
        """For each place of the name which look-behinds match there; for a table of look-behinds."""
        at, cells, columns, matching = self.first, self.cells, self.columns, self.matching
        found = [matching[at]]
        for character in name:
            at = cells[at + columns[character]]
            found.append(matching[at])
        return found


# -- from a tree to parts -------------------------------------------------------------------------


class _Layer:
    """The parts of the expression itself, of one look-ahead, or of one look-behind."""

    __slots__ = ("chars", "end", "start")

    def __init__(self) -> None:
        self.chars = 0
        """Its parts with characters, as bits."""
        self.end = self.start = _Part(self)


class _Part:
    """A place in the expression: whether what follows from there on matches."""

    __slots__ = ("chars", "layer", "look", "negated", "place", "users", "waiting")

    def __init__(self, layer: _Layer) -> None:
        self.layer = layer
        self.users: list[_Part] = []
        """Parts that may go on here without a character."""
        self.waiting = 0
        """Parts that go on here with a character, as bits."""
        self.chars: Ranges = ()
        self.place = ""
        self.look: _Layer | int | None = None
        """A look-ahead, or which look-behind."""
        self.negated = False


class _Parts:
    """The parts of one expression. They are made from its end: each knows what follows."""

    def __init__(self) -> None:
        self.with_chars: list[_Part] = []
        self.layers: list[_Layer] = []
        """Each behind the look-aheads that it asks for."""
        self.places: set[str] = set()
        self.behind: list[Node] = []
        self._count = 0

    def layer(self, tree: Node) -> _Layer:
        """All parts of a tree."""
        layer = _Layer()
        layer.start = self._before(tree, layer.end)
        self.layers.append(layer)
        return layer

    def _step(self) -> None:
        self._count += 1
        if self._count > MOST_PARTS:
            raise ExpressionError(f"with its repeats written out it has more than {MOST_PARTS} parts")

    def _before(self, node: Node, following: _Part) -> _Part:
        """The part from which the node and then what follows match."""
        self._step()
        if isinstance(node, Sequence):
            for item in reversed(node.items):
                following = self._before(item, following)
            return following
        if isinstance(node, Alternatives):
            return self._either([self._before(item, following) for item in node.items])
        if isinstance(node, Repeat):
            return self._before_repeat(node, following)
        part = _Part(following.layer)
        if isinstance(node, Chars):
            part.chars = node.ranges
            bit = 1 << len(self.with_chars)
            self.with_chars.append(part)
            part.layer.chars |= bit
            following.waiting |= bit
            return part
        if isinstance(node, At):
            part.place = node.place
            self.places.add(node.place)
        else:
            part.look = self._looked(node)
            part.negated = node.negated
        following.users.append(part)
        return part

    def _before_repeat(self, node: Repeat, following: _Part) -> _Part:
        at = following
        if node.most is None:
            at = _Part(following.layer)
            following.users.append(at)
            self._before(node.item, at).users.append(at)
        else:
            for _ in range(node.most - node.least):
                at = self._either([self._before(node.item, at), following])
        for _ in range(node.least):
            at = self._before(node.item, at)
        return at

    def _either(self, ways: list[_Part]) -> _Part:
        self._step()
        part = _Part(ways[0].layer)
        for way in ways:
            way.users.append(part)
        return part

    def _looked(self, node: Look) -> _Layer | int:
        if node.ahead:
            return self.layer(node.item)
        if len(self.behind) == _MOST_LOOK_BEHINDS:
            raise ExpressionError(f"it has more than {_MOST_LOOK_BEHINDS} look-behinds")
        self.behind.append(_mirrored(node.item))
        return len(self.behind) - 1


def _mirrored(node: Node) -> Node:
    """The same read from its end, for what stands in a look-behind."""
    if isinstance(node, Sequence):
        return Sequence([_mirrored(item) for item in reversed(node.items)])
    if isinstance(node, Alternatives):
        return Alternatives([_mirrored(item) for item in node.items])
    if isinstance(node, Repeat):
        return Repeat(_mirrored(node.item), node.least, node.most)
    if isinstance(node, At) and node.place == BEGIN:
        return At(END)
    if isinstance(node, Chars):
        return node
    raise ExpressionError("a look-behind takes characters, their repeats and choices and ^ alone")


def _prefix(tree: Node) -> str:
    """The characters with which every name that matches begins, as far as it is easily seen."""
    items = tree.items if isinstance(tree, Sequence) else [tree]
    found = ""
    first = items[0] if items else None
    if isinstance(first, At) and first.place == BEGIN:
        for item in items[1:]:
            if isinstance(item, Chars) and len(item.ranges) == 1 and item.ranges[0][0] == item.ranges[0][1]:
                found += chr(item.ranges[0][0])
            elif not isinstance(item, At | Look):  # these take no character
                break
    return found


# -- from parts to a table ------------------------------------------------------------------------


class _Maker:
    """Makes one table. A state says which parts with characters match from here to the right, and what stands there."""

    def __init__(self, parts: _Parts, layers: list[_Layer], look_behinds: int, steps: _Steps) -> None:
        self._parts = parts
        self._layers = layers
        self._found_behind = range(1 << look_behinds)
        """What look-behinds may have found at a place, as bits."""
        self._count = steps.count
        places = parts.places
        self._letters_count = not places.isdisjoint((WORD_EDGE, NO_WORD_EDGE))
        self._newlines_count = not places.isdisjoint((LINE_BEGIN, LINE_END, END_OR_NEWLINE))
        self._right_counts = self._letters_count or not places.isdisjoint((LINE_END, END_OR_NEWLINE, END))
        self._masks: list[int] = []
        """For each column the parts that take its characters, as bits."""
        self._kinds: list[int] = []
        """For each column what its characters are to a place beside them."""
        self._columns = self._told_apart()

    def _told_apart(self) -> _Columns:
        """Characters that nothing tells apart share a column."""
        takers: dict[Ranges, int] = {}
        for number, part in enumerate(self._parts.with_chars):
            takers[part.chars] = takers.get(part.chars, 0) | 1 << number
        if self._letters_count:
            takers.setdefault(WORD, 0)
        if self._newlines_count:
            takers.setdefault(NEWLINE, 0)
        edges = {0}
        for ranges in takers:
            for first, last in ranges:
                edges.update((first, last + 1))
        starts = sorted(edges)
        number_of = {start: number for number, start in enumerate(starts)}
        taken_by = [0] * len(starts)
        for number, ranges in enumerate(takers):
            for first, last in ranges:
                covered = range(number_of[first], number_of[last + 1])
                self._count(len(covered))
                for index in covered:
                    taken_by[index] |= 1 << number
        masks = list(takers.values())
        column_of: dict[int, int] = {}
        columns: list[int] = []
        for start, takes in zip(starts, taken_by, strict=True):
            column = column_of.get(takes)
            if column is None:
                column = column_of[takes] = len(self._masks)
                mask = 0
                for number in _bits(takes):
                    mask |= masks[number]
                self._masks.append(mask)
                self._kinds.append(self._kind(start))
            columns.append(column)
        return _Columns(starts, columns)

    def _kind(self, character: int) -> int:
        if self._newlines_count and character == NEWLINE[0][0]:
            return _NEWLINE
        return _LETTER if self._letters_count and any(first <= character <= last for first, last in WORD) else _OTHER

    def table(self, searched: bool) -> _Table:
        """The table; `searched`: one layer, which may match anywhere. Otherwise each state tells which layers match."""
        first = _NOTHING if self._right_counts else _OTHER
        numbers = {first: 1}
        states = [first]  # what stands to the right, and 8 times the parts that match
        width = len(self._masks)
        row_length = width * len(self._found_behind)
        cells = array("H", [0] * row_length)  # the first row: it has matched, and that is all
        matching = dict.fromkeys(self._found_behind, 1)
        for state in states:
            if (len(states) + 1) * row_length > MOST_CELLS:
                raise ExpressionError(f"a table of it has more than {MOST_CELLS} cells; simplify it")
            here, right = state >> 3, state & 7
            for found in self._found_behind:
                self._count(width)
                told: dict[int, tuple[int, int, int]] = {}
                for mask, kind in zip(self._masks, self._kinds, strict=True):
                    before = told.get(kind)
                    if before is None:
                        before = *self._before(here, right, kind, found), self._right_of(kind, right)
                        told[kind] = before
                    matched, parts, between = before
                    if matched and searched:
                        cells.append(0)
                        continue
                    following = (parts & mask) << 3 | between
                    number = numbers.get(following)
                    if number is None:
                        number = numbers[following] = len(numbers) + 1
                        states.append(following)
                    cells.append(min(number * row_length, MOST_CELLS - 1))  # more than that is refused above
                if matched := self._before(here, right, _NOTHING, found)[0]:
                    matching[numbers[state] * row_length + found] = matched
        if not searched:
            for number in numbers.values():
                matching.setdefault(number * row_length, 0)
        return _Table(cells, self._columns, width, row_length, matching)

    def _right_of(self, kind: int, right: int) -> int:
        """What a character of that kind is to the place before it, with that to its own right."""
        if not self._right_counts:
            return _OTHER
        return _LAST_NEWLINE if kind == _NEWLINE and right == _NOTHING else kind

    def _before(self, here: int, right: int, left: int, found_behind: int) -> tuple[int, int]:
        """At a place with these sides: the layers that match from it on, and the parts that do with one character more
        to the left, both as bits."""
        true: set[_Part] = set()
        waiting = 0
        for layer in self._parts.layers:
            pending = [self._parts.with_chars[number] for number in _bits(here & layer.chars)]
            pending.append(layer.end)
            true.update(pending)
            while pending:
                part = pending.pop()
                waiting |= part.waiting
                self._count(1 + len(part.users))
                for user in part.users:
                    if user not in true and _holds(user, right, left, found_behind, true):
                        true.add(user)
                        pending.append(user)
        matched = 0
        for number, layer in enumerate(self._layers):
            if layer.start in true:
                matched |= 1 << number
        return matched, waiting


def _holds(part: _Part, right: int, left: int, found_behind: int, true: set[_Part]) -> bool:
    """Whether a part that takes no character lets what follows it count."""
    look, place = part.look, part.place
    if look is not None:
        seen = look.start in true if isinstance(look, _Layer) else bool(found_behind >> look & 1)
        return seen is not part.negated
    if not place:
        return True
    if place in (WORD_EDGE, NO_WORD_EDGE):
        return ((left == _LETTER) is not (right == _LETTER)) is (place == WORD_EDGE)
    if place == BEGIN:
        return left == _NOTHING
    if place == LINE_BEGIN:
        return left in (_NOTHING, _NEWLINE)
    if place == END:
        return right == _NOTHING
    return right in (_NOTHING, _LAST_NEWLINE) or (place == LINE_END and right == _NEWLINE)


def _bits(number: int) -> Iterable[int]:
    """Which bits are set, the lowest first."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
