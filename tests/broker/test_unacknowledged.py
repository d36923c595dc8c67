"""Delivery tags: held in runs, settled in any order, given to the shards in few commands."""

from __future__ import annotations

import random
from typing import Any

import pytest

from node.broker.unacknowledged import Holder, Unacknowledged, UnknownTag
from node.shard.commands import ACK, RANGE, REJECT, REQUEUE, SETTLE_HEAD


def ids(settlements: list[Any]) -> list[tuple[int, int, list[int]]]:
    return [
        (
            s.holder.holder_id,
            s.outcome,
            s.scattered if s.scattered is not None else list(range(s.first, s.last + 1)),
        )
        for s in settlements
    ]


def test_in_order_acks_become_one_range() -> None:
    tags = Unacknowledged()
    holder = Holder(7, 1, 100)
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
    one, two = Holder(1, 1, 100), Holder(2, 1, 101)
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
    holder = Holder(1, 1, 100)
    tags.hold(holder, 1, 5)
    tags.settle(2, False, REQUEUE)
    tags.settle(1, False, REQUEUE)
    tags.settle(3, False, ACK)
    tags.settle(4, False, REQUEUE)
    assert ids(tags.take()) == [(1, REQUEUE, [2, 1]), (1, ACK, [3]), (1, REQUEUE, [4])]


@pytest.mark.parametrize(("tag", "multiple"), [(99, False), (99, True), (0, False), (3, False), (3, True)])
def test_unknown_tags(tag: int, multiple: bool) -> None:
    tags = Unacknowledged()
    tags.hold(Holder(1, 1, 100), 1, 5)
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
    tags.hold(Holder(1, 5, 100), 1, 2)
    tags.hold(Holder(2, 6, 101), 1, 2)
    tags.forget_shard(5)
    tags.settle(4, True, ACK)
    assert ids(tags.take()) == [(2, ACK, [1, 2])]
    assert tags.count == 0


@pytest.mark.parametrize("seed", range(40))
def test_against_a_plain_model(seed: int) -> None:
    chance = random.Random(seed)
    tags = Unacknowledged()
    holders = [Holder(i, 1, 100 + i) for i in range(3)]
    next_id = [1, 1, 1]
    model: dict[int, tuple[int, int]] = {}
    for _ in range(200):
        roll = chance.random()
        if roll < 0.35:
            which, count = chance.randrange(3), chance.randint(1, 5)
            first = tags.hold(holders[which], next_id[which], count)
            for i in range(count):
                model[first + i] = (which, next_id[which] + i)
            next_id[which] += count
        elif roll < 0.4:
            tags.skip(chance.randint(1, 3))
        elif model:
            multiple = chance.random() < 0.15
            outcome = chance.choice((ACK, REQUEUE, REJECT))
            tag = chance.choice(list(model)) if chance.random() < 0.9 else chance.randint(1, 400)
            if tag not in model:
                with pytest.raises(UnknownTag):
                    tags.settle(tag, multiple, outcome)
                continue
            tags.settle(tag, multiple, outcome)
            hit = sorted(t for t in model if t <= tag) if multiple else [tag]
            got = sorted((h, i) for h, o, listed in ids(tags.take()) for i in listed if o == outcome)
            assert got == sorted(model.pop(t) for t in hit)
        assert tags.count == len(model)
        assert {h.holder_id for h in tags.holders()} == {which for which, _ in model.values()}
