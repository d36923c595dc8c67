"""What a declare or bind meets in the catalog: an equivalent thing, nothing yet, or a reason to refuse.

The checks come in RabbitMQ's order. Each raises Refusal; permissions are another matter (`permissions`).
"""
from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mayfly.cluster.versions import LEVEL_DELAYED_EXCHANGES
from mayfly.node.catalog import refusals
from mayfly.node.catalog.arguments import (
    delayed_type_fault,
    exchange_argument,
    first_inequivalent,
    headers_binding_fault,
    queue_settings,
    queue_type,
    stored_arguments,
    type_module,
)
from mayfly.node.catalog.commands import Bind, DeclareExchange, DeclareQueue, Unbind
from mayfly.node.catalog.exchange import EXCHANGE_TYPES
from mayfly.node.catalog.records import (
    DELAYED,
    DELAYED_TYPE,
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    QueueSettings,
    VhostRecord,
)
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.streams import STREAM, origins_of, switches_ttls_on, with_age_in_ms, with_ttls_on
from mayfly.node.catalog.values import same_value
from mayfly.node.catalog.vhost import DEFAULT_EXCHANGE, Vhost

RESERVED_PREFIX: Final = "amq."
CLASSIC: Final = "classic"
DEFAULT_TYPES: Final = ("", CLASSIC, "quorum", STREAM)
"""What a vhost's queues without a type may be."""
_NO_TYPE: Final = {"x-queue-type": "classic"}
"""What a queue is that was declared without a type."""


def with_default_type(vhost: VhostRecord, command: DeclareQueue) -> DeclareQueue:
    """The command with its vhost's default type, where it names none and a queue of that type can have its flags; a
    classic queue otherwise. So in RabbitMQ 4.3 (rabbit_amqqueue:augment_declare_args)."""
    if not vhost.default_queue_type or "x-queue-type" in command.arguments:
        return command
    if not command.durable or command.exclusive or command.auto_delete:
        return command
    return replace(command, arguments={**command.arguments, "x-queue-type": vhost.default_queue_type})


def name_refusal(command: DeclareQueue) -> Refusal | None:
    """Why no client may declare a queue of that name, or of none; in RabbitMQ this comes before permissions."""
    if command.server_named:
        if queue_type(command.arguments) != "classic":
            return refusals.server_named_refused(type_module(command.arguments))
    elif command.name.startswith(RESERVED_PREFIX):
        return refusals.reserved_name("queue", command.name)
    return None


def existing_queue(vhost: Vhost, command: DeclareQueue, level: int) -> QueueRecord | None:
    """The queue of that name if it is equivalent, None if there is none. `level`: the cluster's."""
    stored_arguments(command.arguments)
    refusal = name_refusal(command)
    if refusal is not None:
        raise refusal
    queue = vhost.queues.get(command.name)
    if queue is None:
        return None
    if queue.exclusive != command.exclusive or not may_access(queue, command.node_id, command.connection):
        raise refusals.exclusive_lock(queue.vhost, queue.name)
    if queue.durable != effectively_durable(command):
        raise refusals.inequivalent_flag(
            "queue", queue.vhost, queue.name, "durable", effectively_durable(command), queue.durable
        )
    if queue.auto_delete != command.auto_delete:
        raise refusals.inequivalent_flag(
            "queue", queue.vhost, queue.name, "auto_delete", command.auto_delete, queue.auto_delete
        )
    received, current = with_age_in_ms(command.arguments), with_age_in_ms(queue.arguments)
    if switches_ttls_on(received, current) and queue_type(queue.arguments) == STREAM:
        current = with_ttls_on(current)
    if (key := first_inequivalent(received, current, level)) is not None:
        raise refusals.inequivalent_argument(
            "queue", queue.vhost, queue.name, key, {**_NO_TYPE, **received}, {**_NO_TYPE, **current}
        )
    return queue


def new_queue_settings(command: DeclareQueue, level: int) -> QueueSettings:
    """The settings of a queue that is to be made; its arguments and flags are checked (golden
    queue.refused_flags). `level`: the cluster's."""
    settings = queue_settings(command.vhost, command.name, command.arguments, level=level)
    if queue_type(command.arguments) != "classic":
        if command.auto_delete:
            raise refusals.invalid_property(command.vhost, command.name, "auto-delete")
        if command.exclusive:
            raise refusals.invalid_property(command.vhost, command.name, "exclusive-owner")
        if not command.durable:
            raise refusals.invalid_property(command.vhost, command.name, "non-durable")
    return settings


