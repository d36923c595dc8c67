"""What operators are shown, each number against a plain count of everything there is."""

from bisect import bisect_left
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic

from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, REJECT, REQUEUE, encode_get, encode_settle
from mayfly.node.shard.expiry_lag import BOUNDS_MS, ExpiryLag
from mayfly.node.shard.lease import CONSUMED, CREATED, DECLARED, GOT, RELEASED
from mayfly.node.shard.message import Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import MOVES_WITH_BYTES, MOVES_WITH_MESSAGES, QUEUES_PER_STEP, Shard
from mayfly.node.shard.waiting import CHUNK, Waiting, WaitingIndex
from tests.node.amqp.headers import build_header
from tests.node.readings import statistics_of
from tests.node.shard.driver import B, Close, Driver, attach, publish, update_queue

MUCH = 1 << 30
NEVER = 1 << 60

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from([None, 0, 3, 10, 50]), min_size=1, max_size=12)),
        st.tuples(st.just("get"), st.integers(1, 9)),
        st.tuples(st.just("requeue"), st.integers(1, 4)),
        st.tuples(st.just("pass"), st.integers(0, 20)),
        st.tuples(st.just("tick"), st.just(0)),
        st.tuples(st.just("purge"), st.just(0)),
        st.tuples(st.just("retroactive"), st.sampled_from([5, 40])),
        st.tuples(st.just("look"), st.sampled_from([0, 5, 30])),
    ),
    max_size=40,
)


def queue_of(driver: Driver) -> Queue:
    queue = driver.shard.queue(1)
    assert queue is not None
    return queue


def ready(queue: Queue) -> list[Message]:
    return queue.returned.live() + queue.ready.live()


def agrees(seen: Waiting, queue: Queue, now_ms: int) -> None:
    """`seen` is what a look at every message says; if it is not exact, it says less and not more."""
    messages = ready(queue)
    expired = sum(0 <= message.deadline_ms <= now_ms for message in messages)
    oldest = min((message.enqueued_ms for message in messages), default=-1)
    if seen.exact:
        assert (seen.expired, seen.oldest_ms) == (expired, oldest)
    else:
        assert seen.expired <= expired and seen.oldest_ms >= oldest


def do(driver: Driver, step: str, value: object) -> None:
    """One step on queue 1."""
    if step == "publish":
        assert isinstance(value, list)
        driver.run(*(publish("m", 1) if ttl is None else publish("m", 1, ttl_ms=ttl) for ttl in value))
    elif step == "purge":
        driver.run(commands.encode_purge(1))
    elif step == "tick":
        driver.tick()
    else:
        assert isinstance(value, int)
        if step == "get":
            driver.run(*(encode_get(1, 99, False) for _ in range(value)))
        elif step == "requeue":
            held = [id for holder in queue_of(driver).holders.values() for id in holder.held]
            driver.run(encode_settle(1, 99, REQUEUE, held[-value:]))
        elif step == "pass":
            driver.pass_ms(value)
        elif step == "retroactive":
            changed = ShardQueueSettings(name="q1", message_ttl_ms=value, ttl_retroactive=True)
            driver.lead(update_queue(1, changed))


@settings(deadline=None, max_examples=200)
@given(steps, st.booleans())
def test_an_index_says_what_a_look_at_every_message_says(history: list[tuple[str, object]], limited: bool) -> None:
    """RULES T6: expired ones behind a live head are counted, whatever came back, left, was purged or changed."""
    driver = Driver()
    driver.create(1, delivery_limit=20 if limited else None)
    index = WaitingIndex(queue_of(driver), 4)
    for step, value in history:
        if step == "look":
            assert isinstance(value, int)
            agrees(index.look(driver.time_ms, value), queue_of(driver), driver.time_ms)
        else:
            do(driver, step, value)
    seen = index.look(driver.time_ms, MUCH)
    assert seen.exact
    agrees(seen, queue_of(driver), driver.time_ms)


def test_what_has_left_a_chunk_is_counted_no_more() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(publish("a", 1, ttl_ms=3), publish("b", 1))
    driver.pass_ms(1)
    driver.run(publish("c", 1, ttl_ms=4), publish("d", 1))
    index = WaitingIndex(queue_of(driver), 4)
    agrees(index.look(driver.time_ms, MUCH), queue_of(driver), driver.time_ms)
    driver.pass_ms(5)
    seen = index.look(driver.time_ms, MUCH)
    assert (seen.expired, seen.oldest_ms) == (2, driver.time_ms - 6)
    driver.tick()
    seen = index.look(driver.time_ms, MUCH)
    assert (seen.expired, seen.oldest_ms) == (1, driver.time_ms - 6)
    assert driver.get(1) == "b"
    seen = index.look(driver.time_ms, MUCH)
    assert (seen.expired, seen.oldest_ms) == (0, driver.time_ms - 5)


