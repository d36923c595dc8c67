"""Which of a publish's headers mean something to the broker, found in one walk through their names.  HOT.

Nearly all publishes have none or one of them, and each is looked for at another place.
"""

from __future__ import annotations

from typing import Final

from mayfly.node.amqp.content import property_span
from mayfly.node.amqp.field_table import value_end
from mayfly.node.content_header import FLAGS_AT, HEADERS

COPIES: Final = 1
"""Further routing keys: CC, BCC."""
KEPT_APART: Final = 2
"""What is stored as the publisher's own (`node.dead_letter.publisher_headers`)."""
DELAYED: Final = 4
MOMENT: Final = 8
RECURRENCE: Final = 16
TIME: Final = DELAYED | MOMENT | RECURRENCE
"""When it is due."""
CHANGE: Final = 32
"""Of what waits."""
STREAM_TTL: Final = 64

_MEANINGS: Final[dict[bytes, int]] = {
    b"CC": COPIES,
    b"BCC": COPIES | KEPT_APART,
    b"x-death": KEPT_APART,
    b"x-delay": DELAYED,
    b"x-deliver-at": MOMENT,
    b"x-schedule": RECURRENCE,
    b"x-schedule-cancel": CHANGE,
    b"Nats-TTL": STREAM_TTL,
    b"x-ttl": STREAM_TTL,
}


def meanings_of(header: bytes) -> int:
    """What the headers in a well-formed content header mean, each a bit; 0 for nothing. No value is looked at."""
    if not header[FLAGS_AT] & (HEADERS >> 8):
        return 0
    start, stop = property_span(header, HEADERS)
    found = 0
    at = start + 4
    while at < stop:
        value_at = at + 1 + header[at]
        found |= _MEANINGS.get(header[at + 1 : value_at], 0)
        at = value_end(header, value_at)
    return found
