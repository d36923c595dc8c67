"""The header `x-schedule-cancel`: a publish that cancels what waits under a message id, and is not stored (RULES S4).

With `x-delay` or `x-deliver-at` beside it, what waits is due at that time from then on. It means something only where a
queue that the message goes to allows schedules, as those headers do.
"""

from __future__ import annotations

from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.amqp.field_table import LONG_STRING, VOID, to_python
from mayfly.node.broker.operation import AmqpError
from mayfly.node.shard.commands import CANCEL
from mayfly.node.shard.message_id import digest_of

SCHEDULE_CANCEL: Final = "x-schedule-cancel"
CANCELLED: Final = (CANCEL, 0)
"""In place of a time."""
_NAME: Final = b"x-schedule-cancel"
_LONGEST_ID_OCTETS: Final = 255
_SHOWN_CHARACTERS: Final = 100


def digest_to_change(content: Content) -> bytes:
    """Of the message id that a publish means by the header; empty if it has none. Raises AmqpError 406 for what can be
    no message id."""
    value = content.header_value(_NAME)
    if value is None:
        return b""
    if value.tag != LONG_STRING or not 0 < len(value.octets()) <= _LONGEST_ID_OCTETS:
        shown = "void" if value.tag == VOID else repr(to_python(value.tag, value.raw))[:_SHOWN_CHARACTERS]
        raise AmqpError(
            PRECONDITION_FAILED,
            f"invalid message: {SCHEDULE_CANCEL} = {shown} ({value.type_name()}): a message id is expected, a string "
            f"of 1 to {_LONGEST_ID_OCTETS} octets",
        )
    return digest_of(value.octets())


def refused_in_transaction() -> AmqpError:
    """A shard takes a transaction as a whole or not at all, and refuses a change alone."""
    return AmqpError(
        PRECONDITION_FAILED,
        f"invalid message: {SCHEDULE_CANCEL} can be no part of a transaction: another channel is for it",
    )
