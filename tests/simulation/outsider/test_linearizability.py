"""The search for an order, against registers whose histories can be judged by eye."""

from __future__ import annotations

from itertools import permutations
from random import Random

from simulation.outsider.judging.linearizability import (
    LINEARIZABLE,
    NOT_LINEARIZABLE,
    UNDECIDED,
    TimedOperation,
    check,
)

Act = tuple[str, int]


def register(state: int, operation: TimedOperation[Act]) -> list[int]:
    kind, value = operation.what
    if kind == "write":
        return [value]
    return [state] if state == value else []


def found(*rows: tuple[str, int, int, int | None]) -> str:
    return check([TimedOperation((kind, value), began, ended) for kind, value, began, ended in rows], 0, register).found


def test_one_after_the_other() -> None:
    assert found(("write", 1, 0, 1), ("read", 1, 2, 3)) == LINEARIZABLE
    assert found(("write", 1, 0, 1), ("read", 0, 2, 3)) == NOT_LINEARIZABLE


def test_at_the_same_time_either_order_will_do() -> None:
    assert found(("write", 1, 0, 10), ("read", 0, 2, 3), ("read", 1, 4, 5)) == LINEARIZABLE
    assert found(("write", 1, 0, 10), ("read", 1, 2, 3), ("read", 0, 4, 5)) == NOT_LINEARIZABLE


def test_two_readers_do_not_disagree_on_the_order_of_two_writes() -> None:
    writes = (("write", 1, 0, 10), ("write", 2, 0, 10))
    assert found(*writes, ("read", 1, 11, 12), ("read", 1, 13, 14)) == LINEARIZABLE
    assert found(*writes, ("read", 1, 11, 12), ("read", 2, 13, 14)) == NOT_LINEARIZABLE


def test_what_was_not_answered_happened_late_or_never_and_not_twice() -> None:
    assert found(("write", 1, 0, None), ("read", 0, 5, 6)) == LINEARIZABLE
    assert found(("write", 1, 0, None), ("read", 0, 5, 6), ("read", 1, 7, 8)) == LINEARIZABLE
    assert found(("write", 1, 5, None), ("read", 1, 2, 3)) == NOT_LINEARIZABLE
    assert found(
        ("write", 1, 0, None), ("read", 1, 5, 6), ("write", 2, 7, 8), ("read", 1, 9, 10)
    ) == NOT_LINEARIZABLE  # fmt: skip


def test_touching_operations_overlap() -> None:
    assert found(("write", 1, 0, 5), ("read", 0, 5, 6)) == LINEARIZABLE


def test_the_odd_one_is_named() -> None:
    odd = TimedOperation(("read", 7), 4, 5)
    before = [TimedOperation(("write", 1), 0, 1), TimedOperation(("read", 1), 2, 3)]
    history = [*before, odd, TimedOperation(("read", 1), 6, 7)]
    verdict = check(history, 0, register)
    assert verdict.found == NOT_LINEARIZABLE
    assert verdict.unexplained == odd


def test_a_search_without_end_says_that_it_does_not_know() -> None:
    history = [TimedOperation(("write", value), 0, 100) for value in range(12)]
    assert check([*history, TimedOperation(("read", 99), 0, 100)], 0, register, most_steps=50).found == UNDECIDED


def by_trying_all(history: list[TimedOperation[Act]]) -> str:
    """Every order of the answered operations and of any of the others, one by one."""
    answered = [each for each in history if each.ended_us is not None]
    open_ones = [each for each in history if each.ended_us is None]
    for chosen in range(1 << len(open_ones)):
        some = [each for place, each in enumerate(open_ones) if chosen >> place & 1]
        for order in permutations(answered + some):
            in_time = all(
                later.ended_us is None or later.ended_us >= one.began_us
                for place, one in enumerate(order)
                for later in order[place + 1 :]
            )
            state = 0
            fits = in_time
            for each in order if in_time else ():
                after = register(state, each)
                fits = bool(after)
                if not fits:
                    break
                state = after[0]
            if fits:
                return LINEARIZABLE
    return NOT_LINEARIZABLE


def test_it_agrees_with_trying_all_orders() -> None:
    random = Random(7)
    verdicts = set()
    for _ in range(300):
        history = []
        for _ in range(random.randint(2, 5)):
            began = random.randint(0, 8)
            ended = None if random.random() < 0.15 else began + random.randint(0, 5)
            kind = random.choice(("write", "read"))
            if kind == "read" and ended is None:
                continue
            history.append(TimedOperation((kind, random.randint(0, 2)), began, ended))
        expected = by_trying_all(history)
        assert check(history, 0, register).found == expected, history
        verdicts.add(expected)
    assert verdicts == {LINEARIZABLE, NOT_LINEARIZABLE}
