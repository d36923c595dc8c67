"""Messages that wait for their time (RULES S2, S3), in the shard."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_HIGHEST, SHARD_SNAPSHOT_VERSION, SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
from mayfly.node.shard import commands
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import Deleted, Published, Purged, Refused
from mayfly.node.shard.run import place_of
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, decode_terms, encode_settings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.shard.declared import check_declared
from tests.node.shard.driver import A, Driver, attach, content_header, publish, update_queue


def later(body: str, *queue_ids: int, after_ms: int = 0, at_ms: int = -1, ttl_ms: int = -1) -> bytes:
    """A PUBLISH_LATER with this body."""
    due = (commands.AFTER, after_ms) if at_ms < 0 else (commands.AT, at_ms)
    parts: list[bytes] = []
    octets = body.encode()
    size = commands.encode_publish_later(
        parts, queue_ids or (1,), ttl_ms, b"\x00\x01q", content_header(octets, ttl_ms), octets, due
    )
    encoded = b"".join(parts)
    assert len(encoded) == size == commands.end_of(encoded, 0)
    return encoded


def scheduled(driver: Driver, queue_id: int = 1) -> int:
    """How many wait in a queue."""
    statistics = driver.shard.queue_statistics(queue_id)
    assert statistics is not None
    return statistics.scheduled


@pytest.fixture
def driver() -> Driver:
    """A shard with queue 1, which allows schedules."""
    driver = Driver()
    driver.create(1, allow_schedule=True)
    return driver


def test_s2_s3_what_is_scheduled_becomes_ready_in_order_of_due_times_then_of_publishing(driver: Driver) -> None:
    """S2, S3: never early, and at the first tick at or after the due time."""
    driver.run(later("late", after_ms=300), later("b", after_ms=200), later("c", after_ms=200), publish("now"))
    driver.run(later("a", at_ms=driver.time_ms + 100), later("past", at_ms=5), later("at once", after_ms=0))
    assert (driver.ready(1), scheduled(driver)) == (3, 4)
    assert driver.shard.next_message_due_ms() == driver.time_ms + 100
    driver.pass_ms(99)
    driver.tick()
    assert driver.drain(1) == ["now", "past", "at once"]
    driver.pass_ms(1)
    driver.tick()
    assert driver.drain(1) == ["a"]
    driver.pass_ms(500)
    driver.tick()
    assert driver.drain(1) == ["b", "c", "late"]
    assert scheduled(driver) == 0
    assert driver.shard.next_message_due_ms() == -1
    assert driver.replay().digest() == driver.shard.digest()


def test_without_the_opt_in_the_due_time_means_nothing(driver: Driver) -> None:
    """S2; in a fan-out each queue goes by its own."""
    driver.create(2)
    driver.run(later("m", 1, 2, after_ms=100))
    assert (driver.ready(1), driver.ready(2)) == (0, 1)
    assert (scheduled(driver, 1), scheduled(driver, 2)) == (1, 0)


def test_s3_consumers_are_given_what_is_due_and_nothing_before(driver: Driver) -> None:
    """S3."""
    driver.run(attach(1, 7), later("m", after_ms=250))
    driver.pass_ms(249)
    driver.tick()
    assert driver.delivered(7) == []
    driver.pass_ms(1)
    driver.tick()
    assert driver.delivered(7) == ["m"]


def test_s3_a_ttl_counts_from_the_due_time(driver: Driver) -> None:
    """S3."""
    driver.run(later("m", after_ms=1000, ttl_ms=500), later("n", after_ms=1000))
    driver.pass_ms(1000)
    driver.tick()
    assert driver.ready(1) == 2
    driver.pass_ms(499)
    driver.tick()
    assert driver.ready(1) == 2
    driver.pass_ms(1)
    driver.tick()
    assert driver.drain(1) == ["n"]


def test_a_ttl_that_counts_for_what_is_queued_counts_for_what_is_scheduled(driver: Driver) -> None:
    """T12, S3: from the due time."""
    driver.run(*[later(f"m{number}", after_ms=1000 + number) for number in range(10)])
    terms = ShardQueueSettings(message_ttl_ms=300, ttl_retroactive=True, allow_schedule=True)
    driver.lead(update_queue(1, terms))
    driver.pass_ms(1299)
    driver.tick()
    assert driver.ready(1) == 10
    driver.pass_ms(1)
    driver.tick()
    assert driver.ready(1) == 9


def test_a_lower_opt_in_keeps_what_waits(driver: Driver) -> None:
    """S2: a queue that no longer allows schedules delivers what waits when it is due."""
    driver.run(later("m", after_ms=100))
    driver.lead(update_queue(1, ShardQueueSettings()))
    driver.run(later("n", after_ms=100))
    assert driver.drain(1) == ["n"]
    driver.pass_ms(100)
    driver.tick()
    assert driver.drain(1) == ["m"]


def test_s3_length_limits_count_what_is_scheduled() -> None:
    """S3, D2: what is ready leaves first, then what is due first."""
    driver = Driver()
    driver.create(1, allow_schedule=True, max_length=2)
    driver.run(publish("ready"), later("b", after_ms=200), later("a", after_ms=100))
    assert (driver.ready(1), scheduled(driver)) == (0, 2)
    driver.run(later("c", after_ms=300))
    driver.pass_ms(300)
    driver.tick()
    assert driver.drain(1) == ["b", "c"]


def test_a_full_queue_refuses_what_would_be_scheduled() -> None:
    """S3, D9: even where a consumer would take it if it were due."""
    driver = Driver()
    driver.create(1, allow_schedule=True, max_length=1, overflow="reject-publish")
    driver.run(attach(1, 7))
    driver.deliveries()

    def refused(*publishes: bytes) -> list[int]:
        (answer,) = driver.run(commands.encode_guard(len(publishes)), *publishes)
        assert isinstance(answer, Published)
        return answer.refused

    assert refused(later("a", after_ms=100), later("b", after_ms=50)) == [1]
    assert refused(publish("now"), later("late", after_ms=0)) == []
    assert driver.delivered(7) == ["now", "late"]
    assert scheduled(driver) == 1


def test_a_transaction_may_schedule(driver: Driver) -> None:
    """S2."""
    publishes = [later("b", after_ms=20), publish("now"), later("a", after_ms=10)]
    driver.run(commands.encode_transaction(3, publishes))
    assert driver.drain(1) == ["now"]
    driver.pass_ms(20)
    driver.tick()
    assert driver.drain(1) == ["a", "b"]


def test_purge_and_delete_take_what_is_scheduled(driver: Driver) -> None:
    """T13: no timer outlives its message, no entry is kept for it."""
    driver.run(publish("now"), *[later(f"m{number}", after_ms=100) for number in range(5)])
    (answer,) = driver.run(commands.encode_purge(1))
    assert isinstance(answer, Purged)
    assert answer.messages == 6
    assert driver.shard.next_message_due_ms() == -1
    assert not driver.shard.live_entries()
    driver.run(later("m", after_ms=100))
    assert isinstance(driver.run(commands.encode_delete_queue(1, False, True))[0], Refused)
    (answer,) = driver.run(commands.encode_delete_queue(1, False, False))
    assert isinstance(answer, Deleted)
    assert answer.messages == 1
    assert driver.shard.next_message_due_ms() == -1
    assert not driver.shard.live_entries()


def test_s3_becoming_due_renews_no_lease() -> None:
    """S3, L2."""
    driver = Driver()
    driver.create(1, allow_schedule=True, expires_ms=1000)
    driver.run(later("m", after_ms=900))
    driver.pass_ms(900)
    driver.tick()
    assert driver.ready(1) == 1
    driver.pass_ms(100)
    driver.tick()
    assert not driver.exists(1)


def test_what_becomes_due_in_one_entry_is_bounded() -> None:
    """C4: the rest is due at once."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=4, returned_per_entry=10)
    driver.create(1, allow_schedule=True)
    driver.create(2, allow_schedule=True)
    driver.run(*[later(f"{number:02}", 1, 2, after_ms=1000 - number) for number in range(25)])
    driver.pass_ms(1000)
    seen = []
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
        seen.append(driver.ready(1) + driver.ready(2))
    assert seen == [10, 20, 30, 40, 50]
    assert driver.drain(2) == [f"{number:02}" for number in reversed(range(25))]


