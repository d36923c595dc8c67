"""Very many messages that come back at once: in line at once, dealt with in steps (RULES C4, T4, T10)."""

from itertools import pairwise

import pytest

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.commands import REQUEUE, RETURN, UNSENT
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.state import RETURNED_PER_ENTRY
from tests.node.shard.driver import (
    LEADER,
    A,
    B,
    Close,
    Driver,
    Entry,
    attach,
    encode_settle_up_to,
    publish,
    update_queue,
)

COUNT = 100
PER_ENTRY = 10


class Stepping(Driver):
    """A shard that deals with ten returns an entry, and its replica that is restored after each."""

    def __init__(self, level: int = LEVEL_HIGHEST, **settings: object) -> None:
        super().__init__(level=level)
        self.shard = self.new_shard(1)
        self.other = self.new_shard(2)
        self.create(1, **settings)

    def new_shard(self, node: int) -> Shard:
        return Shard(3, node, messages_per_piece=4, returned_per_entry=PER_ENTRY)

    def entry(self, *batches: object) -> list[object]:
        results = super().entry(*batches)  # type: ignore[arg-type]
        self.log[self.index].apply(self.other)
        state = self.other.snapshot()
        assert state == self.shard.snapshot()
        self.other = self.new_shard(2)
        self.other.restore(state)
        assert self.other.snapshot() == state
        assert self.other.due_messages(self.time_ms) == self.shard.due_messages(self.time_ms)
        assert sorted(self.other.live_entries()) == sorted(self.shard.live_entries())
        return results

    def hold(self, ttl_ms: int = -1) -> list[str]:
        """A consumer holds so many."""
        names = [f"m{number:03d}" for number in range(COUNT)]
        self.run(attach(1, 5))
        self.run(*(publish(name, 1, ttl_ms=ttl_ms) for name in names))
        assert self.delivered(5) == names
        return names

    @property
    def returning(self) -> bool:
        return bool(self.shard._state.returning.queues)


