"""Deadlines of streams against the schedule that streams had first, and messages that leave a line together against
messages that leave it one by one (RULES J2, C1)."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.shard.commands import encode_delete_queue
from mayfly.node.shard.deadlines import DeadlineRun, Deadlines, deadline_of, key_of, offset_of
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import Packed
from mayfly.node.shard.run import ScheduleRun
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.snapshot.deadlines_row import deadlines_row, restore_deadlines
from mayfly.node.shard.snapshot.message_columns import MessageColumns
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.snapshot.schedule_row import restore_schedule, schedule_row
from mayfly.node.shard.snapshot.writer import ShardSnapshotInSteps
from mayfly.node.shard.state import State
from mayfly.node.shard.stream_line import Leaving, Unpacked, count_off, find, read, remove
from tests.node.shard.driver import Driver
from tests.node.shard.test_stream_ttls import kept

LEVEL = 9


def keys_of(messages: list[Message]) -> list[int]:
    return [key_of(each.enqueued_ms, each.index) for each in messages]


def cut_of(deadlines: Deadlines) -> list[list[int]]:
    return [deadlines.young(), *[run.keys(run.count()) for run in deadlines.runs]]


def cut_of_schedule(schedule: Schedule) -> list[list[int]]:
    return [keys_of(schedule.young), *[keys_of(run.live()) for run in schedule.runs]]


def state_of() -> State:
    state = State(1, set(), 2000, 2000, 4096, False, 2000, 100)
    state.level = LEVEL
    return state


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 60)),
        st.tuples(st.just("put"), st.integers(0, 1 << 40)),
        st.tuples(st.just("put many"), st.integers(1, 30)),
        st.tuples(st.just("take"), st.integers(0, 30)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 16), st.integers(0, 1 << 30))
def test_c1_deadlines_leave_and_are_cut_as_by_a_schedule(steps: list[tuple[str, int]], piece: int, seed: int) -> None:
    """C1: replicas whose releases differ have the same state."""
    chance = Random(seed)
    deadlines, schedule, offset, now_ms = Deadlines(piece), Schedule(piece), 0, 0
    for kind, number in steps:
        if kind == "take":
            now_ms += chance.randrange(20)
            taken = deadlines.take(now_ms, number)
            assert taken.in_order() == keys_of(schedule.take(now_ms, number))
        else:
            for _ in range(number if kind == "put many" else 1):
                deadline_ms = now_ms + (chance.randrange(40) if kind == "put many" else number)
                deadlines.put(deadline_ms, offset)
                schedule.put(Message(offset, 0, 0, 0, 0, deadline_ms, -1, 0))
                offset += chance.choice((1, 1, 1, 1 << 20))
        assert (deadlines.count, deadlines.next_due_ms()) == (schedule.count, schedule.next_due_ms())
        assert cut_of(deadlines) == cut_of_schedule(schedule)


@pytest.mark.parametrize("same", [1, 50, 100_000])
def test_what_is_due_at_once_leaves_in_order_within_the_bound(same: int) -> None:
    deadlines, chance = Deadlines(64), Random(3)
    put = [key_of(chance.randrange(100_000) // same * same, offset) for offset in range(5000)]
    for key in put:
        deadlines.put(deadline_of(key), offset_of(key))
    put.sort()
    taken: list[int] = []
    while deadlines.count:
        some = deadlines.take(100_000, 37).in_order()
        assert some == put[len(taken) : len(taken) + 37]
        taken += some
    assert taken == put


@pytest.mark.parametrize("seed", range(10))
def test_c1_what_becomes_a_run_while_others_are_near_leaves_in_its_order(seed: int) -> None:
    chance, deadlines, there, offset = Random(seed), Deadlines(16), list[int](), 0
    for now_ms in range(0, 5_000, 20):
        for _ in range(chance.randrange(12)):
            key = key_of(now_ms + chance.randrange(500), offset)
            deadlines.put(deadline_of(key), offset)
            there.append(key)
            offset += 1
        there.sort()
        due = sum(deadline_of(key) <= now_ms for key in there)
        assert deadlines.take(now_ms, 7).in_order() == there[: min(7, due)]
        del there[: min(7, due)]
        assert deadlines.count == len(there)
    assert sorted(key for keys in cut_of(deadlines) for key in keys) == there


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(2, 16), st.integers(0, 1 << 30))
def test_t13_runs_that_are_looked_at_come_back_without_what_has_left(count: int, piece: int, seed: int) -> None:
    chance, deadlines = Random(seed), Deadlines(piece)
    there = {key_of(chance.randrange(1000), offset) for offset in range(count)}
    for key in sorted(there, key=offset_of):
        deadlines.put(deadline_of(key), offset_of(key))
    swept = 0
    for _ in range(20):
        keys = deadlines.next_run(swept)
        kept = [key for key in keys if chance.random() < 0.7]
        there -= set(keys) - set(kept)
        deadlines.put_run(kept)
        swept = (kept or keys or [0])[0] + 1
        assert sorted(key for keys in cut_of(deadlines) for key in keys) == sorted(there)
        assert deadlines.count == len(there)
    assert deadlines.take(1000, count).in_order() == sorted(there)


def test_a_deadline_takes_a_few_bytes() -> None:
    run = DeadlineRun(sorted(Random(1).randrange(60_000) for _ in range(2048)), list(range(2048)))
    assert run._times.itemsize == 2
    assert run._offsets.itemsize == 2


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 50), st.integers(1, 16), st.integers(0, 1 << 30))
def test_c1_snapshots_are_those_of_a_schedule(count: int, taken: int, piece: int, seed: int) -> None:
    """C1: a replica of the release before reads them, and this one reads that one's."""
    chance, deadlines, schedule = Random(seed), Deadlines(piece), Schedule(piece)
    for offset in range(count):
        deadline_ms = chance.randrange(1 << 34)
        deadlines.put(deadline_ms, offset)
        schedule.put(Message(offset, 0, 0, 0, 0, deadline_ms, -1, 0))
    deadlines.take(1 << 35, taken)
    schedule.take(1 << 35, taken)
    pace = WorkPace(10)
    columns = MessageColumns(1000, LEVEL)
    rows = deadlines_row(deadlines, columns), schedule_row(schedule, columns)
    while columns.step():
        pass
    read = Schedule(piece)
    for _ in restore_schedule(state_of(), read, rows[0], pace, counts_references=False):
        pass
    assert cut_of_schedule(read) == cut_of(deadlines)
    assert all(isinstance(run, ScheduleRun) and run.head < len(run.items) for run in read.runs)
    for row in rows:
        again = Deadlines(piece)
        for _ in restore_deadlines(state_of(), again, row, pace):
            pass
        assert cut_of(again) == cut_of(deadlines)
        assert (again.count, again.next_due_ms()) == (deadlines.count, deadlines.next_due_ms())


