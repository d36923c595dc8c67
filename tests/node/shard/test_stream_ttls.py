"""Messages of streams with times to live, markers, and keys (RULES J2, J3, J5): they leave from anywhere, on time."""

from random import Random

import msgspec
import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import MAX_AGE, PURGE, REMOVE, Message
from mayfly.node.shard.outlook import outlook_steps
from mayfly.node.shard.packed import Packed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.results import NO_KEYS, Attached, Gone, Purged, PurgedKey, Refused
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.stream import FIRST, LAST, OFFSET, TIME, Start, Stream
from tests.node.shard.driver import Driver, content_header, noop, update_queue

STREAM = 1
_EVERYTHING = 1 << 40


def kept(body: str, ttl_ms: int, *queue_ids: int, key: str = "k", due: tuple[int, int] | None = None) -> bytes:
    """A PUBLISH_KEPT."""
    parts: list[bytes] = []
    name = b"\x00%c%b" % (len(key), key.encode())
    targets = queue_ids or (STREAM,)
    octets = body.encode()
    size = commands.encode_publish_kept(parts, targets, -1, name, content_header(octets), octets, due, ttl_ms)
    encoded = b"".join(parts)
    assert len(encoded) == size == commands.end_of(encoded, 0)
    return encoded


def plain(body: str, key: str = "k", *queue_ids: int) -> bytes:
    """A PUBLISH."""
    parts: list[bytes] = []
    name = b"\x00%c%b" % (len(key), key.encode())
    commands.encode_publish(parts, queue_ids or (STREAM,), -1, name, content_header(body.encode()), body.encode())
    return b"".join(parts)


def reader(consumer: int, start: Start, prefetch: int = 1000, key: str | None = None) -> bytes:
    name = None if key is None else key.encode()
    encoded = commands.encode_attach(STREAM, consumer, prefetch, False, False, 0, start=start, key=name)
    assert commands.end_of(encoded, 0) == len(encoded)
    return encoded


def one_stream(piece: int = 4096, expiries: int = 2000, **settings: object) -> Driver:
    driver = Driver(expiries=expiries)
    driver.shard = Shard(3, 1, expiries, messages_per_piece=piece)
    driver.create(STREAM, is_stream=True, ttl_retroactive=True, **settings)
    return driver


def given(driver: Driver, consumer: int) -> list[Message]:
    found = []
    for effect in driver.effects:
        if isinstance(effect, Deliver) and effect.consumer_id == consumer:
            found += effect.messages
    driver.effects = [each for each in driver.effects if not isinstance(each, Deliver) or each.consumer_id != consumer]
    return found


def offsets(driver: Driver, consumer: int) -> list[int]:
    return [message.stream_offset for message in given(driver, consumer)]


def there(driver: Driver, consumer: int = 77) -> list[int]:
    """The offsets that are there."""
    driver.run(reader(consumer, Start(FIRST), 100_000))
    found = offsets(driver, consumer)
    driver.run(commands.encode_detach(STREAM, consumer, 1))
    return found


def queue_of(shard: Shard) -> tuple[Queue, Stream]:
    queue = shard.queue(STREAM)
    assert queue is not None
    assert queue.stream is not None
    return queue, queue.stream


@pytest.mark.parametrize("piece", [1, 2, 4, 4096])
def test_j2_a_message_leaves_at_its_own_time_from_wherever_it_stands(piece: int) -> None:
    """Not before, and promptly after; what stands around it stays, and knows its offset."""
    driver = one_stream(piece)
    for number in range(20):
        driver.run(kept(str(number), 5000 if number % 3 == 1 else 1000 * number) if number % 4 else plain(str(number)))
    due = {number: (5000 if number % 3 == 1 else 1000 * number) if number % 4 else -1 for number in range(20)}
    for second in range(22):
        driver.tick()
        assert there(driver) == [n for n, ttl_ms in due.items() if ttl_ms < 0 or ttl_ms > 1000 * second]
        next_ms = min([ttl_ms for ttl_ms in due.values() if ttl_ms > 1000 * second], default=-1)
        assert driver.shard.next_message_due_ms() == (next_ms if next_ms < 0 else 1_000_000 + next_ms)
        driver.pass_ms(1000)
    assert there(driver) == [0, 4, 8, 12, 16]
    assert queue_of(driver.shard)[1].expiry.count == 0


def test_j2_never_is_exempt_from_age_and_all_others_are_not() -> None:
    """The lower of age and TTL counts; what is to stay for ever is in nobody's way."""
    driver = one_stream(message_ttl_ms=10_000)
    driver.run(kept("a", NEVER_TTL), plain("b"), kept("c", 3000), kept("d", 60_000), kept("e", NEVER_TTL), plain("f"))
    driver.pass_ms(3000)
    driver.tick()
    assert there(driver) == [0, 1, 3, 4, 5]
    driver.pass_ms(6999)
    driver.run(plain("g"))
    assert there(driver) == [0, 1, 3, 4, 5, 6]
    driver.pass_ms(1)
    driver.tick()
    assert there(driver) == [0, 4, 6]
    assert driver.shard.next_message_due_ms() == 1_000_000 + 19_999
    shorter = ShardQueueSettings(name="q1", is_stream=True, message_ttl_ms=1, ttl_retroactive=True)
    driver.pass_ms(1)
    driver.lead(update_queue(STREAM, shorter))
    assert there(driver) == [0, 4]
    driver.pass_ms(1 << 40)
    driver.tick()
    assert there(driver) == [0, 4]


def test_j2_another_age_counts_for_what_is_there_and_own_times_stay() -> None:
    driver = one_stream(message_ttl_ms=1000)
    driver.run(kept("a", 5000), plain("b"))
    driver.lead(update_queue(STREAM, ShardQueueSettings(name="q1", is_stream=True, ttl_retroactive=True)))
    driver.pass_ms(4999)
    driver.tick()
    assert there(driver) == [0, 1]
    driver.pass_ms(1)
    driver.tick()
    assert there(driver) == [1]


def test_j2_nobody_is_given_what_is_late_though_the_bound_keeps_it_there() -> None:
    """RULES T5, C4: one entry removes a few, and delivers none of the others."""
    driver = one_stream(expiries=3)
    driver.run(*(kept(str(number), 1000) for number in range(12)), plain("last"))
    driver.pass_ms(1000)
    driver.run(reader(5, Start(FIRST), 2))
    assert offsets(driver, 5) == [12]
    assert driver.ready(STREAM) > 1
    for _ in range(5):
        driver.tick()
    assert there(driver) == [12]


def test_j2_a_ttl_is_of_streams_alone() -> None:
    """Queues beside the stream know nothing of it; what is due later there is in the stream at once."""
    driver = one_stream()
    driver.create(2)
    driver.create(3, allow_schedule=True)
    driver.run(kept("a", 1000, 2, STREAM), kept("b", 1000, STREAM, 3, due=(commands.AFTER, 9000)))
    assert there(driver) == [0, 1]
    driver.pass_ms(8000)
    driver.tick()
    assert (there(driver), driver.ready(2), driver.ready(3)) == ([], 1, 0)
    driver.pass_ms(1000)
    driver.tick()
    assert driver.ready(3) == 1


def test_t13_deadlines_of_what_left_otherwise_go_too() -> None:
    """A stream that is kept small by size, of messages that live long, keeps no more deadlines than a few pieces."""
    driver = one_stream(piece=16, max_length_bytes=100)
    for _ in range(150):
        driver.run(*(kept("x", NEVER_TTL - 1) for _ in range(20)))
    _, stream = queue_of(driver.shard)
    assert driver.ready(STREAM) == 100
    assert stream.expiry.count == 100 + stream.outdated
    assert stream.outdated < 250


def test_what_is_left_of_a_stream_is_packed() -> None:
    """However few of each piece are left, they are put together."""
    driver = one_stream(piece=256)
    for first in range(0, 20_000, 500):
        driver.run(*(kept("x", NEVER_TTL if n % 128 == 0 else 1000) for n in range(first, first + 500)))
    driver.pass_ms(1000)
    for _ in range(20):
        driver.tick()
    queue, _ = queue_of(driver.shard)
    left = [n for n in range(20_000) if n % 128 == 0]
    assert there(driver) == left
    assert queue.ready.packed_count == sum(piece.count for piece in queue.ready.packed)
    # A few hundred of 20 000: in pieces that are more than a message or two each.
    assert len(queue.ready.packed) <= 1 + len(left) // 8
    assert all(isinstance(piece, Packed) and 2 * piece.count > piece.cut for piece in queue.ready.packed)
    assert all(isinstance(piece, Packed) and 4 * piece.count > piece.size for piece in queue.ready.packed)


@pytest.mark.parametrize("piece", [1, 2, 4096])
def test_j1_where_a_consumer_begins_when_some_have_left(piece: int) -> None:
    driver = one_stream(piece)
    for number in range(10):
        driver.run(kept(str(number), 1000) if number in (0, 3, 4, 9) else plain(str(number)))
        driver.pass_ms(1)
    driver.pass_ms(1000)
    driver.tick()
    for start, expected in (
        (Start(FIRST), [1, 2, 5, 6, 7, 8]),
        (Start(LAST), [8]),
        (Start(OFFSET, 3), [5, 6, 7, 8]),
        (Start(OFFSET, 9), []),
        (Start(TIME, 1_000_003), [5, 6, 7, 8]),
        (Start(TIME, 1_000_009), []),
    ):
        driver.run(reader(5, start))
        assert offsets(driver, 5) == expected
        driver.run(commands.encode_detach(STREAM, 5, 1))


def test_j3_a_marker_takes_the_place_of_the_last_message_of_a_key() -> None:
    """By age and by TTL alike: at the end of the stream, with the same key, no body, and a TTL of its own; it leaves
    none itself."""
    driver = one_stream(message_ttl_ms=10_000, marker_ttl_ms=60_000)
    driver.run(kept("a1", 1000, key="a"), kept("a2", 2000, key="a"), plain("b", "b"))
    driver.pass_ms(1000)
    driver.tick()
    assert there(driver) == [1, 2]
    driver.run(reader(5, Start(OFFSET, 3)))
    driver.pass_ms(1000)
    driver.tick()
    (marker,) = given(driver, 5)
    assert (marker.stream_offset, marker.marker_reason, marker.ttl_ms) == (3, MAX_AGE, 60_000)
    assert (marker.body_length, marker.header_length) == (0, 0)
    assert driver.content(marker) == b"\x00\x01a"
    driver.pass_ms(8000)
    driver.tick()
    (marker,) = given(driver, 5)
    assert (driver.content(marker), marker.marker_reason) == (b"\x00\x01b", MAX_AGE)
    driver.pass_ms(100_000)
    driver.tick()
    assert there(driver) == []
    assert given(driver, 5) == []
    assert queue_of(driver.shard)[1].markers == 2


def test_j3_who_publishes_again_gets_another_marker_at_the_end() -> None:
    """A marker does not count as a message of the key."""
    driver = one_stream(marker_ttl_ms=60_000)
    driver.run(kept("1", 1000))
    driver.pass_ms(1000)
    driver.tick()
    driver.run(kept("2", 1000))
    driver.pass_ms(1000)
    driver.tick()
    driver.run(reader(5, Start(FIRST)))
    assert [(each.stream_offset, each.marker_reason) for each in given(driver, 5)] == [(1, MAX_AGE), (3, MAX_AGE)]


def test_j3_size_leaves_no_markers() -> None:
    driver = one_stream(marker_ttl_ms=60_000, max_length_bytes=2)
    driver.run(*(plain("x", str(number)) for number in range(5)))
    assert there(driver) == [3, 4]


def test_j3_a_message_is_deleted_by_its_offset() -> None:
    driver = one_stream(marker_ttl_ms=60_000)
    driver.run(plain("a1", "a"), plain("a2", "a"), plain("b", "b"))
    answers = driver.run(*(commands.encode_delete_offset(STREAM, offset) for offset in (1, 1, 2, 9)))
    assert [each.messages for each in answers if isinstance(each, Purged)] == [1, 0, 1, 0]
    driver.run(reader(5, Start(FIRST)))
    found = given(driver, 5)
    assert [(each.stream_offset, each.marker_reason) for each in found] == [(0, 0), (3, REMOVE)]
    assert driver.content(found[1]) == b"\x00\x01b"
    driver.run(commands.encode_delete_offset(STREAM, 3))
    assert there(driver) == [0]
    (gone,) = driver.run(commands.encode_delete_offset(99, 3))
    assert isinstance(gone, Gone)


def test_j3_a_key_is_purged() -> None:
    """As far as an entry's bound goes (C4), and what comes meanwhile stays."""
    driver = one_stream(marker_ttl_ms=60_000)
    driver.shard = Shard(3, 1, returned_per_entry=700)
    driver.create(STREAM, is_stream=True, ttl_retroactive=True, marker_ttl_ms=60_000)
    driver.run(*(plain("x", "a" if number % 2 else "b") for number in range(2000)))
    answers = []
    for _ in range(2):
        answers += driver.run(commands.encode_purge_key(STREAM, b"a", 1999))
        driver.run(plain("x", "c"))
    assert [(each.messages, each.left) for each in answers if isinstance(each, PurgedKey)] == [(700, 300), (300, 0)]
    driver.run(reader(5, Start(OFFSET, 2000), key="a"))
    (marker,) = given(driver, 5)
    assert (marker.marker_reason, marker.stream_offset) == (PURGE, 2001)
    assert driver.ready(STREAM) == 1000 + 2 + 1
    (nothing,) = driver.run(commands.encode_purge_key(STREAM, b"nothing", 1999))
    assert isinstance(nothing, PurgedKey)
    assert (nothing.messages, nothing.left) == (0, 0)


def test_j5_a_consumer_of_one_key() -> None:
    """It is given that key's messages alone, those to come among them; a stream without keys refuses it."""
    driver = one_stream(key_index=True, piece=4)
    driver.run(*(plain(str(number), "abc"[number % 3]) for number in range(20)))
    driver.run(reader(5, Start(FIRST), 3, "b"), reader(6, Start(OFFSET, 8), 100, "c"), reader(7, Start(LAST), 9, "d"))
    assert (offsets(driver, 5), offsets(driver, 6), offsets(driver, 7)) == ([1, 4, 7], [8, 11, 14, 17], [])
    driver.run(commands.encode_settle(STREAM, 5, commands.ACK, (1, 2, 3)), plain("x", "d"))
    assert (offsets(driver, 5), offsets(driver, 7)) == ([10, 13, 16], [20])
    driver.run(commands.encode_settle(STREAM, 5, commands.ACK, (4, 5)), plain("x", "b"))
    assert offsets(driver, 5) == [19, 21]
    driver.create(2, is_stream=True, ttl_retroactive=True)
    (refused,) = driver.run(commands.encode_attach(2, 5, 9, False, False, 0, key=b"b"))
    assert isinstance(refused, Refused)
    assert refused.reason == NO_KEYS
    (refused,) = driver.run(commands.encode_purge_key(2, b"b", 9))
    assert isinstance(refused, Refused)


def test_a_key_index_costs_only_streams_that_ask_for_it() -> None:
    driver = one_stream()
    driver.run(plain("x"))
    queue, stream = queue_of(driver.shard)
    assert stream.keys is None
    assert queue.ready.items[0].priority == 0


@pytest.mark.parametrize("broken", [(commands.FLAG_KEY, b""), (commands.FLAG_KEY, b"\x05ab")])
def test_broken_commands(broken: tuple[int, bytes]) -> None:
    driver = one_stream(key_index=True)
    flags, behind = broken
    with pytest.raises(ShardError):
        driver.run(commands.ATTACH_HEAD.pack(commands.ATTACH, flags, 5, STREAM, 5, 0) + behind)
    with pytest.raises(ShardError):
        driver.run(commands.encode_purge_key(STREAM, b"abc", 5)[:-1])
    parts: list[bytes] = []
    commands.encode_publish_kept(parts, (STREAM,), -1, b"\0\1k", b"", b"", None, NEVER_TTL + 1)
    with pytest.raises(ShardError, match="PUBLISH_KEPT with the TTL"):
        driver.run(b"".join(parts))


class Model:
    """A stream as a table: what is at each offset, with its times."""

    def __init__(self, age_ms: int | None, marker_ttl_ms: int | None) -> None:
        self.age_ms = age_ms
        self.marker_ttl_ms = marker_ttl_ms
        self.rows: dict[int, tuple[str, int, int, int]] = {}
        """By offset: key, when it came, its TTL, reason."""
        self.next = 0

    def add(self, key: str, now_ms: int, ttl_ms: int, reason: int = 0) -> None:
        self.rows[self.next] = (key, now_ms, ttl_ms, reason)
        self.next += 1

    def remove(self, offset: int, now_ms: int, reason: int) -> None:
        key, _, _, was_marker = self.rows.pop(offset)
        others = [row for row in self.rows.values() if row[0] == key and not row[3]]
        if reason and self.marker_ttl_ms and not others and not was_marker:
            self.add(key, now_ms, self.marker_ttl_ms, reason)

    def expire(self, now_ms: int) -> None:
        own = [(at + ttl, offset) for offset, (_, at, ttl, _) in self.rows.items() if 0 <= ttl < NEVER_TTL]
        for due_ms, offset in sorted(own):
            if due_ms <= now_ms:
                self.remove(offset, now_ms, MAX_AGE)
        if self.age_ms is not None:
            for offset, (_, at, ttl, _) in list(self.rows.items()):
                if ttl != NEVER_TTL and at + self.age_ms <= now_ms:
                    self.remove(offset, now_ms, MAX_AGE)


@pytest.mark.parametrize("seed", range(20))
def test_c1_as_a_table_says_and_the_same_from_a_snapshot(seed: int) -> None:
    """RULES C1, J1-J3, J5: what is there is what a table has; each consumer sees each offset that is there when it is
    its turn, in order; a replica that comes from a snapshot goes on the same."""
    chance = Random(seed)
    marker_ttl_ms = chance.choice((None, 30))
    piece = chance.choice((1, 3, 8, 4096))
    driver = one_stream(piece, message_ttl_ms=chance.choice((None, 60)), marker_ttl_ms=marker_ttl_ms, key_index=True)
    other = Shard(3, 1, 2000, messages_per_piece=piece)
    queue, _ = queue_of(driver.shard)
    model = Model(queue.settings.message_ttl_ms, marker_ttl_ms)
    keys = "abcdefgh"[: chance.choice((1, 3, 8))]
    driver.run(reader(5, Start(FIRST), 9999), reader(6, Start(FIRST), 9999, keys[0]))
    seen: list[int] = []
    applied = 0
    for step in range(80):
        now_ms = driver.time_ms
        parts = []
        for _ in range(chance.randint(0, 8)):
            key, ttl_ms = chance.choice(keys), chance.choice((-1, NEVER_TTL, chance.randint(1, 90)))
            parts.append(plain("x", key) if ttl_ms < 0 else kept("x", ttl_ms, key=key))
            model.add(key, now_ms, ttl_ms)
        if model.rows and chance.random() < 0.3:
            offset = chance.choice(list(model.rows))
            parts.append(commands.encode_delete_offset(STREAM, offset))
            model.remove(offset, now_ms, REMOVE)
        if chance.random() < 0.05:
            key = chance.choice(keys)
            parts.append(commands.encode_purge_key(STREAM, key.encode(), _EVERYTHING))
            for offset in [offset for offset, row in model.rows.items() if row[0] == key]:
                model.remove(offset, now_ms, PURGE)
        driver.run(*parts, noop())
        driver.lead(commands.encode_expire_due())
        model.expire(now_ms)
        if chance.random() < 0.05:
            model.age_ms = chance.choice((None, 20, 60, 200))
            terms = ShardQueueSettings(
                is_stream=True, message_ttl_ms=model.age_ms, ttl_retroactive=True, marker_ttl_ms=marker_ttl_ms,
                key_index=True,
            )
            driver.lead(update_queue(STREAM, terms))
        driver.lead(commands.encode_expire_due())
        model.expire(now_ms)
        assert sorted(model.rows) == [each.stream_offset for each in queue_of(driver.shard)[0].ready.live()], step
        driver.pass_ms(chance.randint(0, 20))
        for index in range(applied + 1, driver.index + 1):
            driver.log[index].apply(other)
        applied = driver.index
        if chance.random() < 0.2:
            other.restore(driver.shard.snapshot())
        assert other.snapshot() == driver.shard.snapshot(), step
        assert sorted(other.live_entries()) == sorted(driver.shard.live_entries())
        assert other.next_message_due_ms() == driver.shard.next_message_due_ms()
        seen += [message.stream_offset for message in given(driver, 5)]
        assert seen == sorted(set(seen))
    queue, stream = queue_of(driver.shard)
    assert queue.ready_bytes == sum(message.body_length for message in queue.ready.live())
    assert stream.keys is not None
    by_key = {key: [o for o, row in sorted(model.rows.items()) if row[0] == key] for key in keys}
    known = {name.decode(): offsets for name, offsets in stream.keys.keys.items()}
    assert {key: found for key, found in by_key.items() if found} == {
        key: offsets.some_from(0, 9999) for key, offsets in known.items()
    }
    assert {key: found[-1] for key, found in by_key.items() if found} == {
        key: offsets.latest() for key, offsets in known.items()
    }
    assert all(driver.content(message)[2:3] == keys[0].encode() for message in given(driver, 6))


