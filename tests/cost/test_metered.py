"""The meter sees what a command can cost, in Python and in C."""

from __future__ import annotations

import sys

import pytest

from tests.cost import examples
from tests.cost.metered import MeteredCopy

LINEAR = [
    "a_loop", "a_comprehension", "a_generator", "a_copy", "a_slice", "unpacked", "added", "a_sorting", "a_search",
    "taken_out_of_a_row",
]  # fmt: skip


@pytest.fixture(scope="module")
def copy() -> MeteredCopy:
    return MeteredCopy("tests.cost.examples")


@pytest.mark.parametrize("name", LINEAR)
def test_what_looks_at_everything_is_counted(copy: MeteredCopy, name: str) -> None:
    function = getattr(copy.module("tests.cost.examples"), name)
    costs = [copy.cost(lambda size=size: function(list(range(1, size + 1)))) for size in (10, 20)]  # type: ignore[misc]
    assert costs[1] - costs[0] in (10, 20), "once for each, or, where a generator is read, twice"


def test_what_does_not_is_not(copy: MeteredCopy) -> None:
    function = copy.module("tests.cost.examples").nothing
    assert copy.cost(lambda: function([1])) == copy.cost(lambda: function([1] * 1_000)) == 1


def test_nobody_else_sees_the_copy(copy: MeteredCopy) -> None:
    assert copy.module("tests.cost.examples") is not examples
    assert sys.modules["tests.cost.examples"] is examples
    assert not hasattr(examples, "__meter__")


def test_all_examples_are_here() -> None:
    made = {name for name, value in vars(examples).items() if getattr(value, "__module__", "") == examples.__name__}
    assert made == {"nothing", *LINEAR}
