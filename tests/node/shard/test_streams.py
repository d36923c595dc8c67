"""Streams in a shard (RULES J1): messages stay, each consumer has its place, what is too old or too much leaves."""

from random import Random

import msgspec
import pytest

from mayfly.cluster.versions import SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
from mayfly.node.shard import commands
from mayfly.node.shard.commands import KEPT
from mayfly.node.shard.effects import ConsumerCancelled, Deliver, Missing
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import FAILED
from mayfly.node.shard.results import Deleted, GetResult, Purged, QueueCounts
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, decode_terms, encode_settings, encode_terms
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.stream import FIRST, LAST, NEXT, OFFSET, SINCE, TIME, Start
from tests.node.shard.driver import A, B, Batch, Close, Driver, encode_prefetch, publish, update_queue

STREAM = 1


def begin(consumer: int, start: Start, prefetch: int = 100, window_bytes: int = 0) -> bytes:
    return commands.encode_attach(STREAM, consumer, prefetch, False, False, 0, window_bytes, start=start)


def acknowledge(consumer: int, *ids: int, outcome: int = commands.ACK) -> bytes:
    return commands.encode_settle(STREAM, consumer, outcome, ids)


def one_stream(count: int = 0, piece: int = 4096, **settings: object) -> Driver:
    """A stream with so many messages, each of which came a ms after the one before, in an entry of its own."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=piece)
    driver.create(STREAM, is_stream=True, ttl_retroactive=True, **settings)
    append(driver, count)
    return driver


def append(driver: Driver, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        driver.run(publish(str(number), STREAM))
        driver.pass_ms(1)


def given(driver: Driver, consumer: int) -> list[int]:
    """Offsets of what the consumer was given since the last time; the bodies say the same."""
    found = []
    for effect in driver.effects:
        if isinstance(effect, Deliver) and effect.consumer_id == consumer:
            found += [message.stream_offset for message in effect.messages]
            assert [driver.body(message) for message in effect.messages] == [
                str(message.stream_offset) for message in effect.messages
            ]
            assert not any(message.redelivered for message in effect.messages)
    driver.effects = [each for each in driver.effects if not isinstance(each, Deliver) or each.consumer_id != consumer]
    return found


@pytest.mark.parametrize(
    ("start", "there", "later"),
    [
        (Start(FIRST), list(range(10)), [10, 11]),
        (Start(LAST), [9], [10, 11]),
        (Start(NEXT), [], [10, 11]),
        (Start(OFFSET, 0), list(range(10)), [10, 11]),
        (Start(OFFSET, 7), [7, 8, 9], [10, 11]),
        (Start(OFFSET, 10), [], [10, 11]),
        (Start(OFFSET, 11), [], [11]),
        (Start(OFFSET, 99), [], []),
        (Start(TIME, 0), list(range(10)), [10, 11]),
        (Start(TIME, 1_000_004), [4, 5, 6, 7, 8, 9], [10, 11]),
        (Start(TIME, 1_000_100), [], [10, 11]),
        (Start(SINCE, 3), [7, 8, 9], [10, 11]),
        (Start(SINCE, 1 << 40), list(range(10)), [10, 11]),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 4096])
def test_j1_where_a_consumer_begins(start: Start, there: list[int], later: list[int], piece: int) -> None:
    """However much of the line is packed."""
    driver = one_stream(10, piece)
    driver.run(begin(5, start))
    assert given(driver, 5) == there
    append(driver, 2, 10)
    assert given(driver, 5) == later


def test_j1_messages_stay_and_each_consumer_has_its_place() -> None:
    driver = one_stream(6)
    driver.run(begin(5, Start(FIRST), 2), begin(6, Start(OFFSET, 4)))
    assert (given(driver, 5), given(driver, 6)) == ([0, 1], [4, 5])
    driver.run(acknowledge(5, 1, 2), begin(7, Start(FIRST)))
    assert (given(driver, 5), given(driver, 6), given(driver, 7)) == ([2, 3], [], [0, 1, 2, 3, 4, 5])
    assert driver.ready(STREAM) == 6
    statistics = driver.shard.queue_statistics(STREAM)
    assert statistics is not None
    assert (statistics.unacknowledged, statistics.consumers, statistics.ready_bytes) == (10, 3, 6)


@pytest.mark.parametrize("outcome", range(commands.DISCARD + 1))
def test_j1_whatever_is_said_of_a_message_is_an_acknowledgement(outcome: int) -> None:
    driver = one_stream(5)
    driver.run(begin(5, Start(FIRST), 2))
    driver.run(acknowledge(5, 1, 2, outcome=outcome))
    assert given(driver, 5) == [0, 1, 2, 3]
    assert driver.ready(STREAM) == 5
    driver.run(commands.encode_detach(STREAM, 5, FAILED), begin(5, Start(OFFSET, 3)))
    assert given(driver, 5) == [3, 4]


def test_j1_one_publish_reaches_queues_and_streams() -> None:
    """Each stream has its own offsets, first target or not, with whatever TTL."""
    driver = one_stream()
    driver.create(2)
    driver.create(3, is_stream=True, ttl_retroactive=True)
    driver.run(publish("0", STREAM, 2, 3, ttl_ms=1), publish("x", 3, 2), publish("1", STREAM), publish("2", 2, STREAM))
    driver.run(commands.encode_guard(1) + publish("3", 2, STREAM, ttl_ms=5))
    driver.pass_ms(1000)
    driver.tick()
    driver.run(begin(5, Start(FIRST)))
    assert given(driver, 5) == [0, 1, 2, 3]
    # In the queue the one that expires is the last, behind those that do not.
    assert (driver.ready(STREAM), driver.ready(2), driver.ready(3)) == (4, 3, 2)


def test_j1_age() -> None:
    """What is too old leaves promptly, and is given to nobody (T5, T7); a new age counts for all that is there."""
    driver = one_stream(5, message_ttl_ms=10)
    driver.pass_ms(7)
    driver.run(begin(5, Start(FIRST)))
    assert given(driver, 5) == [3, 4]
    driver.pass_ms(2)
    driver.tick()
    assert driver.ready(STREAM) == 0
    append(driver, 2, 5)
    assert given(driver, 5) == [5, 6]
    made = ShardQueueSettings(name="q1", is_stream=True, message_ttl_ms=2, ttl_retroactive=True)
    driver.lead(update_queue(STREAM, made))
    assert driver.ready(STREAM) == 1
    driver.run(begin(6, Start(FIRST)), begin(7, Start(OFFSET, 0)))
    assert (given(driver, 6), given(driver, 7)) == ([6], [6])


def test_j1_size() -> None:
    """The oldest leave; who is behind goes on with the first that is there. Who had all was given each."""
    driver = one_stream(max_length_bytes=5)
    driver.run(begin(5, Start(NEXT)), begin(6, Start(NEXT), 1))
    append(driver, 9)
    assert (given(driver, 5), given(driver, 6)) == (list(range(9)), [0])
    assert driver.ready(STREAM) == 5
    driver.run(acknowledge(6, 1))
    assert given(driver, 6) == [4]


def test_j1_what_is_held_keeps_its_entry_and_what_left_does_not() -> None:
    driver = one_stream(3, max_length_bytes=3)
    driver.run(begin(5, Start(FIRST), 1))
    append(driver, 3, 3)
    # Entry 1 has made the stream: the message at offset n stands in entry n + 2, for the first six.
    assert set(driver.shard.live_entries()) == {2, 6, 7, 8}
    driver.run(acknowledge(5, 1))
    assert 2 in driver.released
    assert set(driver.shard.live_entries()) == {6, 7, 8}
    driver.run(commands.encode_delete_queue(STREAM, False, False))
    assert not driver.shard.live_entries()


def test_j1_a_consumer_that_goes_leaves_everything_where_it_was() -> None:
    driver = one_stream(4)
    driver.run(begin(5, Start(FIRST), 2), begin(6, Start(FIRST), 2))
    driver.run(commands.encode_detach(STREAM, 5, KEPT))
    driver.run(acknowledge(5, 1, 2))
    driver.entry(Close(A))
    assert driver.ready(STREAM) == 4
    statistics = driver.shard.queue_statistics(STREAM)
    assert statistics is not None
    assert (statistics.unacknowledged, statistics.consumers) == (0, 0)
    queue = driver.shard.queue(STREAM)
    assert queue is not None
    stream = queue.stream
    assert stream is not None
    assert (stream.places, stream.idle) == ({}, {})


def test_j1_neither_got_nor_purged() -> None:
    driver = one_stream(3)
    got, purged, counts = driver.run(
        commands.encode_get(STREAM, 9, True), commands.encode_purge(STREAM), commands.encode_touch_queue(STREAM)
    )
    assert isinstance(got, GetResult)
    assert got.message is None
    assert isinstance(purged, Purged)
    assert purged.messages == 0
    assert isinstance(counts, QueueCounts)
    assert counts.ready == 3
    driver.lead(commands.encode_raise_level(8), commands.encode_move_out(STREAM, 4, 1))
    assert driver.ready(STREAM) == 3


def test_j1_deleted() -> None:
    driver = one_stream(3)
    driver.run(begin(5, Start(FIRST)))
    (answer,) = driver.run(commands.encode_delete_queue(STREAM, False, False))
    assert isinstance(answer, Deleted)
    assert any(isinstance(effect, ConsumerCancelled) for effect in driver.effects)


def test_j1_windows_and_pauses() -> None:
    driver = one_stream(4)
    driver.run(begin(5, Start(FIRST), window_bytes=600))
    assert given(driver, 5) == [0, 1, 2]
    driver.run(commands.encode_taken(STREAM, 5, 600))
    assert given(driver, 5) == [3]
    driver.run(commands.encode_flow(STREAM, 5, False))
    append(driver, 1, 4)
    assert given(driver, 5) == []
    driver.run(commands.encode_flow(STREAM, 5, True))
    assert given(driver, 5) == [4]


def test_c4_the_bound_of_an_entry_shares_out_and_goes_on() -> None:
    driver = Driver(deliveries=700)
    driver.create(STREAM, is_stream=True, ttl_retroactive=True)
    driver.run(*(publish(str(number), STREAM) for number in range(2000)))
    driver.run(begin(5, Start(FIRST), 0xFFFF), begin(6, Start(FIRST), 0xFFFF))
    got: dict[int, list[int]] = {5: given(driver, 5), 6: given(driver, 6)}
    # Before the second is attached the first is given what the entry may give.
    assert [len(got[5]), len(got[6])] == [700, 0]
    assert driver.shard.next_message_due_ms() == 0
    driver.tick()
    for consumer, offsets in got.items():
        offsets += given(driver, consumer)
    assert [len(got[5]), len(got[6])] == [1212, 188]
    for _ in range(9):
        driver.tick()
        for consumer, offsets in got.items():
            offsets += given(driver, consumer)
    assert got == {5: list(range(2000)), 6: list(range(2000))}
    assert driver.shard.next_message_due_ms() == -1


def test_settings_of_streams_are_written_behind_all_others() -> None:
    """What releases without streams know is written as they know it."""
    plain, stream = ShardQueueSettings(name="q"), ShardQueueSettings(name="q", is_stream=True)
    assert len(msgspec.msgpack.decode(encode_settings(plain))) == 17
    for settings in (plain, stream):
        assert decode_settings(encode_settings(settings)) == settings
        assert decode_terms(encode_terms(settings), "/", "q") == settings
    full = ShardQueueSettings(
        name="q", is_stream=True, marker_ttl_ms=1000, key_index=True, expire_anywhere=True, honours_ttls=True,
        is_mirror=True, journal="j", brake_limit=1, brake_window_ms=1000,
    )  # fmt: skip
    with pytest.raises(ShardError, match="newer release"):
        decode_terms(msgspec.msgpack.encode([*msgspec.msgpack.decode(encode_terms(full)), 5]))


@pytest.mark.parametrize("kind", [SINCE + 1, 255])
def test_no_consumer_begins_anywhere_else(kind: int) -> None:
    driver = one_stream()
    with pytest.raises(ShardError, match=f"begins at {kind}"):
        driver.run(begin(5, Start(kind)))


def test_what_a_node_missed_is_told_with_its_offsets() -> None:
    """A snapshot takes the place of the entries in which consumers were given messages; some have left since."""
    driver = one_stream(3, max_length_bytes=4)
    driver.run(begin(5, Start(FIRST)))
    before = Shard(3, 1)
    before.restore(driver.shard.snapshot())
    append(driver, 4, 3)
    missed = driver.shard.missed(before.told(), A, [])
    told = [effect for effect in (*missed.effects_before, *missed.effects) if isinstance(effect, Deliver)]
    assert not [effect for effect in (*missed.effects_before, *missed.effects) if isinstance(effect, Missing)]
    assert [[message.stream_offset for message in effect.messages] for effect in told] == [[3, 4, 5, 6]]


def random_command(chance: Random, consumer: int) -> bytes:
    kind = chance.randint(0, 7)
    if kind == 0:
        return publish("body" * chance.randint(0, 3), STREAM)
    if kind == 1:
        return publish("b", 2, STREAM)
    if kind == 2:
        start = Start(chance.randint(FIRST, SINCE), chance.randint(0, 30))
        return begin(consumer, start, chance.randint(1, 5), chance.choice((0, 0, 700)))
    if kind == 3:
        return acknowledge(consumer, *range(1, chance.randint(2, 60)))
    if kind == 4:
        return commands.encode_detach(STREAM, consumer, chance.choice((KEPT, FAILED)))
    if kind == 5:
        return commands.encode_flow(STREAM, consumer, chance.random() < 0.6)
    if kind == 6:
        return encode_prefetch(STREAM, consumer, chance.randint(1, 5))
    return commands.encode_taken(STREAM, consumer, chance.randint(0, 5000))


def random_entry(chance: Random, driver: Driver) -> None:
    """Some commands of two nodes."""
    batches: list[Batch | Close] = []
    for session in (A, B):
        parts = [random_command(chance, chance.randint(1, 4)) for _ in range(chance.randint(0, 4))]
        batches.append((session, b"".join(parts)))
        if chance.random() < 0.02:
            batches.append(Close(session))
    driver.entry(*batches)
    driver.pass_ms(chance.randint(0, 3))
    if chance.random() < 0.3:
        driver.tick()


@pytest.mark.parametrize("seed", range(30))
def test_c1_a_replica_from_a_snapshot_goes_on_the_same(seed: int) -> None:
    """RULES C1: at any point, with any pieces; and each consumer sees each offset that is there, in order."""
    chance = Random(seed)
    driver = Driver(deliveries=chance.choice((3, 10_000)))
    driver.shard = Shard(3, 1, 2000, driver.bounds[1], messages_per_piece=chance.choice((1, 3, 4096)))
    other = Shard(3, 1, 2000, driver.bounds[1], messages_per_piece=driver.shard._bounds[2])
    driver.create(STREAM, is_stream=True, max_length_bytes=chance.choice((None, 60)), ttl_retroactive=True,
                  message_ttl_ms=chance.choice((None, 40)))  # fmt: skip
    driver.create(2)
    applied = 0
    for step in range(150):
        random_entry(chance, driver)
        for index in range(applied + 1, driver.index + 1):
            driver.log[index].apply(other)
        applied = driver.index
        if chance.random() < 0.2:
            other.restore(driver.shard.snapshot())
        assert other.snapshot() == driver.shard.snapshot(), step
        assert sorted(other.live_entries()) == sorted(driver.shard.live_entries())
        assert other.next_message_due_ms() == driver.shard.next_message_due_ms()
    assert msgspec.msgpack.decode(driver.shard.snapshot())[0] == SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
    places: dict[tuple[object, int], int] = {}
    for effect in driver.effects:
        if isinstance(effect, Deliver):
            consumer = (effect.session, effect.consumer_id)
            for number, message in enumerate(effect.messages, effect.first_delivery_id):
                assert number == 1 or message.stream_offset > places[consumer]
                places[consumer] = message.stream_offset
