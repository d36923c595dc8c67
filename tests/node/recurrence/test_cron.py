"""Cron expressions and when they come (RULES S6)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mayfly.node.recurrence.cron import Cron, CronFault, cron_of
from mayfly.node.recurrence.zones import zone_named

MINUTE_MS = 60_000
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu",
    "America/Havana", "Africa/Casablanca", "Pacific/Apia", "Antarctica/Troll", "Asia/Beirut",
)  # fmt: skip


def ms(text: str) -> int:
    """A moment in ISO's form with its offset, in ms since 1970."""
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def times(text: str, zone: str, after: str, count: int) -> list[str]:
    """The next ones, in ISO's form in their zone."""
    found, after_ms = [], ms(after)
    for _ in range(count):
        next_ms = cron_of(text).next_ms(after_ms, ZoneInfo(zone))
        assert next_ms is not None
        found.append(datetime.fromtimestamp(next_ms / 1000, ZoneInfo(zone)).isoformat(" ", "minutes"))
        after_ms = next_ms
    return found


def comes(cron: Cron, moment: datetime) -> bool:
    """What the oracle goes by: the clock on the wall, for the first time it shows this."""
    return moment.fold == 0 and (
        moment.minute in cron.minutes and moment.hour in cron.hours and cron.has_day(moment.date())
    )


