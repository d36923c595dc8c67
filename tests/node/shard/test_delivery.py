"""Consumers, basic.get and settlement: who gets what, in which order."""

import gc

import pytest

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.commands import (
    ACK,
    REJECT,
    REQUEUE,
    RETURN,
    UNSENT,
    encode_delete_queue,
    encode_detach,
    encode_flow,
    encode_get,
    encode_settle,
)
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.results import Attached, Detached, GetResult, Gone, Refused
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, B, Close, Driver, attach, content_header, encode_settle_up_to, noop, publish


def numbered(count: int, queue_id: int = 1, first: int = 0) -> bytes:
    """Publishes with bodies "0", "1", ..."""
    return b"".join(publish(str(number), queue_id) for number in range(first, first + count))


def test_delivery_in_order_with_ids_from_one_in_one_effect() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5))
    driver.run(numbered(3))
    (effect,) = driver.effects
    assert isinstance(effect, Deliver)
    assert (effect.session, effect.consumer_id, effect.first_delivery_id, len(effect.messages)) == (
        A,
        5,
        1,
        3,
    )
    assert not effect.messages[0].redelivered
    assert driver.content(effect.messages[1]) == b"\x00\x01q" + content_header(b"1") + b"1"
    driver.run(numbered(2, first=3))
    assert driver.deliveries() == [(5, number + 1, str(number)) for number in range(5)]


def test_prefetch_limits_what_is_held_and_settling_makes_room() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=3), numbered(10))
    assert driver.delivered(5) == ["0", "1", "2"]
    driver.run(encode_settle(1, 5, ACK, [2]))
    assert driver.delivered(5) == ["3"]
    driver.run(encode_settle_up_to(1, 5, ACK, 3))
    assert driver.delivered(5) == ["4", "5"]
    driver.run(encode_settle_up_to(1, 5, REJECT, 100))
    assert driver.delivered(5) == ["6", "7", "8"]


def test_what_was_never_sent_comes_back_uncounted_and_first() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=3), numbered(5))
    driver.run(encode_detach(1, 5, False))
    driver.run(encode_settle_up_to(1, 5, RETURN, 1))
    driver.run(encode_settle(1, 5, UNSENT, [2, 3]))
    driver.run(encode_detach(1, 5, True))
    driver.deliveries()
    driver.run(attach(1, 6))
    again = [message for effect in driver.effects if isinstance(effect, Deliver) for message in effect.messages]
    assert [message.delivery_count for message in again] == [1, 0, 0, 0, 0]
    assert driver.delivered(6) == ["0", "1", "2", "3", "4"]


def test_settling_unknown_things_is_ignored() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), numbered(2))
    before = driver.shard.digest()
    driver.run(
        encode_settle(1, 5, ACK, [3, 4, 1 << 60]),
        encode_settle(1, 6, ACK, [1]),
        encode_settle(2, 5, ACK, [1]),
        encode_settle(1, 5, ACK, []),
        encode_settle_up_to(1, 5, ACK, 0),
    )
    driver.run(encode_settle(1, 5, ACK, [1]), session=B)
    assert driver.shard.digest() == before
    driver.run(encode_settle(1, 5, ACK, [1, 1, 2, 1]))
    driver.run(encode_settle(1, 5, ACK, [1]), encode_settle_up_to(1, 5, ACK, 1 << 63))
    assert driver.shard.queue_statistics(1).acknowledged == 2  # type: ignore[union-attr]


def test_a_range_over_long_settled_ids_is_quick_and_right() -> None:
    """An old one held, many settled after it one by one, then all up to the end."""
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), numbered(3000))
    for first in range(2, 3000, 500):
        driver.run(encode_settle(1, 5, ACK, list(range(first, min(first + 500, 3000)))))
    holder = driver.shard._state.sessions[A][(1, 5)]
    assert list(holder.held) == [1, 3000]
    driver.run(encode_settle_up_to(1, 5, ACK, 3000))
    assert holder.held == {}
    assert list(driver.shard.live_entries()) == []


def test_consumers_of_one_priority_take_turns() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), attach(1, 6), attach(1, 7, prefetch=1))
    driver.run(numbered(8))
    assert driver.deliveries() == [
        (5, 1, "0"),
        (5, 2, "3"),
        (5, 3, "5"),
        (5, 4, "7"),
        (6, 1, "1"),
        (6, 2, "4"),
        (6, 3, "6"),
        (7, 1, "2"),
    ]
    driver.run(publish("8"))
    assert driver.deliveries() == [(6, 4, "8")]


