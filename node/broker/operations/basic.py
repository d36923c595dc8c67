"""Class basic without publishing and settling: qos, consume, cancel, get, recover (AMQP 0-9-1, 1.8)."""

from __future__ import annotations

from typing import Any, Final

from pamqp import commands

from mayfly.node.amqp.field_table import types_of
from mayfly.node.amqp.methods import unchecked
from mayfly.node.broker.coming_back import nack_outcome
from mayfly.node.broker.consumer_moves import detach
from mayfly.node.broker.consumer_terms import ConsumerTerms
from mayfly.node.broker.consumers import Consumer, ConsumerLimits, content_of, place_id_of
from mayfly.node.broker.direct_replies import REPLY_TO, make_address, make_key
from mayfly.node.broker.operation import AmqpError, Steps, as_error
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.broker.operations.steps import on_queue, queue_name
from mayfly.node.broker.operations.streams import consumer_of_stream, no_get_of_stream
from mayfly.node.broker.reply_consumers import ReplyConsumer
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.catalog import QueueRecord, Refusal, consumer_priority
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.streams import STREAM, TELLS_PLACES
from mayfly.node.shard.commands import encode_attach, encode_get
from mayfly.node.shard.results import EXCLUSIVE, GetResult, Refused

NO_HOLDER: Final = DeliveryHolder(0, 0, 0)
"""Who holds a message that was got without acknowledgement."""
GENERATED_TAG: Final = "amq.ctag-"
_LOWEST_PRIORITY: Final = -(2**31)
_HIGHEST_PRIORITY: Final = 2**31 - 1
_GET_ATTEMPTS: Final = 1000
"""Each gets past a bounded number of expired messages (RULES C4)."""


