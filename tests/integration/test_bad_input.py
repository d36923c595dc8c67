"""What strangers and broken clients send: the right error or a clean close, and nobody else notices."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pika
import pika.exceptions
import pytest
import uvloop
from pamqp import body as pamqp_body
from pamqp import commands, header
from pamqp import frame as frames
from pamqp.base import Frame

from mayfly.cluster.transport.framing import MAGIC, TICKET_BYTES, encode_greeting
from mayfly.cluster.versions import PROTOCOL_LOWEST
from tests.integration.amqp_socket import HEADER, AmqpSocket, login_octets, method_frame, raw_frame
from tests.integration.clients import Consumer, Publisher, channel, connect, judge
from tests.integration.nodes import PATIENT_SESSIONS, Nodes, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

Record = Callable[[str, object], None]

STRINGS = pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
STRINGS_A_CONNECTION = 10
CONNECTIONS_AT_ONCE = 40
HANG_UP_AFTER_S = 0.02
MUTATED = pytest.mark.parametrize("count", [1_000, pytest.param(4_000, marks=pytest.mark.slow)])
TARGET = 1
# Of warmed-up processes: allocators keep some, a leak of a connection or a frame each would be far more.
GROWTH_BYTES = 16 * 1024 * 1024

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    """Leaders outlast a busy machine: what costs one its lead here is what was sent."""
    return {**PATIENT_SESSIONS, "election_timeout_ms": 5_000}


# ---------------------------------------------------------------------- one error at a time


@pytest.mark.parametrize(
    "greeting",
    [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"AMQP\x02\x00\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
)
def test_another_protocol_is_answered_with_ours_and_closed(cluster: Nodes, greeting: bytes) -> None:
    """AMQP 0-9-1, 4.2.2."""
    with AmqpSocket(cluster, TARGET) as client:
        client.send(greeting)
        assert client.rest() == HEADER


@pytest.mark.parametrize(("user", "password"), [("nobody", "guest"), ("guest", "wrong"), ("", "")])
def test_unknown_users_are_refused(cluster: Nodes, user: str, password: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
        connect(cluster, TARGET, credentials=pika.PlainCredentials(user, password))
    assert "403" in str(refused.value)


def test_an_unknown_vhost_is_refused(cluster: Nodes) -> None:
    with AmqpSocket(cluster, TARGET) as client:
        client.send(login_octets(vhost="nowhere"))
        client.expect(commands.Connection.Start)
        client.expect(commands.Connection.Tune)
        assert client.expect(commands.Connection.Close).reply_code == 530


PUBLISH = commands.Basic.Publish(exchange="", routing_key="bad-input")
CONNECTION_ERRORS: dict[str, tuple[int, bytes]] = {
    "a frame that does not end with CE": (501, raw_frame(1, 1, b"\x00\x3c\x00\x28", end=b"\x00")),
    "an oversized frame": (501, b"\x03\x00\x01\x7f\xff\xff\xff" + bytes(1000)),
    "a frame of unknown type": (501, raw_frame(77, 1, b"payload")),
    "a method frame without a method": (501, raw_frame(1, 1, b"")),
    "an unknown method": (503, raw_frame(1, 1, b"\x12\x34\x56\x78")),
    "arguments that end too early": (502, raw_frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\xff")),
    "a channel that was never opened": (504, method_frame(commands.Queue.Declare(queue="x"), 9)),
    "a channel opened twice": (504, method_frame(commands.Channel.Open(), 1)),
    "a body without a publish": (505, raw_frame(3, 1, b"body")),
    "a method where a header is due": (505, method_frame(PUBLISH, 1) + method_frame(PUBLISH, 1)),
    "a method of the server": (503, method_frame(commands.Basic.GetEmpty(), 1)),
}


@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_connection_errors(cluster: Nodes, case: str) -> None:
    """The code of AMQP 0-9-1, 1.4.2.8 and RabbitMQ; connection.close-ok is awaited, then the socket ends."""
    code, data = CONNECTION_ERRORS[case]
    with AmqpSocket(cluster, TARGET) as client:
        client.login()
        client.open_channel()
        client.send(data)
        close = client.expect(commands.Connection.Close)
        assert close.reply_code == code, close.reply_text
        client.send(method_frame(commands.Connection.CloseOk(), 0))
        assert client.rest() == b""


def test_frames_on_a_channel_that_the_server_closed_are_swallowed(cluster: Nodes) -> None:
    """AMQP 0-9-1, 1.5.2.5; after close-ok the channel can be opened again, and others never noticed."""
    with AmqpSocket(cluster, TARGET) as client:
        client.login()
        client.open_channel(1)
        client.open_channel(2)
        refused = client.call(commands.Queue.Declare(queue="not-there", passive=True), 1, commands.Channel.Close)
        assert refused.reply_code == 404
        client.send(method_frame(commands.Queue.Declare(queue="swallowed", durable=True), 1))
        client.send(method_frame(PUBLISH, 1))
        client.call(commands.Queue.Declare(queue="", exclusive=True), 2, commands.Queue.DeclareOk)
        client.send(method_frame(commands.Channel.CloseOk(), 1))
        client.open_channel(1)
    assert cluster.queue(TARGET, "swallowed") is None


def test_frames_on_a_channel_that_the_client_closed_are_an_error(cluster: Nodes) -> None:
    with AmqpSocket(cluster, TARGET) as client:
        client.login()
        client.open_channel(1)
        client.call(commands.Channel.Close(200, "", 0, 0), 1, commands.Channel.CloseOk)
        assert client.call(commands.Queue.Declare(queue="x"), 1, commands.Connection.Close).reply_code == 504


def test_pipelined_declares_with_tables_take_no_memory(cluster: Nodes) -> None:
    """One of them at a time is done. What waits was decoded, with twenty times its octets, and there was no end to it:
    this took 150 MB of a node for 9 MB."""
    with channel(cluster, TARGET) as declaring:
        declaring.queue_declare("looked-at", durable=True)
    names = [f"{number:04}" for number in range(120)]
    table: Any = {name: {"a": number} for number, name in enumerate(names, 1_000)}
    declare = method_frame(commands.Queue.Declare(queue="looked-at", passive=True, arguments=table), 1)
    memory = cluster.resident_bytes(TARGET)
    most = memory
    with AmqpSocket(cluster, TARGET) as client:
        client.login()
        client.open_channel()
        for _ in range(500):
            client.send(declare * 10)
            most = max(most, cluster.resident_bytes(TARGET))
        client.expect(commands.Queue.DeclareOk)
    assert most - memory < 64 * 1024 * 1024


def test_a_truncated_frame_and_an_end_are_a_lost_client(cluster: Nodes) -> None:
    """What the client held goes back; half a publish is no publish."""
    with channel(cluster, TARGET, confirms=True) as other:
        other.queue_declare("truncated", durable=True)
        other.basic_publish("", "truncated", b"whole")
        with AmqpSocket(cluster, TARGET) as client:
            client.login()
            client.open_channel()
            client.call(commands.Basic.Get(queue="truncated"), 1, commands.Basic.GetOk)
            publish = method_frame(commands.Basic.Publish(exchange="", routing_key="truncated"), 1)
            content = header.ContentHeader(0, 100, commands.Basic.Properties())
            client.send(publish + frames.marshal(content, 1) + raw_frame(3, 1, bytes(50))[:-20])
            client.half_close()
            client.rest()
        wait_for(lambda: cluster.ready(TARGET, "truncated") == 1, "what the lost client held")
        method, _, body = other.basic_get("truncated", auto_ack=True)
        assert (body, method.redelivered) == (b"whole", True)
        other.queue_delete("truncated")


# ---------------------------------------------------------------------- very many at once


@contextlib.contextmanager
def bystander(nodes: Nodes) -> Iterator[None]:
    """Another client publishes and consumes on the same node meanwhile, and notices nothing."""
    with channel(nodes, TARGET) as declaring:
        declaring.queue_declare("bystander", durable=True)
    consumer = Consumer(nodes, TARGET, "bystander").begin()
    publisher = Publisher(nodes, TARGET, "bystander", rate=100)
    publisher.start()
    publisher.until_confirmed(10)
    yield
    publisher.until_confirmed(10)
    publisher.finish()
    consumer.until_received(len(publisher.confirmed))
    consumer.finish()
    judge(publisher, [consumer])
    assert publisher.longest_pause_ms() < 1000 * BOUND_S
    with channel(nodes, TARGET) as declaring:
        declaring.queue_delete("bystander")


async def throw(port: int, prefix: bytes, strings: Sequence[bytes]) -> None:
    """Write strings one by one on a connection, as long as it stands, and hang up in one way or another."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                if prefix:
                    writer.write(prefix)
                for data in strings:
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(0)
                # So that the node looks at it all, unless it closes first.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HANG_UP_AFTER_S):
                        await reader.read(-1)
            finally:
                if len(strings[0]) % 2:
                    writer.transport.abort()
                writer.close()


