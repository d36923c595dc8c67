"""What the outsider's judge says of histories that are right but for one thing; each kind of finding at least once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.outsider.judging.history import (
    ACK,
    CANCEL,
    CLOSED,
    CONSUME,
    DECLARE,
    DELETE,
    EMPTY,
    FAIL,
    GET,
    OK,
    PASSIVE,
    REFUSED,
    REQUEUE,
    RETURNED,
    Cancelled,
    Ended,
    OutsiderHistory,
    Settle,
    Trouble,
    history_of,
    lines_of,
)
from simulation.outsider.judging.judge import judge
from tests.simulation.outsider.histories import S, called, died, handed, history, one_death, published


def rules(made: OutsiderHistory) -> set[str]:
    return {finding.rule for finding in judge(made).findings}


def test_nothing_is_wrong_with_the_good_ones() -> None:
    assert rules(history()) == set()
    assert rules(one_death()) == set()


def test_a_history_is_the_same_after_a_way_through_lines() -> None:
    made = one_death()
    made.ended.append(Ended("consumer", 9, 1, 50 * S, True))
    made.cancelled.append(Cancelled(9, "dead", "c1", 49 * S))
    made.troubles.append(Trouble("crash", (1, 2), 40 * S, 41 * S))
    assert history_of(lines_of(made)) == made


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"record": "publish"}', "line 1: ValueError: the first record must be the setting"),
        ("nonsense", "line 1: JSONDecodeError"),
        ("", "no setting"),
    ],
)
def test_bad_lines_are_named(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        history_of([line])


def test_a_field_that_is_none_is_named() -> None:
    lines = [*lines_of(history()), '{"record": "settle", "handed": 1, "how": "ack", "sent": 2}']
    with pytest.raises(ValueError, match=r"a Settle has no \['sent'\]"):
        history_of(lines)


def test_confirms_what_is_nowhere_is_lost() -> None:
    made = one_death()
    made.handed.clear()
    made.settles.clear()
    assert "confirms" in rules(made)
    made = history()
    made.publishes.append(published(1, "plain", 2 * S))
    assert rules(made) == {"confirms"}
    made.calls.append(called(DELETE, "plain", 3 * S))
    assert rules(made) == set(), "who deletes a queue deletes its messages"


def test_confirms_what_was_refused_comes_to_nobody() -> None:
    made = one_death()
    made.publishes[0] = replace(made.publishes[0], outcome=REFUSED)
    assert rules(made) == {"confirms"}


def test_t2_what_was_refused_for_its_expiration_comes_to_nobody() -> None:
    made = one_death()
    made.publishes[0] = replace(made.publishes[0], outcome=CLOSED, code=406, expiration="soon")
    assert rules(made) >= {"T2"}
    made.publishes[0] = replace(made.publishes[0], outcome=RETURNED, code=0)
    assert rules(made) >= {"T2"}


def test_t5_nobody_dies_early() -> None:
    made = one_death()
    made.handed[0] = replace(made.handed[0], at_us=2 * S + 950_000, **died("timed", 2 * S + 950_000))
    assert rules(made) == {"T5"}
    made.publishes[0] = replace(made.publishes[0], expiration="500")
    made.handed[0] = replace(made.handed[0], **died("timed", 2 * S + 950_000, original_expiration="500"))
    assert rules(made) == set(), "the lower of two counts"


def test_t5_nobody_gets_what_has_died() -> None:
    made = history()
    made.publishes.append(published(1, "timed", 2 * S))
    late = handed(1, 1, "timed", 3 * S + 50_000, tag="", connection=1, since_us=3 * S + 40_000, no_ack=True)
    made.handed.append(late)
    made.calls.append(replace(called(GET, "timed", 3 * S + 40_000), message=1))
    assert rules(made) == {"T5"}
    made.handed[0] = replace(late, at_us=3 * S, since_us=3 * S - 10_000)
    made.calls[-1] = replace(called(GET, "timed", 3 * S - 10_000), message=1)
    assert rules(made) == set()


def test_t5_a_get_finds_what_is_there() -> None:
    made = one_death()
    made.calls.append(called(GET, "timed", 2 * S + 500_000, outcome=EMPTY))
    assert "T5" in rules(made)


def test_what_is_on_its_way_to_another_shard_may_be_late_and_not_to_be_had_yet_but_not_lost() -> None:
    """Which queues move is kept on a way through lines."""
    moving = history(moved=("timed", "plain"))
    assert history_of(lines_of(moving)) == moving
    made = one_death()
    made.setting = replace(made.setting, moved=("timed",))
    made.calls.append(called(GET, "timed", 2 * S + 500_000, outcome=EMPTY))
    made.handed[0] = replace(made.handed[0], at_us=4 * S)
    made.settles[0] = replace(made.settles[0], sent_us=4 * S + 1)
    assert rules(made) == set()
    moving.publishes.append(published(1, "plain", S))
    assert rules(moving) == {"confirms"}


def test_a_publish_that_comes_while_its_queue_is_being_declared_is_in_it_or_comes_back() -> None:
    """Whatever is done to the cluster. What comes later is in the queue."""
    made = history()
    made.publishes.append(published(1, "leased", 2 * S, outcome=RETURNED))
    declare = replace(called(DECLARE, "leased", 2 * S - 500), answered_us=2 * S + 2_000)
    made.calls += [called(DELETE, "leased", S), declare, called(GET, "leased", 2 * S + 100_000, outcome=EMPTY)]
    assert rules(made) == set()
    made.publishes[0] = published(1, "leased", 2 * S)
    assert rules(made) == {"linearizable"}
    made.troubles.append(Trouble("freeze", (1,), S, 3 * S))
    assert rules(made) == {"linearizable"}
    made.publishes[0] = published(1, "leased", 2 * S + 10_000, outcome=RETURNED)
    assert rules(made) == set(), "one that was deleted and declared anew may be known by its old id"
    made.troubles.clear()
    assert rules(made) == {"linearizable"}


def test_t7_and_s3_what_is_due_comes_soon() -> None:
    made = one_death()
    made.handed[0] = replace(made.handed[0], at_us=4 * S)
    made.settles[0] = replace(made.settles[0], sent_us=4 * S + 1)
    assert rules(made) == {"T7"}
    made.troubles.append(Trouble("freeze", (1,), 2 * S + 500_000, 3 * S))
    assert rules(made) == set(), "nobody is prompt in trouble"


def test_t8_a_get_never_has_what_lives_for_no_time() -> None:
    made = history()
    made.publishes.append(published(1, "plain", 2 * S, expiration="0"))
    made.handed.append(handed(1, 1, "plain", 2 * S + 900, tag="", since_us=2 * S - 5, no_ack=True, expiration="0"))
    assert "T8" in rules(made)


def test_t10_what_is_held_does_not_die() -> None:
    made = one_death()
    made.handed.append(handed(2, 1, "timed", 2 * S + 100_000, connection=8))
    made.settles.append(Settle(2, REQUEUE, 5 * S))
    assert rules(made) == {"T10"}
    made.settles[-1] = Settle(2, REQUEUE, 2 * S + 200_000)
    assert rules(made) == set()


def test_t11_expirations_are_left_alone() -> None:
    made = history()
    made.publishes.append(published(1, "plain", 2 * S, expiration="60000"))
    made.handed.append(handed(1, 1, "plain", 3 * S, expiration=None))
    made.settles.append(Settle(1, ACK, 4 * S))
    assert rules(made) == {"T11"}


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (died("timed", 3 * S, count=2), "D3"),
        (died("timed", 3 * S, exchange="other"), "D3"),
        (died("timed", 3 * S, routing_keys=("other",)), "D3"),
        (died("timed", 3 * S, original_expiration="1000"), "D3"),
        (died("timed", 30 * S), "D3"),
        (died("timed", 3 * S, "rejected"), "D2"),
        (died("plain", 3 * S), "D1"),
        ({**died("timed", 3 * S), "first_death": ("plain", "expired")}, "D4"),
        ({**died("timed", 3 * S), "last_death": None}, "D4"),
        ({**died("timed", 3 * S), "expiration": "1000"}, "D4"),
    ],
)
def test_d1_d2_d3_d4_what_a_dead_letter_says_of_itself(wrong: dict[str, object], rule: str) -> None:
    made = one_death()
    made.handed[0] = replace(made.handed[0], **wrong)  # type: ignore[arg-type]  # fields of a row of parameters
    assert rule in rules(made)


def test_d3_a_death_is_dated_by_a_clock_that_may_have_fallen_behind() -> None:
    for lag_ms, fits in ((0, False), (900, False), (2_000, True)):
        made = one_death()
        death = made.handed[0].deaths[0]
        made.handed[0] = replace(made.handed[0], deaths=(replace(death, time_s=death.time_s - 2),))
        made.setting = replace(made.setting, behind_ms=lag_ms)
        assert ("D3" in rules(made)) != fits


def test_d5_nobody_comes_back_to_where_he_died() -> None:
    made = history()
    made.publishes.append(published(1, "looped", 2 * S))
    assert rules(made) == set(), "dropped where it would come back"
    there, back = died("looped", 3 * S), died("loop end", 4 * S, routing_keys=("loop end",))
    deaths = (*back["deaths"], *there["deaths"])
    came = handed(1, 1, "looped", 5 * S, deaths=deaths, first_death=there["first_death"], last_death=back["last_death"])
    made.handed.append(came)
    assert "D5" in rules(made)


def test_d6_nobody_is_dead_and_alive() -> None:
    made = one_death()
    made.handed.append(handed(2, 1, "timed", 2 * S + 100_000, connection=8))
    made.settles.append(Settle(2, ACK, 2 * S + 200_000))
    assert rules(made) == {"D6"}


def test_once_no_message_comes_twice() -> None:
    made = one_death()
    made.handed.append(replace(made.handed[0], number=2, at_us=8 * S))
    assert "once" in rules(made)
    made.handed[1] = replace(made.handed[1], redelivered=True, since_us=7 * S)
    assert "once" in rules(made), "it was acknowledged long before"


def test_once_nobody_has_what_somebody_holds() -> None:
    made = history()
    made.publishes.append(published(1, "plain", 2 * S))
    made.handed += [handed(1, 1, "plain", 3 * S), handed(2, 1, "plain", 4 * S, redelivered=True, connection=8)]
    made.settles += [Settle(1, REQUEUE, 5 * S), Settle(2, ACK, 6 * S)]
    assert rules(made) == {"once"}


def test_once_nobody_gets_what_nobody_sent() -> None:
    made = one_death()
    made.handed.append(handed(2, -1, "dead", 8 * S))
    assert rules(made) == {"once"}


def test_order_and_d7() -> None:
    made = one_death()
    made.publishes.append(published(2, "timed", 2 * S + 10_000))
    first = replace(made.handed[0], number=2, message=2, at_us=made.handed[0].at_us - 1)
    made.handed.append(first)
    made.settles.append(Settle(2, ACK, 4 * S))
    assert rules(made) == {"D7"}
    made = history()
    made.publishes += [published(1, "plain", 2 * S), published(2, "plain", 3 * S)]
    made.handed += [handed(1, 2, "plain", 4 * S), handed(2, 1, "plain", 5 * S)]
    made.settles += [Settle(1, ACK, 6 * S), Settle(2, ACK, 6 * S)]
    assert rules(made) == {"order"}


def test_s2_s3_schedules() -> None:
    made = history()
    made.calls.append(replace(called(CONSUME, "later", S, 9), tag="c1"))
    made.publishes += [published(1, "later", 2 * S, delay_ms=2_000), published(2, "later", 2 * S, delay_ms=1_000)]
    made.handed += [handed(1, 2, "later", 3 * S + 1_000), handed(2, 1, "later", 4 * S + 1_000)]
    made.settles += [Settle(1, ACK, 6 * S), Settle(2, ACK, 6 * S)]
    assert rules(made) == set()
    made.handed[0] = replace(made.handed[0], at_us=2 * S + 900_000)
    assert rules(made) == {"S3"}
    made.handed[0] = replace(made.handed[0], at_us=4 * S + 100_000)
    assert rules(made) == {"S2", "S3"}, "behind one that was due later, and late"


def test_s3_nothing_comes_to_a_consumer_that_was_taken_away_in_trouble() -> None:
    made = history()
    made.calls.append(replace(called(CONSUME, "later", S, 9), tag="c1"))
    made.cancelled.append(Cancelled(9, "later", "c1", 2 * S))
    made.publishes.append(published(1, "later", 5 * S, delay_ms=1_000))
    made.calls.append(replace(called(CONSUME, "later", 8 * S, 9), tag="c2"))
    made.handed.append(replace(handed(1, 1, "later", 8 * S + 1_000), tag="c2", since_us=8 * S))
    made.settles.append(Settle(1, ACK, 8 * S + 2_000))
    assert rules(made) == {"S3"}, "in quiet nobody may be taken away"
    made.troubles.append(Trouble("partition", (), S * 3 // 2, 2 * S))
    assert rules(made) == set()


def test_s5_retries_wait() -> None:
    made = history()
    made.publishes.append(published(1, "again", 2 * S))
    made.handed += [handed(1, 1, "again", 3 * S), handed(2, 1, "again", 3 * S + 700_000, redelivered=True)]
    made.settles += [Settle(1, REQUEUE, 3 * S + 100_000), Settle(2, ACK, 4 * S)]
    assert rules(made) == set()
    made.settles[0] = Settle(1, REQUEUE, 3 * S + 400_000)
    assert rules(made) == {"S5"}
    made.settles[0] = Settle(1, REQUEUE, 3 * S + 100_000)
    made.handed.append(handed(3, 1, "again", 6 * S, redelivered=True))
    made.settles[1:] = [Settle(2, REQUEUE, 5 * S + 300_000), Settle(3, ACK, 7 * S)]
    assert rules(made) == set()
    made.settles[:2] = [Settle(1, FAIL, 3 * S + 100_000), Settle(2, FAIL, 5 * S + 300_000)]
    assert rules(made) == {"S5"}, "the second time it waits for twice as long"


def test_d2_a_limit_is_a_limit() -> None:
    made = history()
    made.publishes.append(published(1, "tried", 2 * S))
    made.handed += [handed(n, 1, "tried", (2 + 2 * n) * S, redelivered=n > 1, since_us=(2 + 2 * n) * S) for n in (1, 2)]
    made.settles += [Settle(n, FAIL, (3 + 2 * n) * S) for n in (1, 2)]
    made.handed.append(handed(4, 1, "dead", 20 * S, **died("tried", 7 * S, "delivery_limit")))
    made.settles.append(Settle(4, ACK, 21 * S))
    assert rules(made) == set()
    made.handed.append(handed(3, 1, "tried", 8 * S, redelivered=True, since_us=8 * S))
    made.settles.append(Settle(3, FAIL, 9 * S))
    assert rules(made) == {"D2"}


def test_d9_a_short_queue_is_short() -> None:
    made = history()
    made.publishes += [published(n, "short", n * S) for n in (1, 2)]
    made.handed += [handed(n, n, "short", 60 * S + n, tag="", since_us=60 * S, no_ack=True) for n in (1, 2)]
    assert rules(made) == {"D9"}


def test_t1_l1_d1_bad_declares() -> None:
    made = history()
    made.calls.append(replace(called(DECLARE, "new", S), bad=True))
    assert rules(made) == {"T1"}
    made.calls[-1] = replace(called(DECLARE, "plain", S, outcome=CLOSED, code=406))
    assert "D1" in rules(made)


def leased(*calls: tuple[str, int, str, int]) -> set[str]:
    made = history()
    made.calls += [called(kind, "leased", at_us, 5, outcome, code) for kind, at_us, outcome, code in calls]
    return rules(made)


def test_l2_l4_leases_end_when_they_end() -> None:
    assert leased((PASSIVE, S // 2, OK, 0), (PASSIVE, S + 400_000, OK, 0)) == set()
    assert leased((PASSIVE, S // 2, OK, 0), (PASSIVE, S + 400_000, CLOSED, 404)) == {"linearizable"}
    assert leased((GET, S // 2, EMPTY, 0), (PASSIVE, S + 600_000, CLOSED, 404)) == set()
    assert leased((PASSIVE, 5 * S, OK, 0)) == {"linearizable"}, "it must have been gone for seconds"


def test_l3_l5_whoever_consumes_keeps_the_queue() -> None:
    assert leased((CONSUME, S // 2, OK, 0), (PASSIVE, 5 * S, OK, 0)) == set()
    assert leased((CONSUME, S // 2, OK, 0), (PASSIVE, 5 * S, CLOSED, 404)) == {"linearizable"}
    ended = ((CONSUME, S // 2, OK, 0), (CANCEL, S, OK, 0))
    assert leased(*ended, (PASSIVE, S + 900_000, CLOSED, 404)) == {"linearizable"}
    assert leased(*ended, (PASSIVE, 2 * S + 100_000, CLOSED, 404)) == set()


def test_l5_a_consumer_whose_queue_was_taken_away() -> None:
    made = history()
    made.calls.append(replace(called(CONSUME, "leased", S // 2, 5), tag="c1"))
    made.calls.append(called(PASSIVE, "leased", S * 3 // 2, 6))
    made.cancelled.append(Cancelled(5, "leased", "c1", S))
    assert rules(made) == {"linearizable"}
    made.calls.append(called(DELETE, "leased", S * 8 // 10, 6))
    made.calls[-2] = called(DECLARE, "leased", S * 3 // 2, 6)
    assert rules(made) == set()


def test_linearizable_deletes_and_gets() -> None:
    made = history()
    made.calls += [called(DELETE, "plain", S), called(PASSIVE, "plain", 2 * S, 3)]
    assert rules(made) == {"linearizable"}
    made = history()
    made.publishes += [published(1, "plain", S), published(2, "plain", 2 * S)]
    first, second = (replace(called(GET, "plain", at_us), message=n) for n, at_us in ((1, 3 * S), (2, 4 * S)))
    made.calls += [first, second]
    made.handed += [
        handed(n, n, "plain", (2 + n) * S + 1_000, tag="", connection=1, since_us=(2 + n) * S, no_ack=True)
        for n in (1, 2)
    ]
    assert rules(made) == set()
    made.calls[-2:] = [replace(first, message=2), replace(second, message=1)]
    assert "linearizable" in rules(made)
    made.calls[-2:] = [first, called(GET, "plain", 4 * S, outcome=EMPTY)]
    assert "linearizable" in rules(made)
