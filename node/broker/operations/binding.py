"""Bindings, of queues and of exchanges: checked, made or undone in the catalog, and answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mayfly.node.amqp.field_table import types_of
from mayfly.node.broker.operation import SpreadStep, Steps, known
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.broker.operations.steps import submit
from mayfly.node.catalog import Bind, Refusal, Unbind, refusals
from mayfly.node.catalog.arguments import headers_binding_fault
from mayfly.node.catalog.permissions import check_binding
from mayfly.node.limits import HASHES_OF_TOPIC_KEY


def change_binding(
    channel: OperationChannel, command: Bind | Unbind, arguments: bytes, answer: Callable[[], Any] | None
) -> Steps:
    """Make or undo a binding. `arguments`: those of a bind, as they came; `answer`: what is sent, None for nothing."""
    catalog = channel.cluster.catalog
    user = channel.client.who

    def refusal() -> Refusal | None:
        return (
            check_binding(catalog, user, command)
            or _topic_key_refusal(channel, command)
            or _header_match_refusal(channel, command, arguments)
        )

    if isinstance(command, Bind) and not catalog.is_bound(command):
        channel.check_making()
    known((yield from submit(channel, command, refusal)))
    if answer is not None:
        yield SpreadStep()
        channel.send(answer())


def _topic_key_refusal(channel: OperationChannel, command: Bind | Unbind) -> Refusal | None:
    """Why there can't be a binding to a topic exchange with many `#`: RabbitMQ 4.3 refuses it. Where an end is not
    known here, the catalog answers. What is there may be undone."""
    if isinstance(command, Unbind):
        return None
    catalog = channel.cluster.catalog
    source = catalog.exchange(command.vhost, command.source)
    to = catalog.queue if command.destination_kind == "queue" else catalog.exchange
    if source is not None and source.routes_as == "topic" and to(command.vhost, command.destination) is not None:
        key = command.routing_key
        count = key.split(".").count("#")
        if count > HASHES_OF_TOPIC_KEY:
            return refusals.invalid_binding(
                f"Topic binding key '{key}' uses {count} '#' wildcards, at most {HASHES_OF_TOPIC_KEY} are allowed"
            )
    return None


def _header_match_refusal(channel: OperationChannel, command: Bind | Unbind, arguments: bytes) -> Refusal | None:
    """Why there can't be a binding to a headers exchange whose x-match is none, by the types on the wire: the catalog
    has decimals and octets as strings. Where an end is not known here, the catalog answers: 404 comes before this, and
    this before 405, as in RabbitMQ."""
    if not arguments:
        return None
    catalog = channel.cluster.catalog
    source = catalog.exchange(command.vhost, command.source)
    to = catalog.queue if command.destination_kind == "queue" else catalog.exchange
    if source is not None and source.routes_as == "headers" and to(command.vhost, command.destination) is not None:
        return headers_binding_fault(command.arguments, types_of(arguments))
    return None
