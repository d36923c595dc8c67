"""Class queue: declare, bind, unbind, purge, delete (AMQP 0-9-1, 1.7)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from msgspec.structs import replace
from pamqp import commands

from mayfly.node.amqp.field_table import types_of
from mayfly.node.amqp.methods import unchecked
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.broker.direct_replies import REPLY_TO, is_address_in
from mayfly.node.broker.operation import (
    AmqpError,
    BarrierStep,
    CatalogStep,
    OwnerStep,
    ReplyAddressStep,
    Request,
    SpreadStep,
    Steps,
    as_error,
    check,
    known,
)
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.broker.operations.binding import change_binding
from mayfly.node.broker.operations.steps import (
    NOT_FOUND,
    OwnerUnreachable,
    QueueGone,
    ask_shard,
    create_missing,
    on_queue,
    queue_name,
    refuse_unreachable,
    remove_queue,
    submit,
)
from mayfly.node.broker.operations.streams import check_purge, shown_counts
from mayfly.node.catalog import Bind, DeclareQueue, QueueRecord, Refusal, RemoveQueues, Unbind, queue_settings, refusals
from mayfly.node.catalog.arguments import queue_type, unbuilt_refusal, without_empty_type
from mayfly.node.catalog.declarations import name_refusal
from mayfly.node.catalog.permissions import check_access, check_new_queue
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.catalog.streams import STREAM
from mayfly.node.limits import DECLARE_ATTEMPTS
from mayfly.node.shard.commands import encode_create_queue, encode_delete_queue, encode_purge, encode_touch_queue
from mayfly.node.shard.results import IN_USE, Deleted, Gone, Purged, QueueCounts, Refused

SERVER_NAMED: Final = "amq.gen-"


def declare(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """queue.declare, active or passive."""
    if method.queue.startswith(REPLY_TO):
        return _declare_reply_address(channel, method)
    if method.passive:
        return _declare_passive(channel, method)
    return _declare_active(channel, method, arguments)


def _declare_ok(channel: OperationChannel, method: Any, name: str, counts: QueueCounts) -> None:
    channel.last_queue = name
    if not method.nowait:
        channel.send(
            unchecked(
                commands.Queue.DeclareOk,
                queue=name,
                message_count=counts.ready,
                consumer_count=counts.consumers,
            )
        )


def _declare_reply_address(channel: OperationChannel, method: Any) -> Steps:
    """The names of direct replies are no queues: declaring one, in whatever way, asks whether it is there."""
    name = method.queue
    vhost = channel.client.vhost
    if name != REPLY_TO and not (is_address_in(vhost, name) and (yield ReplyAddressStep(name))):
        raise as_error(refusals.not_found("queue", vhost, name))
    _declare_ok(channel, method, name, QueueCounts(0, 1, False))


def _declare_passive(channel: OperationChannel, method: Any) -> Steps:
    # An empty name is no short form here: RabbitMQ looks for a queue of that name.
    record, counts = yield from on_queue(channel, method.queue, None, lambda record: encode_touch_queue(record.id))
    _declare_ok(channel, method, record.name, shown_counts(record, counts))


def _declare_active(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    client = channel.client
    cluster = channel.cluster
    server_named = not method.queue
    command = DeclareQueue(
        vhost=client.vhost,
        name=SERVER_NAMED + channel.node.random_name() if server_named else method.queue,
        durable=bool(method.durable),
        exclusive=bool(method.exclusive),
        auto_delete=bool(method.auto_delete),
        arguments=without_empty_type(method.arguments or {}),
        server_named=server_named,
        node_id=cluster.node_id,
        incarnation=cluster.incarnation,
        connection=client.name,
    )
    command = cluster.catalog.with_default_type(command)
    check(name_refusal(command))
    for _ in range(DECLARE_ATTEMPTS):
        try:
            record, created = yield from _in_catalog(channel, command)
        except AmqpError as error:
            raise _with_types(command, arguments, error) from None
        if record.exclusive:
            client.exclusive_queues[record.id] = record.shard
        if created:
            encoded = encode_create_queue(record.id, shard_settings(cluster.catalog, record))
        else:
            encoded = encode_touch_queue(record.id)
        record, result = yield from ask_shard(channel, record, partial(_same, encoded))
        if result is SESSION_LOST:
            if not (yield OwnerStep(record.id)):
                refuse_unreachable(record)
        elif isinstance(result, QueueCounts):
            client.traffic.queues_declared += 1
            client.traffic.queues_created += created
            if created and not method.nowait:
                yield SpreadStep()
            _declare_ok(channel, method, record.name, shown_counts(record, result))
            return
        elif isinstance(result, Gone) and result.reason:
            yield from remove_queue(record.id)
        else:
            yield from create_missing(channel, record)
    raise AmqpError(541, f"queue '{command.name}' in vhost '{command.vhost}' was deleted over and over")


def _same(encoded: bytes, _: QueueRecord) -> bytes:
    return encoded


def _with_types(command: DeclareQueue, arguments: bytes, error: AmqpError) -> AmqpError:
    """The error; if it is about the value of an argument, with the type that the value has on the wire. The catalog
    does not tell a short from a long."""
    vhost, name = command.vhost, command.name
    try:
        queue_settings(vhost, name, command.arguments)
    except Refusal as refusal:
        if refusal.text == error.text:
            try:
                queue_settings(vhost, name, command.arguments, types_of(arguments))
            except Refusal as typed:
                return as_error(typed)
    return error


def _in_catalog(channel: OperationChannel, command: DeclareQueue) -> Generator[Request, Any, tuple[QueueRecord, bool]]:
    """The queue's record, and whether it may be new."""
    catalog = channel.cluster.catalog
    user, vhost, name = channel.client.who, command.vhost, command.name

    def refusal() -> Refusal | None:
        return check_new_queue(catalog, user, command)

    check(check_access(catalog, user, "configure", "queue", vhost, name))
    check(unbuilt_refusal(vhost, name, command.arguments, catalog.level))
    if catalog.queue(vhost, name) is None and refusal() is not None:
        # Elsewhere it may be there, and is only looked up then.
        known((yield BarrierStep()))
        if catalog.queue(vhost, name) is None:
            check(refusal())
    present = catalog.inspect_queue(command)
    if isinstance(present, Refusal):
        # The replica may be behind: what it holds against the declare may be gone.
        yield from _clear_dead_owner(channel, command)
        known((yield BarrierStep()))
        present = catalog.inspect_queue(command)
        if isinstance(present, Refusal):
            present = yield from _after_lost_owner(channel, command, present)
    if present is not None:
        return present, False
    channel.check_making()
    command = replace(command, leader_locator=catalog.leader_locator(command))
    declared = yield from submit(channel, command, refusal)
    if isinstance(declared, Refusal):
        # It met what this replica had not heard of.
        present = yield from _after_lost_owner(channel, command, declared)
        if present is not None:
            return present, False
        declared = yield from submit(channel, command, refusal)
    if declared is SESSION_LOST:
        # It was applied where this replica could not see it; an exclusive queue nobody knows of would stay for ever.
        known((yield BarrierStep()))
        present = catalog.inspect_queue(command)
        if isinstance(present, QueueRecord):
            return present, True
    known(declared)
    return declared.queue, declared.created


