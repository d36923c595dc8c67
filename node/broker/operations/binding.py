"""Bindings, of queues and of exchanges: checked, made or undone in the catalog, and answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from node.amqp.field_table import types_of
from node.broker.operation import CatalogStep, SpreadStep, Steps, as_error, check, known
from node.catalog import Bind, Unbind
from node.catalog.arguments import headers_binding_fault
from node.catalog.permissions import check_binding

if TYPE_CHECKING:
    from node.broker.channel import Channel


def change_binding(
    channel: Channel, command: Bind | Unbind, arguments: bytes, answer: Callable[[], Any] | None
) -> Steps:
    """Make or undo a binding. `arguments`: those of a bind, as they came; `answer`: what is sent, None for nothing."""
    check(check_binding(channel.broker.cluster.catalog, channel.connection.user, command))
    if arguments:
        _check_header_match(channel, command, arguments)
    known((yield CatalogStep(command)))
    if answer is not None:
        yield SpreadStep()
        channel.send(answer())


def _check_header_match(channel: Channel, command: Bind | Unbind, arguments: bytes) -> None:
    """Refuse a binding to a headers exchange whose x-match is none, by the types on the wire: the catalog has decimals
    and octets as strings. Where an end is not known here, the catalog answers: 404 comes before this, and this before
    405, as in RabbitMQ."""
    catalog = channel.broker.cluster.catalog
    source = catalog.exchange(command.vhost, command.source)
    to = catalog.queue if command.destination_kind == "queue" else catalog.exchange
    if source is not None and source.type == "headers" and to(command.vhost, command.destination) is not None:
        fault = headers_binding_fault(command.arguments, types_of(arguments))
        if fault is not None:
            raise as_error(fault)
