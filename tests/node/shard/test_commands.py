"""Commands as bytes: damaged ones are refused before they change anything."""

import random
from contextlib import suppress

import pytest

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.sessions import (
    ENTRY_HEADER,
    ENTRY_VERSION,
    KIND_INTERNAL,
    KIND_SESSION,
    encode_batch,
)
from mayfly.cluster.group.state_machine import BadCommand
from mayfly.node.duties.contents import content_of
from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, LetterContent, RouteDecision
from mayfly.node.shard.errors import BrokenInvariant, ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.packing import pack_numbers, pack_signed, unpack_numbers, unpack_signed
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, encode_settings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.cluster.group.own_sessions import told_by_replica
from tests.node.readings import statistics_of
from tests.node.shard.driver import (
    A,
    Driver,
    attach,
    encode_prefetch,
    encode_settle_up_to,
    encode_transfer,
    publish,
    update_queue,
)
from tests.node.shard.test_schedules import later
from tests.node.shard.test_stream_ttls import kept

EVERY = {
    "publish": publish("body", 1, 2, ttl_ms=5),
    "settle list": commands.encode_settle(1, 5, ACK, [1, 3]),
    "settle range": commands.encode_settle(1, 5, ACK, [1, 2]),
    "settle up to": encode_settle_up_to(1, 5, ACK, 2),
    "transaction": commands.encode_transaction(1, [publish("body", 1), commands.encode_settle(1, 5, ACK, [2])]),
    "get": commands.encode_get(1, 99, False),
    "attach": attach(1, 8),
    "attach with a window": attach(1, 9, window_bytes=5000),
    "taken": commands.encode_taken(1, 5, 100),
    "detach": commands.encode_detach(1, 5, True),
    "create": commands.encode_create_queue(3, ShardQueueSettings(name="q3")),
    "touch": commands.encode_touch_queue(1),
    "later": later("x", after_ms=100),
    "kept": kept("x", 1000, 1),
    "purge": commands.encode_purge(1),
    "delete": commands.encode_delete_queue(1, False, False),
    "flow": commands.encode_flow(1, 5, False),
    "prefetch": encode_prefetch(1, 5, 1),
    "expire queue": commands.encode_expire_queue(1, 1),
    "route": commands.encode_route([RouteDecision(1, 0, [2], [(7, 70)], LetterContent(b"k", b"h", b"b"))]),
    "transfer": encode_transfer(5, 1, 1, [LetterContent(b"k", b"h", b"b")]),
    "settled": commands.encode_settled(70, 1),
    "lane closed": commands.encode_lane_closed(70),
    "forget": commands.encode_forget_deleted([1]),
    "drop": commands.encode_drop_queue(1),
    "update": update_queue(1, ShardQueueSettings(name="changed")),
    "retry": commands.encode_retry_parked([1]),
    "drop parked": commands.encode_drop_parked([1]),
}


def prepared() -> Driver:
    """Some state that every command could change."""
    driver = Driver()
    driver.create(1, message_ttl_ms=5000, dead_letter_exchange="dlx")
    driver.create(2)
    driver.run(attach(1, 5, prefetch=3, window_bytes=1000), *(publish(str(i)) for i in range(5)))
    driver.run(commands.encode_settle(1, 5, commands.REJECT, [1]))
    return driver


def attempt(shard: Shard, driver: Driver, data: bytes, end: int, session: tuple[int, int] | None) -> None:
    """Apply bytes as the next entry."""
    shard.begin(driver.index + 1, driver.time_ms, driver.led_ms, data)
    try:
        shard.apply(session, 0, end)
    finally:
        shard.finish()


@pytest.mark.parametrize("name", EVERY)
def test_a_command_cut_off_anywhere_is_refused_and_changes_nothing(name: str) -> None:
    """At the end of the data, and at the end of its batch with other bytes behind it."""
    driver = prepared()
    encoded = EVERY[name]
    before = driver.shard.digest()
    for length in range(1, len(encoded)):
        for data in (encoded[:length], encoded + b"\x01" * 64):
            with pytest.raises(ShardError):
                attempt(driver.shard, driver, data, length, A)
            assert driver.shard.digest() == before
    attempt(driver.shard, driver, encoded, len(encoded), A)


@pytest.mark.parametrize("kind", [0, 12, 31, 44, 200, 255])
def test_unknown_commands_are_refused(kind: int) -> None:
    driver = prepared()
    before = driver.shard.digest()
    with pytest.raises(ShardError):
        attempt(driver.shard, driver, bytes([kind]) + bytes(40), 41, A)
    assert driver.shard.digest() == before


