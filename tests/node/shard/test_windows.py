"""Windows of consumers: what one was given, and its node has not said was taken, is bounded in bytes."""

import msgspec
import pytest

from mayfly.cluster.versions import (
    LEVEL_CONSUMER_WINDOWS,
    LEVEL_HIGHEST,
    SHARD_SNAPSHOT_WITH_MOVE_NUMBERS,
    SHARD_SNAPSHOT_WITHOUT_LEVEL,
    SHARD_SNAPSHOT_WITHOUT_WINDOWS,
)
from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, encode_flow, encode_taken
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import OVERHEAD_BYTES
from mayfly.node.shard.results import Applied, Published, Refused
from mayfly.node.shard.settings import REJECT_PUBLISH
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import A, B, Driver, attach, encode_prefetch, encode_settle_up_to, publish

SMALL = len(publish("x")) - commands.PUBLISH_HEAD.size + OVERHEAD_BYTES
"""What a message with a body of one character counts for."""


def one_queue(level: int = LEVEL_HIGHEST, **settings: object) -> Driver:
    driver = Driver(level=level)
    driver.create(1, **settings)
    return driver


def digits(count: int, first: int = 0) -> bytes:
    """Messages that count for SMALL each."""
    return b"".join(publish(str((first + number) % 10)) for number in range(count))


def holder(driver: Driver, consumer: int = 5, session: tuple[int, int] = A) -> Holder:
    return driver.shard._state.sessions[session][(1, consumer)]


def outstanding_bytes(driver: Driver, consumer: int = 5) -> int:
    who = holder(driver, consumer)
    return who.given_bytes - who.taken_bytes


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_is_given_what_its_window_takes(no_ack: bool) -> None:
    driver = one_queue()
    driver.run(attach(1, 5, no_ack=no_ack, window_bytes=3 * SMALL), digits(8))
    assert driver.delivered(5) == ["0", "1", "2"]
    assert outstanding_bytes(driver) == 3 * SMALL
    # Nothing is left to do: the ticker of the leader is not to go on asking.
    assert not driver.shard.due_messages(driver.time_ms)
    driver.run(encode_settle_up_to(1, 5, ACK, 3))
    assert driver.delivered(5) == []
    driver.run(encode_taken(1, 5, 2 * SMALL))
    assert driver.delivered(5) == ["3", "4"]
    driver.run(encode_taken(1, 5, 5 * SMALL))
    assert driver.delivered(5) == ["5", "6", "7"]
    assert driver.shard.digest() == driver.replay().digest()


def test_the_last_one_may_go_beyond() -> None:
    driver = one_queue()
    driver.run(attach(1, 5, window_bytes=SMALL + 1), publish("a"), publish("b" * 9000), publish("c"))
    assert driver.delivered(5) == ["a", "b" * 9000]
    driver.run(encode_taken(1, 5, SMALL))
    assert driver.delivered(5) == []
    driver.run(encode_taken(1, 5, 2 * SMALL + 8999))
    assert driver.delivered(5) == ["c"]


def test_keys_and_headers_count() -> None:
    driver = one_queue()
    parts: list[bytes] = []
    for _ in range(4):
        commands.encode_publish(parts, [1], -1, b"\x00\x01q", bytes(1000), b"")
    driver.run(attach(1, 5, window_bytes=2000), b"".join(parts))
    assert len(driver.deliveries()) == 2
    assert outstanding_bytes(driver) == 2 * (OVERHEAD_BYTES + 1003)


def test_what_expires_or_comes_back_gives_no_room() -> None:
    """Timed and returned messages are counted as others are, and only what was taken makes room."""
    driver = one_queue()
    driver.run(attach(1, 5, window_bytes=2 * SMALL), *(publish(str(n), ttl_ms=50 * (n % 2) or -1) for n in range(6)))
    assert driver.delivered(5) == ["0", "1"]
    driver.run(commands.encode_settle(1, 5, commands.REQUEUE, [1, 2]))
    driver.pass_ms(60)
    driver.tick()
    assert driver.deliveries() == []
    driver.run(encode_taken(1, 5, 2 * SMALL))
    assert driver.delivered(5) == ["0", "2"]
    driver.run(encode_taken(1, 5, 4 * SMALL))
    assert driver.delivered(5) == ["4"]


