"""RabbitMQ's refusals, word for word (goldens amqp.*, args.*, queue.*), each as a Refusal.

Texts are without the code's name: the AMQP layer puts "NOT_FOUND - " and the like in front.
"""
from __future__ import annotations

from typing import Any

from mayfly.node.amqp.errors import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
)
from mayfly.node.catalog.records import DestinationKind, QueueRecord
from mayfly.node.catalog.results import NeedsLevel, OtherRights, Refusal
from mayfly.node.catalog.values import plain, type_name

_NONE = object()


def resource(kind: DestinationKind, vhost: str, name: str) -> str:
    """A resource as RabbitMQ names it in its texts."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def not_found(kind: DestinationKind, vhost: str, name: str) -> Refusal:
    """No such queue or exchange."""
    return Refusal(NOT_FOUND, f"no {resource(kind, vhost, name)}")


def vhost_not_found(vhost: str) -> Refusal:
    """No such vhost; closes the connection."""
    return Refusal(NOT_ALLOWED, f"vhost {vhost} not found", hard=True)


def vhost_is_protected(vhost: str) -> Refusal:
    """Somebody has said that it must not be deleted."""
    return Refusal(
        PRECONDITION_FAILED, f"Refusing to delete virtual host '{vhost}' because it is protected from deletion"
    )


def no_queue_type(name: str) -> Refusal:
    """As a default; in RabbitMQ's words."""
    return Refusal(PRECONDITION_FAILED, f"{name} is not a valid queue type")


def vhost_refused(vhost: str, user: str) -> Refusal:
    """The user has no permissions in the vhost; closes the connection."""
    return Refusal(NOT_ALLOWED, f"access to vhost '{vhost}' refused for user '{user}'", hard=True)


def access_refused(kind: DestinationKind, vhost: str, name: str, user: str) -> Refusal:
    """Whatever was to be done with it; the default exchange goes by its permission name."""
    shown = name or "amq.default" if kind == "exchange" else name
    return Refusal(ACCESS_REFUSED, f"access to {resource(kind, vhost, shown)} refused for user '{user}'")


def topic_refused(key: str, exchange: str, vhost: str, user: str) -> Refusal:
    """A routing key at a topic exchange that the user may not publish or bind with."""
    return Refusal(
        ACCESS_REFUSED,
        f"access to topic '{key}' in {resource('exchange', vhost, exchange)} refused for user '{user}'",
    )


def other_rights(user: str) -> OtherRights:
    """A command that was checked with permissions that no longer count; not for clients, unless it never ends."""
    return OtherRights(INTERNAL_ERROR, f"permissions of user '{user}' changed over and over")


def queue_limit(vhost: str, name: str, most: int) -> Refusal:
    """The vhost has as many queues as it may have."""
    return Refusal(
        PRECONDITION_FAILED, f"cannot declare queue '{name}': queue limit in vhost '{vhost}' ({most}) is reached"
    )


def vhost_connection_limit(vhost: str, user: str, most: int) -> Refusal:
    """The vhost has as many connections as it may have; closes the connection."""
    text = f"access to vhost '{vhost}' refused for user '{user}': connection limit ({most}) is reached"
    return Refusal(NOT_ALLOWED, text, hard=True)


def node_connection_limit(most: int) -> Refusal:
    """The node has as many connections as it takes; closes the connection."""
    return Refusal(NOT_ALLOWED, f"connection refused: node connection limit ({most}) is reached", hard=True)


def user_connection_limit(user: str, most: int) -> Refusal:
    """The user has as many connections as allowed; closes the connection."""
    text = f"connection refused for user '{user}': user connection limit ({most}) is reached"
    return Refusal(NOT_ALLOWED, text, hard=True)


def user_channel_limit(user: str, most: int) -> Refusal:
    """The user has as many channels as allowed; closes the connection."""
    text = f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({most})"
    return Refusal(NOT_ALLOWED, text, hard=True)


