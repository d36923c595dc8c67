"""What waits is cancelled and rescheduled (RULES S4), in the shard."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import digest_at, digest_of, message_id_at
from mayfly.node.shard.results import Published
from mayfly.node.shard.run import place_of
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.state import CHANGED_PER_ENTRY
from tests.node.shard.driver import Driver, attach, update_queue
from tests.node.shard.test_schedules import message, scheduled

CANCEL = (commands.CANCEL, 0)
FRAME_HEAD_BYTES = 7


def header_of(message_id: str, **properties: object) -> bytes:
    """The payload of a content header."""
    given_properties = amqp.Basic.Properties(message_id=message_id or None, **properties)  # type: ignore[arg-type]
    return ContentHeader(0, 0, given_properties).marshal()


def later(message_id: str, *queue_ids: int, after_ms: int, ttl_ms: int = -1, body: str = "") -> bytes:
    """A PUBLISH_LATER of a message with an id, which is its body if nothing else is."""
    parts: list[bytes] = []
    commands.encode_publish_later(
        parts, queue_ids or (1,), ttl_ms, b"\x00\x01q", header_of(message_id), (body or message_id).encode(),
        (commands.AFTER, after_ms),
    )  # fmt: skip
    return b"".join(parts)


def change(message_id: str, due: tuple[int, int] = CANCEL, queues: tuple[int, ...] = (1,)) -> bytes:
    """A CHANGE_SCHEDULED."""
    encoded = commands.encode_change_scheduled(queues, digest_of(message_id.encode()), due)
    assert commands.end_of(encoded, 0) == len(encoded)
    return encoded


@pytest.fixture
def driver() -> Driver:
    """A shard with queue 1, which allows schedules."""
    driver = Driver()
    driver.create(1, allow_schedule=True)
    return driver


def test_s4_what_is_cancelled_is_never_delivered(driver: Driver) -> None:
    """S4: it leaves at once, with its entry and its timer."""
    driver.run(attach(1, 7), later("a", after_ms=100), later("b", after_ms=200))
    assert driver.guarded(change("a")) == ([], [])
    assert scheduled(driver) == 1
    assert driver.shard.next_message_due_ms() == driver.time_ms + 200
    assert driver.guarded(change("b")) == ([], [])
    assert driver.shard.next_message_due_ms() == -1
    assert not driver.shard.live_entries()
    driver.pass_ms(500)
    driver.tick()
    assert driver.delivered(7) == []
    assert driver.replay().digest() == driver.shard.digest()


def test_s4_what_is_ready_or_was_delivered_or_is_unknown_is_not_cancelled(driver: Driver) -> None:
    """S4: the answer says which."""
    driver.run(later("a", after_ms=100), later("b", after_ms=300))
    driver.pass_ms(100)
    driver.tick()
    assert driver.guarded(change("a"), change("never"), change("b"), change("b")) == ([], [0, 1, 3])
    assert driver.drain(1) == ["a"]
    assert driver.guarded(change("a")) == ([], [0])


def test_s4_the_log_decides_between_a_cancel_and_the_due_time(driver: Driver) -> None:
    """S4: until the entry that makes it ready it waits, however late that is."""
    driver.run(later("a", after_ms=100))
    driver.pass_ms(1000)
    assert driver.guarded(change("a")) == ([], [])
    driver.tick()
    assert driver.drain(1) == []


def test_s4_a_cancel_behind_its_publish_in_one_entry_counts(driver: Driver) -> None:
    """S4."""
    (answer,) = driver.run(commands.encode_guard(2), later("a", after_ms=100), change("a"))
    assert isinstance(answer, Published)
    assert (answer.refused, answer.nowhere, scheduled(driver)) == ([], [], 0)


def test_s4_all_that_wait_under_an_id_are_meant(driver: Driver) -> None:
    """S4: in all queues of the command."""
    driver.create(2, allow_schedule=True)
    driver.run(later("a", 1, 2, after_ms=100), later("a", after_ms=50), later("", after_ms=60, body="without"))
    assert driver.guarded(change("a", queues=(1, 2))) == ([], [])
    assert (scheduled(driver, 1), scheduled(driver, 2)) == (1, 0)
    driver.run(later("c", 2, after_ms=100))
    assert driver.guarded(change("c", queues=(1, 2)), change("c", queues=(2, 1, 99))) == ([], [1])


def test_s4_more_under_an_id_than_an_entry_may_change_is_undecided(driver: Driver) -> None:
    """S4, C4: some are cancelled, the answer is no, and the same again goes on."""
    driver.run(*[later("a", after_ms=100)] * (CHANGED_PER_ENTRY + 1))
    assert driver.guarded(change("a")) == ([0], [])
    assert driver.guarded(change("a")) == ([], [])
    driver.run(*[later("a", after_ms=100)] * CHANGED_PER_ENTRY)
    assert driver.guarded(change("a")) == ([], [])
    assert driver.guarded(change("a")) == ([], [0])


def test_s4_more_under_an_id_than_an_entry_may_change_is_not_rescheduled(driver: Driver) -> None:
    """S4, C4: else the same again would find what it has put back."""
    driver.run(*[later("a", after_ms=100)] * (CHANGED_PER_ENTRY + 1))
    assert driver.guarded(change("a", (commands.AFTER, 500))) == ([0], [])
    driver.pass_ms(100)
    driver.tick()
    assert (driver.ready(1), scheduled(driver)) == (CHANGED_PER_ENTRY + 1, 0)


def test_c4_s4_what_one_entry_changes_is_bounded_and_each_command_changes_one(driver: Driver) -> None:
    """S4, C4: however many commands are in it."""
    driver.run(*[later(name, after_ms=100) for name in ("a", "b") for _ in range(CHANGED_PER_ENTRY)])
    driver.run(*[later(f"one {number}", after_ms=100) for number in range(CHANGED_PER_ENTRY + 5)])
    changes = [change("a"), change("b"), change("b")]
    changes += [change(f"one {number}") for number in range(CHANGED_PER_ENTRY + 5)]
    assert driver.guarded(*changes) == ([1, 2], [])
    assert scheduled(driver) == CHANGED_PER_ENTRY - 2
    assert driver.guarded(change("b")) == ([], [])


def test_s4_rescheduled_it_is_due_then_and_its_ttl_counts_from_there(driver: Driver) -> None:
    """S4, S3."""
    driver.run(later("a", after_ms=100, ttl_ms=50), later("b", after_ms=200))
    assert driver.guarded(change("a", (commands.AFTER, 500))) == ([], [])
    assert driver.guarded(change("b", (commands.AT, driver.time_ms + 50))) == ([], [])
    driver.pass_ms(50)
    driver.tick()
    assert driver.drain(1) == ["b"]
    driver.pass_ms(449)
    driver.tick()
    assert (driver.ready(1), scheduled(driver)) == (0, 1)
    assert driver.guarded(change("a", (commands.AFTER, 10))) == ([], [])
    driver.pass_ms(10)
    driver.tick()
    assert driver.ready(1) == 1
    driver.pass_ms(50)
    driver.tick()
    assert driver.ready(1) == 0


def test_s4_rescheduled_to_a_time_that_has_passed_it_is_ready(driver: Driver) -> None:
    """S4, S2: behind what is, and given to whoever waits."""
    driver.run(later("a", after_ms=100), later("b", after_ms=100))
    assert driver.guarded(change("b", (commands.AT, 5))) == ([], [])
    assert driver.drain(1) == ["b"]
    driver.run(attach(1, 7))
    assert driver.guarded(change("a", (commands.AFTER, 0))) == ([], [])
    assert driver.delivered(7) == ["a"]


def test_s4_what_waits_to_be_retried_was_delivered(driver: Driver) -> None:
    """S4, S5: so it can't be cancelled."""
    terms = ShardQueueSettings(allow_schedule=True, retry_ways=6, retry_min_ms=100, retry_max_ms=100)
    driver.lead(update_queue(1, terms))
    driver.run(later("a", after_ms=10))
    driver.pass_ms(10)
    driver.tick()
    driver.run(commands.encode_get(1, 9, False), commands.encode_settle(1, 9, commands.REQUEUE, [1]))
    assert scheduled(driver) == 1
    assert driver.guarded(change("a")) == ([], [0])


