"""The message-id property of a message, where it stands in its content header (AMQP 0-9-1, 4.2.6.1 and 1.8.1), as 128
bits of a digest. HOT for messages that wait for their time; nobody else asks.

By these bits a command of the log says which message it means (RULES S4), and a state machine can't look the id up: it
stands in the log. Ids with the same digest are not to be found by trying: not by chance among any number of messages,
and not by a client that may choose ids, which takes 2^64 tries for two of its own and 2^128 for one of another's.
"""

from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
NO_DIGEST: Final = b""
"""Of a message without an id."""

_FLAGS_AT: Final = 12
_PROPERTIES_AT: Final = 14
_LENGTH_BYTES: Final = 4
# In the first octet of the flags, which come in the order of the properties.
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20
_DELIVERY_MODE: Final = 0x10
_PRIORITY: Final = 0x08
_CORRELATION_ID: Final = 0x04
_REPLY_TO: Final = 0x02
_EXPIRATION: Final = 0x01
# In the second.
_MESSAGE_ID: Final = 0x80


def digest_of(message_id: bytes) -> bytes:
    """That of a message id."""
    return blake2b(message_id, digest_size=DIGEST_BYTES).digest()


def digest_at(data: bytes, header_at: int, header_length: int) -> bytes:
    """That of the message with the content header at ``header_at``; NO_DIGEST if it has no id, or an empty one, or is
    no whole header."""
    message_id = message_id_at(data, header_at, header_length)
    return digest_of(message_id) if message_id else NO_DIGEST


def message_id_at(data: bytes, header_at: int, header_length: int) -> bytes:
    """The id itself, empty where there is none."""
    end = header_at + header_length
    if header_length <= _PROPERTIES_AT or not data[header_at + _FLAGS_AT + 1] & _MESSAGE_ID:
        return b""
    flags = data[header_at + _FLAGS_AT]
    at = header_at + _PROPERTIES_AT
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag and at < end:
            at += 1 + data[at]
    if flags & _HEADERS and at + _LENGTH_BYTES <= end:
        at += _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
    if flags & _DELIVERY_MODE:
        at += 1
    if flags & _PRIORITY:
        at += 1
    for flag in (_CORRELATION_ID, _REPLY_TO, _EXPIRATION):
        if flags & flag and at < end:
            at += 1 + data[at]
    if at >= end:
        return b""
    stop = at + 1 + data[at]
    return data[at + 1 : stop] if stop <= end else b""
