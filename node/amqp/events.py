"""What a connection tells the broker: one object for each thing the client did, in order."""

from dataclasses import dataclass
from typing import Final

from pamqp.base import Frame

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.field_table import EMPTY_TABLE_BYTES, table_to_python

ACK: Final = 80
NACK: Final = 120
REJECT: Final = 90
"""Kinds of settlement; each is the id of its method in class 60 (basic), for use in a close."""

MANDATORY: Final = 1
IMMEDIATE: Final = 2
"""Flags of a publish."""


class Event:
    """Base of all events."""

    __slots__ = ()


@dataclass(slots=True, repr=False)  # It has a password, and may end up in a log.
class AuthenticationRequested(Event):
    """The client named itself; answer with Connection.authenticated() or authentication_failed().

    `username` and `password` are the octets of the SASL response as text; octets that are not UTF-8 are
    kept as surrogate escapes.  With EXTERNAL the certificate names the user, and there is no password.
    `fault` says, for the log, why it cannot be told who the client is: then there is neither, and no is the answer.
    """

    mechanism: str
    username: str
    password: str
    fault: str = ""


@dataclass(slots=True, repr=False)  # As above.
class SecretUpdated(Event):
    """The client shows what is to count in place of its password; answer with Connection.secret_updated(), or close.
    Octets that are not UTF-8 are kept as surrogate escapes."""

    secret: str


@dataclass(slots=True)
class OpenRequested(Event):
    """The client wants this virtual host; answer with Connection.opened() or refuse_open()."""

    vhost: str


@dataclass(slots=True)
class ChannelOpened(Event):
    """The client opened a channel; open-ok has been sent."""

    channel_id: int


@dataclass(slots=True)
class ChannelClosed(Event):
    """A channel has ended: closed by the client (close-ok was sent), by this layer for an error of the
    client, or, after close_channel(), by the client's close-ok.  Comes once for each ChannelOpened, unless
    the connection ends first.
    """

    channel_id: int


@dataclass(slots=True)
class PublishesReceived(Event):
    """Messages published on one channel, in order; flags[i] (MANDATORY, IMMEDIATE) belongs to contents[i]."""

    channel_id: int
    contents: list[Content]
    flags: list[int]


@dataclass(slots=True)
class SettlementsReceived(Event):
    """Acknowledgements on one channel, in order: (ACK | NACK | REJECT, delivery tag, multiple, requeue)."""

    channel_id: int
    settlements: list[tuple[int, int, bool, bool]]


@dataclass(slots=True)
class MethodReceived(Event):
    """Any other method.  `arguments` is its field table (with length octets) as on the wire, b"" if it has
    none: FieldTable.of_checked(arguments) tells types that the plain values in `method` do not.  These are there from
    `decode_table` on: decoded, a table takes up to twenty times its octets, and a method may have to wait.
    `size_bytes` is that of the method on the wire, its table included.
    """

    channel_id: int
    method: Frame
    arguments: bytes = b""
    size_bytes: int = 0

    def decode_table(self) -> Frame:
        """The method, with its arguments as a dict."""
        if len(self.arguments) > EMPTY_TABLE_BYTES:
            setattr(self.method, "arguments", table_to_python(self.arguments))  # noqa: B010 - not all methods have it
        return self.method


@dataclass(slots=True)
class ConnectionClosed(Event):
    """The connection has ended, all channels with it; `reason` is for the log.  Comes once."""

    reason: str
