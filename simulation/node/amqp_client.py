"""A small AMQP 0-9-1 client without sockets: one connection, one channel, octets in and octets out.

It is written for histories: every answer reaches a callback at the virtual time at which a client would
read it. An error that closes the channel ends the connection as well; whoever uses the client connects
anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pamqp import body, commands, frame, header
from pamqp.base import Frame

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_MAX = 131_072
# Of a frame: type, channel and size; the size alone; the octet at its end.
_HEAD_BYTES = 7
_SIZE_BYTES = 4
_END_BYTES = 1


@dataclass(slots=True)
class ReceivedMessage:
    """What came with a deliver, a get-ok or a return."""

    delivery_tag: int
    consumer_tag: str
    redelivered: bool
    body: bytes
    properties: commands.Basic.Properties
    routing_key: str = ""
    """Of a deliver."""


class BrokerRefused(Exception):
    """The broker closed the channel or the connection instead of answering."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code or 0


Answer = Callable[[Any], None]
"""Called with the answering method, a ReceivedMessage, or a BrokerRefused."""


class AmqpClient:
    """The client's side of one connection. `write` sends octets; `receive` takes them.

    `on_ready` is called when the channel is open and in its mode: confirms, or with Tx.Select transactions.
    `on_closed(error)` is called once: with the Refused that ended it, or with None if the socket broke.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        on_ready: Answer,
        on_closed: Callable[[BrokerRefused | None], None],
        login: tuple[str, str] = ("guest", "guest"),
        mode: Frame | None = None,
    ) -> None:
        self._write = write
        self._login = login
        # Asked for None by name: a frame without fields is false.
        self._mode = commands.Confirm.Select() if mode is None else mode
        self._on_ready = on_ready
        self._on_closed = on_closed
        self.closed = False
        self.ready = False
        self.on_message: Callable[[ReceivedMessage], None] = lambda message: None
        self.on_confirm: Callable[[int, bool], None] = lambda tag, acknowledged: None
        self.on_returned: Callable[[ReceivedMessage], None] = lambda message: None
        self.on_cancelled: Callable[[str], None] = lambda tag: None
        self._buffer = b""
        self._waiting: deque[Answer] = deque()
        self._published = 0
        self._unconfirmed: deque[int] = deque()
        self._content: Frame | None = None
        self._properties: commands.Basic.Properties | None = None
        self._size = 0
        self._parts: list[bytes] = []
        write(PROTOCOL_HEADER)

    # ------------------------------------------------------------------ what a user calls

    def call(self, method: Frame, answer: Answer = lambda answer: None) -> None:
        """Send a method that is answered; answers come in the order of the calls."""
        self._waiting.append(answer)
        self._send(1, method)

    def publish(
        self, exchange: str, routing_key: str, content: bytes, properties: commands.Basic.Properties
    ) -> int:
        """Publish, mandatory; returns the tag that will be confirmed."""
        self._published += 1
        self._unconfirmed.append(self._published)
        self._write(
            frame.marshal(commands.Basic.Publish(0, exchange, routing_key, mandatory=True), 1)
            + frame.marshal(header.ContentHeader(0, len(content), properties), 1)
            + (frame.marshal(body.ContentBody(content), 1) if content else b"")
        )
        return self._published

    def settle(self, method: Frame) -> None:
        """Send an ack, a nack or a reject."""
        self._send(1, method)

    def close(self) -> None:
        """Close politely; `on_closed(None)` follows."""
        self._send(0, commands.Connection.Close(200, "bye", 0, 0))

    def broken(self) -> None:
        """The socket is gone."""
        self._end(None)

    # ------------------------------------------------------------------ octets from the broker

    def receive(self, octets: bytes) -> None:
        """Octets from the broker."""
        octets = self._buffer + octets if self._buffer else octets
        position = 0
        while not self.closed:
            # A real socket may end a read anywhere; pamqp takes whole frames only.
            head_end = position + _HEAD_BYTES
            frame_end = head_end + int.from_bytes(octets[head_end - _SIZE_BYTES : head_end], "big") + _END_BYTES
            if len(octets) < head_end or len(octets) < frame_end:
                break
            _, channel, unmarshalled = frame.unmarshal(octets[position:frame_end])
            position = frame_end
            self._frame(channel, unmarshalled)
        self._buffer = octets[position:]

    def _send(self, channel: int, method: Frame) -> None:
        if not self.closed:
            self._write(frame.marshal(method, channel))

    def _frame(self, channel: int, part: Any) -> None:
        if isinstance(part, header.ContentHeader):
            self._properties = part.properties
            self._size = part.body_size
            self._parts = []
            if not self._size:
                self._message()
        elif isinstance(part, body.ContentBody):
            self._parts.append(part.value)
            if sum(map(len, self._parts)) >= self._size:
                self._message()
        elif channel == 0:
            self._on_connection(part)
        else:
            self._on_channel(part)

    def _on_connection(self, method: Any) -> None:
        if isinstance(method, commands.Connection.Start):
            properties: Any = {
                "capabilities": {"consumer_cancel_notify": True, "publisher_confirms": True}
            }
            user, password = self._login
            self._send(0, commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}", "en_US"))
        elif isinstance(method, commands.Connection.Tune):
            self._send(0, commands.Connection.TuneOk(10, FRAME_MAX, 0))
            self._send(0, commands.Connection.Open("/"))
        elif isinstance(method, commands.Connection.OpenOk):
            self.call(commands.Channel.Open(), lambda answer: None)
            self.call(self._mode, self._selected)
        elif isinstance(method, commands.Connection.Close):
            self._send(0, commands.Connection.CloseOk())
            self._end(BrokerRefused(method.reply_code, method.reply_text))
        elif isinstance(method, commands.Connection.CloseOk):
            self._end(None)

    def _selected(self, answer: Any) -> None:
        self.ready = True
        self._on_ready(answer)

    def _on_channel(self, method: Any) -> None:
        if isinstance(method, commands.Basic.Ack | commands.Basic.Nack):
            self._confirmed(method.delivery_tag, method.multiple, isinstance(method, commands.Basic.Ack))
        elif isinstance(method, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return):
            self._content = method
        elif isinstance(method, commands.Basic.Cancel):
            self.on_cancelled(str(method.consumer_tag))
        elif isinstance(method, commands.Channel.Close):
            self._send(1, commands.Channel.CloseOk())
            self._end(BrokerRefused(method.reply_code, method.reply_text))
        else:
            self._waiting.popleft()(method)

    def _confirmed(self, tag: int, multiple: bool, acknowledged: bool) -> None:
        if not multiple:
            self._unconfirmed.remove(tag)
            self.on_confirm(tag, acknowledged)
            return
        while self._unconfirmed and self._unconfirmed[0] <= tag:
            self.on_confirm(self._unconfirmed.popleft(), acknowledged)

    def _message(self) -> None:
        method, properties = self._content, self._properties
        self._content = None
        if method is None or properties is None:
            raise AssertionError("a content frame without its method")
        message = ReceivedMessage(0, "", False, b"".join(self._parts), properties)
        if isinstance(method, commands.Basic.Deliver):
            message.consumer_tag = str(method.consumer_tag)
            message.routing_key = str(method.routing_key)
        if isinstance(method, commands.Basic.Deliver | commands.Basic.GetOk):
            message.delivery_tag = method.delivery_tag or 0
            message.redelivered = method.redelivered
        if isinstance(method, commands.Basic.Return):
            self.on_returned(message)
        elif isinstance(method, commands.Basic.GetOk):
            self._waiting.popleft()(message)
        else:
            self.on_message(message)

    def _end(self, error: BrokerRefused | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.ready = False
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            answer(error if error is not None else BrokerRefused(0, "the connection broke"))
        self._on_closed(error)
