"""What the quick ways of reading and writing frames make of a generated corpus is what pamqp makes of it."""

import random
import string
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from mayfly.node.amqp import connection_state
from mayfly.node.amqp.content import Content, check_header, decode_properties
from mayfly.node.amqp.events import ACK, REJECT, MethodReceived, PublishesReceived, SettlementsReceived
from mayfly.node.amqp.methods import decode_method, method_frame, unchecked
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header
from tests.node.amqp.scripted_client import ScriptedClient, running_client, split_frames, values

STREAMS = 250
METHODS = [
    commands.Queue.Declare, commands.Queue.Bind, commands.Queue.Unbind, commands.Queue.Purge, commands.Queue.Delete,
    commands.Exchange.Declare, commands.Exchange.Bind, commands.Basic.Qos, commands.Basic.Consume,
    commands.Basic.Cancel, commands.Basic.Get, commands.Basic.Recover,
]


def name(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits + ".-_:", k=chance.choice([0, 1, 8, 100, 127])))


def table(chance: random.Random) -> dict[str, Any]:
    makers: list[Any] = [
        lambda: chance.randrange(-(2**31), 2**31), lambda: name(chance), lambda: chance.random() < 0.5, lambda: None,
        lambda: {name(chance): chance.randrange(9)}, lambda: [1, name(chance), None], lambda: chance.random(),
        lambda: chance.randrange(-(2**62), 2**62),
    ]
    return {name(chance): chance.choice(makers)() for _ in range(chance.choice([0, 1, 4]))}


def argument(chance: random.Random, method: type[Frame], key: str) -> Any:
    kind = method.amqp_type(key)
    if kind == "bit":
        return chance.random() < 0.5
    if kind == "table":
        return table(chance)
    if kind == "shortstr":
        return name(chance)
    if kind == "longstr":
        return name(chance)
    # Tickets have to be 0.
    return 0 if key == "ticket" else chance.randrange(2 ** {"octet": 8, "short": 16, "long": 32, "longlong": 63}[kind])


FIXED: dict[str, Any] = {
    "exchange_type": "direct", "prefetch_size": 0, "no_local": False, "cluster_id": "", "capabilities": "",
    "insist": False, "known_hosts": "", "out_of_band": "0", "channel_id": "0", "active": True,
}
"""What pamqp takes no other value for."""


def any_of(chance: random.Random, method: type[Frame]) -> Frame:
    return unchecked(
        method, **{key: FIXED.get(key, argument(chance, method, key)) for key in method.attributes()}
    )


def any_method(chance: random.Random) -> Frame:
    return any_of(chance, chance.choice(METHODS))


def properties(chance: random.Random) -> Basic.Properties:
    some: dict[str, Any] = {
        "content_type": name(chance), "headers": table(chance), "delivery_mode": chance.choice([1, 2]),
        "priority": chance.randrange(256), "correlation_id": name(chance), "expiration": "5", "app_id": name(chance),
        "message_id": name(chance), "message_type": name(chance), "reply_to": name(chance), "user_id": "guest",
    }
    kept = chance.sample(sorted(some), chance.choice([0, 0, 1, 3, len(some)]))
    return Basic.Properties(**{key: some[key] for key in kept if some[key] != ""})


def body(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 12, 1024, 4087, 4088, 4089, 20_000]))


def bodies(octets: bytes, frame_max: int) -> list[bytes]:
    most = frame_max - 8
    return [octets[start : start + most] for start in range(0, len(octets), most)]


def stream(chance: random.Random, frame_max: int) -> bytes:
    """What a client may send on channel 1: publishes, settlements, other methods."""
    parts = []
    for _ in range(chance.randrange(1, 12)):
        way = chance.random()
        if way < 0.5:
            octets = body(chance)
            publish = Basic.Publish(exchange=name(chance), routing_key=name(chance), mandatory=chance.random() < 0.5)
            parts.append(frame.marshal(publish, 1))
            parts.append(frame.marshal(ContentHeader(body_size=len(octets), properties=properties(chance)), 1))
            parts += [frame.marshal(ContentBody(each), 1) for each in bodies(octets, frame_max)]
        elif way < 0.8:
            tag, flag = chance.randrange(2**62), chance.random() < 0.5
            settlements: list[Frame] = [
                Basic.Ack(tag, flag), Basic.Nack(tag, flag, chance.random() < 0.5), Basic.Reject(tag, flag),
            ]
            parts.append(frame.marshal(chance.choice(settlements), 1))
        else:
            parts.append(frame.marshal(any_method(chance), 1))
    return b"".join(parts)


