"""What counts as a failed delivery, from feature level 5 on; what logs of before mean; single consumers that yield."""

from hashlib import sha256

import msgspec
import pytest

from mayfly.cluster.versions import (
    LEVEL_FAILED_DELIVERIES,
    SHARD_SNAPSHOT_VERSION,
    SHARD_SNAPSHOT_WITHOUT_LEVEL,
    SHARD_SNAPSHOT_WITHOUT_WINDOWS,
)
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import DELIVERED_ELSEWHERE, FAILED, GIVEN_BACK
from mayfly.node.shard.packed import COLUMNS, COLUMNS_WITHOUT_ACQUIRED
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.duties.test_dead_letter_duties import Leader
from tests.node.shard.driver import (
    A,
    Close,
    Driver,
    attach,
    content_header,
    encode_settle_up_to,
    encode_transfer,
    publish,
    update_queue,
)
from tests.node.shard.test_dead_letters import routed
from tests.node.shard.test_snapshot import everything

RAISE = commands.encode_raise_level(LEVEL_FAILED_DELIVERIES)
BELOW, THERE = False, True


def driver_at(level: bool, **settings: object) -> Driver:
    """A shard with queue 1, told the level or not."""
    driver = Driver(deliveries=50_000, level=LEVEL_FAILED_DELIVERIES if level else 0)
    driver.create(1, **settings)
    return driver


def counts(driver: Driver) -> tuple[int, int]:
    """How often the next message came back, and of that how often its delivery failed."""
    message = driver.get_message(1)
    assert message is not None and message.redelivered == (message.acquired_count != 0)
    return message.acquired_count, message.delivery_count


@pytest.mark.parametrize(
    "way, level, expected",
    [
        (commands.encode_settle(1, 99, commands.REQUEUE, [1]), BELOW, (1, 1)),
        (commands.encode_settle(1, 99, commands.REQUEUE, [1]), THERE, (1, 1)),
        (commands.encode_settle(1, 99, commands.RETURN, [1]), THERE, (1, 1)),
        (commands.encode_settle(1, 99, commands.UNSENT, [1]), THERE, (0, 0)),
        (commands.encode_settle(1, 99, commands.GIVE_BACK, [1]), THERE, (1, 0)),
        (encode_settle_up_to(1, 99, commands.GIVE_BACK, 1), THERE, (1, 0)),
        (commands.encode_detach(1, 99, FAILED), BELOW, (1, 1)),
        (commands.encode_detach(1, 99, FAILED), THERE, (1, 1)),
        (commands.encode_detach(1, 99, GIVEN_BACK), THERE, (1, 0)),
        (None, BELOW, (1, 1)),
        (None, THERE, (1, 0)),
    ],
)
def test_q1_each_way_back(way: bytes | None, level: bool, expected: tuple[int, int]) -> None:
    """RULES Q1. None: the end of the session, of which nobody knows whether a delivery has failed."""
    driver = driver_at(level, delivery_limit=5)
    driver.run(publish("x"), commands.encode_get(1, 99, False))
    if way is None:
        driver.entry(Close(A))
    else:
        driver.run(way)
    assert counts(driver) == expected


def test_q1_only_failed_deliveries_reach_the_limit() -> None:
    driver = driver_at(THERE, delivery_limit=1, dead_letter_exchange="dlx")
    driver.run(publish("x"))
    for outcome in (commands.GIVE_BACK,) * 30 + (commands.REQUEUE, commands.GIVE_BACK, commands.REQUEUE):
        message = driver.get_message(1, no_ack=False)
        assert message is not None
        driver.run(encode_settle_up_to(1, 99, outcome, 1 << 40))
    assert driver.get_message(1) is None
    (death,) = driver.shard.unrouted(9)
    assert (death.reason, death.message.acquired_count, death.message.delivery_count) == ("delivery_limit", 33, 2)


