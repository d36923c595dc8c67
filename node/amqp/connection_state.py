"""The states of a connection and how one follows another (AMQP 0-9-1 section 2.2.4).

This is the only place that says what may come when: `Connection` looks it up for each method and frame on channel 0.
Which method is which input: `method_table.ON_CHANNEL_0`.
"""

from typing import Final

from mayfly.node.amqp.errors import CHANNEL_ERROR, FRAME_ERROR, UNEXPECTED_FRAME

AWAITING_HEADER: Final = 0
STARTING: Final = 1
SECURING: Final = 2
TUNING: Final = 3
OPENING: Final = 4
CHECKING_VHOST: Final = 5
RUNNING: Final = 6
CLOSING: Final = 7
CLOSED: Final = 8
"""States.  In SECURING and CHECKING_VHOST the broker owes an answer and no input is read.
CLOSING: connection.close was sent, and everything is ignored until the client's close-ok.
"""

STATE_NAMES: Final = (
    "handshake",
    "starting",
    "securing",
    "tuning",
    "opening",
    "opening",
    "running",
    "closing",
    "closed",
)
"""As RabbitMQ names them in its texts."""

RECEIVE_PROTOCOL_HEADER: Final = 0
RECEIVE_START_OK: Final = 1
RECEIVE_TUNE_OK: Final = 2
RECEIVE_OPEN: Final = 3
RECEIVE_UPDATE_SECRET: Final = 4
RECEIVE_CLOSE: Final = 5
RECEIVE_CLOSE_OK: Final = 6
RECEIVE_OTHER_METHOD: Final = 7
RECEIVE_CONTENT: Final = 8
RECEIVE_CHANNEL_FRAME: Final = 9
RECEIVE_UNKNOWN_FRAME: Final = 10
"""What a client can do.  RECEIVE_OTHER_METHOD: any other method on channel 0; RECEIVE_CONTENT: a header or body frame
there; RECEIVE_CHANNEL_FRAME: any frame on another channel, for which `channel_state` says more."""

ACCEPT_LOGIN: Final = 11
REFUSE_LOGIN: Final = 12
ACCEPT_OPEN: Final = 13
FAIL: Final = 14
DROP: Final = 15
"""What the server can do.  FAIL: it ends the connection with a reply code, which the client is told in a
connection.close if CLOSING follows.  DROP: the socket is given up without a word."""

NOT_DUE: Final = -1
MISPLACED: Final = -2
UNKNOWN: Final = -3
NEVER: Final = -4
"""Refusals: the connection fails with the reply code in REFUSALS.  NEVER: nothing is read in that state."""

REFUSALS: Final[dict[int, int]] = {
    NOT_DUE: CHANNEL_ERROR,
    MISPLACED: UNEXPECTED_FRAME,
    UNKNOWN: FRAME_ERROR,
}

# fmt: off
TRANSITIONS: Final[dict[int, tuple[int, ...]]] = {
    # The client's.
    #                         AWAITING_HEADER      SECURING          OPENING                RUNNING             CLOSED
    #                                   STARTING          TUNING                     CHECKING_VHOST    CLOSING
    RECEIVE_PROTOCOL_HEADER: (STARTING, NEVER,     NEVER, NEVER,     NEVER,          NEVER, NEVER,     NEVER,   NEVER),
    RECEIVE_START_OK:        (NEVER,    SECURING,  NEVER, NOT_DUE,   NOT_DUE,        NEVER, NOT_DUE,   CLOSING, NEVER),
    RECEIVE_TUNE_OK:         (NEVER,    NOT_DUE,   NEVER, OPENING,   NOT_DUE,        NEVER, NOT_DUE,   CLOSING, NEVER),
    RECEIVE_OPEN:            (NEVER,    NOT_DUE,   NEVER, NOT_DUE,   CHECKING_VHOST, NEVER, NOT_DUE,   CLOSING, NEVER),
    RECEIVE_UPDATE_SECRET:   (NEVER,    NOT_DUE,   NEVER, NOT_DUE,   NOT_DUE,        NEVER, RUNNING,   CLOSING, NEVER),
    RECEIVE_CLOSE:           (NEVER,    NOT_DUE,   NEVER, NOT_DUE,   NOT_DUE,        NEVER, CLOSED,    CLOSING, NEVER),
    RECEIVE_CLOSE_OK:        (NEVER,    NOT_DUE,   NEVER, NOT_DUE,   NOT_DUE,        NEVER, NOT_DUE,   CLOSED,  NEVER),
    RECEIVE_OTHER_METHOD:    (NEVER,    NOT_DUE,   NEVER, NOT_DUE,   NOT_DUE,        NEVER, NOT_DUE,   CLOSING, NEVER),
    RECEIVE_CONTENT:         (NEVER,    MISPLACED, NEVER, MISPLACED, MISPLACED,      NEVER, MISPLACED, CLOSING, NEVER),
    RECEIVE_CHANNEL_FRAME:   (NEVER,    MISPLACED, NEVER, MISPLACED, MISPLACED,      NEVER, RUNNING,   CLOSING, NEVER),
    RECEIVE_UNKNOWN_FRAME:   (NEVER,    UNKNOWN,   NEVER, UNKNOWN,   UNKNOWN,        NEVER, UNKNOWN,   CLOSING, NEVER),
    # The server's own.
    #              AWAITING_HEADER            SECURING          OPENING                  RUNNING           CLOSED
    #                               STARTING            TUNING           CHECKING_VHOST           CLOSING
    ACCEPT_LOGIN: (AWAITING_HEADER, STARTING, TUNING,   TUNING, OPENING, CHECKING_VHOST, RUNNING, CLOSING, CLOSED),
    REFUSE_LOGIN: (AWAITING_HEADER, STARTING, CLOSING,  TUNING, OPENING, CHECKING_VHOST, RUNNING, CLOSING, CLOSED),
    ACCEPT_OPEN:  (AWAITING_HEADER, STARTING, SECURING, TUNING, OPENING, RUNNING,        RUNNING, CLOSING, CLOSED),
    FAIL:         (CLOSED,          CLOSED,   CLOSED,   CLOSED, CLOSING, CLOSING,        CLOSING, CLOSING, CLOSED),
    DROP:         (CLOSED,          CLOSED,   CLOSED,   CLOSED, CLOSED,  CLOSED,         CLOSED,  CLOSED,  CLOSED),
}
# fmt: on
"""What happens -> the next state, or a refusal, for each state in the order of STATE_NAMES."""
