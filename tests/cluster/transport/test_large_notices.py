"""Notices that are larger than a frame between real transports."""

import random
from functools import partial

import pytest

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.send_queue import SendQueue
from mayfly.cluster.versions import PROTOCOL_DIVIDED_NOTICES, PROTOCOL_LOWEST, VersionRange
from tests.cluster.transport.members import Member, members, run, until

LARGE = random.Random(5).randbytes(5 * limits.MIB + 3)
BEFORE = VersionRange(PROTOCOL_LOWEST, PROTOCOL_DIVIDED_NOTICES - 1)


def with_notices() -> Frame:
    frame = Frame(1)
    frame.notices += [(20, b"before"), (21, LARGE), (20, b"behind")]
    frame.apart().notices += [(22, b"apart"), (23, LARGE[1:])]
    return frame


def received(member: Member) -> list[tuple[int, bytes]]:
    return [notice for _, frame in member.frames for notice in frame.notices]


def has_all(member: Member) -> bool:
    return len(received(member)) == 5


@pytest.mark.parametrize("divides", [True, False])
def test_they_arrive_whole_and_in_order(divides: bool) -> None:
    """Also from and to a node of a release that sends them whole."""

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            two = await (group.add(2) if divides else group.add(2, protocols=BEFORE))
            await group.introduce()
            await until(lambda: one.up == {2} and two.up == {1}, "streams both ways")
            for sender, receiver in ((one, two), (two, one)):
                sender.transport.send(receiver.node_id, with_notices())
                await until(partial(has_all, receiver), "all of them")
                ordered = [notice for notice in received(receiver) if notice[0] < 22]
                apart = [notice for notice in received(receiver) if notice[0] >= 22]
                assert ordered == [(20, b"before"), (21, LARGE), (20, b"behind")]
                assert apart == [(22, b"apart"), (23, LARGE[1:])]

    run(scenario())


class Written:
    """A stream that keeps the sizes of frames. Implements `OpenStream`."""

    writable = True
    waiting_bytes = 0

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send(self, frame: list[bytes], size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def fail(self, text: str) -> None:
        raise AssertionError(text)


@pytest.mark.parametrize("divides", [True, False])
def test_no_frame_is_much_larger_than_a_frame_may_be(divides: bool) -> None:
    queue, stream = SendQueue(2, PeerCounters(), lambda group, message: None, lambda: None), Written()
    queue.stream, queue.divides_notices = stream, divides
    queue.send(with_notices())
    apart = [queue.unordered.take().approximate_bytes() for _ in range(8) if queue.unordered]
    if divides:
        assert max(stream.sizes + apart) <= limits.MAX_FRAME_BYTES + limits.NOTICE_PIECE_BYTES
        assert len(stream.sizes) > 1 and len(apart) > 1
    else:
        assert min(max(stream.sizes), max(apart)) >= len(LARGE) - 1