def test_a_broken_snapshot_is_refused() -> None:
    driver = one_stream(piece=2, marker_ttl_ms=1000)
    driver.run(*(kept("x", 1000 + number, key=str(number)) for number in range(30)))
    driver.pass_ms(1010)
    driver.tick()
    driver.lead(commands.encode_raise_level(8))
    row = msgspec.msgpack.decode(driver.shard.snapshot())
    stream = row[4][0][-1]
    stream[4][1].pop()
    with pytest.raises(ShardError, match="keys of messages"):
        Shard(3, 1).restore(msgspec.msgpack.encode(row))
    assert isinstance(driver.run(reader(5, Start(FIRST)))[0], Attached)


@pytest.mark.parametrize("piece", [4, 4096])
def test_r2_a_forecast_counts_what_leaves_from_anywhere(piece: int) -> None:
    """And goes by what was there when it began, whatever leaves while it counts."""
    driver = one_stream(piece, message_ttl_ms=50_000)
    mortal = [kept("x", 1000 * (1 + number % 7)) for number in range(70)]
    driver.run(kept("x", NEVER_TTL), *mortal, *(plain("x") for _ in range(9)))
    driver.pass_ms(1000)
    driver.tick()
    queue, _ = queue_of(driver.shard)
    counting = outlook_steps(queue, driver.time_ms, driver.led_ms, [2000, 6000, 60_000])
    next(counting)
    driver.pass_ms(3000)
    driver.tick()
    (outlook,) = [each for each in counting if each is not None]
    assert outlook.expire == [20, 60, 69]


@pytest.mark.parametrize("piece", [2, 4096])
@pytest.mark.parametrize("keys", [False, True])
def test_c1_publishes_that_are_applied_together_come_to_the_same_as_one_by_one(piece: int, keys: bool) -> None:
    """C1: what is due at a time that has passed takes its way alone, and the same becomes of it."""
    rng = Random(5)
    together, alone = one_stream(piece, key_index=keys), one_stream(piece, key_index=keys)
    for _ in range(40):
        ttls_ms = [rng.choice((0, 1000, 1500, 60_000, NEVER_TTL)) for _ in range(rng.randrange(1, 9))]
        for driver, due in ((together, None), (alone, (commands.AT, 1))):
            parts = []
            for ttl_ms in ttls_ms:
                parts.append(kept("x" * (ttl_ms % 7), ttl_ms, key=f"k{ttl_ms % 3}", due=due))
                if ttl_ms == 1500:
                    parts.append(plain("y"))
            driver.run(b"".join(parts))
            driver.pass_ms(200)
            driver.tick()
        assert together.shard.snapshot() == alone.shard.snapshot()


def test_a_publish_with_a_ttl_that_is_cut_off_costs_those_before_it_nothing() -> None:
    driver = one_stream()
    whole = kept("a", 5000)
    with pytest.raises(ShardError):
        driver.run(whole + kept("b", 5000)[:-1])
    assert driver.ready(STREAM) == 1
