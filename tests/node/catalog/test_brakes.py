"""Brakes of queues in the catalog (RULES R5): what may be said, what of it counts, and what a shard is told."""

from decimal import Decimal
from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_BRAKES
from mayfly.node.catalog import Catalog, DeclareQueue, PolicySet, QueueDeclared, RaiseLevel, Refusal, SetPolicy
from mayfly.node.catalog.arguments import first_inequivalent, queue_settings, unbuilt_refusal
from mayfly.node.catalog.policies import check_policy
from mayfly.node.catalog.shard_settings import shard_settings

RATE, WINDOW = "x-dead-letter-brake-rate", "x-dead-letter-brake-window"


def filled(level: int = LEVEL_BRAKES) -> Catalog:
    catalog = Catalog(1)
    catalog.apply(RaiseLevel(level, ()))
    return catalog


def told(catalog: Catalog, **arguments: Any) -> tuple[int, int]:
    """The limit and the window that the shard is told of a queue with these arguments (x_... and _ for -)."""
    said = {f"x-dead-letter-brake-{key}": value for key, value in arguments.items()}
    declared = catalog.apply(DeclareQueue("/", f"q {said}", True, arguments=said))
    assert isinstance(declared, QueueDeclared)
    found = shard_settings(catalog, declared.queue)
    return found.brake_limit, found.brake_window_ms


def put(catalog: Catalog, definition: dict[str, Any], operator: bool = False) -> None:
    assert isinstance(catalog.apply(SetPolicy("/", "p", "", definition, operator=operator)), PolicySet)


@pytest.mark.parametrize(
    ("arguments", "limit", "window_ms"),
    [
        ({}, 0, 0), ({"rate": 5}, 50, 10_000), ({"rate": 0.5, "window": 60_000}, 30, 60_000),
        ({"rate": 0.29, "window": 100_000}, 29, 100_000), ({"rate": 0.01}, 0, 10_000),
        ({"rate": 1_000_000, "window": 86_400_000}, 86_400_000_000, 86_400_000), ({"rate": 1, "window": 1}, 0, 1),
        ({"rate": "0.5", "window": 60_000}, 30, 60_000), ({"rate": Decimal("0.0005"), "window": 60_000}, 0, 60_000),
        ({"rate": Decimal("2.5")}, 25, 10_000),
    ],
)  # fmt: skip
def test_r5_a_shard_is_told_how_many_may_fail_within_the_window(
    arguments: dict[str, Any], limit: int, window_ms: int
) -> None:
    assert told(filled(), **arguments) == (limit, window_ms)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({RATE: "five"}, '"expected a number above 0, at most 1000000 (messages a second), got longstr"'),
        ({RATE: True}, "got bool"), ({RATE: 0}, "got 0"), ({RATE: -1.5}, "got -1.5"), ({RATE: 1_000_001}, "1000001"),
        ({RATE: "0.0"}, "got longstr"), ({RATE: "1e3"}, "got longstr"), ({RATE: "10000000"}, "got longstr"),
        ({RATE: "E-5"}, "got longstr"), ({RATE: "5E-"}, "got longstr"), ({RATE: "٣"}, "got longstr"),
        ({RATE: float("nan")}, "got nan"), ({RATE: 1, WINDOW: 0}, "{value_zero,0}"),
        ({RATE: 1, WINDOW: -5}, "{value_negative,-5}"), ({RATE: 1, WINDOW: "10s"}, "expected integer, got longstr"),
        ({RATE: 1, WINDOW: 86_400_001}, "{value_too_large,86400001}"),
        ({WINDOW: 1000}, "dead-letter-brake-rate is required when there is dead-letter-brake-window"),
        ({RATE: 1, "x-queue-type": "stream"}, "of queue type rabbit_stream_queue"),
    ],
)  # fmt: skip
def test_r5_arguments_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal) as caught:
        queue_settings("/", "q", arguments)
    assert caught.value.code == 406
    assert text in caught.value.text
    assert "'x-dead-letter-brake-" in caught.value.text


def test_r5_below_its_level_it_is_an_argument_that_nobody_may_use() -> None:
    below = LEVEL_BRAKES - 1
    assert queue_settings("/", "q", {RATE: "nonsense"}, level=below).brake_rate is None
    refusal = unbuilt_refusal("/", "q", {RATE: 1}, below)
    assert refusal is not None
    assert (refusal.code, "x-dead-letter-brake-rate" in refusal.text) == (406, True)
    assert unbuilt_refusal("/", "q", {RATE: 1}, LEVEL_BRAKES) is None
    assert first_inequivalent({RATE: 1}, {}, LEVEL_BRAKES) == RATE
    assert first_inequivalent({RATE: 1}, {}, below) is None
    early = filled(below).apply(SetPolicy("/", "p", "", {"dead-letter-brake-rate": 5}))
    assert isinstance(early, Refusal)
    assert early.text.startswith("dead-letter-brake-rate needs feature level 9, the cluster is at 8")


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"dead-letter-brake-rate": 0}, "0 is not a valid dead letter brake rate"),
        ({"dead-letter-brake-rate": True}, "true is not a valid dead letter brake rate"),
        ({"dead-letter-brake-rate": 1, "dead-letter-brake-window": 1.5}, "1.5 is not a valid dead letter brake window"),
        (
            {"dead-letter-brake-window": 5000},
            "dead-letter-brake-rate is required when there is dead-letter-brake-window",
        ),
    ],
)
def test_r5_policies_refused(definition: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_policy(SetPolicy("/", "p", "", definition))
    assert caught.value.text.splitlines()[-1] == text


def test_r5_the_lowest_rate_counts_and_the_argument_s_window_before_policies() -> None:
    catalog = filled()
    put(catalog, {"dead-letter-brake-rate": 8, "dead-letter-brake-window": 2000})
    assert told(catalog) == (16, 2000)
    assert told(catalog, rate=2) == (4, 2000)
    put(catalog, {"dead-letter-brake-rate": 0.5, "dead-letter-brake-window": 50_000}, operator=True)
    assert told(catalog, rate=2) == (1, 2000)
    assert told(catalog, rate=2, window=60_000) == (30, 60_000)


def test_r5_a_policy_says_nothing_to_a_stream() -> None:
    catalog = filled()
    put(catalog, {"dead-letter-brake-rate": 8})
    declared = catalog.apply(DeclareQueue("/", "s", True, arguments={"x-queue-type": "stream"}))
    assert isinstance(declared, QueueDeclared)
    assert shard_settings(catalog, declared.queue).brake_window_ms == 0
