"""Regular expressions of users: they match what Python's `re` says, in a bounded number of steps, or are refused."""
from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.catalog.expressions import (
    LONGEST_EXPRESSION,
    MOST_CELLS,
    MOST_STEPS,
    Expression,
    expression,
    expression_fault,
)

# -- what matches ---------------------------------------------------------------------------------

FIXED = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\.", "(?:a|b)", "_", r"\n"])
ATOMS = FIXED | st.sampled_from(["^", "$", r"\b", r"\A", "[a-c.]", "(?i:A)", "(?s:.)", "(?m:^)", r"\d", ""])
BEHIND = st.lists(FIXED, max_size=2).map("".join)


def grown(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(smaller, min_size=1, max_size=3).map("".join),
        st.lists(smaller, min_size=2, max_size=3).map(lambda items: f"({'|'.join(items)})"),
        st.tuples(smaller, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{2,3}?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(st.sampled_from(["=", "!"]), smaller).map(lambda pair: f"(?{pair[0]}{pair[1]})"),
        st.tuples(st.sampled_from(["<=", "<!"]), BEHIND).map(lambda pair: f"(?{pair[0]}{pair[1]})"),
    )


EXPRESSIONS = st.recursive(ATOMS, grown, max_leaves=8)
NAMES = st.text("ab._ A\n", max_size=7)


@settings(max_examples=500, deadline=None)
@given(EXPRESSIONS, st.lists(NAMES, min_size=1, max_size=6))
def test_matches_what_re_matches(text: str, names: list[str]) -> None:
    ours = Expression(text)
    if ours.fault is not None:
        assert "look-behind" in ours.fault or "repeat of a repeat" in ours.fault, (text, ours.fault)
        return
    theirs = re.compile(text, re.ASCII)
    for name in names:
        assert ours.search(name) == (theirs.search(name) is not None), (text, name)


@pytest.mark.parametrize(
    ("text", "found", "not_found"),
    [
        ("^(?!amq\\.).*", ["orders", "", "xamq."], ["amq.gen-1"]),
        ("^(?!amq\\.)(?!.*-dlq$).*", ["orders"], ["amq.x", "orders-dlq"]),
        (".*(?<!-dlq)$", ["orders", "dlq"], ["a-dlq"]),
        ("^(?!amq\\.).*(?<!-dlq)$", ["a"], ["amq.a", "a-dlq"]),
        ("(?<=^|\\.)dead", ["dead", "a.dead"], ["undead"]),
        ("(?i)^(?:TMP|temp)-", ["tmp-1", "Temp-1"], ["xtmp-"]),
        ("^a(?-i)B(?i)c$", ["aBc", "aBC"], ["abc"]),
        ("^[[:alpha:]]+[^[:digit:]]$", ["ab-"], ["ab1", "1b-"]),
        ("^\\x41\\x{42}\\u0043\\t$", ["ABC\t"], ["ABC"]),
        ("^[]a]+$", ["]a"], ["b"]),
        ("^[a\\-z]+$", ["a-z"], ["b"]),
        ("^[\\w-]+$", ["a-b_1"], ["a b"]),
        ("a{,2}b{x}{", ["ab{x}{", "b{x}{"], ["ab"]),
        ("(?x) ^ a b # a comment\n c $", ["abc"], ["a b c"]),
        ("^(?<part>a)(?P<other>b)(?'more'c)(?#comment)$", ["abc"], ["ab"]),
        ("^.$", ["é", "\U0001f41d", "\udcff"], ["\n", "ab"]),
        ("^[^é]+$", ["ab\U0001f41d"], ["aéb"]),
        ("(a*)*b|(a|a)*c", ["aab", "aac", "b"], ["aa"]),
        ("^(a|b)*a(a|b){12}$", ["ba" + "b" * 12], ["b" * 14]),
        ("a\\z", ["a"], ["a\n"]), ("a\\Z", ["a", "a\n"], ["a\n\n"]), ("a$", ["a", "a\n"], ["ab"]),
        ("\\Aa", ["a"], ["ba"]), ("\\Ba", ["ba"], ["a"]),
    ],
)  # fmt: skip
def test_perls_expressions(text: str, found: list[str], not_found: list[str]) -> None:
    ours = Expression(text)
    assert ours.fault is None
    assert [name for name in [*found, *not_found] if ours.search(name)] == found


def test_flags_hold_to_the_end_of_their_group() -> None:
    ours = Expression("^(a(?i)b|c)d$")
    assert [name for name in ("abd", "aBd", "Cd", "abD", "Abd") if ours.search(name)] == ["abd", "aBd", "Cd"]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "a ( is not closed"), (")", "there is a ) without a ("), ("[a", "a [ is not closed"),
        ("a\\", "ends too early"), ("(?#a", "does not end with )"), ("(?<1>a)", "no name of a group"),
        ("*a", "* repeats nothing"), ("a**", "a repeat of a repeat"), ("a{2}{3}", "a repeat of a repeat"),
        ("a{3,2}", "at least 3 and at most 2"), ("a{99999}", "more than 65535 times"),
        ("[b-a]", "'b' to 'a' is no range"),
        ("(a)\\1", "back-references are not taken (at character 6)"), ("(?P<n>a)(?P=n)", "back-references"),
        ("(a)\\g1", "back-references"), ("(?(1)a|b)", "conditions"), ("(?R)", "recursion"), ("(?1)", "recursion"),
        ("(?>a*)", "atomic groups"), ("a*+", "possessive repeats"), ("(*FAIL)", "verbs"), ("(?z)", "(?z is not taken"),
        ("\\p{L}", "\\p is not taken"), ("[[:nothing:]]", "no class [:nothing:]"),
        ("\\x{110000}", "no character 110000"),
        ("(?<=(?=a))b", "a look-behind takes"), ("(?<=a)(?<=b)(?<=c)(?<=d)(?<=e)", "more than 4 look-behinds"),
        ("(" * 51 + ")" * 51, "more than 50 groups"),
        ("x" * (LONGEST_EXPRESSION + 1), "it has 1025 characters, at most 1024 are taken"),
    ],
)  # fmt: skip
def test_what_is_no_expression_or_not_taken_is_told(text: str, why: str) -> None:
    assert why in str(expression_fault(text))
    assert not expression(text).search("a"), "and matches nothing"


