"""The brake of a queue (RULES R5): what brakes it, what that stops, and when it ends."""

import pytest

from mayfly.cluster.versions import SHARD_SNAPSHOT_WITH_BRAKES
from mayfly.node.shard import commands
from mayfly.node.shard.brake import NEVER, PIECES, Brake
from mayfly.node.shard.commands import ACK, REJECT, REQUEUE
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.results import NOT_BRAKED, Applied, GetResult, Gone, Moved, Refused
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, Close, Driver, attach, publish, update_queue
from tests.node.shard.moving_shards import MovingShards

Q, DLQ, CONSUMER = 1, 2, 5
LIMIT, WINDOW_MS = 3, 10_000


def braking(**settings: object) -> Driver:
    """A queue that brakes when more than 3 messages fail in 10 s, and a consumer with a prefetch of 2."""
    driver = Driver()
    driver.create(Q, dead_letter_exchange="", brake_limit=LIMIT, brake_window_ms=WINDOW_MS, **settings)
    driver.run(attach(Q, CONSUMER, prefetch=2))
    return driver


def is_braked(shard: Shard, queue: int = Q) -> bool:
    found = shard.queue(queue)
    assert found is not None
    assert (found in shard.braked()) == found.is_braked
    return found.is_braked


def settle(outcome: int, *deliveries: int) -> bytes:
    return commands.encode_settle(Q, CONSUMER, outcome, list(deliveries))


def fail(driver: Driver, first: int, count: int = LIMIT + 1) -> None:
    """So many messages, delivered from this one on, are rejected, each in an entry of its own."""
    for number in range(first, first + count):
        driver.run(settle(REJECT, number))


def braked(**settings: object) -> Driver:
    """A queue on brake with messages m4... ready; m4 was delivered before that, and is held."""
    driver = braking(**settings)
    for number in range(10):
        driver.run(publish(f"m{number}", Q))
    fail(driver, 1)
    assert is_braked(driver.shard)
    assert [body for _, _, body in driver.deliveries()] == ["m0", "m1", "m2", "m3", "m4"]
    return driver


def test_r5_more_failures_than_the_limit_stop_deliveries() -> None:
    driver = braking()
    for number in range(10):
        driver.run(publish(f"m{number}", Q))
    fail(driver, 1, LIMIT)
    assert not is_braked(driver.shard)
    fail(driver, LIMIT + 1, 1)
    assert is_braked(driver.shard)
    driver.deliveries()
    driver.run(publish("more", Q), settle(ACK, 5))
    assert driver.deliveries() == []
    assert driver.ready(Q) == 6
    assert driver.run(commands.encode_get(Q, 9, True))[0].message is None  # type: ignore[attr-defined]
    assert statistics_of(driver.shard).queues_braked == 1


def test_r5_a_get_is_answered_as_from_an_empty_queue_and_is_a_use_of_it() -> None:
    driver = braked()
    (answer,) = driver.run(commands.encode_get(Q, 9, True))
    assert isinstance(answer, GetResult)
    assert (answer.message, answer.ready_count, answer.try_again) == (None, 5, False)


def test_r5_it_ends_when_no_more_than_the_limit_is_left_in_the_window() -> None:
    driver = braking()
    for number in range(10):
        driver.run(publish(f"m{number}", Q))
    first_ms = driver.time_ms
    for number in range(1, LIMIT + 2):
        driver.run(settle(REJECT, number))
        driver.pass_ms(1000)
    assert is_braked(driver.shard)
    driver.deliveries()
    due_ms = driver.shard.next_message_due_ms()
    assert due_ms == first_ms + WINDOW_MS
    driver.pass_ms(due_ms - driver.time_ms - 1)
    assert not driver.shard.due_messages(driver.time_ms)
    driver.run(commands.encode_touch_queue(Q))
    assert is_braked(driver.shard)
    driver.pass_ms(1)
    driver.tick()
    assert not is_braked(driver.shard)
    assert driver.delivered(CONSUMER) == ["m5"]


def test_r5_failures_of_what_was_delivered_before_make_it_longer() -> None:
    driver = braked()
    driver.pass_ms(4000)
    driver.run(settle(REJECT, 5))
    driver.pass_ms(WINDOW_MS - 4000)
    driver.tick()
    assert not is_braked(driver.shard), "four have left the window, one is left"
    driver = braking()
    for number in range(10):
        driver.run(publish(f"m{number}", Q))
    driver.run(settle(REJECT, 1, 2))
    driver.pass_ms(6000)
    driver.run(settle(REJECT, 3, 4))
    assert is_braked(driver.shard)
    assert driver.shard.next_message_due_ms() == driver.time_ms + 4000


