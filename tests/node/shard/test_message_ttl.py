"""Message TTL: deadlines, heads, counts (RULES T)."""

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, REQUEUE, encode_settle
from mayfly.node.shard.packed import Packed
from mayfly.node.shard.results import GetResult
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import LEADER, A, B, Close, Driver, attach, encode_settle_up_to, publish, update_queue


def test_t3_the_lower_of_queue_and_message_ttl_wins() -> None:
    """RULES T3."""
    driver = Driver()
    driver.create(1, message_ttl_ms=1000)
    driver.create(2)
    driver.run(
        publish("both", 1, ttl_ms=500), publish("queue", 1, ttl_ms=5000), publish("own", 2, ttl_ms=700)
    )
    now = driver.time_ms
    deadlines = [message.deadline_ms - now for message in driver.shard.queue(1).ready.live()]  # type: ignore[union-attr]
    assert deadlines == [500, 1000]
    assert driver.get_message(2).deadline_ms == now + 700  # type: ignore[union-attr]


def test_t4_deadline_is_fixed_at_enqueue_and_survives_requeue_and_restart() -> None:
    """RULES T4: requeue, detach, session loss and snapshot keep the number."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("m", 1, ttl_ms=1600))
    deadline = driver.time_ms + 1600
    assert driver.get_message(1, no_ack=False).deadline_ms == deadline  # type: ignore[union-attr]
    driver.pass_ms(800)
    driver.run(encode_settle(1, 99, REQUEUE, [1]))
    driver.run(attach(1, 5))
    driver.run(commands.encode_detach(1, 5, True))
    driver.run(attach(1, 6))
    driver.entry(Close(A))
    driver.shard.restore(driver.shard.snapshot())
    message = driver.get_message(1, no_ack=False)
    assert message is not None
    assert (message.deadline_ms, message.acquired_count, message.delivery_count) == (deadline, 3, 2)
    driver.run(encode_settle(1, 99, REQUEUE, [1]))
    driver.pass_ms(799)
    driver.tick()
    assert driver.ready(1) == 1
    driver.pass_ms(1)
    driver.tick()
    assert driver.ready(1) == 0


def test_t5_never_early_never_delivered_late() -> None:
    """RULES T5: at the deadline it is expired, a millisecond before it is delivered; no tick is needed."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("a", 1, ttl_ms=100), publish("b", 1, ttl_ms=100))
    driver.pass_ms(99)
    assert driver.get(1) == "a"
    driver.pass_ms(1)
    assert driver.get(1) is None
    driver.run(publish("c", 1, ttl_ms=100))
    driver.pass_ms(100)
    driver.run(attach(1, 5))
    assert driver.deliveries() == []
    assert driver.shard.queue_statistics(1).expired == 2  # type: ignore[union-attr]


def test_t5_consumer_gets_the_live_ones_past_expired_ones() -> None:
    """RULES T5: expired heads leave in the step that would have delivered them."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(*(publish(f"m{i}", 1, ttl_ms=-1 if i % 3 == 0 else 100) for i in range(7)))
    driver.pass_ms(200)
    driver.run(attach(1, 5))
    assert driver.delivered(5) == ["m0", "m3", "m6"]
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["m1", "m2", "m4", "m5"]


def test_t6_expired_behind_a_live_head_stay_and_are_counted() -> None:
    """RULES T6."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(publish("keeper", 1), publish("short", 1, ttl_ms=300))
    driver.pass_ms(700)
    driver.tick()
    assert driver.ready(1) == 2
    assert driver.shard.next_message_due_ms() == -1
    assert driver.get(1) == "keeper"
    assert driver.ready(1) == 0
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["short"]


def test_t6_expired_head_leaves_without_consumer_and_without_credit() -> None:
    """RULES T6: nobody need be there, and a consumer without room changes nothing."""
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=1), publish("held", 1), publish("short", 1, ttl_ms=10))
    driver.pass_ms(10)
    assert driver.ready(1) == 1
    driver.tick()
    assert driver.ready(1) == 0


def test_t6_returned_head_expires_too() -> None:
    """RULES T6: the head of the returned messages is a head as well."""
    driver = Driver()
    driver.create(1, delivery_limit=20)
    driver.run(publish("a", 1, ttl_ms=500), publish("b", 1))
    driver.get(1, no_ack=False)
    driver.run(encode_settle(1, 99, REQUEUE, [1]))
    assert driver.ready(1) == 2
    driver.pass_ms(500)
    driver.tick()
    assert driver.drain(1) == ["b"]


