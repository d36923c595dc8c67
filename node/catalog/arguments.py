"""Queue arguments: which a queue takes (T1, L1, D1), and the refusals RabbitMQ has for the others.

The checks run in RabbitMQ's order, so that of several faults the same one is told.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from mayfly.cluster.versions import (
    LEVEL_BRAKES,
    LEVEL_CONSUMER_TIMEOUTS,
    LEVEL_EXPIRE_SCOPE,
    LEVEL_HIGHEST,
    LEVEL_JOURNALS,
    LEVEL_SCHEDULES,
    LEVEL_STREAMS,
    LEVEL_TTL_DIALECTS,
    LEVEL_UPSTREAMS,
)
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog import brakes, delayed_retries, refusals, streams
from mayfly.node.catalog.leader_locators import LEADER_LOCATORS
from mayfly.node.catalog.records import DELAYED_TYPE, DeadLetterStrategy, Overflow, QueueSettings
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.streams import STREAM
from mayfly.node.catalog.ttl_dialects import TTL_DIALECTS
from mayfly.node.catalog.values import NestedTooDeepError, erlang_string, erlang_term, same_value, storable, type_name
from mayfly.node.shard.stream_ttls import marker_ttl_ms

QueueType = Literal["classic", "quorum", "stream"]

MAX_TTL_MS: Final = 315_360_000_000
"""Ten years of 365 days (T1, L1)."""

DEFAULT_DELIVERY_LIMIT: Final = 20
"""Of quorum queues that set none, as in RabbitMQ 4."""

_MAX_PRIORITY: Final = 255
_LONGEST_NAME_BYTES: Final = 255
_TYPE_MODULES: Final = {
    "classic": "rabbit_classic_queue", "quorum": "rabbit_quorum_queue", STREAM: "rabbit_stream_queue",
}

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


def _max_age(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    return "invalid_max_age" if streams.age_ms(value) is None else None


def _marker_ttl(value: Any, _kind: str, arguments: Mapping[str, Any]) -> str | None:
    if streams.MIRROR in arguments:
        return f"a stream with {streams.MIRROR} has the messages of another one alone, and leaves no markers"
    if marker_ttl_ms(value) is not None:
        return None
    return "seconds, or a duration such as 1h30m, of at least 1 second and at most ten years expected"


def _mirror(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    if (fault := _name_fault(value, kind)) is not None:
        return fault
    if streams.SOURCES in arguments:
        return f"a stream has {streams.MIRROR} or {streams.SOURCES}, not both"
    return None if value else "the name of a stream expected"


def _upstream(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    if (fault := _name_fault(value, kind)) is not None:
        return fault
    if streams.MIRROR not in arguments:
        return f"it says in which cluster the stream of {streams.MIRROR} is, and there is none"
    return None if value else "the name of a cluster expected, as the nodes' upstreams_file has it"


def _journal(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _name_fault(value, kind) or (None if value else "the name of a stream expected")


def _sources(value: Any, _kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := streams.sources_fault(value)) is not None:
        return fault
    return next((fault for name in value if (fault := _name_fault(name, "longstr")) is not None), None)


def _string(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    return _string_fault(value, kind)


def _queue_type(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    return None if value in _TYPE_MODULES else erlang_string(f"unsupported queue type '{value}'")


def _retry_delay(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    return _positive(value, kind, arguments) or duration_fault(value)


def _retry_multiplier(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    fault = _positive(value, kind, arguments)
    return fault or (f"{{value_too_large,{value}}}" if value > delayed_retries.MOST_MULTIPLIER else None)


def _retry_jitter(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f'"expected a number from 0 to 1, got {kind}"'
    return None if delayed_retries.is_jitter(value) else f'"expected a number from 0 to 1, got {value}"'


def _brake_rate(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if brakes.rate_of(value) is not None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f'"expected {brakes.RATES}, got {value if is_number else kind}"'


def _brake_window(value: Any, kind: str, arguments: Mapping[str, Any]) -> str | None:
    fault = _positive(value, kind, arguments)
    return fault or (f"{{value_too_large,{value}}}" if value > brakes.MOST_WINDOW_MS else None)


def _retry_type(value: Any, kind: str, _arguments: Mapping[str, Any]) -> str | None:
    if (fault := _string_fault(value, kind)) is not None:
        return fault
    if value in delayed_retries.TYPES:
        return None
    return erlang_string(f"unsupported delayed retry type '{value}', one of: {', '.join(delayed_retries.TYPES)}")


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
    "x-consumer-timeout": _not_negative,
    "x-consumer-disconnected-timeout": _not_negative,
    "x-queue-type": _queue_type,
    "x-quorum-initial-group-size": _positive,
    "x-max-age": _max_age,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-stream-filter-size-bytes": _not_negative,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(*LEADER_LOCATORS, fault="invalid_queue_locator_arg"),
    "x-queue-master-locator": _string,
    "x-delivery-limit": _any_integer,
    "x-ttl-applies": _one_of("default", "retroactive", fault="invalid_ttl_applies"),
    "x-ttl-dialect": _one_of(*TTL_DIALECTS, fault="invalid_ttl_dialect"),
    "x-expire-scope": _one_of("head", "any", fault="invalid_expire_scope"),
    "x-expires-if": _one_of("empty", "unused", fault="invalid_expires_if"),
    "x-expires-dead-letter": _boolean,
    "x-allow-schedule": _boolean,
    f"x-{delayed_retries.MIN}": _retry_delay,
    f"x-{delayed_retries.MAX}": _retry_delay,
    f"x-{delayed_retries.MULTIPLIER}": _retry_multiplier,
    f"x-{delayed_retries.JITTER}": _retry_jitter,
    f"x-{delayed_retries.TYPE}": _retry_type,
    streams.ALLOW_MSG_TTL: _boolean,
    streams.MARKER_TTL: _marker_ttl,
    streams.KEY_INDEX: _boolean,
    streams.MIRROR: _mirror,
    streams.UPSTREAM: _upstream,
    streams.SOURCES: _sources,
    "x-journal": _journal,
    f"x-{brakes.RATE}": _brake_rate,
    f"x-{brakes.WINDOW}": _brake_window,
}

_RETRIES: Final = tuple([f"x-{key}" for key in delayed_retries.KEYS])
_BRAKES: Final = tuple([f"x-{key}" for key in brakes.KEYS])
_OF_STREAMS_BEYOND: Final = (
    streams.ALLOW_MSG_TTL, streams.MARKER_TTL, streams.KEY_INDEX, streams.MIRROR, streams.SOURCES,
)
SINCE_LEVEL: Final = {
    "x-consumer-timeout": LEVEL_CONSUMER_TIMEOUTS,
    "x-consumer-disconnected-timeout": LEVEL_CONSUMER_TIMEOUTS,
    "x-ttl-dialect": LEVEL_TTL_DIALECTS,
    "x-expire-scope": LEVEL_EXPIRE_SCOPE,
    "x-journal": LEVEL_JOURNALS,
    **dict.fromkeys(_BRAKES, LEVEL_BRAKES),
    **dict.fromkeys(("x-allow-schedule", *_RETRIES), LEVEL_SCHEDULES),
    **dict.fromkeys(_OF_STREAMS_BEYOND, LEVEL_STREAMS),
    streams.UPSTREAM: LEVEL_UPSTREAMS,
}
"""Feature levels of the cluster below which an argument is not built: nobody may declare a queue with it, and what is
in logs from before is passed over."""


def _known_at(level: int) -> list[str]:
    """The arguments that mean something, in the order of the checks."""
    return [key for key in _CHECKS if SINCE_LEVEL.get(key, 0) <= level]


_STREAM_ONLY: Final = frozenset(
    {"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", streams.UPSTREAM, *_OF_STREAMS_BEYOND}
)
_UNSUPPORTED: Final[dict[QueueType, frozenset[str]]] = {
    "stream": frozenset(_CHECKS) - streams.ARGUMENTS,
    "quorum": _STREAM_ONLY | {"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"},
    "classic": _STREAM_ONLY | {"x-consumer-timeout", "x-consumer-disconnected-timeout"},
}

_NOT_BUILT: Final = (
    "x-stream-filter-size-bytes",
)
"""What means something in RabbitMQ 4.3 or LavinMQ 2.11 and nothing here yet. Earlier releases took them."""


def unbuilt_arguments(arguments: Mapping[str, Any], level: int) -> list[str]:
    """Those that would mean something, and do nothing here, or not yet at this level of the cluster."""
    known = streams.ARGUMENTS if queue_type(arguments) == STREAM else frozenset()
    later = [key for key, since in SINCE_LEVEL.items() if since > level]
    if level >= LEVEL_STREAMS:
        # Below that there are no streams, which is told in other words.
        known -= frozenset(later)
    return [key for key in (*_NOT_BUILT, *later) if key in arguments and key not in known]


def unbuilt_refusal(vhost: str, name: str, arguments: Mapping[str, Any], level: int) -> Refusal | None:
    """Why a queue with such arguments can't be declared: who asks for retries that wait must not get others. For who
    proposes a declaration; replicas go by their log."""
    found = unbuilt_arguments(arguments, level)
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
    asked = arguments.get("x-queue-type")
    if asked == "quorum":
        return "quorum"
    return "stream" if asked == STREAM else "classic"


def type_module(arguments: Mapping[str, Any]) -> str:
    """RabbitMQ's name for the queue type, as its texts have it."""
    return _TYPE_MODULES[queue_type(arguments)]


