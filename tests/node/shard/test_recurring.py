"""Messages that recur (RULES S6), in the shard."""

import random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_RECURRING_IN_ORDER, LEVEL_SCHEDULES, SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message_id import digest_of
from mayfly.node.shard.recurring import MOST_EVERY_S, UNDECIDED_MS, every_ms_of, mark_of, misses_one, recurring_digest
from mayfly.node.shard.results import Published
from mayfly.node.shard.settings import DROP_HEAD, REJECT_PUBLISH, ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.state import PAUSE_MS
from tests.node.shard.driver import Driver, attach, publish, update_queue
from tests.node.shard.moving_shards import MovingShards
from tests.node.shard.test_rescheduling import change, header_of, later
from tests.node.shard.test_schedules import message, scheduled

MINUTE_MS = 60_000


def recurs(
    message_id: str, *queue_ids: int, every_s: int = 0, one: bool = False, ttl_ms: int = -1, body: str = "",
    priority: int | None = None,
) -> bytes:  # fmt: skip
    """A publish that recurs: every so many seconds, or as the leader says."""
    parts: list[bytes] = []
    form = commands.RECURRING_ONE if one else commands.RECURRING
    commands.encode_publish_later(
        parts, queue_ids or (1,), ttl_ms, b"\x00\x01q", header_of(message_id, priority=priority),
        (body or message_id).encode(), (form, every_s),
    )  # fmt: skip
    return b"".join(parts)


def says(message_id: str, after_ms: int, next_ms: int, queue_id: int = 1) -> bytes:
    """The leader's word."""
    digest = recurring_digest(digest_of(message_id.encode()))
    return commands.encode_next_times([(queue_id, digest, after_ms, next_ms)])


def outage(driver: Driver, milliseconds: int) -> None:
    """Time goes on without a leader."""
    driver.time_ms += milliseconds


def due_times(driver: Driver, queue_id: int = 1) -> list[int]:
    """When what waits is due, from now; below 0 what the leader is to say."""
    queue = driver.shard.queue(queue_id)
    assert queue is not None
    if queue.schedule is None:
        return []
    waiting = queue.schedule.behind(-1, 1 << 48, 100)
    return [-1 if each.enqueued_ms >= UNDECIDED_MS else each.enqueued_ms - driver.time_ms for each in waiting]


RETRIES: Final[dict[str, object]] = {
    "allow_schedule": True, "retry_ways": 6, "retry_min_ms": 1000, "retry_max_ms": 1000, "retry_multiplier": 1,
    "retry_counts_all": True,
}  # fmt: skip
"""What a queue is told that retries each time after a second."""


def check_replica(driver: Driver) -> None:
    """C1: another replica, and one from a snapshot, are the same."""
    assert driver.replay().digest() == driver.shard.digest()
    restored = Shard(3, 2)
    restored.restore(driver.shard.snapshot())
    assert restored.snapshot() == driver.shard.snapshot()
    assert sorted(map(repr, restored.undecided(100))) == sorted(map(repr, driver.shard.undecided(100)))
    assert restored.next_message_due_ms() == driver.shard.next_message_due_ms()
    assert sorted(restored.live_entries()) == sorted(driver.shard.live_entries())


@pytest.fixture
def driver() -> Driver:
    """A shard with queue 1, which allows schedules."""
    driver = Driver()
    driver.create(1, allow_schedule=True)
    return driver


def test_s6_one_message_comes_each_time(driver: Driver) -> None:
    """S6, S3: not before, and not twice."""
    driver.run(attach(1, 7), recurs("a", every_s=5))
    for _ in range(3):
        driver.pass_ms(4999)
        driver.tick()
        assert driver.delivered(7) == []
        driver.pass_ms(1)
        driver.tick()
        driver.tick()
        assert driver.delivered(7) == ["a"]
        assert scheduled(driver) == 1
    check_replica(driver)


def test_s6_times_follow_from_times_however_late_each_is_seen_to(driver: Driver) -> None:
    """S6: a leader that is late by less than what a pause is does not shift them, nor leave one out."""
    driver.run(recurs("a", every_s=1))
    driver.pass_ms(1990)
    driver.tick()
    assert due_times(driver) == [10]
    driver.pass_ms(2500)
    driver.tick()
    assert driver.drain(1) == ["a"] * 4
    assert due_times(driver) == [510]