def test_t7_the_ticker_is_told_when_the_next_head_is_due() -> None:
    """RULES T7: exact deadlines, the earliest of all queues."""
    driver = Driver()
    for queue_id in (1, 2, 3):
        driver.create(queue_id)
    assert driver.shard.next_message_due_ms() == -1
    driver.run(publish("a", 1, ttl_ms=300), publish("b", 2, ttl_ms=100), publish("c", 3))
    assert driver.shard.next_message_due_ms() == driver.time_ms + 100
    assert not driver.shard.due_messages(driver.time_ms + 99)
    assert driver.shard.due_messages(driver.time_ms + 100)
    driver.pass_ms(100)
    driver.tick()
    assert driver.shard.next_message_due_ms() == driver.time_ms + 200


def test_t8_ttl_zero_without_consumer_is_never_gettable() -> None:
    """RULES T8: not even by a get in the same entry."""
    driver = Driver()
    driver.create(1, message_ttl_ms=0)
    driver.run(publish("m", 1))
    assert driver.ready(1) == 0
    results = driver.run(publish("m", 1), commands.encode_get(1, 99, True))
    assert isinstance(results[0], GetResult)
    assert results[0].message is None


def test_t8_ttl_zero_reaches_a_consumer_with_room_and_no_other() -> None:
    """RULES T8: queue TTL and message TTL; the third finds no room and is dead-lettered in the same step."""
    driver = Driver()
    driver.create(1, message_ttl_ms=0, dead_letter_exchange="dlx")
    driver.create(2)
    driver.run(attach(1, 5, prefetch=2), attach(2, 6))
    driver.run(publish("a0", 1), publish("a1", 1), publish("a2", 1), publish("b", 2, ttl_ms=0))
    assert driver.deliveries() == [(5, 1, "a0"), (5, 2, "a1"), (6, 1, "b")]
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["a2"]


def test_t8_ttl_zero_behind_a_live_head_has_no_second_chance() -> None:
    """RULES T8: in a later entry, even of the same millisecond, it is expired."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("keeper", 1), publish("zero", 1, ttl_ms=0))
    assert driver.ready(1) == 2
    driver.run(attach(1, 5))
    assert driver.delivered(5) == ["keeper"]
    assert driver.ready(1) == 0


def test_t9_each_queue_has_its_own_deadline() -> None:
    """RULES T9: one publish into three queues."""
    driver = Driver()
    driver.create(1, message_ttl_ms=300)
    driver.create(2, message_ttl_ms=900)
    driver.create(3)
    driver.run(publish("m", 1, 2, 3))
    counts = []
    for _ in range(2):
        driver.pass_ms(650)
        driver.tick()
        counts.append([driver.ready(queue_id) for queue_id in (1, 2, 3)])
    assert counts == [[0, 1, 1], [0, 0, 1]]
    assert driver.get(3) == "m"
    assert list(driver.shard.live_entries()) == []


def test_t10_held_messages_do_not_expire_and_are_judged_when_they_come_back() -> None:
    """RULES T10."""
    driver = Driver()
    driver.create(1, message_ttl_ms=300, dead_letter_exchange="dlx")
    driver.run(attach(1, 5, prefetch=2), publish("acked", 1), publish("requeued", 1))
    driver.pass_ms(1000)
    driver.tick()
    assert driver.shard.unrouted(9) == []
    driver.run(encode_settle(1, 5, ACK, [1]))
    assert driver.shard.unrouted(9) == []
    driver.run(encode_settle(1, 5, REQUEUE, [2]))
    assert [(driver.body(d.message), d.reason) for d in driver.shard.unrouted(9)] == [("requeued", "expired")]
    assert driver.ready(1) == 0


def test_t10_late_ones_behind_a_live_head_die_when_they_come_back() -> None:
    """RULES T10: judged at the return, not when they reach the head."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(publish("late", 1, ttl_ms=300))
    driver.get(1, no_ack=False)
    driver.run(publish("live", 1))
    driver.pass_ms(300)
    driver.run(commands.encode_detach(1, 99, True))
    assert driver.ready(1) == 1
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["late"]


def test_t12_a_changed_ttl_counts_for_what_is_enqueued_after_it() -> None:
    """RULES T12."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("before", 1))
    driver.lead(update_queue(1, ShardQueueSettings(name="q1", message_ttl_ms=100)))
    driver.run(publish("after", 1))
    assert [m.deadline_ms for m in driver.shard.queue(1).ready.live()] == [-1, driver.time_ms + 100]  # type: ignore[union-attr]


def test_t12_retroactive_recomputes_from_the_enqueue_time() -> None:
    """RULES T12: ready, returned and held ones; the message's own TTL still is the upper bound."""
    driver = Driver()
    driver.create(1, message_ttl_ms=50_000, dead_letter_exchange="dlx")
    driver.run(publish("held", 1), publish("own", 1, ttl_ms=20), publish("ready", 1))
    enqueued = driver.time_ms
    assert driver.get(1, no_ack=False) == "held"
    driver.pass_ms(10)
    changed = ShardQueueSettings(
        name="q1", message_ttl_ms=30, ttl_retroactive=True, dead_letter_exchange="dlx"
    )
    driver.lead(update_queue(1, changed))
    queue = driver.shard.queue(1)
    assert queue is not None
    assert [m.deadline_ms - enqueued for m in queue.ready.live()] == [20, 30]
    driver.pass_ms(20)
    driver.run(commands.encode_detach(1, 99, True))
    driver.tick()
    assert [driver.body(d.message) for d in driver.shard.unrouted(9)] == ["held", "own", "ready"]
    assert driver.shard.digest() == driver.replay().digest()


