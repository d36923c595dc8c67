"""A connection between nodes that has ended is gone with all that belongs to it, and does not wait for the collector.

The collector does not come to what is old (`node.shell.process`): what holds itself would stay for as long as the node
runs.
"""

import asyncio
import gc
import shutil
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import uvloop

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.dialing import Dialer
from mayfly.cluster.transport.frame_stream import FrameConnection, FrameListener, FrameSender
from mayfly.cluster.transport.framing import TICKET_BYTES, encode_greeting
from mayfly.cluster.transport.incoming import PeerStream
from mayfly.cluster.transport.outgoing import PeerLink
from mayfly.cluster.transport.peer_port import PeerPort, PortConnection, _Inside
from mayfly.cluster.transport.send_queue import SendQueue
from mayfly.cluster.transport.snapshot_sender import SnapshotSender
from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.cluster.versions import PROTOCOL_LOWEST, PROTOCOLS
from tests.cluster.transport.members import Member, members, run, until
from tests.cluster.transport.test_peer_transport import snapshot_message
from tests.cluster.transport.test_strangers import port_of
from tests.cluster.transport.test_tls import make_authority, make_node
from tests.waiting import BOUND_S

CLASSES = frozenset(
    (Dialer, FrameConnection, FrameSender, PeerLink, PeerStream, PortConnection, SendQueue, SnapshotSender, _Inside)
)
OF_GRPC = frozenset(("grpc.aio._call", "grpc.aio._channel"))
"""Channels and calls of those that connect."""
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> PeerTlsFiles | None:
    """None without the openssl command."""
    if shutil.which("openssl") is None:
        return None
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = make_authority(folder, "authority")
    return PeerTlsFiles(*make_node(folder, authority, "node", "IP:127.0.0.1"), authority)


@pytest.fixture(params=["plain", "TLS"])
def tls(request: pytest.FixtureRequest, files: PeerTlsFiles | None) -> PeerTlsFiles | None:
    if request.param == "plain":
        return None
    if files is None:
        pytest.skip("needs the openssl command")
    return files


@pytest.fixture(scope="module", autouse=True)
def no_collector() -> Iterator[None]:
    """Nor does anybody look at what was there before."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def those_there() -> Counter[type]:
    types = Counter(map(type, gc.get_objects()))
    return Counter({each: types[each] for each in types if each in CLASSES or each.__module__ in OF_GRPC})


async def all_gone(before: Counter[type]) -> None:
    """Wait until there is no more than before."""
    began_s = asyncio.get_running_loop().time()
    while left := those_there() - before:
        assert asyncio.get_running_loop().time() - began_s < BOUND_S, left
        await asyncio.sleep(0.01)


async def is_given_up(one: Member, two: Member) -> None:
    await one.transport.set_peers({})
    await two.transport.set_peers({})


async def is_given_up_while_a_snapshot_is_on_its_way(one: Member, two: Member) -> None:
    one.transport.send(2, Frame(1))
    await until(lambda: two.clocks(1) == [1], "a frame")
    sent = Frame(2)
    sent.raft.append((4, snapshot_message(1, 2, bytes(16 * limits.MIB))))
    one.transport.send(2, sent)
    await until(lambda: two.transport.counters[1].bytes_received > limits.MIB // 2, "the first pieces")
    await is_given_up(one, two)


async def stops(one: Member, two: Member) -> None:
    await two.transport.stop()
    await one.transport.set_peers({})


async def is_cut_off(one: Member, two: Member) -> None:
    for port_connection in list(port_of(one)._all):
        port_connection.abort()
    for connection in list(one.transport._frame_listener._connections):
        connection.abort()
    await is_given_up(one, two)


@pytest.mark.parametrize("ends", [is_given_up, is_given_up_while_a_snapshot_is_on_its_way, stops, is_cut_off])
def test_nothing_stays_of_a_peer(
    tls: PeerTlsFiles | None, ends: Callable[[Member, Member], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=tls, snapshot_bytes_per_second=limits.MIB)
            before = those_there()
            for _ in range(2):
                two = await group.add(2, tls=tls)
                one.events.clear()
                await group.introduce()
                await until(partial(knows, one, 2), "up")
                await until(partial(knows, two, 1), "up")
                await ends(one, two)
                group.all.remove(two)
                await two.transport.stop()
            await all_gone(before)

    run(scenario())


def knows(member: Member, peer: int) -> bool:
    return peer in member.up


class Behind:
    """In the place of gRPC's server: hears what is said at a port, and answers it."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()
        self.writers.remove(writer)