def queue_settings(
    vhost: str, name: str, arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES,
    level: int = LEVEL_HIGHEST,
) -> QueueSettings:
    """The settings in a queue's arguments. Raises Refusal (406) with RabbitMQ's text for the first fault.

    T1, L1, D1, L11, T12; goldens args.*. Arguments nobody knows are passed over. `types` has RabbitMQ's names for the
    types of the arguments where they are known; they change a text, and never whether there is one. `level` is the
    cluster's.
    """
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, (str, bytes)):  # before all others, and in words of its own
        raise refusals.invalid_argument_type(
            "queue", vhost, name, "x-dead-letter-exchange", _kind("x-dead-letter-exchange", exchange, types)
        )
    _check(vhost, name, arguments, "x-queue-type", types)
    unsupported = _UNSUPPORTED[queue_type(arguments)]
    known = {key: arguments[key] for key in _known_at(level) if key in arguments}
    for key in known:
        if key in unsupported:
            raise refusals.unsupported_argument(vhost, name, key, type_module(arguments))
    for key in known:
        _check(vhost, name, arguments, key, types)
    if queue_type(arguments) == STREAM:
        if (size_fault := streams.size_fault(arguments)) is not None:
            raise Refusal(PRECONDITION_FAILED, size_fault)
        return streams.stream_settings(known)
    fault = delayed_retries.pair_fault(known, "x-")
    if fault is not None:
        key = next(key for key in _RETRIES if key in known)
        raise refusals.invalid_argument(vhost, name, key, erlang_string(fault))
    if (fault := brakes.pair_fault(known, "x-")) is not None:
        raise refusals.invalid_argument(vhost, name, f"x-{brakes.WINDOW}", erlang_string(fault))
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
        allow_schedule=known.get("x-allow-schedule", False),
        expire_anywhere=known.get("x-expire-scope") == "any",
        journal=known.get("x-journal"),
        brake_rate=brakes.rate_of(known.get(f"x-{brakes.RATE}")),
        brake_window_ms=known.get(f"x-{brakes.WINDOW}"),
        retry_type=known.get(f"x-{delayed_retries.TYPE}"),
        retry_min_ms=known.get(f"x-{delayed_retries.MIN}"),
        retry_max_ms=known.get(f"x-{delayed_retries.MAX}"),
        retry_multiplier=known.get(f"x-{delayed_retries.MULTIPLIER}"),
        retry_jitter=known.get(f"x-{delayed_retries.JITTER}"),
    )


