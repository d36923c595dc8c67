"""Lines of messages: the same as a list, whatever of it is packed; long ones take little memory."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import PIECE, Line
from mayfly.node.shard.message import FAILED, Message, deadline_ms
from mayfly.node.shard.moment import AT_ONCE, MomentLine, MomentPart, parts_of
from mayfly.node.shard.packed import BODY_LENGTH, HELD_PIECES, Packed, hold, pack, pack_column, unpack_column
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import Driver, attach, publish

MIB = 1024 * 1024
NUMBERS = st.integers(-(2**62), 2**62)


def plain(messages: list[Message]) -> list[str]:
    return [repr(message) for message in messages]


def message(number: int) -> Message:
    """A message that is like no other."""
    due_ms = 5000 if number % 3 else -1
    return Message(number, 10 * number, 3, 4, number % 7, 1000 + number, due_ms, number % 2, number % 4 - 1)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_a_column_comes_back_as_it_was(numbers: list[int]) -> None:
    column = pack_column(numbers)
    assert list(unpack_column(column, len(numbers))) == numbers
    assert column == pack_column(list(numbers))


@pytest.mark.parametrize("column", [b"", b"x" * 9, "text", None, pack_column([1, 2, 3, 4]), b"\0" * 8 + b"\x03\0\0\0"])
def test_what_is_no_column_is_refused(column: object) -> None:
    with pytest.raises(ShardError, match="column"):
        list(unpack_column(column, 3))
    with pytest.raises(ShardError):
        Packed(0, [1] * 9)
    with pytest.raises(ShardError):
        Packed(1, [1] * 8)


STEPS = st.lists(st.tuples(st.sampled_from(["append", "take", "between", "leave", "retime"]), st.integers(0, 12)))


@given(STEPS, st.integers(1, 3))
def test_a_line_is_a_list(steps: list[tuple[str, int]], piece: int) -> None:
    line, items, made, gone = Line(piece), list[Message](), 0, 0
    for step, size in steps:
        fresh = [message(made + number) for number in range(size)]
        made += size
        if step == "append":
            for each in fresh:
                line.append(each)
            items += fresh
        elif step == "leave":
            left = line.leave()
            assert (plain(left.live()), left.timed) == (plain(items), sum(each.deadline_ms >= 0 for each in items))
            items, gone = [], gone + len(items)
        elif step == "retime":
            queue_ttl_ms = size - 1  # -1: none
            line.retime(queue_ttl_ms)
            gone += len(items)
            items = [each.with_deadline(deadline_ms(each.enqueued_ms, each.ttl_ms, queue_ttl_ms)) for each in items]
        elif step == "between":
            assert plain(line.between(size // 3, size)) == plain(items[size // 3 : size])
        else:
            taken = line.items[line.head : line.head + size]
            line.timed -= sum(each.deadline_ms >= 0 for each in taken)
            line.advance(len(taken))
            assert plain(taken) == plain(items[: len(taken)])
            items, gone = items[len(taken) :], gone + len(taken)
        assert plain(line.live()) == plain(items)
        assert (line.count(), line.gone) == (len(items), gone)
        assert line.timed == sum(each.deadline_ms >= 0 for each in items)
        assert bool(line.items) == bool(items)
        if items:
            assert repr(line.first()) == repr(items[0])
    assert plain(pack(items).messages() if items else []) == plain(items)


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=60), st.integers(1, 3))
def test_what_is_put_back_is_where_it_was(steps: list[tuple[int, bool]], piece: int) -> None:
    """In whatever order it comes, with others leaving meanwhile, also into a line that was packed."""
    line, items = Line(piece), [message(number) for number in range(60, 80)]
    for first in items:
        line.append(first)
    seen: dict[int, str] = {}
    for number, takes in steps:
        if takes and items:
            line.timed -= line.first().deadline_ms >= 0
            line.advance(1)
            del items[0]
        line.put_back(message(number))
        items = sorted([*items, message(number)], key=lambda each: (each.enqueued_ms, each.index, each.offset))
        assert plain(line.live()) == plain(items)
        assert line.timed == sum(each.deadline_ms >= 0 for each in items)
        for place, each in enumerate(plain(line.live())):
            assert seen.setdefault(line.gone + place, each) == each, "a place says which message it is"


def plain_parts(parts: list[MomentPart]) -> list[str]:
    return plain([each for part in parts for each in (part.packed.messages() if part.packed else part.messages())])


def test_what_is_held_is_packed_when_others_have_come_and_is_the_same() -> None:
    given = [[message(100 * number + each) for each in range(5)] for number in range(HELD_PIECES + 3)]
    held = [hold(messages) for messages in given]
    assert [piece.is_held() for piece in held] == [False] * 3 + [True] * HELD_PIECES
    for piece, messages in zip(held, given, strict=True):
        assert plain(piece.messages()) == plain(messages)
        assert plain([piece.message(place) for place in range(5)]) == plain(messages)
        assert piece.columns == pack(messages).columns and not piece.is_held()
        assert piece.timed() == pack(messages).timed()


@given(st.integers(10, 60), st.integers(0, 60))
def test_a_moment_stays_as_it_was_whatever_leaves(total: int, leaving: int) -> None:
    """Snapshots and forecasts are written long after the moment they show."""
    line = Line(2)
    for number in range(total):
        line.append(message(number))
    before = plain(line.live())
    parts = parts_of(line)
    for _ in range(min(leaving, total)):
        line.timed -= line.first().deadline_ms >= 0
        line.advance(1)
    for number in range(40):  # and what is held gives way to others
        hold([message(number)])
    assert plain_parts(parts) == before


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=40, unique=True).map(sorted),
    st.lists(st.tuples(st.booleans(), st.integers(1, 6))),
)
def test_what_returns_is_seen_as_it_was_while_it_becomes_ready(ids: list[int], turns: list[tuple[bool, int]]) -> None:
    """Some at a time, however much of it is taken before or in between, and by whoever looks besides."""
    returning = ReturningMessages({id: message(id) for id in ids}, FAILED, None)
    returning.take(ids[0] % 3)
    expected = [id for id in ids if id in {each.index for each in returning.held()}]
    first, seen = returning.read(), []
    for reads, most in turns:
        if reads:
            seen += first.next(most)
        else:
            returning.take(most)
            returning.read().next(1)
    while more := first.next(2):
        seen += more
    assert [each.index for each in seen] == expected
    assert not first.taken and first not in returning._readers


def test_a_moment_of_what_returns_is_taken_without_looking_at_it() -> None:
    """A million messages come back at once; their moment is made of parts as they are come to."""
    count = 3 * AT_ONCE + 1
    line = Line()
    line.append_returning(ReturningMessages({id: message(id) for id in range(count)}, FAILED, None))
    moment = MomentLine(line)
    for _ in range(3):
        line.settle_returning()
    line.retime(1)
    parts = [part.count for part in moment.parts()]
    assert sum(parts) == count and max(parts) <= AT_ONCE
    deadlines = [part.deadlines().listed() for part in moment.parts()]
    assert [ms for each in deadlines for ms in each] == [message(id).deadline_ms for id in range(count)]
    assert len(list(moment.let_go())) == len(parts) and not list(moment.parts())


def long_queue(messages: int, ttl_ms: int = -1, piece: int = PIECE) -> Driver:
    """A queue with so many, a hundred an entry."""
    driver = Driver()
    driver.shard = Shard(3, 1, messages_per_piece=piece)
    driver.create(1)
    for number in range(0, messages, 100):
        driver.run(*(publish(f"{number + each:06d}", ttl_ms=ttl_ms) for each in range(100)))
        driver.pass_ms(7)
    return driver


def test_a_message_deep_in_a_queue_takes_a_few_bytes() -> None:
    """In memory and in a snapshot; it was 200."""
    driver = long_queue(40 * PIECE)
    line = driver.shard.queue(1).ready  # type: ignore[union-attr]
    assert line.packed_count >= 36 * PIECE
    state = driver.shard.snapshot()
    assert len(state) / line.count() < 16
    tracemalloc.start()
    try:
        other = Shard(3, 1)
        other.restore(state)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The three pieces at the ends are objects.
    assert kept / line.count() < 40
    assert other.digest() == driver.shard.digest()
    assert set(other.live_entries()) == set(driver.shard.live_entries())


def test_a_long_queue_is_delivered_in_order() -> None:
    driver = long_queue(2000, piece=16)
    driver.run(attach(1, 5, no_ack=True))
    assert driver.delivered(5) == [f"{number:06d}" for number in range(2000)]
    assert not driver.shard.live_entries()


def test_a_long_queue_expires_in_order() -> None:
    driver = long_queue(2000, ttl_ms=200, piece=16)
    driver.pass_ms(200)
    driver.tick()
    driver.tick()
    assert driver.ready(1) == 0 and not driver.shard.live_entries()


def test_one_entry_delivers_a_bounded_number_of_bytes() -> None:
    """To a consumer that takes everything; the rest comes at once, with the entries that follow."""
    driver = Driver()
    driver.create(1)
    for number in range(12):
        driver.run(publish(f"{number:02d}" + "x" * MIB))
    driver.run(attach(1, 5))
    sizes = []
    while found := driver.delivered(5):
        sizes.append(sum(map(len, found)))
        driver.tick()
    assert sum(sizes) == 12 * (MIB + 2)
    assert len(sizes) == 3 and max(sizes) <= 5 * MIB


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300), st.booleans()), min_size=1), st.booleans())
def test_what_packed_messages_hold_is_counted_without_unpacking_them(
    rows: list[tuple[int, int, bool]], have_deadlines: bool
) -> None:
    messages = [
        Message(index, place, 3, 4, length, 5, 9 if have_deadlines else -1, 0)
        for place, (index, length, _) in enumerate(rows)
    ]
    piece = pack(messages)
    for place, (_, _, leaves) in enumerate(rows):
        if leaves and piece.count > 1:
            piece.leave(place)
    left = [True] * len(messages) if piece.there is None else list(piece.there)
    there = [each for each, is_there in zip(messages, left, strict=True) if is_there]
    indexes = [index for index, count in piece.references() for _ in range(count)]
    assert indexes == [each.index for each in there]
    assert piece.total(BODY_LENGTH) == sum(each.body_length for each in there)
    assert piece.timed() == (len(there) if have_deadlines else 0)