def test_a_snapshot_has_what_is_scheduled() -> None:
    """C1: the same bytes, and the same order afterwards; without schedules it is what older releases read."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=4)
    driver.create(1, allow_schedule=True)
    assert driver.shard.snapshot()[1] == SHARD_SNAPSHOT_VERSION
    due = random.Random(3).sample(range(1, 1000), 60)
    driver.run(*[later(f"{ms:03}", after_ms=ms) for ms in due])
    restored = Shard(3, 2, messages_per_piece=4)
    assert driver.shard.snapshot()[1] == SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
    restored.restore(driver.shard.snapshot())
    assert restored.snapshot() == driver.shard.snapshot()
    assert sorted(restored.live_entries()) == sorted(driver.shard.live_entries())
    assert restored.next_message_due_ms() == driver.shard.next_message_due_ms()
    driver.shard = restored
    driver.pass_ms(500)
    driver.tick()
    assert driver.drain(1) == [f"{ms:03}" for ms in sorted(due) if ms <= 500]
    driver.pass_ms(500)
    driver.tick()
    assert driver.drain(1) == [f"{ms:03}" for ms in sorted(due) if ms > 500]
    assert driver.shard.snapshot()[1] == SHARD_SNAPSHOT_VERSION


@pytest.mark.parametrize(
    "octets", [later("m", at_ms=2**60), later("m")[:30], later("m")[:1] + b"\x02" + later("m")[2:]]
)
def test_a_command_that_is_none_is_refused(driver: Driver, octets: bytes) -> None:
    with pytest.raises(ShardError):
        driver.run(octets)
    driver.shard.finish()
    assert scheduled(driver) == 0
    assert driver.ready(1) == 0


def test_settings_without_the_opt_in_are_written_as_older_releases_read_them() -> None:
    plain = ShardQueueSettings(name="q")
    waits = ShardQueueSettings(name="q", allow_schedule=True)
    as_older_read_it = ShardQueueSettings(name="q", max_priority=3)
    assert len(encode_settings(plain)) == len(encode_settings(as_older_read_it)) < len(encode_settings(waits))
    for settings_ in (plain, waits):
        assert decode_settings(encode_settings(settings_)) == settings_
        assert decode_terms(encode_terms(settings_), "/", "q") == settings_
    with pytest.raises(ShardError):
        decode_terms(encode_terms(waits)[:-1] + b"\x07")


def message(number: int, due_ms: int) -> Message:
    return Message(1 + number // 3, number % 3, 1, 2, number % 5, due_ms, -1, 0)


STEPS = st.lists(
    st.one_of(
        st.integers(0, 50).map(lambda ms: ("put", ms)),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 60), st.integers(1, 9))),
        st.just(("snapshot", 0)),
    ),
    max_size=120,
)


@settings(deadline=None)
@given(STEPS, st.sampled_from([2, 4, 6, 33]))
def test_s2_a_schedule_is_a_sorted_list(steps: list[tuple[str, object]], piece: int) -> None:
    """S2: whatever becomes a run, and whatever is put together again."""
    schedule = Schedule(piece)
    naive: list[Message] = []
    for number, (step, value) in enumerate(steps):
        if step == "put":
            assert isinstance(value, int)
            made = message(number, value)
            schedule.put(made)
            naive.append(made)
            naive.sort(key=place_of)
        elif step == "take":
            assert isinstance(value, tuple)
            until_ms, most = value
            expected = [each for each in naive if each.enqueued_ms <= until_ms][:most]
            del naive[: len(expected)]
            assert list(map(place_of, schedule.take(until_ms, most))) == list(map(place_of, expected))
        else:
            together = [each for line in schedule.lines() for each in line.live()]
            assert sorted(map(place_of, together)) == list(map(place_of, naive))
        assert schedule.count == len(naive)
        assert schedule.body_bytes == sum(each.body_length for each in naive)
        assert schedule.next_due_ms() == (naive[0].enqueued_ms if naive else -1)
        assert len(schedule.young) < max(2, piece)


@pytest.mark.parametrize("seed", range(6))
def test_s2_many_that_come_in_any_order_are_put_in_order(seed: int) -> None:
    """S2: between two looks at them; of those in one place, as retries of what recurs may be, the last that came is the
    first (C1)."""
    rng = random.Random(seed)
    schedule = Schedule(200)
    naive: list[Message] = []
    for number in range(700):
        # Of one entry, and then again one of an entry before, due in the same few ms.
        made = message(rng.randrange(0, 100) if seed % 2 else number, rng.randrange(1_000, 1_040))
        made = made.with_priority(number)
        schedule.put(made)
        naive.insert(0, made)
        if rng.random() < 0.01:
            until_ms, most = rng.randrange(1_000, 1_010), rng.randrange(60)
            naive.sort(key=place_of)
            expected = [each for each in naive if each.enqueued_ms <= until_ms][:most]
            del naive[: len(expected)]
            found = schedule.take(until_ms, most)
            assert list(map(place_of, found)) == list(map(place_of, expected))
        naive.sort(key=place_of)
        assert schedule.next_due_ms() == (naive[0].enqueued_ms if naive else -1)
        if not schedule.runs and rng.random() < 0.03:
            # Nothing was cut yet, and so what is behind what follows from how they came.
            assert schedule.young == naive


def test_s3_how_late_what_was_due_became_ready_is_counted(driver: Driver) -> None:
    """S3: in the histogram of the metrics."""
    driver.run(later("m", after_ms=1000), later("n", after_ms=1040))
    driver.pass_ms(1050)
    driver.tick()
    lag = driver.shard.due_lag
    assert (lag.by_bucket()[:4], sum(lag.by_bucket()), lag.sum_ms()) == ([1, 0, 1, 0], 2, 60)


def test_few_that_are_left_are_put_together() -> None:
    """Runs that have nearly ended do not pile up: most messages are due soon, one of each hundred much later."""
    schedule = Schedule(64)
    for number in range(20_000):
        schedule.put(message(number, number + (10_000_000 if number % 100 == 0 else 300)))
        if number % 10 == 0:
            schedule.take(number, 1000)
    assert schedule.count < 600
    assert len(schedule.runs) < 40


class Pair:
    """A shard, and one that is made anew from a snapshot of it now and then: they must not differ."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.piece = rng.choice((2, 4, 8))
        self.one, self.other = self.new(), self.new()
        self.index, self.time_ms = 0, 1_000_000
        self.published: dict[tuple[int, int], int] = {}
        """When each is due that was published, by where its content stands."""
        self.gone: set[tuple[int, int]] = set()
        self.held: dict[int, Message] = {}

    def new(self) -> Shard:
        return Shard(3, 1, 10, 20, messages_per_piece=self.piece, returned_per_entry=7)

    def entry(self, data: bytes, leader: bool = False) -> list[Deliver]:
        """Apply it to both; what consumers are given."""
        self.index += 1
        for shard in (self.one, self.other):
            shard.begin(self.index, self.time_ms, self.time_ms, data)
            shard.apply(None if leader else A, 0, len(data))
            shard.finish()
            shard.take_released()
        assert self.one.snapshot() == self.other.snapshot()
        assert sorted(self.one.live_entries()) == sorted(self.other.live_entries())
        assert self.one.next_message_due_ms() == self.other.next_message_due_ms()
        effects = [effect for effect in self.one.take_effects() if isinstance(effect, Deliver)]
        assert len(self.other.take_effects()) == len(effects)
        return effects

    def step(self) -> None:
        self.time_ms += self.rng.choice((0, 0, 1, 30, 200))
        kind = self.rng.randrange(10)
        if kind < 4:
            self.publish()
        elif kind < 7:
            self.settle()
        elif kind == 7:
            restored = self.new()
            restored.restore(self.one.snapshot())
            self.other = restored
        elif self.one.due_messages(self.time_ms):
            self.take(self.entry(commands.encode_expire_due(), leader=True))

    def publish(self) -> None:
        parts: list[bytes] = []
        size = 0
        for _ in range(self.rng.randint(1, 6)):
            after_ms = self.rng.choice((0, 1, 50, 50, 400, 3000))
            ttl_ms = self.rng.choice((-1, -1, -1, 300))
            parts.append(later("body", after_ms=after_ms, ttl_ms=ttl_ms))
            content_at = size + commands.PUBLISH_LATER_HEAD.size
            self.published[self.index + 1, content_at] = self.time_ms + after_ms
            size += len(parts[-1])
        self.take(self.entry(b"".join(parts)))

    def take(self, deliveries: list[Deliver]) -> None:
        for delivery in deliveries:
            for place, message in enumerate(delivery.messages):
                where = (message.index, message.offset)
                assert self.published[where] <= self.time_ms, "early"
                assert where not in self.gone, "twice"
                self.gone.add(where)
                self.held[delivery.first_delivery_id + place] = message

    def settle(self) -> None:
        """Acknowledge some, and give some back: they wait for 100 ms and more."""
        outcome = self.rng.choice((commands.ACK, commands.GIVE_BACK, commands.REQUEUE))
        chosen = [id for id in self.held if self.rng.random() < 0.5]
        for id in chosen:
            message = self.held.pop(id)
            if outcome != commands.ACK:
                where = (message.index, message.offset)
                self.gone.remove(where)
                ends = message.deadline_ms if message.deadline_ms >= 0 else 1 << 60
                self.published[where] = min(self.time_ms + 100, ends)
        if chosen:
            self.take(self.entry(commands.encode_settle(1, 7, outcome, chosen)))


