"""Frames go beside the Exchange: both open or none, only for who has a ticket, and what is unordered stays on gRPC."""

import asyncio
import random
import socket
from collections.abc import Callable
from dataclasses import replace

import grpc
import pytest
import uvloop

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import Entry, EntryType, MessageType, RaftMessage
from mayfly.cluster.transport import framing
from mayfly.cluster.transport.framing import LENGTH, encode_answer, encode_greeting
from mayfly.cluster.transport.incoming import Incoming
from mayfly.cluster.versions import PROTOCOL_LOWEST, PROTOCOLS
from tests.cluster.transport.members import Member, Members, members, run, until
from tests.cluster.transport.raw_peer import RawPeer
from tests.cluster.transport.wire import Wire
from tests.waiting import BOUND_S

TICKET = bytes(framing.TICKET_BYTES)
GREETING = encode_greeting(PROTOCOL_LOWEST, 2, TICKET)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def one_that_knows(group: Members, *peers: int) -> Member:
    """A member that knows these peers, at addresses where nobody is."""
    one = await group.add(1)
    await one.transport.set_peers(dict.fromkeys(peers, "127.0.0.1:9"))
    return one


def incoming_of(member: Member) -> Incoming:
    incoming = member.transport._frame_listener.redeem.__self__  # type: ignore[attr-defined]
    assert isinstance(incoming, Incoming)
    return incoming


async def two_with_a_wire(group: Members) -> tuple[Member, Member, Wire]:
    """Members 1 and 2; what 1 says on gRPC goes by the wire."""
    two, one = await group.add(2), await group.add(1)
    wire = Wire(two.transport.port)
    await wire.start()
    await two.transport.set_peers({1: one.address})
    await one.transport.set_peers({2: f"127.0.0.1:{wire.port}"})
    await until(lambda: 2 in one.up, "up")
    return one, two, wire


def connections(member: Member) -> int:
    """How many connections for frames there are at a member, with and without a ticket."""
    listener = member.transport._frame_listener
    assert listener is not None
    return len(listener._connections)


def test_frames_come_on_the_stream_and_what_is_unordered_on_the_exchange() -> None:
    """D6: dead letters between nodes travel over gRPC."""

    async def scenario() -> None:
        async with members() as group:
            one, two, wire = await two_with_a_wire(group)
            greeted_bytes = wire.bytes_there
            for number in range(1, 51):
                sent = Frame(number)
                sent.proposals.append((1, b"%d" % number + bytes(1000)))
                one.transport.send(2, sent)
            await until(lambda: two.clocks(1)[-1:] == [50], "ordered frames")
            assert wire.bytes_there - greeted_bytes < 1000, "frames went over gRPC"
            for number in range(51, 101):
                sent = Frame(number)
                sent.apart().proposals.append((2, b"%d" % number + bytes(1000)))
                sent.apart().notices.append((4, b"%d" % number))
                one.transport.send(2, sent)
            await until(lambda: sum(len(frame.notices) for _, frame in two.frames) == 50, "unordered frames")
            assert wire.bytes_there - greeted_bytes > 50 * 1000, "dead letters did not go over gRPC"
            for group_id, numbers in ((1, range(1, 51)), (2, range(51, 101))):
                got = [data for _, frame in two.frames for id, data in frame.proposals if id == group_id]
                assert got == [b"%d" % number + bytes(1000) for number in numbers]
            await wire.stop()

    run(scenario())


def test_an_unordered_frame_that_comes_late_does_not_turn_the_peers_clock_back() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2)
            peer = await RawPeer(one, 2).connect()
            peer.send(Frame(5000))
            await until(lambda: one.clocks(2) == [5000], "a frame")
            await peer.send_apart(Frame(1000))
            await until(lambda: len(one.frames) == 2, "a late frame")
            assert one.clocks(2)[1] >= 5000
            await peer.close()

    run(scenario())


@pytest.mark.usefixtures("nobody_asks_for_a_sign_of_life")
@pytest.mark.parametrize("end", ["exchange", "frames"])
def test_when_one_of_the_two_ends_the_peer_is_down_and_both_are_made_again(end: str) -> None:
    async def scenario() -> None:
        async with members() as group:
            two, one = await group.add(2), await group.add(1)
            wire = Wire(two.transport.port)
            await wire.start()
            await two.transport.set_peers({1: one.address})
            await one.transport.set_peers({2: f"127.0.0.1:{wire.port}"})
            await until(lambda: 2 in one.up and 1 in two.up, "up")
            if end == "exchange":
                wire.cut()
            else:
                listener = two.transport._frame_listener
                assert listener is not None
                next(iter(listener._connections)).abort()
            await until(lambda: one.events[:2] == [("up", 2), ("down", 2)], "down")
            await until(lambda: one.events == [("up", 2), ("down", 2), ("up", 2)], "up again")
            one.transport.send(2, Frame(7))
            await until(lambda: two.clocks(1)[-1:] == [7], "a frame")
            await until(lambda: connections(two) == 1, "the end of the older connection")
            assert two.events == [("up", 1)]
            await wire.stop()

    run(scenario())


