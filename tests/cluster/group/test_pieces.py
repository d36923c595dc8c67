"""Large commands in pieces: the sender's side, and what replicas keep of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.pieces import BORROWS, ITS_REST, LENT, PIECE, PIECES_UNDER_WAY, WHOLE, Pieces
from mayfly.cluster.group.proposals import Proposals
from mayfly.cluster.group.sessions import (
    BATCH_HEADER,
    ENTRY_HEADER,
    ENTRY_VERSION,
    KIND_CLOSE,
    KIND_INTERNAL,
    KIND_SESSION,
    EnvelopeError,
    SessionSender,
    SessionTable,
    check_batches,
    encode_batch,
)
from mayfly.cluster.group.state_layout import GroupStateError, decode_group_head, encode_group_head
from mayfly.cluster.log.group_log import part_of
from simulation.cluster.host_machine import COMMAND, KEEP, ChainMachine, encode_command, encode_large
from tests.cluster.group.own_sessions import SETTINGS
from tests.cluster.group.test_feeds import Nobody

BODY = bytes(range(25))


def sender(window: int = 4) -> SessionSender:
    return SessionSender(1, 7, window, max_batch_bytes=1000, piece_bytes=10)


def shown(batches: list[bytes]) -> list[tuple[int, int, bytes]]:
    """(form, sequence, commands) of each."""
    found: list[tuple[int, int, bytes]] = []
    for batch in batches:
        check_batches(batch)
        kind, _, _, sequence, _ = BATCH_HEADER.unpack_from(batch)
        found.append((kind & ~0x0F, sequence, batch[BATCH_HEADER.size :]))
    return found


def test_few_pieces_are_under_way_and_others_go_between() -> None:
    it = sender()
    it.add([b"before"], 6, False, None)
    it.add_large([b"head", BODY], 29, True, None)
    assert it.pending_bytes == 35
    assert shown(it.unsent(0, 1000)) == [(0, 1, b"before"), (PIECE, 2, BODY[:10]), (PIECE, 3, BODY[10:20])]
    it.add([b"behind"], 6, False, None)
    assert shown(it.unsent(0, 1000)) == [(0, 4, b"behind")]
    it.applied(1)
    assert shown(it.unsent(0, 1000)) == []
    it.applied(2)
    assert shown(it.unsent(0, 1000)) == [(PIECE, 5, BODY[20:]), (WHOLE, 6, b"head")]
    for sequence in (3, 4, 5):
        it.applied(sequence)
    assert [answers for answers, _ in it.applied(6)] == [True]
    assert it.idle and it.pending_bytes == 0 and not it.can_send


def test_ends_and_small_pieces_of_commands_in_a_row_do_not_wait_for_each_other() -> None:
    """What is bounded is how many octets are under way, and one batch of the window is left for others."""
    it = sender(window=6)
    for number in range(4):
        it.add_large([b"%d" % number, BODY[:3]], 4, False, None)
    forms = [(PIECE, 1, BODY[:3]), (WHOLE, 2, b"0"), (PIECE, 3, BODY[:3]), (WHOLE, 4, b"1"), (PIECE, 5, BODY[:3])]
    assert shown(it.unsent(0, 1000)) == forms
    it.add([b"small"], 5, False, None)
    assert shown(it.unsent(0, 1000)) == [(0, 6, b"small")]
    for sequence in range(1, 7):
        it.applied(sequence)
    assert [form for form, _, _ in shown(it.unsent(0, 1000))] == [WHOLE, PIECE, WHOLE]


def test_a_command_given_before_goes_before_its_end() -> None:
    """A channel's small message, and the large one behind it, keep their order though the window is full."""
    it = SessionSender(1, 7, 1, max_batch_bytes=3, piece_bytes=100)
    for number in range(3):
        it.add([b"%03d" % number], 3, False, None)
    it.add_large([b"head", BODY], 29, False, None)
    order: list[bytes] = []
    while not it.idle:
        ((_, sequence, commands),) = shown(it.unsent(0, 1000))
        order.append(commands)
        it.applied(sequence)
    assert order == [b"000", BODY, b"001", b"002", b"head"]


def test_neither_the_large_nor_the_small_starve() -> None:
    it = sender(window=1)
    it.add_large([b"head", BODY], 29, False, None)
    forms: list[int] = []
    for _ in range(8):
        it.add([b"small"], 5, False, None)
        ((form, sequence, _),) = shown(it.unsent(0, 1000))
        it.applied(sequence)
        forms.append(form)
    assert forms.count(0) >= 4 and forms.count(WHOLE) == 1


