"""Who may do what, with RabbitMQ's refusals (403, for a vhost 530).

Every check answers a Refusal, or None when it is allowed. `amq.default` is the default exchange's name here.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

from node.catalog import refusals
from node.catalog.commands import Bind, DeclareExchange, DeclareQueue, Unbind
from node.catalog.policy_patterns import compiled, pattern_fault
from node.catalog.records import (
    DestinationKind,
    ExchangeRecord,
    PermissionRecord,
    QueueRecord,
    TopicPermissionRecord,
)
from node.catalog.results import Refusal

Access = Literal["configure", "write", "read"]


class PermissionSource(Protocol):
    """What the checks read of a catalog."""

    def has_vhost(self, name: str) -> bool: ...
    def permission(self, user: str, vhost: str) -> PermissionRecord | None: ...
    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermissionRecord | None: ...
    def queue(self, vhost: str, name: str) -> QueueRecord | None: ...
    def exchange(self, vhost: str, name: str) -> ExchangeRecord | None: ...


def permission_fault(expression: str) -> str | None:
    """What is wrong with a permission's regular expression, or None. Clients choose the names that it is searched in,
    so the same are refused as in policies."""
    return pattern_fault(expression)


@lru_cache(maxsize=8192)
def _allows(expression: str, name: str) -> bool:
    pattern = compiled(expression) if expression else None
    return pattern is not None and pattern.search(name) is not None


def check_vhost(catalog: PermissionSource, user: str, vhost: str) -> Refusal | None:
    """May the user open the vhost?"""
    if not catalog.has_vhost(vhost):
        return refusals.vhost_not_found(vhost)
    return None if catalog.permission(user, vhost) is not None else refusals.vhost_refused(vhost, user)


def check_access(
    catalog: PermissionSource, user: str, access: Access, kind: DestinationKind, vhost: str, name: str
) -> Refusal | None:
    """May the user configure, write or read the queue or exchange (which need not exist)?"""
    permission = catalog.permission(user, vhost)
    if permission is not None:
        if access == "write":
            expression = permission.write
        elif access == "read":
            expression = permission.read
        else:
            expression = permission.configure
        if _allows(expression, name or "amq.default" if kind == "exchange" else name):
            return None
    return refusals.access_refused(kind, vhost, name, user)


def check_topic(
    catalog: PermissionSource, user: str, access: Literal["write", "read"], vhost: str, exchange: str, key: str
) -> Refusal | None:
    """May the user publish with this routing key to the topic exchange, or bind with it? For after `check_access`."""
    record = catalog.topic_permission(user, vhost, exchange)
    if record is None:
        return None
    template = record.write if access == "write" else record.read
    # Escaped: a name is a name, whatever characters are in it.
    expression = template.replace("{username}", re.escape(user)).replace("{vhost}", re.escape(vhost))
    if not expression:
        expression = "^$"
    return None if _allows(expression, key) else refusals.topic_refused(key, exchange, vhost, user)


def check_declare_queue(catalog: PermissionSource, user: str, command: DeclareQueue) -> Refusal | None:
    """D10: configure on the queue; for a new one with a dead-letter exchange read on it and write on that."""
    vhost, name = command.vhost, command.name
    refusal = check_access(catalog, user, "configure", "queue", vhost, name)
    if refusal is None and catalog.queue(vhost, name) is None:
        refusal = _check_forwarding(
            catalog, user, "queue", vhost, name, command.arguments, "x-dead-letter-exchange"
        )
    return refusal


def check_declare_exchange(catalog: PermissionSource, user: str, command: DeclareExchange) -> Refusal | None:
    """Configure on the exchange; for a new one with an alternate exchange read on it and write on that."""
    vhost, name = command.vhost, command.name
    refusal = check_access(catalog, user, "configure", "exchange", vhost, name)
    if refusal is None and catalog.exchange(vhost, name) is None:
        refusal = _check_forwarding(
            catalog, user, "exchange", vhost, name, command.arguments, "alternate-exchange"
        )
    return refusal


def check_binding(catalog: PermissionSource, user: str, command: Bind | Unbind) -> Refusal | None:
    """Write on the destination, read on the source; of a topic exchange, on the key, too. In between, as in RabbitMQ,
    the default exchange is refused at either end."""
    vhost = command.vhost
    refusal = check_access(catalog, user, "write", command.destination_kind, vhost, command.destination)
    if refusal is None and (not command.source or (command.destination_kind == "exchange" and not command.destination)):
        refusal = refusals.default_exchange()
    refusal = refusal or check_access(catalog, user, "read", "exchange", vhost, command.source)
    if refusal is None:
        source = catalog.exchange(vhost, command.source)
        if source is not None and source.type == "topic":
            refusal = check_topic(catalog, user, "read", vhost, command.source, command.routing_key)
    return refusal


def _check_forwarding(
    catalog: PermissionSource, user: str, kind: DestinationKind, vhost: str, name: str,
    arguments: Mapping[str, Any], key: str,
) -> Refusal | None:
    onward = arguments.get(key)
    if not isinstance(onward, str):
        return None
    return check_access(catalog, user, "read", kind, vhost, name) or check_access(
        catalog, user, "write", "exchange", vhost, onward
    )