WAYS = {
    "detach": commands.encode_detach(1, 5, True),
    "session": Close(A),
    "recover": encode_settle_up_to(1, 5, RETURN, COUNT),
    "unsent": commands.encode_settle(1, 5, UNSENT, range(1, COUNT + 1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_back_is_next_in_its_order(way: str) -> None:
    """RULES T4, Q1: before what was never delivered, each a delivery more, for a consumer that attaches at once; a
    failed one, unless that is not known."""
    driver = Stepping()
    names = driver.hold()
    driver.run(commands.encode_flow(1, 5, False), publish("new", 1))
    command = WAYS[way]
    driver.entry((A, command) if isinstance(command, bytes) else command)
    assert driver.returning
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    assert (statistics.ready, statistics.unacknowledged) == (COUNT + 1, 0)
    assert (statistics.ready_bytes, statistics.unacknowledged_bytes) == (4 * COUNT + 3, 0)
    driver.run(publish("newer", 1))
    taken = []
    for expected in [*names, "new", "newer"]:
        message = driver.get_message(1)
        assert message is not None
        taken.append(driver.body(message))
        assert message.acquired_count == (expected in names and way != "unsent")
        assert message.delivery_count == (expected in names and way not in ("unsent", "session"))
    assert taken == [*names, "new", "newer"]
    assert not driver.returning and not driver.shard.live_entries()


def test_entries_that_follow_deal_with_it_in_steps() -> None:
    """RULES C4: the leader is told that there is work at once, and each entry does its share."""
    driver = Stepping()
    driver.hold()
    driver.run(publish("x", 1))
    driver.run(commands.encode_detach(1, 5, True))
    left = []
    while driver.returning:
        assert driver.shard.due_messages(driver.time_ms)
        queue = driver.shard.queue(1)
        assert queue is not None
        left.append(sum(piece.count for piece in queue.returned.packed if not hasattr(piece, "columns")))
        driver.lead(commands.encode_expire_due())
    steps = [before - after for before, after in pairwise(left)]
    assert len(left) >= COUNT // (PER_ENTRY + 4) and max(steps) < PER_ENTRY + 4
    assert not driver.shard.due_messages(driver.time_ms)
    assert driver.ready(1) == COUNT + 1


@pytest.mark.parametrize("level", [LEVEL_FAILED_DELIVERIES - 1, LEVEL_HIGHEST])
def test_what_is_requeued_is_before_what_is_published_later(level: int) -> None:
    """Without a limit: at the back below the level at which returns are told apart, and then before all others."""
    driver = Stepping(level)
    names = driver.hold()
    driver.run(commands.encode_flow(1, 5, False), publish("before", 1))
    driver.run(encode_settle_up_to(1, 5, REQUEUE, COUNT), publish("after", 1))
    assert driver.returning
    assert driver.drain(1) == ([*names, "before"] if level == LEVEL_HIGHEST else ["before", *names]) + ["after"]


def test_what_is_delivered_later_stays_held() -> None:
    """basic.recover of all but the last ones: these can still be settled, and what came back can't."""
    driver = Stepping()
    names = driver.hold()
    driver.run(commands.encode_flow(1, 5, False))
    driver.run(encode_settle_up_to(1, 5, RETURN, COUNT - 3))
    assert driver.returning
    driver.run(encode_settle_up_to(1, 5, commands.ACK, COUNT))
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    assert (statistics.acknowledged, statistics.ready, statistics.unacknowledged_bytes) == (3, COUNT - 3, 0)
    assert driver.drain(1) == names[:-3]


def test_what_is_too_late_dies_in_its_order() -> None:
    """RULES T6, T10, D7."""
    driver = Stepping(dead_letter_exchange="dlx")
    names = driver.hold(ttl_ms=50)
    driver.pass_ms(50)
    driver.run(commands.encode_detach(1, 5, True))
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert [driver.body(death.message) for death in driver.shard.unrouted(1000)] == names
    assert driver.ready(1) == 0


def test_a_retroactive_ttl_counts_for_what_is_coming() -> None:
    """RULES T12: whether it came before the return or after it."""
    driver = Stepping()
    driver.hold()
    enqueued_ms = driver.time_ms
    driver.run(commands.encode_flow(1, 5, False))
    for ttl_ms in (9000, 700):
        changed = ShardQueueSettings(name="q1", message_ttl_ms=ttl_ms, ttl_retroactive=True)
        driver.entry((LEADER, update_queue(1, changed)))
        if ttl_ms == 9000:
            driver.run(encode_settle_up_to(1, 5, RETURN, COUNT))
        queue = driver.shard.queue(1)
        assert queue is not None
        assert driver.returning
        deadlines = {message.deadline_ms - enqueued_ms for message in queue.returned.live()}
        assert deadlines == {ttl_ms}
    driver.pass_ms(700)
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert driver.ready(1) == 0


@pytest.mark.parametrize("way", ["purge", "delete"])
def test_what_is_coming_is_purged_and_deleted_with_the_rest(way: str) -> None:
    driver = Stepping()
    driver.hold()
    driver.run(commands.encode_detach(1, 5, True))
    assert driver.returning
    encode = commands.encode_purge(1) if way == "purge" else commands.encode_delete_queue(1, False, False)
    (result,) = driver.run(encode)
    assert result.messages == COUNT  # type: ignore[attr-defined]
    assert not driver.returning
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert not driver.shard.live_entries()


def test_many_holders_with_less_share_the_bound() -> None:
    """A session that ends: its consumers together hold more than an entry deals with."""
    driver = Stepping()
    driver.run(*(attach(1, consumer, prefetch=PER_ENTRY - 2) for consumer in range(5, 15)), session=B)
    driver.run(*(publish(f"m{number:03d}", 1) for number in range(80)))
    driver.entry(Close(B))
    assert driver.returning
    assert len(driver.drain(1)) == 80


def test_what_has_come_back_too_often_dies_at_once() -> None:
    """RULES D2: where one of them has, all are judged."""
    driver = Stepping(delivery_limit=0, dead_letter_exchange="dlx")
    names = driver.hold()
    driver.run(commands.encode_detach(1, 5, True))
    assert not driver.returning
    assert [driver.body(death.message) for death in driver.shard.unrouted(1000)] == names


def test_an_ordinary_return_is_dealt_with_by_its_entry() -> None:
    assert RETURNED_PER_ENTRY >= 1000
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5))
    driver.run(*(publish("m", 1) for _ in range(1000)))
    driver.run(commands.encode_detach(1, 5, True))
    assert not driver.shard._state.returning.queues
    assert isinstance(driver.log[1], Entry)