@pytest.mark.parametrize("consumers", [2, 5, 40])
def test_several_take_turns_until_their_windows_are_full(consumers: int) -> None:
    """Also where there are so many that they get one each in a round."""
    driver = one_queue()
    everybody = range(5, 5 + consumers)
    driver.run(*(attach(1, who, window_bytes=(1 + who % 3) * SMALL) for who in everybody), digits(4 * consumers))
    given = [who for who, _, _ in driver.deliveries()]
    assert {who: given.count(who) for who in everybody} == {who: 1 + who % 3 for who in everybody}
    assert all(outstanding_bytes(driver, who) == (1 + who % 3) * SMALL for who in everybody)
    driver.run(*(encode_taken(1, who, SMALL) for who in everybody))
    assert sorted(who for who, _, _ in driver.deliveries()) == list(everybody)
    assert driver.shard.digest() == driver.replay().digest()


def test_who_has_no_window_gets_the_rest() -> None:
    driver = one_queue()
    driver.run(attach(1, 5, window_bytes=2 * SMALL), attach(1, 6), digits(8))
    assert driver.deliveries().count((5, 1, "0")) == 1
    assert outstanding_bytes(driver) == 2 * SMALL
    assert driver.ready(1) == 0


def test_a_lower_priority_is_served_while_the_higher_one_has_no_room() -> None:
    driver = one_queue()
    driver.run(attach(1, 5, priority=1, window_bytes=SMALL), attach(1, 6), digits(3))
    assert driver.deliveries() == [(5, 1, "0"), (6, 1, "1"), (6, 2, "2")]
    driver.run(encode_taken(1, 5, SMALL), digits(2, 3))
    assert driver.deliveries() == [(5, 2, "3"), (6, 3, "4")]


def test_a_single_active_consumer_without_room_stays_the_active_one() -> None:
    driver = one_queue(single_active_consumer=True)
    driver.run(attach(1, 5, window_bytes=SMALL), attach(1, 6, window_bytes=3 * SMALL), digits(6))
    assert driver.deliveries() == [(5, 1, "0")]
    driver.run(encode_taken(1, 5, SMALL))
    assert driver.deliveries() == [(5, 2, "1")]
    driver.run(commands.encode_detach(1, 5, True))
    assert driver.delivered(6) == ["0", "1", "2"]


def test_prefetch_and_flow_and_window_all_count() -> None:
    driver = one_queue()
    driver.run(attach(1, 5, prefetch=2, window_bytes=3 * SMALL), digits(9))
    assert driver.delivered(5) == ["0", "1"]
    driver.run(encode_settle_up_to(1, 5, ACK, 2))
    assert driver.delivered(5) == ["2"]
    # Another prefetch, or an end of a pause, gives no room in the window.
    driver.run(encode_prefetch(1, 5, 0), encode_flow(1, 5, False), encode_flow(1, 5, True))
    assert driver.delivered(5) == []
    driver.run(encode_flow(1, 5, False), encode_taken(1, 5, 3 * SMALL))
    assert driver.delivered(5) == []
    driver.run(encode_prefetch(1, 5, 4), encode_flow(1, 5, True))
    assert driver.delivered(5) == ["3", "4", "5"]


