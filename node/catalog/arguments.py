"""Queue arguments: which a queue takes (T1, L1, D1), and the refusals RabbitMQ has for the others.

The checks run in RabbitMQ's order, so that of several faults the same one is told.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from mayfly.node.catalog import refusals
from mayfly.node.catalog.leader_locators import LEADER_LOCATORS
from mayfly.node.catalog.records import DeadLetterStrategy, Overflow, QueueSettings
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.values import NestedTooDeepError, erlang_string, erlang_term, same_value, storable, type_name

QueueType = Literal["classic", "quorum"]

MAX_TTL_MS: Final = 315_360_000_000
"""Ten years of 365 days (T1, L1)."""

DEFAULT_DELIVERY_LIMIT: Final = 20
"""Of quorum queues that set none, as in RabbitMQ 4."""

_MAX_PRIORITY: Final = 255
_LONGEST_NAME_BYTES: Final = 255
_TYPE_MODULES: Final = {"classic": "rabbit_classic_queue", "quorum": "rabbit_quorum_queue"}

Check = Callable[[Any, str, Mapping[str, Any]], "str | None"]
"""Takes the value, RabbitMQ's name of its type, and all the arguments; answers what is wrong, in Erlang's print, or
None."""

_NO_TYPES: Final[dict[str, str]] = {}


def _integer_fault(value: Any, kind: str) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return f'"expected integer, got {kind}"'


def _any_integer(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _integer_fault(value, kind)


def _not_negative(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _integer_fault(value, kind) or (f"{{value_negative,{value}}}" if value < 0 else None)


def _positive(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    return _not_negative(value, kind, arguments) or ("{value_zero,0}" if value == 0 else None)


def duration_fault(value: int) -> str | None:
    """What is wrong with a number of milliseconds as a TTL, in Erlang's print; None if nothing is."""
    if value < 0:
        return f"{{value_negative,{value}}}"
    return f"{{value_too_large,{value}}}" if value > MAX_TTL_MS else None


