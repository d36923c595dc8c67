"""Headers that are the publisher's, and not what receivers or later deaths take them for.  HOT: `as_shown`.

Two names in a message's headers mean something to dead-lettering, and each needs one more fact than the header tells:

- BCC: its keys count at every death until a dead-letter routing key takes their place (D4), and no receiver may see it;
- x-death: written by the broker it is the history of deaths, which cycles and counts go by (D3, D5); written by a
  client it is shown to receivers as it came, believed by nobody, and gone with the first death, as in RabbitMQ 4.

So a message with either is stored with one header more, `PUBLISHER_HEADERS`, at the end of its table: the names of
those that stand in it as they were published. Only the broker sees that header. One that a client sends is not shown
either.
"""

from typing import Final

from mayfly.node.amqp.content import property_span, replace_properties
from mayfly.node.amqp.field_table import ARRAY, LONG_STRING, FieldTable, array, long_string
from mayfly.node.content_header import FLAGS_AT, HEADERS

BCC: Final = "BCC"
X_DEATH: Final = "x-death"
PUBLISHER_HEADERS: Final = "x-mayfly-published"

_HAS_HEADERS: Final = HEADERS >> 8
_BCC_OCTETS: Final = b"\x03BCC"
_X_DEATH_OCTETS: Final = b"\x07x-death"
_MARK_OCTETS: Final = b"\x12x-mayfly-published"


def as_stored(header: bytes) -> bytes:
    """The content header of a message that a client publishes, as the log keeps it."""
    if not header[FLAGS_AT] & _HAS_HEADERS or (header.find(_BCC_OCTETS) < 0 and header.find(_X_DEATH_OCTETS) < 0):
        return header
    start, stop = property_span(header, HEADERS)
    headers = FieldTable.of_checked(header[start:stop])
    mark(headers, [name for name in (BCC, X_DEATH) if name in headers])
    return replace_properties(header, {HEADERS: headers.encode()})


def as_shown(header: bytes) -> bytes:
    """A stored content header as receivers see it: without BCC, and without what says whose the others are."""
    if not header[FLAGS_AT] & _HAS_HEADERS or header.find(_MARK_OCTETS) < 0:
        return header
    start, stop = property_span(header, HEADERS)
    headers = FieldTable.of_checked(header[start:stop])
    if not headers.remove(PUBLISHER_HEADERS):
        return header
    headers.remove(BCC)
    return replace_properties(header, {HEADERS: headers.encode()})


def mark(headers: FieldTable, names: list[str]) -> None:
    """Say in a table that is to be stored which of its headers are the publisher's, instead of what it said of that."""
    headers.remove(PUBLISHER_HEADERS)
    if names:
        headers.set(PUBLISHER_HEADERS, array([long_string(name) for name in names]))


def marked(headers: FieldTable) -> list[str]:
    """What `mark` has said in a stored table."""
    value = headers.get(PUBLISHER_HEADERS)
    if value is None or value.tag != ARRAY:
        return []
    return [each.text() for each in value.array() if each.tag == LONG_STRING]
