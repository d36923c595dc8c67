"""One channel of a connection: its state, and the message that it is receiving.  HOT."""

from typing import Final

from mayfly.node.amqp.channel_state import (
    CLOSED,
    CLOSING,
    RECEIVE_BODY,
    RECEIVE_EMPTY_HEADER,
    RECEIVE_HEADER,
    RECEIVE_LAST_BODY,
    RECEIVE_PUBLISH,
    RECEIVE_TOO_LONG_BODY,
    TRANSITIONS,
    refused,
)

# Pieces of a body smaller than this are gathered, so that a body in tiny pieces takes no more memory
# than one in large pieces; a gathered piece is left alone once it has this size.
_SMALL_PIECE_BYTES: Final = 2_048
_GATHERED_BYTES: Final = 65_536


class Unfinished:
    """The octets that have come of messages whose rest is still to come, on all channels of one connection."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes: int = 0


class ReceivingChannel:
    """One channel and the message it is receiving, if any.

    unfinished_bytes: what has come of that message, header and body, as long as it is not whole.  It is part of
    `unfinished`, which the channels of a connection share.
    """

    __slots__ = (
        "body_left", "channel_id", "exchange_and_key", "flags", "header", "pieces", "state", "unfinished",
        "unfinished_bytes",
    )

    def __init__(self, channel_id: int, unfinished: Unfinished | None = None) -> None:
        self.channel_id: int = channel_id
        self.unfinished: Unfinished = unfinished or Unfinished()
        self.unfinished_bytes: int = 0
        self.state: int = CLOSED
        self.exchange_and_key: bytes = b""
        self.flags: int = 0
        self.header: bytes = b""
        self.body_left: int = 0
        self.pieces: list[bytes | bytearray] = []

    def move(self, happening: int, class_id: int = 0, method_id: int = 0) -> None:
        """Go to the next state.  Raises ProtocolError where TRANSITIONS has a refusal."""
        following = TRANSITIONS[happening][self.state]
        if following < 0:
            raise refused(following, class_id, method_id)
        self.state = following
        if following in (CLOSING, CLOSED):
            self.forget_message()

    def begin_message(self, exchange_and_key: bytes, flags: int) -> None:
        """basic.publish came; its content is to follow."""
        self.move(RECEIVE_PUBLISH)
        self.exchange_and_key = exchange_and_key
        self.flags = flags

    def take_header(self, header: bytes, body_size: int) -> None:
        """The content header came."""
        self.move(RECEIVE_HEADER if body_size else RECEIVE_EMPTY_HEADER)
        self.header = header
        self.body_left = body_size
        self._count(len(header))

    def take_body(self, piece: bytes) -> None:
        """A piece of the body came: a whole frame's payload or a part of it.  After the last one OPEN again.

        Raises ProtocolError, RabbitMQ's for a frame of another kind, if it is more than the header announced.
        """
        size = len(piece)
        if size > self.body_left:
            self.move(RECEIVE_TOO_LONG_BODY)
            return
        self.body_left -= size
        self._count(size)
        self.move(RECEIVE_BODY if self.body_left else RECEIVE_LAST_BODY)
        if size >= _SMALL_PIECE_BYTES or not (self.body_left or self.pieces):
            self.pieces.append(piece)
            return
        if self.pieces:
            last = self.pieces[-1]
            if isinstance(last, bytearray) and len(last) < _GATHERED_BYTES:
                last += piece
                return
        self.pieces.append(bytearray(piece))

    def take_message_body(self) -> bytes:
        """The whole body, once the last piece has come; the channel keeps nothing of the message."""
        body = b"".join(self.pieces)
        self.forget_message()
        return body

    def forget_message(self) -> None:
        """Drop what has come of a message."""
        self.body_left = 0
        self.header = b""
        self._count(-self.unfinished_bytes)
        if self.pieces:
            self.pieces = []

    def _count(self, more_bytes: int) -> None:
        self.unfinished_bytes += more_bytes
        self.unfinished.size_bytes += more_bytes

    def end(self) -> None:
        """The connection has ended."""
        self.state = CLOSED
        self.forget_message()