def test_s6_the_leader_says_when_a_cron_expression_comes(driver: Driver) -> None:
    """S6: until then it is undecided, and its word counts once."""
    driver.run(recurs("a"))
    published_ms = driver.time_ms
    assert due_times(driver) == [-1]
    ((queue_id, waiting),) = driver.shard.undecided(10)
    assert (queue_id, driver.body(waiting)) == (1, "a")
    assert driver.shard.queue_statistics(1).next_due_ms == -1  # type: ignore[union-attr]
    check_replica(driver)
    driver.lead(says("a", published_ms - 1, published_ms + 5), says("b", published_ms, published_ms + 5))
    driver.lead(says("a", published_ms, published_ms + 5, queue_id=9))
    assert due_times(driver) == [-1]
    driver.lead(says("a", published_ms, published_ms + MINUTE_MS))
    driver.lead(says("a", published_ms, published_ms + 2 * MINUTE_MS))
    assert due_times(driver) == [MINUTE_MS]
    assert driver.shard.undecided(10) == []
    check_replica(driver)
    driver.pass_ms(MINUTE_MS + 3)
    driver.tick()
    assert driver.drain(1) == ["a"]
    assert due_times(driver) == [-1]
    driver.lead(says("a", published_ms + MINUTE_MS, published_ms + 2 * MINUTE_MS))
    assert due_times(driver) == [MINUTE_MS - 3]


@pytest.mark.parametrize("every_s", [0, 60])
def test_s6_times_missed_without_a_leader_do_not_come(driver: Driver, every_s: int) -> None:
    """S6: the next one is behind all of them, and no entry looks at each."""
    driver.run(recurs("a", every_s=every_s))
    first_ms = driver.time_ms + MINUTE_MS
    if not every_s:
        driver.lead(says("a", driver.time_ms, first_ms))
    outage(driver, 1000 * 24 * 60 * MINUTE_MS + 17)
    driver.tick()
    assert driver.drain(1) == []
    if not every_s:
        (message_, after_ms) = driver.shard.undecided(1)[0][1], driver.time_ms
        assert message_.enqueued_ms == UNDECIDED_MS + after_ms
        driver.lead(says("a", after_ms, after_ms + MINUTE_MS - 17))
    assert due_times(driver) == [MINUTE_MS - 17]
    check_replica(driver)
    driver.pass_ms(MINUTE_MS)
    driver.tick()
    assert driver.drain(1) == ["a"]


@pytest.mark.parametrize("every_s", [0, 60])
def test_s6_or_one_comes_for_all_of_them(driver: Driver, every_s: int) -> None:
    """S6, `x-schedule-missed: one`: as if it were due when there is a leader again."""
    driver.run(recurs("a", every_s=every_s, one=True, ttl_ms=500))
    if not every_s:
        driver.lead(says("a", driver.time_ms, driver.time_ms + MINUTE_MS))
    outage(driver, 10 * MINUTE_MS + 17)
    driver.tick()
    assert driver.ready(1) == 1
    driver.pass_ms(499)
    driver.tick()
    assert driver.drain(1) == ["a"]
    assert due_times(driver) == ([-1] if not every_s else [MINUTE_MS - 17 - 499])
    check_replica(driver)


def test_s6_what_the_leader_says_may_have_been_missed_as_well(driver: Driver) -> None:
    """S6: a leader dies between a time and its word on the next one."""
    driver.run(recurs("a"), recurs("b", one=True))
    published_ms = driver.time_ms
    outage(driver, 10 * MINUTE_MS)
    words = [says(name, published_ms, published_ms + MINUTE_MS) for name in "ab"]
    driver.lead(*words)
    driver.tick()
    assert driver.drain(1) == ["b"]
    assert {each.enqueued_ms - UNDECIDED_MS for _, each in driver.shard.undecided(9)} == {driver.time_ms}


def test_s6_a_short_pause_makes_late_and_leaves_nothing_out(driver: Driver) -> None:
    """S6: as between two leaders."""
    driver.run(recurs("a", every_s=1))
    driver.pass_ms(500)
    outage(driver, 1900)
    driver.tick()
    assert driver.drain(1) == ["a", "a"]
    assert due_times(driver) == [600]


def test_s6_with_a_leader_nothing_is_missed_however_late(driver: Driver) -> None:
    """S6: an overloaded shard comes to it in the end."""
    driver.run(recurs("a", every_s=60))
    driver.pass_ms(3 * MINUTE_MS)
    driver.tick()
    assert driver.drain(1) == ["a"] * 3