def test_r5_a_failure_while_it_is_on_moves_its_end() -> None:
    driver = braking()
    driver.run(commands.encode_settle(Q, CONSUMER, REJECT, [1]))
    for number in range(12):
        driver.run(publish(f"m{number}", Q))
    driver.run(commands.encode_attach(Q, 6, 8, False, False, 0))
    held = [(who, number) for who, number, _ in driver.deliveries()]
    assert len(held) == 10
    for who, number in held[:4]:
        driver.run(commands.encode_settle(Q, who, REJECT, [number]))
    ends_ms = driver.shard.next_message_due_ms()
    driver.pass_ms(5000)
    for who, number in held[4:8]:
        driver.run(commands.encode_settle(Q, who, REJECT, [number]))
    assert driver.shard.next_message_due_ms() == ends_ms + 5000
    driver.pass_ms(5000)
    driver.tick()
    assert is_braked(driver.shard)
    assert driver.shard.digest() == driver.replay().digest()


def test_r5_deliveries_beyond_the_limit_count_and_other_deaths_do_not() -> None:
    driver = braking(delivery_limit=0, message_ttl_ms=50, max_length=3)
    for number in range(20):
        driver.run(publish(f"m{number}", Q))
    assert statistics_of(driver.shard).overflowed == 15
    driver.pass_ms(60)
    driver.tick()
    assert driver.ready(Q) == 0
    assert not is_braked(driver.shard)
    for number in range(1, LIMIT + 1):
        driver.run(publish(f"n{number}", Q))
        driver.run(settle(REQUEUE, number))
    assert statistics_of(driver.shard).dead_lettered_for["delivery_limit"] == LIMIT
    assert not is_braked(driver.shard)
    driver.run(publish("last", Q))
    driver.run(settle(REQUEUE, LIMIT + 1))
    assert is_braked(driver.shard)


def test_r5_it_counts_without_a_dead_letter_exchange_too() -> None:
    driver = Driver()
    driver.create(Q, brake_limit=0, brake_window_ms=1000)
    driver.run(attach(Q, CONSUMER, prefetch=1))
    driver.run(publish("m0", Q), publish("m1", Q))
    driver.run(settle(REJECT, 1))
    assert is_braked(driver.shard)


def test_r5_t7_what_is_due_expires_meanwhile_and_nothing_does_early() -> None:
    driver = braked()
    driver.run(publish("short", Q, ttl_ms=500))
    for _ in range(5):
        driver.run(commands.encode_purge(Q))
    driver.run(publish("short", Q, ttl_ms=500), publish("none", Q, ttl_ms=0))
    assert driver.ready(Q) == 2, "T8: nobody takes it, but the head is to leave first"
    driver.pass_ms(499)
    driver.tick()
    assert driver.ready(Q) == 2
    driver.pass_ms(1)
    driver.tick()
    assert driver.ready(Q) == 0
    assert is_braked(driver.shard)


def test_r5_what_comes_back_waits_for_the_end() -> None:
    driver = braked()
    driver.entry(Close(A))
    assert driver.ready(Q) == 6
    driver.run(attach(Q, CONSUMER, prefetch=2))
    assert driver.deliveries() == []
    driver.pass_ms(WINDOW_MS)
    driver.tick()
    assert driver.delivered(CONSUMER) == ["m4", "m5"]


def test_r5_an_operator_releases_it_and_what_has_failed_is_forgotten() -> None:
    driver = braked()
    (answer,) = driver.run(commands.encode_release_brake(Q))
    assert isinstance(answer, Applied)
    assert not is_braked(driver.shard)
    assert driver.delivered(CONSUMER) == ["m5"]
    fail(driver, 5, LIMIT)
    assert not is_braked(driver.shard)
    fail(driver, 8, 1)
    assert is_braked(driver.shard)


def test_r5_only_what_is_on_brake_is_released() -> None:
    driver = braking()
    driver.create(DLQ)
    for queue in (Q, DLQ):
        (answer,) = driver.run(commands.encode_release_brake(queue))
        assert isinstance(answer, Refused)
        assert answer.reason == NOT_BRAKED
    (answer,) = driver.run(commands.encode_release_brake(77))
    assert isinstance(answer, Gone)


def test_r5_a_policy_that_takes_the_brake_away_ends_it() -> None:
    driver = braked()
    driver.lead(update_queue(Q, ShardQueueSettings(name="q1", dead_letter_exchange="")))
    assert not is_braked(driver.shard)
    assert driver.delivered(CONSUMER) == ["m5"]


@pytest.mark.parametrize(
    ("limit", "window_ms", "ends"), [(LIMIT + 1, WINDOW_MS, True), (LIMIT, 2000, True), (1, WINDOW_MS, False)]
)
def test_r5_another_limit_counts_from_the_change_on(limit: int, window_ms: int, ends: bool) -> None:
    driver = braked()
    driver.pass_ms(2000)
    terms = ShardQueueSettings(name="q1", dead_letter_exchange="", brake_limit=limit, brake_window_ms=window_ms)
    driver.lead(update_queue(Q, terms))
    assert is_braked(driver.shard) is not ends


