"""A client that speaks through pamqp to a Connection, and events in a form that can be compared."""

from typing import Any

from pamqp import commands, frame, header
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.heartbeat import Heartbeat

from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.events import (
    AuthenticationRequested,
    Event,
    MethodReceived,
    OpenRequested,
    PublishesReceived,
    SettlementsReceived,
)
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from mayfly.node.amqp.settings import ConnectionSettings

RABBITMQ_CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


def raw_frame(kind: int, channel_id: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    """A frame of any kind, well formed or not."""
    return bytes([kind]) + channel_id.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + end


def message(
    channel_id: int,
    body: bytes = b"hello",
    exchange: str = "",
    routing_key: str = "q",
    properties: commands.Basic.Properties | None = None,
    frame_bytes: int = 131_064,
    mandatory: bool = False,
) -> bytes:
    """The frames of one publish, its body cut into frames of at most frame_bytes of payload."""
    publish = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    parts = [
        frame.marshal(publish, channel_id),
        frame.marshal(header.ContentHeader(body_size=len(body), properties=properties), channel_id),
    ]
    pieces = [body[start : start + frame_bytes] for start in range(0, len(body), frame_bytes)]
    parts.extend(frame.marshal(ContentBody(piece), channel_id) for piece in pieces)
    return b"".join(parts)


def split_frames(data: bytes) -> list[tuple[int, Any]]:
    """Everything the server sent, decoded by pamqp: (channel, method | header | body | heartbeat)."""
    found: list[tuple[int, Any]] = []
    while data:
        used, channel_id, what = frame.unmarshal(data)
        found.append((channel_id, what))
        data = data[used:]
    return found


def values(what: Any) -> dict[str, Any]:
    """The arguments of a method."""
    return {name: getattr(what, name) for name in what.attributes()}


def plain(event: Event) -> list[tuple[Any, ...]]:
    """An event as tuples, one for each message and settlement, so that batching does not matter."""
    if isinstance(event, PublishesReceived):
        return [
            ("publish", event.channel_id, content.exchange_and_key, content.header, content.body, flags)
            for content, flags in zip(event.contents, event.flags, strict=True)
        ]
    if isinstance(event, SettlementsReceived):
        return [("settle", event.channel_id, *settlement) for settlement in event.settlements]
    if isinstance(event, MethodReceived):
        return [("method", event.channel_id, event.method.name, values(event.decode_table()), event.arguments)]
    return [(repr(event),)]


def plain_events(events: list[Event]) -> list[tuple[Any, ...]]:
    return [item for event in events for item in plain(event)]


def contents_of(events: list[Event]) -> list[Content]:
    return [content for event in events if isinstance(event, PublishesReceived) for content in event.contents]


class ScriptedClient:
    """Drives one Connection; every answer that the broker owes is yes."""

    def __init__(self, settings: ConnectionSettings | None = None) -> None:
        self.connection = Connection(settings or ConnectionSettings("0.1.0"))

    def send(self, *frames: tuple[int, Frame] | bytes) -> list[Event]:
        """Frames in one piece of input; the events, with authentication and open answered."""
        data = b"".join(
            item if isinstance(item, bytes) else frame.marshal(item[1], item[0]) for item in frames
        )
        return self.feed(data)

    def feed(self, data: bytes) -> list[Event]:
        """Octets; the events, with authentication and open answered."""
        events = self.connection.receive(data)
        while events and isinstance(events[-1], AuthenticationRequested | OpenRequested):
            if isinstance(events[-1], AuthenticationRequested):
                self.connection.authenticated()
            else:
                self.connection.opened()
            more = self.connection.receive(b"")
            if not more:
                break
            events += more
        return events

    def output(self) -> list[tuple[int, Any]]:
        """What the server sent since the last call."""
        return split_frames(b"".join(self.connection.take_output()))

    def names(self) -> list[tuple[int, str]]:
        """The names of what the server sent since the last call."""
        return [
            (channel_id, "Heartbeat" if isinstance(what, Heartbeat) else what.name)
            for channel_id, what in self.output()
        ]

    def start_ok(self, **changes: Any) -> bytes:
        arguments: dict[str, Any] = {
            "client_properties": {"product": "test", "capabilities": RABBITMQ_CAPABILITIES},
            "mechanism": "PLAIN",
            "response": "\0guest\0guest",
        }
        return frame.marshal(commands.Connection.StartOk(**(arguments | changes)), 0)

    def handshake(self, channel_max: int = 2047, frame_max: int = 131_072, heartbeat: int = 0) -> None:
        """From the protocol header to open-ok."""
        self.feed(PROTOCOL_HEADER)
        self.feed(self.start_ok())
        self.send((0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat)))
        self.send((0, commands.Connection.Open()))
        assert self.names()[-1] == (0, "Connection.OpenOk")

    def open_channel(self, channel_id: int) -> None:
        self.send((channel_id, commands.Channel.Open()))
        assert self.names() == [(channel_id, "Channel.OpenOk")]

    def closing(self) -> tuple[Any, ...]:
        """The one close that the server sent: (channel, code, text, class id, method id)."""
        ((channel_id, close),) = self.output()
        assert isinstance(close, commands.Connection.Close | commands.Channel.Close)
        return channel_id, close.reply_code, close.reply_text, close.class_id, close.method_id


def running_client(**tuning: int) -> ScriptedClient:
    """A client past the handshake with channel 1 open."""
    client = ScriptedClient()
    client.handshake(**tuning)
    client.open_channel(1)
    return client
