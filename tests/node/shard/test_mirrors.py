"""Whatever would come into a mirror otherwise than by copying (RULES J4): the shard itself takes none of it, and
confirms none of it."""

from collections.abc import Callable

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.commands import AFTER, LetterContent, encode_guard, encode_route
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, PUBLISHED, as_item
from mayfly.node.shard.redrive import Place
from mayfly.node.shard.redrive_commands import Redriven, encode_redrive, encode_start_redrive
from mayfly.node.shard.results import Applied, Published, RedriveState, Refused
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, attach, encode_transfer, publish
from tests.node.shard.test_dead_letters import content, routed
from tests.node.shard.test_redrives import queue_of
from tests.node.shard.test_stream_copies import ORIGIN, OTHER, copies, header
from tests.node.shard.test_stream_ttls import STREAM, kept

MIRROR = STREAM
QUEUE, FULL = 2, 3
SHARD = 7


def with_a_mirror() -> Driver:
    """A mirror with two messages, and queues beside it."""
    driver = Driver()
    driver.create(MIRROR, is_stream=True, is_mirror=True, ttl_retroactive=True)
    driver.create(QUEUE)
    driver.create(FULL, max_length=1, overflow="reject-publish")
    driver.lead(copies(0, 4, {2: "c", 4: "e"}))
    return driver


def is_as_it_was(driver: Driver, messages: int = 2, next_offset: int = 5) -> bool:
    queue = queue_of(driver, MIRROR)
    assert queue.stream is not None
    assert driver.shard.digest() == driver.replay().digest()
    return (queue.ready_count(), queue.enqueued, queue.stream.next_offset) == (messages, messages, next_offset)


def later(body: str, *queue_ids: int) -> bytes:
    parts: list[bytes] = []
    commands.encode_publish_later(parts, queue_ids, -1, b"\0\1k", header(), body.encode(), (AFTER, 50))
    return b"".join(parts)


def kept_in(body: str, *queue_ids: int) -> bytes:
    return kept(body, 60_000, *queue_ids)


WAYS = pytest.mark.parametrize("way", [publish, later, kept_in], ids=["publish", "later", "kept"])
Way = Callable[..., bytes]


@WAYS
def test_j4_a_mirror_refuses_each_publish_and_the_publisher_is_told(way: Way) -> None:
    """Other queues of the same publish have it, as where a full queue refuses."""
    driver = with_a_mirror()
    run = encode_guard(4) + way("a", QUEUE) + way("b", MIRROR) + way("c", MIRROR, QUEUE) + way("d", QUEUE, FULL)
    (answer,) = driver.run(run)
    assert isinstance(answer, Published)
    assert answer.refused == [1, 2]
    assert (driver.drain(QUEUE), driver.drain(FULL)) == (["a", "c", "d"], ["d"])
    assert queue_of(driver, MIRROR).refused == 2
    assert is_as_it_was(driver)


@WAYS
@pytest.mark.parametrize("targets", [(MIRROR,), (QUEUE, MIRROR), (MIRROR, QUEUE)])
def test_j4_what_nobody_could_be_told_is_no_command(way: Way, targets: tuple[int, ...]) -> None:
    """It is not confirmed: all answers of its batch are lost. What stands before it is applied, of itself nothing."""
    driver = with_a_mirror()
    with pytest.raises(ShardError, match="queue 1, which is a mirror"):
        driver.run(publish("before", FULL), publish("too", QUEUE), way("it", *targets), publish("behind", QUEUE))
    driver.shard.finish()
    assert (driver.drain(FULL), driver.drain(QUEUE)) == (["before"], ["too"])
    queue = queue_of(driver, MIRROR)
    assert (queue.ready_count(), queue.enqueued, queue.refused) == (2, 2, 0)
    assert list(driver.shard.live_entries()) == [4]


def test_j4_nothing_of_a_refused_publish_stays_live() -> None:
    driver = with_a_mirror()
    (index,) = driver.shard.live_entries()
    with pytest.raises(ShardError):
        driver.run(publish("first of its entry", QUEUE, MIRROR))
    driver.shard.finish()
    assert list(driver.shard.live_entries()) == [index]


@WAYS
def test_j4_a_transaction_with_a_publish_to_a_mirror_is_refused_as_a_whole(way: Way) -> None:
    driver = with_a_mirror()
    driver.run(attach(QUEUE, 5), publish("a", QUEUE))
    settle = commands.encode_settle(QUEUE, 5, commands.ACK, [1])
    (answer,) = driver.run(commands.encode_transaction(2, [publish("x", QUEUE), way("y", QUEUE, MIRROR), settle]))
    assert isinstance(answer, Refused)
    assert (queue_of(driver, QUEUE).held_count, driver.ready(QUEUE)) == (1, 0)
    assert queue_of(driver, MIRROR).refused == 1
    (answer,) = driver.run(commands.encode_transaction(1, [way("x", QUEUE), settle]))
    assert isinstance(answer, Applied)
    assert is_as_it_was(driver)


