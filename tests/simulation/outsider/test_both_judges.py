"""One history and two verdicts: the outsider's judge, and the first one, in `simulation.node.checker`.

RULES T5, D2, D3, D6, D7, L3, L4, S2, S3, confirms. What is broken here both object to, so that it means something if
neither does. Whole runs with two verdicts are in `test_outsider.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from simulation.node.history import ACK, DECLARE, GET
from simulation.outsider.both_judges import in_other_words, verdict_of_first
from simulation.outsider.judging import history as outside
from simulation.outsider.judging.history import (
    CANCEL,
    CLOSED,
    CONSUME,
    DELETE,
    OK,
    REFUSED,
    UNKNOWN,
    Ended,
    OutsiderHistory,
    Settle,
    Trouble,
)
from simulation.outsider.judging.judge import judge
from simulation.outsider.run import OutsiderRun
from simulation.outsider.scenario import draw_scenario
from tests.bugs.outsider_table import CAUGHT, KINDS, try_in_a_process
from tests.simulation.outsider.histories import S, called, died, handed, history, one_death, published


def verdicts(made: OutsiderHistory) -> tuple[set[str], set[str]]:
    """The rules that each of the two finds broken."""
    return {each.rule for each in judge(made).findings}, {each.rule for each in verdict_of_first(made)}


def lost() -> OutsiderHistory:
    made = history()
    made.publishes.append(published(1, "plain", 2 * S))
    return made


def lost_where_the_dead_go() -> OutsiderHistory:
    made = one_death()
    made.handed.clear()
    made.settles.clear()
    return made


def invented() -> OutsiderHistory:
    made = one_death()
    made.handed.append(handed(2, -1, "dead", 8 * S))
    return made


def changed() -> OutsiderHistory:
    made = one_death()
    made.handed[0] = replace(made.handed[0], expiration="1000")
    return made


def twice() -> OutsiderHistory:
    made = one_death()
    made.handed.append(replace(made.handed[0], number=2, at_us=8 * S))
    return made


def early() -> OutsiderHistory:
    made = one_death()
    made.handed[0] = replace(made.handed[0], at_us=2 * S + 950_000, **died("timed", 2 * S + 950_000))
    return made


def given_out_late() -> OutsiderHistory:
    made = history()
    made.publishes.append(published(1, "timed", 10 * S))
    at_us = 13 * S
    late = handed(1, 1, "timed", at_us, tag="", connection=1, since_us=at_us - 10_000, no_ack=True)
    made.handed.append(late)
    made.calls.append(replace(called(outside.GET, "timed", at_us - 10_000), message=1))
    return made


def died_of_nothing() -> OutsiderHistory:
    made = one_death()
    made.handed[0] = replace(made.handed[0], **died("timed", 3 * S, "rejected"))
    return made


def died_twice() -> OutsiderHistory:
    made = one_death()
    made.handed[0] = replace(made.handed[0], **died("timed", 3 * S, count=2))
    return made


def out_of_order() -> OutsiderHistory:
    made = history()
    made.publishes += [published(1, "plain", 2 * S), published(2, "plain", 3 * S)]
    made.handed += [handed(1, 2, "plain", 4 * S), handed(2, 1, "plain", 5 * S)]
    made.settles += [Settle(1, outside.ACK, 6 * S), Settle(2, outside.ACK, 6 * S)]
    return made


def dead_out_of_order() -> OutsiderHistory:
    made = one_death()
    made.publishes.append(published(2, "timed", 2 * S + 10_000))
    made.handed.append(replace(made.handed[0], number=2, message=2, at_us=made.handed[0].at_us - 1))
    made.settles.append(Settle(2, outside.ACK, 4 * S))
    return made


def refused_and_there() -> OutsiderHistory:
    made = one_death()
    made.publishes[0] = replace(made.publishes[0], outcome=REFUSED)
    return made


def not_due() -> OutsiderHistory:
    made = history()
    made.publishes.append(published(1, "later", 2 * S, delay_ms=2_000))
    made.handed.append(handed(1, 1, "later", 3 * S))
    made.settles.append(Settle(1, outside.ACK, 4 * S))
    return made


def lease_that_was_renewed() -> OutsiderHistory:
    made = history()
    made.calls += [
        called(outside.PASSIVE, "leased", S // 2, 5),
        called(outside.PASSIVE, "leased", S + 400_000, 5, CLOSED, 404),
    ]
    return made


def lease_under_a_consumer() -> OutsiderHistory:
    made = history()
    made.calls += [
        replace(called(CONSUME, "leased", S // 2, 5), tag="c1"),
        called(outside.PASSIVE, "leased", 5 * S, 6, CLOSED, 404),
    ]
    return made


def lease_after_a_consumer() -> OutsiderHistory:
    made = lease_under_a_consumer()
    made.calls[-1] = replace(called(CANCEL, "leased", 4 * S + 500_000, 5), tag="c1")
    made.calls.append(called(outside.PASSIVE, "leased", 5 * S, 6, CLOSED, 404))
    return made


def gone_without_a_lease() -> OutsiderHistory:
    made = history()
    made.calls.append(called(outside.PASSIVE, "plain", 5 * S, 6, CLOSED, 404))
    return made


BROKEN: dict[Callable[[], OutsiderHistory], str] = {
    lost: "lost", lost_where_the_dead_go: "lost", invented: "invented", changed: "invented", twice: "duplicate",
    early: "T5 early", given_out_late: "T5 late", died_of_nothing: "invented", died_twice: "invented",
    out_of_order: "order", dead_out_of_order: "D7", refused_and_there: "refused", not_due: "S3 early",
    lease_that_was_renewed: "L4", lease_under_a_consumer: "L3", lease_after_a_consumer: "L3",
    gone_without_a_lease: "L4",
}  # fmt: skip
"""Histories, and what the first judge calls what is wrong with them."""


def test_neither_objects_to_good_ones() -> None:
    assert verdicts(history()) == (set(), set())
    assert verdicts(one_death()) == (set(), set())


@pytest.mark.parametrize(("broken", "rule"), BROKEN.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_both_object(broken: Callable[[], OutsiderHistory], rule: str) -> None:
    by_second, by_first = verdicts(broken())
    assert by_second
    assert rule in by_first


def test_neither_objects_where_a_client_may_have_done_it() -> None:
    made = lost()
    made.calls.append(called(DELETE, "plain", 3 * S))
    assert verdicts(made) == (set(), set())
    made = gone_without_a_lease()
    made.calls.insert(-1, called(DELETE, "plain", 3 * S))
    assert verdicts(made) == (set(), set())
    made = lease_that_was_renewed()
    made.calls[-1] = called(outside.PASSIVE, "leased", 2 * S, 5, CLOSED, 404)
    assert verdicts(made) == (set(), set())


def test_a_node_that_was_given_up_gets_again_what_it_has() -> None:
    """In trouble alone: else both object."""
    made = history()
    made.publishes.append(published(1, "plain", 2 * S))
    made.handed += [handed(1, 1, "plain", 3 * S), handed(2, 1, "plain", 4 * S, redelivered=True, since_us=3 * S)]
    made.settles += [Settle(1, outside.REQUEUE, 5 * S), Settle(2, outside.ACK, 6 * S)]
    assert verdicts(made) == ({"once"}, {"duplicate"})
    made.troubles.append(Trouble("freeze", (1,), 3 * S + 500_000, 3 * S + 600_000))
    assert verdicts(made) == (set(), set())


def test_only_the_first_judge_asks_for_answers() -> None:
    """A call that was never answered in quiet: the outsider's judge counts it, and no rule has a time for it."""
    made = history()
    made.calls.append(replace(called(outside.PASSIVE, "plain", 8 * S, 6), answered_us=None, outcome=UNKNOWN))
    made.ended.append(Ended("caller", 6, 1, 10 * S, False))
    assert verdicts(made) == (set(), {"unanswered"})


