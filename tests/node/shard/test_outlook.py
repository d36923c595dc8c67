"""Forecasts and dry runs say what then happens (RULES R2, R3), in the shard."""

from collections.abc import Iterator
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.shard import commands
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.outlook import NO_LEASE, Outlook, outlook_steps
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.trial import Trial, trial_steps
from tests.node.shard.declared import check_declared
from tests.node.shard.driver import A, B, Close, Driver, attach, publish, update_queue
from tests.node.shard.test_schedules import later
from tests.node.shard.test_stream_ttls import kept

_T = TypeVar("_T")
WINDOWS_MS = [40, 150, 1_000]
PIECE = 4


def last(steps: Iterator[_T | None]) -> _T:
    """What the steps come to."""
    found = [step for step in steps if step is not None]
    assert len(found) == 1
    return found[0]


def outlook(driver: Driver, queue_id: int = 1, windows_ms: list[int] = WINDOWS_MS) -> Outlook:
    """That of a queue, by the driver's clocks."""
    queue = driver.shard.queue(queue_id)
    assert queue is not None
    return last(outlook_steps(queue, driver.time_ms, driver.led_ms, windows_ms))


def trial(driver: Driver, terms: ShardQueueSettings, queue_id: int = 1) -> Trial:
    """That of a queue with other terms."""
    queue = driver.shard.queue(queue_id)
    assert queue is not None
    return last(trial_steps(queue, terms, driver.time_ms, driver.led_ms))


def small_pieces(driver: Driver) -> None:
    """The driver's shard with lines that are packed soon."""
    driver.shard = Shard(3, 1, *driver.bounds, messages_per_piece=PIECE)


class Counted:
    """What has happened to a queue by itself; its counts stay when it is gone."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.row = driver.shard.queue_statistics(1)
        self.expired = self.became_ready = 0

    def look(self) -> None:
        """After each moment."""
        row, before = self.driver.shard.queue_statistics(1), self.row
        if row is not None and before is not None:
            self.expired += row.expired - before.expired
            self.became_ready += before.scheduled - row.scheduled
        self.row = row


def go_on(driver: Driver, milliseconds: int, counted: Counted) -> None:
    """Time goes on, with a leader that looks at every millisecond, as often as there is something due."""
    for _ in range(milliseconds):
        driver.pass_ms(1)
        expire(driver)
        counted.look()
        driver.tick()
        counted.look()


def expire(driver: Driver) -> None:
    """All that is due in queues now."""
    for _ in range(200):
        if not driver.shard.due_messages(driver.time_ms):
            break
        driver.lead(commands.encode_expire_due())


def settle(driver: Driver) -> None:
    """All that is due now, messages before leases."""
    expire(driver)
    driver.tick()


def test_r2_what_expires_is_what_comes_before_the_first_that_stays() -> None:
    """R2, T6: what is behind a message without a deadline stays, however late it is."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("a", ttl_ms=100), publish("b", ttl_ms=30), publish("c"), publish("d", ttl_ms=10))
    found = outlook(driver)
    assert (found.expire, found.due, found.retried) == ([0, 2, 2], [0, 0, 0], [0, 0, 0])


def test_r2_what_becomes_due_and_dies_is_counted_in_both() -> None:
    """R2, S3: TTL counts from the due time; behind a live message nothing dies."""
    driver = Driver()
    driver.create(1, allow_schedule=True)
    driver.run(later("a", after_ms=20, ttl_ms=10), later("b", after_ms=100), later("c", after_ms=120, ttl_ms=5))
    found = outlook(driver)
    assert (found.due, found.expire) == ([1, 3, 3], [1, 1, 1])
    driver.run(publish("stays"))
    assert outlook(driver).expire == [0, 0, 0]


def test_r2_what_is_retried_is_told_from_what_is_due_for_the_first_time() -> None:
    """R2, S5."""
    driver = Driver()
    driver.create(1, allow_schedule=True, retry_ways=6, retry_min_ms=100, retry_max_ms=100)
    driver.run(publish("again"), later("first", after_ms=100), attach(1, 7))
    driver.entry(Close(A))
    found = outlook(driver)
    assert (found.due, found.retried) == ([0, 1, 1], [0, 1, 1])


def test_r2_a_lease_takes_with_it_what_would_have_died_later() -> None:
    """R2, L4: what has a deadline after the end of the lease does not expire."""
    driver = Driver()
    driver.create(1, expires_ms=100)
    driver.run(publish("a", ttl_ms=50), publish("b", ttl_ms=120))
    found = outlook(driver)
    assert (found.expire, found.lease_ends, found.lease_ends_in_ms) == ([0, 1, 1], [False, True, True], 100)
    driver.run(attach(1, 7, no_ack=True), session=B)
    assert (outlook(driver).lease_ends, outlook(driver).lease_ends_in_ms) == ([False] * 3, NO_LEASE)


def test_r2_a_lease_of_empty_queues_waits_for_the_last_message() -> None:
    """R2, L11."""
    driver = Driver()
    driver.create(1, expires_ms=30, expires_if_empty=True)
    driver.run(publish("a", ttl_ms=120))
    assert outlook(driver).lease_ends == [False, True, True]
    driver.run(publish("stays"))
    assert outlook(driver).lease_ends == [False] * 3


