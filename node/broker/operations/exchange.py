"""Class exchange: declare, delete, bind, unbind (AMQP 0-9-1, 1.6, with bindings between exchanges)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from pamqp import commands

from mayfly.node.amqp.field_table import types_of
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.broker.operation import (
    AmqpError,
    BarrierStep,
    Request,
    SpreadStep,
    Steps,
    as_error,
    check,
    known,
)
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.broker.operations.binding import change_binding
from mayfly.node.broker.operations.steps import ask_shard, submit
from mayfly.node.catalog import (
    Bind,
    DeclareExchange,
    DeleteExchange,
    ExchangeRecord,
    QueueRecord,
    Refusal,
    Unbind,
    refusals,
)
from mayfly.node.catalog.arguments import delayed_type_fault, exchange_argument
from mayfly.node.catalog.declarations import RESERVED_PREFIX, is_exchange_type
from mayfly.node.catalog.permissions import check_access, check_new_exchange
from mayfly.node.catalog.records import DELAYED
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.limits import DECLARE_ATTEMPTS
from mayfly.node.shard.commands import encode_create_queue


def declare(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """exchange.declare, active or passive."""
    client = channel.client
    catalog = channel.cluster.catalog
    # RabbitMQ looks at the type first, and at reserved names after the permissions.
    if not method.passive and not is_exchange_type(method.exchange_type, catalog.level):
        check(refusals.unknown_exchange_type(method.exchange_type))
    if not method.exchange:
        check(refusals.default_exchange())
    if method.passive:
        if catalog.exchange(client.vhost, method.exchange) is None:
            known((yield BarrierStep()))
            found = catalog.find_exchange(client.vhost, method.exchange)
            if isinstance(found, Refusal):
                raise as_error(found)
        yield from _make_delay_queue(channel, method.exchange)
    else:
        command = DeclareExchange(
            vhost=client.vhost,
            name=method.exchange,
            type=method.exchange_type,
            durable=bool(method.durable),
            auto_delete=bool(method.auto_delete),
            internal=bool(method.internal),
            arguments=method.arguments or {},
        )
        check(check_access(catalog, client.who, "configure", "exchange", command.vhost, command.name))
        created = yield from _in_catalog(channel, command, arguments)
        yield from _make_delay_queue(channel, command.name)
        if created and not method.nowait:
            yield SpreadStep()
    if not method.nowait:
        channel.send(commands.Exchange.DeclareOk())


def _make_delay_queue(channel: OperationChannel, exchange: str) -> Steps:
    """Have the queue of a delayed exchange made in its shard, if it is one: who has declared it, in whatever way, may
    publish to it (RULES S1)."""
    catalog = channel.cluster.catalog
    vhost = channel.client.vhost
    for _ in range(DECLARE_ATTEMPTS):
        record = catalog.delay_queue(vhost, exchange)
        if record is None:
            return
        command = encode_create_queue(record.id, shard_settings(catalog, record))
        _, result = yield from ask_shard(channel, record, partial(_same, command))
        if result is not SESSION_LOST:
            return
    raise AmqpError(541, f"exchange '{exchange}' in vhost '{vhost}' was deleted over and over")


def _same(command: bytes, _: QueueRecord) -> bytes:
    return command


def _in_catalog(channel: OperationChannel, command: DeclareExchange, arguments: bytes) -> Generator[Request, Any, bool]:
    """Make the exchange, unless an equivalent one is there; whether it may be new."""
    catalog = channel.cluster.catalog
    user = channel.client.who

    def refusal() -> Refusal | None:
        return check_new_exchange(catalog, user, command)

    if refusal() is not None:
        # Who may not make it may look it up, and is told if it is another one.
        if catalog.exchange(command.vhost, command.name) is None:
            known((yield BarrierStep()))
        if catalog.exchange(command.vhost, command.name) is None:
            check(refusal())
    present = catalog.inspect_exchange(command)
    if isinstance(present, Refusal):
        _check_alternate(command, arguments, present)
        if refusal() is not None:
            raise as_error(present)
    if isinstance(present, ExchangeRecord):
        return False
    channel.check_making()
    # The log decides: the replica here may be behind.
    known((yield from submit(channel, command, refusal)))
    return True


def _check_alternate(command: DeclareExchange, arguments: bytes, refusal: Refusal) -> None:
    """Raise the refusal if it is about the alternate exchange, with the type that the value has on the wire: the log
    has decimals and octets as strings, and would take them."""
    vhost, name = command.vhost, command.name
    if command.type == DELAYED:
        check(delayed_type_fault(command.arguments, types_of(arguments)))
    try:
        exchange_argument(vhost, name, command.arguments)
    except Refusal as found:
        if found.text != refusal.text:
            return
        try:
            exchange_argument(vhost, name, command.arguments, types_of(arguments))
        except Refusal as typed:
            raise as_error(typed) from None


def delete(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """exchange.delete; no such exchange is no error."""
    client = channel.client
    catalog = channel.cluster.catalog
    if not method.exchange:
        check(refusals.default_exchange())
    if method.exchange.startswith(RESERVED_PREFIX):
        check(refusals.system_exchange(client.vhost, method.exchange))
    command = DeleteExchange(client.vhost, method.exchange, bool(method.if_unused))

    def refusal() -> Refusal | None:
        return check_access(catalog, client.who, "configure", "exchange", command.vhost, command.name)

    known((yield from submit(channel, command, refusal)))
    if not method.nowait:
        yield SpreadStep()
        channel.send(commands.Exchange.DeleteOk())


def bind(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """exchange.bind."""
    return _change_binding(channel, method, Bind, commands.Exchange.BindOk, arguments)


def unbind(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """exchange.unbind; unbinding what is not bound is no error."""
    return _change_binding(channel, method, Unbind, commands.Exchange.UnbindOk, b"")


def _change_binding(
    channel: OperationChannel, method: Any, make: type[Bind] | type[Unbind], answer: Callable[[], Any], typed: bytes
) -> Steps:
    client = channel.client
    command = make(
        vhost=client.vhost,
        source=method.source,
        destination_kind="exchange",
        destination=method.destination,
        routing_key=method.routing_key,
        arguments=method.arguments or {},
        node_id=channel.cluster.node_id,
        connection=client.name,
    )
    yield from change_binding(channel, command, typed, None if method.nowait else answer)
