"""Clusters that form from empty nodes: what one node decides (`node.membership.forming`), and whole clusters over many
seeds.

`python -m simulation forming --seed N` replays a seed, with `--trace` event by event.
"""

from __future__ import annotations

from functools import partial

import pytest

from mayfly.node.catalog.records import MemberRecord
from mayfly.node.membership.forming import (
    ASK_AGAIN_FIRST_MS,
    ASK_AGAIN_MS,
    FOREIGN,
    FORMING,
    FOUND,
    GOOD_FOR_MS,
    LINGER_MS,
    PATIENCE_MS,
    TAKEN,
    UNSURE,
    VACANT,
    WAIT,
    AbandonedPlaces,
    Forming,
    stance_towards,
)
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.forming import asking as simulated
from simulation.node.forming.place import FormingError
from simulation.node.forming.run import FormingRun
from simulation.node.forming.scenario import draw_scenario
from simulation.node.nodes import SimulatedNode
from simulation.simulators import FORMING as SIMULATOR

SEEDS = 1_000
CHUNK = 100
FEW = range(10)
THREE_FOUNDERS = 1
"""A seed with three founders and nobody else."""
THREE_FOUNDERS_SEEDS = (0, 1, 10, 16, 19, 23, 24, 29)
THREE = ("a", "b", "c")


def asking(may_found: bool = True) -> Forming:
    """The empty node `a` of three founders."""
    return Forming(THREE, "a", "mine", may_found)


def test_a_node_asks_everybody_but_itself_and_again_after_a_pause() -> None:
    forming = asking()
    assert forming.whom_to_ask(["x", "a"], 0) == ["b", "c", "x"]
    assert forming.whom_to_ask(["x", "y"], 10) == ["y"]
    forming.answered("b", FORMING, "of b", 20)
    forming.unanswered("c", 20)
    assert forming.whom_to_ask(["x"], 20 + ASK_AGAIN_FIRST_MS - 1) == []
    assert forming.whom_to_ask([], 20 + ASK_AGAIN_FIRST_MS) == ["b", "c"]


def test_the_pauses_between_questions_grow_and_who_asks_is_asked_at_once() -> None:
    forming, now_ms, pauses = asking(), 0, []
    assert forming.whom_to_ask([], now_ms) == ["b", "c"]
    for _ in range(5):
        forming.unanswered("c", now_ms)
        ended_ms = now_ms
        while forming.whom_to_ask([], now_ms) != ["c"]:
            now_ms += 1
        pauses.append(now_ms - ended_ms)
    assert pauses[0] == ASK_AGAIN_FIRST_MS and pauses == sorted(pauses) and pauses[-1] == ASK_AGAIN_MS
    for founder in ("b", "c"):
        forming.unanswered(founder, now_ms)
    assert forming.whom_to_ask([], now_ms) == []
    forming.asked("c", now_ms)
    assert forming.whom_to_ask([], now_ms) == ["c"]
    forming.asked("c", now_ms)
    assert forming.whom_to_ask([], now_ms) == []  # the question is on its way
    for stranger in ("a", "x"):
        forming.asked(stranger, now_ms)
    assert forming.whom_to_ask([], now_ms) == []


def test_a_founder_that_heard_all_lets_them_hear_itself_first() -> None:
    def heard_all() -> Forming:
        forming = asking()
        forming.answered("b", FORMING, "of b", 100)
        forming.answered("c", FORMING, "of c", 100)
        assert forming.decide(100) == WAIT
        return forming

    forming = heard_all()
    forming.asked("b", 110)
    assert forming.decide(110) == WAIT
    forming.asked("c", 120)
    assert forming.decide(120) == FOUND
    forming = heard_all()
    assert forming.decide(100 + LINGER_MS - 1) == WAIT
    assert forming.decide(100 + LINGER_MS) == FOUND


def test_all_founders_found_at_once_and_a_majority_after_a_while() -> None:
    forming = asking()
    assert forming.decide(0) == WAIT
    forming.answered("b", FORMING, "of b", 100)
    assert forming.decide(100) == WAIT
    assert forming.decide(100 + PATIENCE_MS - 1) == WAIT
    assert forming.decide(100 + PATIENCE_MS) == FOUND
    forming = asking()
    forming.answered("b", FORMING, "of b", 100)
    forming.answered("c", VACANT, "of c", 100)
    assert forming.decide(100) == WAIT
    assert forming.decide(100 + LINGER_MS) == FOUND


def test_a_node_never_founds_alone_nor_once_it_heard_that_its_place_is_taken() -> None:
    assert asking().decide(1_000_000) == WAIT
    forming = asking()
    forming.answered("b", TAKEN, "of b", 0)
    forming.answered("b", FORMING, "of b", 10)
    forming.answered("c", FORMING, "of c", 10)
    assert not forming.may_found
    assert forming.decide(1_000_000) == WAIT
    forming = asking(may_found=False)
    forming.answered("b", FORMING, "of b", 0)
    forming.answered("c", FORMING, "of c", 0)
    assert forming.decide(1_000_000) == WAIT


