"""Length limits and what overflows (RULES D2, D8, D9, T13, C4)."""

from collections.abc import Callable

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.commands import (
    ACK,
    DROPPED_CYCLE,
    REQUEUE,
    ROUTED,
    LetterContent,
    RouteDecision,
    encode_guard,
    encode_route,
    encode_settle,
)
from mayfly.node.shard.consumers import NO_WINDOW, Holder
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.results import Attached, Deleted, GetResult, Published, Purged, QueueCounts
from mayfly.node.shard.room import Room
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, encode_settings
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, Driver, attach, content_header, encode_transfer, noop, publish, update_queue

SOURCE = 8
REJECT = {"overflow": "reject-publish"}
REJECT_DLX = {"overflow": "reject-publish-dlx"}


def guarded(driver: Driver, *bodies: str, to: tuple[int, ...] = (1,)) -> list[int]:
    """Publish with a guard, in one entry; the positions refused."""
    (result,) = driver.run(encode_guard(len(bodies)), *(publish(body, *to) for body in bodies))
    assert isinstance(result, Published)
    return list(result.refused)


def deaths(driver: Driver) -> list[tuple[str, str]]:
    """(body, reason) of what waits to be routed."""
    return [(driver.body(death.message), death.reason) for death in driver.shard.unrouted(10_000)]


def dead_letters(*bodies: str) -> list[LetterContent]:
    return [LetterContent(b"\x00\x01q", content_header(body.encode()), body.encode()) for body in bodies]


# -- drop-head


def test_d2_drop_head_lets_the_oldest_die_in_order() -> None:
    """RULES D2: reason maxlen; what never was over the limit stays."""
    driver = Driver()
    driver.create(1, max_length=2, dead_letter_exchange="dlx")
    for body in "abc":
        driver.run(publish(body))
    driver.run(publish("d"), publish("e"))
    assert deaths(driver) == [("a", "maxlen"), ("b", "maxlen"), ("c", "maxlen")]
    assert statistics_of(driver.shard).overflowed == 3
    assert driver.drain(1) == ["d", "e"]


def test_d2_bytes_count_bodies_alone_and_one_too_large_takes_all_with_it() -> None:
    """RULES D2: as recorded in dlx.maxlen_bytes."""
    driver = Driver()
    driver.create(1, max_length_bytes=10, dead_letter_exchange="dlx")
    driver.run(publish("aaaa"), publish("bbbb"), publish("cc"))
    assert deaths(driver) == []
    driver.run(publish("d"))
    assert deaths(driver) == [("aaaa", "maxlen")]
    driver.run(publish("B" * 11))
    assert [body for body, _ in deaths(driver)] == ["aaaa", "bbbb", "cc", "d", "B" * 11]
    assert driver.ready(1) == 0


def test_d2_what_is_held_does_not_count_until_it_comes_back() -> None:
    """Only ready messages count; a requeued one is the oldest, so it goes first."""
    driver = Driver()
    driver.create(1, max_length=2, dead_letter_exchange="dlx", delivery_limit=5)
    driver.run(attach(1, 5, prefetch=2))
    driver.run(*(publish(body) for body in "abcd"))
    assert (driver.delivered(5), driver.ready(1), deaths(driver)) == (["a", "b"], 2, [])
    driver.run(commands.encode_detach(1, 5, False), encode_settle(1, 5, REQUEUE, [2, 1]))
    assert deaths(driver) == [("b", "maxlen"), ("a", "maxlen")]
    assert driver.drain(1) == ["c", "d"]


def test_d2_a_waiting_consumer_comes_before_the_limit() -> None:
    """A limit of 0 still hands over what somebody takes at once; the rest dies."""
    driver = Driver()
    driver.create(1, max_length=0, dead_letter_exchange="dlx")
    driver.run(publish("a"))
    driver.run(attach(1, 5, prefetch=2), publish("b"), publish("c"), publish("d"))
    assert (deaths(driver), driver.delivered(5)) == ([("a", "maxlen"), ("d", "maxlen")], ["b", "c"])


def test_d2_without_a_dlx_overflow_is_gone_and_lets_go_of_the_log() -> None:
    driver = Driver()
    driver.create(1, max_length=1)
    driver.run(publish("a"))
    driver.run(publish("b"))
    assert (deaths(driver), driver.released) == ([], [2])
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    assert (statistics.overflowed, statistics.ready, statistics.ready_bytes) == (1, 1, 1)


def test_t13_no_timer_outlives_what_was_dropped() -> None:
    """RULES T13: the deadline of a dropped head is nobody's any more."""
    driver = Driver()
    driver.create(1, max_length=1)
    driver.run(publish("a", ttl_ms=50))
    assert driver.shard.next_message_due_ms() == driver.time_ms + 50
    driver.run(publish("b"))
    assert driver.shard.next_message_due_ms() == -1
    driver.run(publish("c", ttl_ms=80), publish("d", ttl_ms=90))
    assert driver.shard.next_message_due_ms() == driver.time_ms + 90
    driver.pass_ms(90)
    driver.tick()
    assert (driver.ready(1), driver.shard.next_message_due_ms()) == (0, -1)


def test_t6_an_expired_head_dies_of_its_deadline_not_of_the_limit() -> None:
    driver = Driver()
    driver.create(1, max_length=1, dead_letter_exchange="dlx")
    driver.run(publish("a", ttl_ms=50))
    driver.pass_ms(50)
    driver.run(publish("b"), publish("c"))
    assert deaths(driver) == [("a", "expired"), ("b", "maxlen")]


def test_c4_a_lowered_limit_is_worked_off_in_bounded_steps() -> None:
    """RULES C4: an entry drops no more than its bound; the leader is told that there is more, also after a restore."""
    driver = Driver(expiries=10)
    driver.create(1, dead_letter_exchange="dlx")
    driver.run(*(publish(f"m{number}") for number in range(35)))
    low = ShardQueueSettings(name="q1", dead_letter_exchange="dlx", max_length=3)
    driver.lead(update_queue(1, low))
    assert len(deaths(driver)) == 10
    driver.shard.restore(driver.shard.snapshot())
    steps = 0
    while driver.shard.due_messages(driver.time_ms):
        before = len(deaths(driver))
        driver.tick()
        assert 0 < len(deaths(driver)) - before <= 10
        steps += 1
    assert (steps, driver.drain(1)) == (3, ["m32", "m33", "m34"])
    assert deaths(driver) == [(f"m{number}", "maxlen") for number in range(32)]


def test_c4_a_queue_that_goes_while_it_is_overfull_leaves_nothing_to_do() -> None:
    driver = Driver(expiries=2)
    driver.create(1)
    driver.run(*(publish("m") for _ in range(9)))
    driver.lead(update_queue(1, ShardQueueSettings(name="q1", max_length=0)))
    assert driver.shard.due_messages(driver.time_ms)
    driver.run(commands.encode_delete_queue(1, False, False))
    assert not driver.shard.due_messages(driver.time_ms)
    assert list(driver.shard.live_entries()) == []


# -- reject-publish


def test_d2_a_full_queue_refuses_and_says_which() -> None:
    driver = Driver()
    driver.create(1, max_length=2, dead_letter_exchange="dlx", **REJECT)
    assert guarded(driver, "a") == []
    assert guarded(driver, "b", "c", "d") == [1, 2]
    assert driver.get(1) == "a"
    assert guarded(driver, "e", "f") == [1]
    assert (deaths(driver), statistics_of(driver.shard).refused) == ([], 3)
    assert driver.drain(1) == ["b", "e"]
    assert list(driver.shard.live_entries()) == []