def test_s4_a_queue_between_shards_decides_nothing(driver: Driver) -> None:
    """S4: neither cancelled nor not there, but to be asked again."""
    driver.lead(commands.encode_raise_level(8))
    driver.run(later("a", after_ms=100))
    driver.lead(commands.encode_move_out(1, 2, 1))
    assert driver.guarded(change("a")) == ([0], [])


@pytest.mark.parametrize("cut", range(1, commands.CHANGE_HEAD.size))
def test_a_command_that_is_cut_off_is_refused(driver: Driver, cut: int) -> None:
    """Nothing of what comes behind it is read for it."""
    with pytest.raises(ShardError):
        driver.run(commands.encode_guard(1), change("a")[:-cut])


def test_a_time_that_is_none_is_refused(driver: Driver) -> None:
    """A form that nobody knows, too."""
    for due in ((3, 5), (commands.AT, 1 << 49)):
        with pytest.raises(ShardError):
            driver.run(commands.encode_guard(1), change("a", due))


PROPERTIES: dict[str, object] = {
    "content_type": "text/plain", "content_encoding": "none", "headers": {"a": 1, "b": "two"}, "delivery_mode": 2,
    "priority": 3, "correlation_id": "c", "reply_to": "r", "expiration": "1000", "timestamp": None, "message_type": "t",
    "user_id": "u", "app_id": "app",
}  # fmt: skip


