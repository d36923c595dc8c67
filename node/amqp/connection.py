"""The server's side of an AMQP 0-9-1 connection as a state machine: octets in, events out."""

from pamqp.base import Frame

from node.amqp.content import Content
from node.amqp.events import Event
from node.amqp.settings import ConnectionSettings


class Connection:
    """One connection.  Feed it what the socket brings, write out what take_output() gives."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.should_close = False
        self.closed = False

    def receive(self, data: bytes) -> list[Event]:
        """What these octets of the client bring about, in order.  Never raises."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> list[Event]:
        """Heartbeats and time limits; call it a few times a second with a monotonic clock."""
        raise NotImplementedError

    def connection_lost(self) -> list[Event]:
        """The socket is gone."""
        raise NotImplementedError

    def take_output(self) -> list[bytes]:
        """Octets to write, in order; each is given once."""
        raise NotImplementedError

    def authenticated(self) -> None:
        """Yes to AuthenticationRequested; then call receive(b"") for what came meanwhile."""
        raise NotImplementedError

    def authentication_failed(self, text: str = "") -> None:
        """No to AuthenticationRequested."""
        raise NotImplementedError

    def opened(self) -> None:
        """Yes to OpenRequested; then call receive(b"") for what came meanwhile."""
        raise NotImplementedError

    def refuse_open(self, code: int, text: str) -> None:
        """No to OpenRequested."""
        raise NotImplementedError

    def send(self, channel_id: int, method: Frame) -> None:
        """Send a method; dropped if the channel is not open any more."""
        raise NotImplementedError

    def send_deliveries(
        self, channel_id: int, consumer_tag: bytes, deliveries: list[tuple[int, bool, Content]]
    ) -> None:
        """basic.deliver with content for each (delivery tag, redelivered, content)."""
        raise NotImplementedError

    def send_get_ok(
        self, channel_id: int, delivery_tag: int, redelivered: bool, content: Content, message_count: int
    ) -> None:
        """basic.get-ok with its content."""
        raise NotImplementedError

    def send_return(self, channel_id: int, code: int, text: str, content: Content) -> None:
        """basic.return with its content; the text is sent as it is (RabbitMQ: 312 "NO_ROUTE")."""
        raise NotImplementedError

    def send_confirms(self, channel_id: int, confirms: list[tuple[int, bool]], nack: bool = False) -> None:
        """basic.ack (or nack) for each (delivery tag, multiple)."""
        raise NotImplementedError

    def send_blocked(self, reason: str) -> None:
        """connection.blocked, if the client can take it."""
        raise NotImplementedError

    def send_unblocked(self) -> None:
        """connection.unblocked, if the client can take it."""
        raise NotImplementedError

    def close_channel(
        self, channel_id: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel with an error; a hard code closes the connection instead."""
        raise NotImplementedError

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection."""
        raise NotImplementedError