@pytest.mark.parametrize("seed", range(25))
def test_s2_s3_s5_c1_nothing_is_early_or_twice_and_a_restored_replica_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(rng)
    pair.entry(commands.encode_raise_level(LEVEL_HIGHEST), leader=True)
    made = ShardQueueSettings(
        name="q", allow_schedule=True, retry_ways=6, retry_min_ms=100, retry_max_ms=1000, retry_jitter_ppm=300_000,
        retry_counts_all=True,
    )
    check_declared(made)
    pair.entry(commands.encode_create_queue(1, made) + attach(1, 7, prefetch=rng.choice((0, 3))))
    for _ in range(120):
        pair.step()
    for _ in range(400):
        pair.time_ms += 100
        if pair.one.due_messages(pair.time_ms):
            pair.take(pair.entry(commands.encode_expire_due(), leader=True))
        if pair.held:
            ids = list(pair.held)
            pair.held.clear()
            pair.take(pair.entry(commands.encode_settle(1, 7, commands.ACK, ids)))
    found = pair.one.queue_statistics(1)
    assert found is not None
    assert (found.ready, found.scheduled, found.unacknowledged) == (0, 0, 0)
    assert len(pair.gone) + found.expired == len(pair.published)
    assert not pair.one.live_entries()
    assert pair.one.next_message_due_ms() == -1


def test_s2_a_stream_schedules_nothing() -> None:
    """It is there at once, though a queue that it goes to as well allows it."""
    driver = Driver()
    driver.create(1, is_stream=True, ttl_retroactive=True)
    driver.create(2, allow_schedule=True)
    driver.run(later("m", 1, 2, after_ms=1000), later("n", 2, 1, after_ms=1000))
    assert (driver.ready(1), scheduled(driver)) == (2, 0)
    assert (driver.ready(2), scheduled(driver, 2)) == (0, 2)
