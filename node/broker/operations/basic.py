"""Class basic without publishing and settling: qos, consume, cancel, get, recover (AMQP 0-9-1, 1.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from node.amqp.field_table import types_of
from node.amqp.methods import unchecked
from node.broker.consumer_terms import ConsumerTerms
from node.broker.consumers import Consumer, ReplyConsumer, content_of
from node.broker.direct_replies import REPLY_TO, make_address
from node.broker.global_prefetch import NO_LIMIT
from node.broker.operation import AmqpError, ShardStep, Steps, as_error, check
from node.broker.operations.steps import find_queue, on_queue, queue_name
from node.broker.unacknowledged import Holder
from node.catalog import QueueRecord, Refusal, consumer_priority
from node.catalog.arguments import queue_type
from node.catalog.permissions import check_access
from node.shard.commands import REQUEUE, encode_attach, encode_detach, encode_get
from node.shard.results import EXCLUSIVE, GetResult, Refused

if TYPE_CHECKING:
    from node.broker.channel import Channel

NO_HOLDER: Final = Holder(0, 0, 0)
"""Who holds a message that was got without acknowledgement."""
GENERATED_TAG: Final = "amq.ctag-"
_LOWEST_PRIORITY: Final = -(2**31)
_HIGHEST_PRIORITY: Final = 2**31 - 1
_GET_ATTEMPTS: Final = 1000
"""Each gets past a bounded number of expired messages (RULES C4)."""


def qos(channel: Channel, method: Any, arguments: bytes) -> None:
    """basic.qos: a prefetch count for each consumer that follows on this channel, or, with global, for all of its
    consumers together, from now on. Without global it lifts the limit for all together, as in RabbitMQ."""
    if method.prefetch_size:
        raise AmqpError(540, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        _limit_channel(channel, method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
        if channel.global_prefetch.limit != NO_LIMIT:
            _limit_channel(channel, NO_LIMIT)
    channel.send(commands.Basic.QosOk())


def _limit_channel(channel: Channel, limit: int) -> None:
    channel.global_prefetch.limit = limit
    for consumer in channel.consumers.values():
        if consumer.obeys_global_prefetch:
            consumer.set_prefetch()
    channel.global_prefetch.send()


def consume(channel: Channel, method: Any, arguments: bytes) -> Steps:
    """basic.consume."""
    connection = channel.connection
    broker = channel.broker
    name = queue_name(channel, method.queue)
    tag = _new_tag(channel, method.consumer_tag)
    if name == REPLY_TO:
        _consume_replies(channel, tag, method)
        return
    check(check_access(broker.cluster.catalog, connection.user, "read", "queue", connection.vhost, name))
    found = yield from find_queue(channel, name)
    if channel.global_prefetch.limit and _is_quorum(found):
        raise AmqpError(540, f"queue '{name}' in vhost '{connection.vhost}' does not support global qos")
    if method.exclusive and found.settings.single_active_consumer:
        raise _in_exclusive_use(channel, name)
    priority = _priority(connection.vhost, found, method.arguments or {}, arguments)
    consumer_id = broker.new_id()
    no_ack = bool(method.no_ack)
    own_prefetch = channel.prefetch
    window_bytes = connection.pressure.next_window_bytes()
    # What is delivered before the pause takes effect would only be held back, with all that waits already.
    obeys = not no_ack and not _is_quorum(found)
    attached_with = 1 if obeys and channel.global_prefetch.is_full else channel.global_prefetch.of(own_prefetch)

    def attach(record: QueueRecord) -> bytes:
        return encode_attach(
            record.id, consumer_id, attached_with, no_ack, bool(method.exclusive), priority, window_bytes
        )

    channel.is_attaching = True
    try:
        record, result = yield from on_queue(channel, name, attach)
    finally:
        channel.is_attaching = False
    if isinstance(result, Refused):
        if result.reason == EXCLUSIVE:
            raise _in_exclusive_use(channel, name)
        raise AmqpError(541, f"consumer could not be attached: {result.reason}")
    consumer = Consumer(
        channel,
        tag,
        Holder(consumer_id, record.shard, record.id),
        broker.cluster.shard(record.shard),
        no_ack,
        record.replicated,
        own_prefetch,
        not _is_quorum(record),
        window_bytes,
    )
    channel.consumers[tag] = consumer
    broker.add_consumer(consumer, ConsumerTerms(bool(method.exclusive), arguments))
    if not method.nowait:
        channel.send(unchecked(commands.Basic.ConsumeOk, consumer_tag=tag))
    if broker.deliveries_stopped:
        broker.hold_back(consumer)
    elif channel.pauses(consumer):
        consumer.set_paused(True)
    if attached_with != channel.global_prefetch.of(own_prefetch) and consumer.obeys_global_prefetch:
        consumer.set_prefetch()


def _in_exclusive_use(channel: Channel, queue: str) -> AmqpError:
    return AmqpError(403, f"queue '{queue}' in vhost '{channel.connection.vhost}' in exclusive use")


def _is_quorum(record: QueueRecord) -> bool:
    """Whether it was declared as a quorum queue, which RabbitMQ has no global prefetch for."""
    return queue_type(record.arguments) == "quorum"


def _new_tag(channel: Channel, wanted: str) -> str:
    """The tag of a new consumer. That of the direct replies is no consumer's, as in RabbitMQ: a queue's may be named
    so as well."""
    tag = wanted or GENERATED_TAG + channel.broker.random_name()
    if tag in channel.consumers:
        raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
    return tag


def _consume_replies(channel: Channel, tag: str, method: Any) -> None:
    """basic.consume from the name that stands for direct replies to this channel."""
    broker = channel.broker
    if not method.no_ack:
        raise AmqpError(406, "reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise AmqpError(406, "reply consumer already set")
    key = broker.random_name()
    channel.reply_consumer = ReplyConsumer(tag, key, make_address(broker.cluster.node_id, key))
    broker.reply_channels[key] = channel
    if not method.nowait:
        channel.send(unchecked(commands.Basic.ConsumeOk, consumer_tag=tag))


def _priority(vhost: str, queue: QueueRecord, arguments: dict[str, Any], typed: bytes) -> int:
    try:
        priority = consumer_priority(vhost, queue.name, queue_type(queue.arguments), arguments, types_of(typed))
    except Refusal as refusal:
        raise as_error(refusal) from None
    return max(_LOWEST_PRIORITY, min(_HIGHEST_PRIORITY, priority))


def cancel(channel: Channel, method: Any, arguments: bytes) -> Steps:
    """basic.cancel: no more deliveries after cancel-ok.  What the consumer holds stays held.  An unknown
    tag is no error; of a tag that a queue's consumer has as well the direct replies go first."""
    replies = channel.reply_consumer
    consumer = channel.consumers.get(method.consumer_tag)
    if replies is not None and replies.tag == method.consumer_tag:
        channel.forget_reply_consumer()
    elif consumer is not None:
        holder = consumer.holder
        yield ShardStep(holder.shard_id, encode_detach(holder.queue_id, holder.holder_id, False))
        if channel.consumers.get(consumer.tag) is consumer:
            del channel.consumers[consumer.tag]
        channel.broker.forget_consumer(consumer)
        channel.global_prefetch.forget(consumer, True)
    if not method.nowait:
        channel.send(unchecked(commands.Basic.CancelOk, consumer_tag=method.consumer_tag))