def line_of(count: int, piece: int, seed: int) -> Line:
    """A stream's line; there are gaps between offsets."""
    chance, line, offset = Random(seed), Line(piece), 0
    for number in range(count):
        line.append(Message(number // 3, number % 3, 3, 4, number % 7, number, -1, offset))
        offset += chance.choice((1, 1, 1, 2, 9))
    return line


def shape_of(line: Line) -> list[object]:
    """All that is in a line, and how it is cut."""
    shape: list[object] = [[each.stream_offset for each in line.items[line.head :]], line.packed_count]
    for piece in line.packed:
        assert isinstance(piece, Packed)
        piece.settle()
        there = None if piece.there is None else bytes(piece.there)
        shape.append((piece.size, piece.count, there, list(piece.column(7))))
    return [*shape, [each.stream_offset for each in line.back], line.gone]


def all_departed(line: Line, departed: list[tuple[int, int]]) -> Counter[int]:
    """In which entries those stand that have left."""
    count_off(line)
    found = Counter[int]()
    for index, count in departed:
        found[index] += count
    return found


@settings(deadline=None)
@given(
    st.integers(0, 400), st.integers(1, 40), st.integers(1, 60), st.sampled_from(["anywhere", "front", "near"]),
    st.integers(0, 1 << 30),
)
def test_c1_what_leaves_together_leaves_as_one_by_one(
    count: int, piece: int, at_once: int, where: str, seed: int
) -> None:
    """C1: whether messages leave together is nothing that a state may say."""
    chance, together, alone = Random(seed), line_of(count, piece, seed), line_of(count, piece, seed)
    unpacked, unpacked_alone = Unpacked(), Unpacked()
    most = 10 * count + 10
    departed = list[tuple[int, int]]()
    leaving, indexes = Leaving(together, unpacked, departed), list[int]()
    while together.count():
        there = [each.stream_offset for each in alone.live()]
        some = min(len(there), at_once)
        if where == "front":
            offsets = there[:some]
        elif where == "near":
            start = chance.randrange(len(there) - some + 1)
            offsets = there[start : start + some]
        else:
            offsets = chance.sample(there, some)
        if chance.random() < 0.5:
            offsets += [offset for offset in chance.sample(range(most), min(5, most)) if offset not in offsets]
        chance.shuffle(offsets)
        if together.packed:
            piece_read = together.packed[0]
            assert isinstance(piece_read, Packed)
            unpacked.of(piece_read)
        leaving.begin()
        gone = [remove(alone, unpacked_alone, offset) for offset in offsets]
        missing = leaving.leave_together(offsets, are_there=None not in gone)
        assert missing == [offset for offset, message in zip(offsets, gone, strict=True) if message is None]
        assert leaving.body_bytes == sum(each.body_length for each in gone if each is not None)
        assert together.count() == alone.count()
        indexes += [each.index for each in gone if each is not None]
        if together.count() and chance.random() < 0.7:
            # Nobody has asked yet who is there.
            continue
        assert shape_of(together) == shape_of(alone)
        left = [each.stream_offset for each in together.live()]
        assert left == sorted(set(there) - set(offsets))
        for offset in left[:3]:
            message = find(together, offset)
            assert message is not None
            assert message.stream_offset == offset
    assert all_departed(together, departed) == Counter(indexes)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 1 << 30))
