"""The channels of one connection: opening, closing, how many there may be, and what is passed on to the broker.

Messages and settlements on an open channel do not come here: `frames.FrameReader` takes them.
"""

from collections.abc import Callable
from typing import Any, Final

from pamqp.base import Frame
from pamqp.commands import Channel as ChannelClass

from mayfly.node.amqp.channel import ReceivingChannel, Unfinished
from mayfly.node.amqp.channel_state import (
    CLOSED,
    CLOSING,
    RECEIVE_BODY,
    RECEIVE_CLOSE,
    RECEIVE_CLOSE_OK,
    RECEIVE_FLOW,
    RECEIVE_HEADER,
    RECEIVE_OPEN,
    RECEIVE_OTHER_METHOD,
    SEND_CLOSE,
    TRANSITIONS,
    UNSERVED,
)
from mayfly.node.amqp.errors import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    ProtocolError,
    reply_text,
)
from mayfly.node.amqp.events import ChannelClosed, ChannelOpened, Event, MethodReceived
from mayfly.node.amqp.field_table import values_in
from mayfly.node.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, frame_snippet, unknown_frame
from mayfly.node.amqp.method_table import ON_CHANNELS
from mayfly.node.amqp.methods import decode_method, decode_method_without_table, method_ids, unchecked
from mayfly.node.amqp.output import Output
from mayfly.node.limits import ARGUMENT_VALUES, ARGUMENTS_BYTES

_CHANNEL: Final = 20
_FEWEST_HEADER_BYTES: Final = 12


