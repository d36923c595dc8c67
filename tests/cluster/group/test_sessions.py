"""Sessions: every batch once, in order, whatever is lost, repeated or sent to the wrong leader (RULES D6, C1)."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.group.sessions import (
    BATCH_HEADER,
    KIND_SESSION,
    EnvelopeError,
    SessionSender,
    SessionTable,
    check_batches,
    encode_batch,
)


def _sequence(batch: bytes) -> int:
    sequence: int = BATCH_HEADER.unpack_from(batch)[3]
    return sequence


def test_a_repeat_and_a_gap_are_skipped() -> None:
    table = SessionTable()
    assert table.admit(1, 7, 1) == (True, None)
    assert table.admit(1, 7, 1) == (False, None)
    assert table.admit(1, 7, 3) == (False, None)
    assert table.admit(1, 7, 2) == (True, None)


def test_a_higher_incarnation_ends_the_session_before() -> None:
    table = SessionTable()
    table.admit(1, 7, 1)
    assert table.admit(1, 8, 2) == (False, None)
    assert table.admit(1, 8, 1) == (True, (1, 7))
    assert table.admit(1, 7, 2) == (False, None)


def test_a_closed_session_takes_nothing_more() -> None:
    table = SessionTable()
    table.admit(1, 7, 1)
    assert table.close(1, 7)
    assert not table.close(1, 7)
    assert table.admit(1, 7, 2) == (False, None)
    assert table.admit(1, 8, 1) == (True, None)
    assert table.open_sessions() == [(1, 8)]


def test_rows_restore_the_same_table() -> None:
    table = SessionTable()
    table.admit(2, 1, 1)
    table.admit(1, 9, 1)
    table.close(1, 9)
    other = SessionTable()
    other.restore(table.rows())
    assert other.rows() == table.rows() == [(1, 9, 1, False), (2, 1, 1, True)]


@pytest.mark.parametrize(
    "data, what",
    [
        (b"\x01", "cut off"),
        (encode_batch(9, 1, 1, 1, b""), "kind 9"),
        (encode_batch(KIND_SESSION, 70_000, 1, 1, b""), "node 70000"),
        (encode_batch(KIND_SESSION, 1, 1, 1, b"abc")[:-1], "after the data"),
    ],
)
def test_batches_of_a_peer_are_checked(data: bytes, what: str) -> None:
    with pytest.raises(EnvelopeError, match=what):
        check_batches(data)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_or_well_formed(data: bytes) -> None:
    try:
        check_batches(data)
    except (EnvelopeError, struct.error):
        return
    assert len(data) == 0 or len(data) >= BATCH_HEADER.size


def test_answers_find_their_waiters_in_order() -> None:
    sender = SessionSender(1, 7, window=2, max_batch_bytes=100)
    heard: list[object] = []
    sender.add([b"a"], 1, True, lambda result: heard.append(("a", result)))
    sender.add([b"b"], 1, False, None)
    sender.add([b"c"], 1, False, lambda result: heard.append(("c", result)))
    sender.add([b"d"], 1, True, None)
    (batch,) = sender.unsent(0, 1000)
    assert batch.endswith(b"abcd")
    assert [answers for answers, _ in sender.applied(1)] == [True, False, True]
    assert sender.idle and sender.pending_bytes == 0


def test_the_window_bounds_what_is_on_its_way() -> None:
    sender = SessionSender(1, 7, window=2, max_batch_bytes=1)
    for _ in range(5):
        sender.add([b"x"], 1, False, None)
    assert [_sequence(batch) for batch in sender.unsent(0, 1000)] == [1, 2]
    assert sender.unsent(10, 1000) == []
    assert [_sequence(batch) for batch in sender.unsent(1000, 1000)] == [1, 2]
    sender.applied(1)
    assert [_sequence(batch) for batch in sender.unsent(1001, 1000)] == [3]


@settings(deadline=None)
@given(st.data())
def test_D6_every_command_is_applied_once_and_in_order_over_a_lossy_way(data: st.DataObject) -> None:
    """A network that loses and repeats batches, a group that now and then closes the session."""
    sender = SessionSender(1, 10, window=data.draw(st.integers(1, 4)), max_batch_bytes=3)
    table = SessionTable()
    applied: list[int] = []
    log: list[bytes] = []
    total = data.draw(st.integers(0, 30))
    for number in range(total):
        sender.add([bytes([number])], 1, False, None)
    now = 0
    for _ in range(2000):
        if sender.idle:
            break
        now += 1
        for batch in sender.unsent(now, 5):
            fate = data.draw(st.integers(0, 9)) if now < 100 else 5
            if fate == 0:
                continue
            log += [batch] * (2 if fate == 1 else 1)
        if now < 100 and data.draw(st.integers(0, 19)) == 0 and table.close(1, sender.incarnation):
            sender.restart(sender.incarnation + 1)
        while log:
            batch = log.pop(0)
            _, node, incarnation, sequence, _ = BATCH_HEADER.unpack_from(batch)
            if table.admit(node, incarnation, sequence)[0]:
                applied += list(batch[BATCH_HEADER.size :])
                if incarnation == sender.incarnation:
                    sender.applied(sequence)
    assert applied == list(range(total))