def test_a_long_queue_is_looked_at_in_slices_and_then_hardly_at_all() -> None:
    driver = Driver()
    driver.create(1)
    random = Random(1)
    driver.run(publish("head", 1))
    for _ in range(30):
        driver.run(*(publish("m", 1, ttl_ms=random.randrange(1000)) for _ in range(1000)))
    driver.pass_ms(500)
    index = WaitingIndex(queue_of(driver))
    looks = 0
    while not (seen := index.look(driver.time_ms, CHUNK)).exact:
        assert seen.looked_at == CHUNK
        agrees(seen, queue_of(driver), driver.time_ms)
        looks += 1
    assert looks == 30_000 // CHUNK
    driver.pass_ms(100)
    seen = index.look(driver.time_ms, CHUNK)
    assert seen.exact and seen.looked_at < CHUNK
    assert seen.expired > 10_000
    agrees(seen, queue_of(driver), driver.time_ms)


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 400), st.sampled_from(BOUNDS_MS), st.integers(0, 10**9)), max_size=60))
def test_a_lag_is_counted_in_the_first_bucket_that_holds_it(lags: list[int]) -> None:
    lag, together = ExpiryLag(), ExpiryLag()
    for lag_ms in lags:
        lag.observe(lag_ms)
        if lag_ms % 7 == 0:
            lag.by_bucket()
    now_ms = 10**12
    together.observe_all(now_ms, sorted(now_ms - lag_ms for lag_ms in lags))
    assert (together.by_bucket(), together.sum_ms()) == (lag.by_bucket(), lag.sum_ms())
    ends = [*BOUNDS_MS, NEVER]
    assert lag.by_bucket() == [
        sum(before < lag_ms <= end for lag_ms in lags)
        for before, end in zip([-1, *ends[:-1]], ends, strict=True)
    ]
    assert lag.sum_ms() == sum(lags)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.lists(st.integers(0, 300), max_size=8), st.integers(0, 400)), max_size=12))
def test_the_lag_of_each_expired_message_is_counted_once(history: list[tuple[list[int], int]]) -> None:
    """Against the deaths themselves; the bound of an entry makes some wait for the next."""
    driver = Driver(expiries=3)
    driver.create(1, dead_letter_exchange="dlx")
    for ttls, pause_ms in history:
        driver.run(*(publish("m", 1, ttl_ms=ttl) for ttl in ttls))
        driver.pass_ms(pause_ms)
        driver.tick()
    deaths = driver.shard.unrouted(MUCH)
    lags = [death.time_ms - death.message.deadline_ms for death in deaths]
    counts = driver.shard.expiry_lag.by_bucket()
    assert sum(counts) == len(lags) and driver.shard.expiry_lag.sum_ms() == sum(lags)
    assert counts == [
        sum(bisect_left(BOUNDS_MS, lag) == bucket for lag in lags) for bucket in range(len(BOUNDS_MS) + 1)
    ]


def test_c1_the_lag_is_a_replicas_own() -> None:
    """RULES C1: it is in no snapshot and no digest, and a snapshot that is restored leaves it as it was."""
    driver = Driver()
    driver.create(1, message_ttl_ms=5)
    driver.run(publish("m", 1))
    before = driver.shard.snapshot()
    driver.pass_ms(35)
    driver.tick()
    assert driver.shard.expiry_lag.sum_ms() == 30
    other = Shard(3, 2)
    other.restore(driver.shard.snapshot())
    assert other.digest() == driver.shard.digest()
    assert other.expiry_lag.sum_ms() == 0
    driver.shard.restore(before)
    assert driver.shard.expiry_lag.sum_ms() == 30


def test_t10_what_was_held_is_not_late() -> None:
    """RULES T10: nobody was late who had to wait for the consumer."""
    driver = Driver()
    driver.create(1, message_ttl_ms=5, dead_letter_exchange="dlx")
    driver.run(attach(1, 5), publish("m", 1))
    driver.pass_ms(3000)
    driver.run(encode_settle(1, 5, REQUEUE, [1]))
    statistics = statistics_of(driver.shard)
    assert statistics.expired == statistics.dead_lettered_for["expired"] == 1
    assert sum(statistics.dead_lettered_for.values()) == 1
    assert sum(driver.shard.expiry_lag.by_bucket()) == 0


