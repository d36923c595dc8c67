"""Large notices in pieces: what arrives is what was sent, in its order, and what nobody sends is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster import limits, notice_kinds
from mayfly.cluster.host.divided_notices import DividedNotices, divide_large
from mayfly.cluster.host.frame import Frame

NOTICES = st.lists(
    st.tuples(st.sampled_from([1, 2, notice_kinds.FEED]), st.integers(0, 70).map(lambda size: bytes(range(size))))
)


def framed(*notices: tuple[int, bytes]) -> Frame:
    frame = Frame(7)
    frame.notices.extend(notices)
    return frame


@given(st.lists(NOTICES, max_size=4), st.integers(1, 40))
def test_notices_arrive_as_they_were_sent(turns: list[list[tuple[int, bytes]]], most_bytes: int) -> None:
    """However the pieces come in frames."""
    come = DividedNotices()
    received: list[tuple[int, bytes]] = []
    for notices in turns:
        frame = framed(*notices)
        divide_large(frame, most_bytes)
        assert all(len(data) <= most_bytes + 2 for _, data in frame.notices)
        for kind, data in frame.notices:
            part = framed((kind, data))
            come.join(part)
            received += part.notices
    assert received == [notice for notices in turns for notice in notices]


def test_what_is_small_is_left_as_it_is() -> None:
    frame = framed((1, b"small"), (2, b"s" * 40))
    divide_large(frame, 40)
    assert frame == framed((1, b"small"), (2, b"s" * 40))


@pytest.mark.parametrize("piece", [b"", b"\x01", b"\x01\x01", bytes((notice_kinds.DIVIDED, 1, 9))])
def test_pieces_that_nobody_sends_are_refused(piece: bytes) -> None:
    with pytest.raises(ValueError, match="piece of a notice"):
        DividedNotices().join(framed((notice_kinds.DIVIDED, piece)))


def test_pieces_of_two_kinds_are_refused() -> None:
    come = DividedNotices()
    come.join(framed((notice_kinds.DIVIDED, b"\x01\x00a")))
    with pytest.raises(ValueError, match="kind 2 among those of one of kind 1"):
        come.join(framed((notice_kinds.DIVIDED, b"\x02\x01b")))


def test_a_notice_without_an_end_is_refused() -> None:
    most = limits.MAX_PEER_MESSAGE_BYTES // limits.MIB
    piece = b"\x01\x00" + bytes(limits.MIB)
    come = DividedNotices()
    for _ in range(most - 1):
        come.join(framed((notice_kinds.DIVIDED, piece)))
    with pytest.raises(ValueError, match="more than"):
        come.join(framed((notice_kinds.DIVIDED, piece)))