def check_origins(vhost: Vhost, command: DeclareQueue, settings: QueueSettings) -> None:
    """The streams that a new stream is to copy are there, and none copies it (RULES J4). Raises Refusal."""
    for name in origins_of(settings):
        pending = [name]
        for each in pending:
            if each == command.name:
                raise refusals.copies_in_a_circle(command.vhost, command.name, name)
            queue = vhost.queues.get(each)
            if queue is not None:
                pending += [onward for onward in origins_of(queue.settings) if onward not in pending]
        origin = vhost.queues.get(name)
        if origin is None:
            raise refusals.not_found("queue", command.vhost, name)
        if queue_type(origin.arguments) != STREAM:
            raise refusals.copies_no_stream(command.vhost, command.name, name)


def effectively_durable(command: DeclareQueue) -> bool:
    """An exclusive queue does not outlive its connection, whatever was asked for."""
    return command.durable and not command.exclusive


def may_access(queue: QueueRecord, node_id: int, connection: str) -> bool:
    """Whether the connection may use the queue: not exclusive, its own, or asked by the broker (node 0)."""
    return (
        not queue.exclusive
        or node_id == 0
        or (queue.owner_node == node_id and queue.owner_connection == connection)
    )


def is_exchange_type(name: str, level: int) -> bool:
    """Whether there are exchanges of that type at this feature level."""
    return name in EXCHANGE_TYPES or (name == DELAYED and level >= LEVEL_DELAYED_EXCHANGES)


def existing_exchange(vhost: Vhost, command: DeclareExchange, level: int) -> ExchangeRecord | None:
    """The exchange of that name if it is equivalent, None if there is none. `level`: the cluster's."""
    if command.type == DELAYED and level < LEVEL_DELAYED_EXCHANGES:
        raise refusals.needs_level(f"exchanges of the type {DELAYED}", LEVEL_DELAYED_EXCHANGES, level)
    if not is_exchange_type(command.type, level):
        raise refusals.unknown_exchange_type(command.type)
    if command.name == DEFAULT_EXCHANGE:
        raise refusals.default_exchange()
    stored_arguments(command.arguments)
    if command.type == DELAYED and (fault := delayed_type_fault(command.arguments)) is not None:
        raise fault
    exchange = vhost.exchange(command.name)
    if exchange is None:
        if command.name.startswith(RESERVED_PREFIX):
            raise refusals.reserved_name("exchange", command.name)
        exchange_argument(command.vhost, command.name, command.arguments)
        return None
    flags = (
        ("type", command.type, exchange.type),
        ("durable", command.durable, exchange.durable),
        ("auto_delete", command.auto_delete, exchange.auto_delete),
        ("internal", command.internal, exchange.internal),
    )
    for flag, received, current in flags:
        if received != current:
            raise refusals.inequivalent_flag(
                "exchange", exchange.vhost, exchange.name, flag, received, current
            )
    one, other = command.arguments, exchange.arguments
    for key in ("alternate-exchange", *((DELAYED_TYPE,) if exchange.type == DELAYED else ())):
        if (key in one) != (key in other) or (key in one and not same_value(one[key], other[key])):
            raise refusals.inequivalent_argument("exchange", exchange.vhost, exchange.name, key, one, other)
    return exchange


def checked_binding(vhost: Vhost, command: Bind | Unbind) -> BindingRecord | None:
    """The binding to make or to remove; None for an Unbind that has nothing to remove.

    A missing end is a fault of Bind alone (goldens amqp.missing_queue, amqp.missing_exchange).
    """
    if command.source == DEFAULT_EXCHANGE or (
        command.destination_kind == "exchange" and command.destination == DEFAULT_EXCHANGE
    ):
        raise refusals.default_exchange()
    source = vhost.exchange(command.source)
    queue = None
    if command.destination_kind == "queue":
        queue = vhost.queues.get(command.destination)
        missing = queue is None
        if queue is not None and not may_access(queue, command.node_id, command.connection):
            raise refusals.exclusive_lock(queue.vhost, queue.name)
    else:
        missing = vhost.exchange(command.destination) is None
    if isinstance(command, Bind):
        if source is None:
            raise refusals.not_found("exchange", command.vhost, command.source)
        if missing:
            raise refusals.not_found(command.destination_kind, command.vhost, command.destination)
        if queue is not None and queue.settings.mirror is not None:
            raise refusals.read_only(queue.vhost, queue.name, queue.settings.mirror)
        if source.routes_as == "headers" and (fault := headers_binding_fault(command.arguments)) is not None:
            raise fault
    elif source is None or missing:
        return None
    return BindingRecord(
        command.vhost, command.source, command.destination_kind, command.destination, command.routing_key,
        stored_arguments(command.arguments),
    )
