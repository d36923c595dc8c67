"""The protocol state of one channel: which frame may come next.  HOT.

A message that arrives whole goes through all of its states at once (see frames.py) and never leaves OPEN;
this is for messages that come in pieces, and for opening and closing.
"""

from typing import Final

from node.amqp.errors import CHANNEL_ERROR, COMMAND_INVALID, UNEXPECTED_FRAME, ProtocolError

CLOSED: Final = 0
OPEN: Final = 1
HEADER_EXPECTED: Final = 2
BODY_EXPECTED: Final = 3
CLOSING: Final = 4
"""States.  CLOSING: channel.close was sent, and everything is ignored until the client's close-ok."""

STATE_NAMES: Final = ("closed", "open", "header expected", "body expected", "closing")

RECEIVE_OPEN: Final = 0
RECEIVE_METHOD: Final = 1
RECEIVE_PUBLISH: Final = 2
RECEIVE_HEADER: Final = 3
RECEIVE_EMPTY_HEADER: Final = 4
RECEIVE_BODY: Final = 5
RECEIVE_LAST_BODY: Final = 6
RECEIVE_CLOSE: Final = 7
RECEIVE_CLOSE_OK: Final = 8
SEND_CLOSE: Final = 9
"""What can happen to a channel.  EMPTY_HEADER announces a body of no octets; LAST_BODY completes one."""

INPUTS: Final = tuple(range(10))

TRANSITIONS: Final[dict[int, dict[int, int]]] = {
    CLOSED: {
        RECEIVE_OPEN: OPEN,
    },
    OPEN: {
        RECEIVE_METHOD: OPEN,
        RECEIVE_PUBLISH: HEADER_EXPECTED,
        RECEIVE_CLOSE: CLOSED,
        SEND_CLOSE: CLOSING,
    },
    HEADER_EXPECTED: {
        RECEIVE_HEADER: BODY_EXPECTED,
        RECEIVE_EMPTY_HEADER: OPEN,
        SEND_CLOSE: CLOSING,
    },
    BODY_EXPECTED: {
        RECEIVE_BODY: BODY_EXPECTED,
        RECEIVE_LAST_BODY: OPEN,
        SEND_CLOSE: CLOSING,
    },
    CLOSING: {
        RECEIVE_OPEN: CLOSING,
        RECEIVE_METHOD: CLOSING,
        RECEIVE_PUBLISH: CLOSING,
        RECEIVE_HEADER: CLOSING,
        RECEIVE_EMPTY_HEADER: CLOSING,
        RECEIVE_BODY: CLOSING,
        RECEIVE_LAST_BODY: CLOSING,
        RECEIVE_CLOSE: CLOSING,
        RECEIVE_CLOSE_OK: CLOSED,
        SEND_CLOSE: CLOSING,
    },
}
"""State -> what happens -> next state.  What is not here is an error of the client: see `unexpected`."""

_BASIC: Final = 60
_PUBLISH: Final = 40
# Pieces of a body smaller than this are gathered, so that a body in tiny pieces takes no more memory
# than one in large pieces; a gathered piece is left alone once it has this size.
_SMALL_PIECE_BYTES: Final = 2_048
_GATHERED_BYTES: Final = 65_536


def unexpected(state: int, happening: int, class_id: int, method_id: int) -> ProtocolError:
    """The error for something that TRANSITIONS does not allow, in RabbitMQ's words.

    `class_id` and `method_id` are those of the method received, 0 for other frames.
    """
    is_content = happening in (RECEIVE_HEADER, RECEIVE_EMPTY_HEADER, RECEIVE_BODY, RECEIVE_LAST_BODY)
    if state == HEADER_EXPECTED:
        text = "expected content header for class 60, got non content header frame instead"
        return ProtocolError(UNEXPECTED_FRAME, text, _BASIC, _PUBLISH)
    if state == BODY_EXPECTED:
        text = "expected content body, got non content body frame instead"
        return ProtocolError(UNEXPECTED_FRAME, text, _BASIC, _PUBLISH)
    if is_content:
        return ProtocolError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
    if state == OPEN and happening == RECEIVE_OPEN:
        return ProtocolError(CHANNEL_ERROR, "second 'channel.open' seen", class_id, method_id)
    if state == OPEN:
        return ProtocolError(COMMAND_INVALID, "unimplemented method", class_id, method_id)
    return ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", class_id, method_id)


class Channel:
    """One channel and the message it is receiving, if any."""

    __slots__ = ("body_left", "channel_id", "exchange_and_key", "flags", "header", "pieces", "state")

    def __init__(self, channel_id: int) -> None:
        self.channel_id: int = channel_id
        self.state: int = CLOSED
        self.exchange_and_key: bytes = b""
        self.flags: int = 0
        self.header: bytes = b""
        self.body_left: int = 0
        self.pieces: list[bytes | bytearray] = []

    def move(self, happening: int, class_id: int = 0, method_id: int = 0) -> None:
        """Go to the next state.  Raises ProtocolError where TRANSITIONS has none."""
        following = TRANSITIONS[self.state].get(happening)
        if following is None:
            raise unexpected(self.state, happening, class_id, method_id)
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

    def take_body(self, piece: bytes) -> None:
        """A piece of the body came: a whole frame's payload or a part of it.  After the last one OPEN again.

        Raises ProtocolError, RabbitMQ's for a frame of another kind, if it is more than the header announced.
        """
        size = len(piece)
        if size > self.body_left:
            raise unexpected(self.state, RECEIVE_METHOD, _BASIC, _PUBLISH)
        self.body_left -= size
        self.move(RECEIVE_BODY if self.body_left else RECEIVE_LAST_BODY)
        if size >= _SMALL_PIECE_BYTES:
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
        if self.pieces:
            self.pieces = []

    def end(self) -> None:
        """The connection has ended."""
        self.state = CLOSED
        self.forget_message()