@given(st.sets(st.sampled_from(sorted(PROPERTIES))), st.text(max_size=40))
def test_the_message_id_is_found_among_all_other_properties(names: set[str], message_id: str) -> None:
    """S4."""
    header = header_of(message_id, **{name: PROPERTIES[name] for name in names})
    data = b"before" + header + b"behind"
    assert message_id_at(data, 6, len(header)) == message_id.encode()
    for length in range(len(header)):
        assert message_id_at(data[: 6 + length], 6, length) in (b"", message_id.encode())


def places_of(messages: Iterable[Message]) -> list[int]:
    """By which they are known: what was packed meanwhile is the same message, and another object."""
    return list(map(place_of, messages))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(st.integers(0, 50), st.integers(0, 12))),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 60), st.integers(1, 9))),
        st.tuples(st.just("remove"), st.tuples(st.integers(0, 12), st.sampled_from([1, 2, 100]))),
        st.tuples(st.just("list"), st.tuples(st.integers(0, 50), st.integers(1, 9))),
    ),
    max_size=150,
)


@settings(deadline=None)
@given(STEPS, st.sampled_from([2, 4, 6, 33, 100]))
def test_s4_a_schedule_finds_what_waits_under_an_id(
    steps: list[tuple[str, tuple[int, int]]], piece: int
) -> None:
    """S4: whatever became a run, was put together, taken out of the middle or has left; id 0 stands for none."""
    schedule = Schedule(piece)
    naive: list[tuple[Message, int]] = []
    for number, (step, (one, other)) in enumerate(steps):
        if step == "put":
            made = message(number, one)
            schedule.put(made, digest_of(str(other).encode()) if other else b"")
            naive.append((made, other))
            naive.sort(key=lambda each: place_of(each[0]))
        elif step == "take":
            expected = [each for each in naive if each[0].enqueued_ms <= one][:other]
            del naive[: len(expected)]
            assert places_of(schedule.take(one, other)) == places_of(each for each, _ in expected)
        elif step == "remove" and one:
            mine = [each for each in naive if each[1] == one]
            found = schedule.find(digest_of(str(one).encode()), other)
            assert places_of(found) == places_of(each for each, _ in mine)[:other]
            behind = (2 * one) << 104
            there = [place for place in places_of(each for each, _ in mine) if behind < place < (one + 30) << 104]
            found = schedule.find(digest_of(str(one).encode()), other, behind, one + 29)
            assert places_of(found) == there[:other]
            removed = schedule.remove(digest_of(str(one).encode()), other)
            assert len(removed) == min(other, len(mine))
            assert all(place_of(each) in [place_of(known) for known, _ in mine] for each in removed)
            gone = {place_of(each) for each in removed}
            naive = [each for each in naive if place_of(each[0]) not in gone]
        elif step == "list":
            place = one << 104
            waiting = [place_of(each) for each, _ in naive if place_of(each) > place and each.enqueued_ms <= one + 20]
            assert list(map(place_of, schedule.behind(place, one + 20, other))) == waiting[:other]
        assert schedule.count == len(naive)
        assert schedule.body_bytes == sum(each.body_length for each, _ in naive)
        assert schedule.next_due_ms() == (naive[0][0].enqueued_ms if naive else -1)
        ids = [each for _, each in naive if each]
        for each in set(ids):
            digest = digest_of(str(each).encode())
            assert schedule.has(digest)
            assert schedule.has_more(digest, ids.count(each) - 1)
            assert not schedule.has_more(digest, ids.count(each))