def test_s6_two_pauses_shortly_behind_each_other_are_one(driver: Driver) -> None:
    """S6: what was missed in the first and not seen to is not made up for in the second."""
    driver.run(recurs("a", every_s=1))
    outage(driver, 60 * MINUTE_MS)
    driver.run(publish("x", 9))  # An entry that does not look at what is due.
    driver.pass_ms(100)
    outage(driver, 60 * MINUTE_MS)
    driver.tick()
    assert driver.drain(1) == []
    assert due_times(driver) == [900]


def test_s6_pauses_are_known_from_their_level_on() -> None:
    """Older releases have to read the snapshots of a shard before that."""
    for level, version in ((LEVEL_SCHEDULES - 1, None), (LEVEL_SCHEDULES, SHARD_SNAPSHOT_WITH_SPECIAL_ROWS)):
        driver = Driver(level=level)
        driver.run(publish("x", 9))
        outage(driver, 5000)
        driver.run(publish("x", 9))
        assert (driver.shard.snapshot()[1] == SHARD_SNAPSHOT_WITH_SPECIAL_ROWS) is (version is not None)
        check_replica(driver)


def test_s6_published_again_under_its_id_it_is_replaced(driver: Driver) -> None:
    """S6: in each queue; what waits once under the id stays."""
    driver.create(2, allow_schedule=True)
    driver.run(recurs("a", 1, 2, every_s=5, body="old"), later("a", 1, after_ms=7000, body="once"))
    driver.run(recurs("a", 1, every_s=6, body="new"), recurs("b", 1, every_s=6, body="other"))
    assert (due_times(driver, 1), due_times(driver, 2)) == ([6000, 6000, 7000], [5000])
    driver.pass_ms(7000)
    driver.tick()
    assert driver.drain(1) == ["new", "other", "once"]
    assert driver.drain(2) == ["old"]
    driver.run(recurs("a", 2, every_s=6, body="new"))
    assert len(driver.shard.live_entries()) == 2
    check_replica(driver)


def test_s6_cancelled_it_never_comes_again(driver: Driver) -> None:
    """S6, S4: undecided, waiting, or after it came; what has come stays."""
    driver.run(recurs("a", every_s=5), recurs("b"), recurs("c", every_s=1))
    driver.pass_ms(1000)
    driver.tick()
    assert driver.guarded(change("a"), change("b"), change("c"), change("c")) == ([], [3])
    assert driver.shard.undecided(9) == []
    assert driver.shard.next_message_due_ms() == -1
    driver.pass_ms(100_000)
    driver.tick()
    driver.lead(says("b", 1_000_000, 1_000_100))
    assert driver.drain(1) == ["c"]
    assert not driver.shard.live_entries()
    check_replica(driver)


def test_s6_rescheduled_the_next_time_is_another_and_those_behind_it_follow(driver: Driver) -> None:
    """S6, S4: now at the soonest."""
    driver.run(recurs("a", every_s=5), recurs("b"))
    published_ms = driver.time_ms
    assert driver.guarded(change("a", (commands.AFTER, 2000)), change("b", (commands.AT, 7))) == ([], [])
    assert driver.drain(1) == ["b"]
    assert [each.enqueued_ms - UNDECIDED_MS for _, each in driver.shard.undecided(9)] == [published_ms]
    driver.pass_ms(2000)
    driver.tick()
    assert driver.drain(1) == ["a"]
    assert due_times(driver) == [5000, -1]
    check_replica(driver)


def test_s6_purge_and_delete_end_it(driver: Driver) -> None:
    """S6, T13: as they take what is scheduled."""
    driver.create(2, allow_schedule=True)
    driver.run(recurs("a", 1, 2, every_s=5), recurs("b", 1, 2))
    driver.run(commands.encode_purge(1))
    driver.run(commands.encode_delete_queue(2, False, False))
    assert driver.shard.undecided(9) == []
    assert driver.shard.next_message_due_ms() == -1
    assert not driver.shard.live_entries()
    check_replica(driver)


def test_s6_without_the_opt_in_or_an_id_it_is_a_message_as_any_other(driver: Driver) -> None:
    """S6: each queue of a fan-out goes by its own."""
    driver.create(2)
    driver.run(recurs("a", 2, 1, every_s=5), recurs("", every_s=5, body="without"))
    assert driver.drain(2) == ["a"]
    assert driver.drain(1) == ["without"]
    assert due_times(driver, 1) == [5000]


