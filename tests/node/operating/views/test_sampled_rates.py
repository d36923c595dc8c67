"""Rates that are known before anybody asks: rounds of a node over its queues."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.operating.views import sampled_rates
from mayfly.node.operating.views.rates import LEAST_SPAN_MS, SPAN_MS
from mayfly.node.operating.views.sampled_rates import ALWAYS_CHANGED, LOOKS_PER_STEP, STEP_MS, SampledRates

Q = 7


class FakeShard:
    """Counts by queue; `mark` follows them, as a log's index does."""

    def __init__(self) -> None:
        self.mark = 0
        self.did: dict[int, list[int]] = {}
        self.looked = 0

    def do(self, queue: int, enqueued: int = 0, delivered: int = 0) -> None:
        counts = self.did.setdefault(queue, [0, 0, 0, 0])
        counts[0] += enqueued
        counts[1] += delivered
        self.mark += 1

    def queue_ids(self) -> Collection[int]:
        return self.did.keys()

    def counts(self, queue_id: int) -> tuple[int, ...] | None:
        self.looked += 1
        return tuple(self.did[queue_id]) if queue_id in self.did else None


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.shard = FakeShard()
        self.rates = SampledRates()
        self.step()

    def step(self) -> None:
        self.rates.step(self.now_ms, {1: self.shard})

    def seconds(self, count: int, enqueued: int = 0) -> None:
        for _ in range(count):
            self.now_ms += STEP_MS
            if enqueued:
                self.shard.do(Q, enqueued)
            self.step()

    def rate(self, queue: int = Q) -> float | None:
        found = self.rates.rate(self.now_ms, 1, queue, tuple(self.shard.did.get(queue, (0, 0, 0, 0))))
        return None if found is None else found[0]


def test_the_first_who_asks_is_told_however_long_nobody_did() -> None:
    world = World()
    world.shard.do(Q)
    world.seconds(30, enqueued=18)
    assert world.rate() == pytest.approx(18, rel=0.2)
    world.seconds(3_000)
    assert world.rate() == 0
    world.seconds(4, enqueued=18)
    assert world.rate() == pytest.approx(18, rel=0.6), "not spread over the time before"
    world.seconds(4, enqueued=18)
    assert world.rate() == pytest.approx(18, rel=0.4)


def test_while_nothing_happens_nothing_is_looked_at() -> None:
    world = World()
    world.shard.do(Q, 5)
    world.seconds(20)
    looked = world.shard.looked
    world.seconds(1_000)
    assert world.shard.looked == looked
    assert world.rate() == 0


def test_a_queue_that_is_new_or_did_nothing_before_counts_from_nothing() -> None:
    world = World()
    world.shard.do(1)
    world.seconds(20)
    for _ in range(4):
        world.now_ms += STEP_MS
        world.shard.do(Q, 10)
    assert world.rate() == pytest.approx(40 / (SPAN_MS / 1000)), "it was not there at the last round"
    assert world.rate(1) == 0


def test_what_went_back_is_another_thing_and_before_a_whole_round_nothing_is_known() -> None:
    world = World()
    rates = SampledRates()
    assert rates.rate(0, 1, Q, (1, 1, 1, 1)) is None
    world.shard.do(Q, 100)
    world.seconds(20, enqueued=5)
    world.shard.did[Q] = [3, 0, 0, 0]
    assert world.rate() is None


def test_a_step_looks_at_so_many_and_a_round_takes_as_many_steps_as_it_needs() -> None:
    world = World()
    for queue in range(3 * LOOKS_PER_STEP):
        world.shard.did[queue] = [1, 0, 0, 0]
    world.shard.mark += 1
    world.seconds(SPAN_MS // STEP_MS)
    before = world.shard.looked
    world.seconds(1)
    assert world.shard.looked - before == LOOKS_PER_STEP


def test_what_is_kept_is_bounded_and_of_others_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_rates, "MOST_KEPT", 2)
    world = World()
    for queue in (1, 2, 3):
        world.shard.do(queue, 5)
    world.seconds(20)
    world.shard.do(3, 5)
    assert [world.rate(queue) for queue in (1, 2, 3)] == [0, 0, None]


def test_a_shard_that_is_gone_is_forgotten() -> None:
    world = World()
    world.shard.do(Q, 1)
    world.seconds(20)
    world.rates.step(world.now_ms, {})
    assert world.rate() is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30), st.integers(0, 20)), max_size=60), st.booleans(),
)
def test_a_rate_is_what_happened_over_some_time_before(did: list[tuple[int, int, int]], has_mark: bool) -> None:
    """Held against all that happened: there is a time, not shorter ago than a second, since which it is right."""
    world = World()
    if not has_mark:
        world.shard.mark = ALWAYS_CHANGED
    history: dict[int, list[tuple[int, int]]] = {queue: [(0, 0)] for queue in range(1, 5)}
    for queue, enqueued, seconds in did:
        world.shard.do(queue, enqueued)
        if not has_mark:
            world.shard.mark = ALWAYS_CHANGED
        history[queue].append((world.now_ms, world.shard.did[queue][0]))
        world.seconds(seconds)
        for each, events in history.items():
            rate = world.rate(each)
            if rate is None:
                continue
            now_count = events[-1][1]
            possible = []
            for place, (_, count) in enumerate(events):
                until_ms = events[place + 1][0] if place + 1 < len(events) else world.now_ms
                # The count stood so from its event to the next.
                grown = now_count - count
                if grown == 0:
                    possible.append(rate == 0)
                elif rate > 0:
                    span_ms = grown * 1000 / rate
                    since_ms = world.now_ms - span_ms
                    possible.append(
                        events[place][0] - 1 <= since_ms <= until_ms + 1 and span_ms >= LEAST_SPAN_MS - 1
                    )
            assert any(possible), (each, rate, events, world.now_ms)
