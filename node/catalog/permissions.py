"""Who may do what, with RabbitMQ's refusals (403, for a vhost 530).

Every check answers a Refusal, or None when it is allowed. `amq.default` is the default exchange's name here. What a
user of the catalog may do stands there; what one of a token may do, in that (`token_user`).
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal, Protocol

import msgspec

from mayfly.node.catalog import refusals
from mayfly.node.catalog.commands import Bind, CheckedCommand, DeclareExchange, DeclareQueue, Unbind
from mayfly.node.catalog.expression_syntax import quoted
from mayfly.node.catalog.expressions import expression
from mayfly.node.catalog.records import DestinationKind, ExchangeRecord, PermissionRecord, TopicPermissionRecord
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.streams import origins_said
from mayfly.node.catalog.token_user import AnyUser, TokenUser, name_of

Access = Literal["configure", "write", "read"]

_DIGEST_BYTES: Final = 16
_encoder = msgspec.msgpack.Encoder()


class RightsSource(Protocol):
    """What the checks of commands read of a catalog: all of it is in `rights_digest`."""

    def permission(self, user: str, vhost: str) -> PermissionRecord | None: ...
    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermissionRecord | None: ...
    def exchange(self, vhost: str, name: str) -> ExchangeRecord | None: ...


class PermissionSource(RightsSource, Protocol):
    """What all checks read of a catalog."""

    def has_vhost(self, name: str) -> bool: ...


@lru_cache(maxsize=8192)
def _allows(text: str, name: str) -> bool:
    """Whether an expression allows the name; one that can't be searched (`Expression.fault`) allows nothing."""
    return bool(text) and expression(text).search(name)


def may_enter(catalog: RightsSource, user: AnyUser, vhost: str) -> bool:
    """Whether the user may do anything in the vhost."""
    if isinstance(user, TokenUser):
        return user.scopes.enter(vhost)
    return catalog.permission(user, vhost) is not None


def check_vhost(catalog: PermissionSource, user: AnyUser, vhost: str) -> Refusal | None:
    """May the user open the vhost?"""
    if not catalog.has_vhost(vhost):
        return refusals.vhost_not_found(vhost)
    return None if may_enter(catalog, user, vhost) else refusals.vhost_refused(vhost, name_of(user))


def check_access(
    catalog: RightsSource, user: AnyUser, access: Access, kind: DestinationKind, vhost: str, name: str
) -> Refusal | None:
    """May the user configure, write or read the queue or exchange (which need not exist)?"""
    known_as = name or "amq.default" if kind == "exchange" else name
    if isinstance(user, TokenUser):
        allowed = user.scopes.allow(access, vhost, known_as)
        return None if allowed else refusals.access_refused(kind, vhost, name, user.name)
    permission = catalog.permission(user, vhost)
    if permission is not None:
        if access == "write":
            text = permission.write
        elif access == "read":
            text = permission.read
        else:
            text = permission.configure
        if _allows(text, known_as):
            return None
    return refusals.access_refused(kind, vhost, name, user)


def check_topic(
    catalog: RightsSource, user: AnyUser, access: Literal["write", "read"], vhost: str, exchange: str, key: str
) -> Refusal | None:
    """May the user publish with this routing key to the topic exchange, or bind with it? For after `check_access`."""
    if isinstance(user, TokenUser):
        allowed = user.scopes.allow_key(access, vhost, exchange, key)
        return None if allowed else refusals.topic_refused(key, exchange, vhost, user.name)
    record = catalog.topic_permission(user, vhost, exchange)
    if record is None:
        return None
    template = record.write if access == "write" else record.read
    # Escaped: a name is a name, whatever characters are in it.
    text = template.replace("{username}", quoted(user)).replace("{vhost}", quoted(vhost))
    return None if _allows(text or "^$", key) else refusals.topic_refused(key, exchange, vhost, user)


