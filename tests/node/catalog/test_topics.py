"""Topic patterns (golden amqp.topic_matching), and against a matcher that tries everything."""
from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.catalog import BindingRecord, topics
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.topics import MOST_REMEMBERED, MOST_VISITS, TopicPatterns
from mayfly.node.catalog.word_masks import CHUNK_BITS

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


def tree_of(patterns: list[str], most_visits: int = MOST_VISITS) -> TopicPatterns:
    tree = TopicPatterns(RoutingSteps(), most_visits)
    for pattern in patterns:
        tree.add(binding(pattern), f"to {pattern}")
    return tree


def matched(tree: TopicPatterns, key: str) -> list[str]:
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


def expected(patterns: list[str], key: str) -> list[str]:
    return sorted(f"to {pattern}" for pattern in patterns if naive(split(pattern), split(key)))


@pytest.mark.parametrize("most_visits", [MOST_VISITS, 3, 0], ids=["tree", "either", "masks"])
@settings(max_examples=200, deadline=None)
@given(
    patterns=st.lists(PATTERN, max_size=12, unique=True), later=st.lists(PATTERN, max_size=4),
    keys=st.lists(KEY, max_size=6), data=st.data(),
)
def test_agrees_with_naive_matcher_whatever_is_bound_and_unbound_meanwhile(
    most_visits: int, patterns: list[str], later: list[str], keys: list[str], data: st.DataObject
) -> None:
    """Whoever answers: what is remembered, and the masks, follow the bindings."""
    tree = tree_of(patterns, most_visits)
    left = list(patterns)
    for key in keys:
        assert matched(tree, key) == expected(left, key)
        assert matched(tree, key) == expected(left, key), "asked again"
        if data.draw(st.booleans()) and left:
            gone = data.draw(st.sampled_from(left))
            tree.remove(binding(gone))
            left.remove(gone)
        if later and later[-1] not in left:
            left.append(later.pop())
            tree.add(binding(left[-1]), f"to {left[-1]}")
        assert matched(tree, key) == expected(left, key), "after the change"


def test_keys_and_patterns_with_three_hashes() -> None:
    """As RabbitMQ 4.3; 3.10 told some of these apart."""
    tree = tree_of(["#.#.#", "#.a.#.a.#", "a.#.#.#.b", "#.*.#.*.#", "#"])
    assert matched(tree, "") == ["to #", "to #.#.#"]
    assert matched(tree, "a.b") == ["to #", "to #.#.#", "to #.*.#.*.#", "to a.#.#.#.b"]
    assert matched(tree, "a.x.a") == ["to #", "to #.#.#", "to #.*.#.*.#", "to #.a.#.a.#"]
    assert matched(tree, "#.#.#") == ["to #", "to #.#.#", "to #.*.#.*.#"], "a key has no wildcards"


@pytest.mark.parametrize("most_visits", [MOST_VISITS, 0])
def test_two_patterns_that_match_alike_are_two_bindings(most_visits: int) -> None:
    tree = TopicPatterns(RoutingSteps(), most_visits)
    for pattern in ("#.*.a", "*.#.a"):
        tree.add(BindingRecord("/", "x", "exchange", "same", pattern), "same")
    assert matched(tree, "b.a") == ["same"]
    tree.remove(BindingRecord("/", "x", "exchange", "same", "#.*.a"))
    assert matched(tree, "b.a") == ["same"]
    tree.remove(BindingRecord("/", "x", "exchange", "same", "*.#.a"))
    assert matched(tree, "b.a") == [] and tree.weight == 0


def test_nothing_is_left_of_removed_patterns() -> None:
    tree = tree_of(["a.b.c", "a.*.#", "#.b.#", "a.#"], 0)
    assert len(matched(tree, "a.b.c")) == 4
    for pattern in ("a.*.#", "#.b.#", "a.b.c", "a.#"):
        tree.remove(binding(pattern))
    assert tree._root.empty and not tree._literal and not tree._beginnings and not tree._wild
    assert tree.weight == 0 and matched(tree, "a.b.c") == []


# -- what a match costs ---------------------------------------------------------------------------


