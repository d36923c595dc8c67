"""Octets that no broker should send: whoever reads a stream elsewhere says why it stops, and does nothing else."""

import struct
from typing import Any

import pytest
from pamqp import commands, frame, header
from pamqp.base import Frame
from pamqp.body import ContentBody

from mayfly.node.upstream.reader import HEARTBEAT_S, LOOK_EVERY_MS, UpstreamLogin, UpstreamReader

LOGIN = UpstreamLogin("user", "secret", "there")
MOST_BYTES = 1_000


def octets(method: Frame, channel: int = 1) -> bytes:
    return frame.marshal(method, channel)


def announced(left: int, channel: int = 1) -> bytes:
    """A message of which `left` octets are to come."""
    return message(1, bytes(left), channel)[: -left - 8]


def message(tag: int, body: bytes, channel: int = 1) -> bytes:
    deliver = commands.Basic.Deliver("mirror", tag, False, "exchange", "key")
    parts = [octets(deliver, channel), frame.marshal(header.ContentHeader(0, len(body)), channel)]
    return b"".join(parts) + (frame.marshal(ContentBody(body), channel) if body else b"")


def sent(reader: UpstreamReader) -> list[tuple[int, Any]]:
    """What it has said, decoded."""
    said, found = reader.take_output(), []
    if said.startswith(b"AMQP"):
        said = said[8:]
    while said:
        used, channel, method = frame.unmarshal(said)
        said = said[used:]
        found.append((channel, method))
    return found


@pytest.fixture
def reader() -> UpstreamReader:
    """One whose consumer was just taken."""
    made = UpstreamReader("s", LOGIN, 7, MOST_BYTES, 0)
    made.receive(octets(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0), 0)
    made.receive(octets(commands.Connection.Tune(2047, 131_072, 60), 0), 0)
    made.receive(octets(commands.Connection.OpenOk(), 0), 0)
    made.receive(octets(commands.Channel.OpenOk()) + octets(commands.Basic.QosOk()), 0)
    made.receive(octets(commands.Basic.ConsumeOk("mirror")), 0)
    assert made.is_reading
    return made


def test_what_it_asks_for(reader: UpstreamReader) -> None:
    said = {method.name: method for _, method in sent(reader)}
    assert said["Connection.StartOk"].response == "\0user\0secret"
    assert (said["Connection.TuneOk"].heartbeat, said["Connection.Open"].virtual_host) == (HEARTBEAT_S, "there")
    consume = said["Basic.Consume"]
    assert (consume.queue, consume.no_ack) == ("s", False)
    assert consume.arguments == {"x-stream-offset": 7, "x-stream-places": True}


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_messages_come_whole_however_their_octets_do(reader: UpstreamReader, piece: int) -> None:
    said = message(1, b"a" * 500) + message(2, b"")
    for start in range(0, len(said), piece):
        reader.receive(said[start : start + piece], 0)
    found = reader.take_messages()
    assert [(each.tag, each.content.body) for each in found] == [(1, b"a" * 500), (2, b"")]
    assert (found[0].content.exchange, found[0].content.routing_key) == ("exchange", "key")
    assert (reader.take_messages(), reader.fault) == ([], "")


def _frame(kind: int, payload: bytes, end: int = 0xCE, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b"AMQP\x00\x00\x09\x01", "does not speak AMQP"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"),
        (_frame(1, b"\x00\x0a\x00\x0a", end=0), "does not end where it says"),
        (_frame(1, b"\x00\x0a"), "can't be read"),
        (_frame(1, b"\x00\x0a\x00\x0a"), "can't be read"),
        (_frame(1, b"\xff\xff\xff\xff"), "can't be read"),
        (_frame(1, b"\x00\x3c\x00\x3c"), "basic.deliver"),
        (_frame(1, b"\x00\x3c\x00\x3c\xff" + bytes(20)), "basic.deliver"),
        (_frame(1, b"\x00\x3c\x00\x3c\x00" + bytes(9) + b"\x05a"), "basic.deliver"),
        (_frame(1, b"\x00\x3c\x00\x3c\x00" + bytes(9) + b"\x01e\x01\xff"), "not UTF-8"),
        (_frame(2, bytes(14)), "nobody has announced"),
        (announced(10) + _frame(3, b"aaaaa") + frame.marshal(header.ContentHeader(0, 5), 1), "nobody has announced"),
        (announced(10) + message(2, b""), "before the one before it was whole"),
        (announced(10) + _frame(3, b"a", channel=2), "belongs to none"),
        (octets(commands.Basic.Deliver("mirror", 1, False, "", "")) + _frame(2, b"\x00\x3d" + bytes(12)), "class 61"),
        (octets(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0), "says Connection.Start where"),
        (octets(commands.Connection.Tune(2047, 131_072, 60), 0), "says Connection.Tune where"),
        (octets(commands.Connection.OpenOk(), 0), "says Connection.OpenOk where"),
        (octets(commands.Channel.Close(404, "NO\r\nlog line", 60, 20)), r"404 'NO\r\nlog line'"),
        (octets(commands.Connection.Close(320, "NO\nlog line", 0, 0), 0), r"320 'NO\nlog line'"),
        (_frame(2, bytes(3)), "header of a message can't be read"),
        (_frame(3, b"body"), "belongs to none"),
        (message(1, b"a" * (MOST_BYTES + 1)), "more than max_message_bytes"),
        (octets(commands.Basic.Cancel("mirror")), "ended the consumer"),
        (octets(commands.Channel.Close(404, "NOT_FOUND", 60, 20)), "refuses: 404 'NOT_FOUND'"),
        (octets(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0), "closed the connection: 320"),
    ],
)
def test_what_it_can_t_go_on_with(reader: UpstreamReader, said: bytes, fault: str) -> None:
    reader.receive(said, 0)
    assert fault in reader.fault
    reader.receive(message(1, b"a"), 0)
    assert reader.take_messages() == []


