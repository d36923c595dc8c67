"""Publisher confirms: every publish settled once, with the fewest frames."""

from __future__ import annotations

import random

import pytest

from mayfly.node.broker.confirms import Confirms, PublishGroup


def settle(outcomes: dict[int, bool], frames: list[tuple[int, bool, bool]]) -> None:
    """Apply frames as a strict client does: `multiple` takes all lower numbers that are still open, and each frame
    settles the number that it bears."""
    for sequence, multiple, refused in frames:
        low = 1 if multiple else sequence
        assert sequence not in outcomes, f"{sequence} was told before"
        fresh = [each for each in range(low, sequence + 1) if each not in outcomes]
        assert fresh, f"{'nack' if refused else 'ack'} of {sequence} (multiple: {multiple}) settles nothing"
        outcomes.update(dict.fromkeys(fresh, refused))


def test_one_run_is_one_frame() -> None:
    confirms = Confirms()
    assert confirms.assign(50) == 1
    confirms.acknowledge(1, 50)
    assert confirms.has_news
    assert confirms.take() == [(50, True, False)]
    assert not confirms.has_news


def test_single_publish_is_not_multiple() -> None:
    confirms = Confirms()
    confirms.assign(1)
    confirms.acknowledge(1, 1)
    assert confirms.take() == [(1, False, False)]


def test_runs_of_one_turn_share_a_frame_whatever_their_order() -> None:
    confirms = Confirms()
    confirms.assign(30)
    confirms.acknowledge(11, 20)
    confirms.acknowledge(21, 30)
    confirms.acknowledge(1, 10)
    assert confirms.take() == [(30, True, False)]


def test_what_is_settled_ahead_is_told_alone() -> None:
    confirms = Confirms()
    confirms.assign(4)
    confirms.acknowledge(3, 4)
    assert confirms.take() == [(3, False, False), (4, False, False)]
    confirms.acknowledge(1, 2)
    assert confirms.take() == [(2, True, False)]


def test_a_multiple_covers_what_was_told_and_bears_what_was_not() -> None:
    confirms = Confirms()
    confirms.assign(7)
    confirms.acknowledge(2, 3)
    confirms.acknowledge(5, 5)
    confirms.acknowledge(7, 7)
    assert [sequence for sequence, _, _ in confirms.take()] == [2, 3, 5, 7]
    confirms.acknowledge(4, 4)
    assert confirms.take() == [(4, False, False)]
    confirms.acknowledge(6, 6)
    confirms.acknowledge(1, 1)
    assert confirms.take() == [(6, True, False)]
    confirms.assign(1)
    confirms.acknowledge(8, 8)
    assert confirms.take() == [(8, False, False)]


def test_what_was_told_ahead_is_not_told_again_behind_a_refusal() -> None:
    """A client that has had its answer to a number need not know it any more."""
    confirms = Confirms()
    confirms.assign(6)
    confirms.refuse(3, 3)
    confirms.acknowledge(5, 5)
    assert confirms.take() == [(3, False, True), (5, False, False)]
    confirms.refuse(2, 2)
    confirms.refuse(4, 4)
    confirms.refuse(1, 1)
    outcomes = {3: True, 5: False}
    settle(outcomes, confirms.take())
    assert outcomes == {1: True, 2: True, 3: True, 4: True, 5: False}
    confirms.acknowledge(6, 6)
    assert confirms.take() == [(6, False, False)]


def test_refusal_is_not_swallowed_by_a_multiple() -> None:
    confirms = Confirms()
    confirms.assign(5)
    confirms.refuse(2, 3)
    confirms.acknowledge(4, 5)
    confirms.acknowledge(1, 1)
    outcomes: dict[int, bool] = {}
    settle(outcomes, confirms.take())
    assert outcomes == {1: False, 2: True, 3: True, 4: False, 5: False}


def test_refusal_of_all_is_one_frame() -> None:
    confirms = Confirms()
    confirms.assign(10)
    confirms.acknowledge(1, 4)
    confirms.refuse(5, 10)
    assert confirms.take() == [(4, True, False), (10, True, True)]


def test_group_settles_each_number_with_its_last_shard() -> None:
    confirms = Confirms()
    first = confirms.assign(4)
    group = PublishGroup(confirms, first, 4)
    group.expect([0, 1, 2])
    group.expect([1, 2])
    group.settle_unexpected()
    assert confirms.take() == [(4, False, False)]
    group.settled([0, 1, 2], False)
    assert confirms.take() == [(1, False, False)]
    group.settled([1, 2], False)
    assert confirms.take() == [(3, True, False)]


def test_group_with_one_lost_shard_refuses_what_went_there() -> None:
    confirms = Confirms()
    group = PublishGroup(confirms, confirms.assign(3), 3)
    group.expect([0, 1, 2])
    group.expect([1])
    group.settle_unexpected()
    group.settled([1], True)
    group.settled([0, 1, 2], False)
    outcomes: dict[int, bool] = {}
    settle(outcomes, confirms.take())
    assert outcomes == {1: False, 2: True, 3: False}


@pytest.mark.parametrize("seed", range(60))
def test_any_order_settles_everything_once_and_right(seed: int) -> None:
    chance = random.Random(seed)
    confirms = Confirms()
    wanted: dict[int, bool] = {}
    open_ranges: list[tuple[int, int]] = []
    outcomes: dict[int, bool] = {}
    for _ in range(60):
        if chance.random() < 0.5 or not open_ranges:
            count = chance.randint(1, 6)
            first = confirms.assign(count)
            open_ranges.append((first, first + count - 1))
        else:
            first, last = open_ranges.pop(chance.randrange(len(open_ranges)))
            refused = chance.random() < 0.2
            (confirms.refuse if refused else confirms.acknowledge)(first, last)
            wanted.update(dict.fromkeys(range(first, last + 1), refused))
        if chance.random() < 0.5:
            settle(outcomes, confirms.take())
            assert outcomes == wanted
    settle(outcomes, confirms.take())
    assert outcomes == wanted


def test_how_many_are_unsettled() -> None:
    confirms = Confirms()
    confirms.assign(10)
    for first, last in ((3, 4), (9, 9), (1, 1)):
        confirms.acknowledge(first, last)
    confirms.refuse(6, 6)
    assert confirms.unsettled == 5
    confirms.take()
    assert confirms.unsettled == 5
    confirms.acknowledge(2, 2)
    assert confirms.unsettled == 4
