"""What the judge of dead letters objects to."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import commands

from simulation.node.history import CONFIRMED, IN_DOUBT, Delivery, History, Publish
from tests.reliability.dead_letter_judging import Source, Target, fault_of_death, judge_dead_letters, lags
from tests.reliability.faults import Fault

SECOND = 1_000_000
WATCHED = Target("watched", True)
KEPT = Target("kept", False)
ALSO_KEPT = Target("also kept", False)
SOURCES = [Source("ttl", 1_000, (WATCHED,)), Source("each", None, (KEPT, ALSO_KEPT))]


def publish(number: int, queue: str, outcome: str = CONFIRMED) -> Publish:
    """Number n at n seconds, confirmed half a second later."""
    ttl_ms = 1_000 if queue == "each" else None
    return Publish(number, 1, number, (queue,), ttl_ms, number * SECOND, outcome, number * SECOND + SECOND // 2)


def delivery(number: int, queue: str, at_s: float | None = None, holder: str = "", again: bool = False) -> Delivery:
    """A tenth of a second after the message was due, if nothing else is said."""
    at_us = round(SECOND * (number + 1.1 if at_s is None else at_s))
    return Delivery(at_us, queue, number, holder or f"{queue} consumer", again)


@pytest.fixture
def history() -> History:
    """Messages 1 and 3 died of the queue's TTL, 2 and 4 of their own expirations; all arrived."""
    made = History()
    made.publishes = {n: publish(n, "ttl" if n % 2 else "each") for n in (1, 2, 3, 4)}
    made.deliveries = [
        *(delivery(n, "watched") for n in (1, 3)),
        *(delivery(n, queue) for queue in ("kept", "also kept") for n in (2, 4)),
    ]
    return made


def rules(made: History) -> list[str]:
    return [violation.rule for violation in judge_dead_letters(made, SOURCES)]


def test_once_in_each_target_is_fine(history: History) -> None:
    assert rules(history) == []


def test_a_confirmed_message_is_missed_in_each_target(history: History) -> None:
    history.deliveries = [each for each in history.deliveries if (each.queue, each.message_id) != ("also kept", 2)]
    assert rules(history) == ["missing"]


def test_a_message_in_doubt_may_be_missing(history: History) -> None:
    history.publishes[2].outcome = IN_DOUBT
    history.deliveries = [each for each in history.deliveries if each.message_id != 2]
    assert rules(history) == []


@pytest.mark.parametrize("outcome", [CONFIRMED, IN_DOUBT])
def test_none_may_come_twice(history: History, outcome: str) -> None:
    history.publishes[3].outcome = outcome
    history.deliveries.append(delivery(3, "watched", 9))
    assert rules(history) == ["twice"]


def test_what_a_failed_nodes_consumer_held_may_come_again(history: History) -> None:
    history.deliveries.append(delivery(3, "watched", 9, "another", again=True))
    assert rules(history) == []


def test_nothing_comes_again_on_a_calm_cluster(history: History) -> None:
    history.deliveries.append(delivery(4, "kept", 9, again=True))
    assert rules(history) == ["twice"]


def test_dead_letters_of_a_channel_keep_their_order(history: History) -> None:
    """Messages 2 and 4 of one channel change places in one of their targets."""
    history.publishes[2].completed_us = 5 * SECOND
    history.deliveries[2:4] = [delivery(4, "kept"), delivery(2, "kept", 5.2)]
    assert rules(history) == ["order"]


def test_what_was_confirmed_before_another_was_published_is_before_it(history: History) -> None:
    history.publishes[4].stream = 2
    history.deliveries[2:4] = [delivery(4, "kept"), delivery(2, "kept", 5.2)]
    assert rules(history) == ["order"]


def test_what_was_published_at_the_same_time_through_other_channels_has_no_order(history: History) -> None:
    history.publishes[4].stream = 2
    history.publishes[2].completed_us = 5 * SECOND
    history.deliveries[2:4] = [delivery(4, "kept"), delivery(2, "kept", 5.2)]
    assert rules(history) == []


def test_t5_none_is_early(history: History) -> None:
    history.deliveries[0] = delivery(1, "watched", 1.9)
    assert rules(history) == ["early"]


def test_nothing_comes_to_a_queue_where_it_does_not_belong(history: History) -> None:
    history.deliveries.append(delivery(1, "kept", 9))
    history.deliveries.append(delivery(77, "kept", 9))
    assert rules(history)[:2] == ["invented", "invented"]


def test_the_lag_is_told_for_faults_and_for_quiet_times(history: History) -> None:
    fault = Fault("kill", (1,), at_us=3 * SECOND, healed_us=4 * SECOND, whole_us=5 * SECOND)
    found = lags(history, SOURCES, [fault])
    assert found.quiet_ms == [pytest.approx(100)]
    assert found.faulty_ms == [pytest.approx(100)]


# ------------------------------------------------------------------------------------------------ x-death


def properties(**changes: Any) -> commands.Basic.Properties:
    """Of a message that died in `each`; with other fields of its x-death entry."""
    death: dict[str, Any] = {
        "count": 1, "reason": "expired", "queue": "each", "exchange": "", "routing-keys": ["each"],
        "time": datetime.now(UTC), "original-expiration": "1000",
    }  # fmt: skip
    told = {"reason": "expired", "queue": "each", "exchange": ""}
    summary = {f"x-{which}-death-{key}": value for which in ("first", "last") for key, value in told.items()}
    headers: dict[str, Any] = {"x-death": [{**death, **changes}], **summary}
    return commands.Basic.Properties(headers=headers)


def test_d3_one_plain_death() -> None:
    assert fault_of_death(properties(), False, publish(2, "each"), SOURCES[1]) == ""


@pytest.mark.parametrize(
    "changes",
    [{"count": 2}, {"reason": "rejected"}, {"queue": "other"}, {"original-expiration": "999"}, {"time": None}],
)
def test_d3_another_story(changes: dict[str, Any]) -> None:
    assert fault_of_death(properties(**changes), False, publish(2, "each"), SOURCES[1])


def without(name: str) -> commands.Basic.Properties:
    made = properties()
    assert made.headers is not None
    del made.headers[name]
    return made


def with_header(name: str, value: int) -> commands.Basic.Properties:
    made = properties()
    assert made.headers is not None
    made.headers[name] = value
    return made


def test_d4_the_summary_belongs_to_it_and_the_expiration_does_not() -> None:
    expiring = properties()
    expiring.expiration = "1000"
    redelivered = with_header("x-acquired-count", 1)
    for each in (without("x-last-death-queue"), expiring, redelivered):
        assert fault_of_death(each, False, publish(2, "each"), SOURCES[1])
    assert fault_of_death(redelivered, True, publish(2, "each"), SOURCES[1]) == ""
