"""Regular expressions as users write them, read into a tree: Perl's, as RabbitMQ takes them.

Names are ASCII as far as classes and `(?i)` go. What can't be searched in a bounded number of steps is refused, and so
is what nobody needs to tell names apart: back-references, conditions, recursion, atomic groups and possessive repeats.
"""
from __future__ import annotations

from typing import Final

Ranges = tuple[tuple[int, int], ...]
"""Characters by their numbers: from, to; ascending, apart from each other."""

HIGHEST: Final = 0x10FFFF

BEGIN: Final = "begin"
LINE_BEGIN: Final = "line begin"
END: Final = "end"
END_OR_NEWLINE: Final = "end or before a newline there"
LINE_END: Final = "line end"
WORD_EDGE: Final = "word edge"
NO_WORD_EDGE: Final = "no word edge"

_DEEPEST: Final = 50
"""Groups within groups."""

_MOST_REPEATS: Final = 65_535


class ExpressionError(ValueError):
    """Why a text is not an expression, or not one that is supported."""


class Chars:
    """One character of these."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges


class Sequence:
    """One after the other; nothing if there are none."""

    __slots__ = ("items",)

    def __init__(self, items: list[Node]) -> None:
        self.items = items


class Alternatives:
    """One of these."""

    __slots__ = ("items",)

    def __init__(self, items: list[Node]) -> None:
        self.items = items


class Repeat:
    """From `least` to `most` times; None: without end."""

    __slots__ = ("item", "least", "most")

    def __init__(self, item: Node, least: int, most: int | None) -> None:
        self.item = item
        self.least = least
        self.most = most


class At:
    """A place: one of the constants above."""

    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place


class Look:
    """What follows (or, unless `ahead`, precedes) must match, or must not."""

    __slots__ = ("ahead", "item", "negated")

    def __init__(self, item: Node, ahead: bool, negated: bool) -> None:
        self.item = item
        self.ahead = ahead
        self.negated = negated


Node = Chars | Sequence | Alternatives | Repeat | At | Look


def ranges_of(pairs: list[tuple[int, int]]) -> Ranges:
    """Sorted, and what overlaps or touches joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def others(ranges: Ranges) -> Ranges:
    """All characters but these."""
    found: list[tuple[int, int]] = []
    following = 0
    for first, last in ranges:
        if following < first:
            found.append((following, first - 1))
        following = last + 1
    if following <= HIGHEST:
        found.append((following, HIGHEST))
    return tuple(found)


def _among(characters: str) -> Ranges:
    return ranges_of([(ord(each), ord(each)) for each in characters])


_DIGITS: Final[Ranges] = ((48, 57),)
WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final = _among(" \t\n\v\f\r")
_BLANK: Final = _among(" \t")
_VERTICAL: Final = _among("\n\v\f\r")
NEWLINE: Final = _among("\n")
_UPPER: Final[Ranges] = ((65, 90),)
_LOWER: Final[Ranges] = ((97, 122),)
_PUNCTUATION: Final[Ranges] = ((33, 47), (58, 64), (91, 96), (123, 126))