def test_q1_a_message_is_judged_by_a_lower_limit_whatever_brings_it_back() -> None:
    """As in RabbitMQ, whose limit may be lowered by a policy: more have failed than may by now."""
    for count in (3, 20_000):
        driver = driver_at(THERE, delivery_limit=5)
        driver.run(*(publish("x") for _ in range(count)), attach(1, 5))
        driver.run(encode_settle_up_to(1, 5, commands.REQUEUE, count))
        driver.run(attach(1, 6), commands.encode_detach(1, 5, GIVEN_BACK))
        while driver.shard.next_message_due_ms() == 0:
            driver.lead(commands.encode_expire_due())
        driver.run(update_queue(1, ShardQueueSettings(delivery_limit=0)), session=None)
        driver.run(commands.encode_detach(1, 6, GIVEN_BACK))
        statistics = driver.shard.queue_statistics(1)
        assert statistics is not None
        assert (statistics.delivery_limited, driver.ready(1)) == (count, 0)


@pytest.mark.parametrize("outcome", [commands.REQUEUE, commands.GIVE_BACK])
def test_what_comes_back_without_a_limit_is_before_what_was_never_delivered(outcome: int) -> None:
    """As recorded of RabbitMQ 4.3.6 with a limit of -1; before level 5 it goes to the back."""
    driver = driver_at(THERE)
    driver.run(*(publish(body) for body in "abc"), commands.encode_get(1, 99, False))
    driver.run(commands.encode_settle(1, 99, outcome, [1]))
    assert driver.drain(1) == ["a", "b", "c"]


# -- dead letters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcomes, level, marked",
    [
        ([commands.REJECT], BELOW, False),
        ([commands.REJECT], THERE, True),
        ([commands.DISCARD], THERE, False),
        ([commands.REQUEUE, commands.DISCARD], THERE, True),
        ([commands.GIVE_BACK, commands.DISCARD], THERE, False),
    ],
)
def test_q1_a_dead_letter_of_a_failed_delivery_is_redelivered(outcomes: list[int], level: bool, marked: bool) -> None:
    """In this shard, in a lane to another, and where that transfers it to; counts begin anew."""
    driver = driver_at(level, dead_letter_exchange="dlx")
    driver.create(2)
    driver.run(publish("x"))
    for delivery_id, outcome in enumerate(outcomes, 1):
        driver.run(commands.encode_get(1, 99, False), commands.encode_settle(1, 99, outcome, [delivery_id]))
    driver.lead(commands.encode_route([routed(1, "y", [2], [(8, 80)])]))
    here = driver.get_message(2)
    assert here is not None
    assert (here.redelivered, here.acquired_count) == (marked, DELIVERED_ELSEWHERE if marked else 0)
    (lane,) = driver.shard.lanes()
    content = content_of(driver.log[lane.items[0].index].data, lane.items[0])
    plain = commands.LetterContent(b"\x00\x01k", content_header(b"plain"), b"plain")
    transfer = encode_transfer(4, 1, 1, [content, plain])
    assert transfer[0] == (commands.TRANSFER_MARKED if marked else commands.TRANSFER)
    other = driver_at(level)
    other.lead(transfer)
    arrived = [other.get_message(1, no_ack=False), other.get_message(1, no_ack=False)]
    assert [each is not None and each.redelivered for each in arrived] == [marked, False]
    assert [each and other.body(each) for each in arrived] == ["y", "plain"]
    other.run(commands.encode_settle(1, 99, commands.REQUEUE, [1]))
    assert counts(other) == (1, 1)


# -- levels ----------------------------------------------------------------------------------------------


def test_c1_logs_of_before_mean_what_they_did() -> None:
    """RULES C1: the state of a log without the new words, byte for byte as releases before level 5 have it."""
    driver = everything(0, b"head")
    state = driver.shard.snapshot()
    assert sha256(state).hexdigest() == "8651890785b65abe88e5c9c9535b8e6b0c745cdd6e6051ac27cffa37ce3ddcda"
    assert msgspec.msgpack.decode(state)[0] == SHARD_SNAPSHOT_WITHOUT_LEVEL


