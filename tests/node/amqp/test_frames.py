"""Frames out of octets: any pieces of input give the same events, and little memory."""

import itertools
import random
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import frame
from pamqp.commands import Basic, Channel, Connection, Queue

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.events import (
    ACK,
    NACK,
    REJECT,
    ChannelClosed,
    ConnectionClosed,
    PublishesReceived,
    SettlementsReceived,
)
from mayfly.node.amqp.frames import erlang_octets
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header
from tests.node.amqp.scripted_client import contents_of, message, plain_events, raw_frame, running_client

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def test_publishes_as_pamqp_sends_them() -> None:
    client = running_client()
    properties = Basic.Properties(expiration="60000", delivery_mode=2, headers={"a": 1})
    octets = message(1, b"body", "amq.direct", "the.key", properties, mandatory=True)
    (event,) = client.feed(octets + message(1, b""))
    assert isinstance(event, PublishesReceived)
    assert event.channel_id == 1
    assert event.flags == [1, 0]
    first, second = event.contents
    assert (first.exchange, first.routing_key, first.body) == ("amq.direct", "the.key", b"body")
    assert first.exchange_and_key == make_exchange_and_key("amq.direct", "the.key")
    assert first.header == build_header(properties, 4)
    assert second.body == b""


def test_all_flags_of_a_publish() -> None:
    client = running_client()
    for flags in range(4):
        octets = bytearray(message(1))
        octets[octets.index(0xCE) - 1] = flags
        (event,) = client.feed(bytes(octets))
        assert isinstance(event, PublishesReceived)
        assert event.flags == [flags]


def test_settlements_as_pamqp_sends_them() -> None:
    client = running_client()
    (event,) = client.send(
        (1, Basic.Ack(1)),
        (1, Basic.Ack(2**40, True)),
        (1, Basic.Nack(3)),
        (1, Basic.Nack(4, True, False)),
        (1, Basic.Nack(5, False, True)),
        (1, Basic.Reject(6)),
        (1, Basic.Reject(7, False)),
    )
    assert event == SettlementsReceived(
        1,
        [
            (ACK, 1, False, False),
            (ACK, 2**40, True, False),
            (NACK, 3, False, True),
            (NACK, 4, True, False),
            (NACK, 5, False, True),
            (REJECT, 6, False, True),
            (REJECT, 7, False, False),
        ],
    )


def test_runs_are_one_event_and_order_is_kept() -> None:
    client = running_client()
    client.open_channel(2)
    ack = frame.marshal(Basic.Ack(1), 1)
    big = message(1, b"x" * 300_000)
    octets = (
        message(1) * 3 + ack + ack + message(1) + HEARTBEAT + message(1) + message(2) + big + message(1) + ack
    )
    octets += frame.marshal(Basic.Qos(), 1) + ack
    kinds = [
        (type(event).__name__, getattr(event, "channel_id", 0), len(plain_events([event])))
        for event in client.feed(octets)
    ]
    assert kinds == [
        ("PublishesReceived", 1, 3),
        ("SettlementsReceived", 1, 2),
        ("PublishesReceived", 1, 2),
        ("PublishesReceived", 2, 1),
        ("PublishesReceived", 1, 2),
        ("SettlementsReceived", 1, 1),
        ("MethodReceived", 1, 1),
        ("SettlementsReceived", 1, 1),
    ]


def _stream() -> bytes:
    """A valid conversation with all kinds of frames, on two channels that take turns."""
    properties = Basic.Properties(message_id="m", headers={"CC": ["x"]}, expiration="5")
    two = message(2, b"y" * 9_000, frame_bytes=4_000)
    cut = two.index(b"\xce") + 1
    return b"".join(
        (
            message(1, b"a"),
            message(1, b"", "ex", "k", properties),
            frame.marshal(Basic.Ack(1), 1),
            frame.marshal(Channel.Open(), 3),
            two[:cut],
            message(1, b"between"),
            HEARTBEAT,
            two[cut:],
            frame.marshal(Basic.Nack(2, True, False), 2),
            frame.marshal(Queue.Declare(queue="q", arguments={"x-expires": 5}), 1),
            message(3, b"z" * 70_000, properties=properties),
            frame.marshal(Channel.Close(200, "bye", 0, 0), 3),
            message(1, bytes(range(256)) * 20, frame_bytes=256),
            frame.marshal(Basic.Reject(9), 1),
            frame.marshal(Connection.Close(200, "bye", 0, 0), 0),
        )
    )


def _events_of(pieces: list[bytes]) -> list[tuple[Any, ...]]:
    client = running_client()
    client.open_channel(2)
    return plain_events([event for piece in pieces for event in client.feed(piece)])


STREAM = _stream()
WHOLE = _events_of([STREAM])


def test_the_stream_is_what_it_should_be() -> None:
    assert [item[0] for item in WHOLE].count("publish") == 6
    assert WHOLE[-1] == (repr(ConnectionClosed("the client closed the connection: 200 bye")),)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_split_gives_the_same_events(cuts: list[int]) -> None:
    places = sorted({0, len(STREAM), *cuts})
    pieces = [STREAM[low:high] for low, high in itertools.pairwise(places)]
    assert _events_of(pieces) == WHOLE


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 11, 20, 255, 4_096])
def test_pieces_of_one_size_give_the_same_events(size: int) -> None:
    assert _events_of([STREAM[at : at + size] for at in range(0, len(STREAM), size)]) == WHOLE


