"""Frames are divided so that the peer takes each of them."""

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import Entry, EntryType, MessageType, RaftMessage


def appended(index: int, size_bytes: int) -> RaftMessage:
    entry = Entry(1, index, EntryType.NORMAL, bytes(size_bytes))
    return RaftMessage(MessageType.APP, to=2, from_=1, term=1, index=index - 1, entries=[entry])


def full_frame() -> Frame:
    frame = Frame(7)
    frame.raft = [(1, appended(index, 300)) for index in range(1, 8)]
    frame.group_clocks = [(1, 5, 4), (2, 6, 5)]
    frame.proposals = [(number, bytes(size)) for number, size in enumerate((10, 400, 2000, 10, 900))]
    frame.notices = [(number, bytes(size)) for number, size in enumerate((900, 0, 100, 3000, 1, 1, 500))]
    return frame


def test_each_part_is_small_or_holds_one_large_thing() -> None:
    whole = full_frame()
    parts = full_frame().parts(1000)
    assert len(parts) > 5
    for part in parts:
        things = len(part.raft) + len(part.proposals) + len(part.notices)
        assert part.approximate_bytes() <= 1000 + 16 or things == 1
        assert part.clock_ms == 7 and not part.empty()
    for kind in ("raft", "group_clocks", "proposals", "notices"):
        assert [each for part in parts for each in getattr(part, kind)] == getattr(whole, kind)


def test_notices_alone_are_divided() -> None:
    frame = Frame(7)
    frame.notices = [(number, bytes(300)) for number in range(100)]
    parts = frame.parts(1000)
    assert [len(part.notices) for part in parts] == [3] * 33 + [1]
    assert [kind for part in parts for kind, _ in part.notices] == list(range(100))


def test_heartbeats_go_before_what_is_large() -> None:
    """They are notices; behind a large message they would come when all of that has."""
    frame = Frame(7)
    frame.raft = [(1, RaftMessage(type=MessageType.APP, entries=[Entry(1, 1, data=bytes(100_000))]))]
    frame.proposals = [(2, bytes(100_000))]
    frame.group_clocks = [(1, 5, 4)]
    frame.notices = [(1, b"beats")]
    first, *others = frame.parts(1000)
    assert first.notices == [(1, b"beats")] and first.group_clocks == [(1, 5, 4)]
    assert not first.raft and not first.proposals and len(others) == 2


def test_a_small_frame_stays_as_it_is() -> None:
    frame = full_frame()
    assert frame.parts(1 << 20) == [full_frame()] and frame.parts(1 << 20)[0] is frame