def _message_ttl(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _integer_fault(value, kind) or duration_fault(value)


def _expires(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    return _positive(value, kind, arguments) or duration_fault(value)


def _string_fault(value: Any, kind: str) -> str | None:
    if isinstance(value, str):
        return None
    return "not_utf8" if isinstance(value, bytes) else f"{{unacceptable_type,{kind}}}"


def _name_fault(value: Any, kind: str) -> str | None:
    """Names and keys travel as short strings, table values can be longer."""
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    length = len(value.encode("utf-8", "surrogateescape"))
    return f"{{value_too_long,{length}}}" if length > _LONGEST_NAME_BYTES else None


def _dead_letter_exchange(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _name_fault(value, kind)


def _dead_letter_routing_key(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    if (fault := _name_fault(value, kind)) is not None:
        return fault
    return None if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"


def _boolean(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{kind}}}"


def _max_priority(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    fault = _not_negative(value, kind, arguments)
    return fault or (f"{{max_value_exceeded,{value}}}" if value > _MAX_PRIORITY else None)


def _queue_version(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    fault = _not_negative(value, kind, arguments)
    return fault or (None if value in (1, 2) else f'"unsupported queue version \'{value}\'"')


def _queue_mode(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    return None if value in ("default", "lazy") else erlang_string(f"unsupported queue mode '{value}'")


def _one_of(*allowed: str, fault: str) -> Check:
    def check(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
        if isinstance(value, bytes):
            return fault
        return _string_fault(value, kind) or (None if value in allowed else fault)
    return check


def _string(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _string_fault(value, kind)


def _queue_type(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    return None if value in _TYPE_MODULES else erlang_string(f"unsupported queue type '{value}'")


# Every argument RabbitMQ knows and the extensions of RULES, in the order of the checks.
_CHECKS: Final[dict[str, Check]] = {
    "x-expires": _expires,
    "x-message-ttl": _message_ttl,
    "x-dead-letter-exchange": _dead_letter_exchange,
    "x-dead-letter-routing-key": _dead_letter_routing_key,
    "x-dead-letter-strategy": _one_of("at-most-once", "at-least-once", fault="invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _max_priority,
    "x-overflow": _one_of("drop-head", "reject-publish", "reject-publish-dlx", fault="invalid_overflow"),
    "x-queue-mode": _queue_mode,
    "x-queue-version": _queue_version,
    "x-single-active-consumer": _boolean,
    "x-queue-type": _queue_type,
    "x-quorum-initial-group-size": _positive,
    "x-max-age": _string,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(*LEADER_LOCATORS, fault="invalid_queue_locator_arg"),
    "x-queue-master-locator": _string,
    "x-delivery-limit": _any_integer,
    "x-ttl-applies": _one_of("default", "retroactive", fault="invalid_ttl_applies"),
    "x-expires-if": _one_of("empty", "unused", fault="invalid_expires_if"),
    "x-expires-dead-letter": _boolean,
}

_STREAM_ONLY: Final = frozenset({"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size"})
_UNSUPPORTED: Final = {
    "quorum": _STREAM_ONLY | {"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"},
    "classic": _STREAM_ONLY,
}

_NOT_BUILT: Final = (
    "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier",
    "x-delayed-retry-jitter", "x-consumer-timeout", "x-consumer-disconnected-timeout", "x-stream-filter-size-bytes",
)
"""What means something in RabbitMQ 4.3 or LavinMQ 2.11 and nothing here yet. Earlier releases took them."""


def unbuilt_arguments(arguments: Mapping[str, Any]) -> list[str]:
    """Those that would mean something, and do nothing here."""
    return [key for key in _NOT_BUILT if key in arguments]


def unbuilt_refusal(vhost: str, name: str, arguments: Mapping[str, Any]) -> Refusal | None:
    """Why a queue with such arguments can't be declared: who asks for retries that wait must not get others. For who
    proposes a declaration; replicas go by their log."""
    found = unbuilt_arguments(arguments)
    return refusals.unsupported_argument(vhost, name, found[0], type_module(arguments)) if found else None


def stored_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they are kept in records. Raises Refusal (406) for a table nested beyond reason."""
    try:
        stored: dict[str, Any] = storable(arguments)
    except NestedTooDeepError as error:
        raise refusals.unreasonable_arguments(str(error)) from None
    return stored


def without_empty_type(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a queue that is to be declared, without an x-queue-type that names none: RabbitMQ takes "" and
    "undefined" for that (golden type4.spellings_and_none). The catalog refuses them, as earlier releases do."""
    if arguments.get("x-queue-type") not in ("", "undefined"):
        return arguments
    return {key: value for key, value in arguments.items() if key != "x-queue-type"}


def queue_type(arguments: Mapping[str, Any]) -> QueueType:
    """The type asked for by x-queue-type; "classic" when none or an unknown one is."""
    return "quorum" if arguments.get("x-queue-type") == "quorum" else "classic"


def type_module(arguments: Mapping[str, Any]) -> str:
    """RabbitMQ's name for the queue type, as its texts have it."""
    return _TYPE_MODULES[queue_type(arguments)]


def queue_settings(
    vhost: str, name: str, arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES
) -> QueueSettings:
    """The settings in a queue's arguments. Raises Refusal (406) with RabbitMQ's text for the first fault.

    T1, L1, D1, L11, T12; goldens args.*. Arguments nobody knows are passed over. `types` has RabbitMQ's names for the
    types of the arguments where they are known; they change a text, and never whether there is one.
    """
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, (str, bytes)):  # before all others, and in words of its own
        raise refusals.invalid_argument_type(
            "queue", vhost, name, "x-dead-letter-exchange", _kind("x-dead-letter-exchange", exchange, types)
        )
    _check(vhost, name, arguments, "x-queue-type", types)
    unsupported = _UNSUPPORTED[queue_type(arguments)]
    for key in _CHECKS:
        if key in arguments and key in unsupported:
            raise refusals.unsupported_argument(vhost, name, key, type_module(arguments))
    for key in _CHECKS:
        _check(vhost, name, arguments, key, types)
    return QueueSettings(
        message_ttl_ms=arguments.get("x-message-ttl"),
        expires_ms=arguments.get("x-expires"),
        dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
        dead_letter_routing_key=arguments.get("x-dead-letter-routing-key"),
        dead_letter_strategy=cast(
            DeadLetterStrategy, arguments.get("x-dead-letter-strategy", "at-least-once")
        ),
        max_length=arguments.get("x-max-length"),
        max_length_bytes=arguments.get("x-max-length-bytes"),
        overflow=cast(Overflow, arguments.get("x-overflow", "drop-head")),
        delivery_limit=_delivery_limit(arguments),
        max_priority=arguments.get("x-max-priority"),
        single_active_consumer=arguments.get("x-single-active-consumer", False),
        ttl_retroactive=arguments.get("x-ttl-applies") == "retroactive",
        expires_only_if_empty=arguments.get("x-expires-if") == "empty",
        expires_dead_letter=arguments.get("x-expires-dead-letter", False),
    )


def first_inequivalent(received: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """The first argument that keeps a redeclare from being equivalent, or None.

    Only arguments that mean something count (golden args.redeclare_ttl); no type is the same as "classic".
    """
    for key in _CHECKS:
        if key == "x-queue-type" and received.get(key, "classic") == current.get(key, "classic") == "classic":
            continue
        if (key in received) != (key in current):
            return key
        if key in received and not same_value(received[key], current[key]):
            return key
    return None


def _check(vhost: str, name: str, arguments: Mapping[str, Any], key: str, types: Mapping[str, str]) -> None:
    if key in arguments:
        value = arguments[key]
        fault = _CHECKS[key](value, _kind(key, value, types), arguments)
        if fault is not None:
            raise refusals.invalid_argument(vhost, name, key, fault)


def _kind(key: str, value: Any, types: Mapping[str, str]) -> str:
    return types[key] if key in types else type_name(value)


def _delivery_limit(arguments: Mapping[str, Any]) -> int | None:
    default = DEFAULT_DELIVERY_LIMIT if queue_type(arguments) == "quorum" else -1
    limit: int = arguments.get("x-delivery-limit", default)
    return None if limit < 0 else limit


_CONSUMERS_OF_STREAMS: Final = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")
_CONSUMERS_OF_OTHERS: Final[dict[QueueType, tuple[str, ...]]] = {
    "classic": (*_CONSUMERS_OF_STREAMS, "x-consumer-timeout"),
    "quorum": (*_CONSUMERS_OF_STREAMS, "x-consumer-timeout", "x-cancel-on-ha-failover"),
}
"""Arguments that consumers of another type of queue may have, by type of queue (RabbitMQ 4.3); x-consumer-timeout is of
quorum queues there, and not built yet."""


def consumer_priority(
    vhost: str, queue: str, kind: QueueType, arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES
) -> int:
    """x-priority of a consumer of a queue of this type, 0 when there is none.

    Raises Refusal (406, golden amqp.consume_no_local_and_args), for x-cancel-on-ha-failover as well: it has no meaning
    here, and must be a boolean; and for what goes with another type of queue alone.
    """
    value = arguments.get("x-priority", 0)
    if (fault := _integer_fault(value, _kind("x-priority", value, types))) is not None:
        raise refusals.invalid_argument(vhost, queue, "x-priority", fault)
    cancels = "x-cancel-on-ha-failover"
    if kind == "classic" and cancels in arguments:
        value_of_cancels = arguments[cancels]
        if (fault := _boolean(value_of_cancels, _kind(cancels, value_of_cancels, types), arguments)) is not None:
            raise refusals.invalid_argument(vhost, queue, cancels, fault)
    for key in _CONSUMERS_OF_OTHERS[kind]:
        if key in arguments:
            raise refusals.unsupported_argument(vhost, queue, key, _TYPE_MODULES[kind])
    return int(value)


def exchange_argument(
    vhost: str, exchange: str, arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES
) -> str | None:
    """The alternate exchange in an exchange's arguments, or None. Raises Refusal when it is not a string."""
    key = "alternate-exchange"
    value = arguments.get(key)
    if value is None and key not in arguments:
        return None
    if not isinstance(value, str):
        raise refusals.invalid_argument_type("exchange", vhost, exchange, key, _kind(key, value, types))
    return value


def headers_binding_fault(
    arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES
) -> Refusal | None:
    """What is wrong with x-match in the arguments of a binding to a headers exchange, or None."""
    if "x-match" not in arguments:
        return None
    mode = arguments["x-match"]
    if not isinstance(mode, (str, bytes)):
        return refusals.invalid_binding(
            f"Invalid x-match field type {_kind('x-match', mode, types)} (value {erlang_term(mode)}); expected longstr"
        )
    if mode not in ("all", "any", "all-with-x", "any-with-x"):
        return refusals.invalid_binding(
            f"Invalid x-match field value {erlang_term(mode)}; expected all, any, all-with-x, or any-with-x"
        )
    return None
