"""Queues in which messages expire wherever they are (RULES X2), in the shard."""

import itertools
import random

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.commands import REQUEUE
from mayfly.node.shard.message import Message
from mayfly.node.shard.near_deaths import NearDeaths
from mayfly.node.shard.packed import Departures, Packed, pack
from mayfly.node.shard.results import GetResult
from mayfly.node.shard.settings import ShardQueueSettings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.shard.declared import check_declared
from tests.node.shard.driver import Driver, attach, publish, update_queue
from tests.node.shard.test_recurring import recurs


@pytest.fixture
def driver() -> Driver:
    """A shard with queue 1, in which messages expire anywhere, for a dead-letter exchange."""
    driver = Driver()
    driver.create(1, expire_anywhere=True, dead_letter_exchange="dlx")
    return driver


def dead(driver: Driver) -> list[str]:
    """Bodies of what has died, in order."""
    return [driver.body(death.message) for death in driver.shard.unrouted(10_000)]


def test_x2_what_is_due_goes_from_behind_a_live_head_in_order_of_deadlines(driver: Driver) -> None:
    """X2, T7: at the tick, and the counts say so."""
    driver.run(
        publish("head"), publish("c", ttl_ms=300), publish("a", ttl_ms=100), publish("keep", ttl_ms=9000),
        publish("b", ttl_ms=200),
    )  # fmt: skip
    assert driver.shard.next_message_due_ms() == driver.time_ms + 100
    driver.pass_ms(99)
    driver.tick()
    assert (driver.ready(1), dead(driver)) == (5, [])
    driver.pass_ms(1)
    driver.tick()
    assert (driver.ready(1), dead(driver)) == (4, ["a"])
    assert driver.shard.next_message_due_ms() == driver.time_ms + 100
    driver.pass_ms(500)
    driver.tick()
    assert (driver.ready(1), dead(driver)) == (2, ["a", "b", "c"])
    assert driver.drain(1) == ["head", "keep"]
    assert driver.replay().digest() == driver.shard.digest()


@pytest.mark.parametrize("in_one_entry", [True, False])
def test_x2_what_is_due_at_the_same_time_dies_in_order_of_publishing(driver: Driver, in_one_entry: bool) -> None:
    """X2: wherever in a long line it stands, as at the head; what lives among it changes nothing."""
    order = [f"{number:04}" for number in range(3000)]
    parts = [part for body in order for part in (publish(body, ttl_ms=100), publish("keep"))]
    if in_one_entry:
        driver.run(*parts)
    else:
        for part in parts:
            driver.run(part)
    driver.pass_ms(100)
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert dead(driver) == order


def test_t7_what_comes_later_and_is_due_sooner_is_waited_for(driver: Driver) -> None:
    """T7, X2: at its own deadline, not at that of what came before."""
    driver.run(publish("late", ttl_ms=900))
    driver.run(publish("soon", ttl_ms=100))
    assert driver.shard.next_message_due_ms() == driver.time_ms + 100
    driver.pass_ms(100)
    driver.tick()
    assert dead(driver) == ["soon"]


def test_s6_x2_times_of_one_that_recurs_expire_one_by_one() -> None:
    """They have the same content, and each its own deadline."""
    driver = Driver()
    driver.create(1, allow_schedule=True, expire_anywhere=True, message_ttl_ms=2500)
    driver.run(recurs("a", every_s=1))
    for _ in range(3):
        driver.pass_ms(1000)
        driver.tick()
    queue = driver.shard.queue(1)
    assert queue is not None
    assert queue.ready_count() == 3
    driver.pass_ms(500)
    driver.tick()
    assert (queue.ready_count(), queue.expired, queue.ready_bytes, queue.ready.timed) == (2, 1, 2, 2)
    assert list(driver.shard._state.live.values()) == [3], "of the two, and of the one that waits"
    assert driver.replay().digest() == driver.shard.digest()


def test_t8_ttl_0_is_delivered_if_a_consumer_takes_it_else_dies(driver: Driver) -> None:
    """T8, X2."""
    driver.run(publish("a", ttl_ms=0))
    assert (driver.ready(1), dead(driver)) == (0, ["a"])
    driver.run(attach(1, 7))
    driver.run(publish("b", ttl_ms=0), publish("c", ttl_ms=50))
    assert driver.delivered(7) == ["b", "c"]
    assert dead(driver) == ["a"]


