"""Which queue leaves a hot shard: a move is worth its price, and there is an end."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.membership.queue_balance import (
    GAIN_PARTS,
    HOT_FOR_MS,
    HOT_PARTS,
    LEAST_PERMILLE,
    STAYS_MS,
    Loads,
    QueueBalance,
    QueueMove,
    good_move,
)

STEP_MS = 5_000


class World:
    """Queues in shards, whose leaders are evened out by nobody."""

    def __init__(self, queues: dict[int, tuple[int, int]], shards: int, nodes: int = 3) -> None:
        """`queues`: id -> its shard and its load."""
        self.place = {queue: shard for queue, (shard, _) in queues.items()}
        self.load = {queue: load for queue, (_, load) in queues.items()}
        self.shards, self.nodes = shards, nodes
        self.balance = QueueBalance()
        self.stuck: set[int] = set()
        self.now_ms = 0
        self.moves: list[tuple[int, QueueMove]] = []

    def loads(self) -> Loads:
        of_shards = dict.fromkeys(range(1, self.shards + 1), 0)
        queues: dict[int, list[tuple[int, int]]] = {}
        for queue, shard in self.place.items():
            of_shards[shard] += self.load[queue]
            if queue not in self.stuck:
                queues.setdefault(shard, []).append((queue, self.load[queue]))
        return Loads(of_shards, {shard: shard % self.nodes + 1 for shard in of_shards}, queues, self.nodes)

    def step(self) -> QueueMove | None:
        """Time passes, and the queue that is to move has moved."""
        self.now_ms += STEP_MS
        move = self.balance.next_move(self.loads(), self.now_ms)
        if move is not None:
            assert self.place[move.queue] == move.source
            self.place[move.queue] = move.target
            self.moves.append((self.now_ms, move))
        return move

    def pass_ms(self, period_ms: int) -> None:
        for _ in range(period_ms // STEP_MS):
            self.step()

    def sums(self) -> list[int]:
        return sorted(self.loads().shards.values(), reverse=True)


def test_three_busy_queues_of_one_shard_get_a_shard_each() -> None:
    world = World({1: (2, 200), 2: (2, 210), 3: (2, 190)}, shards=6)
    world.pass_ms(10 * HOT_FOR_MS)
    assert len(set(world.place.values())) == 3 and len(world.moves) == 2
    assert len({shard % world.nodes for shard in world.place.values()}) == 3, "idle shards of busy nodes are left alone"


def test_a_queue_that_is_alone_in_its_heat_stays() -> None:
    world = World({1: (1, 800), 2: (2, 30), 3: (1, 40)}, shards=3)
    world.pass_ms(10 * HOT_FOR_MS)
    assert not world.moves, "what would leave gives its shard back less than it costs"


def test_the_next_hottest_shard_is_helped_where_the_hottest_can_not_be() -> None:
    world = World({1: (1, 400), 2: (2, 180), 3: (2, 180)}, shards=4)
    world.pass_ms(3 * HOT_FOR_MS)
    assert [move.source for _, move in world.moves] == [2]


@pytest.mark.parametrize(
    ("queues", "shards", "nodes"),
    [
        ({1: (1, LEAST_PERMILLE // 2), 2: (1, LEAST_PERMILLE // 2)}, 3, 3),
        ({1: (1, 100), 2: (1, 100), 3: (2, 200), 4: (3, 200)}, 3, 3),
        ({1: (1, 300), 2: (1, 300)}, 6, 1),
        ({1: (1, 300), 2: (1, 300)}, 1, 3),
        ({}, 3, 3),
    ],
    ids=["a little", "even", "one node", "one shard", "nothing"],
)
def test_what_no_move_helps_is_left_alone(queues: dict[int, tuple[int, int]], shards: int, nodes: int) -> None:
    world = World(queues, shards, nodes)
    world.pass_ms(5 * HOT_FOR_MS)
    assert not world.moves


def test_what_can_not_move_stays_and_others_go() -> None:
    world = World({1: (1, 300), 2: (1, 250), 3: (1, 200)}, shards=3)
    world.stuck = {1, 3}
    world.pass_ms(5 * HOT_FOR_MS)
    assert [move.queue for _, move in world.moves] == [2]


def test_a_shard_has_to_be_hot_for_a_while_and_a_move_is_followed_by_a_pause() -> None:
    world = World({1: (1, 200), 2: (1, 200), 3: (1, 200)}, shards=3)
    world.pass_ms(HOT_FOR_MS)
    assert not world.moves
    world.balance.rest()
    world.pass_ms(HOT_FOR_MS)
    assert not world.moves, "the time has begun anew"
    world.pass_ms(3 * HOT_FOR_MS)
    (first_ms, _), (second_ms, _) = world.moves
    assert second_ms - first_ms >= HOT_FOR_MS


def test_queues_that_are_busy_in_turns_do_not_change_places_with_each_turn() -> None:
    world = World({1: (1, 300), 2: (1, 300), 3: (1, 300), 4: (2, 300)}, shards=2, nodes=2)
    for turn in range(STAYS_MS // (4 * HOT_FOR_MS)):
        for queue in world.load:
            world.load[queue] = 300 if world.place[queue] == 1 + turn % 2 else 10
        world.pass_ms(2 * HOT_FOR_MS)
    assert world.moves and all(times == 1 for times in Counter(move.queue for _, move in world.moves).values())


def test_of_two_that_are_about_as_hot_each_is_helped() -> None:
    """Which of them is hotter changes with each look."""
    world = World({1: (1, 200), 2: (1, 200), 3: (2, 200), 4: (2, 200)}, shards=6)
    for number in range(4 * HOT_FOR_MS // STEP_MS):
        world.load[1], world.load[3] = (205, 200) if number % 2 else (200, 205)
        world.step()
    assert sorted(move.source for _, move in world.moves) == [1, 2]


def test_a_queue_whose_move_has_not_come_about_may_move_soon() -> None:
    world = World({1: (1, 300), 2: (1, 200)}, shards=3)
    world.pass_ms(2 * HOT_FOR_MS)
    ((_, move),) = world.moves
    world.place[move.queue] = move.source
    world.balance.not_made(move.queue)
    world.pass_ms(2 * HOT_FOR_MS)
    assert [again.queue for _, again in world.moves] == [move.queue, move.queue]


QUEUES = st.dictionaries(
    st.integers(1, 30), st.tuples(st.integers(1, 6), st.integers(0, 400)), max_size=20
)


@given(QUEUES, st.integers(6, 9), st.integers(2, 5))
def test_each_move_makes_it_better_and_there_is_an_end(
    queues: dict[int, tuple[int, int]], shards: int, nodes: int
) -> None:
    world = World(queues, shards, nodes)
    while True:
        before = world.loads().shards
        move = good_move(world.loads())
        if move is None:
            break
        world.place[move.queue] = move.target
        world.moves.append((0, move))
        after = world.loads().shards
        of_both = after[move.source], after[move.target]
        assert max(of_both) <= before[move.source] - before[move.source] // GAIN_PARTS < before[move.source]
        assert max(after.values()) <= max(before.values())
        assert len(world.moves) <= len(queues), "each of them moves once, for loads that stay"
    heat = world.sums()
    share = sum(heat) // min(nodes, shards)
    for shard, load in world.loads().shards.items():
        # What is still hot has one queue that is nearly all of it, or nothing is free.
        if load > max(LEAST_PERMILLE, share + share // HOT_PARTS):
            mine = [world.load[queue] for queue, place in world.place.items() if place == shard]
            least = heat[-1]
            assert all(max(load - each, least + each) > load - load // GAIN_PARTS for each in mine)


@pytest.mark.slow
@given(QUEUES, st.integers(6, 9), st.integers(2, 5), st.integers(0, 1 << 32))
def test_loads_that_change_by_a_little_bring_no_queue_back(
    queues: dict[int, tuple[int, int]], shards: int, nodes: int, seed: int
) -> None:
    """Not even where a queue that was moved may move again at once."""
    world = World(queues, shards, nodes)
    world.balance = QueueBalance(stays_ms=0)
    some, plain = random.Random(seed), dict(world.load)
    for _ in range(60 * HOT_FOR_MS // STEP_MS):
        world.load = {queue: load * some.randint(97, 103) // 100 for queue, load in plain.items()}
        world.step()
    last: dict[int, int] = {}
    for _, move in world.moves:
        assert last.get(move.queue) != move.target, world.moves
        last[move.queue] = move.source