def _after_lost_owner(
    channel: OperationChannel, command: DeclareQueue, refusal: Refusal
) -> Generator[Request, Any, QueueRecord | None]:
    """What a refused declare meets once the queue in its way is gone, or its owner can be reached; raises
    AmqpError if it is refused still."""
    catalog = channel.cluster.catalog
    record = catalog.queue(command.vhost, command.name)
    if record is None:
        raise as_error(refusal)
    yield OwnerStep(record.id)
    present = catalog.inspect_queue(command)
    if isinstance(present, Refusal):
        raise as_error(present)
    return present


def _clear_dead_owner(channel: OperationChannel, command: DeclareQueue) -> Generator[Request, Any, None]:
    """An exclusive queue of a connection that has just ended here may not have been taken out yet."""
    record = channel.cluster.catalog.queue(command.vhost, command.name)
    if (
        record is not None
        and record.exclusive
        and record.owner_node == channel.cluster.node_id
        and record.owner_connection not in channel.node.clients
    ):
        yield CatalogStep(RemoveQueues((record.id,)))


def bind(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """queue.bind."""
    return _change_binding(channel, method, Bind, commands.Queue.BindOk, arguments)


def unbind(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """queue.unbind; unbinding what is not bound is no error."""
    return _change_binding(channel, method, Unbind, commands.Queue.UnbindOk, b"")


def _change_binding(
    channel: OperationChannel, method: Any, make: type[Bind] | type[Unbind], answer: Callable[[], Any], typed: bytes
) -> Steps:
    client = channel.client
    command = make(
        vhost=client.vhost,
        source=method.exchange,
        destination_kind="queue",
        destination=queue_name(channel, method.queue),
        routing_key=_binding_key(channel, method),
        arguments=method.arguments or {},
        node_id=channel.cluster.node_id,
        connection=client.name,
    )
    yield from change_binding(channel, command, typed, None if getattr(method, "nowait", False) else answer)


def _binding_key(channel: OperationChannel, method: Any) -> str:
    """An empty key with an empty queue name means the queue's name (AMQP 0-9-1, queue.bind, routing-key)."""
    if not method.routing_key and not method.queue:
        return channel.last_queue
    return str(method.routing_key)


def purge(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """queue.purge: what is ready goes, without dead-lettering."""
    name = queue_name(channel, method.queue)

    def encode(record: QueueRecord) -> bytes:
        check_purge(record)
        return encode_purge(record.id)

    _, result = yield from on_queue(channel, name, "read", encode)
    if not method.nowait:
        channel.send(
            commands.Queue.PurgeOk(message_count=result.messages if isinstance(result, Purged) else 0)
        )


def delete(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """queue.delete; answered when the queue is out of the catalog here.  No such queue is no error."""
    client = channel.client
    name = queue_name(channel, method.queue)
    id, result = yield from _delete_in_shard(channel, name, bool(method.if_unused), bool(method.if_empty))
    if isinstance(result, Refused):
        why = "in use" if result.reason == IN_USE else "not empty"
        raise AmqpError(406, f"queue '{name}' in vhost '{client.vhost}' {why}")
    if id:
        yield from remove_queue(id)
    if not method.nowait:
        yield SpreadStep()
        messages = result.messages if isinstance(result, Deleted) else 0
        channel.send(commands.Queue.DeleteOk(message_count=messages))


def _delete_in_shard(
    channel: OperationChannel, name: str, if_unused: bool, if_empty: bool
) -> Generator[Request, Any, tuple[int, object]]:
    """The id of the queue, 0 if there is none, and what its shard says; None if it was gone there before.

    Only its shard knows whether it is empty and unused; a stream goes in any case, its messages uncounted.
    While its owner cannot be reached it may be in use there:
    then nothing is done before the node is reached again, or given up, which takes its queues out of the catalog."""

    def encode(record: QueueRecord) -> bytes:
        if queue_type(record.arguments) == STREAM:
            return encode_delete_queue(record.id, False, False)
        return encode_delete_queue(record.id, if_unused, if_empty)

    for _ in range(DECLARE_ATTEMPTS):
        try:
            record, result = yield from on_queue(channel, name, "configure", encode)
            if queue_type(record.arguments) == STREAM and isinstance(result, Deleted):
                result = Deleted(0)
            return record.id, result
        except QueueGone as gone:
            return gone.queue_id, None
        except OwnerUnreachable as unreachable:
            lost = unreachable
        except AmqpError as error:
            if error.code != NOT_FOUND or channel.cluster.catalog.queue(channel.client.vhost, name):
                raise
            return 0, None
        if not (yield OwnerStep(lost.queue_id)):
            raise lost
    raise AmqpError(541, f"the home node of queue '{name}' was lost over and over")
