"""Keeping shards in step with policies: bounded in every tick, and right after lost commands and new leaders."""
from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from mayfly.node.catalog import (
    Catalog,
    ClearPolicy,
    DeclareQueue,
    PolicyRecord,
    QueueDeclared,
    QueueRecord,
    QueueSettings,
    RemoveQueues,
    SetPolicy,
)
from mayfly.node.catalog.expressions import Expression
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.policy_duties import AGAIN_MS, TICKS_PER_SWEEP, WATCHED_MS, PolicyDuties
from mayfly.node.limits import (
    MESSAGES_TOUCHED_PER_ENTRY,
    QUEUES_COMPARED_PER_TICK,
    QUEUES_COMPARED_PER_TICK_AT_MOST,
    QUEUES_UPDATED_PER_ENTRY,
    SEARCHES_PER_TICK,
)
from mayfly.node.shard import commands
from mayfly.node.shard.settings import encode_terms
from mayfly.node.shard.shard import Shard

TICK_MS = 50


class CountingCatalog(Catalog):
    """Counts how many queues are compared, and how often what counts for one is worked out."""

    def __init__(self) -> None:
        super().__init__(1)
        self.compared = self.merged = 0

    def policies_of_queue(self, queue: QueueRecord) -> tuple[PolicyRecord | None, PolicyRecord | None]:
        self.compared += 1
        return super().policies_of_queue(queue)

    def effective_settings(self, queue: QueueRecord, definition: dict[str, Any] | None = None) -> QueueSettings:
        self.merged += 1
        return super().effective_settings(queue, definition)


class Leader:
    """A shard, its catalog, and the duty; entries are what was given. They arrive in order, `flight_ms` after they were
    given, unless they get lost."""

    def __init__(self, queues: int = 0) -> None:
        self.catalog = CountingCatalog()
        self.shard = Shard(1, 1)
        self.entries: list[bytes] = []
        self.lost = False
        self.flight_ms = 0
        self.in_flight: deque[tuple[int, bytes]] = deque()
        self.now_ms = 1_000_000
        self.index = 0
        self.create(*[self.declare(f"q{number}") for number in range(queues)])
        self.duties = PolicyDuties(self.shard, self.catalog, self.give)

    def give(self, command: bytes) -> None:
        self.entries.append(command)
        if not self.lost:
            self.in_flight.append((self.now_ms + self.flight_ms, command))
            self.arrive()

    def arrive(self) -> None:
        while self.in_flight and self.in_flight[0][0] <= self.now_ms:
            self.apply(self.in_flight.popleft()[1])

    def apply(self, command: bytes, session: tuple[int, int] | None = None) -> None:
        self.index += 1
        self.shard.begin(self.index, self.now_ms, self.now_ms, command)
        self.shard.apply(session, 0, len(command))
        self.shard.finish()

    def declare(self, name: str) -> QueueRecord:
        result = self.catalog.apply(DeclareQueue("/", name, durable=True))
        assert isinstance(result, QueueDeclared)
        return result.queue

    def create(self, *queues: QueueRecord) -> None:
        for queue in queues:
            self.apply(commands.encode_create_queue(queue.id, shard_settings(self.catalog, queue)))

    def put(self, definition: dict[str, object], pattern: str = "", name: str = "p") -> None:
        self.catalog.apply(SetPolicy("/", name, pattern, definition))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ms += TICK_MS
            self.arrive()
            self.duties.perform(self.now_ms)

    def in_step(self) -> bool:
        for queue in self.catalog.queues():
            here = self.shard.queue(queue.id)
            assert here is not None
            if here.terms_bytes != encode_terms(shard_settings(self.catalog, queue)):
                return False
        return True


def test_idle_until_a_barrier_was_passed() -> None:
    leader = Leader(3)
    leader.put({"expires": 1})
    leader.tick(50)
    assert leader.entries == []
    assert not leader.duties.begun


@pytest.mark.parametrize("queues", [1, QUEUES_COMPARED_PER_TICK, 7 * QUEUES_COMPARED_PER_TICK + 3])
def test_a_new_leader_compares_all_in_slices(queues: int) -> None:
    leader = Leader(queues)
    leader.put({"expires": 1000})
    leader.duties.compare_all()
    slice_ = max(QUEUES_COMPARED_PER_TICK, -(-queues // TICKS_PER_SWEEP))
    for _ in range(TICKS_PER_SWEEP):
        leader.catalog.compared, before = 0, len(leader.entries)
        leader.tick()
        assert leader.catalog.compared <= slice_
        for entry in leader.entries[before:]:
            assert entry.count(bytes((commands.UPDATE_QUEUES,))) >= 1
            assert len(entry) <= QUEUES_UPDATED_PER_ENTRY * 200
    assert leader.in_step()
    leader.catalog.compared = 0
    leader.tick()
    assert leader.catalog.compared == 0, "nothing has changed"


def test_a_change_compares_only_what_it_concerns() -> None:
    leader = Leader(1000)
    leader.duties.compare_all()
    leader.tick(TICKS_PER_SWEEP)
    leader.catalog.compared = 0
    leader.put({"expires": 1000}, "^q7$")
    leader.tick(TICKS_PER_SWEEP)
    assert leader.catalog.compared == 1
    assert leader.in_step()
    leader.put({"expires": 1000}, "^q8$")
    leader.tick(TICKS_PER_SWEEP)
    assert leader.in_step(), "those that it concerned before count as well"
    leader.catalog.apply(ClearPolicy("/", "p"))
    leader.tick(TICKS_PER_SWEEP)
    assert leader.in_step()
    assert len(leader.entries) == 3


def test_changes_while_queues_are_compared_are_not_missed() -> None:
    leader = Leader(4 * QUEUES_COMPARED_PER_TICK)
    leader.duties.compare_all()
    leader.tick(TICKS_PER_SWEEP)
    for number in range(30):
        leader.put({"expires": 1000 + number}, f"{number % 10}$", name=f"p{number % 3}")
        leader.tick()
    leader.catalog.apply(ClearPolicy("/", "p1"))
    leader.tick(3 * TICKS_PER_SWEEP)
    assert leader.in_step()


def test_what_had_no_effect_is_given_again() -> None:
    leader = Leader(2)
    leader.duties.compare_all()
    leader.tick()
    leader.lost = True
    leader.put({"expires": 1000})
    leader.tick()
    assert len(leader.entries) == 1
    leader.tick(AGAIN_MS // TICK_MS - 1)
    assert len(leader.entries) == 1
    leader.lost = False
    leader.tick(2)
    assert leader.in_step()
    count = len(leader.entries)
    leader.tick(3 * AGAIN_MS // TICK_MS)
    assert len(leader.entries) == count


def test_what_had_an_effect_is_compared_once() -> None:
    """Half the cost of a change that concerns many queues would be to find out that all is well."""
    leader = Leader(1000)
    leader.duties.compare_all()
    leader.tick(TICKS_PER_SWEEP)
    leader.catalog.compared = 0
    leader.put({"expires": 1000})
    leader.tick(3 * AGAIN_MS // TICK_MS)
    assert leader.in_step()
    assert leader.catalog.compared == 1000, "once, by the sweep"
    leader.put({"expires": 2000})
    leader.tick()
    # Another change comes before the effect of the one before is looked at.
    leader.put({"expires": 3000})
    leader.tick(3 * AGAIN_MS // TICK_MS)
    assert leader.in_step()


FLIGHTS_MS = [TICK_MS, 3 * TICK_MS, AGAIN_MS - TICK_MS, AGAIN_MS, AGAIN_MS + TICK_MS, 5 * AGAIN_MS]


@pytest.mark.parametrize("taken_back_after_ms", [TICK_MS, AGAIN_MS - TICK_MS, AGAIN_MS + 3 * TICK_MS])
@pytest.mark.parametrize("flight_ms", FLIGHTS_MS)
def test_what_is_taken_back_on_its_way_does_not_stay(flight_ms: int, taken_back_after_ms: int) -> None:
    """L9, T12: the queue and the catalog agree when the policy goes, but not once the update arrives."""
    leader = Leader(3)
    leader.duties.compare_all()
    leader.tick()
    leader.flight_ms = flight_ms
    leader.put({"expires": 1000})
    leader.tick(taken_back_after_ms // TICK_MS)
    leader.catalog.apply(ClearPolicy("/", "p"))
    leader.tick((flight_ms + 2 * AGAIN_MS) // TICK_MS)
    assert leader.in_step()


@pytest.mark.parametrize("flight_ms", FLIGHTS_MS)
def test_what_takes_back_an_update_on_its_way_may_get_lost(flight_ms: int) -> None:
    """The queue shows what it was told last, and did not hear it: what it was told before arrives later."""
    leader = Leader(3)
    leader.duties.compare_all()
    leader.tick()
    leader.flight_ms = flight_ms
    leader.put({"expires": 1000})
    leader.tick()
    leader.lost = True
    leader.catalog.apply(ClearPolicy("/", "p"))
    leader.tick(flight_ms // TICK_MS)
    leader.lost, leader.flight_ms = False, 0
    leader.tick(2 * AGAIN_MS // TICK_MS)
    assert leader.in_step()


def test_what_arrives_of_older_updates_proves_nothing_of_newer_ones() -> None:
    leader = Leader(1)
    leader.duties.compare_all()
    leader.tick()
    leader.flight_ms = 4 * AGAIN_MS
    leader.put({"expires": 1000})
    leader.tick()
    leader.flight_ms = 8 * AGAIN_MS
    leader.put({"expires": 2000})
    leader.tick()
    leader.lost = True
    leader.catalog.apply(ClearPolicy("/", "p"))
    leader.tick()
    leader.put({"expires": 1000})
    leader.tick(6 * AGAIN_MS // TICK_MS)
    assert leader.in_step(), "by the first update; the last one is lost, and the second is on its way"
    assert len(leader.in_flight) == 1
    leader.lost, leader.flight_ms = False, 0
    leader.tick(4 * AGAIN_MS // TICK_MS)
    assert leader.in_step()


def test_an_update_that_another_followed_is_not_looked_for() -> None:
    leader = Leader(1)
    leader.duties.compare_all()
    leader.tick()
    leader.flight_ms = AGAIN_MS - TICK_MS
    for expires_ms in (1000, 2000, 3000):
        leader.put({"expires": expires_ms})
        leader.tick()
    leader.tick(3 * AGAIN_MS // TICK_MS)
    assert leader.in_step()
    assert len(leader.entries) == 3


@pytest.mark.parametrize("seed", range(40))
def test_updates_that_are_late_or_lost_end_up_as_the_catalog_has_it(seed: int) -> None:
    random_ = random.Random(seed)
    leader = Leader(4)
    leader.duties.compare_all()
    leader.tick()
    for _ in range(60):
        leader.lost = random_.random() < 0.3
        leader.flight_ms = random_.choice(FLIGHTS_MS)
        if random_.random() < 0.3:
            leader.catalog.apply(ClearPolicy("/", "p"))
        elif random_.random() < 0.5:
            leader.put({"expires": random_.choice([1000, 2000])}, random_.choice(["", "^q1$"]))
        leader.tick(random_.randrange(4))
    leader.lost = False
    leader.tick((WATCHED_MS + 10 * AGAIN_MS) // TICK_MS)
    assert not leader.in_flight
    assert leader.in_step()
    assert not leader.duties._told and not leader.duties._again, "nothing is remembered longer than it has to be"


def test_a_queue_created_with_old_settings_after_the_change_is_told() -> None:
    """The change is long done with when the shard hears of the queue from a node that was behind."""
    leader = Leader()
    leader.duties.compare_all()
    queue = leader.declare("q")
    old = commands.encode_create_queue(queue.id, shard_settings(leader.catalog, queue))
    leader.put({"expires": 1000})
    leader.tick(20 * AGAIN_MS // TICK_MS)
    assert leader.entries == []
    leader.apply(old)
    assert not leader.in_step()
    leader.tick(AGAIN_MS // TICK_MS + 1)
    assert leader.in_step()


def test_deleted_queues_are_left_alone() -> None:
    leader = Leader(1)
    leader.duties.compare_all()
    leader.tick()
    (queue,) = leader.catalog.queues()
    data = commands.encode_delete_queue(queue.id, False, False)
    leader.index += 1
    leader.shard.begin(leader.index, leader.now_ms, leader.now_ms, data)
    leader.shard.apply((1, 1), 0, len(data))
    leader.shard.finish()
    leader.put({"expires": 1000})
    leader.tick(3 * AGAIN_MS // TICK_MS)
    assert leader.entries == []
    assert not leader.duties._again


def test_nothing_is_remembered_of_a_queue_that_goes_before_it_hears() -> None:
    leader = Leader(1)
    leader.duties.compare_all()
    leader.tick()
    (queue,) = leader.catalog.queues()
    leader.lost = True
    leader.put({"expires": 1000})
    leader.tick()
    assert leader.duties._told
    leader.apply(commands.encode_drop_queue(queue.id))
    leader.catalog.apply(RemoveQueues((queue.id,)))
    leader.tick(2 * AGAIN_MS // TICK_MS)
    assert not leader.duties._told and not leader.duties._again


def test_a_leader_that_comes_back_begins_anew() -> None:
    leader = Leader(2)
    leader.duties.compare_all()
    leader.tick()
    leader.duties.forget()
    leader.put({"expires": 1000})
    leader.tick(10)
    assert not leader.in_step()
    leader.duties.compare_all()
    leader.tick()
    assert leader.in_step()


def test_a_catalog_from_a_snapshot_is_compared_with_all() -> None:
    leader = Leader(3)
    leader.duties.compare_all()
    leader.tick()
    ahead = Catalog(1)
    ahead.restore(leader.catalog.snapshot())
    ahead.apply(SetPolicy("/", "p", "", {"expires": 1000}))
    leader.catalog.restore(ahead.snapshot())
    leader.tick(TICKS_PER_SWEEP)
    assert leader.in_step()


def test_what_many_queues_have_in_common_is_worked_out_and_given_once() -> None:
    """Two kinds of arguments, a policy for all: one command in each tick for those of one kind."""
    leader = Leader(0)
    kinds: list[dict[str, object]] = [{"x-expires": 5000}, {}]
    queues = []
    for number in range(1000):
        result = leader.catalog.apply(DeclareQueue("/", f"q{number}", durable=True, arguments=kinds[number % 2]))
        assert isinstance(result, QueueDeclared)
        queues.append(result.queue)
    leader.create(*queues)
    leader.duties.compare_all()
    leader.tick(TICKS_PER_SWEEP)
    leader.catalog.merged = 0
    leader.put({"expires": 10_000})
    leader.tick(TICKS_PER_SWEEP)
    assert leader.in_step()
    assert leader.catalog.merged <= 2 + 1000, "in_step works them out one by one"
    assert len(leader.entries) == 2, "those with a lower value of their own stay as they are; two ticks"
    told = sum(map(len, leader.entries))
    assert told < 500 * 8 + 200, "eight octets for each queue that changes"


def test_queues_with_many_messages_are_told_a_few_at_a_time() -> None:
    """C4: an entry whose settings count for what is queued is bounded by the messages, too."""
    leader = Leader(10)
    parts: list[bytes] = []
    for _ in range(MESSAGES_TOUCHED_PER_ENTRY // 2):
        commands.encode_publish(parts, list(range(1, 11)), -1, b"\x00\x01k", b"head", b"m")
    leader.apply(b"".join(parts), (1, 1))
    leader.duties.compare_all()
    leader.tick()
    leader.put({"max-length": 100_000})
    leader.tick()
    assert leader.in_step()
    assert len(leader.entries) == 5


def test_a_tick_looks_at_a_bounded_number_of_queues_however_many_there_are() -> None:
    leader = Leader(QUEUES_COMPARED_PER_TICK_AT_MOST * (TICKS_PER_SWEEP + 1))
    leader.duties.compare_all()
    for _ in range(TICKS_PER_SWEEP + 1):
        leader.catalog.compared = 0
        leader.tick()
        assert leader.catalog.compared == QUEUES_COMPARED_PER_TICK_AT_MOST
    leader.catalog.compared = 0
    leader.tick()
    assert leader.catalog.compared == 0


@pytest.mark.parametrize("policies", [64, 200])
def test_a_tick_holds_a_bounded_number_of_names_against_patterns(
    policies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many policies there are; and it comes to an end."""
    searches = 0
    search = Expression.search

    def counted(pattern: Expression, name: str) -> bool:
        nonlocal searches
        searches += 1
        return search(pattern, name)

    leader = Leader(300)
    for number in range(policies):
        leader.put({"expires": 1_000_000 + number}, f"x{number}$", name=f"p{number}")
    leader.put({"expires": 77}, "9$", name="z")
    monkeypatch.setattr(Expression, "search", counted)
    leader.duties.compare_all()
    ticks = 0
    while leader.duties._to_compare:
        searches = 0
        leader.tick()
        ticks += 1
        assert searches <= 1.1 * SEARCHES_PER_TICK
    assert ticks >= 300 * policies // SEARCHES_PER_TICK
    assert leader.in_step()
