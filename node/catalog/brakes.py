"""Brakes of queues (RULES R5): what their arguments and policy keys take, and what they come to.

    x-dead-letter-brake-rate, dead-letter-brake-rate       messages a second that may fail
    x-dead-letter-brake-window, dead-letter-brake-window   over so many milliseconds
"""
from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from mayfly.node.catalog.records import QueueSettings

RATE: Final = "dead-letter-brake-rate"
WINDOW: Final = "dead-letter-brake-window"
KEYS: Final = (RATE, WINDOW)
"""Of policies; arguments have an x- before it."""

DEFAULT_WINDOW_MS: Final = 10_000
MOST_WINDOW_MS: Final = 86_400_000
"""A day."""
MOST_PER_SECOND: Final = 1_000_000
RATES: Final = f"a number above 0, at most {MOST_PER_SECOND} (messages a second)"
_MS_PER_S: Final = 1000
_MOST_DIGITS: Final = 20
_ROUNDED: Final = 1e-9


def is_rate(value: Any) -> bool:
    """Whether this is a rate: a number of messages a second, fractions too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_PER_SECOND


def rate_of(value: Any) -> float | None:
    """The rate in an argument, None where it is none. A decimal counts as well, and its digits in a string, as which it
    is kept: some clients have no floats in their tables."""
    if isinstance(value, Decimal):
        value = str(value)
    if isinstance(value, str):
        value = _number_in(value)
    return float(value) if is_rate(value) else None


def _number_in(text: str) -> float:
    """The number that a decimal is written as; 0 for any other text."""
    digits = text.replace(".", "", 1).replace("E-", "", 1)
    if len(text) > _MOST_DIGITS or not (digits.isascii() and digits.isdigit()):
        return 0.0
    try:
        return float(text)
    except ValueError:
        return 0.0


def pair_fault(said: Mapping[str, Any], prefix: str = "") -> str | None:
    """What is wrong with good values that do not go together; None if nothing is."""
    if prefix + WINDOW in said and prefix + RATE not in said:
        return f"{RATE} is required when there is {WINDOW}"
    return None


def limit_and_window_ms(settings: QueueSettings) -> tuple[int, int]:
    """How many messages may fail within how long, as the settings that count say; a window of 0: there is no brake."""
    rate = settings.brake_rate
    if rate is None:
        return 0, 0
    window_ms = settings.brake_window_ms or DEFAULT_WINDOW_MS
    return int(rate * window_ms / _MS_PER_S + _ROUNDED), window_ms