def test_d2_bytes_refuse_exactly_what_would_be_too_much() -> None:
    driver = Driver()
    driver.create(1, max_length_bytes=5, **REJECT)
    assert guarded(driver, "aaa", "bbb", "cc", "d") == [1, 3]
    assert driver.drain(1) == ["aaa", "cc"]


def test_d2_a_publish_nobody_listens_for_is_not_refused() -> None:
    """Without a guard the publisher would be told that it is stored: a limit that has just come by policy waits."""
    driver = Driver()
    driver.create(1, max_length=1, **REJECT)
    driver.run(publish("a"), publish("b"))
    assert driver.drain(1) == ["a", "b"]


def test_d2_the_other_queues_of_a_refused_publish_have_it() -> None:
    """As in RabbitMQ: one refusal is enough for a nack, the others keep theirs."""
    driver = Driver()
    driver.create(1, max_length=1, **REJECT)
    driver.create(2)
    driver.create(3, max_length=0, **REJECT)
    assert guarded(driver, "a", to=(1, 2)) == []
    assert guarded(driver, "b", to=(2, 1)) == [0]
    assert guarded(driver, "c", to=(3, 2, 77)) == [0]
    assert (driver.drain(1), driver.drain(2)) == (["a"], ["a", "b", "c"])


def test_d2_consumers_make_room_however_publishes_are_batched() -> None:
    """One entry with all, or an entry each: the same are refused."""
    for together in (True, False):
        driver = Driver()
        driver.create(1, max_length=1, **REJECT)
        driver.run(attach(1, 5, prefetch=3))
        bodies = ["a", "b", "c", "d", "e"]
        if together:
            refused = guarded(driver, *bodies)
        else:
            refused = [place for place, body in enumerate(bodies) if guarded(driver, body)]
        assert (refused, driver.delivered(5), driver.drain(1)) == ([4], ["a", "b", "c"], ["d"])


def test_d2_length_zero_with_reject_hands_over_and_keeps_nothing() -> None:
    driver = Driver()
    driver.create(1, max_length=0, **REJECT)
    assert guarded(driver, "a") == [0]
    driver.run(attach(1, 5, prefetch=1))
    assert guarded(driver, "b", "c") == [1]
    assert (driver.delivered(5), driver.ready(1)) == (["b"], 0)


def test_t6_what_has_expired_makes_room() -> None:
    driver = Driver()
    driver.create(1, max_length=1, **REJECT)
    driver.run(publish("a", ttl_ms=50))
    assert guarded(driver, "b") == [0]
    driver.pass_ms(50)
    assert guarded(driver, "c") == []
    assert driver.drain(1) == ["c"]


def test_d2_reject_publish_dlx_refuses_and_dead_letters() -> None:
    """Reason maxlen, in the order of the publishes; without a DLX it is the same as reject-publish."""
    driver = Driver()
    driver.create(1, max_length=1, dead_letter_exchange="dlx", **REJECT_DLX)
    driver.create(2, max_length=1, **REJECT_DLX)
    assert guarded(driver, "a", "b", "c", to=(1, 2)) == [1, 2]
    assert deaths(driver) == [("b", "maxlen"), ("c", "maxlen")]
    assert (driver.drain(1), driver.drain(2)) == (["a"], ["a"])
    assert len(driver.shard.live_entries()) == 1
    driver.lead(encode_route([RouteDecision(1, DROPPED_CYCLE), RouteDecision(2, DROPPED_CYCLE)]))
    assert list(driver.shard.live_entries()) == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_guard_that_announces_what_does_not_follow_is_an_error(count: int) -> None:
    driver = Driver()
    driver.create(1)
    data = encode_guard(count) + publish("a") * (count - 1) + noop()
    with pytest.raises(ShardError, match=f"PUBLISH {count - 1} of {count} expected"):
        driver.run(data)
    with pytest.raises(ShardError):
        driver.run(encode_guard(2) + publish("a") + publish("b")[:-1])