def test_c1_what_leaves_together_leaves_as_one_by_one_whatever_happens_between(
    count: int, piece: int, seed: int
) -> None:
    """C1: whatever else leaves, comes and is read between the entries in which many leave together."""
    chance, together, alone = Random(seed), line_of(count, piece, seed), line_of(count, piece, seed)
    unpacked, unpacked_alone = Unpacked(), Unpacked()
    most = 3 * count + 10
    soon = chance.sample(range(most), most // 2)
    departed = list[tuple[int, int]]()
    leaving, indexes = Leaving(together, unpacked, departed), list[int]()
    at_once = 1 + len(soon) // 8
    for start in range(0, len(soon), at_once):
        some = soon[start : start + at_once]
        if together.packed:
            piece_read = together.packed[0]
            assert isinstance(piece_read, Packed)
            unpacked.of(piece_read)
        leaving.begin()
        there = {each.stream_offset for each in alone.live()}
        if chance.random() < 0.7:
            some = [offset for offset in some if offset in there]
        missing = leaving.leave_together(some, are_there=there.issuperset(some))
        gone = [remove(alone, unpacked_alone, offset) for offset in some]
        assert missing == [offset for offset, message in zip(some, gone, strict=True) if message is None]
        assert leaving.body_bytes == sum(each.body_length for each in gone if each is not None)
        indexes += [each.index for each in gone if each is not None]
        for offset in chance.sample(range(most), min(7, most)):
            between = remove(together, unpacked, offset), remove(alone, unpacked_alone, offset)
            assert (between[0] is None) == (between[1] is None)
        for number in range(chance.randrange(3)):
            for line in (together, alone):
                line.append(Message(number, 0, 0, 0, 1, most, -1, most + 2 * start + number))
        assert together.count() == alone.count()
        if chance.random() < 0.5:
            assert shape_of(together) == shape_of(alone)
        for offset in chance.sample(range(most), min(5, most)):
            assert (find(together, offset) is None) == (find(alone, offset) is None)
            assert [each.stream_offset for each in read(together, unpacked, offset, 3)] == [
                each.stream_offset for each in read(alone, unpacked_alone, offset, 3)
            ]
    assert shape_of(together) == shape_of(alone)
    assert all_departed(together, departed) == Counter(indexes)


def test_what_left_is_counted_off_when_it_is_an_eighth_of_a_piece() -> None:
    """Each entry is let go of a little later than it could be: not much."""
    line, unpacked = line_of(400, 64, 1), Unpacked()
    departed = list[tuple[int, int]]()
    leaving = Leaving(line, unpacked, departed)
    leaving.begin()
    piece = line.packed[0]
    assert isinstance(piece, Packed)
    for left, offset in enumerate(list(piece.column(7))[: piece.size // 2 - 1], 1):
        assert leaving.leave(offset, is_there=True)
        assert left - sum(count for _, count in departed) < piece.size // 8


def test_entries_of_a_stream_that_is_deleted_are_let_go_of() -> None:
    """What left pieces and was not counted off yet goes with the rest: at once, or bit by bit (RULES C4)."""
    for count in (400, 30_000):
        driver = Driver()
        driver.shard = Shard(3, 1, messages_per_piece=256)
        driver.create(1, is_stream=True, ttl_retroactive=True)
        for _ in range(count // 50):
            driver.run(*[kept("body", 1_000 if place == 0 else 50_000) for place in range(50)])
        driver.pass_ms(2_000)
        driver.tick()
        pieces = [piece for piece in driver.shard._state.queues[1].ready.packed if isinstance(piece, Packed)]
        assert any(piece._leavers is not None for piece in pieces) or count < 1_000
        driver.run(encode_delete_queue(1, False, False))
        while driver.shard.due_messages(driver.time_ms):
            driver.tick()
        assert not driver.shard.live_entries()


def test_what_is_near_is_taken_from_the_runs_once_for_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, chance, asked = Deadlines(1024), Random(4), [0]
    for offset in range(40_000):
        deadlines.put(chance.randrange(60_000), offset)
    counted = DeadlineRun.due

    def due(run: DeadlineRun, until_ms: int) -> int:
        asked[0] += 1
        return counted(run, until_ms)

    monkeypatch.setattr(DeadlineRun, "due", due)
    runs, taken = len(deadlines.runs), 0
    for now_ms in range(0, 20_000, 100):
        taken += deadlines.take(now_ms, 2000).count()
    assert taken > 10_000
    assert asked[0] < 200 * runs // 4


def test_deadlines_of_a_stream_are_written_in_steps() -> None:
    """A step for each run at most: a node has to answer its peers between them, however many there are (RULES C4)."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=64)
    driver.create(1, is_stream=True, ttl_retroactive=True)
    for number in range(40):
        driver.run(*[kept("body", 1_000 + (number * 37 + place * 101) % 50_000) for place in range(50)])
    making = ShardSnapshotInSteps(driver.shard._state, 50)
    steps = 1
    while (made := making.step()) is None:
        steps += 1
    assert made == driver.shard.snapshot()
    assert steps > 25