def test_in_a_new_session_a_command_begins_anew() -> None:
    """Pieces that were applied went with the old one."""
    it = sender()
    it.add_large([b"head", BODY], 29, False, None)
    it.unsent(0, 1000)
    it.applied(1)
    it.restart(8)
    assert it.pending_bytes == 29
    assert shown(it.unsent(1, 1000)) == [(PIECE, 1, BODY[:10]), (PIECE, 2, BODY[10:20])]
    for sequence in (1, 2):
        it.applied(sequence)
    assert shown(it.unsent(1, 1000)) == [(PIECE, 3, BODY[20:]), (WHOLE, 4, b"head")]
    it.restart(9)
    assert [form for form, _, _ in shown(it.unsent(2, 1000))] == [PIECE] * PIECES_UNDER_WAY
    assert it.pending_bytes == 29


def test_reads_count_what_goes_between_and_not_the_pieces() -> None:
    """`given_batches` is met when what was given is applied, however many pieces went before it."""
    it = sender()
    it.add_large([b"head", BODY], 29, False, None)
    it.add([b"small"], 5, False, None)
    given = it.given_batches
    for form, sequence, _ in shown(it.unsent(0, 1000)):
        it.applied(sequence)
        assert (it.applied_batches >= given) == (form == 0)
        if form == 0:
            break


@settings(deadline=None)
@given(st.data())
def test_D6_every_command_is_applied_once_over_a_lossy_way(data: st.DataObject) -> None:
    """A network that loses and repeats batches, a group that now and then closes the session. What is not large keeps
    its order; what is large comes behind what was given before it."""
    piece_bytes = data.draw(st.integers(1, 9))
    it = SessionSender(1, 10, data.draw(st.integers(1, 4)), 3, piece_bytes=piece_bytes)
    large = data.draw(st.lists(st.integers(0, 19), max_size=4, unique=True))
    for number in range(20):
        if number in large:
            it.add_large([bytes([number]), BODY], 26, False, None)
        else:
            it.add([bytes([number])], 1, False, None)
    table, applied, pieces, now = SessionTable(), list[int](), b"", 0
    for _ in range(3000):
        if it.idle:
            break
        now += 1
        for batch in it.unsent(now, 5):
            fate = data.draw(st.integers(0, 9)) if now < 60 else 5
            for again in range(0 if fate == 0 else 2 if fate == 1 else 1):
                kind, node, incarnation, sequence, _ = BATCH_HEADER.unpack_from(batch)
                if not table.admit(node, incarnation, sequence)[0]:
                    continue
                assert not again
                commands = batch[BATCH_HEADER.size :]
                if kind & PIECE:
                    pieces += commands
                    assert len(commands) <= piece_bytes
                elif kind & WHOLE:
                    assert pieces == BODY
                    pieces = b""
                    applied += commands
                else:
                    applied += commands
                it.skip(sequence)
        if now < 60 and data.draw(st.integers(0, 9)) == 0 and table.close(1, it.incarnation):
            pieces = b""
            it.restart(it.incarnation + 1)
    assert it.idle and it.pending_bytes == 0
    assert sorted(applied) == list(range(20))
    assert [number for number in applied if number not in large] == [it for it in range(20) if it not in large]
    for number in large:
        assert {each for each in range(number) if each not in large} <= set(applied[: applied.index(number)])


def test_nothing_follows_a_whole_in_its_entry() -> None:
    proposals = Proposals()
    small, whole = encode_batch(KIND_SESSION, 1, 1, 1, b"s"), encode_batch(KIND_SESSION | WHOLE, 1, 1, 2, b"w")
    for batch in (small, whole, small, b"", small):
        proposals.add(batch, 0)
    assert proposals.in_entries(1000) == [[small, whole], [small, b"", small]]


# ------------------------------------------------------------------ replicas


def replica() -> Applying:
    session = OwnSession(1, 2, 1, SETTINGS, Nobody(), None)
    session.is_told_by_replica()
    return Applying(session, ChainMachine(None, lambda index, data: None, lambda index, digest: None), None)


def entry(*batches: bytes) -> bytes:
    return ENTRY_HEADER.pack(ENTRY_VERSION, 1000, 1000) + b"".join(batches)


