"""What a connection does with frames on its channels, other than messages and settlements."""

from collections.abc import Callable
from typing import Final

from pamqp.base import Frame
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx
from pamqp.commands import Channel as ChannelClass

from node.amqp.channel import (
    CLOSING,
    RECEIVE_BODY,
    RECEIVE_CLOSE,
    RECEIVE_CLOSE_OK,
    RECEIVE_HEADER,
    RECEIVE_METHOD,
    RECEIVE_OPEN,
    SEND_CLOSE,
    Channel,
)
from node.amqp.errors import COMMAND_INVALID, NOT_IMPLEMENTED, UNEXPECTED_FRAME, ProtocolError
from node.amqp.events import ChannelClosed, ChannelOpened, Event, MethodReceived
from node.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, frame_snippet, unknown_frame
from node.amqp.methods import decode_method, method_ids, unchecked

_FOR_THE_BROKER: Final = frozenset(
    [
        method.index
        for method in (
            Exchange.Declare,
            Exchange.Delete,
            Exchange.Bind,
            Exchange.Unbind,
            Queue.Declare,
            Queue.Bind,
            Queue.Unbind,
            Queue.Purge,
            Queue.Delete,
            Basic.Qos,
            Basic.Consume,
            Basic.Cancel,
            Basic.Get,
            Basic.Recover,
            Basic.RecoverAsync,
            Confirm.Select,
            Tx.Select,
            Tx.Commit,
            Tx.Rollback,
        )
    ]
)
_FEWEST_HEADER_BYTES: Final = 12


class ChannelMethods:
    """Opens and closes the channels of a connection and passes their methods on.

    told_closed: channels in CLOSING whose end the broker has heard of already.
    """

    def __init__(
        self,
        channels: dict[int, Channel],
        events: list[Event],
        send_frame: Callable[[int, Frame], None],
    ) -> None:
        self._channels = channels
        self._events = events
        self._send_frame = send_frame
        self.told_closed: set[int] = set()

    def frame(self, kind: int, channel_id: int, payload: bytes) -> None:
        """A frame on a channel of a running connection.  Raises ProtocolError."""
        channel = self._channels.get(channel_id)
        if channel is None:
            channel = Channel(channel_id)
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

    def close(self, channel: Channel, code: int, text: str, class_id: int, method_id: int) -> None:
        """Send channel.close; everything of the channel is ignored until the client's close-ok."""
        channel.move(SEND_CLOSE)
        self._send_frame(channel.channel_id, ChannelClass.Close(code, text, class_id, method_id))

    def _method(self, channel: Channel, payload: bytes) -> None:
        """A method that is no settlement, or a settlement or publish that may not come now."""
        class_id, method_id = method_ids(payload)
        if class_id == ChannelClass.frame_id:
            self._method_of_channel(channel, payload, class_id, method_id)
            return
        channel.move(RECEIVE_METHOD, class_id, method_id)
        if channel.state == CLOSING:
            return
        method, arguments = decode_method(payload)
        if method.index in _FOR_THE_BROKER:
            self._events.append(MethodReceived(channel.channel_id, method, arguments))
        else:
            raise ProtocolError(COMMAND_INVALID, "unimplemented method", class_id, method_id)

    def _method_of_channel(self, channel: Channel, payload: bytes, class_id: int, method_id: int) -> None:
        """channel.open, close, close-ok, flow."""
        channel_id = channel.channel_id
        if channel.state == CLOSING and method_id not in (40, 41):
            return
        method, _ = decode_method(payload)
        if isinstance(method, ChannelClass.Open):
            channel.move(RECEIVE_OPEN, class_id, method_id)
            self._channels[channel_id] = channel
            self._send_frame(channel_id, unchecked(ChannelClass.OpenOk, channel_id=""))
            self._events.append(ChannelOpened(channel_id))
        elif isinstance(method, ChannelClass.Close):
            channel.move(RECEIVE_CLOSE, class_id, method_id)
            self._send_frame(channel_id, ChannelClass.CloseOk())
            if channel.state != CLOSING:
                del self._channels[channel_id]
                self._events.append(ChannelClosed(channel_id))
        elif isinstance(method, ChannelClass.CloseOk):
            channel.move(RECEIVE_CLOSE_OK, class_id, method_id)
            del self._channels[channel_id]
            if channel_id in self.told_closed:
                self.told_closed.discard(channel_id)
            else:
                self._events.append(ChannelClosed(channel_id))
        elif isinstance(method, ChannelClass.Flow):
            channel.move(RECEIVE_METHOD, class_id, method_id)
            if not method.active:
                raise ProtocolError(NOT_IMPLEMENTED, "active=false", class_id, method_id)
            self._send_frame(channel_id, ChannelClass.FlowOk(active=True))
        else:
            channel.move(RECEIVE_METHOD, class_id, method_id)
            raise ProtocolError(COMMAND_INVALID, "unimplemented method", class_id, method_id)