def reserved_name(kind: DestinationKind, name: str) -> Refusal:
    """A client declares a name that begins with amq."""
    return Refusal(ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def default_exchange() -> Refusal:
    """Declare, delete, bind and unbind do not apply to the default exchange."""
    return Refusal(ACCESS_REFUSED, "operation not permitted on the default exchange")


def system_exchange(vhost: str, name: str) -> Refusal:
    """The predeclared exchanges cannot be deleted."""
    return Refusal(ACCESS_REFUSED, f"deletion of system {resource('exchange', vhost, name)} not allowed")


def internal_exchange(vhost: str, name: str) -> Refusal:
    """A client publishes to an internal exchange."""
    return Refusal(ACCESS_REFUSED, f"cannot publish to internal {resource('exchange', vhost, name)}")


def exclusive_lock(vhost: str, name: str) -> Refusal:
    """Another connection's exclusive queue, or a declare of one's own as not exclusive."""
    return Refusal(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {resource('queue', vhost, name)}. It could be originally "
        "declared on another connection or the exclusive property value does not match that of the original "
        "declaration.",
    )


def exchange_in_use(vhost: str, name: str) -> Refusal:
    """Delete with if-unused of an exchange that has bindings."""
    return Refusal(PRECONDITION_FAILED, f"{resource('exchange', vhost, name)} in use")


def unknown_exchange_type(type_: str) -> Refusal:
    """Declare of an exchange of a type that there is not."""
    return Refusal(PRECONDITION_FAILED, f"unknown exchange type '{type_}'")


def invalid_argument(vhost: str, queue: str, key: str, why: str) -> Refusal:
    """A queue argument with a bad value; `why` as Erlang prints it."""
    return Refusal(PRECONDITION_FAILED, f"invalid arg '{key}' for {resource('queue', vhost, queue)}: {why}")


def unsupported_argument(vhost: str, queue: str, key: str, type_module: str) -> Refusal:
    """A queue argument that this type of queue does not know."""
    return Refusal(
        PRECONDITION_FAILED,
        f"invalid arg '{key}' for {resource('queue', vhost, queue)} of queue type {type_module}",
    )


def invalid_argument_type(kind: DestinationKind, vhost: str, name: str, key: str, type_: str) -> Refusal:
    """An exchange name in the arguments that is not a string, but of this type."""
    return Refusal(
        PRECONDITION_FAILED,
        f"invalid type '{type_}' for arg '{key}' in {resource(kind, vhost, name)}",
    )


def invalid_property(vhost: str, queue: str, flag: str) -> Refusal:
    """A flag that this type of queue does not allow."""
    return Refusal(PRECONDITION_FAILED, f"invalid property '{flag}' for {resource('queue', vhost, queue)}")


def server_named_refused(type_module: str) -> Refusal:
    """Queues of this type must be named by the client."""
    return Refusal(PRECONDITION_FAILED, f"Cannot declare a server-named queue for type {type_module}")


def invalid_binding(why: str) -> Refusal:
    """Binding arguments that the exchange's type does not take."""
    return Refusal(PRECONDITION_FAILED, why)


def routing_weight(vhost: str, exchange: str, most: int) -> Refusal:
    """A binding with which routing could take too long; worded as RabbitMQ words limits."""
    return Refusal(
        PRECONDITION_FAILED,
        f"cannot bind to {resource('exchange', vhost, exchange)}: the bindings of vhost '{vhost}' have as many words "
        f"in topic patterns with wildcards and headers to look at as they may have ({most})",
    )


def unreasonable_arguments(text: str) -> Refusal:
    """Arguments that make no sense."""
    return Refusal(PRECONDITION_FAILED, text)


def user_not_found(user: str) -> Refusal:
    """Nobody of that name can have permissions or limits."""
    return Refusal(NOT_FOUND, f"no user '{user}'")


def no_such_node(node_id: int) -> Refusal:
    """A transient queue cannot live on no node, nor on an incarnation of one that is known to be gone."""
    return Refusal(INTERNAL_ERROR, f"no node {node_id} to hold the queue, or it was lost", hard=True)


def transient_queue_moves(queue: QueueRecord) -> Refusal:
    """A queue in the memory of one node stays there."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', queue.vhost, queue.name)} is in the memory of node {queue.owner_node}: only durable "
        "queues that are neither exclusive nor auto-delete are in shards, and move",
    )


def stream_moves(queue: QueueRecord) -> Refusal:
    """A stream stays in its shard."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', queue.vhost, queue.name)} is a stream: streams stay in the shard "
        "in which they were declared",
    )


