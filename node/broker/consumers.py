"""Consumers of channels: what the shards deliver becomes basic.deliver.  HOT."""

from __future__ import annotations

from typing import Final, NamedTuple

from mayfly.node.amqp.content import Content, property_span, replace_properties
from mayfly.node.amqp.field_table import FieldTable, long_integer
from mayfly.node.amqp.large_body import LargeContent
from mayfly.node.amqp.octet_views import OctetViews
from mayfly.node.broker.client import ClientChannel
from mayfly.node.broker.cluster_facade import OnDone, ShardHandle
from mayfly.node.broker.pressure import Pressure
from mayfly.node.broker.stream_offsets import with_offset
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.catalog import QueueRecord
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.streams import STREAM
from mayfly.node.content_header import HEADERS
from mayfly.node.dead_letter.publisher_headers import as_shown
from mayfly.node.dead_letter.stream_content import header_of, stream_id, with_place
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.shard.commands import encode_flow, encode_taken
from mayfly.node.shard.message import OVERHEAD_BYTES, Message

ACQUIRED_COUNT: Final = "x-acquired-count"
DELIVERY_COUNT: Final = "x-delivery-count"

_REPORTS: Final = 4
"""What was taken is reported when it is this part of the window: the rest is what a shard may give before it hears of
that."""


class ConsumerLimits(NamedTuple):
    """What a consumer was attached with."""

    prefetch: int
    """How many messages it may hold, 0 for no limit."""
    window_bytes: int
    """The shard gives it no more than this beyond what it has said was taken; 0 for no limit."""
    place_id: int | None = None
    """If messages of a stream say their places instead of their offsets alone: by which id of the stream."""


def place_id_of(cluster: str, record: QueueRecord) -> int:
    """A `ConsumerLimits.place_id`."""
    return stream_id(cluster, record.id, record.created_ms)