def test_who_answers_under_two_names_or_under_this_node_s_own_counts_once() -> None:
    forming = Forming(("a", "b", "c", "d", "e"), "a", "mine", True)
    forming.answered("b", FORMING, "same", 0)
    forming.answered("c", FORMING, "same", 0)
    forming.answered("d", FORMING, "mine", 0)
    assert forming.willing(0) == ["b"]
    assert forming.decide(PATIENCE_MS) == WAIT
    forming.answered("x", FORMING, "no founder", 0)
    assert forming.willing(0) == ["b"]
    assert "2 of 5 founders are there" in forming.describe(0) and "c, d, e" in forming.describe(0)


def test_an_answer_outlives_a_founder_that_starts_but_not_for_ever() -> None:
    forming = asking()
    forming.answered("b", FORMING, "of b", 0)
    forming.unanswered("b", 1_000)
    assert forming.willing(GOOD_FOR_MS) == ["b"]
    assert forming.willing(GOOD_FOR_MS + 1) == []
    forming.answered("b", FORMING, "of b", 6_000)
    forming.answered("b", "", "of b", 6_100)
    assert forming.willing(6_100) == []


def test_a_majority_does_not_found_beside_one_with_data_that_can_not_say() -> None:
    forming = asking()
    forming.answered("b", FORMING, "of b", 0)
    forming.answered("c", UNSURE, "of c", 0)
    forming.answered("b", FORMING, "of b", GOOD_FOR_MS)
    assert forming.decide(GOOD_FOR_MS) == WAIT
    assert "a cluster is there, at c" in forming.describe(GOOD_FOR_MS)
    forming.answered("c", VACANT, "of c", GOOD_FOR_MS)
    assert forming.decide(GOOD_FOR_MS) == WAIT
    assert forming.decide(GOOD_FOR_MS + LINGER_MS) == FOUND


def test_nobody_founds_beside_another_cluster_at_a_founder_s_address() -> None:
    """However long it is silent then: it was begun from a copy, and restarts."""
    forming = asking()
    forming.answered("c", FOREIGN, "of c", 0)
    for at_ms in (0, GOOD_FOR_MS, 10 * GOOD_FOR_MS):
        forming.answered("b", FORMING, "of b", at_ms)
        assert forming.decide(at_ms) == WAIT
    assert "another cluster is at c" in forming.describe(0)
    forming.answered("c", FORMING, "of a new c", 10 * GOOD_FOR_MS)
    for founder in ("b", "c"):
        forming.asked(founder, 10 * GOOD_FOR_MS)
    assert forming.decide(10 * GOOD_FOR_MS) == FOUND


def test_a_place_is_vacant_until_somebody_has_come_with_data() -> None:
    def stance(named: str, started: bool = False, present: bool = True, led: bool = True) -> str:
        return stance_towards("new", named, started, present, led)

    assert stance("") == stance("new") == stance("new", started=True) == VACANT
    assert stance("old") == stance("old", led=False) == TAKEN
    assert stance("", present=False) == stance("", started=True) == stance("", started=True, led=False) == TAKEN
    assert stance("", led=False) == stance("new", led=False) == UNSURE


def test_a_place_is_abandoned_if_its_node_never_came() -> None:
    members = [MemberRecord(4, "n", "h:1", "member", "s"), MemberRecord(5, "n", "h:1", "joining", "t")]
    places = AbandonedPlaces()
    for _ in range(2):
        assert places.claimed(members, "n", "h:2", "u") == places.claimed(members[:1], "n", "h:1", "u") == 0
        assert places.claimed([MemberRecord(5, "", "h:1", "joining", "t")], "", "h:1", "u") == 0
    # Each asked once: one of them may be dead, and its question late.
    assert [places.claimed(members, "n", "h:1", store) for store in ("u", "v", "u", "u")] == [0, 0, 0, 5]


def run_of(seed: int) -> FormingRun:
    return FormingRun(draw_scenario(seed))


def check(seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        for what, count in SIMULATOR.kept(run_of(seed)).counts.items():
            counts[what] = counts.get(what, 0) + count
    return counts


def test_a_few_seeds() -> None:
    counts = check(FEW)
    for what in ("crash", "cut off", "joined", "wiped as a node", "wiped while asking"):
        assert counts.get(what, 0) > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 100 + SEEDS, CHUNK))
def test_one_cluster_forms_with_all_that_were_started(first: int) -> None:
    check(range(first, first + CHUNK))


def all_serve_ms(seed: int, spread_us: int) -> int:
    """Virtual time from the start of the last of three founders until all serve, on a quick network."""
    run = run_of(seed)
    assert len(run.places) == len(run.founders) == 3
    run.asking.delays_us = (500, 2_000)
    starts_us = [run.random.randint(0, spread_us) for _ in run.places]
    for at_us, place in zip(starts_us, run.places, strict=True):
        run.queue.at(at_us, partial(run.start, place))
    while not all(run.serves(place) for place in run.places):
        run.queue.run_until(run.queue.now_us + 10 * MILLISECOND_US)
        assert run.queue.now_us < 30 * SECOND_US, run.complaint()
    return (run.queue.now_us - max(starts_us)) // MILLISECOND_US


