"""Cron expressions of five fields, and when they next come in a time zone (RULES S6). Pure.

    minute 0-59, hour 0-23, day of the month 1-31, month 1-12 or JAN-DEC, day of the week 0-7 or SUN-SAT (7 is Sunday)

Each is `*`, or numbers and ranges with commas between them, `*` and ranges with or without a step: `*/5`, `9-17/2`;
`5/20` is `5-59/20`. As crontab(5) has it, a day has to be in one of the two fields for days where neither begins with
`*`, else in both.

They are times of a clock on the wall. A time that the clock leaves out, because it is put forward, does not come on
that day: the next is the next one that there is. One that the clock shows twice, because it is put back, comes the
first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

LONGEST: Final = 255
"""Characters of an expression."""
HORIZON_DAYS: Final = 3653
"""An expression that does not come for so long, ten years, never does."""
_SHOWN_CHARACTERS: Final = 40
_MS: Final = 1000
_MINUTE_S: Final = 60
_DECEMBER: Final = 12
_SUNDAY: Final = 7
_DAY: Final = timedelta(days=1)


class CronFault(ValueError):
    """Why a text is no expression: the field, its value, and what would be right."""


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        named = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.first}-{self.last}{named}"


_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


class Cron(NamedTuple):
    """An expression; all numbers rising, Sunday is 0. ``either_day``: a day in one of the two fields is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def has_day(self, day: date) -> bool:
        """Whether it comes on this day."""
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        return in_month or in_week if self.either_day else in_month and in_week

    def next_ms(self, after_ms: int, zone: tzinfo) -> int | None:
        """When it comes next in this zone, later than ``after_ms``; both in ms since 1970. None if it does not within
        ten years, or the calendar ends."""
        try:
            after = datetime.fromtimestamp(after_ms // _MS, zone)
            for moment in self._from(after):
                found_ms = _ms_if_it_is(moment, zone)
                if found_ms is not None and found_ms > after_ms:
                    return found_ms
        except (OverflowError, ValueError):
            pass
        return None

    def _from(self, start: datetime) -> Iterator[datetime]:
        """The times on the wall from this minute on, whether or not the clock shows them."""
        begin = start.hour * _MINUTE_S + start.minute
        day, last = start.date(), start.date() + HORIZON_DAYS * _DAY
        while day <= last:
            if day.month not in self.months:
                day, begin = _month_after(day), 0
                continue
            if self.has_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        if hour * _MINUTE_S + minute >= begin:
                            yield datetime(day.year, day.month, day.day, hour, minute, tzinfo=start.tzinfo)
            day, begin = day + _DAY, 0


def _month_after(day: date) -> date:
    if day.month == _DECEMBER:
        return date(day.year + 1, 1, 1)
    return date(day.year, day.month + 1, 1)


def _ms_if_it_is(moment: datetime, zone: tzinfo) -> int | None:
    """When a clock in the zone first shows this; None if it never does."""
    universal = moment.astimezone(UTC)
    if universal.astimezone(zone).replace(tzinfo=None) != moment.replace(tzinfo=None):
        return None
    return int(universal.timestamp()) * _MS


def cron_of(text: str) -> Cron:
    """The expression in a text. Raises CronFault."""
    parts = text.split()
    if len(parts) != len(_FIELDS) or len(text) > LONGEST:
        raise CronFault(f"{len(parts)} fields: five are expected, " + ", ".join(field.name for field in _FIELDS))
    minutes, hours, days, months, weekdays = [
        _numbers(field, part) for field, part in zip(_FIELDS, parts, strict=True)
    ]
    _, _, day, _, weekday = parts
    either_day = not day.startswith("*") and not weekday.startswith("*")
    return Cron(
        tuple(sorted(minutes)), tuple(sorted(hours)), frozenset(days), frozenset(months),
        frozenset(number % _SUNDAY for number in weekdays), either_day,
    )  # fmt: skip


def _numbers(field: _Field, text: str) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        found.update(_item(field, item))
    return found


def _item(field: _Field, text: str) -> range:
    """The numbers of one of the items between commas."""
    whole, with_step, step_text = text.partition("/")
    begin, is_range, end = whole.partition("-")
    if whole == "*":
        first, last = field.first, min(field.last, _SUNDAY - 1) if field.name == "day of the week" else field.last
    else:
        first = _number(field, begin, text)
        last = first
        if is_range:
            last = _number(field, end, text)
            if last == 0 and first > 0 and field.last == _SUNDAY:
                last = _SUNDAY  # Friday to Sunday.
        elif with_step:
            last = field.last
    if last < first:
        raise CronFault(f"{field.name} = {_shown(text)}: a range ends before it begins")
    if not with_step:
        return range(first, last + 1)
    step = int(step_text) if _is_number(step_text) else 0
    if not 1 <= step <= field.last:
        raise CronFault(f"{field.name} = {_shown(text)}: a step from 1 to {field.last} is expected behind the slash")
    return range(first, last + 1, step)


def _number(field: _Field, text: str, item: str) -> int:
    named = text.upper()
    if named in field.names:
        return field.names.index(named) + field.first
    number = int(text) if _is_number(text) else -1
    if not field.first <= number <= field.last:
        expected = f"{field.expected} is expected, `*`, ranges, lists or steps of them"
        raise CronFault(f"{field.name} = {_shown(item)}: {expected}")
    return number


def _shown(text: str) -> str:
    return text[:_SHOWN_CHARACTERS].encode("utf-8", "replace").decode()


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 2 and text.isascii() and text.isdigit()
