"""Bits that flip between two nodes: nothing that was damaged is used, and all of it comes in the end."""

import random
from hashlib import sha256

import grpc
import grpc.aio
import pytest

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec, framing, joining, options
from mayfly.cluster.transport.checksum import Metadata, checksum_of, is_damaged
from mayfly.cluster.transport.framing import Damaged, FrameCutter, NotFrames, frame_header
from mayfly.cluster.transport.joining import JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS
from tests.cluster.transport.members import Member, Members, members, run, until
from tests.cluster.transport.raw_peer import RawPeer
from tests.cluster.transport.snapshots import MadeSnapshot, connected_by_wire, send
from tests.cluster.transport.test_frame_stream import incoming_of
from tests.cluster.transport.wire import Wire

FRAMES = [b"one", b"", b"three of them, and this is the longest"]


def with_bit_flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def every_flip(data: bytes) -> list[bytes]:
    return [with_bit_flipped(data, bit) for bit in range(8 * len(data))]


# --- every bit of what is said --------------------------------------------------------------------------


def test_whatever_bit_of_a_stream_flips_no_frame_that_was_not_sent_comes_of_it() -> None:
    sent = b"".join(frame_header([frame], len(frame), True) + frame for frame in FRAMES)
    assert FrameCutter(checked=True).cut(sent) == FRAMES
    for data in every_flip(sent):
        got, damaged = [], False
        cutter = FrameCutter(checked=True)
        try:
            # Cut in two, so that what is whole before the damage comes out.
            got += cutter.cut(data[:20])
            got += cutter.cut(data[20:])
        except Damaged:
            damaged = True
        assert (got in ([], FRAMES[:1]), damaged) == (True, True)


def test_a_length_that_is_wrong_is_not_waited_for() -> None:
    header = frame_header([bytes(100)], 100, True)
    for bit in range(32):
        with pytest.raises(Damaged):
            FrameCutter(checked=True).cut(with_bit_flipped(header, bit))


def test_too_long_a_frame_is_refused_as_before() -> None:
    with pytest.raises(NotFrames, match="at most 10 are taken"):
        FrameCutter(10, checked=True).cut(frame_header([bytes(11)], 11, True))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12, 13, 1000])
def test_frames_with_checksums_come_whatever_the_pieces_are(size: int) -> None:
    sent = b"".join(frame_header([frame], len(frame), True) + frame for frame in FRAMES)
    cutter = FrameCutter(checked=True)
    got = [frame for at in range(0, len(sent), size) for frame in cutter.cut(sent[at : at + size])]
    assert got == FRAMES
    assert len(cutter._gathered) == 0


def test_no_bit_of_a_frame_on_the_exchange_may_flip() -> None:
    sent = framing.encode_apart(b"a dead letter")
    assert framing.decode_apart(sent) == b"a dead letter"
    for data in (*every_flip(sent), b"", sent[:3], sent[:-1]):
        with pytest.raises(Damaged):
            framing.decode_apart(data)


def test_a_sealed_message_has_no_bit_that_may_flip() -> None:
    sent = codec.encode_hello(LocalPeer(2, "node-2", "blue", "data", 7, "h:1", (5, 6)).hello())
    assert not is_damaged(sent, checksum_of(sent))
    assert not is_damaged(sent, ()), "an older node seals nothing"
    assert all(is_damaged(data, checksum_of(sent)) for data in every_flip(sent))


# --- between two nodes ----------------------------------------------------------------------------------


class Flipper:
    """Flips one bit in some of the pieces that a wire carries."""

    def __init__(self, seed: int, every: int) -> None:
        self._source = random.Random(seed)
        self._every = every
        self.flipped = 0

    def change(self, data: bytes) -> bytes:
        if self._source.randrange(self._every):
            return data
        self.flipped += 1
        return with_bit_flipped(data, self._source.randrange(8 * len(data)))


def body(number: int) -> bytes:
    octets = b"%d " % number + random.Random(number).randbytes(2000)
    return octets + sha256(octets).digest()


def is_whole(data: bytes) -> bool:
    return sha256(data[:-32]).digest() == data[-32:]


async def with_wires(group: Members) -> tuple[Member, Member, Wire, Wire]:
    """Members 1 and 2; what 1 says goes by wires: on gRPC, and its frames."""
    two = await group.add(2)
    of_frames = Wire(two.transport.frames_port)
    await of_frames.start()
    incoming_of(two).frames_port = of_frames.port
    one, of_grpc = await connected_by_wire(group, two)
    return one, two, of_grpc, of_frames


def bodies(member: Member) -> list[bytes]:
    return [data for _, frame in member.frames for _, data in frame.proposals]