def test_what_waits_for_the_socket_is_merged() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            for number in range(1, 101):
                sent = Frame(number)
                sent.proposals.append((number, bytes(100_000)))
                one.transport.send(2, sent)
            await until(lambda: two.clocks(1)[-1:] == [100], "the last frame")
            assert [id for _, frame in two.frames for id, _ in frame.proposals] == list(range(1, 101))
            assert one.transport.counters[2].frames_sent == len(two.frames) < 50
            assert one.transport.counters[2].frames_dropped == 0

    run(scenario())


def test_nobody_gets_in_without_the_right_ticket(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2, 3)
            two, three = await RawPeer(one, 2).greet(), await RawPeer(one, 3).greet()
            assert await RawPeer(one, 2).show(TICKET) == b""
            assert await two.show(three.ticket) == b""
            assert await three.show(three.ticket) == b"", "a ticket that was shown by another"
            assert await two.show(two.ticket) == encode_answer(PROTOCOL_LOWEST)
            again = RawPeer(one, 2)
            assert await again.show(two.ticket) == b""
            two.send(Frame(7))
            await until(lambda: one.clocks(2) == [7], "a frame of the one with the ticket")
            await two.close()
            await three.close()

    run(scenario())
    # Once for each host, however many ways there are to be turned away, until one from there is let in.
    of_strangers = [text.partition("127.0.0.1: ")[2] for text in warnings(caplog) if " 127.0.0.1: " in text]
    assert [text.split(" (")[0] for text in of_strangers] == ["unknown ticket", "unknown ticket"]


def test_a_ticket_ends_with_its_exchange_and_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.2)

    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2)
            two = await greeted_in_time(one)
            # Who never brings frames is turned away.
            assert await two.call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert await two.show(two.ticket) == b""
            await two.close()

    run(scenario())


async def greeted_in_time(one: Member) -> RawPeer:
    """Peer 2, whose hello a busy machine did not keep from being heard: who comes too late with that has no ticket."""
    while True:
        peer = RawPeer(one, 2)
        try:
            return await peer.greet()
        except (KeyError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await peer.close()


def test_a_newer_stream_ends_the_older_one_with_all_that_belongs_to_it() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2)
            older = await RawPeer(one, 2).connect()
            newer = await RawPeer(one, 2).connect()
            assert await older.hung_up()
            assert await older.call.code() == grpc.StatusCode.ABORTED
            newer.send(Frame(9))
            await until(lambda: one.clocks(2) == [9], "a frame of the newer")
            await older.close()
            await newer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (LENGTH.pack(limits.MAX_PEER_MESSAGE_BYTES + 1), "at most 268435456 are taken"),
        (LENGTH.pack(2) + b"\xff\xff", "not a message of this protocol"),
    ],
)
def test_nonsense_behind_a_right_ticket_ends_the_stream_with_a_reason(
    data: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2)
            two = await RawPeer(one, 2).connect()
            two.send(Frame(1))
            await until(lambda: one.clocks(2) == [1], "a frame")
            two.writer.write(data)
            assert await two.hung_up()
            assert await two.call.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert text in await two.call.details()
            assert one.clocks(2) == [1]
            await two.close()

    run(scenario())
    assert any(text in said for said in warnings(caplog))


@pytest.mark.parametrize(
    "data",
    [b"", GREETING[:20], b"\x16\x03\x01", b"GET / HTTP/1.1", GREETING + b"x"],
)
def test_who_says_nothing_or_too_little_or_too_much_has_to_go(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.1)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            stranger = RawPeer(one, 2)
            assert await stranger.say(data) == b""
            await until(lambda: connections(one) == 0, "no connections")
            await stranger.close()

    run(scenario())


