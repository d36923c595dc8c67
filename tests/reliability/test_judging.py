"""What the judge of real runs objects to beyond the simulator's checker, which has tests of its own."""

from simulation.node.history import ACK, CONFIRMED, RETURNED, Attachment, Delivery, History, Publish
from tests.reliability.judging import judge

SECOND = 1_000_000


def history(redelivered_to: str = "", outcome: str = CONFIRMED) -> History:
    """One message, consumed by `first` at 2 s; and once more, at 6 s, if somebody is named."""
    made = History(calm_us=20 * SECOND, ended_us=30 * SECOND)
    made.publishes[1] = Publish(1, 1, 1, ("queue",), None, SECOND, outcome, SECOND + 1)
    made.attachments = [Attachment("queue", "first", 0, 1), Attachment("queue", "second", 0, 1)]
    made.attachments.append(Attachment("queue", "late", 5 * SECOND, 5 * SECOND))
    made.deliveries = [Delivery(2 * SECOND, "queue", 1, "first", False, settled=ACK, settled_us=2 * SECOND)]
    if redelivered_to:
        made.deliveries.append(Delivery(6 * SECOND, "queue", 1, redelivered_to, True, settled=ACK))
    return made


def rules(made: History, proven: dict[int, int]) -> list[str]:
    return [violation.rule for violation in judge(made, ["queue"], proven)]


def test_an_acknowledged_message_is_fine() -> None:
    assert rules(history(), {1: 3 * SECOND}) == []


def test_a_message_whose_acknowledgement_may_have_been_lost_may_come_again() -> None:
    assert rules(history("late"), {}) == []


def test_a_message_whose_acknowledgement_was_applied_goes_to_no_new_consumer() -> None:
    assert rules(history("late"), {1: 3 * SECOND}) == ["acknowledged"]


def test_a_consumer_that_was_there_before_may_have_been_given_it_earlier() -> None:
    """It was on its way to a frozen client when that lost it, and another one acknowledged it meanwhile."""
    assert rules(history("second"), {1: 3 * SECOND}) == []


def test_no_message_is_unroutable() -> None:
    assert rules(history(outcome=RETURNED), {}) == ["returned"]


def test_the_simulators_checker_is_asked() -> None:
    made = history()
    made.deliveries.clear()
    assert rules(made, {}) == ["lost"]


def test_clients_that_wait_in_vain_long_after_the_last_fault_are_missed() -> None:
    made = history()
    made.ended_us = 60 * SECOND
    made.given_up = [(made.calm_us + 29 * SECOND, "first", 1)]
    assert rules(made, {}) == []
    made.given_up = [(made.calm_us + 31 * SECOND, "first", 1)]
    assert rules(made, {}) == ["unanswered"]