def copies_no_stream(vhost: str, name: str, origin: str) -> Refusal:
    """What a stream is to copy is another queue (RULES J4)."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', vhost, name)} can't copy {resource('queue', vhost, origin)}: it is no stream",
    )


def copies_in_a_circle(vhost: str, name: str, origin: str) -> Refusal:
    """What a stream is to copy copies it already, perhaps by way of others."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', vhost, name)} can't copy {resource('queue', vhost, origin)}: they would copy each other",
    )


def no_journal(whose: str, journal: str, fault: str) -> Refusal:
    """A queue or policy names something as a journal that can't be one (RULES R4)."""
    return Refusal(PRECONDITION_FAILED, f"{whose} can't have '{journal}' as its journal: {fault}")


def read_only(vhost: str, name: str, origin: str) -> Refusal:
    """Somebody publishes to a mirror, or binds it."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', vhost, name)} is read-only: it has the messages of stream '{origin}' alone (x-mirror)",
    )


def no_such_shard(shard: int, count: int) -> Refusal:
    """Queues are in the shards from 1 on."""
    return Refusal(PRECONDITION_FAILED, f"no shard {shard}: shards are numbered from 1 to {count}")


def queue_is_moving(queue: QueueRecord, shard: int) -> Refusal:
    """One move after the other."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', queue.vhost, queue.name)} is still moving from shard {queue.shard} to shard "
        f"{queue.moving_to}: ask for shard {shard} once it is there",
    )


def queue_has_changed(queue: QueueRecord) -> Refusal:
    """Somebody decided on a move, and something else has come before it."""
    return Refusal(
        PRECONDITION_FAILED,
        f"{resource('queue', queue.vhost, queue.name)} was declared anew, or has moved, since it was asked to move",
    )


def needs_level(what: str, needed: int, level: int) -> NeedsLevel:
    """Something that not all members of the cluster may know yet."""
    return NeedsLevel(
        PRECONDITION_FAILED,
        f"{what} needs feature level {needed}, the cluster is at {level}: it is raised when all members are new enough",
    )


def inequivalent_flag(
    kind: DestinationKind, vhost: str, name: str, flag: str, received: bool | str, current: bool | str
) -> Refusal:
    """A redeclare with another durable, auto-delete, internal or type."""
    return _inequivalent(kind, vhost, name, flag, _quoted(_printed(received)), _quoted(_printed(current)))


def inequivalent_argument(
    kind: DestinationKind, vhost: str, name: str, key: str, received: dict[str, Any], current: dict[str, Any]
) -> Refusal:
    """A redeclare with another value of an argument, or with it on one side only."""
    new, old = received.get(key, _NONE), current.get(key, _NONE)
    if new is not _NONE and old is not _NONE:
        return _inequivalent(kind, vhost, name, key, _quoted(plain(new)), _quoted(plain(old)))
    return _inequivalent(kind, vhost, name, key, _with_type(new), _with_type(old))


def _inequivalent(
    kind: DestinationKind, vhost: str, name: str, key: str, received: str, current: str
) -> Refusal:
    return Refusal(
        PRECONDITION_FAILED,
        f"inequivalent arg '{key}' for {resource(kind, vhost, name)}: "
        f"received {received} but current is {current}",
    )


def _quoted(text: str) -> str:
    return f"'{text}'"


def _printed(value: bool | str) -> str:
    return value if isinstance(value, str) else "true" if value else "false"


def _with_type(value: Any) -> str:
    return "none" if value is _NONE else f"the value '{plain(value)}' of type '{type_name(value)}'"