def test_nothing_much_of_a_run_is_left_out() -> None:
    run = OutsiderRun(draw_scenario(500_002))
    run.run()
    made, topology = in_other_words(run.history)
    seen = run.history
    left_out = {queue.name for queue in seen.setting.queues} - set(topology.queues)
    assert left_out <= {"left", "left.dead"}
    assert {each.queue for each in made.deliveries} == {each.queue for each in seen.handed} - left_out
    assert len(made.deliveries) == sum(each.queue not in left_out for each in seen.handed)
    bad = sum(publish.code == 406 for publish in seen.publishes)
    assert len(made.publishes) >= sum(not each.routing_key.startswith("left") for each in seen.publishes) - bad
    assert {each.kind for each in made.renewals} >= {DECLARE, GET}
    assert any(each.settled == ACK for each in made.deliveries)
    assert any(each.draining for each in made.deliveries)
    assert len(made.attachments) == sum(
        call.kind == CONSUME and call.outcome == OK and call.queue in topology.queues for call in seen.calls
    )


def test_both_object_to_a_broken_product() -> None:
    bug = next(bug for bugs in KINDS.values() for bug in bugs if bug.name == "confirms what a queue has refused")
    result = try_in_a_process(bug, [188])
    assert result["found"] == CAUGHT, result
    assert "first judge, lost" in result["first"]
