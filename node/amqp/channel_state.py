"""The states of a channel and how one follows another: which frame may come next.  HOT.

This is the only place that says what may come when.  Which method is which input: `method_table.ON_CHANNELS`.
"""

from typing import Final

from mayfly.node.amqp.errors import CHANNEL_ERROR, COMMAND_INVALID, UNEXPECTED_FRAME, ProtocolError

CLOSED: Final = 0
OPEN: Final = 1
HEADER_EXPECTED: Final = 2
BODY_EXPECTED: Final = 3
CLOSING: Final = 4
"""States.  CLOSING: channel.close was sent, and everything is ignored until the client's close-ok."""

STATE_NAMES: Final = ("closed", "open", "header expected", "body expected", "closing")

RECEIVE_OPEN: Final = 0
RECEIVE_CLOSE: Final = 1
RECEIVE_CLOSE_OK: Final = 2
RECEIVE_FLOW: Final = 3
RECEIVE_METHOD: Final = 4
RECEIVE_SETTLEMENT: Final = 5
RECEIVE_PUBLISH: Final = 6
RECEIVE_OTHER_METHOD: Final = 7
RECEIVE_HEADER: Final = 8
RECEIVE_EMPTY_HEADER: Final = 9
RECEIVE_BODY: Final = 10
RECEIVE_LAST_BODY: Final = 11
RECEIVE_TOO_LONG_BODY: Final = 12
SEND_CLOSE: Final = 13
"""What can happen to a channel.  METHOD: one for the broker; OTHER_METHOD: one that no client may send on a channel.
EMPTY_HEADER announces a body of no octets; LAST_BODY completes one; TOO_LONG_BODY is more than was announced."""

NOT_OPEN: Final = -1
SECOND_OPEN: Final = -2
UNSERVED: Final = -3
NO_METHOD: Final = -4
NO_HEADER: Final = -5
NO_BODY: Final = -6
"""Refusals: the connection fails with what REFUSALS says."""

REFUSALS: Final[dict[int, tuple[int, str]]] = {
    NOT_OPEN: (CHANNEL_ERROR, "expected 'channel.open'"),
    SECOND_OPEN: (CHANNEL_ERROR, "second 'channel.open' seen"),
    UNSERVED: (COMMAND_INVALID, "unimplemented method"),
    NO_METHOD: (UNEXPECTED_FRAME, "expected method frame, got non method frame instead"),
    NO_HEADER: (UNEXPECTED_FRAME, "expected content header for class 60, got non content header frame instead"),
    NO_BODY: (UNEXPECTED_FRAME, "expected content body, got non content body frame instead"),
}
"""Refusal -> reply code and text, in RabbitMQ's words."""

# fmt: off
TRANSITIONS: Final[dict[int, tuple[int, ...]]] = {
    #                       CLOSED                      HEADER_EXPECTED               CLOSING
    #                                  OPEN                            BODY_EXPECTED
    RECEIVE_OPEN:          (OPEN,      SECOND_OPEN,     NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_CLOSE:         (NOT_OPEN,  CLOSED,          NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_CLOSE_OK:      (NOT_OPEN,  UNSERVED,        NO_HEADER,     NO_BODY,       CLOSED),
    RECEIVE_FLOW:          (NOT_OPEN,  OPEN,            NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_METHOD:        (NOT_OPEN,  OPEN,            NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_SETTLEMENT:    (NOT_OPEN,  OPEN,            NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_PUBLISH:       (NOT_OPEN,  HEADER_EXPECTED, NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_OTHER_METHOD:  (NOT_OPEN,  UNSERVED,        NO_HEADER,     NO_BODY,       CLOSING),
    RECEIVE_HEADER:        (NO_METHOD, NO_METHOD,       BODY_EXPECTED, NO_BODY,       CLOSING),
    RECEIVE_EMPTY_HEADER:  (NO_METHOD, NO_METHOD,       OPEN,          NO_BODY,       CLOSING),
    RECEIVE_BODY:          (NO_METHOD, NO_METHOD,       NO_HEADER,     BODY_EXPECTED, CLOSING),
    RECEIVE_LAST_BODY:     (NO_METHOD, NO_METHOD,       NO_HEADER,     OPEN,          CLOSING),
    RECEIVE_TOO_LONG_BODY: (NO_METHOD, NO_METHOD,       NO_HEADER,     NO_BODY,       CLOSING),
    SEND_CLOSE:            (CLOSED,    CLOSING,         CLOSING,       CLOSING,       CLOSING),
}
# fmt: on
"""What happens -> the next state, or a refusal, for each state in the order of STATE_NAMES."""

_BASIC: Final = 60
_PUBLISH: Final = 40


def refused(refusal: int, class_id: int, method_id: int) -> ProtocolError:
    """The error for a refusal of TRANSITIONS.

    `class_id` and `method_id` are those of the method received, 0 for other frames; where content was expected, the
    publish is at fault.
    """
    code, text = REFUSALS[refusal]
    if refusal in (NO_HEADER, NO_BODY):
        return ProtocolError(code, text, _BASIC, _PUBLISH)
    return ProtocolError(code, text, class_id, method_id)