def batch(sequence: int, commands: bytes, form: int = 0, incarnation: int = 5) -> bytes:
    return encode_batch(KIND_SESSION | form, 1, incarnation, sequence, commands)


def applied_in_pieces(it: Applying, kind: int = KEEP) -> None:
    """Entry 5 has a whole command, whose body is in 3 and 4."""
    head, body = encode_large(kind, 1, 1, 20)
    it.apply(3, entry(batch(1, body[:8], PIECE)))
    it.apply(4, entry(batch(2, body[8:], PIECE)))
    it.apply(5, entry(batch(3, head, WHOLE)))


def test_pieces_live_as_long_as_what_they_belong_to() -> None:
    it = replica()
    applied_in_pieces(it)
    assert sorted(it.take_released()) == [] and sorted(it.state_entries()) == [3, 4, 5]
    for number in range(5):
        it.apply(6 + number, entry(batch(4 + number, encode_command(KEEP, 1, 2 + number))))
        released = it.take_released()
    assert sorted(released) == [3, 4, 5] and not it.pieces
    assert it.pieces.rests == {}


def test_the_pieces_of_what_nothing_keeps_are_free_at_once() -> None:
    it = replica()
    applied_in_pieces(it, COMMAND)
    assert sorted(it.take_released()) == [3, 4, 5] and not it.pieces


def test_the_pieces_of_a_session_that_ends_are_forgotten() -> None:
    for last in (encode_batch(KIND_CLOSE, 1, 5, 0, b""), batch(1, b"", incarnation=6)):
        it = replica()
        it.apply(3, entry(batch(1, b"piece", PIECE)))
        assert it.take_released() == [] and list(it.state_entries()) == [3]
        it.apply(4, entry(last))
        assert sorted(it.take_released()) == [3, 4]


def test_a_piece_keeps_its_entry_but_not_what_else_is_in_it() -> None:
    it = replica()
    it.apply(3, entry(batch(1, encode_command(KEEP, 1, 1)), batch(2, b"piece", PIECE)))
    for number in range(5):
        it.apply(4 + number, entry(batch(3 + number, encode_command(KEEP, 1, 2 + number))))
    assert it.take_released() == []  # 3 holds a piece of what is still to come
    it.apply(9, entry(encode_batch(KIND_CLOSE, 1, 5, 0, b"")))
    assert sorted(it.take_released()) == [3, 9]


def test_a_whole_that_is_not_the_last_of_its_entry_ends_its_session() -> None:
    it = replica()
    head, body = encode_large(COMMAND, 1, 1, 20)
    it.apply(3, entry(batch(1, body, PIECE)))
    it.apply(4, entry(batch(2, head, WHOLE), batch(3, b"")))
    assert it.sessions.open_sessions() == [] and isinstance(it.machine, ChainMachine)
    assert it.machine.counters == {}
    assert sorted(it.take_released()) == [3, 4]


def test_what_is_in_pieces_altogether_is_read_where_its_whole_is_applied() -> None:
    it, plain = replica(), replica()
    command = b"".join([encode_command(KEEP, 1, number) for number in (1, 2, 3)])
    log = {index: entry(batch(index - 2, part, PIECE)) for index, part in ((3, command[:7]), (4, command[7:]))}
    log[5] = entry(batch(3, encode_command(COMMAND, 2, 1)), batch(4, b"", WHOLE))
    it.payload = lambda index: log[index] + command
    for index, data in log.items():
        it.apply(index, data)
    plain.apply(5, entry(batch(1, encode_command(COMMAND, 2, 1)), batch(2, command)))
    assert isinstance(it.machine, ChainMachine) and isinstance(plain.machine, ChainMachine)
    assert it.machine.counters == plain.machine.counters == {1: 3, 2: 1}
    assert sorted(it.state_entries()) == [3, 4, 5] and it.sessions.open_sessions() == [(1, 5)]


def test_an_empty_whole_without_pieces_is_nothing() -> None:
    it = replica()
    it.apply(3, entry(batch(1, b"", WHOLE)))
    assert isinstance(it.machine, ChainMachine) and it.machine.counters == {}
    assert it.sessions.open_sessions() == [(1, 5)]


def test_a_part_of_pieces() -> None:
    pieces = [(3, 10, 5), (4, 0, 3), (6, 7, 20)]
    assert part_of(pieces, 0, 28) == pieces
    assert part_of(pieces, 2, 4) == [(3, 12, 3), (4, 0, 1)]
    assert part_of(pieces, 5, 3) == [(4, 0, 3)]
    assert part_of(pieces, 8, 20) == [(6, 7, 20)]
    assert part_of(pieces, 9, 20) == [] and part_of((), 0, 1) == []