@pytest.mark.parametrize("first", [["late"], ["soon", "late"], ["soon"]])
def test_c1_what_a_replica_took_over_dies_in_the_order_in_which_it_dies_at_others(
    driver: Driver, first: list[str]
) -> None:
    """C1, X2: of several queues that are due in one entry, also after the soonest left alive."""
    driver.create(2, message_ttl_ms=200, dead_letter_exchange="dlx")
    ttls_ms = {"soon": 100, "late": 300}
    driver.run(*[publish(body, ttl_ms=ttls_ms[body]) for body in first], publish("other", 2))
    if "soon" in first:
        assert driver.get(1) == "soon"
    other = Shard(3, 2)
    other.restore(driver.shard.snapshot())
    taken_over = driver.index
    if "late" not in first:
        driver.run(publish("late", ttl_ms=300))
    driver.pass_ms(400)
    driver.tick()
    assert sorted(dead(driver)) == ["late", "other"]
    for index in range(taken_over + 1, driver.index + 1):
        driver.log[index].apply(other)
    assert other.digest() == driver.shard.digest()


def test_x2_an_empty_queue_is_not_looked_at(driver: Driver) -> None:
    """X2: neither a new one nor one that was emptied."""
    assert driver.shard.next_message_due_ms() == -1
    driver.run(publish("a", ttl_ms=100))
    assert driver.get(1) == "a"
    assert driver.shard.next_message_due_ms() == -1


def test_x2_what_has_left_at_the_head_is_waited_for_no_more(driver: Driver) -> None:
    """X2, C1: once somebody looks, as a replica that never knew it."""
    driver.run(publish("b", ttl_ms=200), publish("a", ttl_ms=100), publish("c", ttl_ms=300))
    driver.run(*[publish("later", ttl_ms=9000) for _ in range(20)])
    end_ms = driver.time_ms + 300
    driver.pass_ms(100)
    driver.tick()
    assert driver.get(1) == "b"
    driver.run(publish("d", ttl_ms=50))
    driver.pass_ms(50)
    driver.tick()
    assert dead(driver) == ["a", "d"]
    assert driver.shard.next_message_due_ms() == end_ms
    driver.pass_ms(150)
    driver.tick()
    assert dead(driver) == ["a", "d", "c"]


@pytest.mark.parametrize("journal", [None, "records"])
@pytest.mark.parametrize("exchange", [None, "dlx"])
def test_x2_counts_are_the_same_whether_deaths_are_kept_or_not(exchange: str | None, journal: str | None) -> None:
    """X2, C1: what dies for nobody is not made whole; what is left of it is."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=16)
    driver.create(1, expire_anywhere=True, dead_letter_exchange=exchange, journal=journal)
    for number in range(300):
        driver.run(publish(f"{number:03}", ttl_ms=100 + number % 7 * 50), publish("keep"))
    sizes: list[tuple[int, int, int]] = []
    while driver.shard.next_message_due_ms() >= 0:
        driver.pass_ms(50)
        driver.tick()
        queue = driver.shard.queue(1)
        assert queue is not None
        sizes.append((queue.ready_count(), queue.ready_bytes, queue.expired))
    assert sizes[-1] == (300, 1200, 300)
    assert driver.shard.expiry_lag.sum_ms() == 0
    deaths = driver.shard.unrouted(1000)
    assert len(deaths) == 300 * sum(1 for each in (exchange, journal) if each)
    assert {driver.body(death.message) for death in deaths} in (set(), {f"{number:03}" for number in range(300)})
    assert driver.drain(1) == ["keep"] * 300
    assert driver.shard.live_entries() == {death.message.index for death in deaths}


def test_t10_what_is_held_is_judged_when_it_comes_back(driver: Driver) -> None:
    """T10, T5, X2."""
    driver.run(publish("head"), publish("a", ttl_ms=100), publish("b", ttl_ms=400))
    driver.run(commands.encode_get(1, 9, False), commands.encode_get(1, 9, False), commands.encode_get(1, 9, False))
    driver.pass_ms(200)
    driver.tick()
    assert dead(driver) == []
    driver.run(commands.encode_settle(1, 9, REQUEUE, [1, 2, 3]))
    assert dead(driver) == ["a"]
    driver.pass_ms(200)
    driver.tick()
    assert (driver.ready(1), dead(driver)) == (1, ["a", "b"])


def test_t12_other_deadlines_count_for_what_is_packed_too() -> None:
    """T12, X2: after some have died out of their pieces."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=16)
    driver.create(
        1, expire_anywhere=True, dead_letter_exchange="dlx", message_ttl_ms=1000, ttl_retroactive=True
    )
    for number in range(200):
        driver.run(publish(f"m{number}", ttl_ms=100 if number % 7 == 3 else -1))
    driver.pass_ms(100)
    driver.tick()
    assert driver.ready(1) == 200 - 29
    longer = ShardQueueSettings(
        expire_anywhere=True, dead_letter_exchange="dlx", message_ttl_ms=3000, ttl_retroactive=True
    )
    driver.lead(update_queue(1, longer))
    driver.pass_ms(2800)
    driver.tick()
    assert driver.ready(1) == 200 - 29
    driver.pass_ms(100)
    driver.tick()
    assert driver.ready(1) == 0


