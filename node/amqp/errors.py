"""AMQP reply codes: their names, which of them end the connection, and the texts that carry them.

Names and the hard/soft split are those of AMQP 0-9-1 (section 1.2.1) as RabbitMQ answers them.
"""

from typing import Final

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

REPLY_NAMES: Final[dict[int, str]] = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

HARD_CODES: Final[frozenset[int]] = frozenset(
    (
        CONNECTION_FORCED,
        INVALID_PATH,
        FRAME_ERROR,
        SYNTAX_ERROR,
        COMMAND_INVALID,
        CHANNEL_ERROR,
        UNEXPECTED_FRAME,
        RESOURCE_ERROR,
        NOT_ALLOWED,
        NOT_IMPLEMENTED,
        INTERNAL_ERROR,
    )
)
"""Codes that close the connection; the others close a channel (AMQP 0-9-1, "hard error" and "soft error")."""

_LONGEST_TEXT_BYTES: Final = 255


def is_hard(code: int) -> bool:
    """Whether an error with this reply code ends the whole connection rather than one channel."""
    return code in HARD_CODES


def reply_text(code: int, text: str) -> str:
    """The reply-text of a close: the code's name, " - " and the text, cut to what a short string holds."""
    name = REPLY_NAMES.get(code)
    whole = text if name is None else f"{name} - {text}" if text else name
    encoded = whole.encode("utf-8", "replace")
    if len(encoded) > _LONGEST_TEXT_BYTES:
        return encoded[: _LONGEST_TEXT_BYTES - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode("utf-8")


class ProtocolError(Exception):
    """The peer broke a rule of the protocol: the connection is closed with this code and text.

    `class_id` and `method_id` name the method that was at fault, 0 where there was none.
    """

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text, class_id, method_id)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id


class FramingError(ProtocolError):
    """A frame whose bounds cannot be trusted: nothing after it can be read as a frame."""