def test_c1_a_shard_is_told_the_level_once_and_its_snapshot_says_it() -> None:
    """RULES C1: lower levels change nothing; what was restored goes on the same."""
    driver = everything(0)
    driver.lead(commands.encode_raise_level(LEVEL_FAILED_DELIVERIES - 1))
    assert msgspec.msgpack.decode(driver.shard.snapshot())[0] == SHARD_SNAPSHOT_WITHOUT_LEVEL
    driver.lead(RAISE, RAISE, commands.encode_raise_level(1))
    state = driver.shard.snapshot()
    assert (msgspec.msgpack.decode(state)[0], driver.shard.level) == (SHARD_SNAPSHOT_VERSION, LEVEL_FAILED_DELIVERIES)
    other = Shard(3, 1)
    other.restore(state)
    assert (other.snapshot(), other.level) == (state, LEVEL_FAILED_DELIVERIES)
    driver.run(commands.encode_settle(3, 5, commands.GIVE_BACK, [1]), commands.encode_detach(1, 99, GIVEN_BACK))
    driver.log[driver.index].apply(other)
    assert other.digest() == driver.shard.digest() == driver.replay().digest()


@pytest.mark.parametrize(
    "before, after",
    [
        (commands.encode_settle(1, 99, commands.REQUEUE, [1]), commands.encode_settle(1, 99, commands.GIVE_BACK, [1])),
        (
            encode_settle_up_to(1, 99, commands.REQUEUE, 2),
            encode_settle_up_to(1, 99, commands.GIVE_BACK, 2),
        ),
        (commands.encode_settle(1, 99, commands.REJECT, [2]), commands.encode_settle(1, 99, commands.DISCARD, [2])),
        (commands.encode_detach(1, 99, FAILED), commands.encode_detach(1, 99, GIVEN_BACK)),
    ],
)
def test_c1_new_words_mean_the_old_ones_to_a_shard_that_was_not_told_of_them(before: bytes, after: bytes) -> None:
    """RULES C1: a client's node may know the level before the shard does. What counts from there on has no place in the
    shard's snapshots until then."""
    states = []
    for word in (before, after):
        driver = driver_at(BELOW, dead_letter_exchange="dlx")
        gets = [commands.encode_get(1, 99, False)] * 2
        driver.run(*[publish(body) for body in "xyz"], *gets)
        driver.run(word)
        state = driver.shard.snapshot()
        other = Shard(3, 1)
        other.restore(state)
        driver.lead(RAISE)
        driver.log[driver.index].apply(other)
        assert other.digest() == driver.shard.digest(), "one from a snapshot of before it was told"
        states.append(state)
    assert states[0] == states[1]


def test_c1_a_mark_does_not_count_before_the_shard_that_it_comes_to_is_told() -> None:
    """RULES C1, D6: the shard that it comes from may be told first."""
    driver = driver_at(BELOW)
    letter = commands.LetterContent(b"\x00\x01k", content_header(b"x"), b"x", True)
    driver.lead(encode_transfer(4, 1, 1, [letter]))
    other = Shard(3, 1)
    other.restore(driver.shard.snapshot())
    driver.lead(RAISE)
    driver.log[driver.index].apply(other)
    assert other.digest() == driver.shard.digest()
    message = driver.get_message(1)
    assert message is not None and not message.redelivered


def test_c1_counts_of_packed_messages_and_of_those_that_still_come_survive_a_snapshot() -> None:
    """RULES C1: below the level a column less is written, and read as how often all returns counted."""
    for level, columns in ((BELOW, COLUMNS_WITHOUT_ACQUIRED), (THERE, COLUMNS)):
        driver = driver_at(level, delivery_limit=9)
        many = 20_000
        driver.run(*(publish("x") for _ in range(many)), attach(1, 5))
        for way in (FAILED, GIVEN_BACK if level else FAILED):
            driver.run(commands.encode_detach(1, 5, way))
            driver.run(attach(1, 5))
        driver.run(encode_settle_up_to(1, 5, commands.ACK, 4))
        driver.run(commands.encode_detach(1, 5, FAILED))
        state = driver.shard.snapshot()
        row = msgspec.msgpack.decode(state)
        assert row[0] == (SHARD_SNAPSHOT_VERSION if level else SHARD_SNAPSHOT_WITHOUT_WINDOWS)
        other = Shard(3, 1)
        other.restore(state)
        assert other.snapshot() == state
        expected = (3, 2) if level else (3, 3)
        for shard in (driver.shard, other):
            queue = shard.queue(1)
            assert queue is not None
            messages = [message for piece in queue.returned.pieces() for message in piece]
            assert {(m.acquired_count, m.delivery_count) for m in messages} == {expected}
            assert len(messages) == many - 4
        (front, *_) = row[4][0][5]
        assert len(front) == columns + 1


