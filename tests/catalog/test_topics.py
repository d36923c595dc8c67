"""Topic patterns (golden amqp.topic_matching), and against a matcher that tries everything."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalog import BindingRecord
from node.catalog.topics import TopicTree

KEYS = ["a.b.c", "a.b", "a", "", "a..c", "a.b.c.d", "b.a", "a.", ".a"]

MATCHES = {
    "a.*": ["a.", "a.b"],
    "a.#": ["a", "a.", "a..c", "a.b", "a.b.c", "a.b.c.d"],
    "#": ["", ".a", "a", "a.", "a..c", "a.b", "a.b.c", "a.b.c.d", "b.a"],
    "*": ["a"],
    "*.*": [".a", "a.", "a.b", "b.a"],
    "#.c": ["a..c", "a.b.c"],
    "a.*.c": ["a..c", "a.b.c"],
    "a.#.c": ["a..c", "a.b.c"],
    "#.#": ["", ".a", "a", "a.", "a..c", "a.b", "a.b.c", "a.b.c.d", "b.a"],
    "": [""],
    "*.#": [".a", "a", "a.", "a..c", "a.b", "a.b.c", "a.b.c.d", "b.a"],
    "a.b": ["a.b"],
}


def binding(pattern: str) -> BindingRecord:
    return BindingRecord("/", "x", "exchange", f"to {pattern}", pattern)


def tree_of(patterns: list[str]) -> TopicTree:
    tree = TopicTree()
    for pattern in patterns:
        tree.add(binding(pattern), f"to {pattern}")
    return tree


def matched(tree: TopicTree, key: str) -> list[str]:
    return sorted(name for targets in tree.match(key) for name in targets.exchanges)


@pytest.mark.parametrize("pattern", MATCHES)
def test_golden_matches(pattern: str) -> None:
    alone, among_others = tree_of([pattern]), tree_of(list(MATCHES))
    found = [key for key in KEYS if matched(alone, key)]
    assert sorted(found) == sorted(MATCHES[pattern])
    assert sorted(key for key in KEYS if f"to {pattern}" in matched(among_others, key)) == sorted(found)


def naive(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(naive(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and naive(pattern[1:], key[1:])


def split(text: str) -> list[str]:
    return text.split(".") if text else []


WORDS = st.sampled_from(["a", "b", "", "*", "#"])
PATTERN = st.lists(WORDS, max_size=6).map(".".join)
KEY = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=7).map(".".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(PATTERN, max_size=12, unique=True), st.lists(KEY, max_size=6), st.data())
def test_tree_agrees_with_naive_matcher(patterns: list[str], keys: list[str], data: st.DataObject) -> None:
    tree = tree_of(patterns)
    removed = data.draw(st.lists(st.sampled_from(patterns), unique=True)) if patterns else []
    for pattern in removed:
        tree.remove(binding(pattern))
    left = [pattern for pattern in patterns if pattern not in removed]
    for key in keys:
        expected = sorted(f"to {pattern}" for pattern in left if naive(split(pattern), split(key)))
        assert matched(tree, key) == expected


def test_nothing_is_left_of_removed_patterns() -> None:
    tree = tree_of(["a.b.c", "a.*.#", "#.b.#"])
    for pattern in ("a.*.#", "#.b.#", "a.b.c"):
        tree.remove(binding(pattern))
    assert tree._root.empty


def test_many_wildcards_stay_cheap() -> None:
    """Trying all ways to spread 40 words over 20 `#` would never end."""
    tree = tree_of([".".join(["#", "a"] * 20) + ".z"])
    assert matched(tree, ".".join(["a"] * 40)) == []