def test_commands_of_consumers_need_a_session() -> None:
    driver = prepared()
    before = driver.shard.digest()
    for name in ("settle list", "get", "attach", "detach", "flow", "prefetch", "taken", "transaction"):
        with pytest.raises(ShardError):
            attempt(driver.shard, driver, EVERY[name], len(EVERY[name]), None)
    assert driver.shard.digest() == before


def test_what_came_before_a_bad_command_counts() -> None:
    driver = prepared()
    data = publish("x", 2) + publish("y", 2) + b"\xff"
    with pytest.raises(ShardError):
        attempt(driver.shard, driver, data, len(data), A)
    assert driver.ready(2) == 2
    data = publish("x", 2) + publish("y", 2)
    with pytest.raises(ShardError):
        attempt(driver.shard, driver, data, len(data) - 1, A)
    assert driver.ready(2) == 3
    assert statistics_of(driver.shard).ready_bytes == 4


def test_bad_batches_settles_and_settings() -> None:
    driver = prepared()
    for start, end in ((5, 4), (-1, 1), (0, 100)):
        driver.shard.begin(driver.index + 1, driver.time_ms, driver.led_ms, b"12345")
        with pytest.raises(ShardError):
            driver.shard.apply(A, start, end)
        driver.shard.finish()
    for data in (
        commands.SETTLE_HEAD.pack(commands.SETTLE, 7, commands.UP_TO, 0, 1, 5) + bytes(8),
        commands.SETTLE_HEAD.pack(commands.SETTLE, 0, 3, 0, 1, 5) + bytes(16),
        commands.SETTINGS_HEAD.pack(commands.CREATE_QUEUE, 3, 9) + b"abc",
        commands.TERMS_HEAD.pack(commands.UPDATE_QUEUES, 3, 1) + b"abc" + commands.NUMBER.pack(1),
        commands.TERMS_HEAD.pack(commands.UPDATE_QUEUES, 3, 2) + b"abc" + commands.NUMBER.pack(1),
        commands.encode_update_queues(encode_terms(ShardQueueSettings(overflow="other")), (1,)),
        encode_transfer(5, 1, 0, []),
    ):
        before = driver.shard.digest()
        with pytest.raises(ShardError):
            attempt(driver.shard, driver, data, len(data), A)
        assert driver.shard.digest() == before


def test_random_bytes_neither_loop_nor_raise_anything_else() -> None:
    """Commands with random bytes flipped, a fixed seed."""
    source = random.Random(7)
    driver = prepared()
    encoded = list(EVERY.values())
    for round_number in range(3000):
        data = bytearray(b"".join(source.choices(encoded, k=3)))
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        with suppress(ShardError):
            attempt(driver.shard, driver, bytes(data), len(data), A)
        driver.index += 1
        if round_number % 300 == 0:
            driver.shard.restore(driver.shard.snapshot())


def test_settle_is_written_as_a_range_when_it_is_one() -> None:
    ids = list(range(5, 300))
    assert len(commands.encode_settle(1, 5, ACK, ids)) == len(encode_settle_up_to(1, 5, ACK, 9)) + 8
    assert len(commands.encode_settle(1, 5, ACK, ids[::-1])) > 8 * len(ids)


def test_numbers_and_settings_survive_their_encoding() -> None:
    numbers = [0, 1, 1 << 40, (1 << 64) - 1]
    assert list(unpack_numbers(b"xx" + pack_numbers(numbers), 2, 4, 34)) == numbers
    with pytest.raises(ShardError):
        unpack_numbers(pack_numbers(numbers), 0, 5, 32)
    assert list(unpack_signed(pack_signed([-1, 7]))) == [-1, 7]
    with pytest.raises(ShardError):
        unpack_signed(b"123")
    settings = ShardQueueSettings("v", "n", 1, 2, "", "k", 0, True, True, True, True)
    assert decode_settings(encode_settings(settings)) == settings
    assert decode_settings(encode_settings(ShardQueueSettings())) == ShardQueueSettings()
    assert hash(settings) == hash(decode_settings(encode_settings(settings)))
    deep = b"\x91" * 3000 + b"\x01"
    nested = (deep, b"\x92\xa1/" + deep, b"\x91" * 100)
    for bad in (b"", b"\x01", b"\x92\x01\x02", b"\xdc\x00\x20" + b"\xc0" * 32, *nested):
        with pytest.raises(ShardError):
            decode_settings(bad)


class _Nobody:
    """A node without clients."""

    def group_effects(self, group: int, effects: object) -> None:
        pass

    def __init__(self) -> None:
        self.lost = 0

    def group_session_lost(self, group: int) -> None:
        self.lost += 1

    def group_proposes(self, group: int) -> None:
        pass

    def group_applied(self, group: int) -> None:
        pass