@pytest.mark.parametrize(
    "said",
    [
        octets(commands.Connection.Tune(2047, 131_072, 60), 0), octets(commands.Connection.OpenOk(), 0),
        octets(commands.Basic.ConsumeOk("mirror")),
    ],
)  # fmt: skip
def test_nothing_is_answered_out_of_its_order(said: bytes) -> None:
    made = UpstreamReader("s", LOGIN, 7, MOST_BYTES, 0)
    sent(made)
    made.receive(said, 0)
    assert "where that is not to come" in made.fault
    assert (sent(made), made.is_reading) == ([], False)


def test_parts_of_messages_take_no_more_than_their_octets(reader: UpstreamReader) -> None:
    said = announced(100) + _frame(3, b"") * 1_000 + _frame(3, b"a") * 99
    reader.receive(said, 0)
    assert reader._coming is not None
    assert reader._coming.body == b"a" * 99
    reader.receive(_frame(3, b"a"), 0)
    (found,) = reader.take_messages()
    assert (found.content.body, reader.fault) == (b"a" * 100, "")


def test_what_comes_unasked_on_the_channel_for_looks_is_not_answered(reader: UpstreamReader) -> None:
    reader.tick(0)
    sent(reader)
    reader.receive(octets(commands.Basic.CancelOk("last"), 2) * 10, 0)
    assert sent(reader) == []
    reader.receive(message(1, b"last", channel=2) * 10, 0)
    assert [method.name for _, method in sent(reader)] == ["Basic.Cancel"]
    reader.receive(octets(commands.Basic.CancelOk("last"), 2) * 10, 0)
    assert [method.name for _, method in sent(reader)] == ["Basic.Ack"]


def test_a_connection_that_says_nothing_is_given_up(reader: UpstreamReader) -> None:
    reader.take_output()
    reader.tick(HEARTBEAT_S * 1000)
    assert b"\x08\x00\x00\x00\x00\x00\x00\xce" in reader.take_output()
    reader.tick(2 * HEARTBEAT_S * 1000)
    assert reader.fault == ""
    reader.receive(b"\x08\x00\x00\x00\x00\x00\x00\xce", 2 * HEARTBEAT_S * 1000)
    reader.tick(4 * HEARTBEAT_S * 1000)
    assert reader.fault == ""
    reader.tick(4 * HEARTBEAT_S * 1000 + 1)
    assert "nothing was heard" in reader.fault


def test_the_last_message_is_looked_at_alone(reader: UpstreamReader) -> None:
    sent(reader)
    reader.tick(0)
    (opened, qos, consume) = [method for channel, method in sent(reader) if channel == 2]
    assert (opened.name, qos.prefetch_count) == ("Channel.Open", 1)
    assert consume.arguments["x-stream-offset"] == "last"
    reader.receive(message(1, b"last", channel=2), 0)
    assert [method.name for _, method in sent(reader)] == ["Basic.Cancel"]
    last = reader.take_last()
    assert last is not None
    assert (last.body, reader.take_last(), reader.take_messages()) == (b"last", None, [])
    reader.receive(octets(commands.Basic.CancelOk("last"), 2), 0)
    assert [method.name for _, method in sent(reader)] == ["Basic.Ack"]
    reader.tick(LOOK_EVERY_MS)
    assert "Basic.Consume" in [method.name for _, method in sent(reader)]