def test_r2_what_waits_for_a_delayed_exchange_is_due_and_dies_of_nothing() -> None:
    """R2, S1."""
    driver = Driver()
    driver.create(1, allow_schedule=True, delays=True, dead_letter_exchange="q1")
    driver.run(later("a", after_ms=20, ttl_ms=10), later("b", after_ms=500))
    found = outlook(driver)
    assert (found.due, found.expire) == ([1, 1, 2], [0, 0, 0])


def test_r3_a_trial_changes_nothing_and_says_what_expires_and_what_stays_behind() -> None:
    """R3, T12, X2."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("a"), publish("b"))
    driver.pass_ms(50)
    driver.run(publish("c"), publish("d", ttl_ms=5))
    driver.pass_ms(10)
    before = driver.shard.digest()
    found = trial(driver, ShardQueueSettings(message_ttl_ms=30, ttl_retroactive=True))
    assert (found.expire, found.behind, found.drop) == (2, 1, 0)
    assert trial(driver, ShardQueueSettings(message_ttl_ms=30)).expire == 0
    anywhere = trial(driver, ShardQueueSettings(message_ttl_ms=30, ttl_retroactive=True, expire_anywhere=True))
    assert (anywhere.expire, anywhere.behind) == (3, 0)
    assert driver.shard.digest() == before


def test_r3_a_lease_begins_anew_if_its_period_is_another() -> None:
    """R3, L9."""
    driver = Driver()
    driver.create(1, expires_ms=100)
    driver.pass_ms(40)
    found = trial(driver, ShardQueueSettings(expires_ms=100))
    assert (found.lease_before_ms, found.lease_after_ms, found.is_new_lease) == (60, 60, False)
    found = trial(driver, ShardQueueSettings(expires_ms=50))
    assert (found.lease_before_ms, found.lease_after_ms, found.is_new_lease) == (60, 50, True)
    found = trial(driver, ShardQueueSettings())
    assert (found.lease_before_ms, found.lease_after_ms, found.is_new_lease) == (60, NO_LEASE, False)


ttls = st.one_of(st.just(-1), st.integers(0, 250))
publishes = st.lists(
    st.one_of(
        st.builds(
            lambda ttl_ms, count: b"".join([publish("m" * count, ttl_ms=ttl_ms)] * count), ttls, st.integers(1, 9)
        ),
        st.builds(
            lambda ttl_ms, after_ms, count: b"".join([later("s", after_ms=after_ms, ttl_ms=ttl_ms)] * count),
            ttls, st.integers(0, 250), st.integers(1, 9),
        ),
        st.integers(1, 60),
        st.sampled_from(["get", "hold", "lose"]),
    ),
    max_size=14,
)  # fmt: skip
maybe = st.one_of(st.none(), st.integers(1, 250))


def told(*, ttl_dialect: str, ttl_retroactive: bool, retry_ways: int, **values: Any) -> ShardQueueSettings:
    """What a shard is told: in LavinMQ's way a TTL always counts for what is queued."""
    retries = {key: values.pop(key) for key in ("retry_min_ms", "retry_max_ms")}
    if retry_ways:
        values.update(retries, retry_ways=retry_ways, retry_counts_all=True)
    ttl_retroactive = ttl_retroactive or ttl_dialect == "lavinmq"
    return ShardQueueSettings(ttl_dialect=ttl_dialect, ttl_retroactive=ttl_retroactive, **values)


terms = st.builds(
    told,
    message_ttl_ms=st.one_of(st.none(), st.integers(0, 250)),
    expires_ms=maybe,
    ttl_retroactive=st.booleans(),
    max_length=st.one_of(st.none(), st.integers(0, 20)),
    max_length_bytes=st.one_of(st.none(), st.integers(0, 60)),
    overflow=st.sampled_from(["drop-head", "reject-publish"]),
    expires_if_empty=st.booleans(),
    ttl_dialect=st.sampled_from(["rabbitmq", "rabbitmq", "lavinmq", "ottermq"]),
    allow_schedule=st.just(True),
    retry_ways=st.sampled_from([0, 6]),
    retry_min_ms=st.integers(1, 200),
    retry_max_ms=st.integers(200, 300),
)


def some_queue(own: ShardQueueSettings, course: "list[bytes | int | str]") -> Driver:
    """A shard with a queue to which all that has happened."""
    driver = Driver()
    small_pieces(driver)
    check_declared(own)
    driver.run(commands.encode_create_queue(1, own))
    for step in course:
        if isinstance(step, bytes):
            driver.run(step)
        elif isinstance(step, int):
            driver.pass_ms(step)
            settle(driver)
        elif step == "lose":
            driver.entry(Close(A))
        elif driver.exists(1):
            driver.get(1, no_ack=step == "get")
    driver.entry(Close(A))
    settle(driver)
    return driver