def test_r5_a_full_queue_on_brake_refuses_what_a_consumer_would_take() -> None:
    driver = braking(max_length=0, overflow="reject-publish")
    guard = commands.encode_guard(1)
    for number in range(1, LIMIT + 2):
        (answer,) = driver.run(guard, publish(f"m{number}", Q))
        assert answer.refused == []  # type: ignore[attr-defined]
        driver.run(settle(REJECT, number))
    (answer,) = driver.run(guard, publish("more", Q))
    assert answer.refused == [0]  # type: ignore[attr-defined]
    assert driver.shard.room(Q, 8).messages == 0


def test_r5_c1_replicas_that_are_restored_at_any_time_go_on_alike() -> None:
    """C1."""
    driver = braked()
    restored = Shard(3, 1)
    restored.restore(driver.shard.snapshot())
    assert restored.snapshot() == driver.shard.snapshot()
    assert is_braked(restored)
    assert restored.next_message_due_ms() == driver.shard.next_message_due_ms()
    before, driver.shard = driver.shard, restored
    driver.pass_ms(WINDOW_MS - 1)
    driver.run(publish("late", Q))
    assert driver.deliveries() == []
    driver.pass_ms(1)
    driver.tick()
    assert driver.delivered(CONSUMER) == ["m5"]
    assert driver.shard.digest() == driver.replay().digest()
    assert before.digest() != driver.shard.digest()


def test_r5_a_snapshot_says_of_brakes_only_where_something_has_failed() -> None:
    driver = braking()
    driver.run(publish("m", Q))
    assert driver.shard.snapshot()[1] != SHARD_SNAPSHOT_WITH_BRAKES
    driver.run(settle(REJECT, 1))
    assert driver.shard.snapshot()[1] == SHARD_SNAPSHOT_WITH_BRAKES


def test_r5_it_moves_with_its_queue_to_a_shard_with_another_clock() -> None:
    shards = MovingShards()
    shards.create(Q, 1, brake_limit=LIMIT, brake_window_ms=WINDOW_MS)
    shards.publish(1, Q, *[f"m{number}" for number in range(8)])
    shards.run(1, attach(Q, CONSUMER, prefetch=1))
    for number in range(1, LIMIT + 2):
        shards.run(1, settle(REJECT, number))
    assert is_braked(shards.shards[1].shard)
    shards.now_ms += 3000
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    assert not shards.shards[1].shard.braked()
    (answer,) = shards.run(1, commands.encode_release_brake(Q))
    assert isinstance(answer, Moved)
    shards.finish_moves()
    there = shards.shards[2]
    assert is_braked(there.shard)
    there.restore()
    shards.run(2, attach(Q, CONSUMER, prefetch=1))
    assert not there.effects
    shards.now_ms += WINDOW_MS - 3000 - 1
    shards.tick(2)
    assert is_braked(there.shard)
    shards.now_ms += 1
    shards.tick(2)
    assert not is_braked(there.shard)
    shards.ask_to_move(Q, 1)
    shards.finish_moves()
    assert not is_braked(shards.shards[1].shard)


def test_r5_c4_what_it_remembers_is_bounded() -> None:
    """C4."""
    brake = Brake(5, 1000)
    for time_ms in range(0, 60_000, 7):
        brake.note_failure(time_ms)
        assert len(brake.starts) <= PIECES + 1
        failed = [at for at in range(0, time_ms + 1, 7) if at > time_ms - 1000]
        assert len(failed) * (1 - 1 / PIECES) - 8 <= brake.count <= len(failed)
        assert brake.count == sum(brake.counts)


def test_r5_it_is_never_on_longer_than_the_window_behind_the_last_failure() -> None:
    brake = Brake(2, 100)
    assert brake.ends_ms() == NEVER
    assert [brake.note_failure(time_ms) for time_ms in (10, 11, 40, 60, 90)] == [False, False, True, False, False]
    assert brake.since_ms == 40
    assert brake.ends_ms() == 140
    assert not brake.goes_on(139)
    assert brake.goes_on(140)
    assert not brake.goes_on(140)


@pytest.mark.parametrize("row", [[], [1], [1, 5], [0, 5, 7], [0, 5, 7, 0], [0, 5, 7, 1, 7, 1], ["x", None], 5])
def test_a_row_that_is_none_is_refused(row: object) -> None:
    with pytest.raises(ShardError):
        Brake(1, 1000).restore(row)


def test_c1_a_brake_that_was_on_leaves_nothing_that_a_snapshot_does_not_have() -> None:
    """Where nothing has failed lately a snapshot has no brake: since when it was on is forgotten with it."""
    was_on, never_was = Brake(1, 1_000), Brake(1, 1_000)
    for time_ms in (10, 20):
        was_on.note_failure(time_ms)
    assert was_on.is_on and was_on.goes_on(2_000) and was_on.count == 0
    for brake in (was_on, never_was):
        brake.note_failure(3_000)
    assert was_on.row() == never_was.row()