def test_what_is_borrowed_may_be_a_part_of_what_stands_elsewhere() -> None:
    it = replica()
    applied_in_pieces(it)
    it.apply(6, entry(borrowing(encode_large(KEEP, 1, 2, 6)[0], 5, ITS_REST + 5, 6)))
    first, second = it.pieces.rests[5]
    assert it.pieces.rests[6] == [(first[0], first[1] + 5, 3), (second[0], second[1], 3)]
    assert it.pieces.held == {3: 2, 4: 2}


def test_a_snapshot_has_the_pieces() -> None:
    it, other = replica(), replica()
    applied_in_pieces(it)
    it.apply(6, entry(batch(4, b"begun", PIECE)))
    steps = it.state_steps()
    state = steps.step()
    while state is None:
        state = steps.step()
    reading = other.reading(state)
    while not reading.step():
        pass
    other.restore(reading, 6)
    assert other.pieces.rows() == it.pieces.rows() and other.pieces.rests == it.pieces.rests
    assert sorted(other.state_entries()) == sorted(it.state_entries()) == [3, 4, 5, 6]
    other.apply(7, entry(batch(5, b"more", PIECE)))
    assert sorted(other.state_entries()) == [3, 4, 5, 6, 7]


def test_the_state_of_a_group_without_pieces_is_as_it_was() -> None:
    assert encode_group_head(1, 2, [(1, 2, 3, 1)])[0] == 1
    rows = [(0, 1, 7, 30, 5), (9, 0, 8, 30, 5)]
    head = encode_group_head(1, 2, [(1, 2, 3, 1)], rows)
    assert head[0] == 2
    assert decode_group_head(head + b"machine") == (1, 2, [(1, 2, 3, 1)], rows, len(head))
    for end in (len(head) - 1, len(head) - 57):
        with pytest.raises(GroupStateError, match="pieces"):
            decode_group_head(head[:end])


def test_what_feeds_need_stays_and_is_no_part_of_the_state() -> None:
    pieces = Pieces()
    pieces.add(1, 3, 0, 5)
    pieces.complete(1, 4)
    withheld: list[int] = []

    def withhold(released: list[int]) -> list[int]:
        withheld.extend(released)
        return []

    assert pieces.released([4], (), withhold, ()) == []
    assert withheld == [4] and pieces.rows() == [] and pieces.rests == {4: [(3, 0, 5)]}
    assert sorted(pieces.released([], (), lambda released: withheld, ())) == [3, 4]


# ------------------------------------------------------------------ borrowed bodies


def borrowing(command: bytes, index: int, start: int, length: int) -> bytes:
    """A leader's command whose body stands in the entry at `index`."""
    return encode_batch(KIND_INTERNAL | BORROWS, 0, 0, 0, LENT.pack(index, start, length) + command)


def test_a_borrowed_body_lives_as_long_as_one_of_those_that_have_it() -> None:
    """It is not written again: the second entry has the pieces of the first, and keeps them when that is gone."""
    it = replica()
    applied_in_pieces(it)
    head, body = encode_large(KEEP, 1, 2, 20)
    it.apply(6, entry(borrowing(head, 5, ITS_REST, len(body))))
    assert it.pieces.rests[6] == it.pieces.rests[5] != []
    assert it.take_released() == []
    released: list[int] = []
    for number in range(6):
        it.apply(7 + number, entry(batch(4 + number, encode_command(KEEP, 1, 3 + number))))
        released += it.take_released()
        if 5 in released and 6 not in released:
            assert not {3, 4} & set(released), "5 is gone, 6 needs its pieces"
    assert sorted(released)[:4] == [3, 4, 5, 6] and len(set(released)) == len(released)
    assert it.pieces.rests == {}


def test_a_body_can_be_borrowed_from_an_entry_that_has_all_of_it() -> None:
    """As large messages were written before there were pieces."""
    it = replica()
    head, body = encode_large(KEEP, 1, 1, 20)
    whole = entry(batch(1, head + body))
    it.apply(3, whole)
    it.apply(4, entry(borrowing(encode_large(KEEP, 1, 2, 20)[0], 3, len(whole) - 20, 20)))
    assert it.pieces.rests == {4: [(3, len(whole) - 20, 20)]}
    for number in range(4):
        it.apply(5 + number, entry(batch(2 + number, encode_command(KEEP, 1, 3 + number))))
        assert not {3, 4} & set(it.take_released())
        assert {3, 4} <= set(it.state_entries())
    it.apply(9, entry(batch(6, encode_command(KEEP, 1, 7))))
    assert sorted(it.take_released()) == [3, 4]
    assert not {3, 4} & set(it.state_entries())