@settings(max_examples=150, deadline=None)
@given(terms, publishes)
def test_r2_what_is_foretold_is_what_then_happens(own: ShardQueueSettings, course: "list[bytes | int | str]") -> None:
    """R2: for each window, if no client does anything."""
    driver = some_queue(own, course)
    if not driver.exists(1):
        return
    found = outlook(driver)
    counted, passed = Counted(driver), 0
    for number, window_ms in enumerate(WINDOWS_MS):
        go_on(driver, window_ms - passed, counted)
        passed = window_ms
        assert driver.exists(1) != found.lease_ends[number], (window_ms, found.lease_ends_in_ms)
        assert counted.expired == found.expire[number], window_ms
        assert counted.became_ready == found.due[number] + found.retried[number], window_ms


@settings(max_examples=150, deadline=None)
@given(terms, publishes, terms)
def test_r3_what_a_trial_says_is_what_then_happens(
    own: ShardQueueSettings, course: "list[bytes | int | str]", new: ShardQueueSettings
) -> None:
    """R3: if no client does anything."""
    driver = some_queue(own, course)
    before = driver.shard.queue_statistics(1)
    if before is None:
        return
    found = trial(driver, new)
    driver.lead(update_queue(1, new))
    expire(driver)
    after = driver.shard.queue_statistics(1)
    assert after is not None
    assert after.expired - before.expired == found.expire
    assert after.overflowed - before.overflowed == found.drop
    queue, due_ms = driver.shard.queue(1), driver.shard.next_lease_due_ms()
    assert queue is not None
    if due_ms != NO_LEASE or not queue.kept:  # One that is kept goes when it is empty (L11).
        left_ms = NO_LEASE if due_ms == NO_LEASE else max(0, due_ms - driver.led_ms)
        assert left_ms == found.lease_after_ms


def test_r3_what_a_limit_brings_to_the_head_leaves_if_it_is_late() -> None:
    """R3, T6: behind what is dropped stand two that are late, and one that is alive with another late one behind it."""
    driver = some_queue(ShardQueueSettings(), [publish("a"), publish("b", ttl_ms=1), publish("c", ttl_ms=1)])
    for each in (publish("d"), publish("e", ttl_ms=1)):
        driver.run(each)
    driver.pass_ms(10)
    found = trial(driver, ShardQueueSettings(max_length=4))
    assert (found.drop, found.expire, found.behind) == (1, 2, 1)
    assert trial(driver, ShardQueueSettings(max_length_bytes=4)).expire == 2
    driver.lead(update_queue(1, ShardQueueSettings(max_length=4)))
    expire(driver)
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    assert (statistics.overflowed, statistics.expired, statistics.ready) == (1, 2, 2)


stream_steps = st.lists(
    st.one_of(
        st.builds(
            lambda ttl_ms, count: b"".join([kept("m" * count, ttl_ms)] * count),
            st.one_of(st.just(NEVER_TTL), st.integers(1, 250)), st.integers(1, 9),
        ),
        st.builds(lambda count: b"".join([publish("m" * count)] * count), st.integers(1, 9)),
        st.integers(1, 60),
    ),
    max_size=14,
)  # fmt: skip
streams = st.builds(
    ShardQueueSettings,
    message_ttl_ms=maybe,
    ttl_retroactive=st.just(True),
    max_length_bytes=st.one_of(st.none(), st.integers(0, 60)),
    is_stream=st.just(True),
)


@settings(max_examples=100, deadline=None)
@given(streams, stream_steps, streams)
def test_r2_r3_streams_let_go_of_what_is_late_wherever_it_stands(
    own: ShardQueueSettings, course: "list[bytes | int | str]", new: ShardQueueSettings
) -> None:
    """R2, R3, J2: what is foretold is what then happens."""
    driver = some_queue(own, course)
    found = outlook(driver)
    tried = trial(driver, new)
    counted, passed = Counted(driver), 0
    other = Driver()
    small_pieces(other)
    for entry in driver.log.values():
        other.index, other.time_ms, other.led_ms = entry.index, driver.time_ms, driver.led_ms
        entry.apply(other.shard)
    before = other.shard.queue_statistics(1)
    other.lead(update_queue(1, new))
    expire(other)
    after = other.shard.queue_statistics(1)
    assert before is not None and after is not None
    assert (after.expired - before.expired, after.overflowed - before.overflowed) == (tried.expire, tried.drop)
    for number, window_ms in enumerate(WINDOWS_MS):
        go_on(driver, window_ms - passed, counted)
        passed = window_ms
        assert counted.expired == found.expire[number], window_ms


def test_r2_what_expires_anywhere_may_leave_between_two_looks() -> None:
    """A piece of which none has left yet is the queue's own until one does."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=64)
    driver.create(1, expire_anywhere=True)
    driver.run(*[publish(str(number), ttl_ms=100 if 0 < number < 190 else 100_000) for number in range(200)])
    queue = driver.shard.queue(1)
    assert queue is not None
    steps = outlook_steps(queue, driver.time_ms, driver.led_ms, [1_000, 200_000])
    next(steps)
    driver.pass_ms(150)
    driver.tick()
    assert queue.ready_count() == 11
    for _ in steps:
        pass