class Consumer:
    """One basic.consume: a consumer tag on a channel, attached to a queue of a shard."""

    def __init__(
        self,
        channel: ClientChannel,
        pressure: Pressure,
        tag: str,
        record: QueueRecord,
        holder: DeliveryHolder,
        handle: ShardHandle,
        no_ack: bool,
        limits: ConsumerLimits,
    ) -> None:
        self.channel: ClientChannel = channel
        self._pressure: Pressure = pressure
        self.tag: str = tag
        self.wire_tag: bytes = tag.encode("utf-8", "surrogateescape")
        self.holder: DeliveryHolder = holder
        self.handle: ShardHandle = handle
        self.no_ack: bool = no_ack
        # See `ConsumerLimits`.
        self.prefetch: int = limits.prefetch
        # Replicated queues tell how often a message came back, transient ones do not.
        self.counts_deliveries: bool = record.replicated
        # Of a stream: each message says its offset.
        self.is_stream: bool = queue_type(record.arguments) == STREAM
        # See `node.catalog.streams.TELLS_PLACES`.
        self.place_id: int | None = limits.place_id
        self.paused: bool = False
        self.window_bytes: int = limits.window_bytes
        self._taken_bytes = 0
        self._reported_bytes = 0

    def deliver(self, first_delivery_id: int, messages: list[Message]) -> None:
        """Send messages to the client, in one go."""
        channel = self.channel
        if not channel.open:
            # The client gets nothing more, but they are held, and the channel gives back what it knows to be held.
            if not self.no_ack:
                channel.unacknowledged.hold(self.holder, first_delivery_id, len(messages))
            return
        count = len(messages)
        if self.no_ack:
            tag = channel.unacknowledged.skip(count)
        else:
            tag = channel.unacknowledged.hold(self.holder, first_delivery_id, count)
        handle = self.handle
        client = channel.client
        is_stream = self.is_stream
        index = -1
        data = b""
        start = 0
        """Where the content begins; nowhere at 0 but where it is alone: there is something before it in each entry."""
        counted_bytes = again = 0
        deliveries: list[tuple[int, bool, Content]] = []
        for message in messages:
            redelivered = message.redelivered
            if redelivered:
                again += 1
            if message.body_length > LARGE_BODY_BYTES:
                counted_bytes += OVERHEAD_BYTES + message.content_length
                content = large_content(handle, message)
                content.header = self._told(message, content.header)
                deliveries.append((tag, redelivered, content))
                client.output.send_deliveries(channel.channel_id, self.wire_tag, deliveries)
                deliveries = []
                tag += 1
                continue
            if message.index != index or not start:
                index = message.index
                data, start = handle.content(message)
            else:
                start = message.offset
            header_at = start + message.key_length
            body_at = header_at + message.header_length
            end = body_at + message.body_length
            counted_bytes += OVERHEAD_BYTES + end - start
            header = as_shown(header_of(message, data) if is_stream and start else data[header_at:body_at])
            if redelivered or is_stream:
                header = self._told(message, header)
            deliveries.append(
                (
                    tag,
                    redelivered,
                    Content(data[start:header_at], header, data[body_at:end]),
                )
            )
            tag += 1
        channel.traffic.deliver(count, again, self.no_ack)
        for watch in client.traffic.watches:
            watch.delivered(client.user, client.name, self.holder.queue_id, count, again)
        if deliveries:
            client.output.send_deliveries(channel.channel_id, self.wire_tag, deliveries)
        self._pressure.note_output()
        client.mark()
        self._take(counted_bytes)

    def _told(self, message: Message, header: bytes) -> bytes:
        """The content header with what is told of a message that came back, or of its place in a stream."""
        if message.redelivered:
            return with_counts(header, message) if self.counts_deliveries else header
        if not self.is_stream:
            return header
        if self.place_id is not None:
            return with_place(header, self.place_id, message)
        return with_offset(header, message.stream_offset)

    def set_paused(self, paused: bool, done: OnDone | None = None) -> bool:
        """Tell the shard to hold deliveries back, or to go on; False if it was told so before. After `done` there are
        no more deliveries."""
        if paused == self.paused:
            return False
        self.paused = paused
        holder = self.holder
        self.handle.submit(encode_flow(holder.queue_id, holder.holder_id, not paused), done)
        return True

    def move(self, holder: DeliveryHolder, handle: ShardHandle) -> None:
        """It was attached in another shard: what is delivered from now on comes from there."""
        self.holder, self.handle = holder, handle
        self._taken_bytes = self._reported_bytes = 0
        if self.paused:
            handle.submit(encode_flow(holder.queue_id, holder.holder_id, False), None)

    def _take(self, counted_bytes: int) -> None:
        """Deliveries that count for so much in the window have gone to where they wait for the client."""
        self._taken_bytes += counted_bytes
        self.report_taken()

    def report_taken(self) -> None:
        """Tell the shard what was taken, if that is much of the window, and the client takes what waits for it."""
        unreported_bytes = self._taken_bytes - self._reported_bytes
        if not self.window_bytes or unreported_bytes < max(1, self.window_bytes // _REPORTS):
            return
        if self.channel.pauses:
            return
        self._reported_bytes = self._taken_bytes
        holder = self.holder
        self.handle.submit(encode_taken(holder.queue_id, holder.holder_id, self._taken_bytes), None)


def content_of(handle: ShardHandle, message: Message, counts_deliveries: bool) -> Content:
    """The content of one message, as it is to be sent."""
    if message.body_length > LARGE_BODY_BYTES:
        content: Content = large_content(handle, message)
    else:
        data, start = handle.content(message)
        header_at = start + message.key_length
        body_at = header_at + message.header_length
        body = data[body_at : body_at + message.body_length]
        content = Content(data[start:header_at], as_shown(data[header_at:body_at]), body)
    if message.redelivered and counts_deliveries:
        content.header = with_counts(content.header, message)
    return content


def large_content(handle: ShardHandle, message: Message) -> LargeContent:
    """The content of a message whose body leaves in parts."""
    views = OctetViews(handle.views(message))
    names = views.join(message.key_length)
    return LargeContent(names, as_shown(views.join(message.header_length)), views)


def with_counts(header: bytes, message: Message) -> bytes:
    """The content header that says how often the message came back, and how often its delivery failed, as RabbitMQ's
    quorum queues have it (RULES Q1)."""
    if message.acquired_count <= 0:
        return header
    start, stop = property_span(header, HEADERS)
    table = FieldTable() if start < 0 else FieldTable.of_checked(header[start:stop])
    table.set(ACQUIRED_COUNT, long_integer(message.acquired_count))
    if message.delivery_count:
        table.set(DELIVERY_COUNT, long_integer(message.delivery_count))
    return replace_properties(header, {HEADERS: table.encode()})
