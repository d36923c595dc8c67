"""Headers exchanges look at the bindings that may match, and find the same ones as a look at all of them."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Bind, Catalog, DeclareQueue, FoundCluster
from mayfly.node.catalog.header_matching import HeaderPatterns, MessageHeaders
from mayfly.node.catalog.records import BindingRecord
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Targets
from mayfly.node.catalog.values import same_value, table_key

NAMES = st.sampled_from(["k", "l", "x-k"])
VALUES = st.sampled_from([None, 1, 1.0, True, "1", b"1", [1], {"n": 1}, 1 << 70, "\ud800"])
FIELDS = st.dictionaries(NAMES, VALUES, max_size=3)
MODES = st.sampled_from([{}, *({"x-match": mode} for mode in ("all", "any", "all-with-x", "any-with-x"))])


def binding(arguments: dict[str, Any], queue: str) -> BindingRecord:
    return BindingRecord("/", "x", "exchange", queue, "", arguments)


def matched(tree: HeaderPatterns, headers: dict[str, Any] | None) -> list[Targets]:
    return tree.match(None if headers is None else MessageHeaders(headers, tree._steps))


def encodable(arguments: dict[str, Any]) -> bool:
    """The client may send what no stored binding has."""
    return not any(value in (1 << 70, "\ud800") for value in arguments.values())


def matches(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    mode = arguments.get("x-match", "all")
    found = [
        name in headers and (value is None or same_value(value, headers[name]))
        for name, value in arguments.items()
        if name != "x-match" and (mode.endswith("-with-x") or not name.startswith("x-"))
    ]
    return any(found) if mode.startswith("any") else all(found)


@given(
    patterns=st.lists(st.builds(lambda mode, fields: {**mode, **fields}, MODES, FIELDS).filter(encodable), max_size=12),
    removed=st.integers(0, 4),
    headers=st.none() | FIELDS,
)
def test_what_is_found_is_what_a_look_at_all_finds_in_the_same_order(
    patterns: list[dict[str, Any]], removed: int, headers: dict[str, Any] | None
) -> None:
    tree = HeaderPatterns(RoutingSteps())
    bindings = [binding(arguments, f"q{number}") for number, arguments in enumerate(patterns)]
    for each in bindings:
        tree.add(each, each.destination)
    for each in bindings[:removed]:
        tree.remove(each)
    expected = [
        pattern.targets
        for key, pattern in tree._patterns.items()
        if matches(next(each.arguments for each in bindings if table_key(each.arguments) == key), headers or {})
    ]
    assert matched(tree, headers) == expected
    for each in bindings[removed:]:
        tree.remove(each)
    assert not tree._found_by and not tree._always and matched(tree, headers) == []


@pytest.mark.parametrize("mode, common", [("all", {}), ("all", {"kind": "order"}), ("any", {})])
def test_of_ten_thousand_bindings_those_that_may_match_are_looked_at(
    mode: str, common: dict[str, str]
) -> None:
    """A look at each takes 1 us, 10 ms for a message; a field that all ask for is not the one to find them by."""
    tree = HeaderPatterns(RoutingSteps())
    for number in range(10_000):
        tree.add(binding({"x-match": mode, **common, "number": number, "other": f"v{number}"}, "q"), "q")
    assert len(matched(tree, {**common, "number": 77, "other": "v77"})) == 1
    assert len(matched(tree, {**common, "number": -1, "other": "none"})) == 0
    assert tree._steps.taken <= 30


@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ({f"h{number}": number for number in range(20_000)}, 20_000),
        ({"list": [1] * 20_000}, 20_001),
        ({"tables": [{"a": number, "b": [number]} for number in range(5_000)]}, 1 + 5_000 * 4),
        ({"h": "x" * 100_000}, 1),
    ],
)
def test_the_values_of_a_message_count_however_few_bindings_there_are(headers: dict[str, Any], values: int) -> None:
    """Once for all exchanges that look at them: what they are held against counts with each."""
    steps = RoutingSteps()
    trees = [HeaderPatterns(steps) for _ in range(3)]
    for tree in trees:
        tree.add(binding({"kind": "order"}, "q"), "q")
    seen = MessageHeaders(headers, steps)
    assert steps.taken == 0, "nobody has looked yet"
    for tree in trees:
        assert tree.match(seen) == []
    assert values <= steps.taken <= values + 10


def test_messages_with_thousands_of_headers_end_a_turn() -> None:
    """Four such with 5 000 headers are some 10 ms, though one binding alone looks at them."""
    catalog = Catalog(1)
    catalog.apply(FoundCluster(((1, "a", "a:1"),), 1, LEVEL_HIGHEST))
    catalog.apply(DeclareQueue("/", "q", durable=True))
    catalog.apply(Bind("/", "amq.headers", "queue", "q", "", {"kind": "order"}))
    headers: dict[str, Any] = {"kind": "order", **{f"h{number}": number for number in range(5_000)}}
    turns = catalog.routing_turns
    routed = 0
    while not turns.is_over:
        assert [queue.name for queue in catalog.route("/", "amq.headers", "", headers)] == ["q"]
        routed += 1
    assert routed == 4