def as_pamqp_reads(octets: bytes) -> list[tuple[Any, ...]]:
    """What a stream says, by pamqp."""
    said: list[tuple[Any, ...]] = []
    for _, what in split_frames(octets):
        if isinstance(what, ContentHeader):
            said[-1] += (what.properties, what.body_size, b"")
        elif isinstance(what, ContentBody):
            said[-1] = (*said[-1][:-1], said[-1][-1] + what.value)
        elif isinstance(what, Basic.Publish):
            said.append(("publish", what.exchange, what.routing_key, bool(what.mandatory)))
        elif isinstance(what, Basic.Ack):
            said.append(("ack", what.delivery_tag, what.multiple, False))
        elif isinstance(what, Basic.Nack):
            said.append(("nack", what.delivery_tag, what.multiple, what.requeue))
        elif isinstance(what, Basic.Reject):
            said.append(("nack", what.delivery_tag, False, what.requeue))
        else:
            said.append((what.name, values(what)))
    return said


def as_it_is_read(client: ScriptedClient, octets: bytes, chance: random.Random) -> list[tuple[Any, ...]]:
    """The same by the connection, in pieces of any size."""
    said: list[tuple[Any, ...]] = []
    while octets:
        size = chance.choice([1, 7, 100, 5000, len(octets)])
        for event in client.feed(octets[:size]):
            if isinstance(event, PublishesReceived):
                for content, flags in zip(event.contents, event.flags, strict=True):
                    size_at = int.from_bytes(content.header[4:12], "big")
                    route = (content.exchange, content.routing_key)
                    said.append(("publish", *route, bool(flags), content.properties(), size_at, bytes(content.body)))
            elif isinstance(event, SettlementsReceived):
                for kind, tag, multiple, requeue in event.settlements:
                    said.append(("ack" if kind == ACK else "nack", tag, multiple and kind != REJECT, requeue))
            else:
                assert isinstance(event, MethodReceived)
                said.append((event.method.name, values(event.decode_table())))
        octets = octets[size:]
    return said


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_what_clients_send_is_read_as_pamqp_reads_it(frame_max: int) -> None:
    chance = random.Random(frame_max)
    client = running_client(frame_max=frame_max)
    for _ in range(STREAMS):
        octets = stream(chance, frame_max)
        assert as_it_is_read(client, octets, chance) == as_pamqp_reads(octets)
        assert not client.output()


def sent(client: ScriptedClient) -> bytes:
    return b"".join(client.connection.take_output())


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_what_is_sent_has_the_octets_that_pamqp_would_send(frame_max: int) -> None:
    chance = random.Random(frame_max)
    client = running_client(frame_max=frame_max)
    connection = client.connection
    for _ in range(STREAMS):
        exchange, key, octets, about = name(chance), name(chance), body(chance), properties(chance)
        content = Content(make_exchange_and_key(exchange, key), build_header(about, len(octets)), octets)
        tag, redelivered, count = chance.randrange(2**62), chance.random() < 0.5, chance.randrange(2**32)
        rest = [frame.marshal(ContentHeader(body_size=len(octets), properties=about), 1)]
        rest += [frame.marshal(ContentBody(each), 1) for each in bodies(octets, frame_max)]
        consumer = name(chance)
        connection.output.send_deliveries(1, consumer.encode(), [(tag, redelivered, content)] * 2)
        deliver = Basic.Deliver(consumer, tag, redelivered, exchange, key)
        assert sent(client) == b"".join([frame.marshal(deliver, 1), *rest] * 2)
        connection.output.send_get_ok(1, tag, redelivered, content, count)
        assert sent(client) == b"".join([frame.marshal(Basic.GetOk(tag, redelivered, exchange, key, count), 1), *rest])
        connection.output.send_return(1, 312, "NO_ROUTE", content)
        assert sent(client) == b"".join([frame.marshal(Basic.Return(312, "NO_ROUTE", exchange, key), 1), *rest])
        confirms = [(chance.randrange(2**62), chance.random() < 0.5) for _ in range(3)]
        connection.output.send_confirms(1, confirms)
        assert sent(client) == b"".join(frame.marshal(Basic.Ack(*each), 1) for each in confirms)
        connection.output.send_confirms(1, confirms, nack=True)
        assert sent(client) == b"".join(frame.marshal(Basic.Nack(*each, requeue=False), 1) for each in confirms)


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain", "content_encoding": "gzip", "headers": {"n": 1, "of": ["a", None, {"b": True}]},
    "delivery_mode": 2, "priority": 9, "correlation_id": "c-1", "reply_to": "answers", "expiration": "60000",
    "message_id": "m" * 255, "timestamp": datetime(2026, 11, 22, 8, 30, tzinfo=UTC), "message_type": "t",
    "user_id": "guest", "app_id": "\u00e4", "cluster_id": "old",
}