class Channels:
    """Opens and closes the channels of a connection and passes their methods on.

    by_id: those that are open or closing; shared with the connection's FrameReader and Output.
    most: how many there may be, as agreed (channel-max).
    refusal: set by the owner: given how many channels are open, why there may not be one more (530), or None.
    unfinished: what has come of messages that are not whole yet.
    """

    def __init__(self, by_id: dict[int, ReceivingChannel], most: int, events: list[Event], output: Output) -> None:
        self.by_id: dict[int, ReceivingChannel] = by_id
        self.most: int = most
        self.refusal: Callable[[int], str | None] = _no_refusal
        self.unfinished: Unfinished = Unfinished()
        self._events = events
        self._output = output
        # Channels in CLOSING whose end the broker has heard of already.
        self._told_closed: set[int] = set()

    def frame(self, kind: int, channel_id: int, payload: bytes) -> None:
        """A frame on a channel of a running connection.  Raises ProtocolError."""
        channel = self.by_id.get(channel_id)
        if channel is None:
            self._check_room()
            channel = ReceivingChannel(channel_id, self.unfinished)
        if kind == METHOD and len(payload) >= 4:
            self._method(channel, payload)
        elif kind == HEADER and len(payload) >= _FEWEST_HEADER_BYTES:
            channel.move(RECEIVE_HEADER)
        elif kind == BODY:
            channel.move(RECEIVE_BODY)
        elif kind == HEARTBEAT and not payload:
            raise ProtocolError(UNEXPECTED_FRAME, frame_snippet(kind, payload))
        else:
            raise unknown_frame(kind, payload)

    def close(self, channel: ReceivingChannel, code: int, text: str, class_id: int, method_id: int) -> None:
        """Send channel.close; everything of the channel is ignored until the client's close-ok."""
        channel.move(SEND_CLOSE)
        told = ChannelClass.Close(code, reply_text(code, text), class_id, method_id)
        self._output.append_method(channel.channel_id, told)

    def refuse_message(self, channel: ReceivingChannel, code: int, text: str) -> None:
        """Close a channel whose client publishes what may not be."""
        self._refuse(channel, code, text, 60, 40)

    def _refuse(self, channel: ReceivingChannel, code: int, text: str, class_id: int, method_id: int) -> None:
        """Close a channel for what has come on it.  The close was not the broker's: it must hear of it now, and nothing
        is told again at the close-ok."""
        self.close(channel, code, text, class_id, method_id)
        self._told_closed.add(channel.channel_id)
        self._events.append(ChannelClosed(channel.channel_id))

    def end(self) -> None:
        """The connection has ended: no channel exists any more."""
        for channel in self.by_id.values():
            channel.end()
        self.by_id.clear()

    def _check_room(self) -> None:
        """Whether there may be one more channel, whatever is said on it."""
        count = len(self.by_id)
        if count >= self.most:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max ({self.most})"
            raise ProtocolError(NOT_ALLOWED, text)
        refusal = self.refusal(count)
        if refusal is not None:
            raise ProtocolError(NOT_ALLOWED, refusal)

    def _method(self, channel: ReceivingChannel, payload: bytes) -> None:
        """A method other than a settlement, or a settlement or publish that may not come now."""
        class_id, method_id = method_ids(payload)
        happening = ON_CHANNELS.get(class_id << 16 | method_id, RECEIVE_OTHER_METHOD)
        if class_id == _CHANNEL:
            self._method_of_channel(channel, payload, happening)
            return
        if TRANSITIONS[happening][channel.state] == UNSERVED:
            # Arguments that cannot be read, and numbers of no method, are told of first.
            decode_method_without_table(payload)
        channel.move(happening, class_id, method_id)
        if channel.state == CLOSING:
            return
        method, arguments = decode_method_without_table(payload)
        fault = arguments_fault(arguments)
        if fault:
            self._refuse(channel, PRECONDITION_FAILED, f"{fault} for {method.name}", class_id, method_id)
        else:
            self._events.append(MethodReceived(channel.channel_id, method, arguments, len(payload)))

    def _method_of_channel(self, channel: ReceivingChannel, payload: bytes, happening: int) -> None:
        """A method of class channel: done here. Its arguments are read first, unless it is ignored."""
        if channel.state == CLOSING and happening not in (RECEIVE_CLOSE, RECEIVE_CLOSE_OK):
            return
        method, _ = decode_method(payload)
        channel.move(happening, *method_ids(payload))
        _ACTIONS[happening](self, channel, method)

    def _open(self, channel: ReceivingChannel, method: Frame) -> None:
        self.by_id[channel.channel_id] = channel
        self._output.append_method(channel.channel_id, unchecked(ChannelClass.OpenOk, channel_id=""))
        self._events.append(ChannelOpened(channel.channel_id))

    def _close(self, channel: ReceivingChannel, method: Frame) -> None:
        """The client's close. In CLOSING both sides closed at once: it is answered, its close-ok still awaited."""
        self._output.append_method(channel.channel_id, ChannelClass.CloseOk())
        if channel.state == CLOSED:
            self._forget(channel.channel_id)

    def _close_ok(self, channel: ReceivingChannel, method: Frame) -> None:
        self._forget(channel.channel_id)

    def _forget(self, channel_id: int) -> None:
        del self.by_id[channel_id]
        if channel_id in self._told_closed:
            self._told_closed.discard(channel_id)
        else:
            self._events.append(ChannelClosed(channel_id))

    def _flow(self, channel: ReceivingChannel, method: ChannelClass.Flow) -> None:
        if not method.active:
            raise ProtocolError(NOT_IMPLEMENTED, "active=false", _CHANNEL, 20)
        self._output.append_method(channel.channel_id, ChannelClass.FlowOk(active=True))


_ACTIONS: Final[dict[int, Callable[[Channels, ReceivingChannel, Any], None]]] = {
    RECEIVE_OPEN: Channels._open,
    RECEIVE_CLOSE: Channels._close,
    RECEIVE_CLOSE_OK: Channels._close_ok,
    RECEIVE_FLOW: Channels._flow,
}


def arguments_fault(arguments: bytes) -> str:
    """Why a method's field table, as on the wire (b"" if it has none), is not taken: it is too large; "" if it is."""
    if len(arguments) > ARGUMENTS_BYTES:
        return f"arguments of {len(arguments)} octets, where {ARGUMENTS_BYTES} are the most,"
    # A value takes an octet at least.
    if len(arguments) > ARGUMENT_VALUES and values_in(arguments) > ARGUMENT_VALUES:
        return f"arguments with {values_in(arguments)} values, where {ARGUMENT_VALUES} are the most,"
    return ""


def _no_refusal(channels: int) -> str | None:
    return None