def test_x2_a_policy_turns_it_on_and_off(driver: Driver) -> None:
    """X2, T6: for what is queued as well."""
    driver.lead(update_queue(1, ShardQueueSettings(dead_letter_exchange="dlx")))
    driver.run(publish("head"), publish("a", ttl_ms=100), publish("b", ttl_ms=300))
    driver.pass_ms(150)
    driver.tick()
    assert driver.ready(1) == 3
    driver.lead(update_queue(1, ShardQueueSettings(dead_letter_exchange="dlx", expire_anywhere=True)))
    driver.tick()
    assert (driver.ready(1), dead(driver)) == (2, ["a"])
    driver.lead(update_queue(1, ShardQueueSettings(dead_letter_exchange="dlx")))
    driver.pass_ms(300)
    driver.tick()
    assert driver.ready(1) == 2


def test_t13_no_timer_outlives_its_message(driver: Driver) -> None:
    """T13, X2: but for one look, which finds nothing."""
    driver.run(publish("a", ttl_ms=100), publish("b", ttl_ms=200))
    driver.run(commands.encode_purge(1))
    driver.pass_ms(100)
    driver.tick()
    assert driver.shard.next_message_due_ms() == -1
    assert not driver.shard.live_entries()


def test_c4_what_dies_in_one_entry_is_bounded() -> None:
    """C4: the rest is due at once, and order is kept."""
    driver = Driver(expiries=10)
    driver.create(1, expire_anywhere=True, dead_letter_exchange="dlx")
    order = list(range(100))
    random.Random(5).shuffle(order)
    driver.run(publish("head"), *[publish(f"{number:03}", ttl_ms=100 + number) for number in order])
    driver.pass_ms(500)
    entries = 0
    while driver.shard.due_messages(driver.time_ms):
        before = len(dead(driver))
        driver.tick()
        assert len(dead(driver)) - before <= 10
        entries += 1
        assert entries < 50
    assert dead(driver) == [f"{number:03}" for number in range(100)]