def test_of_too_many_without_a_ticket_the_eldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_STRANGERS_OF_ADDRESS", 5)
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 3600.0)  # It goes for their number, not for its silence.

    async def scenario() -> None:
        async with members() as group:
            one = await one_that_knows(group, 2)
            strangers = [socket.create_connection(("127.0.0.1", one.transport.frames_port)) for _ in range(5)]
            await until(lambda: connections(one) == 5, "strangers")
            two = await RawPeer(one, 2).connect()
            two.send(Frame(7))
            await until(lambda: one.clocks(2) == [7], "a frame")
            assert connections(one) == 5, "four strangers and a peer"
            strangers[0].settimeout(BOUND_S)
            assert strangers[0].recv(1) == b"", "the eldest was not closed"
            for stranger in strangers:
                stranger.close()
            await two.close()

    run(scenario())


def noise(source: random.Random) -> bytes:
    """Bare, behind the beginning of a greeting, and as the whole of one."""
    data = source.randbytes(source.choice((1, 9, 50, 300, 3000)))
    greeting = encode_greeting(PROTOCOL_LOWEST, 2, source.randbytes(framing.TICKET_BYTES))
    return source.choice((data, framing.MAGIC + data, greeting, greeting[: source.randrange(len(greeting))]))


def test_a_peer_that_answers_late_at_its_port_for_frames_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_MS", 200)

    async def scenario() -> None:
        async with members() as group:
            one, two = await group.add(1), await group.add(2)
            await two.transport.set_peers({1: "127.0.0.1:9"})
            # The port that the peer is told stands for one whose loop does not come to the greeting.
            silent = socket.create_server(("127.0.0.1", 0))
            incoming = incoming_of(two)
            right, incoming.frames_port = incoming.frames_port, silent.getsockname()[1]
            await one.transport.set_peers({2: two.address})
            await until(lambda: one.transport._links[2]._attempts.count >= 2, "another attempt")
            incoming.frames_port = right
            monkeypatch.undo()
            await until(lambda: 2 in one.up, "up when the peer answers again")
            silent.close()

    run(scenario())


def test_a_stream_that_breaks_while_a_dead_letter_is_written_is_made_again() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two, wire = await two_with_a_wire(group)
            wire.takes.clear()
            link = one.transport._links[2]
            for clock_ms in range(24):
                frame = Frame(clock_ms)
                frame.apart().proposals.append((2, bytes(1 << 20)))
                one.transport.send(2, frame)
            await until(lambda: link._writing is not None, "gRPC takes no more")
            listener = two.transport._frame_listener
            assert listener is not None
            next(iter(listener._connections)).abort()
            await until(lambda: one.events == [("up", 2), ("down", 2)], "down")
            wire.takes.set()
            await until(lambda: one.events[2:] == [("up", 2)], "up again")
            await wire.stop()

    run(scenario())


def test_what_is_unordered_takes_no_room_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PEER_QUEUE_BYTES", 2 << 20)

    async def scenario() -> None:
        async with members() as group:
            one, two, wire = await two_with_a_wire(group)
            wire.takes.clear()
            dropped = one.transport.counters[2]
            while not dropped.frames_dropped:
                frame = Frame(0)
                frame.apart().proposals.append((2, bytes(1 << 20)))
                one.transport.send(2, frame)
                await asyncio.sleep(0)
            before = dropped.frames_dropped
            for clock_ms in range(1, 4):
                frame = Frame(clock_ms)
                frame.proposals.append((2, bytes(600 << 10)))
                one.transport.send(2, frame)
            assert dropped.frames_dropped == before
            await until(lambda: two.clocks(1)[-1:] == [3], "all that is in order")
            wire.takes.set()
            await wire.stop()

    run(scenario())


def test_what_a_leader_sends_all_groups_in_one_turn_comes_in_frames_of_bounded_size() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.add(1), await group.add(2)
            await two.transport.set_peers({1: one.address})
            await one.transport.set_peers({2: two.address})
            await until(lambda: 2 in one.up, "up")
            frame = Frame(7)
            frame.notices.append((1, b"word"))
            for number in range(24):
                entry = Entry(1, number + 1, EntryType.NORMAL, bytes(1 << 20))
                append = RaftMessage(
                    MessageType.APP, to=2, from_=1, term=1, log_term=min(number, 1), index=number, entries=[entry]
                )
                frame.raft.append((number % 3, append))
            one.transport.send(2, frame)
            await until(lambda: sum(len(each.raft) for _, each in two.frames) == 24, "all")
            sizes = [each.approximate_bytes() for _, each in two.frames]
            assert max(sizes) <= limits.MAX_FRAME_BYTES
            got = [message.entries[0].index for _, each in two.frames for _, message in each.raft]
            assert got == list(range(1, 25))
            assert [each.notices for _, each in two.frames if each.notices] == [[(1, b"word")]]

    run(scenario())


