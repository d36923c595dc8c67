"""Delivery tags: held in runs, settled in any order, given to the shards in few commands."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from mayfly.node.broker.unacknowledged import MOST_IN_RUN, DeliveryHolder, Unacknowledged, UnknownTag
from mayfly.node.shard.commands import ACK, RANGE, REJECT, REQUEUE, SETTLE_HEAD


def oldest_tag(tags: Unacknowledged) -> int:
    """The lowest tag that is outstanding, 0 for none."""
    return tags._runs[tags._head].lowest_tag if tags._runs else 0


def ids(settlements: list[Any]) -> list[tuple[int, int, list[int]]]:
    return [
        (
            s.holder.holder_id,
            s.outcome,
            s.scattered if s.scattered is not None else list(range(s.first, s.last + 1)),
        )
        for s in settlements
    ]


def size_bytes(tags: Unacknowledged) -> int:
    """What the channel keeps of its deliveries."""
    runs = tags._runs
    return sys.getsizeof(runs) + sum(sys.getsizeof(run) + sys.getsizeof(run.settled) for run in runs)


def bound_bytes(outstanding: int) -> int:
    """As much as so many deliveries may take: proportional to them, and a little to begin with."""
    return 500 * outstanding + 20_000


def test_in_order_acks_become_one_range() -> None:
    tags = Unacknowledged()
    holder = DeliveryHolder(7, 1, 100)
    assert tags.hold(holder, 1, 10) == 1
    assert tags.hold(holder, 11, 10) == 11
    for tag in range(1, 16):
        tags.settle(tag, False, ACK)
    (settlement,) = tags.take()
    assert (settlement.first, settlement.last) == (1, 15)
    assert SETTLE_HEAD.unpack_from(settlement.encode())[2] == RANGE
    assert tags.count == 5


def test_multiple_spans_holders() -> None:
    tags = Unacknowledged()
    one, two = DeliveryHolder(1, 1, 100), DeliveryHolder(2, 1, 101)
    tags.hold(one, 1, 3)
    tags.skip(2)
    tags.hold(two, 1, 3)
    tags.settle(7, True, ACK)
    assert ids(tags.take()) == [(1, ACK, [1, 2, 3]), (2, ACK, [1, 2])]
    tags.settle(0, True, REQUEUE)
    assert ids(tags.take()) == [(2, REQUEUE, [3])]
    assert tags.count == 0


def test_outcomes_keep_their_order() -> None:
    tags = Unacknowledged()
    holder = DeliveryHolder(1, 1, 100)
    tags.hold(holder, 1, 5)
    tags.settle(2, False, REQUEUE)
    tags.settle(1, False, REQUEUE)
    tags.settle(3, False, ACK)
    tags.settle(4, False, REQUEUE)
    assert ids(tags.take()) == [(1, REQUEUE, [2, 1]), (1, ACK, [3]), (1, REQUEUE, [4])]


@pytest.mark.parametrize(("tag", "multiple"), [(99, False), (99, True), (0, False), (3, False), (3, True)])
def test_unknown_tags(tag: int, multiple: bool) -> None:
    tags = Unacknowledged()
    tags.hold(DeliveryHolder(1, 1, 100), 1, 5)
    tags.settle(3, False, ACK)
    tags.take()
    with pytest.raises(UnknownTag):
        tags.settle(tag, multiple, ACK)
    assert tags.take() == []


def test_tags_without_acknowledgement_are_unknown() -> None:
    tags = Unacknowledged()
    tags.skip(3)
    with pytest.raises(UnknownTag):
        tags.settle(2, False, ACK)


def test_a_lost_shard_settles_nothing_but_knows_its_tags() -> None:
    tags = Unacknowledged()
    tags.hold(DeliveryHolder(1, 5, 100), 1, 2)
    tags.hold(DeliveryHolder(2, 6, 101), 1, 2)
    tags.forget_shard(5)
    tags.settle(4, True, ACK)
    assert ids(tags.take()) == [(2, ACK, [1, 2])]
    assert tags.count == 0


@pytest.mark.parametrize("consumers", [1, 2])
def test_one_delivery_that_is_never_settled_does_not_keep_the_others(consumers: int) -> None:
    """The first is held, all that come later are settled one by one, in order."""
    prefetch = 10
    tags = Unacknowledged()
    holders = [DeliveryHolder(i, 1, 100 + i) for i in range(consumers)]
    for number in range(200_000 + prefetch):
        assert tags.hold(holders[number % consumers], number // consumers + 1, 1) == number + 1
        if number >= prefetch:
            tags.settle(number + 2 - prefetch, False, ACK)
            if number % 64 == 0:
                tags.take()
            if number % 5009 == 0:
                assert size_bytes(tags) < bound_bytes(prefetch), number
    tags.take()
    assert tags.count == prefetch
    assert (oldest_tag(tags), size_bytes(tags) < bound_bytes(prefetch)) == (1, True)
    tags.settle(1, False, ACK)
    assert ids(tags.take()) == [(0, ACK, [1])]
    assert oldest_tag(tags) == 200_002
    tags.settle(0, True, ACK)
    assert (tags.count, oldest_tag(tags), tags.holders()) == (0, 0, [])


def test_what_is_left_of_many_deliveries_is_all_that_is_kept() -> None:
    """Whichever were settled: backwards, every other one, all but a few in the middle."""
    many = 6 * MOST_IN_RUN
    for order in (
        list(range(many, 3, -1)),
        [*range(1, many, 2), *range(4, many, 2)],
        [*range(1, many // 2), *range(many, many // 2 + 3, -1)],
        [tag for tag in range(1, many) if tag % 1000],
    ):
        for each in (1, 7, many):
            tags = Unacknowledged()
            holders = [DeliveryHolder(i, 1, 100 + i) for i in range(2)]
            for place, first in enumerate(range(1, many + 1, each)):
                tags.hold(holders[place % 2], first, min(each, many + 1 - first))
            for tag in order:
                tags.settle(tag, False, ACK)
            assert tags.count == many - len(order)
            assert size_bytes(tags) < bound_bytes(tags.count), (order[:3], each)


@pytest.mark.parametrize("seed", range(40))
def test_against_a_plain_model(seed: int) -> None:
    chance = random.Random(seed)
    largest = chance.choice([5, 5, 5, MOST_IN_RUN + 200])
    settling = chance.choice([0.5, 0.9, 1.5])
    tags = Unacknowledged()
    holders = [DeliveryHolder(i, 1, 100 + i) for i in range(3)]
    next_id = [1, 1, 1]
    model: dict[int, tuple[int, int]] = {}

    def settle(tag: int, multiple: bool) -> None:
        outcome = chance.choice((ACK, REQUEUE, REJECT))
        tags.settle(tag, multiple, outcome)
        hit = sorted(t for t in model if t <= tag) if multiple else [tag]
        got = sorted((h, i) for h, o, listed in ids(tags.take()) for i in listed if o == outcome)
        assert got == sorted(model.pop(t) for t in hit)

    for _ in range(150):
        roll = chance.random()
        if roll < 0.35:
            which, count = chance.randrange(3), chance.randint(1, largest)
            first = tags.hold(holders[which], next_id[which], count)
            for i in range(count):
                model[first + i] = (which, next_id[which] + i)
            next_id[which] += count
        elif roll < 0.4:
            tags.skip(chance.randint(1, 3))
        elif model and chance.random() < settling:
            multiple = chance.random() < 0.05
            known = list(model)
            way = chance.randrange(4)
            if way == 0:
                tag = chance.randint(1, tags.next_tag)
                if tag not in model:
                    with pytest.raises(UnknownTag):
                        tags.settle(tag, multiple, ACK)
                    continue
            else:
                tag = known[0] if way == 1 else known[-1] if way == 2 else chance.choice(known)
            settle(tag, multiple)
            # Some behind it, the oldest aside.
            for other in known[1 : chance.choice([1, 1, 40])]:
                if other in model:
                    settle(other, False)
        assert tags.count == len(model)
        assert oldest_tag(tags) == min(model, default=0)
        assert {h.holder_id for h in tags.holders()} == {which for which, _ in model.values()}
        after = chance.randint(0, tags.next_tag)
        assert tags.outstanding(0, True, after) == [tag for tag in model if tag > after]
        assert size_bytes(tags) < bound_bytes(len(model))