async def something_or_a_break(one: Member, two: Member, before: int) -> None:
    await until(lambda: len(two.frames) > before or 2 not in one.up, "frames, or a break")


@pytest.mark.parametrize("apart", [False, True], ids=["frames", "dead letters"])
def test_nothing_that_was_damaged_between_nodes_is_used_and_all_comes_in_the_end(
    apart: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost with a connection is sent again by who sent it, as Raft and the sessions do."""
    monkeypatch.setattr(limits, "RECONNECT_FIRST_MS", 1)

    async def scenario() -> None:
        async with members() as group:
            one, two, of_grpc, of_frames = await with_wires(group)
            flipper = Flipper(5, 6)
            (of_grpc if apart else of_frames).changes = flipper.change
            missing = {body(number) for number in range(60)}
            rounds = 0
            while missing or flipper.flipped < 5:
                rounds += 1
                await until(lambda: 2 in one.up, "up")
                for each in missing or {body(0)}:
                    frame = Frame(rounds)
                    (frame.apart() if apart else frame).proposals.append((1, each))
                    one.transport.send(2, frame)
                await something_or_a_break(one, two, len(two.frames))
                missing -= set(bodies(two))
            assert [data for data in bodies(two) if not is_whole(data)] == []
            of_grpc.changes = of_frames.changes = bytes
            damaged = two.transport.counters[1].damaged
            if not apart:
                assert damaged > 0
            said = [record.getMessage() for record in caplog.records if "a frame was damaged" in record.getMessage()]
            assert len([text for text in said if text.startswith("node 1 at")]) == damaged
            await of_grpc.stop()
            await of_frames.stop()

    run(scenario())


def test_a_damaged_dead_letter_is_told_and_counted() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            peer = await RawPeer(one, 2, PROTOCOL_CHECKSUMS).connect()
            await peer.send_apart(Frame(7))
            await until(lambda: one.clocks(2) == [7], "a frame that is whole")
            frame = Frame(8)
            frame.notices.append((4, b"a dead letter"))
            await peer.call.write(with_bit_flipped(framing.encode_apart(codec.encode_frame(frame)), 100))
            assert await peer.call.code() is grpc.StatusCode.UNAVAILABLE
            assert "was damaged on its way" in await peer.call.details()
            assert one.transport.counters[2].damaged == 1
            assert one.clocks(2) == [7]
            await peer.close()

    run(scenario())


def test_a_snapshot_comes_whole_though_pieces_of_it_are_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECONNECT_FIRST_MS", 1)

    async def scenario() -> None:
        async with members() as group:
            one, two, of_grpc, of_frames = await with_wires(group)
            made, flipper = MadeSnapshot(20), Flipper(8, 10)
            of_grpc.changes = flipper.change
            tries = 0
            while not await send(one, made):
                tries += 1
            # An answer may be what was damaged: then it comes again, and Raft drops the second.
            assert made.arrived(two) >= 1
            assert tries, "no bit was flipped"
            await of_grpc.stop()
            await of_frames.stop()

    run(scenario())


def test_what_is_said_first_in_a_call_and_is_damaged_changes_nothing() -> None:
    """A hello with a bit flipped in the name of the data would send its node away for good."""

    async def scenario() -> None:
        async with members() as group:
            one, made = await group.add(1), MadeSnapshot(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            hello = codec.encode_hello(LocalPeer(2, "node-2", "blue", "data", 7, "h:1", (5, 6)).hello())
            async with grpc.aio.insecure_channel(one.address) as channel:
                for method, sent in ((options.EXCHANGE, hello), (options.SEND_SNAPSHOT, made.header())):
                    call = channel.stream_unary(method)(metadata=checksum_of(sent))
                    await call.write(with_bit_flipped(sent, 100))
                    assert await call.code() is grpc.StatusCode.UNAVAILABLE, "to be tried again at once"
                    assert "was damaged on its way" in await call.details()
            assert one.frames == []

    run(scenario())


def test_a_damaged_question_for_a_place_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            sound, request = checksum_of, JoinRequest("seven", "h:7", "data")
            for number, again in ((0, True), (1, True), (2, False)):
                summed: list[bytes] = []

                def other_checksum(data: bytes, number: int = number, summed: list[bytes] = summed) -> Metadata:
                    summed.append(data)  # That of the question is made first, then the answer to it.
                    return sound(data + b"x" if len(summed) == number + 1 else data)

                monkeypatch.setattr(joining, "checksum_of", other_checksum)
                with pytest.raises(JoinRefused) as refused:
                    await ask_to_join(one.address, request, None)
                assert refused.value.again is again
                assert ("was damaged on its way" in str(refused.value)) is again

    run(scenario())