def with_properties(combination: int) -> Basic.Properties:
    """The properties whose bits are set; pamqp's constructor refuses the deprecated cluster-id."""
    made = Basic.Properties()
    for place, (key, value) in enumerate(PROPERTIES.items()):
        if combination >> place & 1:
            setattr(made, key, value)
    return made


@pytest.mark.parametrize("eighth", range(8))
def test_content_headers_with_every_combination_of_properties(eighth: int) -> None:
    """Read whole, read frame by frame, built, and sent: all 2 ** 14 headers are what pamqp says."""
    assert list(PROPERTIES) == Basic.Properties.attributes()
    client = running_client()
    publish, octets = frame.marshal(Basic.Publish(routing_key="q"), 1), frame.marshal(ContentBody(b"12345"), 1)
    for combination in range(eighth, 2 ** len(PROPERTIES), 8):
        about = with_properties(combination)
        header = frame.marshal(ContentHeader(body_size=5, properties=about), 1)
        pieces = [publish + header + octets] if combination >> 3 & 1 else [publish + header, octets]
        contents = [
            content
            for piece in pieces
            for event in client.feed(piece)
            if isinstance(event, PublishesReceived)
            for content in event.contents
        ]
        (content,) = contents
        _, _, by_pamqp = frame.unmarshal(header)
        assert isinstance(by_pamqp, ContentHeader)
        assert content.header == header[7:-1] == build_header(about, 5)
        check_header(content.header)
        assert decode_properties(content.header) == by_pamqp.properties == about
        client.connection.output.send_deliveries(1, b"c", [(1, False, content)])
        assert sent(client) == frame.marshal(Basic.Deliver("c", 1, False, "", "q"), 1) + header + octets


@pytest.mark.parametrize("method", commands.INDEX_MAPPING.values(), ids=lambda method: method.name)
def test_every_method_has_the_octets_and_the_arguments_that_pamqp_gives_it(method: type[Frame]) -> None:
    chance = random.Random(method.index)
    for _ in range(40):
        made = any_of(chance, method)
        octets = frame.marshal(made, 7)
        assert method_frame(7, made) == octets
        _, _, by_pamqp = frame.unmarshal(octets)
        decoded, _ = decode_method(octets[7:-1])
        assert type(decoded) is type(by_pamqp) is method
        assert values(decoded) == values(by_pamqp)


def test_heartbeats_have_the_octets_that_pamqp_gives_them() -> None:
    client = running_client(heartbeat=1)
    for now_ms in (0, 400, 800, 1_200):
        client.connection.tick(now_ms)
        octets = sent(client)
        assert octets in (b"", frame.marshal(Heartbeat(), 0))
        assert client.feed(frame.marshal(Heartbeat(), 0)) == []
    assert client.connection.state != connection_state.CLOSED
    client.connection.tick(1_900)
    assert sent(client) == frame.marshal(Heartbeat(), 0)