def test_a_borrowed_body_is_part_of_the_state() -> None:
    it, other = replica(), replica()
    applied_in_pieces(it)
    it.apply(6, entry(borrowing(encode_large(KEEP, 1, 2, 20)[0], 5, ITS_REST, 20)))
    steps = it.state_steps()
    state = steps.step()
    while state is None:
        state = steps.step()
    reading = other.reading(state)
    while not reading.step():
        pass
    other.restore(reading, 6)
    assert other.pieces.rests == it.pieces.rests and other.pieces.held == it.pieces.held == {3: 2, 4: 2}


def test_what_borrows_from_an_entry_in_which_nothing_lives_is_no_command() -> None:
    """It was applied before: then what it takes is alive elsewhere, and its body may be gone."""
    it = replica()
    applied_in_pieces(it, COMMAND)
    whole = entry(batch(4, b"".join(encode_large(COMMAND, 1, 2, 20))))
    it.apply(6, whole)
    released = it.take_released()
    for number, (index, start) in enumerate(((5, ITS_REST), (6, len(whole) - 20))):
        it.apply(7 + number, entry(borrowing(encode_large(KEEP, 1, 3, 20)[0], index, start, 20)))
        released += it.take_released()
    assert isinstance(it.machine, ChainMachine) and it.machine.counters == {1: 2}
    assert sorted(released) == [3, 4, 5, 6, 7, 8]
    assert list(it.state_entries()) == [] and not it.pieces


@pytest.mark.parametrize(
    "batches",
    [
        (borrowing(encode_large(KEEP, 1, 2, 20)[0], 5, ITS_REST, 21),),
        (borrowing(encode_large(KEEP, 1, 2, 20)[0], 5, ITS_REST, 20), batch(4, b"")),
        (encode_batch(KIND_INTERNAL | BORROWS, 0, 0, 0, b"short"),),
    ],
    ids=["another length", "not the last", "too short"],
)
def test_what_cannot_be_borrowed_is_passed_over(batches: tuple[bytes, ...]) -> None:
    it = replica()
    applied_in_pieces(it)
    before = dict(it.pieces.held)
    it.apply(6, entry(*batches))
    assert it.pieces.held == before and sorted(set(it.state_entries())) == [3, 4, 5]
    assert it.sessions.open_sessions() == [(1, 5)]


def test_nothing_follows_what_borrows_in_its_entry() -> None:
    proposals = Proposals()
    small, borrows = encode_batch(KIND_SESSION, 1, 1, 1, b"s"), borrowing(b"c", 5, ITS_REST, 20)
    for each in (small, borrows, small):
        proposals.add(each, 0)
    assert proposals.in_entries(1000) == [[small, borrows], [small]]


def test_no_peer_gives_what_borrows() -> None:
    with pytest.raises(EnvelopeError, match="kind"):
        check_batches(borrowing(b"c", 5, ITS_REST, 20))


def test_what_has_bounds_of_its_own_is_no_backlog() -> None:
    it = sender()
    it.add_large([b"head", BODY], 29, False, None, counts=False)
    assert it.pending_bytes == 0
    it.unsent(0, 1000)
    it.applied(1)
    it.restart(8)
    assert it.pending_bytes == 0
    for _ in range(2):
        for _, sequence, _ in shown(it.unsent(1, 1000)):
            it.applied(sequence)
    assert it.pending_bytes == 0 and it.idle


def test_what_is_in_pieces_altogether_is_asked_about_as_a_whole() -> None:
    """After a snapshot took the place of its entry: the state tells what became of it."""
    it = sender()
    it.add_large([b"command" * 3], 21, True, lambda _: None)
    sent: list[bytes] = []
    for now_ms in range(1, 20):
        sent = it.unsent(now_ms, 1_000)
        for kind, sequence, _ in shown(sent):
            if kind == PIECE:
                it.skip(sequence)
            else:
                assert it.unseen(sequence) == [b"command" * 3]
                return
    raise AssertionError("its WHOLE was not sent")