def test_d2_deaths_are_counted_by_reason() -> None:
    """RULES D2; a queue without a dead-letter exchange counts for nothing here, a second try not twice."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="dlx", delivery_limit=0)
    driver.create(2)
    driver.run(attach(1, 5), attach(2, 6), *(publish("m", 1, 2) for _ in range(6)))
    driver.run(encode_settle(1, 5, REJECT, [1, 2, 3]), encode_settle(2, 6, REJECT, [1, 2, 3]))
    driver.run(encode_settle(1, 5, REQUEUE, [4, 5]), encode_settle(1, 5, ACK, [6]))
    driver.run(commands.encode_detach(1, 5, True), publish("late", 1, 2, ttl_ms=0))
    expected = {"expired": 1, "rejected": 3, "delivery_limit": 2, "maxlen": 0, "queue_expired": 0}
    assert statistics_of(driver.shard).dead_lettered_for == expected
    driver.lead(commands.encode_route([commands.RouteDecision(1, commands.PARKED)]), commands.encode_retry_parked([1]))
    statistics = statistics_of(driver.shard)
    assert statistics.dead_lettered_for == expected
    assert sum(expected.values()) == statistics.dead_lettered
    driver.create(7, dead_letter_exchange="dlx", max_length=0)
    driver.create(8, dead_letter_exchange="dlx", expires_ms=5, expires_dead_letter=True)
    driver.run(publish("m", 7, 8))
    driver.pass_ms(5)
    driver.tick()
    expected |= {"maxlen": 1, "queue_expired": 1}
    assert statistics_of(driver.shard).dead_lettered_for == expected
    restored = Shard(3, 2)
    restored.restore(driver.shard.snapshot())
    assert statistics_of(restored).dead_lettered_for == expected


def test_d2_deaths_while_queues_are_counted_bit_by_bit_are_of_no_other_reason() -> None:
    """RULES D2: too many deaths of one reason now would be fewer the next time, and counters never go back."""
    driver = Driver()
    last = QUEUES_PER_STEP + 1
    driver.run(
        *[
            commands.encode_create_queue(queue, ShardQueueSettings(name=f"q{queue}", dead_letter_exchange="dlx"))
            for queue in range(1, last + 1)
        ]
    )
    driver.run(attach(last, 5), publish("m", last), publish("m", last))
    counting = driver.shard.statistics_in_steps()
    assert next(counting) is None
    driver.run(encode_settle(last, 5, REJECT, [1, 2]))
    counted = [each for each in counting if each is not None]
    assert [set(each.dead_lettered_for.values()) for each in counted] == [{0}]
    assert statistics_of(driver.shard).dead_lettered_for["rejected"] == 2


def test_l10_queues_that_go_are_counted_by_reason_and_say_when_they_were_used_last() -> None:
    """RULES L10."""
    driver = Driver()
    for queue_id, options in ((1, {"expires_ms": 100}), (2, {"expires_ms": 100}), (3, {}), (4, {}), (5, {})):
        driver.create(queue_id, auto_delete=queue_id == 4, **options)
    driver.run(publish("m", 1), attach(4, 9))
    driver.pass_ms(10)
    driver.run(encode_get(2, 99, True))
    used_ms = driver.time_ms
    driver.pass_ms(100)
    driver.tick()
    driver.run(commands.encode_delete_queue(3, False, False), commands.encode_detach(4, 9, True))
    driver.lead(commands.encode_drop_queue(5))
    for shard in (driver.shard, driver.replay()):
        assert statistics_of(shard).gone_for == {"expired": 2, "deleted": 1, "auto-delete": 1, "dropped": 1}
    restored = Shard(3, 2)
    restored.restore(driver.shard.snapshot())
    for shard in (driver.shard, restored):
        assert statistics_of(shard).gone_for["expired"] == 2
        one, two = shard.deleted[1], shard.deleted[2]
        assert (one.reason, one.last_use, one.messages) == ("expired", CREATED, 1)
        assert (two.reason, two.last_use, two.last_activity_ms) == ("expired", GOT, used_ms)


def test_l2_a_lease_says_what_used_it_last() -> None:
    """RULES L2, L3: a publish and a change of settings are no use."""
    driver = Driver()
    driver.create(1, expires_ms=1000)

    def last_use() -> str:
        restored = Shard(3, 1)
        restored.restore(driver.shard.snapshot())
        queue = restored.queue(1)
        assert queue is not None and queue.lease.last_use == queue_of(driver).lease.last_use
        return queue.lease.last_use

    assert last_use() == CREATED
    driver.run(publish("m", 1))
    driver.lead(update_queue(1, ShardQueueSettings(name="q1", expires_ms=2000)))
    assert last_use() == CREATED
    for use, command in ((GOT, encode_get(1, 99, True)), (DECLARED, commands.encode_touch_queue(1))):
        driver.run(command)
        assert last_use() == use
    driver.run(attach(1, 5), session=B)
    assert last_use() == CONSUMED
    driver.entry(Close(B))
    assert last_use() == RELEASED


@settings(deadline=None, max_examples=60)
@given(steps)
def test_t13_timers_are_those_of_heads_and_leases(history: list[tuple[str, object]]) -> None:
    """RULES T13: one timer for a queue whose head has a deadline, one for a lease that runs."""
    driver = Driver()
    driver.create(1)
    driver.create(2, expires_ms=10**6)
    driver.create(3, expires_ms=10**6)
    driver.run(attach(3, 5))
    for step, value in history:
        do(driver, step, value)
        statistics = statistics_of(driver.shard)
        assert statistics.message_timers == (queue_of(driver).next_deadline_ms() >= 0)
        assert statistics.lease_timers == 1


@settings(deadline=None, max_examples=60)
@given(steps, st.lists(st.integers(0, 9), max_size=6))
def test_the_oldest_head_is_that_of_any_line(history: list[tuple[str, object]], priorities: list[int]) -> None:
    """With priorities, with what came back, and with nothing at all."""
    driver = Driver()
    driver.create(1, max_priority=4)

    def heads() -> list[int]:
        return [line.first().enqueued_ms for line in queue_of(driver).lines() if line.count()]

    assert queue_of(driver).oldest_head_ms() == -1
    for place, (step, value) in enumerate(history):
        do(driver, step, value)
        for priority in priorities[place : place + 1]:
            driver.run(publish("m", 1, header=build_header(Basic.Properties(priority=priority), 1)))
        assert queue_of(driver).oldest_head_ms() == min(heads(), default=-1)


@pytest.mark.parametrize("chunk", [1, 7, CHUNK])
def test_an_empty_queue_has_no_oldest_message(chunk: int) -> None:
    driver = Driver()
    driver.create(1)
    seen = WaitingIndex(queue_of(driver), chunk).look(driver.time_ms, 0)
    assert (seen.expired, seen.oldest_ms, seen.exact, seen.looked_at) == (0, -1, True, 0)


def test_what_queues_have_done_is_told_of_all_and_which_may_move() -> None:
    driver = Driver()
    for queue_id in (1, 2, 3):
        driver.create(queue_id)
    driver.run(publish("abcd", 1), publish("ab", 1), publish("x", 2))
    assert driver.get(1, no_ack=False) == "abcd" and driver.get(2) == "x"
    driver.lead(commands.encode_move_out(3, 2, 1))
    driver.create(9, is_stream=True, ttl_retroactive=True)
    works = driver.shard.queue_works()
    assert next(works) == (1, 2, 3, True), "what is held counts for the size of a message"
    driver.create(4)
    assert list(works) == [(2, 1, 0, True), (3, 0, 0, False), (9, 0, 0, False)]


def test_a_queue_in_which_much_waits_does_not_move_by_itself() -> None:
    """Many bytes, even of few messages."""
    driver = Driver()
    driver.create(1)
    large = publish("x" * (MOVES_WITH_BYTES // 4), 1)
    for _ in range(4):
        driver.run(large)
    assert list(driver.shard.queue_works()) == [(1, 4, MOVES_WITH_BYTES // 4, True)]
    driver.run(publish("x", 1))
    assert [may_move for *_, may_move in driver.shard.queue_works()] == [False]


def test_a_queue_in_which_many_wait_does_not_move_by_itself() -> None:
    driver = Driver()
    driver.create(1)
    for _ in range(MOVES_WITH_MESSAGES // 10_000):
        driver.run(*[publish("x", 1)] * 10_000)
    assert list(driver.shard.queue_works()) == [(1, MOVES_WITH_MESSAGES, 1, True)]
    driver.run(publish("x", 1))
    assert list(driver.shard.queue_works()) == [(1, MOVES_WITH_MESSAGES + 1, 1, False)]