def test_many_consumers_take_turns_one_by_one() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(*(attach(1, number, prefetch=2) for number in range(1, 51)))
    driver.run(numbered(120))
    counts: dict[int, list[str]] = {}
    for consumer, _, body in driver.deliveries():
        counts.setdefault(consumer, []).append(body)
    assert counts == {number: [str(number - 1), str(number + 49)] for number in range(1, 51)}
    assert driver.ready(1) == 20


def test_the_higher_priority_gets_all_while_it_has_room() -> None:
    """Golden queue.consumer_priority."""
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, no_ack=True), attach(1, 6, prefetch=10, priority=10), attach(1, 7, priority=-3))
    driver.run(numbered(10))
    assert {consumer for consumer, _, _ in driver.deliveries()} == {6}
    driver.run(numbered(2))
    assert driver.deliveries() == [(5, 1, "0"), (5, 2, "1")]
    driver.run(encode_detach(1, 5, True), publish("x"))
    assert driver.deliveries() == [(7, 1, "x")]


def test_exclusive_refuses_and_is_refused() -> None:
    driver = Driver()
    driver.create(1)
    answers = driver.run(attach(1, 5, exclusive=True), attach(1, 6), attach(1, 7, exclusive=True))
    assert [getattr(answer, "reason", "ok") for answer in answers] == ["ok", "exclusive", "exclusive"]
    answers = driver.run(encode_detach(1, 5, True), attach(1, 6), attach(1, 7, exclusive=True), attach(1, 8))
    assert [type(answer) for answer in answers] == [Detached, Attached, Refused, Attached]
    assert isinstance(answers[3], Attached)
    assert answers[3].consumers == 2


def test_attach_answers_and_a_consumer_id_is_used_once() -> None:
    driver = Driver()
    driver.create(1)
    gone, first, again = driver.run(attach(9, 5), attach(1, 5), attach(1, 5))
    assert isinstance(gone, Gone)
    assert isinstance(first, Attached)
    assert isinstance(again, Refused)
    assert again.reason == "duplicate-consumer"
    (other,) = driver.run(attach(1, 5), session=B)
    assert isinstance(other, Attached)
    assert other.consumers == 2


def test_only_the_single_active_consumer_gets_messages() -> None:
    """Golden queue.single_active_consumer: the next takes over on cancel, the highest priority first."""
    driver = Driver()
    driver.create(1, single_active_consumer=True)
    driver.run(attach(1, 5, no_ack=True, priority=1), attach(1, 6, no_ack=True), attach(1, 7, no_ack=True, priority=1))
    driver.run(numbered(4))
    assert {consumer for consumer, _, _ in driver.deliveries()} == {5}
    driver.shard.restore(driver.shard.snapshot())
    driver.run(encode_detach(1, 5, False))
    driver.run(numbered(2))
    assert driver.deliveries() == [(7, 1, "0"), (7, 2, "1")]
    driver.run(encode_detach(1, 7, False), publish("x"))
    assert driver.deliveries() == [(6, 1, "x")]


def test_no_ack_holds_nothing() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, no_ack=True, prefetch=1))
    driver.run(numbered(3))
    assert driver.delivered(5) == ["0", "1", "2"]
    assert driver.shard.queue_statistics(1).unacknowledged == 0  # type: ignore[union-attr]
    assert driver.released == [3]


def test_flow_pauses_and_resumes() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), attach(1, 6), encode_flow(1, 5, False), encode_flow(1, 77, False))
    driver.run(numbered(3))
    assert {consumer for consumer, _, _ in driver.deliveries()} == {6}
    driver.run(encode_flow(1, 6, False), numbered(2))
    assert driver.deliveries() == []
    driver.shard.restore(driver.shard.snapshot())
    driver.run(encode_flow(1, 5, True), encode_flow(1, 5, True))
    assert driver.delivered(5) == ["0", "1"]