def throw_all(port: int, connections: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
    """All of them, a bounded number at once."""

    async def some(mine: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
        for prefix, strings in mine:
            await throw(port, prefix, strings)

    async def scenario() -> None:
        await asyncio.gather(*(some(connections[start::CONNECTIONS_AT_ONCE]) for start in range(CONNECTIONS_AT_ONCE)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def noise(chance: random.Random, count: int) -> list[bytes]:
    sizes = (1, 7, 8, 9, 40, 300, 2000)
    return [chance.randbytes(chance.choice(sizes)) for _ in range(count)]


def in_connections(chance: random.Random, count: int, prefixes: Sequence[bytes]) -> list[tuple[bytes, list[bytes]]]:
    strings = noise(chance, count)
    return [
        (chance.choice(prefixes), strings[start : start + STRINGS_A_CONNECTION])
        for start in range(0, count, STRINGS_A_CONNECTION)
    ]


def grown_bytes(nodes: Nodes, warm_up: Callable[[], None], main: Callable[[], None]) -> int:
    """How much a node's memory grows over `main`, when `warm_up` was the same in small."""
    warm_up()
    before = nodes.resident_bytes(TARGET)
    main()
    wait_for(lambda: nodes.page(TARGET, "/health/ready")[0] == 200, "a node that answers")
    return nodes.resident_bytes(TARGET) - before


@STRINGS
def test_random_strings_at_the_amqp_port(cluster: Nodes, count: int, record_property: Record) -> None:
    """Before and after the protocol header, and as the content of frames of an open connection."""
    chance = random.Random(1)
    port = cluster.plan(TARGET).amqp.port
    opened = login_octets() + method_frame(commands.Channel.Open(), 1)
    prefixes = [b"", b"", HEADER, HEADER, opened]
    connections = in_connections(chance, count, prefixes)
    for number, (prefix, strings) in enumerate(connections):
        if prefix == opened and number % 2:
            strings[:] = [raw_frame(chance.choice((1, 1, 2, 3)), chance.choice((0, 1)), data) for data in strings]
    part = len(connections) // 5
    began_s = time.monotonic()
    with bystander(cluster):
        growth = grown_bytes(
            cluster, lambda: throw_all(port, connections[:part]), lambda: throw_all(port, connections[part:])
        )
    record_property("amqp_port_growth_bytes", growth)
    print(f"{len(connections)} connections in {time.monotonic() - began_s:.1f} s, memory grew by {growth / 1e6:.1f} MB")
    assert growth < GROWTH_BYTES
    assert cluster.log_faults() == []


def throw_at_a_port_between_nodes(
    cluster: Nodes, port: int, connections: list[tuple[bytes, list[bytes]]], record_property: Record, name: str
) -> None:
    """Strings at a port that other nodes use: clients notice nothing, memory is bounded, nobody loses the lead."""
    part = len(connections) // 5
    began_s = time.monotonic()
    terms = {group: row["term"] for group, row in cluster.groups(2).items()}
    with bystander(cluster):
        growth = grown_bytes(
            cluster, lambda: throw_all(port, connections[:part]), lambda: throw_all(port, connections[part:])
        )
    record_property(name, growth)
    print(f"{len(connections)} connections in {time.monotonic() - began_s:.1f} s, memory grew by {growth / 1e6:.1f} MB")
    assert growth < GROWTH_BYTES
    assert cluster.log_faults() == []
    assert {group: row["term"] for group, row in cluster.groups(2).items()} == terms, "leaders were lost to garbage"


@STRINGS
def test_random_strings_at_the_peer_port(cluster: Nodes, count: int, record_property: Record) -> None:
    """Bare, behind the greeting of HTTP/2, and as its frames."""
    chance = random.Random(2)
    port = cluster.plan(TARGET).peer.port
    prefixes = [b"", PREFACE, PREFACE + EMPTY_SETTINGS]
    connections = in_connections(chance, count, prefixes)
    throw_at_a_port_between_nodes(cluster, port, connections, record_property, "peer_port_growth_bytes")


@STRINGS
def test_random_strings_at_the_port_for_frames(cluster: Nodes, count: int, record_property: Record) -> None:
    """Bare, behind the beginning of a greeting, and behind a whole one with a ticket that nobody gave out."""
    chance = random.Random(3)
    port = cluster.plan(TARGET).frames.port
    greeting = encode_greeting(PROTOCOL_LOWEST, 2, chance.randbytes(TICKET_BYTES))
    connections = in_connections(chance, count, [b"", MAGIC, greeting[:-5], greeting])
    throw_at_a_port_between_nodes(cluster, port, connections, record_property, "frames_port_growth_bytes")


def valid_streams() -> list[bytes]:
    """What ordinary clients say after connection.open, one stream after another."""

    def stream(*methods: Frame) -> bytes:
        return b"".join(method_frame(method, 1) for method in (commands.Channel.Open(), *methods))

    def publish(body: bytes, **properties: Any) -> bytes:
        content = header.ContentHeader(0, len(body), commands.Basic.Properties(**properties))
        return (
            method_frame(commands.Basic.Publish(exchange="", routing_key="mutated"), 1)
            + frames.marshal(content, 1)
            + frames.marshal(pamqp_body.ContentBody(body), 1)
        )

    arguments: dict[str, Any] = {"x-message-ttl": 60000, "x-expires": 600000, "x-dead-letter-exchange": ""}
    return [
        stream(commands.Queue.Declare(queue="mutated", durable=True, arguments=arguments)),
        stream(commands.Queue.Declare(queue="", exclusive=True), commands.Basic.Consume(queue="")),
        stream(commands.Exchange.Declare(exchange="mutated", exchange_type="topic"),
               commands.Queue.Bind(queue="mutated", exchange="mutated", routing_key="a.#"),
               commands.Queue.Unbind(queue="mutated", exchange="mutated", routing_key="a.#")),
        stream(commands.Confirm.Select()) + publish(b"body" * 50, headers={"a": 1, "b": ["x"]}, expiration="1000"),
        stream(commands.Basic.Qos(prefetch_count=3)) + publish(b"", delivery_mode=2, correlation_id="1") * 4,
        stream(commands.Basic.Get(queue="mutated"), commands.Basic.Ack(1), commands.Basic.Recover(True)),
        stream(commands.Basic.Consume(queue="mutated", consumer_tag="t"), commands.Basic.Cancel(consumer_tag="t"),
               commands.Channel.Close(200, "", 0, 0)),
    ]  # fmt: skip


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The stream with a few octets changed, cut out, put in twice, or its end missing."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del changed[at : at + chance.randrange(1, 9)]
        else:
            changed[at:at] = changed[at : at + chance.randrange(1, 9)]
        if not changed:
            return b"\x00"
    return bytes(changed)


@MUTATED
def test_mutated_streams_of_ordinary_clients(cluster: Nodes, count: int, record_property: Record) -> None:
    """Octets flipped, cut and doubled in what is otherwise right."""
    chance = random.Random(3)
    port = cluster.plan(TARGET).amqp.port
    streams = valid_streams()
    connections = [(login_octets(), [mutated(chance, chance.choice(streams))]) for _ in range(count)]
    part = count // 4
    began_s = time.monotonic()
    with bystander(cluster):
        growth = grown_bytes(
            cluster,
            lambda: throw_all(port, connections[:part]),
            lambda: throw_all(port, connections[part:]),
        )
    record_property("mutated_growth_bytes", growth)
    print(f"{count} streams in {time.monotonic() - began_s:.1f} s, memory grew by {growth / 1e6:.1f} MB")
    assert growth < GROWTH_BYTES
    assert cluster.log_faults() == []
    cluster.until_well()

