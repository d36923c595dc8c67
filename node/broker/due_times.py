"""When a publish is due: the headers `x-deliver-at` and `x-delay` (RULES S2), or `x-schedule` if it recurs (S6).

They mean something only where a queue that the message goes to allows schedules, or, `x-delay`, where the message comes
to a delayed exchange (S1); then a value that is not a time is refused, as `expiration` is, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.amqp.field_table import TIMESTAMP, VOID, FieldValue, to_python
from mayfly.node.broker.meanings import DELAYED, MOMENT, RECURRENCE, TIME
from mayfly.node.broker.operation import AmqpError
from mayfly.node.catalog import MAX_TTL_MS
from mayfly.node.dead_letter.due import DELAY, delay_ms_of
from mayfly.node.recurrence.headers import BadRecurrence, recurrence_of
from mayfly.node.shard.commands import (
    AFTER,
    AT,
    NO_TTL,
    RECURRING,
    RECURRING_ONE,
    encode_publish,
    encode_publish_kept,
    encode_publish_later,
)

DELIVER_AT: Final = "x-deliver-at"
_DELIVER_AT: Final = b"x-deliver-at"
_DELAY: Final = b"x-delay"
_SECOND_MS: Final = 1000
_SHOWN_CHARACTERS: Final = 100


def is_delayed(content: Content, said: int) -> bool:
    """Whether a delayed exchange keeps the message for a while (RULES S1). Raises AmqpError 406 as `due_of` does."""
    if not said & DELAYED:
        return False
    due = due_of(content, said, 0)
    return due is not None and due[0] == AFTER and due[1] > 0


def due_of(content: Content, said: int, now_ms: int) -> tuple[int, int] | None:
    """AFTER or AT, and ms, or RECURRING or RECURRING_ONE, and seconds, as `encode_publish_later` takes them; None for a
    message that says nothing of it.

    ``said``: by its headers (`node.broker.meanings`). ``now_ms``: about what time it is, 0 if that isn't known yet.
    Raises AmqpError 406 for a value that is not a time, or for one more than ten years away.
    """
    if not said & TIME:
        return None
    if said & RECURRENCE:
        recurring = _recurring(content, now_ms)
        if recurring is not None:
            return recurring
    at = content.header_value(_DELIVER_AT) if said & MOMENT else None
    delay = content.header_value(_DELAY) if said & DELAYED else None
    if at is not None and delay is not None:
        raise _refused(f"{DELIVER_AT} and {DELAY} are both there: a message takes one of them")
    if delay is not None:
        return AFTER, _in_range(DELAY, delay, delay_ms_of(delay), MAX_TTL_MS, "milliseconds from now")
    if at is not None:
        return AT, _moment_ms(at, now_ms)
    return None


def _recurring(content: Content, now_ms: int) -> tuple[int, int] | None:
    """Of a message that recurs. What never comes is refused as well."""
    try:
        found = recurrence_of(content)
    except BadRecurrence as fault:
        raise _refused(str(fault)) from None
    if found is None:
        return None
    if found.cron is not None and found.cron.next_ms(now_ms, found.zone) is None:
        raise _refused(f"x-schedule = {found.text!r}: it does not come within ten years")
    return RECURRING_ONE if found.missed_one else RECURRING, found.every_s


def _moment_ms(value: FieldValue, now_ms: int) -> int:
    """The time of an x-deliver-at, in ms since 1970."""
    most_ms = now_ms + MAX_TTL_MS if now_ms else _LAST_MS
    if value.tag == TIMESTAMP:
        seconds = value.integer()
        if seconds * _SECOND_MS > most_ms:
            raise _refused(f"{DELIVER_AT} = timestamp {seconds}: at most {most_ms // _SECOND_MS}, ten years from now")
        return seconds * _SECOND_MS
    number = value.integer() if value.is_integer() else None
    return _in_range(DELIVER_AT, value, number, most_ms, "milliseconds since 1970; or a timestamp")


_LAST_MS: Final = (1 << 48) - 1
"""The last moment that a shard takes."""


def _in_range(name: str, value: FieldValue, number: int | None, most: int, unit: str) -> int:
    """The number in a value, which is refused if it is none, or one that can't be."""
    if number is None or not 0 <= number <= most:
        shown = str(number) if value.is_integer() else _shown(value)
        raise _refused(f"{name} = {shown}: an integer from 0 to {most} is expected, {unit}")
    return number


def _shown(value: FieldValue) -> str:
    """A value of another type, in an error."""
    if value.tag == VOID:
        return "void"
    shown = repr(to_python(value.tag, value.raw))
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return f"{shown} ({value.type_name()})"


def _refused(text: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid message: {text}")


def encode_content(
    parts: list[bytes], queue_ids: Sequence[int], ttl_ms: int, content: Content, due: tuple[int, int] | None,
    stream_ttl_ms: int = NO_TTL,
) -> int:
    """Append the PUBLISH of a message, or its PUBLISH_LATER if it is `due` later, or its PUBLISH_KEPT if it has a TTL
    in streams; the bytes of it."""
    key, header, body = content.exchange_and_key, content.header, content.body
    if stream_ttl_ms != NO_TTL:
        return encode_publish_kept(parts, queue_ids, ttl_ms, key, header, body, due, stream_ttl_ms)
    if due is None:
        return encode_publish(parts, queue_ids, ttl_ms, key, header, body)
    return encode_publish_later(parts, queue_ids, ttl_ms, key, header, body, due)