@pytest.mark.parametrize(("at_most_once", "parked", "dropped"), [(False, 1, 0), (True, 0, 1)])
def test_j4_a_dead_letter_has_no_route_to_a_mirror(at_most_once: bool, parked: int, dropped: int) -> None:
    driver = with_a_mirror()
    driver.create(9, message_ttl_ms=100, dead_letter_exchange="", dead_letter_at_most_once=at_most_once)
    driver.run(publish("m", 9), publish("n", 9))
    driver.pass_ms(100)
    driver.tick()
    driver.lead(encode_route([routed(1, "m", [MIRROR], []), routed(2, "n", [MIRROR, QUEUE], [])]))
    statistics = statistics_of(driver.shard)
    assert (len(driver.shard.parked()), statistics.dropped_unroutable, statistics.routed) == (parked, dropped, 1)
    assert driver.drain(QUEUE) == ["n"]
    assert is_as_it_was(driver)


def test_j4_what_was_due_has_no_route_to_a_mirror() -> None:
    driver = with_a_mirror()
    driver.create(9, dead_letter_exchange="q9", allow_schedule=True, delays=True)
    driver.run(later("m", 9))
    driver.pass_ms(50)
    driver.tick()
    driver.lead(encode_route([routed(1, "m", [MIRROR], [])]))
    assert statistics_of(driver.shard).dropped_due == 1
    assert is_as_it_was(driver)


def moved(first: int, *bodies: str) -> bytes:
    items = [
        (as_item(Message(9, 0, 0, 0, 0, 5, -1, 0, 60_000), kind), content(body))
        for body, kind in zip(bodies, (LETTER, PUBLISHED, LETTER), strict=False)
    ]
    return commands.encode_transfer_moved(SHARD, MIRROR, first, 5, items)


def letters(first: int, *bodies: str) -> bytes:
    return encode_transfer(SHARD, MIRROR, first, [content(body) for body in bodies])


@pytest.mark.parametrize("transfer", [letters, moved])
def test_j4_what_another_shard_transfers_to_a_mirror_is_lost_and_its_lane_goes_on(
    transfer: Callable[..., bytes],
) -> None:
    driver = with_a_mirror()
    driver.lead(transfer(1, "m", "n"))
    driver.lead(transfer(2, "n", "o"))
    driver.lead(transfer(5, "early"))
    statistics = statistics_of(driver.shard)
    assert (statistics.transfers_lost, statistics.duplicates, statistics.refused_transfers) == (3, 1, 1)
    assert driver.shard.received_up_to(MIRROR, SHARD) == 3
    assert is_as_it_was(driver)
    assert list(driver.shard.live_entries()) == [4]


@pytest.mark.parametrize("is_first", [True, False])
def test_j4_what_shards_have_transferred_says_nothing_of_what_a_mirror_follows(is_first: bool) -> None:
    driver = Driver()
    driver.create(MIRROR, is_stream=True, is_mirror=True, ttl_retroactive=True)
    for step in (letters(1, "m"), copies(0, 1, {1: "b"}))[:: 1 if is_first else -1]:
        driver.lead(step)
    received = [driver.shard.received_up_to(MIRROR, source) for source in (SHARD, SHARD + 1, ORIGIN, OTHER)]
    assert received == [1, 0, 2, -1]
    driver.lead(copies(0, 3, {3: "other"}, OTHER), copies(2, 2, {2: "c"}))
    assert is_as_it_was(driver, 2, 3)
    assert statistics_of(driver.shard).refused_transfers == 1


def test_j4_a_mirror_that_has_nothing_yet_may_follow_any_stream() -> None:
    driver = Driver()
    driver.create(MIRROR, is_stream=True, is_mirror=True, ttl_retroactive=True)
    driver.lead(letters(1, "m"))
    assert [driver.shard.received_up_to(MIRROR, source) for source in (ORIGIN, OTHER)] == [0, 0]


def test_j4_no_shard_passes_for_a_stream() -> None:
    """Nor a stream for a shard: its place in the mirror is its own."""
    driver = with_a_mirror()
    with pytest.raises(ShardError, match="source 7"):
        driver.lead(copies(0, 4, {1: "b"}, SHARD))
    driver.shard.finish()
    driver.lead(encode_transfer(ORIGIN, MIRROR, 6, [LetterContent(b"\0\1k", header(), b"f")]))
    assert driver.shard.received_up_to(MIRROR, ORIGIN) == 5


def test_j4_what_is_redriven_to_a_mirror_stays_where_it_is() -> None:
    driver = with_a_mirror()
    driver.lead(commands.encode_raise_level(LEVEL_HIGHEST))
    driver.run(publish("m", QUEUE), publish("n", QUEUE))
    (answer,) = driver.run(encode_start_redrive(QUEUE, b"terms", 0))
    assert isinstance(answer, RedriveState)
    line = queue_of(driver, QUEUE).ready
    targets = [(MIRROR,), (FULL,)]
    going = [
        Redriven(each.index, each.offset, each.enqueued_ms, where, (), content(driver.body(each)))
        for each, where in zip(line.items[line.head :], targets, strict=True)
    ]
    driver.lead(encode_redrive(QUEUE, answer.redrive_id, 1, going, 0, Place(False, 0, 0, 0, 0, 0), False))
    assert (driver.drain(QUEUE), driver.drain(FULL)) == (["m"], ["n"])
    assert is_as_it_was(driver)
