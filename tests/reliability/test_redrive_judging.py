"""What the judge of redrives objects to."""

from array import array
from collections.abc import Callable

import pytest

from tests.reliability.faults import Fault
from tests.reliability.redrive_judging import Rate, Redriven, Sample, judge_rate, judge_redrive, rate_of, redrive_table

SECOND = 1_000_000
QUEUES = ("a", "b")
TOTAL = 40
RATE = 100


@pytest.fixture
def run() -> Redriven:
    """Of the 20 of each queue each fifth stayed: all is as it was to be."""
    made = Redriven(QUEUES, TOTAL, 5, RATE)
    made.came = {queue: array("Q", made.wanted(place)) for place, queue in enumerate(QUEUES)}
    made.left = array("Q", sorted(number for place in range(2) for number in made.wanted(place, staying=True)))
    targets = [{"queue": queue, "messages": 16} for queue in QUEUES]
    made.preview = {"moves": 32, "stays": 8, "complete": True, "targets": targets}
    made.progress = {"state": "done", "moved": 32, "stayed": 8}
    made.enqueued = {(node, queue): 36 for node in (1, 2, 3) for queue in QUEUES}
    return made


def lose(run: Redriven) -> None:
    run.came["a"].pop(3)


def repeat(run: Redriven) -> None:
    run.came["a"].insert(3, run.came["a"][3])


def swap(run: Redriven) -> None:
    came = run.came["b"]
    came[3], came[4] = came[4], came[3]


def stray(run: Redriven) -> None:
    run.came["b"].append(run.came["a"].pop())


def move_what_stays(run: Redriven) -> None:
    run.came["a"].insert(0, run.left.pop(0))


def unmark(run: Redriven) -> None:
    run.unmarked = 2


def count_one_more(run: Redriven) -> None:
    run.enqueued[2, "b"] += 1


def preview_one_less(run: Redriven) -> None:
    run.preview = {**run.preview, "moves": 31}


def preview_elsewhere(run: Redriven) -> None:
    run.preview = {**run.preview, "targets": [{"queue": "a", "messages": 32}]}


def preview_a_part(run: Redriven) -> None:
    run.preview = {**run.preview, "complete": False}


def say_one_more(run: Redriven) -> None:
    run.progress = {**run.progress, "moved": 33}


def swap_what_stays(run: Redriven) -> None:
    run.left[0], run.left[2] = run.left[2], run.left[0]


def rules(run: Redriven) -> set[str]:
    return {violation.rule for violation in judge_redrive(run)}


def test_all_once_and_in_order_is_fine(run: Redriven) -> None:
    assert judge_redrive(run) == []
    assert run.moving == 32


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lose, {"lost", "counted", "preview"}),
        (repeat, {"twice", "counted", "preview"}),
        (swap, {"order"}),
        (stray, {"lost", "elsewhere", "counted", "preview", "order"}),
        (move_what_stays, {"elsewhere", "stays", "counted", "preview"}),
        (unmark, {"headers"}),
        (count_one_more, {"counted"}),
        (preview_one_less, {"preview"}),
        (preview_elsewhere, {"preview"}),
        (preview_a_part, {"preview"}),
        (say_one_more, {"counted"}),
        (swap_what_stays, {"stays"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(run: Redriven, change: Callable[[Redriven], None], found: set[str]) -> None:
    change(run)
    assert rules(run) == found


def fault(at_s: float, whole_s: float) -> Fault:
    return Fault("kill", (1,), ("dead", "a"), round(at_s * SECOND), round(at_s * SECOND), round(whole_s * SECOND))


def samples(*points: tuple[float, int]) -> list[Sample]:
    return [Sample(round(at_s * SECOND), moved) for at_s, moved in points]


def test_the_rate_is_that_of_calm_stretches() -> None:
    """Neither the time of a fault counts nor the second after it, in which it makes up for some."""
    found = rate_of(
        samples((0, 0), (1, 100), (2, 200), (2.5, 210), (4.5, 215), (5.5, 400), (6, 450), (8, 650)),
        [fault(2.1, 4)],
    )  # fmt: skip
    assert (found.stretches, found.calm_moved, found.calm_us) == (2, 450, 4_500_000)
    assert found.calm_per_second == 100
    assert found.whole_per_second == 81.25


def test_a_fault_that_all_have_not_got_over_has_no_stretch_behind_it() -> None:
    assert rate_of(samples((0, 0), (1, 100), (3, 100)), [fault(2, 0)]).calm_us == SECOND


def test_nothing_was_measured() -> None:
    nothing = rate_of([], [])
    assert nothing == Rate(0, 0, 0, 0, 0)
    assert [violation.rule for violation in judge_rate(RATE, nothing)] == ["rate"]


@pytest.mark.parametrize(("moved", "fine"), [(94, False), (96, True), (104, True), (106, False)])
def test_the_rate_is_within_a_twentieth(moved: int, fine: bool) -> None:
    assert (judge_rate(RATE, Rate(moved, SECOND, 1, moved, SECOND)) == []) == fine


def test_the_table_says_what_was_hit(run: Redriven) -> None:
    lines = redrive_table(run, "dead", [fault(1, 2), Fault("kill", (2,), ("b",))], Rate(98, SECOND, 1, 90, SECOND), [])
    text = "\n".join(lines)
    assert "| moved, stayed | 32, 8 |" in text
    assert "| 98.0 (-2.0 %) |" in text
    assert "Faults: kill 2; 1 of them at the leader of the dead-letter queue, 2 at one of a queue" in text
    assert "lost: 0, twice: 0" in text