def test_cancel_leaves_what_is_held_and_gives_no_more() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=2), numbered(3))
    assert driver.delivered(5) == ["0", "1"]
    driver.run(encode_detach(1, 5, False))
    driver.run(encode_settle(1, 5, ACK, [1]))
    assert driver.deliveries() == []
    assert driver.shard.queue_statistics(1).unacknowledged == 1  # type: ignore[union-attr]
    driver.run(encode_detach(1, 5, True))
    assert driver.drain(1) == ["1", "2"]
    assert driver.shard._state.sessions == {}


def test_what_a_closed_channel_held_comes_back_first_and_redelivered() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=3), numbered(5))
    driver.run(encode_settle(1, 5, ACK, [2]), encode_detach(1, 5, True))
    messages = [driver.get_message(1) for _ in range(4)]
    seen = [(driver.body(message), message.redelivered) for message in messages if message]
    assert seen == [("0", True), ("2", True), ("3", False), ("4", False)]


@pytest.mark.parametrize(
    ("level", "order"),
    [(LEVEL_FAILED_DELIVERIES - 1, ["3", "4", "1", "0", "2"]), (LEVEL_HIGHEST, ["1", "0", "2", "3", "4"])],
)
def test_requeue_position_without_delivery_limit(level: int, order: list[str]) -> None:
    """As with a limit, as recorded of RabbitMQ 4.3.6; below the level one by one to the back, as of 3.10.8 (golden
    queue.requeue_position)."""
    driver = Driver(level=level)
    driver.create(1)
    driver.run(numbered(5))
    for _ in range(3):
        driver.get(1, no_ack=False)
    for delivery_id in (2, 1, 3):
        driver.run(encode_settle(1, 99, REQUEUE, [delivery_id]))
    assert driver.drain(1) == order


def test_requeue_position_with_a_delivery_limit() -> None:
    """With a limit, as quorum queues have it: before the others, in order of the return."""
    driver = Driver()
    driver.create(1, delivery_limit=20)
    driver.run(numbered(5))
    for _ in range(3):
        driver.get(1, no_ack=False)
    for delivery_id in (2, 1, 3):
        driver.run(encode_settle(1, 99, REQUEUE, [delivery_id]))
    assert driver.drain(1) == ["1", "0", "2", "3", "4"]


@pytest.mark.parametrize("limit", [0, 2])
def test_d2_delivery_limit(limit: int) -> None:
    """RULES D2, golden dlx.reason_delivery_limit: limit + 1 deliveries, then it dies."""
    driver = Driver()
    driver.create(1, delivery_limit=limit, dead_letter_exchange="dlx")
    driver.run(publish("m"))
    counts = []
    for delivery in range(limit + 1):
        message = driver.get_message(1, no_ack=False)
        assert message is not None
        counts.append(message.delivery_count)
        driver.run(encode_settle(1, 99, REQUEUE, [delivery + 1]))
    assert counts == list(range(limit + 1))
    assert driver.get(1) is None
    assert [death.reason for death in driver.shard.unrouted(9)] == ["delivery_limit"]


def test_delivery_limit_without_dlx_drops() -> None:
    """Golden queue.delivery_limit_zero_without_dlx."""
    driver = Driver()
    driver.create(1, delivery_limit=0)
    driver.run(publish("m"))
    driver.get(1, no_ack=False)
    driver.run(encode_settle(1, 99, REQUEUE, [1]))
    assert driver.get(1) is None
    assert list(driver.shard.live_entries()) == []


def test_golden_counts_and_get() -> None:
    """Golden queue.counts: get-ok counts what stays ready; delivery ids go on; no_ack holds nothing."""
    driver = Driver()
    driver.create(1)
    driver.run(numbered(4))
    answers = driver.run(encode_get(1, 99, False), encode_get(1, 99, False), encode_get(1, 99, True))
    seen = [(a.ready_count, a.delivery_id) for a in answers if isinstance(a, GetResult)]
    assert seen == [(3, 1), (2, 2), (1, 0)]
    driver.run(encode_settle(1, 99, ACK, [1, 2]))
    (answer,) = driver.run(encode_get(1, 99, False))
    assert isinstance(answer, GetResult)
    assert answer.delivery_id == 3
    (answer,) = driver.run(encode_get(1, 99, False))
    assert isinstance(answer, GetResult)
    assert (answer.message, answer.try_again) == (None, False)


