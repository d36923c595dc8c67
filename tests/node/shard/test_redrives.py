"""Redrives in a shard (RULES R1): who leaves, in which order, and how far it has come."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.shard import commands
from mayfly.node.shard.commands import LetterContent
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import GIVEN_BACK, Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import CANCELLED, DONE, PAUSED, RUNNING, Redrive
from mayfly.node.shard.redrive_commands import (
    CANCEL,
    PAUSE,
    RESUME,
    SET_RATE,
    Redriven,
    encode_change_redrive,
    encode_redrive,
    encode_start_redrive,
)
from mayfly.node.shard.redrive_scan import _place_behind, ahead_of
from mayfly.node.shard.results import IN_USE, NO_REDRIVE, NOT_READY, Gone, Moved, RedriveState, Refused
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import LEADER, A, Driver, content_header
from tests.node.shard.test_recurring import recurs

DEAD, WORK, OTHER = 1, 2, 3
ELSEWHERE = (5, 77)


Wants = Callable[[str], bool]


def anything(_body: str) -> bool:
    return True


def queue_of(driver: Driver, queue: int = DEAD) -> Queue:
    found = driver.shard.queue(queue)
    assert found is not None
    return found


class Redriver:
    """Decides as a leader does: what is meant goes, with the same body."""

    def __init__(self, driver: Driver, at_once: int = 3) -> None:
        self.driver = driver
        self.at_once = at_once
        self.local: tuple[int, ...] = (WORK,)
        self.remote: tuple[tuple[int, int], ...] = ()

    def start(self, per_second: int = 0) -> RedriveState:
        (answer,) = self.driver.run(encode_start_redrive(DEAD, b"terms", per_second))
        assert isinstance(answer, RedriveState)
        return answer

    def redriven(self, message: Message) -> Redriven:
        octets = self.driver.body(message).encode()
        content = LetterContent(b"\0\1k", content_header(octets), octets)
        return Redriven(message.index, message.offset, message.enqueued_ms, self.local, self.remote, content)

    def command(self, wants: Wants = anything) -> bytes:
        """The next REDRIVE."""
        queue, redrive = queue_of(self.driver), self.redrive
        ahead = ahead_of(queue, redrive.place, redrive.started_ms)
        going: list[Redriven] = []
        stayed = redrive.stayed
        place = redrive.place
        if place is None or (place.is_back, place.priority) != ahead.name:
            place = ahead.place_of(None)
        for message in ahead.messages[: self.at_once]:
            if redrive.is_meant(message.index, message.enqueued_ms) and wants(self.driver.body(message)):
                going.append(self.redriven(message))
            else:
                place = ahead.place_of(message)
                stayed += 1
        done = not ahead.messages
        return encode_redrive(DEAD, redrive.redrive_id, redrive.step + 1, going, stayed, place, done)

    def step(self, wants: Wants = anything, then: bytes = b"") -> None:
        """The next REDRIVE; in its entry a client says something ``then``."""
        self.driver.entry((LEADER, self.command(wants)), (A, then))

    def finish(self, wants: Wants = anything) -> None:
        for _ in range(10_000):
            if self.redrive.state != RUNNING:
                return
            self.step(wants)
        raise AssertionError("it does not end")

    @property
    def redrive(self) -> Redrive:
        redrive = queue_of(self.driver).redrive
        assert redrive is not None
        return redrive


def filled(count: int, **settings: object) -> Driver:
    driver = Driver()
    for queue in (DEAD, WORK, OTHER):
        driver.create(queue, **(settings if queue == DEAD else {}))
    publish(driver, DEAD, range(count))
    return driver


def publication(queue: int, body: int) -> bytes:
    parts: list[bytes] = []
    commands.encode_publish(parts, (queue,), -1, b"\0\1k", content_header(b"%d" % body), b"%d" % body)
    return b"".join(parts)


def publish(driver: Driver, queue: int, bodies: range) -> None:
    for body in bodies:
        driver.run(publication(queue, body))


def bodies(driver: Driver, queue: int) -> list[int]:
    found = queue_of(driver, queue)
    return [int(driver.body(message)) for line in found.lines() for message in line.live()]


def test_r1_everything_moves_in_order() -> None:
    driver = filled(10)
    redriver = Redriver(driver)
    answer = redriver.start()
    assert (answer.state, redriver.redrive.waiting) == (RUNNING, 10)
    redriver.finish()
    assert bodies(driver, DEAD) == []
    assert bodies(driver, WORK) == list(range(10))
    redrive = redriver.redrive
    assert (redrive.state, redrive.moved, redrive.stayed) == (DONE, 10, 0)
    assert redrive.redrive_id == answer.redrive_id
    assert queue_of(driver, DEAD).ready_bytes == 0


def test_r1_what_does_not_match_stays_in_its_place() -> None:
    driver = filled(20)
    redriver = Redriver(driver)
    redriver.start()
    redriver.finish(lambda body: int(body) % 3 == 1)
    assert bodies(driver, WORK) == [1, 4, 7, 10, 13, 16, 19]
    assert bodies(driver, DEAD) == [body for body in range(20) if body % 3 != 1]
    assert (redriver.redrive.moved, redriver.redrive.stayed) == (7, 13)


def test_r1_what_comes_after_the_start_is_not_moved() -> None:
    """So it ends, though what it moves may come back, and moves what the preview has said."""
    driver = filled(4)
    redriver = Redriver(driver)
    redriver.local = (DEAD,)
    redriver.start()
    publish(driver, DEAD, range(100, 103))
    redriver.finish()
    assert bodies(driver, DEAD) == [100, 101, 102, 0, 1, 2, 3]
    assert redriver.redrive.moved == 4


def test_r1_targets_in_other_shards_have_lanes() -> None:
    driver = filled(3)
    redriver = Redriver(driver)
    redriver.local, redriver.remote = (), (ELSEWHERE,)
    redriver.start()
    redriver.finish()
    lane = driver.shard.lane(ELSEWHERE[1])
    assert lane is not None
    assert [driver.body(item) for item in lane.items] == ["0", "1", "2"]
    assert driver.shard.digest() == copy_of(driver).digest()


def test_r1_a_command_that_comes_twice_moves_once() -> None:
    driver = filled(6)
    redriver = Redriver(driver)
    redriver.start()
    command = redriver.command()
    driver.lead(command)
    driver.lead(command)
    assert bodies(driver, WORK) == [0, 1, 2]
    redriver.finish()
    driver.lead(command)
    assert bodies(driver, WORK) == [0, 1, 2, 3, 4, 5]


def test_r1_one_that_skips_a_step_moves_nothing() -> None:
    driver = filled(6)
    redriver = Redriver(driver)
    redriver.start()
    first = redriver.command()
    copy = copy_of(driver)
    driver.lead(first)
    second = redriver.command()
    later = Driver()
    later.shard, later.index, later.time_ms = copy, driver.index, driver.time_ms
    later.lead(second)
    assert queue_of(later).ready_count() == 6


def test_r1_who_was_taken_meanwhile_is_passed_over() -> None:
    driver = filled(4)
    redriver = Redriver(driver)
    redriver.start()
    command = redriver.command()
    assert driver.get(DEAD) == "0"
    driver.lead(command)
    redriver.finish()
    assert bodies(driver, WORK) == [1, 2, 3]
    assert redriver.redrive.moved == 3


def test_r1_a_message_whose_target_has_gone_stays() -> None:
    driver = filled(2)
    redriver = Redriver(driver)
    redriver.start()
    command = redriver.command()
    driver.run(commands.encode_delete_queue(WORK, False, False))
    driver.lead(command)
    assert bodies(driver, DEAD) == [0, 1]
    assert redriver.redrive.moved == 0


def test_t5_what_is_past_its_deadline_expires_instead() -> None:
    driver = Driver()
    driver.create(DEAD)
    driver.create(WORK)
    parts: list[bytes] = []
    for number, ttl_ms in enumerate((500, -1)):
        octets = b"%d" % number
        commands.encode_publish(parts, (DEAD,), ttl_ms, b"\0\1k", content_header(octets, ttl_ms), octets)
    driver.run(*parts)
    redriver = Redriver(driver)
    redriver.start()
    command = redriver.command()
    driver.pass_ms(500)
    driver.lead(command)
    redriver.finish()
    assert bodies(driver, WORK) == [1]
    assert queue_of(driver, DEAD).expired == 1


def test_r1_a_ttl_of_its_own_counts_anew_in_the_target() -> None:
    driver = Driver()
    driver.create(DEAD)
    driver.create(WORK)
    parts: list[bytes] = []
    commands.encode_publish(parts, (DEAD,), 500, b"\0\1k", content_header(b"0", 500), b"0")
    driver.run(*parts)
    driver.pass_ms(400)
    redriver = Redriver(driver)
    redriver.start()
    redriver.finish()
    (message,) = queue_of(driver, WORK).ready.live()
    assert message.deadline_ms == driver.time_ms + 500


def test_r1_pause_resume_cancel() -> None:
    driver = filled(9)
    redriver = Redriver(driver)
    started = redriver.start()
    redriver.step()
    late = redriver.command()
    (paused,) = driver.run(encode_change_redrive(DEAD, PAUSE))
    assert isinstance(paused, RedriveState)
    assert (paused.redrive_id, paused.state) == (started.redrive_id, PAUSED)
    driver.lead(late)
    assert bodies(driver, WORK) == [0, 1, 2], "what was given before the pause moves nothing after it"
    (again,) = driver.run(encode_start_redrive(DEAD, b"", 0))
    assert isinstance(again, Refused)
    assert again.reason == IN_USE
    (resumed,) = driver.run(encode_change_redrive(DEAD, RESUME, started.redrive_id))
    assert isinstance(resumed, RedriveState)
    assert resumed.state == RUNNING
    redriver.step()
    (cancelled,) = driver.run(encode_change_redrive(DEAD, CANCEL))
    assert isinstance(cancelled, RedriveState)
    assert cancelled.state == CANCELLED
    assert bodies(driver, WORK) == [0, 1, 2, 3, 4, 5]
    assert redriver.redrive.moved == 6
    (nothing,) = driver.run(encode_change_redrive(DEAD, RESUME))
    assert isinstance(nothing, Refused)
    assert nothing.reason == NO_REDRIVE
    assert redriver.start().redrive_id > started.redrive_id


def test_r1_who_means_another_redrive_changes_nothing() -> None:
    driver = filled(1)
    redriver = Redriver(driver)
    started = redriver.start()
    (answer,) = driver.run(encode_change_redrive(DEAD, CANCEL, started.redrive_id + 1))
    assert isinstance(answer, Refused)
    assert redriver.redrive.state == RUNNING


def test_r1_refusals() -> None:
    driver = Driver()
    driver.create(1, is_stream=True, ttl_retroactive=True)
    driver.create(2, delays=True, allow_schedule=True, dead_letter_exchange="q2")
    for queue in (1, 2):
        (answer,) = driver.run(encode_start_redrive(queue, b"", 0))
        assert isinstance(answer, Refused)
        assert answer.reason == NOT_READY
    for command in (encode_start_redrive(9, b"", 0), encode_change_redrive(9, PAUSE)):
        (gone,) = driver.run(command)
        assert isinstance(gone, Gone)


def test_r1_commands_that_are_none() -> None:
    driver = filled(1)
    for command in (
        encode_start_redrive(DEAD, b"terms", 0)[:-1], encode_start_redrive(DEAD, b"", 1_000_001),
        encode_change_redrive(DEAD, SET_RATE + 1), encode_change_redrive(DEAD, SET_RATE, 0, 1_000_001),
    ):  # fmt: skip
        with pytest.raises(ShardError):
            driver.run(command)
    redriver = Redriver(driver)
    redriver.start()
    whole = redriver.command()
    for length in range(1, len(whole)):
        with pytest.raises(ShardError):
            driver.lead(whole[:length])
    assert bodies(driver, DEAD) == [0]


def test_r1_the_rate_is_kept_and_a_burst_is_bounded() -> None:
    redrive = Redrive(1, b"", 100, 1_000, 0)
    moved, now_ms = 0, 1_000
    for _ in range(200):
        count = redrive.may_move(now_ms, 1000)
        redrive.note_moved(count, now_ms)
        moved += count
        now_ms += 50
    assert moved == pytest.approx(1000, rel=0.02)
    assert redrive.may_move(now_ms + 60_000, 1000) <= 101, "a leaderless minute is not made up for"
    redrive.change(PAUSED, now_ms)
    redrive.change(RUNNING, now_ms + 500)
    assert redrive.may_move(now_ms + 500, 1000) == 1
    slow = Redrive(1, b"", 1, 1_000, 0)
    slow.note_moved(slow.may_move(1_000, 1000), 1_000)
    assert [slow.may_move(ms, 1000) for ms in (1_000, 1_999, 2_000)] == [0, 0, 1]


def test_r1_a_queue_that_is_redriven_does_not_move() -> None:
    driver = filled(2)
    driver.lead(commands.encode_raise_level(8))
    redriver = Redriver(driver)
    redriver.start()
    driver.lead(commands.encode_move_out(DEAD, 9, 1))
    assert not queue_of(driver, DEAD).has_left
    redriver.finish()
    driver.lead(commands.encode_move_out(DEAD, 9, 1))
    assert queue_of(driver, DEAD).has_left
    (answer,) = driver.run(encode_start_redrive(DEAD, b"", 0))
    assert isinstance(answer, Moved)


def test_r1_with_priorities_the_order_is_that_of_the_queue() -> None:
    driver = Driver()
    driver.create(DEAD, max_priority=3)
    driver.create(WORK)
    parts: list[bytes] = []
    for number in range(9):
        header = b"\0\x3c" + bytes(10) + b"\x08\0" + bytes((number % 3,))
        commands.encode_publish(parts, (DEAD,), -1, b"\0\1k", header, b"%d" % number)
    driver.run(*parts)
    before = bodies(driver, DEAD)
    redriver = Redriver(driver, at_once=2)
    redriver.start()
    redriver.finish(lambda body: body != "4")
    assert bodies(driver, WORK) == [body for body in before if body != 4]
    assert bodies(driver, DEAD) == [4]


def copy_of(driver: Driver) -> Shard:
    copy = Shard(driver.shard.shard_id, 1, messages_per_piece=driver.shard._bounds[2])
    copy.restore(driver.shard.snapshot())
    return copy


@pytest.mark.parametrize("piece", [4096, 16])
def test_r1_x2_what_comes_in_the_entry_of_a_redrive(piece: int) -> None:
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=piece)
    driver.create(DEAD, expire_anywhere=True)
    driver.create(WORK)
    publish(driver, DEAD, range(100))
    redriver = Redriver(driver, at_once=1000)
    redriver.start()
    redriver.step(lambda body: 0 < int(body) < 99, publication(DEAD, 500))
    redriver.finish(lambda body: 0 < int(body) < 99)
    assert bodies(driver, DEAD) == [0, 99, 500]


def with_occurrences() -> Driver:
    """Three messages of one that recurs are ready: all have the same content."""
    driver = Driver()
    driver.create(DEAD, allow_schedule=True)
    driver.create(WORK)
    driver.run(recurs("a", DEAD, every_s=1, body="7"))
    for _ in range(3):
        driver.pass_ms(1000)
        driver.tick()
    return driver


@pytest.mark.parametrize("at_once", [1, 3])
def test_r1_s6_all_that_came_of_one_that_recurs_move(at_once: int) -> None:
    driver = with_occurrences()
    (entry,) = driver.shard.live_entries()
    redriver = Redriver(driver, at_once)
    redriver.start()
    redriver.finish()
    assert bodies(driver, WORK) == [7, 7, 7]
    assert redriver.redrive.moved == 3
    assert driver.shard._state.live[entry] == 1, "the one that waits"


def test_r1_s6_all_that_came_of_one_that_recurs_stay() -> None:
    driver = with_occurrences()
    redriver = Redriver(driver, at_once=2)
    redriver.start()
    for _ in range(3):
        redriver.step(lambda body: False)
    assert (redriver.redrive.state, redriver.redrive.stayed) == (DONE, 3)


def test_r1_what_came_back_meanwhile_is_not_the_place() -> None:
    """It stands behind those that came back before it, which were not looked at."""
    driver = filled(3)
    got = [driver.get_message(DEAD, no_ack=False) for _ in range(3)]
    place = ahead_of(queue_of(driver), None, driver.time_ms)
    assert not place.messages
    first = got[0]
    assert first is not None
    stayed = place.place_of(first)
    back = first.returned(GIVEN_BACK)
    line = Line()
    for message in (got[1], got[2], back):
        assert message is not None
        line.append(message)
    assert _place_behind(line, stayed) == 0
    assert _place_behind(line, place.place_of(back)) == 3


@given(st.data())
def test_r1_long_lines_whoever_leaves_and_whenever_a_replica_is_made_anew(data: st.DataObject) -> None:
    """Lines with pieces of a few messages; some have TTLs, some are got or come back meanwhile; after any step the
    replica may be one that has come from a snapshot."""
    seed = data.draw(st.integers(0, 1 << 30))
    source = random.Random(seed)
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=source.choice((2, 3, 5)))
    anywhere = source.random() < 0.3
    driver.create(DEAD, expire_anywhere=anywhere)
    driver.create(WORK)
    count = data.draw(st.integers(0, 60))
    publish(driver, DEAD, range(count))
    modulus, rest = source.randint(1, 5), source.randint(0, 4)
    redriver = Redriver(driver, at_once=source.randint(1, 12))
    redriver.start()
    got: list[int] = []

    def wants(body: str) -> bool:
        return int(body) % modulus == rest % modulus

    for _ in range(1_000):
        if redriver.redrive.state != RUNNING:
            break
        what = source.random()
        if what < 0.15:
            body = driver.get(DEAD)
            got += [] if body is None else [int(body)]
        elif what < 0.25:
            publish(driver, DEAD, range(1_000, 1_002))
        elif what < 0.35:
            redriver.step(wants, publication(DEAD, 1_002))
        elif what < 0.45:
            copy = copy_of(driver)
            assert copy.digest() == driver.shard.digest()
            driver.shard = copy
        else:
            redriver.step(wants)
    assert redriver.redrive.state == DONE
    moved = bodies(driver, WORK)
    left = [body for body in bodies(driver, DEAD) if body < 1_000]
    assert moved == [body for body in range(count) if wants(str(body)) and body not in got]
    assert left == [body for body in range(count) if not wants(str(body)) and body not in got]
    assert redriver.redrive.moved == len(moved)
    queue = queue_of(driver, DEAD)
    sizes = [message.body_length for line in queue.lines() for message in line.live()]
    assert queue.ready_bytes == sum(sizes)
    while driver.get(DEAD) is not None or driver.get(WORK) is not None:
        pass
    assert not driver.shard.live_entries()
