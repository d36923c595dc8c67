"""What methods of classes basic and queue mean for streams (RULES J1), in the words of RabbitMQ 4.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mayfly.node.amqp.field_table import types_of
from mayfly.node.broker.operation import AmqpError, as_error
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.catalog import QueueRecord, Refusal, consumer_priority
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.refusals import resource
from mayfly.node.catalog.streams import (
    FILTER_KEY,
    KEY_INDEX,
    MARKER_TTL,
    STREAM,
    consumer_start,
    filter_key,
    has_keys,
)
from mayfly.node.shard.results import QueueCounts
from mayfly.node.shard.stream import Start


def consumer_of_stream(
    channel: OperationChannel, record: QueueRecord, no_ack: bool, arguments: Mapping[str, Any], typed: bytes
) -> tuple[Start, bytes | None]:
    """From where a consumer begins, and the routing key of what it is given, None for all (RULES J5); raises AmqpError
    if it is not one for a stream: it needs a prefetch, and has to acknowledge. Whether it is exclusive counts for
    nothing."""
    vhost = channel.client.vhost
    types = types_of(typed)
    try:
        start = consumer_start(vhost, record.name, arguments, types)
        key = filter_key(vhost, record.name, arguments)
        consumer_priority(vhost, record.name, "stream", dict(arguments), types)
    except Refusal as refusal:
        raise as_error(refusal) from None
    if channel.prefetch == 0:
        raise AmqpError(406, f"consumer prefetch count is not set for stream {_name(record)}")
    if no_ack:
        raise AmqpError(540, f"automatic acknowledgement not supported by stream {_name(record)}")
    if key is not None and not has_keys(record.settings):
        raise AmqpError(
            406,
            f"{FILTER_KEY} needs a stream that was declared with {KEY_INDEX} = true or {MARKER_TTL}: "
            f"{_name(record)} was not",
        )
    return start, key


def no_get_of_stream(record: QueueRecord) -> AmqpError:
    """Why a stream can't be asked for a message."""
    return AmqpError(540, f"basic.get not supported by stream queues {_name(record)}")


def check_purge(record: QueueRecord) -> None:
    """Raises AmqpError for a stream."""
    if queue_type(record.arguments) == STREAM:
        raise AmqpError(540, f"queue.purge not supported by stream queues {_name(record)}")


def shown_counts(record: QueueRecord, counts: QueueCounts) -> QueueCounts:
    """What the declare of a queue is answered: a stream's consumers are not counted."""
    return QueueCounts(counts.ready, 0, counts.created) if queue_type(record.arguments) == STREAM else counts


def _name(record: QueueRecord) -> str:
    return resource("queue", record.vhost, record.name)