def get(channel: Channel, method: Any, arguments: bytes) -> Steps:
    """basic.get: one message, or get-empty."""
    connection = channel.connection
    broker = channel.broker
    name = queue_name(channel, method.queue)
    check(check_access(broker.cluster.catalog, connection.user, "read", "queue", connection.vhost, name))
    no_ack = bool(method.no_ack)
    # The holder of the last attempt: the session may end meanwhile, and the GET count in the next one.
    holder = NO_HOLDER

    def encode(record: QueueRecord) -> bytes:
        nonlocal holder
        if record.settings.single_active_consumer and _is_quorum(record):
            raise _no_get(record)
        if not no_ack:
            holder = channel.get_holder(record)
        return encode_get(record.id, holder.holder_id, no_ack)

    for _ in range(_GET_ATTEMPTS):
        record, result = yield from on_queue(channel, name, encode)
        if not (isinstance(result, GetResult) and result.try_again and channel.open):
            break
    if not no_ack:
        holder.alive = True
        channel.get_holders[record.id] = holder
    if not channel.open:
        return
    if not isinstance(result, GetResult) or result.message is None:
        channel.send(commands.Basic.GetEmpty(cluster_id=""))
        return
    message = result.message
    content = content_of(broker.cluster.shard(record.shard), message, record.replicated)
    if no_ack:
        tag = channel.unacknowledged.skip(1)
    else:
        tag = channel.unacknowledged.hold(holder, result.delivery_id, 1)
    connection.amqp.output.send_get_ok(
        channel.channel_id, tag, message.delivery_count > 0, content, result.ready_count
    )
    connection.mark()


def _no_get(record: QueueRecord) -> AmqpError:
    text = (
        f"cannot obtain access to locked queue '{record.name}' in vhost '{record.vhost}'."
        " basic.get operations are not supported by quorum queues with single active consumer"
    )
    return AmqpError(405, text)


def recover(channel: Channel, method: Any, arguments: bytes) -> None:
    """basic.recover: everything unacknowledged goes back to its queue; RabbitMQ refuses requeue=false."""
    _requeue_all(channel, method)
    channel.send(commands.Basic.RecoverOk())


def recover_async(channel: Channel, method: Any, arguments: bytes) -> None:
    """basic.recover-async: recover without an answer."""
    _requeue_all(channel, method)


def _requeue_all(channel: Channel, method: Any) -> None:
    if not method.requeue:
        raise AmqpError(540, "requeue=false")
    transaction = channel.publisher.transaction
    unacknowledged = channel.unacknowledged
    if transaction is None:
        unacknowledged.settle(0, True, REQUEUE)
    else:
        for tag in transaction.take_unsettled(unacknowledged):
            unacknowledged.settle(tag, False, REQUEUE)
    channel.submit_settlements()
