"""The frame stream's octets: frames in any pieces, greetings that are none, tickets of others."""

import hmac
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster import limits
from mayfly.cluster.transport.framing import (
    GREETING_BYTES,
    LENGTH,
    MAGIC,
    TICKET_BYTES,
    FrameCutter,
    NotFrames,
    Tickets,
    check_beginning,
    decode_greeting,
    encode_answer,
    encode_greeting,
)
from mayfly.cluster.versions import VersionRange

MOST_BYTES = 1000
TICKET = bytes(range(TICKET_BYTES))
SPOKEN = VersionRange(6, 8)


def in_pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data, cut at these places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        yield data[start:end]


def octets(frames: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 10_000)))
def test_frames_come_out_as_they_went_in_whatever_the_pieces(frames: list[bytes], cuts: list[int]) -> None:
    cutter = FrameCutter(MOST_BYTES)
    got: list[bytes] = []
    for piece in in_pieces(octets(frames), cuts):
        got += cutter.cut(piece)
    assert got == frames
    assert len(cutter._gathered) == 0


@given(st.lists(st.binary(max_size=40)), st.integers(MOST_BYTES + 1, 2**32 - 1), st.lists(st.integers(0, 10_000)))
def test_a_frame_that_is_too_long_is_refused_before_any_of_it_is_kept(
    frames: list[bytes], length: int, cuts: list[int]
) -> None:
    cutter = FrameCutter(MOST_BYTES)
    got: list[bytes] = []

    def cut_all() -> None:
        for piece in in_pieces(octets(frames) + LENGTH.pack(length) + bytes(2 * MOST_BYTES), cuts):
            got.extend(cutter.cut(piece))

    with pytest.raises(NotFrames, match=f"frame of {length} bytes, at most {MOST_BYTES}"):
        cut_all()
    assert got == frames[: len(got)]
    assert len(cutter._gathered) <= MOST_BYTES + LENGTH.size


@given(st.lists(st.binary(max_size=3 * MOST_BYTES), max_size=20))
def test_garbage_costs_no_more_than_a_frame(pieces: list[bytes]) -> None:
    cutter = FrameCutter(MOST_BYTES)
    try:
        for piece in pieces:
            assert all(len(frame) <= MOST_BYTES for frame in cutter.cut(piece))
            assert len(cutter._gathered) < MOST_BYTES + LENGTH.size
    except NotFrames:
        pass


def test_a_large_frame_in_small_pieces_is_not_gone_through_again_and_again() -> None:
    cutter = FrameCutter()
    data = octets([bytes(2_000_000), b"next"])
    got: list[bytes] = []
    for start in range(0, len(data), 1000):
        got += cutter.cut(data[start : start + 1000])
    assert [len(frame) for frame in got] == [2_000_000, 4]


def test_limits_are_those_of_the_protocol() -> None:
    with pytest.raises(NotFrames):
        FrameCutter().cut(LENGTH.pack(limits.MAX_PEER_MESSAGE_BYTES + 1))
    assert FrameCutter().cut(LENGTH.pack(limits.MAX_PEER_MESSAGE_BYTES)) == []


@given(st.integers(1, 2**63 - 1), st.binary(min_size=TICKET_BYTES, max_size=TICKET_BYTES))
def test_a_greeting_says_who_comes_with_which_ticket(node_id: int, ticket: bytes) -> None:
    greeting = encode_greeting(7, node_id, ticket)
    assert len(greeting) == GREETING_BYTES
    assert decode_greeting(greeting, SPOKEN) == (7, node_id, ticket)
    for length in range(GREETING_BYTES + 1):
        check_beginning(greeting[:length], SPOKEN)


@given(st.binary(min_size=1, max_size=100))
def test_what_is_no_greeting_is_known_by_its_first_octets(data: bytes) -> None:
    start = data[: len(MAGIC)]
    if MAGIC.startswith(start):
        check_beginning(start, SPOKEN)
        return
    with pytest.raises(NotFrames, match="not a node of this protocol"):
        check_beginning(data, SPOKEN)


def test_other_versions_and_impossible_nodes_are_told_so() -> None:
    for version in (5, 9):
        greeting = encode_greeting(version, 3, TICKET)
        with pytest.raises(NotFrames, match=f"version {version} of the frame stream, 6 to 8 is spoken here"):
            check_beginning(greeting[: len(MAGIC) + 1], SPOKEN)
    for node_id in (0, 2**63, 2**64 - 1):
        with pytest.raises(NotFrames, match=f"greeting of node {node_id}"):
            decode_greeting(encode_greeting(6, node_id, TICKET), SPOKEN)
    assert encode_answer(6) == MAGIC + bytes((6,))


def given_out() -> Tickets[str]:
    tickets: Tickets[str] = Tickets(5.0)
    tickets.give(TICKET, 3, "three", 100.0)
    tickets.give(TICKET[::-1], 4, "four", 100.0)
    return tickets


def test_a_ticket_is_good_once() -> None:
    tickets = given_out()
    assert tickets.redeem(TICKET, 3, 104.9) == "three"
    with pytest.raises(NotFrames, match="unknown ticket"):
        tickets.redeem(TICKET, 3, 104.9)
    assert tickets.redeem(TICKET[::-1], 4, 104.9) == "four"


def test_a_ticket_of_another_node_is_refused_and_good_no_more() -> None:
    tickets = given_out()
    with pytest.raises(NotFrames, match="node 4 shows the ticket of node 3"):
        tickets.redeem(TICKET, 4, 101.0)
    with pytest.raises(NotFrames, match="unknown ticket"):
        tickets.redeem(TICKET, 3, 101.0)


def test_a_ticket_does_not_last() -> None:
    tickets = given_out()
    with pytest.raises(NotFrames, match="too late"):
        tickets.redeem(TICKET, 3, 105.1)
    tickets.withdraw(TICKET[::-1])
    with pytest.raises(NotFrames, match="unknown ticket"):
        tickets.redeem(TICKET[::-1], 4, 101.0)
    tickets.withdraw(TICKET)
    assert len(tickets) == 0


@given(st.binary(max_size=TICKET_BYTES))
def test_no_other_ticket_is_good(shown: bytes) -> None:
    tickets = given_out()
    if shown not in (TICKET, TICKET[::-1]):
        with pytest.raises(NotFrames, match="unknown ticket"):
            tickets.redeem(shown, 3, 101.0)
    assert len(tickets) == 2


def test_tickets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ticket is compared, whole, with a function made for it, also when an earlier one was right."""
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    tickets = given_out()
    tickets.redeem(TICKET, 3, 101.0)
    assert compared == [TICKET, TICKET[::-1]]
