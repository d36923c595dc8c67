"""What is to be sent to the client: frames in order, gathered until the owner writes them."""

from pamqp.base import Frame

from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.channel_state import CLOSING
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.frame_writer import append_confirms, append_deliveries, append_get_ok, append_return
from mayfly.node.amqp.large_body import LargeBody, LargeContent, in_parts
from mayfly.node.amqp.methods import method_frame
from mayfly.node.limits import OUTPUT_PART_BYTES


class Output:
    """The output side of a connection.

    What is for a channel that is not open, or not any more, is dropped without a word: the client does not wait for it.
    channels: those of the connection, shared with it.  frame_max_bytes: as agreed.  size_bytes: octets gathered.
    taken_bytes: octets that were taken to be written, ever.
    """

    def __init__(self, channels: dict[int, ReceivingChannel], frame_max_bytes: int) -> None:
        self.channels: dict[int, ReceivingChannel] = channels
        self.frame_max_bytes: int = frame_max_bytes
        self.size_bytes: int = 0
        self.taken_bytes: int = 0
        self._pieces: list[bytes] = []
        self._ahead: list[tuple[list[bytes], LargeBody]] = []
        """Large bodies, which go before all that is in ``_pieces``, and each behind what came before it."""

    def take(self) -> list[bytes]:
        """Octets to write, in order; each is given once.  Of a large body no more than a part: what is left, and
        counted in ``size_bytes``, is for the next time."""
        if self._ahead:
            return self._take_ahead()
        pieces = self._pieces
        if pieces:
            self._pieces = []
            self.taken_bytes += self.size_bytes
            self.size_bytes = 0
        return pieces

    @property
    def has_large(self) -> bool:
        """Whether what comes next is, or stands behind, a large body."""
        return bool(self._ahead)

    def _take_ahead(self) -> list[bytes]:
        taken, body = self._ahead[0]
        taken.append(body.take(OUTPUT_PART_BYTES))
        if body.left_bytes:
            self._ahead[0] = ([], body)
        else:
            del self._ahead[0]
        taken_bytes = sum(map(len, taken))
        self.size_bytes -= taken_bytes
        self.taken_bytes += taken_bytes
        return taken

    def _append_large(self, channel_id: int, content: LargeContent) -> None:
        body = LargeBody(channel_id, content.views, self.frame_max_bytes)
        self._ahead.append((self._pieces, body))
        self._pieces = []
        self.size_bytes += body.left_bytes

    def append(self, octets: bytes) -> None:
        """These octets, whatever they are."""
        self._pieces.append(octets)
        self.size_bytes += len(octets)

    def append_method(self, channel_id: int, method: Frame) -> None:
        """A method, whatever the state of its channel.

        TypeError if an argument of the method has not the type it needs.  Names may be any UTF-8: build such
        methods with methods.unchecked().
        """
        self.append(method_frame(channel_id, method))

    def takes(self, channel_id: int) -> bool:
        """Whether the channel is open, and not on its way out."""
        channel = self.channels.get(channel_id)
        return channel is not None and channel.state != CLOSING

    def send(self, channel_id: int, method: Frame) -> None:
        """A method on an open channel; TypeError as for `append_method`."""
        if self.takes(channel_id):
            self.append_method(channel_id, method)

    def send_deliveries(
        self, channel_id: int, consumer_tag: bytes, deliveries: list[tuple[int, bool, Content]]
    ) -> None:
        """basic.deliver with content for each (delivery tag, redelivered, content). A LargeContent comes last."""
        if self.takes(channel_id):
            self.size_bytes += append_deliveries(
                self._pieces, channel_id, consumer_tag, deliveries, self.frame_max_bytes
            )
            last = deliveries[-1][2]
            if isinstance(last, LargeContent):
                self._append_large(channel_id, last)

    def send_get_ok(
        self, channel_id: int, delivery_tag: int, redelivered: bool, content: Content, message_count: int
    ) -> None:
        """basic.get-ok with its content."""
        if self.takes(channel_id):
            self.size_bytes += append_get_ok(
                self._pieces, channel_id, delivery_tag, redelivered, content, message_count, self.frame_max_bytes
            )
            if isinstance(content, LargeContent):
                self._append_large(channel_id, content)

    def send_return(self, channel_id: int, code: int, text: str, content: Content) -> None:
        """basic.return with its content; the text is sent as it is (312: "NO_ROUTE")."""
        if self.takes(channel_id):
            content = in_parts(content)
            self.size_bytes += append_return(
                self._pieces, channel_id, code, text.encode(), content, self.frame_max_bytes
            )
            if isinstance(content, LargeContent):
                self._append_large(channel_id, content)

    def send_confirms(self, channel_id: int, confirms: list[tuple[int, bool]], nack: bool = False) -> None:
        """basic.ack (or nack) for each (delivery tag, multiple)."""
        if confirms and self.takes(channel_id):
            self.size_bytes += append_confirms(self._pieces, channel_id, confirms, nack)