def test_t12_a_retroactive_ttl_does_not_count_for_what_is_enqueued_after_it() -> None:
    """RULES T12: of two that are held, one was there when the TTL came, the other came when it was gone again."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("before", 1), commands.encode_get(1, 99, False))
    retroactive = ShardQueueSettings(name="q1", message_ttl_ms=1000, ttl_retroactive=True)
    enqueued_ms = driver.time_ms
    later = publish("after", 1) + commands.encode_get(1, 99, False)
    driver.entry(
        (LEADER, update_queue(1, retroactive)),
        (LEADER, update_queue(1, ShardQueueSettings(name="q1", message_ttl_ms=5000))),
        (A, later),
    )
    restored = Shard(3, 1)
    restored.restore(driver.shard.snapshot())
    driver.shard = restored
    driver.pass_ms(1)
    driver.run(commands.encode_detach(1, 99, True))
    queue = driver.shard.queue(1)
    assert queue is not None
    assert [message.deadline_ms - enqueued_ms for message in queue.returned.live()] == [1000, 5000]


def test_t12_a_retroactive_ttl_takes_no_look_at_what_is_deep_in_a_queue() -> None:
    """RULES T12, C4: ready and held; deadlines are right when they come to count, also after a snapshot."""
    driver = Driver(deliveries=100)
    driver.shard = Shard(3, 1, 100, 100, messages_per_piece=8)
    driver.create(1)
    driver.run(attach(1, 5, prefetch=50))
    for number in range(300):
        driver.run(publish(f"{number}", 1, ttl_ms=9000 if number % 2 else -1))
    queue = driver.shard.queue(1)
    assert queue is not None
    packed = [piece for piece in queue.ready.packed if isinstance(piece, Packed)]
    columns = [list(piece.columns) for piece in packed]
    assert len(packed) > 20
    for ttl_ms in (5000, None, 700):
        changed = ShardQueueSettings(name="q1", message_ttl_ms=ttl_ms, ttl_retroactive=True)
        driver.lead(update_queue(1, changed))
        wanted = [700 if ttl_ms == 700 else 5000 if ttl_ms else None, 700 if ttl_ms == 700 else ttl_ms or 9000]
        deadlines = [message.deadline_ms - message.enqueued_ms for message in queue.ready.live()]
        assert deadlines == [each if each is not None else -1 - driver.time_ms for each in wanted] * 125
        assert queue.ready.timed == sum(each is not None for each in wanted) * 125
    assert [piece.columns for piece in packed] == columns
    restored = Shard(3, 1, 100, 100, messages_per_piece=8)
    restored.restore(driver.shard.snapshot())
    assert restored.digest() == driver.shard.digest()
    driver.shard = restored
    driver.pass_ms(700)
    driver.run(commands.encode_detach(1, 5, True))
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert driver.ready(1) == 0 and not driver.shard.live_entries()


@pytest.mark.parametrize("way", ["purge", "delete", "ack", "get", "drop"])
def test_t13_no_timer_outlives_its_message(way: str) -> None:
    """RULES T13: whatever takes the message takes its timer."""
    driver = Driver()
    driver.create(1)
    for _ in range(300):
        driver.run(*(publish("m", 1, ttl_ms=60_000) for _ in range(3)))
        assert driver.shard.next_message_due_ms() == driver.time_ms + 60_000
        if way == "purge":
            driver.run(commands.encode_purge(1))
        elif way == "delete":
            driver.run(commands.encode_delete_queue(1, False, False))
            driver.lead(commands.encode_forget_deleted([1]))
            driver.create(1)
        elif way == "drop":
            driver.lead(commands.encode_drop_queue(1))
            driver.create(1)
        elif way == "get":
            assert driver.drain(1) == ["m"] * 3
        else:
            driver.run(attach(1, 5))
            driver.run(encode_settle_up_to(1, 5, ACK, 3))
            driver.run(commands.encode_detach(1, 5, False))
        assert driver.shard.next_message_due_ms() == -1
        driver.pass_ms(1)
    timers = driver.shard._state.message_timers
    assert timers.due == {}
    assert len(timers.heap) <= 64
    assert driver.shard._state.live == {}


def test_t14_time_spent_down_counts() -> None:
    """RULES T14: after a restart with a later clock everything past its deadline is due at once."""
    driver = Driver()
    driver.create(1, message_ttl_ms=1000)
    driver.run(*(publish("m", 1) for _ in range(5)))
    driver.shard.restore(driver.shard.snapshot())
    driver.time_ms += 3_600_000
    assert driver.shard.due_messages(driver.time_ms)
    driver.tick()
    assert driver.ready(1) == 0


def test_c2_the_clock_never_goes_back() -> None:
    """RULES C2: an entry stamped earlier is applied at the time of the one before it."""
    driver = Driver()
    driver.create(1)
    high = driver.time_ms
    driver.time_ms -= 10_000
    driver.led_ms -= 10_000
    driver.run(publish("m", 1, ttl_ms=5))
    assert driver.shard.time_ms == high
    assert driver.shard.led_ms == 50_000
    assert driver.get_message(1).deadline_ms == high + 5  # type: ignore[union-attr]


def test_c4_expiry_is_bounded_by_entry_and_goes_on_at_once() -> None:
    """RULES C4: a bound of 100 messages an entry, over queues; the rest is due now and comes in order."""
    driver = Driver(expiries=100)
    for queue_id in (1, 2):
        driver.create(queue_id, dead_letter_exchange="dlx")
        driver.run(*(publish(f"{queue_id}.{i}", queue_id, ttl_ms=50) for i in range(130)))
    driver.pass_ms(50)
    lengths = []
    while driver.shard.due_messages(driver.time_ms):
        before = len(driver.shard.unrouted(1000))
        driver.tick()
        lengths.append(len(driver.shard.unrouted(1000)) - before)
    assert lengths == [100, 100, 60]
    dead = [driver.body(death.message) for death in driver.shard.unrouted(1000)]
    assert dead == [f"{queue_id}.{i}" for queue_id in (1, 2) for i in range(130)]


def test_c4_get_says_when_the_bound_stands_before_a_live_message() -> None:
    """RULES C4 with T5: no expired one is given out, and 'empty' is not said for good."""
    driver = Driver(expiries=10)
    driver.create(1)
    driver.run(*(publish("dead", 1, ttl_ms=50) for _ in range(25)), publish("live", 1))
    driver.pass_ms(50)
    answers = []
    for _ in range(3):
        (result,) = driver.run(commands.encode_get(1, 99, True))
        assert isinstance(result, GetResult)
        answers.append((result.message is not None, result.try_again))
    assert answers == [(False, True), (False, True), (True, False)]


def test_c4_a_lost_node_with_many_late_messages() -> None:
    """RULES C4, T10: what the bound leaves is due at once and is never delivered."""
    driver = Driver(expiries=10)
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(*(publish(f"{i}", 1, ttl_ms=50) for i in range(25)))
    driver.run(attach(1, 5))
    driver.pass_ms(50)
    driver.entry(Close(A), (B, attach(1, 6)))
    assert driver.shard.due_messages(driver.time_ms)
    for _ in range(2):
        driver.tick()
    assert [driver.body(d.message) for d in driver.shard.unrouted(99)] == [f"{i}" for i in range(25)]
    assert driver.ready(1) == 0


def test_c4_what_the_bound_leaves_at_the_head_is_not_overtaken() -> None:
    """RULES C4: a live message behind expired returned ones still comes before those never delivered."""
    driver = Driver(expiries=4)
    driver.create(1)
    driver.run(*(publish("late", 1, ttl_ms=50) for _ in range(20)), publish("returned", 1))
    driver.run(attach(1, 5))
    driver.pass_ms(50)
    driver.entry(Close(A))
    driver.run(publish("ready", 1), attach(1, 6))
    driver.deliveries()
    for _ in range(4):
        driver.tick()
    assert driver.delivered(6) == ["returned", "ready"]


def test_t10_a_late_one_behind_a_live_one_that_comes_back_with_it() -> None:
    """RULES T10: it does not wait until it is the head of the returned messages."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(publish("live", 1), publish("late", 1, ttl_ms=50), attach(1, 5))
    driver.pass_ms(50)
    driver.run(commands.encode_detach(1, 5, True))
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["late"]
    assert driver.ready(1) == 1


def test_c4_late_requeued_ones_beyond_the_bound_are_due_at_once() -> None:
    """RULES C4, T10: not at the back of the queue, where nothing would tell the ticker of them."""
    driver = Driver(expiries=3)
    driver.create(1)
    driver.run(
        *(publish("late", 1, ttl_ms=50) for _ in range(5)), attach(1, 5, prefetch=5), publish("live", 1)
    )
    driver.pass_ms(50)
    driver.run(commands.encode_flow(1, 5, False), encode_settle_up_to(1, 5, REQUEUE, 5))
    assert driver.shard.due_messages(driver.time_ms)
    driver.tick()
    assert driver.ready(1) == 1
