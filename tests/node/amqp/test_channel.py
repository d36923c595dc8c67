"""The states of a channel, and frames that come out of order (texts as RabbitMQ 3.10.8 gives them)."""

import struct
from typing import Any

import pytest
from pamqp import commands, frame, header
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Queue, Tx

from mayfly.node.amqp import channel_state as states
from mayfly.node.amqp import connection_state
from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.errors import ProtocolError
from mayfly.node.amqp.events import ChannelClosed, ChannelOpened, ConnectionClosed, MethodReceived
from mayfly.node.amqp.settings import ConnectionSettings
from tests.node.amqp.scripted_client import (
    ScriptedClient,
    contents_of,
    message,
    plain_events,
    raw_frame,
    running_client,
)

PUBLISH = frame.marshal(Basic.Publish(routing_key="q"), 1)
HEADER_5 = frame.marshal(header.ContentHeader(body_size=5), 1)
BODY_5 = frame.marshal(ContentBody(b"12345"), 1)
QOS = frame.marshal(Basic.Qos(prefetch_count=1), 1)
UNEXPECTED = "UNEXPECTED_FRAME - "
NO_HEADER = UNEXPECTED + "expected content header for class 60, got non content header frame instead"
NO_BODY = UNEXPECTED + "expected content body, got non content body frame instead"
NO_METHOD = UNEXPECTED + "expected method frame, got non method frame instead"
NOT_OPEN = "CHANNEL_ERROR - expected 'channel.open'"
UNIMPLEMENTED = "COMMAND_INVALID - unimplemented method"
CONNECTION_CLOSE = frame.marshal(commands.Connection.Close(200, "", 0, 0), 1)


def test_every_state_takes_every_input_or_refuses_it() -> None:
    for happening, row in states.TRANSITIONS.items():
        for state, following in enumerate(row):
            channel = ReceivingChannel(1)
            channel.state = state
            if following < 0:
                with pytest.raises(ProtocolError) as caught:
                    channel.move(happening)
                assert (caught.value.code, caught.value.text) == states.REFUSALS[following]
                assert channel.state == state
            else:
                channel.move(happening)
                assert channel.state == following