def is_limited_to_keys(catalog: RightsSource, user: AnyUser, vhost: str, exchange: str) -> bool:
    """Whether `check_topic` may refuse some keys of messages to the exchange. For after `check_access`."""
    if isinstance(user, TokenUser):
        record = catalog.exchange(vhost, exchange)
        is_topic = record is not None and record.routes_as == "topic"
        return is_topic and not user.scopes.allow_any_key("write", vhost, exchange)
    return catalog.topic_permission(user, vhost, exchange) is not None


def check_new_queue(catalog: RightsSource, user: AnyUser, command: DeclareQueue) -> Refusal | None:
    """May the user make the queue (D10)? Configure on it; with a dead-letter exchange read on it and write on that; the
    same with a journal (R4); of a stream read on those that it copies (J4). To look up an equivalent one that is there
    configure will do."""
    vhost, name = command.vhost, command.name
    refusal = check_access(catalog, user, "configure", "queue", vhost, name) or _check_forwarding(
        catalog, user, "queue", vhost, name, command.arguments, "x-dead-letter-exchange"
    )
    journal = command.arguments.get("x-journal")
    if isinstance(journal, str):
        refusal = refusal or check_access(catalog, user, "read", "queue", vhost, name)
        refusal = refusal or check_access(catalog, user, "write", "queue", vhost, journal)
    for origin in origins_said(command.arguments):
        refusal = refusal or check_access(catalog, user, "read", "queue", vhost, origin)
    return refusal


def check_new_exchange(catalog: RightsSource, user: AnyUser, command: DeclareExchange) -> Refusal | None:
    """May the user make the exchange? As `check_new_queue`, with an alternate exchange."""
    vhost, name = command.vhost, command.name
    return check_access(catalog, user, "configure", "exchange", vhost, name) or _check_forwarding(
        catalog, user, "exchange", vhost, name, command.arguments, "alternate-exchange"
    )


def check_binding(catalog: RightsSource, user: AnyUser, command: Bind | Unbind) -> Refusal | None:
    """Write on the destination, read on the source; of a topic exchange, on the key, too. In between, as in RabbitMQ,
    the default exchange is refused at either end."""
    vhost = command.vhost
    refusal = check_access(catalog, user, "write", command.destination_kind, vhost, command.destination)
    if refusal is None and (not command.source or (command.destination_kind == "exchange" and not command.destination)):
        refusal = refusals.default_exchange()
    refusal = refusal or check_access(catalog, user, "read", "exchange", vhost, command.source)
    if refusal is None:
        source = catalog.exchange(vhost, command.source)
        if source is not None and source.routes_as == "topic":
            refusal = check_topic(catalog, user, "read", vhost, command.source, command.routing_key)
    return refusal


def _check_forwarding(
    catalog: RightsSource, user: AnyUser, kind: DestinationKind, vhost: str, name: str,
    arguments: Mapping[str, Any], key: str,
) -> Refusal | None:
    onward = arguments.get(key)
    if not isinstance(onward, str):
        return None
    return check_access(catalog, user, "read", kind, vhost, name) or check_access(
        catalog, user, "write", "exchange", vhost, onward
    )


def rights_digest(catalog: RightsSource, user: str, command: CheckedCommand) -> bytes:
    """All that the check of the user's command reads of a catalog, names aside, in 16 octets: the same as long as the
    check's outcome must be the same. Which names an expression matches may differ between versions of Python; the
    expressions do not."""
    permission = catalog.permission(user, command.vhost)
    read: list[object] = []
    if permission is not None:
        read += [permission.configure, permission.write, permission.read]
    if isinstance(command, Bind | Unbind):
        source = catalog.exchange(command.vhost, command.source)
        if source is not None and source.routes_as == "topic":
            restriction = catalog.topic_permission(user, command.vhost, command.source)
            read.append(None if restriction is None else (restriction.write, restriction.read))
    return sha256(_encoder.encode(read)).digest()[:_DIGEST_BYTES]