def test_a_get_comes_after_the_consumers_in_the_same_entry() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=1))
    (answer,) = driver.run(numbered(2), encode_get(1, 99, True))
    assert isinstance(answer, GetResult)
    assert answer.message is not None
    assert driver.body(answer.message) == "1"
    assert driver.delivered(5) == ["0"]


def test_effects_are_for_the_local_node_only_and_state_is_the_same() -> None:
    """RULES C1: who serves the consumer decides about effects, never about state."""
    driver = Driver(local_node=1)
    driver.create(1)
    driver.run(attach(1, 5))
    driver.run(attach(1, 5), session=B)
    driver.run(numbered(4))
    driver.run(encode_delete_queue(1, False, False))
    assert [getattr(effect, "session", None) for effect in driver.effects] == [A, A]
    other = driver.replay(2)
    effects = other.take_effects()
    assert [getattr(effect, "session", None) for effect in effects] == [B, B]
    assert driver.replay(3).take_effects() == []
    assert other.digest() == driver.shard.digest()
    assert other.take_effects() == []


def test_a_lost_node_gives_back_and_others_go_on() -> None:
    """RULES T4, Q1: what its consumers and gets held comes back in order of attach, then is delivered to the others; of
    no delivery is known that it failed."""
    driver = Driver()
    driver.create(1)
    driver.create(2)
    driver.run(attach(1, 5, prefetch=2), numbered(4), numbered(1, queue_id=2), encode_get(2, 77, False))
    driver.run(attach(1, 5), session=B)
    driver.effects.clear()
    driver.entry(Close(A), Close(A), Close((4, 4)))
    assert driver.ready(2) == 1
    assert driver.shard.queue_statistics(1).consumers == 1  # type: ignore[union-attr]
    other = driver.replay(2).take_effects()
    messages = [message for effect in other if isinstance(effect, Deliver) for message in effect.messages]
    assert [(message.acquired_count, message.delivery_count) for message in messages] == [(0, 0)] * 2 + [(1, 0)] * 2
    assert driver.shard._state.sessions.keys() == {B}


def test_what_a_lost_node_held_comes_back_in_the_order_its_holders_came() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 9, prefetch=1), attach(1, 5, prefetch=1), numbered(3))
    driver.run(encode_get(1, 7, False))
    driver.entry(Close(A))
    assert driver.drain(1) == ["0", "1", "2"]


def test_unlimited_consumers_are_served_in_bounded_steps() -> None:
    """RULES C4 in spirit: a long queue is not delivered in one entry; the rest is due at once."""
    driver = Driver(deliveries=100)
    driver.create(1)
    driver.run(numbered(350))
    driver.run(attach(1, 5))
    lengths = [len(driver.delivered(5))]
    while driver.shard.due_messages(0):
        driver.shard.restore(driver.shard.snapshot())
        driver.tick()
        lengths.append(len(driver.delivered(5)))
    assert lengths == [100, 100, 100, 50]
    assert driver.shard.digest() == driver.replay().digest()


def test_a_queue_that_goes_cancels_its_attached_consumers() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), attach(1, 6), numbered(2), encode_get(1, 99, False))
    driver.run(encode_detach(1, 6, False))
    driver.run(encode_delete_queue(1, False, False))
    assert driver.cancelled() == [5]
    assert list(driver.shard.live_entries()) == []
    assert driver.shard._state.sessions == {}
    answers = driver.run(encode_settle(1, 5, ACK, [1]), encode_detach(1, 5, True), encode_flow(1, 5, True))
    assert [type(answer) for answer in answers] == [Detached]


def test_a_publish_to_a_queue_that_is_gone_is_counted() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(publish("a", 1, 8), publish("b", 9), publish("c", 9, 1), publish("d", 1), publish("e", 8))
    assert driver.drain(1) == ["a", "c", "d"]
    statistics = statistics_of(driver.shard)
    assert statistics.missing_targets == 4
    assert (statistics.enqueued, statistics.acknowledged, statistics.live_entries) == (3, 3, 0)


