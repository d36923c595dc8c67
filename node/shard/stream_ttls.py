"""How long messages of streams live (RULES J2): what publishers and arguments say, and how it is written.

    60, "60"     seconds
    "1h30m"      a duration as Go writes it: numbers, with fractions or not, each with h, m, s, ms, us or ns
    "never"      of a publish alone: the message never grows too old
"""

from typing import Final

from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.message import NO_TTL

LEAST_MS: Final = 1_000
MOST_MS: Final = 315_360_000_000
"""Ten years, as of all TTLs (RULES T1)."""
_SECOND_MS: Final = 1_000
_NEVER: Final = "never"
_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
    "m": 60_000_000_000, "h": 3_600_000_000_000,
}
"""Those with two characters before the first of these alone."""
_MS_NS: Final = 1_000_000
_DIGITS: Final = "0123456789"
_LONGEST: Final = 100
"""Characters of any duration that is looked at."""


def duration_ms(value: object) -> int | None:
    """Milliseconds of seconds or of a duration, what is below one left off; None for what is neither, negative ones
    included. Above `MOST_MS` one is as good as another."""
    if isinstance(value, int) and not isinstance(value, bool):
        return None if value < 0 else min(value, MOST_MS + 1) * _SECOND_MS
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        return None
    if value.isascii() and value.isdigit():
        return int(value[:_LONGEST]) * _SECOND_MS
    total_ns = 0
    rest = value
    while rest:
        part_ns, rest = _first_part(rest)
        if part_ns < 0:
            return None
        total_ns += part_ns
    return total_ns // _MS_NS


def _first_part(text: str) -> tuple[int, str]:
    """The first number of a duration with its unit, in ns, -1 if there is none; and what follows it."""
    after = text.lstrip(_DIGITS)
    whole = text[: len(text) - len(after)]
    part = ""
    if after.startswith("."):
        text, after = after[1:], after[1:].lstrip(_DIGITS)
        part = text[: len(text) - len(after)]
    if whole or part:
        for unit in _UNITS_NS:
            if after.startswith(unit):
                fraction_ns = int(part) * _UNITS_NS[unit] // 10 ** len(part) if part else 0
                return int(whole or "0") * _UNITS_NS[unit] + fraction_ns, after[len(unit) :]
    return -1, ""


def message_ttl_ms(value: object) -> int | None:
    """The TTL that a publish asks for: NO_TTL for 0, which says nothing; NEVER_TTL; None for what is no TTL, is below a
    second, or above ten years."""
    if isinstance(value, str) and value.lower() == _NEVER:
        return NEVER_TTL
    ttl_ms = duration_ms(value)
    if ttl_ms is None or ttl_ms > MOST_MS:
        return None
    if ttl_ms < LEAST_MS:
        return NO_TTL if _is_zero(value) else None
    return ttl_ms


def _is_zero(value: object) -> bool:
    """Of a duration: whether it is none at all, and not a part of a millisecond."""
    return not any(digit in str(value) for digit in "123456789")


def marker_ttl_ms(value: object) -> int | None:
    """The TTL that an `x-delete-marker-ttl` asks for; None for what is none, is below a second, or above ten years."""
    ttl_ms = duration_ms(value)
    return ttl_ms if ttl_ms is not None and LEAST_MS <= ttl_ms <= MOST_MS else None


def duration_text(ttl_ms: int) -> str:
    """Milliseconds as Go writes them, such as `1h0m0s`."""
    minutes, rest_ms = divmod(ttl_ms, 60 * _SECOND_MS)
    seconds = f"{rest_ms / _SECOND_MS:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds
