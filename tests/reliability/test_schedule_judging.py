"""What the judge of schedules and retries objects to, in histories made up."""

from collections.abc import Callable

import pytest
from pamqp import commands

from simulation.node.history import (
    ACK,
    CONFIRMED,
    IN_DOUBT,
    REFUSED,
    REQUEUE,
    RETURNED,
    Cancel,
    Delivery,
    History,
    Publish,
)
from tests.reliability.faults import Fault
from tests.reliability.schedule_judging import (
    GIVEN_BACK,
    Attempt,
    ClockFaults,
    Place,
    Retry,
    fault_of_delay,
    judge_schedules,
    lags,
    schedule_table,
)

SECOND = 1_000_000
WAITS_MS = 2_000
RETRY = Retry(1_000, 2_500)
PLACES = [Place("scheduled"), Place("routed", "later"), Place("retried", retry=RETRY)]


def publish(number: int, queue: str, delay_ms: int = WAITS_MS) -> Publish:
    """Number n at n seconds, confirmed half a second later."""
    at_us = number * SECOND
    return Publish(number, 1, number, (queue,), None, at_us, CONFIRMED, at_us + SECOND // 2, delay_ms=delay_ms)


def attempt(
    number: int, queue: str, at_s: float, answer: str = ACK, acquired: int = 0, failed: int = 0, applied: bool = True
) -> Attempt:
    """Answered a tenth of a second after it came; it is known that the answer was applied, or not."""
    at_us = round(SECOND * at_s)
    return Attempt(
        at_us, queue, number, f"{queue} consumer", acquired > 0, settled=answer, settled_us=at_us + SECOND // 10,
        acquired=acquired, failed=failed, applied_us=at_us + SECOND if applied else -1,
    )  # fmt: skip


def cancel(number: int, queue: str, outcome: str, at_s: float) -> Cancel:
    """Answered a tenth of a second later."""
    at_us = round(SECOND * at_s)
    return Cancel(number, queue, at_us, outcome, at_us + SECOND // 10)


@pytest.fixture
def history() -> History:
    """Message 1 waited in its queue, 2 for an exchange; 3 was rejected, then given back; 4 was cancelled."""
    made = History()
    made.publishes = {
        1: publish(1, "scheduled"), 2: publish(2, "routed"), 3: publish(3, "retried", 0), 4: publish(4, "scheduled"),
    }  # fmt: skip
    made.deliveries = [
        attempt(1, "scheduled", 3.1),
        attempt(2, "routed", 4.1),
        attempt(3, "retried", 3.1, REQUEUE),
        attempt(3, "retried", 4.3, GIVEN_BACK, 1, 1),
        attempt(3, "retried", 5.5, ACK, 2, 1),
    ]
    made.cancels = [cancel(4, "scheduled", CONFIRMED, 5)]
    return made


def rules(made: History) -> list[str]:
    return [violation.rule for violation in judge_schedules(made, PLACES)]


def test_all_as_it_was_wanted(history: History) -> None:
    assert rules(history) == []


@pytest.mark.parametrize("number", [1, 2])
def test_s3_a_confirmed_message_that_does_not_come_is_lost(history: History, number: int) -> None:
    history.deliveries = [each for each in history.deliveries if each.message_id != number]
    assert rules(history) == ["lost"]


def test_s5_a_message_that_was_given_back_and_does_not_come_again_is_lost(history: History) -> None:
    del history.deliveries[-1]
    assert rules(history) == ["lost"]


@pytest.mark.parametrize("outcome", [IN_DOUBT, REFUSED])
def test_s4_what_may_be_cancelled_may_come_or_not(history: History, outcome: str) -> None:
    history.cancels[0].outcome = outcome
    assert rules(history) == []
    history.deliveries.append(attempt(4, "scheduled", 6.1))
    assert rules(history) == []


def test_s4_what_was_not_cancelled_has_to_come(history: History) -> None:
    history.cancels = [cancel(4, "scheduled", RETURNED, 6.05)]
    assert rules(history) == ["lost"]
    history.deliveries.append(attempt(4, "scheduled", 6.1))
    assert rules(history) == []


def test_s4_nothing_comes_after_an_answered_cancel(history: History) -> None:
    history.deliveries.append(attempt(4, "scheduled", 6.1))
    assert rules(history) == ["S4 cancelled"]


def test_s4_what_waits_can_be_cancelled(history: History) -> None:
    """The answer that nothing was waiting came a second before the message was due."""
    history.cancels = [cancel(4, "scheduled", RETURNED, 4.9)]
    history.deliveries.append(attempt(4, "scheduled", 6.1))
    (found,) = judge_schedules(history, PLACES)
    assert (found.rule, found.text.rpartition(", ")[2]) == ("S4 waiting", "979 ms before it was due")


def test_s4_what_a_fast_clock_took_for_due_did_not_wait(history: History) -> None:
    """The message waited for two seconds. A clock that is ahead, or fast, lets it be due so much sooner."""
    history.cancels = [cancel(4, "scheduled", RETURNED, 5.8)]
    history.deliveries.append(attempt(4, "scheduled", 6.1))

    def told(clocks: ClockFaults) -> list[str]:
        return [violation.rule for violation in judge_schedules(history, PLACES, clocks)]

    assert told(ClockFaults()) == ["S4 waiting"] == told(ClockFaults(fast=0.02))
    assert told(ClockFaults(differ_us=100_000)) == [] == told(ClockFaults(fast=0.05))


def test_s3_none_is_early(history: History) -> None:
    history.deliveries[0] = attempt(1, "scheduled", 2.9)
    history.deliveries[1] = attempt(2, "routed", 3.9)
    assert rules(history) == ["early", "early"]


def test_s3_s5_waits_are_shorter_only_by_as_much_as_clocks_were_wrong(history: History) -> None:
    history.deliveries[0] = attempt(1, "scheduled", 2.9)
    history.deliveries[-1] = attempt(3, "retried", 5.3, ACK, 2, 1)

    def told(clocks: ClockFaults) -> list[str]:
        return [violation.rule for violation in judge_schedules(history, PLACES, clocks)]

    assert told(ClockFaults()) == ["early", "retry early"]
    assert told(ClockFaults(fast=0.05)) == ["retry early"]
    assert told(ClockFaults(differ_us=50_000)) == ["early", "retry early"]
    assert told(ClockFaults(differ_us=90_000)) == [] == told(ClockFaults(fast=0.2))


@pytest.mark.parametrize("outcome", [CONFIRMED, IN_DOUBT])
def test_s3_none_comes_for_the_first_time_twice(history: History, outcome: str) -> None:
    history.publishes[1].outcome = outcome
    history.deliveries.append(attempt(1, "scheduled", 9))
    assert rules(history) == ["twice"]


def test_no_attempt_comes_twice(history: History) -> None:
    """Both consumers have the second attempt."""
    history.deliveries.insert(4, attempt(3, "retried", 4.4, GIVEN_BACK, 1, 1))
    assert rules(history) == ["twice"]


def test_what_is_off_its_queue_comes_no_more(history: History) -> None:
    history.deliveries.append(attempt(1, "scheduled", 9, ACK, 1, 0))
    assert rules(history) == ["twice"]


def test_an_acknowledgement_may_be_lost_with_its_node(history: History) -> None:
    history.deliveries[0] = attempt(1, "scheduled", 3.1, ACK, applied=False)
    history.deliveries.append(attempt(1, "scheduled", 9, ACK, 1, 0))
    assert rules(history) == []


def test_a_message_that_came_back_says_so(history: History) -> None:
    history.deliveries[-1].redelivered = False
    assert rules(history) == ["twice"]


def test_s5_a_retry_waits(history: History) -> None:
    """The last attempt came 0.9 s after it was given back, once for a second failed delivery: those wait for 2 s."""
    history.deliveries[-1] = attempt(3, "retried", 5.3, ACK, 2, 1)
    assert rules(history) == ["retry early"]
    history.deliveries[-2:] = [attempt(3, "retried", 4.3, REQUEUE, 1, 1), attempt(3, "retried", 6.2, ACK, 2, 2)]
    assert rules(history) == ["retry early"]


def test_s5_a_retry_waits_also_where_the_answer_may_be_lost(history: History) -> None:
    """Whatever brought it back did so after it was published."""
    history.deliveries[2:] = [
        attempt(3, "retried", 3.1, REQUEUE, applied=False), attempt(3, "retried", 3.9, ACK, 1, 1),
    ]  # fmt: skip
    assert rules(history) == ["early"]


@pytest.mark.parametrize(
    "change",
    [
        lambda deliveries: deliveries.__setitem__(4, attempt(3, "retried", 7.5, ACK, 2, 2)),
        lambda deliveries: deliveries.__setitem__(3, attempt(3, "retried", 4.3, GIVEN_BACK, 1, 0)),
        lambda deliveries: deliveries.__setitem__(3, attempt(3, "retried", 9, GIVEN_BACK, 1, 2)),
        lambda deliveries: deliveries.__setitem__(4, attempt(3, "retried", 9, ACK, 2, 0)),
    ],
)
def test_q1_s5_attempts_are_counted(history: History, change: Callable[[list[Delivery]], None]) -> None:
    """`basic.nack` as a failed delivery, `basic.reject` as none, more failed than came back, and forgotten ones."""
    change(history.deliveries)
    assert "attempts" in rules(history)


def test_a_node_that_hung_gives_its_client_late_what_it_had_for_it(history: History) -> None:
    history.deliveries[3] = attempt(3, "retried", 7, "", 1, 1, applied=False)
    assert rules(history) == []


def test_nothing_comes_that_was_not_published_there(history: History) -> None:
    history.deliveries.append(attempt(1, "routed", 9))
    history.deliveries.append(attempt(77, "scheduled", 9))
    history.publishes[5] = publish(5, "scheduled")
    history.publishes[5].outcome = RETURNED
    assert rules(history) == ["invented", "invented", "returned"]


@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        (Retry(200, 500), [200, 400, 500, 500]),
        (Retry(100, 350, multiplier=2), [100, 200, 350, 350]),
        (Retry(100, 350, multiplier=1), [100, 100, 100, 100]),
    ],
)
def test_s5_how_long_retries_wait(retry: Retry, waits: list[int]) -> None:
    assert [retry.least_ms(number, number, True) for number in range(1, 5)] == waits
    assert retry.least_in_all_ms(4, 4) == sum(waits)