def test_what_was_said_wrong_changes_nothing() -> None:
    """Somebody else's, unknown, backwards, of a consumer that has no window or is cancelled; too much is all."""
    driver = one_queue()
    driver.run(attach(1, 5, window_bytes=2 * SMALL), attach(1, 6), encode_flow(1, 6, False), digits(9))
    assert driver.delivered(5) == ["0", "1"]
    driver.run(encode_taken(1, 5, SMALL))
    assert driver.delivered(5) == ["2"]
    before = driver.shard.digest()
    for nothing in (encode_taken(1, 5, SMALL), encode_taken(1, 5, 0), encode_taken(1, 6, 9999)):
        driver.run(nothing)
    driver.run(encode_taken(1, 77, 9999), encode_taken(9, 5, 9999))
    driver.run(encode_taken(1, 5, 9999), session=B)
    assert driver.deliveries() == []
    assert driver.shard.digest() == before
    driver.run(encode_taken(1, 5, (1 << 64) - 1))
    assert driver.delivered(5) == ["3", "4"]
    assert (holder(driver).given_bytes, holder(driver).taken_bytes) == (5 * SMALL, 3 * SMALL)
    driver.run(commands.encode_detach(1, 5, False), encode_taken(1, 5, 5 * SMALL))
    assert driver.deliveries() == []
    assert holder(driver).taken_bytes == 3 * SMALL


def test_a_full_queue_takes_what_a_window_has_room_for() -> None:
    """RULES D2: what a consumer would be given at once never finds its queue full; what it may not be given does."""
    driver = one_queue(max_length=0, overflow=REJECT_PUBLISH)
    driver.run(attach(1, 5, window_bytes=3 * SMALL))
    (answer,) = driver.run(commands.encode_guard(5), digits(5))
    assert isinstance(answer, Published) and list(answer.refused) == [3, 4]
    driver.run(encode_taken(1, 5, 3 * SMALL))

    def trade(count: int) -> object:
        (result,) = driver.run(commands.encode_transaction(count, [digits(count)]))
        assert driver.ready(1) == 0
        return result

    assert isinstance(trade(4), Refused)
    assert isinstance(trade(3), Applied)
    # One may be of any size, while there is room at all.
    driver.run(encode_taken(1, 5, 4 * SMALL))
    (answer,) = driver.run(commands.encode_transaction(1, [publish("y" * 9999)]))
    assert isinstance(answer, Applied)
    assert driver.ready(1) == 0
    assert isinstance(trade(1), Refused)


def test_windows_are_in_the_snapshot_and_without_them_it_is_as_it_was() -> None:
    """RULES C1: members of a lower level read it as long as nobody has a window, whoever had one before."""
    driver = one_queue(LEVEL_CONSUMER_WINDOWS)
    driver.run(attach(1, 6, no_ack=True), digits(3))
    assert msgspec.msgpack.decode(driver.shard.snapshot())[0] == SHARD_SNAPSHOT_WITHOUT_WINDOWS
    driver.run(attach(1, 5, priority=1, window_bytes=2 * SMALL), encode_flow(1, 6, False), digits(4))
    driver.run(encode_taken(1, 5, SMALL))
    snapshot = driver.shard.snapshot()
    assert msgspec.msgpack.decode(snapshot)[0] == SHARD_SNAPSHOT_WITHOUT_LEVEL
    other = Shard(3, 1)
    other.restore(snapshot)
    assert other.snapshot() == snapshot
    driver.deliveries()
    driver.shard.restore(snapshot)
    driver.run(digits(2), encode_taken(1, 5, 2 * SMALL))
    assert driver.delivered(5) == ["3"]
    driver.run(commands.encode_detach(1, 5, True))
    assert msgspec.msgpack.decode(driver.shard.snapshot())[0] == SHARD_SNAPSHOT_WITHOUT_WINDOWS


def test_a_snapshot_of_a_version_to_come_is_refused() -> None:
    driver = one_queue()
    row = msgspec.msgpack.decode(driver.shard.snapshot())
    for version in (SHARD_SNAPSHOT_WITHOUT_WINDOWS - 1, SHARD_SNAPSHOT_WITH_MOVE_NUMBERS + 1):
        with pytest.raises(ShardError, match=f"version {version}, one of"):
            driver.shard.restore(msgspec.msgpack.encode([version, *row[1:]]))