def test_garbage_at_the_port_for_frames_does_no_harm() -> None:
    strings = 3_000

    async def throw(port: int, data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            if len(data) % 3 == 0:
                async with asyncio.timeout(0.05):
                    await reader.read(100)
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()

    async def scenario() -> None:
        source = random.Random(21)
        async with members() as group:
            one, two = await group.full_mesh(2)
            port = one.transport.frames_port
            for start in range(0, strings, 50):
                await asyncio.gather(*(throw(port, noise(source)) for _ in range(50)))
                two.transport.send(1, Frame(start + 1))
            two.transport.send(1, Frame(strings + 1))
            await until(lambda: one.clocks(2)[-1:] == [strings + 1], "the last frame")
            assert one.events == [("up", 2)]
            assert two.events == [("up", 1)]
            await until(lambda: connections(one) == 1, "only the peer's connection")

    run(scenario())


def test_a_taken_port_for_frames_is_an_error() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            other = Member(2)
            frames_address = ("127.0.0.1", one.transport.frames_port)
            other.transport._settings = replace(other.transport._settings, frames_address=frames_address)
            with pytest.raises(OSError, match=rf"can't listen on 127\.0\.0\.1:{one.transport.frames_port} for frames"):
                await other.transport.start()
            await other.transport.stop()

    run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_fails_when_the_peer_reads_again_ends_once(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """What waited is written when the peer reads again; if that fails, asyncio must not be in the middle of a write."""
    from mayfly.cluster.transport.frame_stream import FrameSender

    class Once(FrameSender):
        lost = 0

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost += 1
            super().connection_lost(exc)

    async def scenario() -> None:
        errors: list[dict[str, object]] = []
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda loop, context: errors.append(context))
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.setblocking(False)
            greeting = encode_greeting(PROTOCOL_LOWEST, 2, TICKET)
            sender = Once(PROTOCOL_LOWEST, greeting, lambda: sender.fail("it fails"), lambda: None, b"proof")
            await running.create_connection(lambda: sender, *listening.getsockname())
            peer, _ = await running.sock_accept(listening)
        with peer:
            peer.setblocking(False)
            await running.sock_sendall(peer, encode_answer(PROTOCOL_LOWEST, b"proof"))
            await sender.accepted
            while sender.writable:
                sender.send([bytes(100_000)], 100_000)
            async with asyncio.timeout(BOUND_S):
                while not sender.lost:
                    try:
                        peer.recv(1_000_000)
                    except BlockingIOError:
                        await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert sender.lost == 1
        assert errors == []

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), BOUND_S))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_connections_work_on_every_loop(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The sockets alone: gRPC's own threads belong to the one loop of all tests."""
    from mayfly.cluster.transport.complaints import Complaints
    from mayfly.cluster.transport.frame_stream import FrameConnection, FrameListener, FrameSender

    class Holder:
        checked, proof = True, b"proof"

        def __init__(self) -> None:
            self.got: list[bytes] = []
            self.ended = False

        def attached(self, connection: FrameConnection) -> None:
            pass

        def take(self, data: bytes) -> None:
            self.got.append(data)

        def refuse(self, text: str) -> None:
            raise AssertionError(text)

        def damaged(self, text: str) -> None:
            raise AssertionError(text)

        def lost(self) -> None:
            self.ended = True

    async def scenario() -> None:
        holder = Holder()
        listener = FrameListener(lambda version, node_id, ticket: holder, PROTOCOLS, Complaints(), None)
        await listener.start("127.0.0.1", 0)
        greeting = encode_greeting(PROTOCOL_LOWEST, 2, TICKET)
        sender = FrameSender(PROTOCOL_LOWEST, greeting, lambda: None, lambda: None, holder.proof, holder.checked)
        running = asyncio.get_running_loop()
        await running.create_connection(lambda: sender, "127.0.0.1", listener.port)
        await sender.accepted
        sent = [bytes([size % 251]) * size for size in (0, 1, 5, 1000, 100_000, 3_000_000)] * 3
        for frame in sent:
            while not sender.writable:  # noqa: ASYNC110 - the callback is the subject of another test
                await asyncio.sleep(0.001)
            sender.send([frame] if len(frame) < 5 else [frame[:1], frame[1:]], len(frame))
        await until(lambda: len(holder.got) == len(sent), "frames")
        assert holder.got == sent
        sender.abort()
        await until(lambda: holder.ended, "the end")
        await listener.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