def test_s6_ttl_counts_from_each_time_and_priorities_stay(driver: Driver) -> None:
    """S6, S3."""
    driver.create(2, allow_schedule=True, max_priority=5)
    driver.run(recurs("low", 2, every_s=2, priority=1, ttl_ms=300), recurs("high", 2, every_s=2, priority=4))
    driver.pass_ms(2250)
    driver.tick()
    assert driver.ready(2) == 2
    driver.pass_ms(49)
    driver.tick()
    assert driver.drain(2) == ["high", "low"]
    driver.pass_ms(2002)
    driver.tick()
    assert driver.drain(2) == ["high"]
    driver.run(update_queue(2, ShardQueueSettings(message_ttl_ms=100, ttl_retroactive=True, allow_schedule=True)))
    driver.pass_ms(1700)
    driver.tick()
    assert driver.ready(2) == 2
    driver.pass_ms(99)
    driver.tick()
    assert driver.ready(2) == 0
    check_replica(driver)


def test_s6_a_full_queue_that_refuses_refuses_what_comes(driver: Driver) -> None:
    """S6, S3: it counts as one that waits, and so does all that came of it; a consumer that waits is given its
    message."""
    driver.create(2, allow_schedule=True, max_length=3, overflow=REJECT_PUBLISH)
    driver.run(recurs("a", 2, every_s=1))
    for _ in range(4):
        driver.pass_ms(1000)
        driver.tick()
    assert driver.ready(2) == 2
    statistics = driver.shard.queue_statistics(2)
    assert statistics is not None and statistics.refused == 2
    (answer,) = driver.run(commands.encode_guard(1), recurs("b", 2, every_s=1))
    assert isinstance(answer, Published)
    assert answer.refused == [0]
    driver.create(3, allow_schedule=True, max_length=1, overflow=REJECT_PUBLISH)
    driver.run(attach(3, 7), recurs("c", 3, every_s=1))
    driver.pass_ms(1000)
    driver.tick()
    assert driver.delivered(7) == ["c"]
    check_replica(driver)


def test_s6_a_full_queue_that_drops_lets_go_of_what_came_first(driver: Driver) -> None:
    """S6, S3: what recurs goes only where there is nothing else."""
    driver.create(2, allow_schedule=True, max_length=2, overflow=DROP_HEAD)
    driver.run(recurs("a", 2, every_s=1))
    for _ in range(5):
        driver.pass_ms(1000)
        driver.tick()
    assert (driver.ready(2), scheduled(driver, 2)) == (1, 1)
    check_replica(driver)


def test_s6_what_comes_back_waits_for_its_retry_beside_it(driver: Driver) -> None:
    """S5, S6: with the same time and content the two stand at one place."""
    driver.create(2, **RETRIES)
    driver.run(attach(2, 7), recurs("a", 2, every_s=1))
    driver.pass_ms(1000)
    driver.tick()
    driver.run(commands.encode_settle(2, 7, commands.REQUEUE, [1]))
    assert due_times(driver, 2) == [1000, 1000]
    assert driver.guarded(change("a", queues=(2,))) == ([], [])
    driver.pass_ms(1000)
    driver.tick()
    assert driver.delivered(7) == ["a", "a"]
    assert scheduled(driver, 2) == 0
    driver.run(commands.encode_settle(2, 7, commands.ACK, [2]))
    assert not driver.shard.live_entries()