def test_lowering_a_rejecting_limit_drops_nothing() -> None:
    driver = Driver()
    driver.create(1, max_length=9, **REJECT)
    assert guarded(driver, *"abcd") == []
    driver.lead(update_queue(1, ShardQueueSettings(name="q1", max_length=2, overflow="reject-publish")))
    assert guarded(driver, "e") == [0]
    assert driver.drain(1) == ["a", "b", "c", "d"]


# -- dead letters that arrive at a full queue


def test_d9_drop_head_counts_for_dead_letters_too() -> None:
    driver = Driver()
    driver.create(1, max_length=1)
    driver.lead(encode_transfer(8, 1, 1, dead_letters("x", "y")))
    assert (driver.drain(1), driver.shard.received_up_to(1, 8)) == (["y"], 2)


def test_d8_a_dead_letter_beyond_the_limit_goes_into_a_queue_where_nothing_waits() -> None:
    """RULES D8: else it and all behind it would wait for ever."""
    driver = Driver()
    driver.create(1, max_length_bytes=3, **REJECT)
    driver.create(2, max_length=0, **REJECT)
    letters = dead_letters("too long", "ok", "no")
    assert driver.shard.room(1, SOURCE, 8).body_bytes == 8
    driver.lead(encode_transfer(8, 1, 1, letters))
    assert driver.shard.received_up_to(1, 8) == 1
    assert driver.shard.room(1, SOURCE, 2).body_bytes == 0
    assert driver.get(1) == "too long"
    driver.lead(encode_transfer(8, 1, 2, letters[1:]))
    assert (driver.shard.received_up_to(1, 8), driver.drain(1)) == (2, ["ok"])
    driver.lead(encode_transfer(8, 2, 1, letters))
    assert (driver.shard.received_up_to(2, 8), driver.shard.room(2, SOURCE, 2).messages) == (0, 0)


def test_d8_a_full_target_takes_what_fits_and_the_rest_comes_again() -> None:
    """RULES D6, D7, D8: exactly once and in order, however often it is sent."""
    driver = Driver()
    driver.create(1, max_length=2, **REJECT)
    letters = dead_letters("x", "yy", "z")
    for _ in range(3):
        driver.lead(encode_transfer(8, 1, 1, letters))
        assert (driver.shard.received_up_to(1, 8), driver.shard.room(1, SOURCE).messages) == (2, 0)
    assert driver.get(1) == "x"
    assert driver.shard.room(1, SOURCE).messages == 1
    driver.lead(encode_transfer(8, 1, 3, letters[2:]))
    assert (driver.shard.received_up_to(1, 8), driver.drain(1)) == (3, ["yy", "z"])
    assert list(driver.shard.live_entries()) == []


def test_d8_nothing_overtakes_what_did_not_fit() -> None:
    """RULES D7: a small one behind a large one that does not fit waits as well."""
    driver = Driver()
    driver.create(1, max_length_bytes=5, **REJECT)
    driver.lead(encode_transfer(8, 1, 1, dead_letters("aaa", "bbb", "c")))
    assert (driver.shard.received_up_to(1, 8), driver.drain(1)) == (1, ["aaa"])