@given(st.text("ab.*+?()|[]{}^$\\d12,:=!<>Pix-#", max_size=30))
def test_no_text_makes_the_check_fail(text: str) -> None:
    ours = Expression(text)
    assert ours.fault != "" and isinstance(ours.search("ab.1"), bool)


# -- what it costs --------------------------------------------------------------------------------

HOSTILE: dict[str, Callable[[int], str]] = {
    "back-references": lambda n: "(a*)(a*)(a*)(a*)" + "\\4{255}" * n,
    "exact repeats": lambda n: "(" * 20 + "a" + "{2})" * (n % 20) + ")" * (20 - n % 20),
    "exact repeats of nothing": lambda n: "(" * (n % 40) + ")" + "{255})" * (n % 40 - 1) + "{255}" if n % 40 else "",
    "repeats within repeats": lambda n: "(" * (n % 50) + "a" + "*)" * (n % 50) + "*b",
    "choices within repeats": lambda n: "(" + "|".join(["a" * (each + 1) for each in range(n % 40)]) + ")*b",
    "many repeats": lambda n: "a*" * n + "b",
    "many may be there": lambda n: "a?" * n + "a" * n,
    "far from the end": lambda n: f"(a|b){{{n}}}a",
    "far from the beginning": lambda n: f"a(a|b){{{n}}}$",
    "far from both": lambda n: f"(a|b){{{n}}}a(a|b){{{n}}}",
    "windows": lambda n: f".{{0,{n}}}foo.{{0,{n}}}bar.{{0,{n}}}baz",
    "look-aheads": lambda n: "".join(f"(?=.*{chr(97 + each % 26)}{each})" for each in range(n)),
    "look-aheads in look-aheads": lambda n: "(?!a" * min(n, 49) + ")" * min(n, 49),
    "look-aheads in repeats": lambda n: f"((?=a+b)(?!b+a).){{{n}}}",
    "look-behinds": lambda n: f"(?<=a.{{{n}}})(?<!b.{{{n}}})(?<=c.{{{n}}})d",
    "kinds of characters": lambda n: "".join(f"[^{chr(0x400 + each)}{chr(0x800 + 2 * each)}]" for each in range(n)),
    "kinds of characters, any of them": lambda n: "[" + "".join(chr(0x400 + 2 * each) for each in range(n)) + "]*" * 1,
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_making_ready_and_searching_cost_a_bounded_number_of_steps(shape: str) -> None:
    """Whatever the size: a table in so many steps, then one for each character; or a fault that says why not."""
    curve = []
    for size in (1, 3, 10, 20, 60, 135):
        text = HOSTILE[shape](size)
        ours = Expression(text)
        curve.append((size, ours.steps, ours.cells, ours.fault))
        assert ours.steps <= 1.05 * MOST_STEPS and ours.cells <= 2 * MOST_CELLS, curve
        for name in ("a" * 255, "ab" * 127, "a" * 254 + "b"):
            assert looked_up(ours, name) <= (0 if ours.fault else len(name)), curve
    assert curve[0][3] is None or shape == "back-references", "the smallest is taken"


def looked_up(ours: Expression, name: str) -> int:
    """How many characters a search looks up."""
    count = 0

    class Counted(dict[str, int]):
        def __missing__(self, character: str) -> int:
            nonlocal count
            count += 1
            return columns[character]

    if ours._table is None:
        assert not ours.search(name)
        return 0
    columns, ours._table.columns = ours._table.columns, Counted()  # type: ignore[assignment]
    ours.search(name)
    ours._table.columns = columns
    return count


def test_a_search_looks_each_character_up_once_unless_the_beginning_tells() -> None:
    for text, name, steps in (
        ("a.*b", "a" * 255, 255), ("^(?!amq\\.).*", "ab", 2), ("^team-[0-9]", "team-x", 6), ("^team-[0-9]", "tea-1", 0),
        (".*", "ab", 0), ("", "ab", 0), ("^", "ab", 2),
    ):  # fmt: skip
        assert looked_up(Expression(text), name) == steps, text


def test_what_is_remembered_of_characters_is_bounded() -> None:
    ours = Expression("^[a-z]+$")
    for number in range(0x4E00, 0x4E00 + 2000):
        assert not ours.search(chr(number))
    assert ours._table is not None and len(ours._table.columns) <= 512