def qos(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """basic.qos: a prefetch count for each consumer that follows on this channel. With global as without, as in
    RabbitMQ 4.3: there is no limit for all consumers of a channel together."""
    if method.prefetch_size:
        raise AmqpError(540, f"prefetch_size!=0 ({method.prefetch_size})")
    channel.prefetch = method.prefetch_count
    channel.send(commands.Basic.QosOk())


def consume(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """basic.consume."""
    client = channel.client
    consumers = channel.node.consumers
    name = queue_name(channel, method.queue)
    tag = _new_tag(channel, method.consumer_tag)
    if name == REPLY_TO:
        _consume_replies(channel, tag, method)
        return
    consumer_id = consumers.new_id()
    no_ack = bool(method.no_ack)
    prefetch = channel.prefetch
    window_bytes = consumers.windows.open(consumer_id, channel.pressure.next_window_bytes())

    def attach(record: QueueRecord) -> bytes:
        if queue_type(record.arguments) == STREAM:
            start, key = consumer_of_stream(channel, record, no_ack, method.arguments or {}, arguments)
            return encode_attach(
                record.id, consumer_id, prefetch, False, False, 0, window_bytes, start=start, key=key
            )
        if method.exclusive and record.settings.single_active_consumer:
            raise _in_exclusive_use(channel, name)
        priority = _priority(client.vhost, record, method.arguments or {}, arguments)
        return encode_attach(
            record.id, consumer_id, prefetch, no_ack, bool(method.exclusive), priority, window_bytes
        )

    channel.is_attaching = True
    result: Any = None
    try:
        record, result = yield from on_queue(channel, name, "read", attach)
    finally:
        channel.is_attaching = False
        if result is None or isinstance(result, Refused):
            consumers.windows.close(consumer_id)
    if isinstance(result, Refused):
        if result.reason == EXCLUSIVE:
            raise _in_exclusive_use(channel, name)
        raise AmqpError(541, f"consumer could not be attached: {result.reason}")
    consumer = Consumer(
        channel,
        channel.pressure,
        tag,
        record,
        DeliveryHolder(consumer_id, record.shard, record.id, channel.holder_timeout_ms(record, method.arguments or {})),
        channel.cluster.shard(record.shard),
        no_ack,
        ConsumerLimits(prefetch, window_bytes, _place_id(channel, record, method.arguments or {})),
    )
    channel.consumers[tag] = consumer
    consumers.add(consumer, ConsumerTerms(bool(method.exclusive), arguments))
    if not method.nowait:
        channel.send(unchecked(commands.Basic.ConsumeOk, consumer_tag=tag))
    if consumers.stopped:
        consumers.hold_back(consumer)
    elif channel.pauses:
        consumer.set_paused(True)


def _place_id(channel: OperationChannel, record: QueueRecord, arguments: dict[str, Any]) -> int | None:
    """See `ConsumerLimits`."""
    if arguments.get(TELLS_PLACES) is not True:
        return None
    return place_id_of(channel.node.settings.cluster_id, record)


def _in_exclusive_use(channel: OperationChannel, queue: str) -> AmqpError:
    return AmqpError(403, f"queue '{queue}' in vhost '{channel.client.vhost}' in exclusive use")


def _is_quorum(record: QueueRecord) -> bool:
    """Whether it was declared as a quorum queue."""
    return queue_type(record.arguments) == "quorum"


def _new_tag(channel: OperationChannel, wanted: str) -> str:
    """The tag of a new consumer. That of the direct replies is no consumer's, as in RabbitMQ: a queue's may be named
    so as well."""
    tag = wanted or GENERATED_TAG + channel.node.random_name()
    if tag in channel.consumers:
        raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
    return tag


def _consume_replies(channel: OperationChannel, tag: str, method: Any) -> None:
    """basic.consume from the name that stands for direct replies to this channel."""
    node = channel.node
    if not method.no_ack:
        raise AmqpError(406, "reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise AmqpError(406, "reply consumer already set")
    key = make_key(channel.client.vhost, node.random_name())
    address = make_address(channel.cluster.node_id, key)
    consumer = ReplyConsumer(channel, channel.pressure, node.reply_consumers, tag, key, address)
    channel.reply_consumer = node.reply_consumers.by_key[key] = consumer
    if not method.nowait:
        channel.send(unchecked(commands.Basic.ConsumeOk, consumer_tag=tag))


def _priority(vhost: str, queue: QueueRecord, arguments: dict[str, Any], typed: bytes) -> int:
    try:
        priority = consumer_priority(vhost, queue.name, queue_type(queue.arguments), arguments, types_of(typed))
    except Refusal as refusal:
        raise as_error(refusal) from None
    return max(_LOWEST_PRIORITY, min(_HIGHEST_PRIORITY, priority))


def cancel(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """basic.cancel: no more deliveries after cancel-ok.  What the consumer holds stays held.  An unknown
    tag is no error; of a tag that a queue's consumer has as well the direct replies go first."""
    replies = channel.reply_consumer
    consumer = channel.consumers.get(method.consumer_tag)
    if replies is not None and replies.tag == method.consumer_tag:
        channel.forget_reply_consumer()
    elif consumer is not None:
        yield from detach(consumer)
        if channel.consumers.get(consumer.tag) is consumer:
            del channel.consumers[consumer.tag]
        channel.node.consumers.forget(consumer.holder.holder_id)
    if not method.nowait:
        channel.send(unchecked(commands.Basic.CancelOk, consumer_tag=method.consumer_tag))


def get(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """basic.get: one message, or get-empty."""
    client = channel.client
    name = queue_name(channel, method.queue)
    no_ack = bool(method.no_ack)
    # The holder of the last attempt: the session may end meanwhile, and the GET count in the next one.
    holder = NO_HOLDER

    def encode(record: QueueRecord) -> bytes:
        nonlocal holder
        if queue_type(record.arguments) == STREAM:
            raise no_get_of_stream(record)
        if record.settings.single_active_consumer and _is_quorum(record):
            raise _no_get(record)
        if not no_ack:
            holder = channel.get_holder(record)
        return encode_get(record.id, holder.holder_id, no_ack)

    for _ in range(_GET_ATTEMPTS):
        record, result = yield from on_queue(channel, name, "read", encode)
        if not (isinstance(result, GetResult) and result.try_again and channel.open):
            break
    if not no_ack:
        holder.alive = True
        channel.get_holders[record.id] = holder
    if not channel.open:
        return
    traffic = channel.traffic
    if not isinstance(result, GetResult) or result.message is None:
        traffic.get_nothing()
        channel.send(commands.Basic.GetEmpty(cluster_id=""))
        return
    message = result.message
    content = content_of(channel.cluster.shard(record.shard), message, record.replicated)
    traffic.get(bool(message.redelivered), no_ack)
    for watch in client.traffic.watches:
        watch.delivered(client.user, client.name, record.id, 1, int(message.redelivered))
    if no_ack:
        tag = channel.unacknowledged.skip(1)
    else:
        tag = channel.unacknowledged.hold(holder, result.delivery_id, 1)
    client.output.send_get_ok(
        channel.channel_id, tag, message.redelivered, content, result.ready_count
    )
    client.mark()


def _no_get(record: QueueRecord) -> AmqpError:
    text = (
        f"cannot obtain access to locked queue '{record.name}' in vhost '{record.vhost}'."
        " basic.get operations are not supported by quorum queues with single active consumer"
    )
    return AmqpError(405, text)


def recover(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """basic.recover: everything unacknowledged goes back to its queue; RabbitMQ refuses requeue=false."""
    _requeue_all(channel, method)
    channel.send(commands.Basic.RecoverOk())


def recover_async(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """basic.recover-async: recover without an answer."""
    _requeue_all(channel, method)


def _requeue_all(channel: OperationChannel, method: Any) -> None:
    if not method.requeue:
        raise AmqpError(540, "requeue=false")
    transaction = channel.publisher.transaction
    unacknowledged = channel.unacknowledged
    outcome = nack_outcome(channel.cluster.catalog.level, True)
    if transaction is None:
        unacknowledged.settle(0, True, outcome)
    else:
        for tag in transaction.take_unsettled(unacknowledged):
            unacknowledged.settle(tag, False, outcome)
    channel.submit_settlements()
