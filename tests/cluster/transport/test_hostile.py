"""What strangers do to the port: garbage, other protocols, nonsense in the right protocol."""

import asyncio
import random

import grpc
import grpc.aio
import pytest

from mayfly.cluster import limits, notice_kinds
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec, options
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.versions import PROTOCOL_LOWEST, VersionRange
from tests.cluster.transport.members import Member, members, run, until
from tests.waiting import BOUND_S

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
OTHER_PROTOCOLS = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01")
STRINGS = 3_000


async def throw(port: int, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        if random.random() < 0.1:
            async with asyncio.timeout(0.05):
                await reader.read(100)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


def strings() -> list[bytes]:
    source = random.Random(20)
    made: list[bytes] = []
    for number in range(STRINGS):
        noise = source.randbytes(source.choice((1, 9, 50, 300, 3000)))
        kind = number % 4
        if kind == 0:
            made.append(noise)
        elif kind == 1:
            made.append(HTTP2_PREFACE + noise)
        elif kind == 2:
            made.append(HTTP2_PREFACE + EMPTY_SETTINGS + noise)
        else:
            made.append(source.choice(OTHER_PROTOCOLS) + noise)
    return made


def test_garbage_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            made = strings()
            for start in range(0, len(made), 50):
                await asyncio.gather(*(throw(one.transport.port, data) for data in made[start : start + 50]))
                two.transport.send(1, Frame(start + 1))
            two.transport.send(1, Frame(STRINGS + 1))
            await until(lambda: one.clocks(2)[-1:] == [STRINGS + 1], "the last frame")
            assert one.events == [("up", 2)]
            assert two.events == [("up", 1)]

    run(scenario())
    # However much of it there is: what was first said of the address.
    assert len([record for record in caplog.records if record.levelname != "INFO"]) <= 1


async def call(member: Member, method: str, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """Send these messages; how the call ended."""
    async with grpc.aio.insecure_channel(member.address) as channel:
        stream = channel.stream_unary(method)()
        try:
            for message in messages:
                await stream.write(message)
            await stream.done_writing()
            await stream
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return await stream.code(), await stream.details()


def test_nonsense_in_the_right_protocol_gets_a_status(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            # Of protocol 6: without checksums, which would tell nonsense from what a node has sent.
            hello = LocalPeer(2, "node-2", "blue", protocols=VersionRange(PROTOCOL_LOWEST, PROTOCOL_LOWEST)).hello()
            greeting = codec.encode_hello(hello)
            invalid = grpc.StatusCode.INVALID_ARGUMENT
            assert await call(one, options.EXCHANGE, b"\xff\xff") == (
                invalid,
                "not a message of this protocol",
            )
            assert await call(one, options.EXCHANGE, b"") == (invalid, "the first message is not a hello")
            assert await call(one, options.EXCHANGE) == (grpc.StatusCode.OK, "")
            assert await call(one, options.EXCHANGE, greeting) == (grpc.StatusCode.OK, "")
            assert await call(one, options.EXCHANGE, greeting, b"\xff") == (
                invalid,
                "not a message of this protocol",
            )
            absurd = peer_pb2.Frame(clock_ms=-7).SerializeToString()
            assert await call(one, options.EXCHANGE, greeting, absurd) == (invalid, "clock -7")
            frame = Frame(1)
            frame.notices.append((notice_kinds.DIVIDED, b"1"))
            assert await call(one, options.EXCHANGE, greeting, codec.encode_frame(frame)) == (
                invalid,
                "a piece of a notice in 1 bytes, it has more than 2",
            )
            code, _ = await call(one, options.EXCHANGE, greeting, bytes(limits.MAX_PEER_MESSAGE_BYTES + 1))
            # (UNAVAILABLE where it came before the hello was looked at, INTERNAL as below.)
            hidden = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
            assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, *hidden)
            code, _ = await call(one, "/mayfly.peer.v1.Peer/Nothing", b"")
            # (INTERNAL where the end of the call met our writing: gRPC then hides the reason.)
            assert code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL)
            own = codec.encode_hello(LocalPeer(1, "node-1", "blue").hello())
            assert (await call(one, options.EXCHANGE, own))[0] == grpc.StatusCode.PERMISSION_DENIED
            assert one.frames == []

    run(scenario())


def test_a_stranger_that_says_nothing_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.05)
    # Its connection stays until the call has come, however late: who is cut off there is not told why.
    monkeypatch.setattr(limits, "STOP_GRACE_SECONDS", BOUND_S)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            async with grpc.aio.insecure_channel(one.address) as channel:
                stream = channel.stream_unary(options.EXCHANGE)()
                assert await stream.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    run(scenario())