def the_peer_closes(peer: asyncio.StreamWriter, _: PeerPort, __: Behind) -> None:
    peer.close()


def the_peer_breaks_off(peer: asyncio.StreamWriter, _: PeerPort, __: Behind) -> None:
    peer.transport.abort()


def the_port_turns_it_away(_: asyncio.StreamWriter, port: PeerPort, __: Behind) -> None:
    for connection in list(port._all):
        connection.turn_away("it has to go")


def the_server_closes(_: asyncio.StreamWriter, __: PeerPort, behind: Behind) -> None:
    for writer in list(behind.writers):
        writer.close()


@pytest.mark.parametrize(("says", "heard"), [(b"", False), (b"hello", False), (b"hello", True)])
@pytest.mark.parametrize(
    "ends", [the_peer_closes, the_peer_breaks_off, the_port_turns_it_away, the_server_closes]
)
@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_stays_of_a_connection_at_the_peer_port(
    loop: Callable[[], asyncio.AbstractEventLoop],
    ends: Callable[[asyncio.StreamWriter, PeerPort, Behind], None],
    says: bytes,
    heard: bool,
) -> None:
    """The port alone: gRPC's own threads belong to the one loop of all tests."""

    async def comes_and_goes(port: PeerPort, behind: Behind) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(says)
        if heard:
            assert await reader.readexactly(len(says)) == says
        await until(lambda: port._all, "the connection")
        ends(writer, port, behind)
        if ends is the_server_closes and not heard:
            writer.close()  # The server may know nothing of it.
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def scenario() -> None:
        port, behind = PeerPort("127.0.0.1:0", Complaints()), Behind()
        await port.open()
        server = await asyncio.start_unix_server(behind.hear, port._path)
        port.begin()
        before = those_there()
        for _ in range(2):
            await comes_and_goes(port, behind)
        await all_gone(before)
        await port.close()
        server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 2 * BOUND_S))


class Holder:
    """Has the frames of a connection, and holds it no longer than it lasts."""

    checked, proof = True, b"proof"

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None

    def attached(self, connection: FrameConnection) -> None:
        self.connection = connection

    def take(self, data: bytes) -> None:
        raise AssertionError("a frame")

    def refuse(self, text: str) -> None:
        raise AssertionError(text)

    def damaged(self, text: str) -> None:
        raise AssertionError(text)

    def lost(self) -> None:
        self.connection = None


@pytest.mark.parametrize("who", ["sender", "receiver"])
@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_stays_of_a_connection_for_frames(
    loop: Callable[[], asyncio.AbstractEventLoop], tls: PeerTlsFiles | None, who: str
) -> None:
    contexts: tuple[ssl.SSLContext | None, ssl.SSLContext | None] = (None, None)
    if tls is not None:
        contexts = tls.server_context(), tls.client_context()

    async def comes_and_goes(port: int, holder: Holder) -> None:
        greeting = encode_greeting(PROTOCOL_LOWEST, 2, bytes(TICKET_BYTES))
        ended = asyncio.Event()
        sender = FrameSender(PROTOCOL_LOWEST, greeting, lambda: None, ended.set, holder.proof, holder.checked)
        running = asyncio.get_running_loop()
        name = None if tls is None else "127.0.0.1"
        await running.create_connection(lambda: sender, "127.0.0.1", port, ssl=contexts[1], server_hostname=name)
        await sender.accepted
        assert holder.connection is not None
        if who == "sender":
            sender.abort()
            await until(lambda: holder.connection is None, "the end")
        else:
            holder.connection.abort()
            await ended.wait()

    async def scenario() -> None:
        holder = Holder()
        listener = FrameListener(lambda *_: holder, PROTOCOLS, Complaints(), contexts[0])
        await listener.start("127.0.0.1", 0)
        before = those_there()
        for _ in range(2):
            await comes_and_goes(listener.port, holder)
        await all_gone(before)
        await listener.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 2 * BOUND_S))