def test_one_piece_for_each_frame_gives_the_same_events() -> None:
    pieces = []
    at = 0
    while at < len(STREAM):
        size = 8 + struct.unpack_from(">I", STREAM, at + 3)[0]
        pieces.append(STREAM[at : at + size])
        at += size
    assert _events_of(pieces) == WHOLE


@pytest.mark.parametrize(
    "octets, text",
    [
        (
            raw_frame(1, 1, b"\x00\x14\x00\x0a\x00", b"\x00"),
            "type 1, all octets = <<0,20,0,10,0>>: {invalid_frame_end_marker,0}",
        ),
        (
            raw_frame(1, 0, b"\x00" * 30, b"\x07"),
            "type 1, first 16 octets = <<0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0>>: {invalid_frame_end_marker,7}",
        ),
        (raw_frame(3, 1, b"x" * 9_000), "type 3, all octets = <<>>: {frame_too_large,9000,4088}"),
        (raw_frame(1, 1, b"x" * 4_097)[:7], "type 1, all octets = <<>>: {frame_too_large,4097,4088}"),
        (b"\x01\x00\x01\xff\xff\xff\xff", "type 1, all octets = <<>>: {frame_too_large,4294967295,4088}"),
        (
            message(1, b"hello")[:-1] + b"\x00",
            'type 3, all octets = <<"hello">>: {invalid_frame_end_marker,0}',
        ),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_frames_whose_bounds_are_wrong(octets: bytes, text: str, one_by_one: bool) -> None:
    """wire.bad_frame_end, wire.too_large_frame: the first seven octets are enough to refuse."""
    client = running_client(frame_max=4_096)
    pieces = [bytes([octet]) for octet in octets] if one_by_one else [octets]
    events = [event for piece in pieces for event in client.feed(piece)]
    assert client.closing() == (0, 501, "FRAME_ERROR - " + text, 0, 0)
    assert events == [ConnectionClosed("FRAME_ERROR - " + text)]
    assert client.feed(b"\x00" * 100_000) == []
    assert client.connection.wants_input
    assert not client.connection.should_close
    for octet in frame.marshal(Connection.CloseOk(), 0):
        client.feed(bytes([octet]))
    assert client.connection.should_close


def test_a_frame_may_be_as_large_as_frame_max() -> None:
    """RabbitMQ lets clients forget the eight octets around the payload."""
    client = running_client(frame_max=4_096)
    (content,) = contents_of(client.feed(message(1, b"x" * 4_096, frame_bytes=4_096)))
    assert len(content.body) == 4_096


@pytest.mark.parametrize("octets, text", [(b"", "<<>>"), (b"ab c", '<<"ab c">>'), (b"\x00a", "<<0,97>>")])
def test_octets_as_rabbitmq_prints_them(octets: bytes, text: str) -> None:
    assert erlang_octets(octets) == text


def test_a_large_message_takes_time_in_proportion() -> None:
    """3 MB in frames of 128 KB, in pieces of every size: no piece is looked at again and again, which frames of 4 KB
    would suffer from much less."""
    body = random.Random(3).randbytes(3_000_000)
    large, small = message(1, body), message(1, body, frame_bytes=4_096)
    for size in (len(large), 65_536, 1_000, 10):
        small_s, _ = fed(small, size)
        large_s, events = fed(large, size)
        assert large_s < 5 * small_s + 0.1
        (content,) = contents_of(events)
        assert content.body == body


def fed(octets: bytes, size: int) -> tuple[float, list[Any]]:
    """Feed these octets in pieces of so many; CPU time of this thread, and what came of it."""
    client = running_client()
    began_s = time.thread_time()
    events = [event for at in range(0, len(octets), size) for event in client.feed(octets[at : at + size])]
    return time.thread_time() - began_s, events


def test_one_octet_at_a_time_takes_memory_in_proportion() -> None:
    client = running_client()
    octets = message(1, b"x" * 400_000)
    tracemalloc.start()
    try:
        for octet in octets[:-1]:
            assert not client.feed(bytes([octet]))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
    assert peak < 1_500_000
    (content,) = contents_of(client.feed(octets[-1:]))
    assert isinstance(content, Content)
    assert len(content.body) == 400_000


def test_a_large_frame_of_a_method_one_octet_at_a_time() -> None:
    """As many octets in small ones take about the same time."""
    octets, *small = (
        frame.marshal(Queue.Declare(queue="q", arguments={"x": "y" * size}), 1) for size in (120_000, *[1_000] * 120)
    )
    small_s, _ = fed(b"".join(small), 1)
    large_s, events = fed(octets, 1)
    assert large_s < 5 * small_s + 0.1
    # Such arguments are too long; so much is known when all of them have come.
    assert [type(event) for event in events] == [ChannelClosed]


def test_what_is_remembered_is_bounded() -> None:
    """Routing keys and properties that never come again must not stay."""
    client = running_client()
    tracemalloc.start()
    try:
        for number in range(4_000):
            properties = Basic.Properties(message_id=f"{number:060}")
            client.feed(message(1, b"", "x", f"{number:0200}", properties))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