def test_s6_what_comes_in_one_entry_is_bounded() -> None:
    """C4: also where one alone has many times behind it."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=4, returned_per_entry=10)
    driver.create(1, allow_schedule=True)
    driver.run(recurs("a", every_s=1), recurs("b", every_s=1))
    driver.pass_ms(25_000)
    seen = []
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
        seen.append(driver.ready(1))
    assert seen == [10, 20, 30, 40, 50]


def test_s6_a_queue_that_moves_takes_it_along() -> None:
    """S6: what is left of an interval is left of it there, a time on the wall stays; it is cancelled where it is."""
    shards = MovingShards()
    shards.create(1, 1, allow_schedule=True)
    for shard in (1, 2, 3):
        shards.lead(shard, commands.encode_raise_level(LEVEL_SCHEDULES))
    names = [f"m{number}" for number in range(9)]
    shards.run(1, *[recurs(name, every_s=1 + number, one=True) for number, name in enumerate(names)], recurs("cron"))
    shards.lead(1, says("cron", 1_000_000, 5_000_000))
    digests = {name: recurring_digest(digest_of(name.encode())) for name in [*names, "cron"]}
    for target in (3, 1, 2):
        shards.ask_to_move(1, target)
        shards.finish_moves()
        each = shards.shards[target]
        queue = each.shard.queue(1)
        assert queue is not None and queue.schedule is not None
        assert queue.scheduled_count() == 10
        for number, name in enumerate(names):
            (found,) = queue.schedule.find(digests[name], 5)
            left_ms = found.enqueued_ms - shards.now_ms - each.ahead_ms
            assert left_ms == every_ms_of(found) == 1000 + 1000 * number
            assert misses_one(found)
        (found,) = queue.schedule.find(digests["cron"], 5)
        assert (found.enqueued_ms, every_ms_of(found)) == (5_000_000, 0)
        each.restore()
    encoded = commands.encode_change_scheduled([1], digest_of(b"m0"), (commands.CANCEL, 0))
    shards.run(2, commands.encode_guard(2), encoded, encoded)
    shards.now_ms += 2_000
    shards.tick(2)
    assert shards.ready(1) == ["m1"]


def test_s6_what_is_undecided_is_so_in_its_new_shard() -> None:
    """S6: from the same time on, and its leader sees it."""
    shards = MovingShards()
    shards.create(1, 1, allow_schedule=True)
    shards.run(1, recurs("cron"))
    for target in (3, 1):
        shards.ask_to_move(1, target)
        shards.finish_moves()
        each = shards.shards[target]
        assert [message.enqueued_ms - UNDECIDED_MS for _, message in each.shard.undecided(5)] == [1_000_000]
        each.restore()
        assert len(each.shard.undecided(5)) == 1


def test_s6_what_arrives_replaces_what_recurs_under_its_id() -> None:
    """S6: there is one for an id, whichever way it comes."""
    shards = MovingShards()
    shards.create(1, 1, allow_schedule=True)
    shards.run(1, recurs("a", every_s=5, body="first"))
    shards.ask_to_move(1, 2)
    shards.lead_moves(1)
    shards.send(None, 1)
    shards.run(2, recurs("a", every_s=5, body="second"))
    shards.run(1, recurs("a", every_s=7, body="third"))
    shards.finish_moves()
    queue = shards.shards[2].shard.queue(1)
    assert queue is not None and queue.schedule is not None
    (found,) = queue.schedule.behind(-1, 1 << 48, 9)
    assert shards.shards[2].body(found) == "third"


def test_s6_what_is_published_in_the_old_shard_replaces_nothing_that_is_newer() -> None:
    """S6: a node that has not heard of the move publishes there; it is told that its message is nowhere, and the one
    that another node publishes in the new shard afterwards stays. In the old shard, in one that takes it back while
    that goes on, and in none that the queue is in."""
    shards = MovingShards()
    shards.create(1, 1, allow_schedule=True)
    for shard in (1, 2, 3):
        shards.lead(shard, commands.encode_raise_level(LEVEL_RECURRING_IN_ORDER))

    def publish(shard: int, body: str) -> list[int]:
        (answer,) = shards.run(shard, commands.encode_guard(1), recurs("a", every_s=5, body=body))
        assert isinstance(answer, Published)
        return answer.refused

    def bodies(shard: int) -> list[str]:
        queue = shards.shards[shard].shard.queue(1)
        assert queue is not None and queue.schedule is not None
        return [shards.shards[shard].body(each) for each in queue.schedule.behind(-1, 1 << 48, 9)]

    assert publish(1, "before") == []
    shards.ask_to_move(1, 2)
    shards.finish_moves()
    assert publish(1, "first") == [0]
    assert publish(2, "second") == []
    shards.finish_moves()
    assert bodies(2) == ["second"]
    shards.ask_to_move(1, 1)
    shards.lead_moves(2)
    shards.send(None, 2)
    assert publish(1, "while it returns") == publish(2, "when it has left") == [0]
    shards.finish_moves()
    assert bodies(1) == ["second"]
    assert publish(1, "third") == []
    assert bodies(1) == ["third"]


def test_s6_below_its_level_a_queue_on_its_way_takes_what_recurs() -> None:
    """C1: as the release before has it."""
    shards = MovingShards(level=LEVEL_RECURRING_IN_ORDER - 1)
    shards.create(1, 1, allow_schedule=True)
    shards.ask_to_move(1, 2)
    shards.lead_moves(1)
    (answer,) = shards.run(1, commands.encode_guard(1), recurs("a", every_s=5))
    assert isinstance(answer, Published) and answer.refused == []


@pytest.mark.parametrize(
    "octets",
    [
        recurs("a", every_s=MOST_EVERY_S + 1),
        recurs("a")[:1] + b"\x05" + recurs("a")[2:],
        commands.encode_change_scheduled([1], digest_of(b"a"), (commands.RECURRING, 5)),
    ],
)
def test_a_command_that_is_none_is_refused(driver: Driver, octets: bytes) -> None:
    guard = commands.encode_guard(1) if octets[0] == commands.CHANGE_SCHEDULED else b""
    with pytest.raises(ShardError):
        driver.run(guard, octets)
    driver.shard.finish()
    assert scheduled(driver) == 0


@pytest.mark.parametrize("octets", [says("a", 5, 5), says("a", 5, UNDECIDED_MS), says("a", 5, 6)[:-1]])
def test_a_word_of_the_leader_that_is_none_is_refused(driver: Driver, octets: bytes) -> None:
    driver.run(recurs("a"))
    with pytest.raises(ShardError):
        driver.lead(octets)
    driver.shard.finish()
    assert due_times(driver) == [-1]


@given(st.integers(0, MOST_EVERY_S), st.booleans())
def test_s6_a_mark_says_how_it_recurs(every_s: int, one: bool) -> None:
    made = message(1, 5).recurring(mark_of(every_s, one))
    assert made.recurs and made.delivery_count >= -(1 << 31)
    assert (every_ms_of(made), misses_one(made)) == (1000 * every_s, one)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from("abc"), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("move"), st.sampled_from("abc"), st.integers(0, 6000)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 4000)),
        st.tuples(st.just("outage"), st.just(""), st.integers(2001, 30_000)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 1 << 20))
def test_s6_seen_to_promptly_each_time_with_a_leader_comes_and_no_other(
    steps: list[tuple[str, str, int]], seed: int
) -> None:
    """S6, against times that are counted one by one: those with a leader come, those without do not."""
    rng = random.Random(seed)
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=rng.choice((2, 8)))
    driver.lead(commands.encode_raise_level(LEVEL_SCHEDULES))
    driver.create(1, allow_schedule=True)
    waiting: dict[str, tuple[int, int]] = {}
    expected: list[str] = []

    def reach(until_ms: int, led: bool = True) -> None:
        """Without a leader all are missed up to now if the first of them is, by more than a short pause."""
        for name, (next_ms, every_ms) in waiting.items():
            is_missed = not led and until_ms - next_ms > PAUSE_MS
            while next_ms <= until_ms:
                if not is_missed:
                    expected.append(name)
                next_ms += every_ms
            waiting[name] = (next_ms, every_ms)

    for step, name, number in steps:
        if step == "publish":
            driver.run(recurs(name, every_s=number))
            waiting[name] = (driver.time_ms + 1000 * number, 1000 * number)
        elif step == "cancel":
            driver.guarded(change(name))
            waiting.pop(name, None)
        elif step == "move":
            driver.guarded(change(name, (commands.AFTER, number)))
            if name in waiting:
                waiting[name] = (driver.time_ms + number, waiting[name][1])
                reach(driver.time_ms, True)
        elif step == "pass":
            for _ in range(number // 100):
                driver.pass_ms(100)
                driver.tick()
                reach(driver.time_ms)
        else:
            outage(driver, number)
            driver.tick()
            reach(driver.time_ms, False)
        if rng.random() < 0.2:
            restored = Shard(3, 1, messages_per_piece=rng.choice((2, 8)))
            restored.restore(driver.shard.snapshot())
            driver.shard = restored
    assert sorted(driver.drain(1)) == sorted(expected)
    assert scheduled(driver) == len(waiting)


def test_s6_retries_at_one_place_in_a_run_and_among_the_young_come() -> None:
    """What comes of one message has one content, so its retries that are due together are told apart by nothing."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=4)
    driver.create(2, **RETRIES)
    driver.run(attach(2, 7), recurs("a", 2, every_s=1))
    driver.pass_ms(5000)
    for _ in range(6):
        driver.tick()
    driver.run(commands.encode_settle(2, 7, commands.REQUEUE, [1, 2, 3, 4, 5]))
    assert driver.guarded(change("a", queues=(2,))) == ([], [])
    driver.pass_ms(1000)
    driver.tick()
    assert scheduled(driver, 2) == 0
    assert driver.delivered(7) == ["a"] * 10