def first_inequivalent(received: Mapping[str, Any], current: Mapping[str, Any], level: int) -> str | None:
    """The first argument that keeps a redeclare from being equivalent, or None.

    Only arguments that mean something count (golden args.redeclare_ttl); no type is the same as "classic". `level`: the
    cluster's.
    """
    for key in _known_at(level):
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
    "quorum": (*_CONSUMERS_OF_STREAMS, "x-cancel-on-ha-failover"),
    "stream": ("x-priority", "x-consumer-timeout"),
}
"""Arguments that consumers of another type of queue may have, by type of queue (RabbitMQ 4.3)."""
_CONSUMER_TIMEOUT: Final = "x-consumer-timeout"


def consumer_priority(
    vhost: str, queue: str, kind: QueueType, arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES
) -> int:
    """x-priority of a consumer of a queue of this type, 0 when there is none.

    Raises Refusal (406, golden amqp.consume_no_local_and_args), for x-cancel-on-ha-failover as well: it has no meaning
    here, and must be a boolean; for a bad x-consumer-timeout (RULES Q3); and for what goes with another type of queue
    alone.
    """
    value = arguments.get("x-priority", 0) if kind != STREAM else 0
    if (fault := _integer_fault(value, _kind("x-priority", value, types))) is not None:
        raise refusals.invalid_argument(vhost, queue, "x-priority", fault)
    cancels = "x-cancel-on-ha-failover"
    if kind == "classic" and cancels in arguments:
        value_of_cancels = arguments[cancels]
        if (fault := _boolean(value_of_cancels, _kind(cancels, value_of_cancels, types), arguments)) is not None:
            raise refusals.invalid_argument(vhost, queue, cancels, fault)
    if kind == "quorum" and _CONSUMER_TIMEOUT in arguments:
        timeout = arguments[_CONSUMER_TIMEOUT]
        if (fault := _not_negative(timeout, _kind(_CONSUMER_TIMEOUT, timeout, types), arguments)) is not None:
            raise refusals.invalid_argument(vhost, queue, _CONSUMER_TIMEOUT, fault)
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


def delayed_type_fault(arguments: Mapping[str, Any], types: Mapping[str, str] = _NO_TYPES) -> Refusal | None:
    """What is wrong with x-delayed-type in the arguments of a delayed exchange, or None (RULES S1)."""
    value = arguments.get(DELAYED_TYPE)
    expected = "'direct', 'fanout', 'headers' or 'topic' is expected"
    if DELAYED_TYPE not in arguments:
        return Refusal(PRECONDITION_FAILED, f"Invalid argument, '{DELAYED_TYPE}' is not there: {expected}")
    if not isinstance(value, str):
        kind = _kind(DELAYED_TYPE, value, types)
        return Refusal(PRECONDITION_FAILED, f"Invalid argument, '{DELAYED_TYPE}' is of type {kind}: {expected}")
    if value not in _TYPES_OF_DELAYED:
        return Refusal(PRECONDITION_FAILED, f"Invalid argument, '{DELAYED_TYPE}' = '{value}': {expected}")
    return None


_TYPES_OF_DELAYED: Final = ("direct", "fanout", "headers", "topic")


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
