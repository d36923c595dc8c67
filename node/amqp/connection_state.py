"""The states of a connection and how one follows another (AMQP 0-9-1 section 2.2.4)."""

from typing import Final

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
AUTHENTICATED: Final = 2
RECEIVE_TUNE_OK: Final = 3
RECEIVE_OPEN: Final = 4
OPENED: Final = 5
RECEIVE_UPDATE_SECRET: Final = 6
RECEIVE_CHANNEL_FRAME: Final = 7
RECEIVE_CLOSE: Final = 8
RECEIVE_CLOSE_OK: Final = 9
RECEIVE_OTHER: Final = 10
SEND_CLOSE: Final = 11
DROP: Final = 12
"""What can happen.  RECEIVE_OTHER: any other method of class connection.  DROP: the socket is given up."""

INPUTS: Final = tuple(range(13))

TRANSITIONS: Final[dict[int, dict[int, int]]] = {
    AWAITING_HEADER: {RECEIVE_PROTOCOL_HEADER: STARTING, DROP: CLOSED},
    STARTING: {RECEIVE_START_OK: SECURING, DROP: CLOSED},
    SECURING: {AUTHENTICATED: TUNING, SEND_CLOSE: CLOSING, DROP: CLOSED},
    TUNING: {RECEIVE_TUNE_OK: OPENING, SEND_CLOSE: CLOSING, DROP: CLOSED},
    OPENING: {RECEIVE_OPEN: CHECKING_VHOST, SEND_CLOSE: CLOSING, DROP: CLOSED},
    CHECKING_VHOST: {OPENED: RUNNING, SEND_CLOSE: CLOSING, DROP: CLOSED},
    RUNNING: {
        RECEIVE_UPDATE_SECRET: RUNNING,
        RECEIVE_CHANNEL_FRAME: RUNNING,
        RECEIVE_CLOSE: CLOSED,
        SEND_CLOSE: CLOSING,
        DROP: CLOSED,
    },
    CLOSING: {
        RECEIVE_START_OK: CLOSING,
        RECEIVE_TUNE_OK: CLOSING,
        RECEIVE_OPEN: CLOSING,
        RECEIVE_UPDATE_SECRET: CLOSING,
        RECEIVE_CHANNEL_FRAME: CLOSING,
        RECEIVE_OTHER: CLOSING,
        # Both sides closed at once: the client's close is answered, its close-ok still awaited.
        RECEIVE_CLOSE: CLOSING,
        RECEIVE_CLOSE_OK: CLOSED,
        SEND_CLOSE: CLOSING,
        DROP: CLOSED,
    },
    CLOSED: {DROP: CLOSED},
}
"""State -> what happens -> next state.  What a client does that is not here is an error of the client."""
