"""The message-id property of a message, where it stands in its content header (AMQP 0-9-1, 4.2.6.1 and 1.8.1), as 128
bits of a digest. HOT for messages that wait for their time; nobody else asks.

By these bits a command of the log says which message it means (RULES S4), and a state machine can't look the id up: it
stands in the log. Ids with the same digest are not to be found by trying: not by chance among any number of messages,
and not by a client that may choose ids, which takes 2^64 tries for two of its own and 2^128 for one of another's.
"""

from hashlib import blake2b
from typing import Final

from mayfly.node.content_header import (
    CORRELATION_ID,
    EXPIRATION,
    FLAGS_AT,
    MESSAGE_ID,
    PRIORITY,
    PROPERTIES_AT,
    REPLY_TO,
)
from mayfly.node.shard.priority import priority_at

DIGEST_BYTES: Final = 16
NO_DIGEST: Final = b""
"""Of a message without an id."""
_OF_NOTHING: Final = blake2b(digest_size=DIGEST_BYTES)
"""To be copied, which takes less than to make another one; never updated."""
_BEFORE_ID: Final = (CORRELATION_ID, REPLY_TO, EXPIRATION)
_ANY_BEFORE_ID: Final = CORRELATION_ID | REPLY_TO | EXPIRATION


def digest_of(message_id: bytes) -> bytes:
    """That of a message id."""
    digest = _OF_NOTHING.copy()
    digest.update(message_id)
    return digest.digest()


def digest_at(data: bytes, header_at: int, header_length: int) -> bytes:
    """That of the message with the content header at ``header_at``; NO_DIGEST if it has no id, or an empty one, or is
    no whole header."""
    message_id = message_id_at(data, header_at, header_length)
    return digest_of(message_id) if message_id else NO_DIGEST


def message_id_at(data: bytes, header_at: int, header_length: int) -> bytes:
    """The id itself, empty where there is none."""
    end = header_at + header_length
    if header_length <= PROPERTIES_AT or not data[header_at + FLAGS_AT + 1] & MESSAGE_ID:
        return b""
    flags = data[header_at + FLAGS_AT] << 8
    at = priority_at(data, header_at, end)
    if flags & PRIORITY:
        at += 1
    if flags & _ANY_BEFORE_ID:
        for flag in _BEFORE_ID:
            if flags & flag and at < end:
                at += 1 + data[at]
    if at >= end:
        return b""
    stop = at + 1 + data[at]
    return data[at + 1 : stop] if stop <= end else b""