def test_garbage_in_a_batch_ends_that_batch_and_no_replica() -> None:
    """It is in the log by then: a replica that could not go on behind it never could again."""
    said: list[str] = []
    shard = Shard(1, 1)
    applying = Applying(told_by_replica(1, _Nobody()), shard, said.append)
    header = ENTRY_HEADER.pack(ENTRY_VERSION, 1000, 1000)
    queue = commands.encode_create_queue(1, ShardQueueSettings(name="q"))
    garbage = b"\xee\xee\xee"
    applying.apply(1, header + encode_batch(KIND_INTERNAL, 0, 0, 0, queue))
    applying.apply(
        2,
        header
        + encode_batch(KIND_SESSION, 2, 9, 1, garbage + publish("lost"))
        + encode_batch(KIND_SESSION, 2, 9, 2, publish("of a session that has ended"))
        + encode_batch(KIND_SESSION, 2, 10, 1, publish("good")),
    )
    applying.apply(3, header + encode_batch(KIND_INTERNAL, 0, 0, 0, garbage))
    applying.apply(4, header + encode_batch(KIND_SESSION, 2, 10, 2, publish("better")))
    queue_now = shard.queue(1)
    assert queue_now is not None
    assert queue_now.ready_count() == 2
    assert len(said) == 2
    assert all("cut short" in text for text in said)


def test_what_stands_behind_garbage_is_refused_and_its_session_ends() -> None:
    """A sender that was told nothing of it would take its publishes for stored, and its acknowledgements for done."""
    shard, nobody, lost = Shard(1, 1), _Nobody(), object()
    session = told_by_replica(1, nobody, lost)
    sender, applying = session.sender, Applying(session, shard, None)
    header = ENTRY_HEADER.pack(ENTRY_VERSION, 1000, 1000)
    answers: list[tuple[str, object]] = []

    def give(name: str, command: bytes, answering: bool) -> None:
        sender.add([command], len(command), answering, lambda result: answers.append((name, result)))

    def apply(index: int) -> None:
        applying.apply(index, header + b"".join(sender.unsent(0, 1000)))

    give("create", commands.encode_create_queue(1, ShardQueueSettings(name="q")), True)
    give("publish", publish("held"), False)
    give("get", commands.encode_get(1, 5, False), True)
    apply(1)
    assert [name for name, result in answers if result is not lost] == ["create", "publish", "get"]
    answers.clear()
    give("create", commands.encode_create_queue(2, ShardQueueSettings(max_length=1 << 50)), True)
    give("publish", publish("never stored"), False)
    give("settle", commands.encode_settle(1, 5, ACK, [1]), False)
    give("get", commands.encode_get(1, 5, False), True)
    apply(2)
    assert answers == [(name, lost) for name in ("create", "publish", "settle", "get")]
    queue = shard.queue(1)
    assert queue is not None and (queue.ready_count(), queue.held_count) == (1, 0)
    assert (session.is_broken, nobody.lost, sender.incarnation) == (False, 1, 8)
    give("publish", publish("stored"), False)
    apply(3)
    assert (answers[-1], queue.ready_count()) == (("publish", None), 2)


def test_a_contradiction_in_what_a_shard_knows_is_no_bad_command() -> None:
    """A replica that passed over it would go on with counts of its own: it stops, as with any defect."""
    shard = Shard(1, 1)
    applying = Applying(told_by_replica(1, _Nobody()), shard, None)
    header = ENTRY_HEADER.pack(ENTRY_VERSION, 1000, 1000)
    queue = commands.encode_create_queue(1, ShardQueueSettings(name="q"))
    applying.apply(1, header + encode_batch(KIND_INTERNAL, 0, 0, 0, queue + publish("x")))
    shard._state.live[1] = 0
    with pytest.raises(BrokenInvariant, match="released 1 times too often"):
        applying.apply(2, header + encode_batch(KIND_INTERNAL, 0, 0, 0, commands.encode_purge(1)))
    assert not issubclass(BrokenInvariant, BadCommand)


@pytest.mark.parametrize("alike", [1, 4])
@pytest.mark.parametrize("acquired", [(0, 0, 0), (0, -1, 2), (0, 0, -1, 2, 0, 0, 0)])
def test_a_transfer_of_whole_contents_is_that_of_their_parts(acquired: tuple[int, ...], alike: int) -> None:
    """Of letters that were delivered before and of others; some in a row are as long."""
    data = bytes(range(200))
    items = [
        Message(1, 10 * number, number // alike, 3, 5 * (number // alike), 0, -1, 0, acquired_count=each)
        for number, each in enumerate(acquired)
    ]
    whole = [data[item.offset : item.offset + item.content_length] for item in items]
    parts = commands.transfer_parts(7, 8, 9, [content_of(data, item) for item in items])
    assert commands.encode_transfer(7, 8, 9, items, whole) == b"".join(parts)