def test_three_founders_serve_soon_after_the_last_was_started() -> None:
    """Within an election (its timeout is 1 to 2 s here, 0.3 to 0.6 of that if the first has no rival), not within the
    patience or the pauses of questions."""
    for spread_us in (0, 50 * MILLISECOND_US, SECOND_US):
        took = sorted(all_serve_ms(seed, spread_us) for seed in THREE_FOUNDERS_SEEDS)
        assert took[-1] < 1_500, took
        assert took[len(took) // 2] < 600, took


def _founds_alone(forming: Forming, now_ms: int) -> str:
    return FOUND if forming.may_found else WAIT


def test_a_place_that_is_left_abandoned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AbandonedPlaces, "claimed", lambda *asked: 0)
    with pytest.raises(AssertionError, match="is nobody"):
        SIMULATOR.kept(run_of(75))


def emptied_majority() -> FormingRun:
    """Two of three founders are emptied at once, and start again while the third is there."""
    run = run_of(THREE_FOUNDERS)
    assert len(run.founders) == len(run.places) == 3
    for place in run.places:
        run.start(place)
    run.queue.run_until(10 * SECOND_US)
    assert [place.node for place in run.places] == [1, 2, 3]
    for place in run.places[:2]:
        run.wipe(place)
    run.queue.run_until(20 * SECOND_US)
    for place in run.places[:2]:
        run.start(place)
    run.queue.run_until(60 * SECOND_US)
    return run


def test_a_majority_that_was_emptied_founds_nothing_while_one_with_data_answers() -> None:
    """It can't be taken in either, without a majority: that is for an operator, who may restore from what is left."""
    run = emptied_majority()
    assert [place.node for place in run.places] == [0, 0, 3]
    assert "gave its data up" not in run.counts


def late_objection() -> FormingRun:
    """As before, but the third starts again a second after them: while they are patient."""
    run = run_of(THREE_FOUNDERS)
    for place in run.places:
        run.start(place)
    run.queue.run_until(10 * SECOND_US)
    for place in run.places:
        run.stop(place)
    for place in run.places[:2]:
        run.wipe(place)
        run.start(place)
    run.queue.run_until(11 * SECOND_US)
    run.start(run.places[2])
    run.queue.run_until(60 * SECOND_US)
    return run


def test_emptied_founders_are_patient_with_one_that_starts_with_data() -> None:
    run = late_objection()
    assert [place.node for place in run.places] == [0, 0, 3]
    assert "gave its data up" not in run.counts


def test_founders_that_ask_nobody_found_a_second_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forming, "decide", _founds_alone)
    with pytest.raises(FormingError, match="is sent away for good"):
        late_objection()


def touched(program: SimulatedNode | None) -> bool:
    return program is not None and not program.engine.untouched


def stale_member() -> FormingRun:
    """A founder stops when a third is let in, late; that one serves, is emptied, and meets the first again."""
    run = run_of(THREE_FOUNDERS)
    first, stale, late = run.places

    for place in (first, stale):
        run.start(place)
    run.when(lambda: touched(run.program_of(stale)), lambda: run.start(late))
    run.when(lambda: late.node != 0, lambda: run.stop(stale))
    run.queue.at(10 * SECOND_US, run.client)
    run.queue.run_until(20 * SECOND_US)
    assert run.accepted and late.node == 3
    for place in (first, late):
        run.stop(place)
    run.wipe(late)
    for place in (stale, late):
        run.start(place)
    run.queue.run_until(40 * SECOND_US)
    return run


def test_a_stale_member_does_not_have_an_emptied_founder_begin_again() -> None:
    run = stale_member()
    assert [place.node for place in run.places] == [1, 2, 0]
    run.calm_down()
    run.queue.run_until(80 * SECOND_US)
    assert not run.complaint()
    assert [place.node for place in run.places] == [1, 2, 4]


def test_a_stale_member_that_took_its_view_for_the_cluster_s_would_lose_what_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_if_led(store: str, named: str, started: bool, present: bool, led: bool) -> str:
        return stance_towards(store, named, started, present, True)

    monkeypatch.setattr(simulated, "stance_towards", as_if_led)
    with pytest.raises(AssertionError, match="has two leaders in term"):
        stale_member()


def test_without_its_word_they_would_have_founded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "stance_towards", lambda store, named, started, present, led: VACANT)
    assert emptied_majority().counts["gave its data up"] > 0


def test_a_seed_replays_exactly() -> None:
    first, second = run_of(7), run_of(7)
    first.run()
    second.run()
    assert first.trace.digest() == second.trace.digest()