def by_minutes(cron: Cron, zone: str, after_ms: int, minutes: int) -> int | None:
    """The same, looked for minute by minute of true time; None if it does not come in so many."""
    moment_ms = after_ms // MINUTE_MS * MINUTE_MS
    for _ in range(minutes):
        moment_ms += MINUTE_MS
        if comes(cron, datetime.fromtimestamp(moment_ms // 1000, ZoneInfo(zone))):
            return moment_ms
    return None


def field(first: int, last: int, dense: bool) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    pair = st.tuples(number, number).map(sorted)
    items = st.one_of(
        number.map(str), pair.map(lambda p: f"{p[0]}-{p[1]}"),
        st.tuples(pair, st.integers(1, last)).map(lambda p: f"{p[0][0]}-{p[0][1]}/{p[1]}"),
        st.integers(1, last).map(lambda n: f"*/{n}"),
    )  # fmt: skip
    return st.one_of(st.just("*"), items) if dense else st.lists(items, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(
    field(0, 59, False), field(0, 23, True), field(1, 31, True), field(1, 12, True), field(0, 7, True)
).map(" ".join)
# Around changes of clocks, and anywhere.
MOMENTS = st.one_of(
    st.sampled_from([
        "2026-03-29T00:30:00+00:00", "2026-10-25T00:10:00+00:00", "2026-03-08T06:40:00+00:00",
        "2026-11-01T05:20:00+00:00", "2026-10-03T15:10:00+00:00", "2026-04-04T14:40:00+00:00",
        "2011-12-30T09:00:00+00:00", "2028-02-28T22:00:00+00:00",
    ]).map(ms),
    st.integers(ms("2010-01-01T00:00:00+00:00"), ms("2040-01-01T00:00:00+00:00")),
)  # fmt: skip


@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS, st.integers(0, 180 * MINUTE_MS))
@example("30 2 * * *", "Europe/Berlin", ms("2026-03-28T23:59:00+00:00"), 0)
@example("*/7 * * * *", "Australia/Lord_Howe", ms("2026-04-04T14:29:00+00:00"), 1)
@example("15 0 * * *", "Asia/Beirut", ms("2026-03-28T21:00:00+00:00"), 0)
def test_s6_the_next_time_is_the_one_found_minute_by_minute(text: str, zone: str, after_ms: int, more_ms: int) -> None:
    """S6, with zones as they are: no time is left out, none comes twice, none that the clock never shows."""
    cron = cron_of(text)
    minutes = 3 * 24 * 60
    expected = by_minutes(cron, zone, after_ms + more_ms, minutes)
    found = cron.next_ms(after_ms + more_ms, ZoneInfo(zone))
    if expected is not None:
        assert found == expected
    else:
        assert found is None or found > after_ms + more_ms + minutes * MINUTE_MS - MINUTE_MS
    if found is not None:
        assert comes(cron, datetime.fromtimestamp(found // 1000, ZoneInfo(zone)))


def test_s6_a_time_that_the_clock_leaves_out_does_not_come_on_that_day() -> None:
    """S6: in Berlin there is no 02:30 on 29 March 2026."""
    assert times("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00+01:00", 3) == [
        "2026-03-28 02:30+01:00", "2026-03-30 02:30+02:00", "2026-03-31 02:30+02:00",
    ]  # fmt: skip
    assert times("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00", 2) == [
        "2026-03-29 01:30+01:00", "2026-03-29 03:00+02:00",
    ]  # fmt: skip


def test_s6_a_time_that_the_clock_shows_twice_comes_the_first_time() -> None:
    """S6: in New York 1 November 2026 has two hours from 01:00."""
    assert times("30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00", 2) == [
        "2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00",
    ]  # fmt: skip
    assert times("*/30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00", 2) == [
        "2026-11-01 01:30-04:00", "2026-11-01 02:00-05:00",
    ]  # fmt: skip


def test_s6_days_and_names() -> None:
    """S6, crontab(5)."""
    assert times("0 9 * * MON-FRI", "UTC", "2026-11-27T10:00:00+00:00", 2) == [
        "2026-11-30 09:00+00:00", "2026-12-01 09:00+00:00",
    ]  # fmt: skip
    assert times("0 0 13 * FRI", "UTC", "2026-11-01T00:00:00+00:00", 3) == [
        "2026-11-06 00:00+00:00", "2026-11-13 00:00+00:00", "2026-11-20 00:00+00:00",
    ]  # fmt: skip
    assert times("0 0 */2 * 1", "UTC", "2026-11-01T00:00:00+00:00", 1) == ["2026-11-09 00:00+00:00"]
    assert times("0 0 29 feb *", "UTC", "2026-11-01T00:00:00+00:00", 2) == [
        "2028-02-29 00:00+00:00", "2032-02-29 00:00+00:00",
    ]  # fmt: skip
    assert cron_of("0 0 * * 5-SUN").weekdays == cron_of("0 0 * * 0,5,6").weekdays == cron_of("0 0 * * 5-7").weekdays
    assert cron_of("5/20,0 1,3-7/2 * * *")[:2] == ((0, 5, 25, 45), (1, 3, 5, 7))


def test_s6_what_never_comes_is_known_for_it() -> None:
    """S6: nor is there one beyond the end of the calendar."""
    assert cron_of("0 0 30 2 *").next_ms(ms("2026-01-01T00:00:00+00:00"), UTC) is None
    assert cron_of("* * * * *").next_ms(1 << 62, UTC) is None
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC) - timedelta(minutes=1)
    assert cron_of("* * * * *").next_ms(int(last.timestamp()) * 1000 + 60_000, UTC) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("* * * *", "4 fields: five are expected, minute, hour, day of the month, month, day of the week"),
        ("* * * * * *", "6 fields"),
        ("60 * * * *", "minute = 60: 0-59 is expected"),
        ("* 24 * * *", "hour = 24: 0-23 is expected"),
        ("* * 0 * *", "day of the month = 0: 1-31 is expected"),
        ("* * * 13 *", "month = 13: 1-12 or JAN-DEC is expected"),
        ("* * * * 8", "day of the week = 8: 0-7 or SUN-SAT is expected"),
        ("* * * * MONDAY", "day of the week = MONDAY: 0-7 or SUN-SAT is expected"),
        ("5-3 * * * *", "minute = 5-3: a range ends before it begins"),
        ("*/0 * * * *", "minute = */0: a step from 1 to 59 is expected"),
        ("*/x * * * *", "minute = */x: a step"),
        ("1,,2 * * * *", "minute = : 0-59 is expected"),
        ("\u0661 * * * *", "minute = \u0661: 0-59"),
        ("? * * * *", "minute = ?: 0-59"),
        ("-1 * * * *", "minute = -1: 0-59"),
        ("1-2-3 * * * *", "minute = 1-2-3: 0-59"),
        ("0 " * 200, "200 fields"),
    ],
)
def test_s6_what_is_no_expression_is_named_with_its_field(text: str, told: str) -> None:
    with pytest.raises(CronFault) as caught:
        cron_of(text)
    assert told in str(caught.value)


@given(st.text(alphabet="*/,-0123456789 MONJAN?", max_size=40))
def test_s6_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        cron = cron_of(text)
    except CronFault:
        return
    assert cron.minutes
    assert cron.hours


def test_s6_zones_are_those_of_the_database() -> None:
    assert zone_named("Europe/Berlin") is not None
    for name in ("", "Europe", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "UTC\x00", "x" * 300, "\u00dcTC"):
        assert zone_named(name) is None