@pytest.mark.parametrize(
    "octets, expected",
    [
        (HEADER_5, (505, NO_METHOD, 0, 0)),
        (BODY_5, (505, NO_METHOD, 0, 0)),
        (PUBLISH + QOS, (505, NO_HEADER, 60, 40)),
        (PUBLISH + PUBLISH, (505, NO_HEADER, 60, 40)),
        (PUBLISH + BODY_5, (505, NO_HEADER, 60, 40)),
        (PUBLISH + frame.marshal(Basic.Ack(1), 1), (505, NO_HEADER, 60, 40)),
        (PUBLISH + HEADER_5 + QOS, (505, NO_BODY, 60, 40)),
        (PUBLISH + HEADER_5 + HEADER_5, (505, NO_BODY, 60, 40)),
        (PUBLISH + HEADER_5 + PUBLISH, (505, NO_BODY, 60, 40)),
        (
            PUBLISH + HEADER_5 + frame.marshal(ContentBody(b"123456"), 1),
            (505, NO_BODY, 60, 40),
        ),
        (
            PUBLISH + raw_frame(2, 1, struct.pack(">HHQH", 50, 0, 5, 0)),
            (505, UNEXPECTED + "expected content header for class 60, got one for class 50 instead", 60, 40),
        ),
        (PUBLISH + raw_frame(2, 1, struct.pack(">HHQH", 60, 1, 5, 0)), (505, NO_HEADER, 60, 40)),
        (
            PUBLISH + raw_frame(2, 1, struct.pack(">HHQHB", 60, 0, 5, 0x8000, 9)),
            (502, "SYNTAX_ERROR - the properties do not fill the content header", 60, 40),
        ),
        (
            PUBLISH + raw_frame(2, 1, b"\x00<"),
            (501, "FRAME_ERROR - type 2, all octets = <<0,60>>: unknown_frame", 0, 0),
        ),
        (frame.marshal(Channel.Open(), 1), (504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10)),
        (frame.marshal(Basic.Qos(), 5), (504, NOT_OPEN, 60, 10)),
        (message(5), (504, NOT_OPEN, 60, 40)),
        (frame.marshal(Basic.Ack(1), 5), (504, NOT_OPEN, 60, 80)),
        (frame.marshal(Channel.Close(200, "", 0, 0), 5), (504, NOT_OPEN, 20, 40)),
        (frame.marshal(ContentBody(b"x"), 5), (505, NO_METHOD, 0, 0)),
        (frame.marshal(Channel.Flow(False), 1), (540, "NOT_IMPLEMENTED - active=false", 20, 20)),
        (frame.marshal(Channel.CloseOk(), 1), (503, UNIMPLEMENTED, 20, 41)),
        (frame.marshal(Basic.CancelOk("t"), 1), (503, UNIMPLEMENTED, 60, 31)),
        (frame.marshal(Basic.ConsumeOk("t"), 1), (503, UNIMPLEMENTED, 60, 21)),
        (CONNECTION_CLOSE, (503, UNIMPLEMENTED, 10, 50)),
        (raw_frame(1, 1, struct.pack(">HH", 999, 1)), (503, UNIMPLEMENTED, 999, 1)),
        (raw_frame(1, 1, struct.pack(">HH", 60, 999)), (503, UNIMPLEMENTED, 60, 999)),
        (raw_frame(8, 1, b""), (505, UNEXPECTED + "type 8, all octets = <<>>", 0, 0)),
        (raw_frame(4, 1, b"ab"), (501, 'FRAME_ERROR - type 4, all octets = <<"ab">>: unknown_frame', 0, 0)),
        (raw_frame(1, 1, b"\x00"), (501, "FRAME_ERROR - type 1, all octets = <<0>>: unknown_frame", 0, 0)),
        (
            raw_frame(1, 1, bytes.fromhex("003c0050") + b"\x00" * 8),
            (502, "SYNTAX_ERROR - malformed arguments of Basic.Ack", 60, 80),
        ),
        (
            raw_frame(1, 1, bytes.fromhex("003c0028") + b"\x00\x00\x09abc\x00\x00"),
            (502, "SYNTAX_ERROR - malformed arguments of Basic.Publish", 60, 40),
        ),
        (
            raw_frame(1, 1, bytes.fromhex("003c0028") + b"\x00\x00\x02\xff\xfe\x00\x00") + HEADER_5 + BODY_5,
            (501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 60, 40),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("one_by_one", [False, True])
def test_frames_that_may_not_come(octets: bytes, expected: tuple[Any, ...], one_by_one: bool) -> None:
    client = running_client()
    if one_by_one:
        events = [event for octet in octets for event in client.feed(bytes([octet]))]
    else:
        events = client.feed(octets)
    assert client.closing() == (0, *expected)
    assert events == [ConnectionClosed(expected[1])]
    assert not client.connection.should_close
    assert client.feed(message(1) + QOS) == []
    client.send((0, commands.Connection.CloseOk()))
    assert client.connection.should_close
    assert client.connection.state == connection_state.CLOSED


def test_more_channels_than_agreed() -> None:
    client = running_client(channel_max=2)
    client.open_channel(2)
    client.send((3, Channel.Open()))
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert client.closing() == (0, 530, text, 0, 0)


def test_a_closed_channel_leaves_room_for_another() -> None:
    client = running_client(channel_max=1)
    assert client.send((1, Channel.Close(200, "bye", 0, 0))) == [ChannelClosed(1)]
    assert client.names() == [(1, "Channel.CloseOk")]
    client.open_channel(9)


def test_channel_flow_that_changes_nothing_is_answered() -> None:
    client = running_client()
    assert client.send((1, Channel.Flow(True))) == []
    assert client.names() == [(1, "Channel.FlowOk")]


def test_the_broker_closes_a_channel() -> None:
    """wire.close_ids: ignored until close-ok; then the number can be opened again."""
    client = running_client()
    client.open_channel(3)
    client.connection.close_channel(3, 404, "no queue 'absent' in vhost '/'", 50, 10)
    client.connection.close_channel(3, 404, "again")
    assert client.closing() == (3, 404, "NOT_FOUND - no queue 'absent' in vhost '/'", 50, 10)
    ignored = frame.marshal(Basic.Qos(), 3) + message(3, b"x" * 50_000) + frame.marshal(Basic.Ack(1), 3)
    unknown = raw_frame(1, 3, struct.pack(">HH", 20, 999))
    assert client.feed(ignored + frame.marshal(Channel.Open(), 3) + unknown) == []
    client.connection.output.send(3, Basic.QosOk())
    client.connection.output.send_confirms(3, [(1, False)])
    assert client.names() == []
    assert [type(event) for event in client.send((1, Tx.Select()))] == [MethodReceived]
    assert client.send((3, Channel.CloseOk())) == [ChannelClosed(3)]
    assert client.send((3, Channel.Open())) == [ChannelOpened(3)]
    client.connection.output.send(3, Basic.QosOk())
    assert client.names() == [(3, "Channel.OpenOk"), (3, "Basic.QosOk")]


def test_both_sides_close_a_channel_at_once() -> None:
    client = running_client()
    client.connection.close_channel(1, 406, "unknown delivery tag 7", 60, 80)
    client.output()
    assert client.send((1, Channel.Close(200, "", 0, 0))) == []
    assert client.names() == [(1, "Channel.CloseOk")]
    assert client.send((1, Channel.CloseOk())) == [ChannelClosed(1)]


def test_a_channel_closed_in_the_middle_of_a_message() -> None:
    client = running_client()
    octets = message(1, b"x" * 5_000, frame_bytes=4_000)
    for cut in (20, 60, 1_000, 4_500, 5_060, len(octets) - 1):
        client.feed(octets[:cut])
        client.connection.close_channel(1, 404, "gone")
        assert client.feed(octets[cut:]) == []
        assert client.send((1, Channel.CloseOk())) == [ChannelClosed(1)]
        assert client.send((1, Channel.Open())) == [ChannelOpened(1)]
        assert [content.body for content in contents_of(client.feed(message(1)))] == [b"hello"]


def test_a_hard_code_closes_the_connection() -> None:
    client = running_client()
    client.connection.close_channel(1, 540, "immediate=true", 60, 40)
    assert client.closing() == (0, 540, "NOT_IMPLEMENTED - immediate=true", 60, 40)
    assert client.feed(b"") == [ConnectionClosed("NOT_IMPLEMENTED - immediate=true")]


def test_a_message_larger_than_allowed() -> None:
    """The channel closes at the content header; nothing of the body is kept."""
    client = ScriptedClient(ConnectionSettings("0", max_message_bytes=1_000))
    client.handshake()
    client.open_channel(1)
    events = client.feed(message(1, b"x" * 1_000) + message(1, b"x" * 1_001) + message(1))
    assert [type(event).__name__ for event in events] == ["PublishesReceived", "ChannelClosed"]
    assert len(contents_of(events)) == 1
    text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
    assert client.closing() == (1, 406, text, 60, 40)
    assert client.send((1, Channel.CloseOk())) == []
    client.open_channel(1)
    assert len(contents_of(client.feed(message(1)))) == 1


def test_methods_reach_the_broker_with_their_table() -> None:
    client = running_client()
    declare = Queue.Declare(queue="q", arguments={"x-message-ttl": 1000, "x-expires": 70_000})
    (event,) = client.send((1, declare))
    assert isinstance(event, MethodReceived)
    assert isinstance(event.method, Queue.Declare)
    decoded = event.decode_table()
    assert isinstance(decoded, Queue.Declare) and decoded.arguments == declare.arguments
    assert event.arguments == b"\x00\x00\x00\x20\x09x-expiresI\x00\x01\x11\x70\x0dx-message-ttls\x03\xe8"
    assert plain_events(client.send((1, Basic.Get(queue="q"))))[0][:3] == ("method", 1, "Basic.Get")