def test_s5_what_was_given_back_counts_as_it_is_said() -> None:
    """Without a multiplier only failed deliveries make it longer, and with the type `failed` only they wait."""
    assert [Retry(200, 500).least_ms(number, 1, False) for number in range(1, 5)] == [200] * 4
    assert Retry(200, 500).least_in_all_ms(4, 2) == 200 + 400 + 2 * 200
    only = Retry(200, 500, only_failed=True)
    assert [only.least_ms(1, 0, False), only.least_ms(2, 1, True)] == [0, 200]
    assert only.least_in_all_ms(4, 2) == 200 + 400


def test_s1_a_delay_is_negated_behind_its_exchange() -> None:
    came = commands.Basic.Properties(headers={"x-delay": -WAITS_MS})
    as_published = commands.Basic.Properties(headers={"x-delay": WAITS_MS})
    assert fault_of_delay(came, publish(2, "routed"), PLACES[1]) == ""
    assert fault_of_delay(as_published, publish(2, "routed"), PLACES[1])
    assert fault_of_delay(as_published, publish(1, "scheduled"), PLACES[0]) == ""


def test_the_figures_are_of_what_happened(history: History) -> None:
    fault = Fault("kill", (1,), at_us=3_500_000, healed_us=4 * SECOND, whole_us=5 * SECOND)
    found = lags(history, [fault])
    assert found.quiet_ms == [pytest.approx(100)]
    assert found.faulty_ms == [pytest.approx(100)]
    table = schedule_table(history, PLACES, [fault], judge_schedules(history, PLACES))
    assert "| 1: in their queue | 2 | 2 | 1 | 0 | 0 | 1 | 0 | 1 |" in table
    assert "| 1: in their queue, then for each retry | 1 | 1 | 0 | 0 | 0 | 3 | 2 | 3 |" in table
