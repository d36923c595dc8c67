"""When a node ticks, without a node."""

import pytest

from mayfly.node.shell.tick_times import TickTimes

TICK_MS = 50
HEARTBEAT_TICKS = 2
PERIOD_MS = TICK_MS * HEARTBEAT_TICKS
NO_ELECTION = 14


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


def first_of(_: int) -> int:
    return 0


@pytest.mark.parametrize("rests", [False, True])
def test_as_many_ticks_come_whether_a_node_rests_or_not(rests: bool) -> None:
    times, now_ms, made, before_ms = TickTimes(TICK_MS, HEARTBEAT_TICKS, first_of), 1_017, 0, 0
    while made < 1_000:
        before_ms, now_ms = now_ms, max(now_ms, times.due_ms)
        made += times.left_out + 1
        while times.left_out:
            times.made_up_for()
        times.made(now_ms)
        if rests:
            times.rest(now_ms, NO_ELECTION, always)
    assert before_ms < now_ms
    assert abs(now_ms - 1_017 - 1_000 * TICK_MS) <= PERIOD_MS


@pytest.mark.parametrize("first_ms", range(0, PERIOD_MS, 7))
def test_heartbeats_of_nodes_at_rest_come_to_leave_at_the_same_moments(first_ms: int) -> None:
    """Whenever they began, and no tick comes much sooner or later than a tick after the one before."""
    times, now_ms = TickTimes(TICK_MS, HEARTBEAT_TICKS, first_of), 100_000 + first_ms
    heartbeats = []
    for number in range(100):
        times.made(now_ms)
        if number % HEARTBEAT_TICKS == HEARTBEAT_TICKS - 1:
            heartbeats.append(now_ms)
        times.rest(now_ms, NO_ELECTION, never)
        assert times.left_out == 0
        assert 0.9 * TICK_MS <= times.due_ms - now_ms <= 1.1 * TICK_MS
        now_ms = times.due_ms
    assert {moment % PERIOD_MS for moment in heartbeats[10:]} == {0}


def test_ticks_that_come_late_do_not_bring_others_after_them() -> None:
    """A process that was frozen makes up for nothing: it would take others for silent that had no time to speak."""
    times = TickTimes(TICK_MS, HEARTBEAT_TICKS, first_of)
    times.made(1_000)
    times.made(9_000)
    times.rest(9_000, NO_ELECTION, always)
    assert times.due_ms >= 9_000 + 0.9 * TICK_MS


def in_step() -> TickTimes:
    """The tick with the heartbeats has just been made, at 10 000."""
    times = TickTimes(TICK_MS, HEARTBEAT_TICKS, first_of)
    times.made(9_950)
    times.made(10_000)
    return times


def test_ticks_between_heartbeats_are_left_out_only_if_they_can_wait() -> None:
    times = in_step()
    asked: list[int] = []

    def refuse(until_ms: int) -> bool:
        asked.append(until_ms)
        return False

    times.rest(10_000, NO_ELECTION, refuse)
    assert (times.left_out, times.due_ms, asked) == (0, 10_050, [10_100])
    times = in_step()
    times.rest(10_000, NO_ELECTION, always)
    assert (times.left_out, times.left_out_ms, times.due_ms) == (1, 10_050, 10_100)
    assert times.take_back()
    assert (times.left_out, times.due_ms) == (0, 10_050)
    assert not times.take_back()


def test_with_more_ticks_between_heartbeats_all_are_left_out() -> None:
    times = TickTimes(20, 5, first_of)
    for number in range(5):
        times.made(9_920 + 20 * number)
    times.rest(10_000, NO_ELECTION, always)
    assert (times.left_out, times.left_out_ms, times.due_ms) == (4, 10_020, 10_100)
    times.made_up_for()
    times.made_up_for()
    assert (times.left_out, times.left_out_ms, times.due_ms) == (2, 10_060, 10_100)
    assert times.take_back()
    times.made(10_060)
    times.rest(10_060, NO_ELECTION, always)
    assert (times.left_out, times.left_out_ms, times.due_ms) == (1, 10_080, 10_100)


@pytest.mark.parametrize("ticks", [1, 2])
def test_no_tick_is_left_out_that_may_begin_an_election_nor_made_in_step_with_others(ticks: int) -> None:
    """Two that campaign at the same moment take each other's votes: the tick comes at any moment of the interval."""
    drawn = TickTimes(TICK_MS, HEARTBEAT_TICKS, lambda most: most // 3)
    drawn.made(9_950)
    drawn.made(10_000)
    drawn.rest(10_000, ticks, always)
    assert drawn.left_out == 0
    assert drawn.due_ms == (10_017 if ticks == 1 else 10_050)