def test_d8_a_full_target_in_the_same_shard_gets_a_lane() -> None:
    """RULES D6-D8: what does not fit waits in order, and what follows waits behind it even when there is room."""
    driver = Driver()
    driver.create(1, message_ttl_ms=10, dead_letter_exchange="dlx")
    driver.create(2, max_length=1, **REJECT)
    driver.create(3)
    driver.run(*(publish(f"m{number}") for number in range(4)))
    driver.pass_ms(10)
    driver.tick()

    def route(sequence: int) -> None:
        (content,) = dead_letters(f"d{sequence}")
        driver.lead(encode_route([RouteDecision(sequence, ROUTED, [2, 3], [], content)]))

    route(1)
    route(2)
    assert driver.get(2) == "d1"
    route(3)
    route(4)
    assert driver.drain(2) == []
    lane = driver.shard.lane(2)
    assert lane is not None
    assert (lane.target_shard, lane.first_sequence) == (driver.shard.shard_id, 1)
    assert [driver.body(item) for item in lane.items] == ["d2", "d3", "d4"]
    assert driver.drain(3) == ["d1", "d2", "d3", "d4"]
    got = []
    for sequence, body in enumerate(["d2", "d3", "d4"], 1):
        driver.lead(encode_transfer(driver.shard.shard_id, 2, sequence, dead_letters(body)))
        driver.lead(commands.encode_settled(2, driver.shard.received_up_to(2, driver.shard.shard_id)))
        got += driver.drain(2)
    assert got == ["d2", "d3", "d4"]
    assert list(driver.shard.live_entries()) == []


def test_d9_a_dead_letter_dies_again_where_refused_publishes_die() -> None:
    driver = Driver()
    driver.create(1, max_length=1, dead_letter_exchange="further", **REJECT_DLX)
    driver.lead(encode_transfer(8, 1, 1, dead_letters("x", "y", "z")))
    assert (deaths(driver), driver.shard.received_up_to(1, 8)) == ([("y", "maxlen"), ("z", "maxlen")], 3)


def holder_of(driver: Driver, consumer: int) -> Holder:
    return driver.shard._state.sessions[A][(1, consumer)]


def test_room_is_no_more_than_what_a_window_takes() -> None:
    """What is sent beyond is turned away, and has to be sent again."""
    driver = Driver()
    driver.create(1, max_length=3, **REJECT)
    driver.run(attach(1, 5, no_ack=True, window_bytes=1000))
    assert driver.shard.room(1, SOURCE).counted_bytes == 1000
    driver.run(publish("x"))
    assert driver.shard.room(1, SOURCE).counted_bytes == 1000 - holder_of(driver, 5).given_bytes > 500
    driver.run(attach(1, 6, no_ack=True, window_bytes=5000))
    assert driver.shard.room(1, SOURCE).counted_bytes == 5000, "whoever has more is given his turn"
    driver.run(attach(1, 7, no_ack=True))
    assert driver.shard.room(1, SOURCE).counted_bytes == NO_WINDOW


def test_room_knows_limits_and_consumers() -> None:
    driver = Driver()
    driver.create(1, max_length=3, max_length_bytes=10, **REJECT)
    driver.create(2, max_length=3)
    driver.run(publish("aaaa"))
    assert driver.shard.room(1, SOURCE) == Room(2, 6)
    driver.run(attach(1, 5, prefetch=3))
    assert driver.shard.room(1, SOURCE).messages == 3 + 2
    assert driver.shard.room(2, SOURCE).messages > 1 << 40
    assert driver.shard.room(99, SOURCE).messages > 1 << 40


# -- settings and snapshots


def test_c1_limits_and_counts_survive_a_snapshot() -> None:
    """RULES C1: settings, counters, what waits; another replica has the same state byte for byte."""
    driver = Driver()
    driver.create(1, max_length=1, dead_letter_exchange="dlx", **REJECT_DLX)
    driver.create(2, max_length=1)
    driver.create(3, delivery_limit=0)
    guarded(driver, "a", "b")
    driver.run(publish("c", 2, 3), publish("d", 2))
    driver.run(commands.encode_get(3, 9, False), encode_settle(3, 9, REQUEUE, [1]))
    before = statistics_of(driver.shard)
    copy = Shard(3, 2)
    copy.restore(driver.shard.snapshot())
    assert copy.digest() == driver.shard.digest() == driver.replay().digest()
    after = statistics_of(copy)
    for statistics in (before, after):
        assert (statistics.overflowed, statistics.refused, statistics.delivery_limited) == (1, 1, 1)
    for queue_id in (1, 2, 3):
        driver.run(commands.encode_delete_queue(queue_id, False, False))
    copy.restore(driver.shard.snapshot())
    gone = statistics_of(copy)
    assert (gone.overflowed, gone.refused, gone.delivery_limited) == (1, 1, 1)