_CLASSES: Final = {
    "d": _DIGITS, "D": others(_DIGITS), "w": WORD, "W": others(WORD), "s": _SPACE, "S": others(_SPACE),
    "h": _BLANK, "H": others(_BLANK), "v": _VERTICAL, "V": others(_VERTICAL), "N": others(NEWLINE),
}
_POSIX: Final = {
    "alnum": (*_DIGITS, *_UPPER, *_LOWER), "alpha": (*_UPPER, *_LOWER), "ascii": ((0, 127),), "blank": _BLANK,
    "cntrl": ((0, 31), (127, 127)), "digit": _DIGITS, "graph": ((33, 126),), "lower": _LOWER, "print": ((32, 126),),
    "punct": _PUNCTUATION, "space": _SPACE, "upper": _UPPER, "word": WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_PLACES: Final = {"A": BEGIN, "Z": END_OR_NEWLINE, "z": END, "b": WORD_EDGE, "B": NO_WORD_EDGE}
_FLAGS: Final = "imsxaU"
"""`a` is how it is anyway, and `U` makes no difference to whether something matches."""


def quoted(text: str) -> str:
    """An expression for these characters and nothing else."""
    return "".join([character if character.isalnum() else f"\\{character}" for character in text])


def parse(text: str) -> Node:
    """The tree of an expression. Raises ExpressionError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags: frozenset[str] = frozenset()

    def whole(self) -> Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise self._fault("there is a ) without a (")
        return tree

    def _fault(self, why: str) -> ExpressionError:
        return ExpressionError(f"{why} (at character {self._at + 1})")

    def _next_is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if not self._next_is(text):
            return False
        self._at += len(text)
        return True

    def _take_one(self) -> str:
        if self._at >= len(self._text):
            raise self._fault("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, what: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise self._fault(f"{what} does not end with {end}")
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    # Items

    def _choice(self) -> Node:
        flags = self._flags
        items = [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        self._flags = flags
        return items[0] if len(items) == 1 else Alternatives(items)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            item = self._item()
            if item is not None:
                items.append(self._repeated(item))
        return items[0] if len(items) == 1 else Sequence(items)

    def _item(self) -> Node | None:
        """None: a comment and the like."""
        character = self._take_one()
        if "x" in self._flags:
            if character in " \t\n\v\f\r":
                return None
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end + 1
                return None
        if character == "(":
            return self._group()
        if character == "[":
            return Chars(self._in_brackets())
        if character == "\\":
            return self._escaped()
        if character == ".":
            return Chars(((0, HIGHEST),) if "s" in self._flags else others(NEWLINE))
        if character == "^":
            return At(LINE_BEGIN if "m" in self._flags else BEGIN)
        if character == "$":
            return At(LINE_END if "m" in self._flags else END_OR_NEWLINE)
        if character in "*+?":
            self._at -= 1
            raise self._fault(f"{character} repeats nothing")
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return Chars(self._folded(_among(character)))

    def _folded(self, ranges: Ranges) -> Ranges:
        if "i" not in self._flags:
            return ranges
        pairs = list(ranges)
        for low, high, to_other in ((65, 90, 32), (97, 122, -32)):
            for first, last in ranges:
                if max(first, low) <= min(last, high):
                    pairs.append((max(first, low) + to_other, min(last, high) + to_other))
        return ranges_of(pairs)

    def _repeated(self, item: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return item
        if self._take("+"):
            raise self._fault("possessive repeats as in a*+ are not taken; write it without the +")
        self._take("?")  # fewest first: whether it matches is the same
        here = self._at
        if self._bounds() is not None:
            self._at = here
            raise self._fault("a repeat of a repeat; write it with a group")
        return Repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._next_is("{"):
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        digits = least + most
        if end < 0 or not (digits.isascii() and digits.isdigit()):
            return None  # a brace like any other character
        self._at = end + 1
        if len(least) > 5 or len(most) > 5 or int(least or 0) > _MOST_REPEATS or int(most or 0) > _MOST_REPEATS:
            raise self._fault(f"it repeats something more than {_MOST_REPEATS} times")
        fewest = int(least or 0)
        if not comma:
            return fewest, fewest
        if not most:
            return fewest, None
        if int(most) < fewest:
            raise self._fault(f"it repeats something at least {fewest} and at most {int(most)} times")
        return fewest, int(most)

    # Groups

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"more than {_DEEPEST} groups are within each other")
        before = self._flags
        found: Node | None
        if self._take("*"):
            raise self._fault("verbs as in (*FAIL) are not taken")
        if not self._take("?"):
            found = self._choice()
        elif self._take("#"):
            self._until(")", "a comment")
            self._depth -= 1
            return None
        else:
            sign = self._take_one()
            if sign in "=!":
                found = Look(self._choice(), ahead=True, negated=sign == "!")
            elif sign == "<" and self._text[self._at : self._at + 1] in ("=", "!"):
                negated = self._take_one() == "!"
                found = Look(self._choice(), ahead=False, negated=negated)
            elif sign in ":|":
                found = self._choice()
            elif sign in "<'" or (sign == "P" and self._take("<")):
                name = self._until("'" if sign == "'" else ">", "the name of a group")
                if not name.isidentifier():
                    raise self._fault(f"{name!r} is no name of a group")
                found = self._choice()
            elif sign == ">":
                raise self._fault("atomic groups (?>...) are not taken; write (?:...)")
            else:
                self._at -= 1
                if self._set_flags():  # up to the end of the group that they stand in
                    self._depth -= 1
                    return None
                found = self._choice()
        if not self._take(")"):
            raise self._fault("a ( is not closed")
        self._depth -= 1
        self._flags = before
        return found

    def _set_flags(self) -> bool:
        """Flags, as in (?i) and (?i-s:...): whether the group ends with them."""
        flags, on = set(self._flags), True
        while (sign := self._take_one()) not in ":)":
            if sign == "-" and on:
                on = False
            elif sign in _FLAGS:
                (flags.add if on else flags.discard)(sign)
            else:
                self._at -= 1
                raise self._fault(
                    f"(?{sign} is not taken, nor are back-references, conditions, recursion and flags but {_FLAGS}"
                )
        self._flags = frozenset(flags)
        return sign == ")"

    # Characters

    def _escaped(self) -> Node:
        character = self._take_one()
        if character in _PLACES:
            return At(_PLACES[character])
        if character in _CLASSES:
            return Chars(_CLASSES[character])
        return self._literal(self._escaped_character(character))

    def _escaped_character(self, character: str) -> str:
        if character in _CONTROLS:
            return chr(_CONTROLS[character])
        if character == "0":
            octal = character
            while len(octal) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                octal += self._take_one()
            return chr(int(octal, 8))
        if character == "x" and self._take("{"):
            return self._by_number(self._until("}", r"\x{"))
        if character in "xu":
            digits = 2 if character == "x" else 4
            self._at += digits
            return self._by_number(self._text[self._at - digits : self._at])
        if character.isascii() and character.isalnum():
            kind = "back-references are" if character in "123456789gk" else f"\\{character} is"
            raise self._fault(f"{kind} not taken")
        return character

    def _by_number(self, digits: str) -> str:
        if not 0 < len(digits) <= 6 or not all(each in "0123456789abcdefABCDEF" for each in digits):
            raise self._fault(f"{digits!r} is no hexadecimal number of a character")
        number = int(digits, 16)
        if number > HIGHEST:
            raise self._fault(f"there is no character {digits}")
        return chr(number)

    def _in_brackets(self) -> Ranges:
        negated = self._take("^")
        pairs: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            first = False
            start = self._one_in_brackets()
            if isinstance(start, tuple):
                pairs.extend(start)
                continue
            end = start
            if self._next_is("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._one_in_brackets()
                if isinstance(last, tuple):
                    pairs.extend([(45, 45), *last])
                else:
                    end = last
            if ord(end) < ord(start):
                raise self._fault(f"{start!r} to {end!r} is no range")
            pairs.append((ord(start), ord(end)))
        ranges = self._folded(ranges_of(pairs))
        return others(ranges) if negated else ranges

    def _one_in_brackets(self) -> str | Ranges:
        if self._at >= len(self._text):
            raise self._fault("a [ is not closed")
        character = self._take_one()
        if character == "[" and self._take(":"):
            negated = self._take("^")
            name = self._until(":]", "a class [:")
            if name not in _POSIX:
                raise self._fault(f"there is no class [:{name}:]")
            ranges = ranges_of(list(_POSIX[name]))
            return others(ranges) if negated else ranges
        if character != "\\":
            return character
        character = self._take_one()
        if character == "b":
            return "\b"
        return _CLASSES[character] if character in _CLASSES else self._escaped_character(character)