def test_a_damaged_level_is_refused() -> None:
    driver = driver_at(THERE)
    driver.run(publish("x"))
    row = msgspec.msgpack.decode(driver.shard.snapshot())
    for times in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, "5"], [1, 2, 3, 5, 6]):
        with pytest.raises(ShardError):
            Shard(3, 1).restore(msgspec.msgpack.encode([row[0], times, *row[2:]]))
    with pytest.raises(ShardError, match="unknown way 3"):
        driver.run(commands.encode_detach(1, 99, 3))


def test_a_shard_is_told_the_level_of_the_catalog_until_it_has_it() -> None:
    leader = Leader(level=0)
    state = leader.catalog._state
    for level in range(1, LEVEL_FAILED_DELIVERIES):
        state.level = level
        leader.now_ms += AGAIN_MS
        leader.look()
    assert RAISE not in leader.given
    state.level = LEVEL_FAILED_DELIVERIES
    leader.look()
    leader.look()
    assert leader.given.count(RAISE) == 1
    leader.now_ms += AGAIN_MS
    leader.look()
    assert leader.given.count(RAISE) == 2, "it may have got lost"
    leader.driver.lead(RAISE)
    leader.now_ms += AGAIN_MS
    leader.look()
    assert leader.given.count(RAISE) == 2


# -- single active consumers -----------------------------------------------------------------------------


def yielding(level: bool = THERE) -> Driver:
    """Consumer 5, of priority 0, is active and holds one message; 6 and 7, of priority 2 and 2, wait."""
    driver = driver_at(level, single_active_consumer=True, delivery_limit=9)
    driver.run(attach(1, 5), publish("a"))
    assert driver.delivered(5) == ["a"]
    driver.run(attach(1, 6, priority=2), attach(1, 7, priority=2), attach(1, 8, priority=1), publish("b"))
    return driver


def test_a_single_active_consumer_yields_once_it_holds_nothing() -> None:
    """It gets no more until then; of the highest priority the first comes next (golden sac4, and by hand)."""
    driver = yielding()
    assert driver.deliveries() == []
    driver.run(commands.encode_settle(1, 5, commands.ACK, [1]), publish("c"))
    assert driver.deliveries() == [(6, 1, "b"), (6, 2, "c")]
    driver.run(commands.encode_detach(1, 6, FAILED))
    assert driver.deliveries() == [(7, 1, "b"), (7, 2, "c")]


def test_one_that_holds_nothing_yields_at_once() -> None:
    driver = driver_at(THERE, single_active_consumer=True)
    for consumer, priority in ((5, 0), (6, 2), (7, 1), (8, 2), (9, 3)):
        driver.run(attach(1, consumer, priority=priority, no_ack=True), publish(str(consumer)))
    assert [(consumer, body) for consumer, _, body in driver.deliveries()] == [
        (5, "5"), (6, "6"), (6, "7"), (6, "8"), (9, "9"),
    ]  # fmt: skip


def test_it_goes_on_when_nobody_outranks_it_any_more() -> None:
    driver = yielding()
    driver.run(*(commands.encode_detach(1, consumer, FAILED) for consumer in (6, 7, 8)))
    assert driver.deliveries() == [(5, 2, "b")]


def test_what_it_gives_back_goes_to_the_next() -> None:
    driver = yielding()
    driver.run(commands.encode_settle(1, 5, commands.GIVE_BACK, [1]))
    assert driver.deliveries() == [(6, 1, "a"), (6, 2, "b")]


def test_below_the_level_it_does_not_yield_and_the_level_makes_it() -> None:
    driver = yielding(BELOW)
    assert driver.deliveries() == [(5, 2, "b")]
    driver.lead(RAISE)
    driver.run(publish("c"))
    assert driver.deliveries() == []
    other = Shard(3, 1)
    other.restore(driver.shard.snapshot())
    driver.run(encode_settle_up_to(1, 5, commands.ACK, 2))
    assert driver.deliveries() == [(6, 1, "c")]
    driver.log[driver.index].apply(other)
    assert other.digest() == driver.shard.digest()