def test_entries_are_released_once_and_only_when_nothing_in_them_lives() -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2)
    driver.run(publish("a", 1, 2), publish("b", 1))
    entry = driver.index
    assert driver.drain(1) == ["a", "b"]
    assert driver.released == []
    assert list(driver.shard.live_entries()) == [entry]
    assert driver.get(2) == "a"
    assert driver.released == [entry]
    driver.released.clear()
    driver.run(
        publish("x", 1), encode_get(1, 9, True), publish("y", 1), encode_get(1, 9, True), publish("z", 1)
    )
    assert driver.released == []
    assert list(driver.shard.live_entries()) == [driver.index]
    driver.run(publish("v", 1), commands.encode_purge(1))
    assert driver.released == [driver.index - 1, driver.index]


def test_c1_what_a_bound_left_waiting_goes_on_in_the_same_order_after_a_restore() -> None:
    """RULES C1: whichever queue was left first."""
    driver = Driver(deliveries=10)
    driver.create(1)
    driver.create(2)
    for _ in range(3):
        driver.run(numbered(10, 2), numbered(10, 1))
    driver.run(attach(2, 6))
    driver.run(attach(1, 5))
    restored = Shard(3, 1, *driver.bounds)
    restored.restore(driver.shard.snapshot())
    driver.deliveries()
    while driver.shard.due_messages(0):
        driver.tick()
        driver.log[driver.index].apply(restored)
        seen = [
            (e.consumer_id, e.first_delivery_id) for e in restored.take_effects() if isinstance(e, Deliver)
        ]
        assert seen == [
            (e.consumer_id, e.first_delivery_id) for e in driver.effects if isinstance(e, Deliver)
        ]
        driver.effects.clear()
    assert restored.digest() == driver.shard.digest()


def test_a_queue_deleted_while_a_bound_left_it_waiting() -> None:
    driver = Driver(deliveries=10)
    driver.create(1)
    driver.run(numbered(25))
    driver.run(attach(1, 5))
    assert driver.shard.due_messages(0)
    driver.run(encode_delete_queue(1, False, False))
    assert not driver.shard.due_messages(driver.time_ms)
    driver.run(noop())
    assert driver.cancelled() == [5]


def test_nothing_is_left_of_consumers_that_went() -> None:
    driver = Driver()
    driver.create(1)
    for number in range(1, 30):
        driver.run(attach(1, number, priority=number), publish("m"))
        driver.run(encode_settle_up_to(1, number, ACK, 1), encode_detach(1, number, False))
    queue = driver.shard.queue(1)
    assert queue is not None
    assert (queue.holders, queue.consumers.bands, queue.consumers.count) == ({}, {}, 0)
    assert driver.shard._state.sessions == {}


def holders_in_memory() -> int:
    return sum(isinstance(each, Holder) for each in gc.get_objects())


@pytest.mark.parametrize("end", ["detach", "delete", "session", "restore"])
def test_consumers_that_waited_side_by_side_are_freed_when_they_go(end: str) -> None:
    """The collector looks at a node's objects rarely: nothing is to wait for it."""
    gc.collect()
    gc.disable()
    try:
        before = holders_in_memory()
        driver = Driver()
        driver.create(1)
        empty = driver.shard.snapshot()
        driver.run(*(attach(1, number, priority=number % 2) for number in range(1, 7)))
        assert holders_in_memory() == before + 6
        if end == "detach":
            driver.run(*(encode_detach(1, number, True) for number in (3, 1, 6, 2, 5, 4)))
        elif end == "delete":
            driver.run(encode_delete_queue(1, False, False))
        elif end == "session":
            driver.entry(Close(A))
        else:
            driver.shard.restore(empty)
        driver.effects.clear()
        assert holders_in_memory() == before
    finally:
        gc.enable()


def test_the_next_single_active_consumer_is_found_after_thousands_that_came_and_went() -> None:
    driver = Driver()
    driver.create(1, single_active_consumer=True)
    driver.run(*(attach(1, number, priority=2) for number in (1, 2, 3)))
    for number in range(10, 500):
        driver.run(attach(1, number, priority=number % 3), encode_detach(1, number, True))
    queue = driver.shard.queue(1)
    assert queue is not None
    assert len(queue.consumers._candidates) < 80
    for gone, following in ((1, 2), (2, 3)):
        assert queue.consumers.single is not None and queue.consumers.single.holder_id == gone
        driver.run(encode_detach(1, gone, True))
        driver.run(publish("m"))
        assert driver.delivered(following)
    driver.run(encode_detach(1, 3, True))
    assert queue.consumers.single is None