@pytest.mark.parametrize("seed", range(4))
def test_s4_what_leaves_out_of_the_middle_of_long_runs(seed: int) -> None:
    """S4: many under few ids, among many that have none; what was packed keeps its places or is packed anew."""
    rng = random.Random(seed)
    schedule = Schedule(512)
    naive: dict[int, tuple[Message, bytes]] = {}
    digests = [digest_of(bytes((number,))) for number in range(9)]
    for number in range(1500):
        due_ms = rng.randrange(10_000)
        made = message(number, due_ms).with_deadline(due_ms + 50 if number % 3 else -1)
        digest = rng.choice(digests) if rng.random() < 0.6 else b""
        schedule.put(made, digest)
        naive[place_of(made)] = (made, digest)
    while any(digest for _, digest in naive.values()):
        digest = rng.choice(digests)
        place = place_of(message(0, rng.randrange(10_000)))
        mine = [each for each in sorted(naive) if naive[each][1] == digest and each > place]
        assert places_of(schedule.find(digest, 7, place)) == mine[:7]
        for each in schedule.remove(digest, rng.randrange(1, 60)):
            assert naive.pop(place_of(each))[1] == digest
        if rng.random() < 0.3:
            for each in schedule.take(10_000, rng.randrange(30)):
                assert min(naive) == place_of(each)
                del naive[place_of(each)]
        assert sorted(place_of(each) for line in schedule.lines() for each in line.live()) == sorted(naive)
        timed = sum(1 for each, _ in naive.values() if each.deadline_ms >= 0)
        assert sum(line.timed for line in schedule.lines()) == timed
    assert not (schedule.where or schedule.shared or schedule.named)


@pytest.mark.parametrize("seed", range(6))
def test_s4_replicas_that_began_with_a_snapshot_do_not_differ(seed: int) -> None:
    """S4, C1: publishes, cancels and ticks, with snapshots between; of long runs some leave out of the middle."""
    rng = random.Random(seed)
    piece, most = ((4, 6), (256, 60))[seed % 2]

    def new() -> Shard:
        return Shard(3, 1, 10, 20, messages_per_piece=piece, returned_per_entry=most)

    one, other = new(), new()
    time_ms = 1_000_000
    settings_of = ShardQueueSettings(name="q", allow_schedule=True)
    for index in range(1, 400):
        session: SessionKey | None = (1, 7)
        if index == 1:
            data, session = commands.encode_raise_level(LEVEL_HIGHEST), None
        elif index == 2:
            data = commands.encode_create_queue(1, settings_of)
        elif rng.random() < 0.6:
            some = [later(str(rng.randrange(60)), after_ms=rng.randrange(1, 900)) for _ in range(rng.randrange(most))]
            some += [
                change(str(rng.randrange(60)), rng.choice([CANCEL, (commands.AFTER, rng.randrange(600))]))
                for _ in range(rng.randrange(4))
            ]
            data = b"".join([commands.encode_guard(len(some)), *some])
        else:
            time_ms += rng.randrange(120)
            data, session = commands.encode_expire_due(), None
        answers = []
        for shard in (one, other):
            shard.begin(index, time_ms, time_ms, data)
            (answer,) = shard.apply(session, 0, len(data)) or [None]
            answers.append(
                (answer.refused, answer.nowhere) if isinstance(answer, Published) else None
            )
            shard.finish()
            shard.take_released()
        assert answers[0] == answers[1]
        assert one.snapshot() == other.snapshot()
        if rng.random() < 0.1:
            restored = new()
            restored.restore(other.snapshot())
            other = restored


def test_an_id_that_is_cut_off_is_none() -> None:
    """Whatever bytes a header has."""
    header = header_of("abc", headers={"a": 1})
    assert digest_at(header, 0, len(header)) == digest_of(b"abc")
    assert digest_at(header[:-1], 0, len(header) - 1) == b""
