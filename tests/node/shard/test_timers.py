"""The timers: right order, nothing left over (RULES T13)."""

from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.shard.timers import NEVER, Timers

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("arm", "arm", "arm", "cancel", "first", "due")),
        st.integers(1, 9),
        st.integers(0, 30),
    ),
    max_size=120,
)


@given(STEPS)
def test_t13_timers_are_what_a_sorted_table_would_be(steps: list[tuple[str, int, int]]) -> None:
    """RULES T13: at most one deadline a queue, in order, whatever was armed and cancelled before."""
    timers = Timers()
    table: dict[int, int] = {}
    for step, queue_id, when in steps:
        if step == "arm":
            timers.arm(queue_id, when)
            table[queue_id] = when
        elif step == "cancel":
            timers.cancel(queue_id)
            table.pop(queue_id, None)
        elif step == "first":
            assert timers.first() == min(((due, queue) for queue, due in table.items()), default=(NEVER, 0))
        else:
            due = sorted((due, queue) for queue, due in table.items() if due <= when)
            assert timers.all_due(when, 100) == [queue for _, queue in due]
            assert timers.all_due(when, 3) == [queue for _, queue in due[:3]]
        assert timers.due == table
        assert len(timers.heap) <= 2 * len(table) + 65


def test_t13_cancelled_timers_do_not_pile_up() -> None:
    """RULES T13: neither by moving forward, nor by coming and going."""
    timers = Timers()
    for when in range(10_000, 0, -1):
        timers.arm(1, when)
        timers.arm(when, 50_000)
        timers.cancel(when)
    assert len(timers.heap) <= 66
    assert timers.first() == (NEVER, 0)


def test_t13_many_cancelled_at_once_leave_nothing() -> None:
    """RULES T13: without any new one being armed."""
    timers = Timers()
    for queue_id in range(1, 5001):
        timers.arm(queue_id, queue_id)
    for queue_id in range(2, 5001):
        timers.cancel(queue_id)
    assert len(timers.heap) <= 66
    assert timers.all_due(9999, 10) == [1]


def test_a_deadline_moved_to_and_fro_comes_due_once() -> None:
    timers = Timers()
    for when in (10, 20, 15, 20):
        timers.arm(1, when)
    assert timers.all_due(20, 10) == [1]