@pytest.mark.parametrize("exchange", ["dlx", None])
@pytest.mark.parametrize("dialect", ["rabbitmq", "lavinmq"])
@pytest.mark.parametrize("seed", range(8))
def test_x2_a_queue_is_what_its_messages_say(seed: int, dialect: str, exchange: str | None) -> None:
    """X2, T5, T10, C1: with replicas that begin with snapshots, whatever is packed, delivered, given back, dies, or is
    purged; nothing stays longer than a tick after its deadline, and deaths come in order of deadlines, in each priority
    then of publishing. Where nobody is to have what dies, it is counted."""
    rng = random.Random(seed)
    piece = rng.choice((8, 16, 40))

    def new() -> Shard:
        return Shard(3, 1, 12, 30, messages_per_piece=piece, returned_per_entry=20)

    one, other = new(), new()
    terms = ShardQueueSettings(
        name="q", expire_anywhere=True, dead_letter_exchange=exchange, ttl_dialect=dialect,
        ttl_retroactive=dialect == "lavinmq", max_priority=3 if seed % 2 else 0,
    )  # fmt: skip
    time_ms, index = 1_000_000, 0
    held: dict[int, Message] = {}

    def entry(data: bytes, leader: bool = False) -> list[object]:
        nonlocal index
        index += 1
        answers: list[list[object]] = []
        for shard in (one, other):
            shard.begin(index, time_ms, time_ms, data)
            answers.append(shard.apply(None if leader else (1, 7), 0, len(data)))
            shard.finish()
            shard.take_released()
        assert one.snapshot() == other.snapshot()
        return answers[0]

    def settle_down() -> None:
        for _ in range(1000):
            if not (one.due_messages(time_ms) or other.due_messages(time_ms)):
                return
            entry(commands.encode_expire_due(), True)
        raise AssertionError("there is always more to do")

    check_declared(terms)
    entry(commands.encode_raise_level(LEVEL_HIGHEST), True)
    entry(commands.encode_create_queue(1, terms))
    for _ in range(300):
        action = rng.random()
        if action < 0.45:
            parts = [publish("m", ttl_ms=rng.choice([-1, 60, 300, 300, 900, 2000])) for _ in range(rng.randrange(1, 9))]
            entry(b"".join(parts))
        elif action < 0.6:
            for answer in entry(commands.encode_get(1, 9, False) * 3):
                assert isinstance(answer, GetResult)
                if answer.message is not None:
                    assert not 0 <= answer.message.deadline_ms <= time_ms
                    held[answer.delivery_id] = answer.message
        elif action < 0.7 and held:
            back = sorted(held)[: rng.randrange(1, 4)]
            entry(commands.encode_settle(1, 9, rng.choice((REQUEUE, commands.ACK)), back))
            for each in back:
                del held[each]
        elif action < 0.72:
            entry(commands.encode_purge(1))
        else:
            time_ms += rng.randrange(200)
            settle_down()
            queue = one.queue(1)
            assert queue is not None
            messages = [message for line in queue.lines() for message in line.live()]
            assert len(messages) == queue.ready_count()
            assert sum(message.body_length for message in messages) == queue.ready_bytes
            assert sum(1 for message in messages if message.deadline_ms >= 0) == sum(
                line.timed for line in queue.lines()
            )
            assert not [message for message in messages if 0 <= message.deadline_ms <= time_ms]
        if rng.random() < 0.1:
            restored = new()
            restored.restore(other.snapshot())
            other = restored
    deaths = one.unrouted(100_000)
    if exchange is None:
        found = one.queue_statistics(1)
        assert not deaths and found is not None and found.expired > 50
        return
    assert len(deaths) > 50
    for before, after in itertools.pairwise(deaths):
        if before.time_ms == after.time_ms and before.message.acquired_count == after.message.acquired_count == 0:
            assert before.message.deadline_ms <= after.message.deadline_ms
    first_in_line = [death.message for death in deaths if not death.message.acquired_count]
    same_deadline = 0
    for one_message, next_message in itertools.pairwise(sorted(first_in_line, key=lambda each: each.priority)):
        if (one_message.priority, one_message.deadline_ms) == (next_message.priority, next_message.deadline_ms):
            assert (one_message.index, one_message.offset) < (next_message.index, next_message.offset)
            same_deadline += 1
    assert same_deadline > 20


def test_t5_however_many_are_near_each_keeps_its_deadline() -> None:
    """T5, X2: pieces that are packed anew while much is near come to what is known already."""
    near, size, pieces = NearDeaths(0, 2000), 1000, 70
    for piece in range(pieces):
        first = piece * size
        near.add(pack([Message(first + number, 0, 1, 1, 1, 0, number % 2000, 0) for number in range(size)]))
    near.look()
    gone = Departures()
    assert near.count(499) == 500 * pieces
    near.leave(499, gone)
    assert near.first_ms() == 500
    assert gone.deadlines_ms == sorted(gone.deadlines_ms) and gone.deadlines_ms[-1] == 499
    assert all(index % size == deadline_ms for index, deadline_ms in zip(gone.indexes, gone.deadlines_ms, strict=True))
    assert len(set(gone.indexes)) == gone.body_bytes == 500 * pieces


def test_terms_without_it_are_what_they_were() -> None:
    """X2: written only where it is asked for."""
    assert encode_terms(ShardQueueSettings()) == encode_terms(ShardQueueSettings(expire_anywhere=False))
    assert len(encode_terms(ShardQueueSettings(expire_anywhere=True))) > len(encode_terms(ShardQueueSettings()))


def test_what_has_left_a_piece_is_in_no_snapshot() -> None:
    """X2, C1: its entries may go."""
    shard = Shard(3, 1, messages_per_piece=80)
    driver = Driver()
    driver.shard = shard
    driver.create(1, expire_anywhere=True)
    driver.run(publish("head"), *[publish("m", ttl_ms=5000 if number % 5 else 10) for number in range(200)])
    driver.pass_ms(20)
    driver.tick()
    queue = shard.queue(1)
    assert queue is not None
    pieces = [piece for piece in queue.ready.packed if isinstance(piece, Packed) and piece.there is not None]
    assert pieces
    restored = Shard(3, 1, messages_per_piece=80)
    restored.restore(shard.snapshot())
    assert restored.snapshot() == shard.snapshot()
    assert restored.live_entries() == shard.live_entries()
