"""What the headers of a recurring message say (RULES S6).

    x-schedule             `@every 5m`, with a duration as Go writes it, or a cron expression (`node.recurrence.cron`)
    x-schedule-time-zone   a zone of the IANA database, for a cron expression; UTC where it is not there
    x-schedule-missed      `none` or `one`: what comes of times at which the shard had no leader
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Final, NamedTuple

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.field_table import LONG_STRING, VOID, FieldTable, FieldValue, to_python
from mayfly.node.content_header import MESSAGE_ID
from mayfly.node.recurrence.cron import Cron, CronFault, cron_of
from mayfly.node.recurrence.zones import zone_named
from mayfly.node.shard.stream_ttls import MOST_MS, duration_ms

SCHEDULE: Final = "x-schedule"
TIME_ZONE: Final = "x-schedule-time-zone"
MISSED: Final = "x-schedule-missed"
OTHER_TIMES: Final = ("x-delay", "x-deliver-at", "x-schedule-cancel")
"""Headers that say when, too: a message has one of them."""
MOST_EVERY_S: Final = MOST_MS // 1000
_EVERY: Final = "@every"
_NONE: Final = "none"
_ONE: Final = "one"
_SECOND_MS: Final = 1000
_SHOWN_CHARACTERS: Final = 100


class BadRecurrence(ValueError):
    """Why the headers can't be: the field, its value, and what would be right."""


class Recurrence(NamedTuple):
    """Either ``every_s`` seconds, or, where that is 0, as ``cron`` says in ``zone``. ``missed_one``: one message comes
    for all times that were missed together."""

    text: str
    zone_name: str
    every_s: int
    cron: Cron | None
    zone: tzinfo
    missed_one: bool


def recurrence_of(content: Content) -> Recurrence | None:
    """What a message's headers say; None if it does not recur. Raises BadRecurrence."""
    table = content.headers_table()
    value = None if table is None else table.get(SCHEDULE)
    if table is None or value is None:
        return None
    text = _text(SCHEDULE, value, "`@every 5m`, or a cron expression of five fields")
    for name in OTHER_TIMES:
        if table.get(name) is not None:
            raise BadRecurrence(f"{SCHEDULE} and {name} are both there: a message takes one of them")
    if not content.short_property(MESSAGE_ID):
        raise BadRecurrence(f"{SCHEDULE} = {_shown(text)}: a message-id is expected, under which it can be cancelled")
    missed_one = _missed_one(table)
    if text.startswith("@"):
        if table.get(TIME_ZONE) is not None:
            raise BadRecurrence(f"{SCHEDULE} = {_shown(text)} takes no {TIME_ZONE}: only a cron expression does")
        return Recurrence(text, "", _every_s(text), None, UTC, missed_one)
    zone_name, zone = _zone(table)
    try:
        cron = cron_of(text)
    except CronFault as fault:
        raise BadRecurrence(f"{SCHEDULE} = {_shown(text)}: {fault}") from None
    return Recurrence(text, zone_name, 0, cron, zone, missed_one)


def said_in(content: Content) -> tuple[str, str]:
    """The schedule and the time zone as they stand in the headers of one that was taken, to be shown."""
    table = content.headers_table()
    if table is None:
        return "", ""
    found = [table.get(name) for name in (SCHEDULE, TIME_ZONE)]
    schedule, zone_name = ["" if value is None else _shown_text(value) for value in found]
    return schedule, zone_name


def _shown_text(value: FieldValue) -> str:
    return value.octets().decode("utf-8", "replace") if value.tag == LONG_STRING else ""


def _missed_one(table: FieldTable) -> bool:
    value = table.get(MISSED)
    if value is None:
        return False
    text = _text(MISSED, value, f"{_NONE} or {_ONE}")
    if text not in (_NONE, _ONE):
        raise BadRecurrence(f"{MISSED} = {_shown(text)}: {_NONE} or {_ONE} is expected")
    return text == _ONE


def _every_s(text: str) -> int:
    word, _, duration = text.partition(" ")
    every_ms = duration_ms(duration.strip()) if word == _EVERY else None
    if every_ms is None or not _SECOND_MS <= every_ms <= MOST_MS or every_ms % _SECOND_MS:
        raise BadRecurrence(
            f"{SCHEDULE} = {_shown(text)}: `{_EVERY}` and a duration such as 1h30m is expected, whole seconds, at "
            "least 1 second and at most ten years; or a cron expression of five fields"
        )
    return every_ms // _SECOND_MS


def _zone(table: FieldTable) -> tuple[str, tzinfo]:
    value = table.get(TIME_ZONE)
    if value is None:
        return "UTC", UTC
    expected = "the name of a zone in the IANA database is expected, such as Europe/Berlin"
    name = _text(TIME_ZONE, value, expected)
    zone = zone_named(name)
    if zone is None:
        raise BadRecurrence(f"{TIME_ZONE} = {_shown(name)}: {expected}")
    return name, zone


def _text(name: str, value: FieldValue, expected: str) -> str:
    if value.tag == LONG_STRING:
        return value.text()
    shown = "void" if value.tag == VOID else _shown(to_python(value.tag, value.raw))
    raise BadRecurrence(f"{name} = {shown} ({value.type_name()}): {expected} is expected, a string")


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."