def any_of(words: str, length: int, count: int) -> list[str]:
    random = Random(length * count)
    return list(dict.fromkeys(".".join(random.choice(words) for _ in range(length)) for _ in range(count)))


HOSTILE = {
    "random words and wildcards": lambda count: any_of("a*#", 120, count),
    "stars": lambda count: any_of("a*", 120, count),
    "short": lambda count: any_of("a*#", 12, count),
    "one word between hashes": lambda count: [".".join(["#", "a"] * n) + f".{n}" for n in range(1, min(count, 60))],
    "stairs": lambda count: [".".join("a" * (n % 60) + "#" + "a" * (n // 60 + 1)) for n in range(count)],
    "hashes at different depths": lambda count: [".".join(["*"] * (n % 120) + ["#", f"a{n}"]) for n in range(count)],
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_match_costs_a_bounded_number_of_steps(shape: str) -> None:
    """At most some thousand nodes, whatever the patterns; then a step for each word of the key and each 4096 bits."""
    curve = []
    for count in (50, 200, 800):
        patterns = HOSTILE[shape](count)
        tree = tree_of(patterns)
        key = ".".join(["a"] * 128)
        chunks = sum(len(pattern.split(".")) + 1 for pattern in patterns) // (CHUNK_BITS - 128) + 1
        tree.match(key + ".b")
        assert tree._steps.taken <= 4 * MOST_VISITS + (128 + CHUNK_BITS) * chunks, "the chunks are made with the first"
        before = tree._steps.taken
        tree.match(key)
        steps = tree._steps.taken - before
        curve.append((count, steps))
        assert steps <= 4 * MOST_VISITS + 128 * chunks, curve
        tree.match(key)
        assert tree._steps.taken - before - steps <= MOST_VISITS, "remembered, or a short way"


def test_keys_that_are_remembered_are_bounded_and_forgotten_with_the_patterns() -> None:
    tree = tree_of(any_of("a*#", 20, 100), 0)
    for number in range(MOST_REMEMBERED + 10):
        tree.match(f"a.{number}")
        assert len(tree._remembered) <= MOST_REMEMBERED
    tree.add(binding("*.7"), "to *.7")
    assert not tree._remembered and "to *.7" in matched(tree, "a.7")


def test_answers_that_are_remembered_are_bounded_by_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 of them with all 65 000 patterns of eight words that a vhost may have would be half a gigabyte."""
    monkeypatch.setattr(topics, "MOST_TARGETS_REMEMBERED", 1000)
    tree = tree_of([f"#.a.*.{last}" for last in "#*b"] + any_of("*#", 8, 100), 0)
    for number in range(200):
        tree.match(".".join(["a"] * 9) + f".{number}")
        held = sum(map(len, tree._remembered.values()))
        assert tree._targets_remembered == held <= 1000
    assert held > 0
    tree.remove(binding("#.a.*.b"))
    assert tree._targets_remembered == 0 == len(tree._remembered)


def test_chunks_are_gathered_anew_when_most_has_gone() -> None:
    """Else 1000 chunks with a pattern each would cost as much as if they were full."""
    patterns = any_of("ab*#", 100, 400)
    tree = tree_of(patterns, 0)
    tree.match("a.b")
    assert tree._masks is not None and len(tree._masks._chunks) >= 7
    kept = patterns[::40]
    for pattern in patterns:
        if pattern not in kept:
            tree.remove(binding(pattern))
    key = ".".join("ab" * 60)
    assert matched(tree, key) == expected_quickly(kept, key)
    assert tree._masks is not None and len(tree._masks._chunks) <= 2


def expected_quickly(patterns: list[str], key: str) -> list[str]:
    """As `expected`, for what that would take for ever: how far each beginning of the pattern can have come."""
    found = []
    for pattern in patterns:
        reached = {0}
        for word in split(pattern):
            if word == "#":
                reached = set(range(min(reached, default=len(key) + 1), len(split(key)) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(split(key)) and word in ("*", split(key)[at])}
        if len(split(key)) in reached:
            found.append(f"to {pattern}")
    return sorted(found)