def test_settings_of_an_older_release_have_no_limits_and_bad_ones_are_refused() -> None:
    import msgspec

    fields = msgspec.msgpack.decode(encode_settings(ShardQueueSettings(name="q")))
    assert decode_settings(msgspec.msgpack.encode(fields[:11])) == ShardQueueSettings(name="q")
    for place, value in ((11, -1), (12, "x"), (12, 1 << 49), (13, "drop-tail"), (13, None), (14, 1)):
        bad = [*fields[:place], value, *fields[place + 1 :]]
        with pytest.raises(ShardError, match="queue settings"):
            decode_settings(msgspec.msgpack.encode(bad))


def test_d2_the_delivery_count_survives_leader_and_snapshot() -> None:
    """RULES D2: a message is delivered limit + 1 times, whatever returns it."""
    driver = Driver()
    driver.create(1, delivery_limit=2, dead_letter_exchange="dlx")
    driver.run(publish("m"))
    for count in range(3):
        message = driver.get_message(1, no_ack=False, holder=10 + count)
        assert message is not None
        assert message.delivery_count == count
        driver.shard.restore(driver.shard.snapshot())
        if count == 1:
            driver.run(commands.encode_detach(1, 10 + count, True))
        else:
            driver.run(encode_settle(1, 10 + count, REQUEUE, [1]))
    assert deaths(driver) == [("m", "delivery_limit")]
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    assert statistics.delivery_limited == 1


def test_acknowledging_does_not_count_as_a_return() -> None:
    driver = Driver()
    driver.create(1, delivery_limit=0, dead_letter_exchange="dlx")
    driver.run(publish("m"))
    driver.get_message(1, no_ack=False)
    driver.run(encode_settle(1, 99, ACK, [1]))
    assert deaths(driver) == []


@pytest.mark.parametrize(
    "look",
    [
        lambda: commands.encode_touch_queue(1), lambda: commands.encode_get(1, 9, True),
        lambda: commands.encode_delete_queue(1, False, False), lambda: commands.encode_purge(1),
        lambda: commands.encode_create_queue(1, ShardQueueSettings()), lambda: attach(1, 5),
    ],
    ids=["declare passively", "get", "delete", "purge", "declare", "consume"],
)  # fmt: skip
def test_d2_nobody_sees_more_than_the_limit_behind_publishes_of_the_same_entry(look: Callable[[], bytes]) -> None:
    """What clients send in one piece is one entry: 100 publishes to a queue of 3, and then somebody looks."""
    driver = Driver()
    driver.create(1, max_length=3)
    (answer,) = driver.run(*(publish(str(number)) for number in range(100)), look())
    if isinstance(answer, QueueCounts):
        assert answer.ready == 3
    elif isinstance(answer, GetResult):
        assert answer.message is not None and driver.body(answer.message) == "97" and answer.ready_count == 2
    elif isinstance(answer, Attached):
        assert driver.delivered(5) == ["97", "98", "99"]
    else:
        assert isinstance(answer, Deleted | Purged) and answer.messages == 3
    assert statistics_of(driver.shard).overflowed == 97


def test_d2_what_waiting_consumers_get_does_not_count() -> None:
    """As if each publish had been alone: a consumer with room takes it before anybody looks."""
    driver = Driver()
    driver.create(1, max_length=3)
    driver.run(attach(1, 5, prefetch=60))
    (answer,) = driver.run(*(publish(str(number)) for number in range(100)), commands.encode_touch_queue(1))
    assert isinstance(answer, QueueCounts) and answer.ready == 3
    assert driver.delivered(5) == [str(number) for number in range(60)]
