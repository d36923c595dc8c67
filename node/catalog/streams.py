"""What is declared of streams (RULES J): how long messages stay, what takes their place, which streams they copy, and
from where a consumer begins.

RabbitMQ's: rabbit_stream_queue, rabbit_amqqueue:check_max_age, 4.3. Beyond these (NATS ADR-43):

    x-allow-msg-ttl        publishes may say how long they live (`stream_ttls`); a redeclare may switch it on
    x-delete-marker-ttl    a marker with this TTL takes the place of the last message of a routing key
    x-mirror               a stream whose messages are in this one too, at their offsets; nothing else is
    x-upstream             the cluster in which that stream is: a name in the settings of the nodes
    x-sources              streams whose messages are added to what is published to this one
    x-stream-key-index     each key's messages are found without reading the stream; a stream with markers has it anyway
"""
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from mayfly.node.catalog import refusals
from mayfly.node.catalog.records import QueueSettings
from mayfly.node.catalog.values import erlang_term, type_name
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.stream import FIRST, LAST, NEXT, OFFSET, SINCE, TIME, Start
from mayfly.node.shard.stream_ttls import marker_ttl_ms

STREAM: Final = "stream"
ARGUMENTS: Final = frozenset({
    "x-queue-type", "x-max-length-bytes", "x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
    "x-initial-cluster-size", "x-queue-leader-locator", "x-allow-msg-ttl", "x-delete-marker-ttl",
    "x-stream-key-index", "x-mirror", "x-upstream", "x-sources",
})
"""Those that a stream takes. The sizes are of RabbitMQ's files: here they mean nothing."""
APPLY_TO: Final = "streams"

_SECOND_MS: Final = 1_000
_DAY_MS: Final = 24 * 3600 * _SECOND_MS
_UNITS_MS: Final = {
    "Y": 365 * _DAY_MS, "M": 30 * _DAY_MS, "D": _DAY_MS, "h": 3600 * _SECOND_MS, "m": 60 * _SECOND_MS, "s": _SECOND_MS,
}
_DIGITS: Final = "0123456789"
_WORDS: Final = {"first": FIRST, "last": LAST, "next": NEXT}
_AGE_ARGUMENT: Final = "x-max-age"
ALLOW_MSG_TTL: Final = "x-allow-msg-ttl"
MARKER_TTL: Final = "x-delete-marker-ttl"
KEY_INDEX: Final = "x-stream-key-index"
MIRROR: Final = "x-mirror"
UPSTREAM: Final = "x-upstream"
SOURCES: Final = "x-sources"
_MOST_SOURCES: Final = 16
FILTER_KEY: Final = "x-stream-filter-key"
"""Of a consumer: the routing key of the messages that it is given."""
TELLS_PLACES: Final = "x-stream-places"
"""Of a consumer: whether each message says its place (`node.dead_letter.stream_content`), as mirrors in other clusters
need it, instead of its offset alone."""
_SHORT_STRING: Final = 255
_OFFSET: Final = "x-stream-offset"


def age_ms(text: str) -> int | None:
    """Milliseconds of a number with a unit: Y, M (30 days), D, h, m or s; None for any other text, or 0."""
    unit = text.lstrip(_DIGITS)
    digits = text[: len(text) - len(unit)].lstrip("0")
    if not digits or unit not in _UNITS_MS:
        return None
    # Of more digits than any age has those in front are enough, and to read very many takes long.
    return min(int(digits[:19]) * _UNITS_MS[unit], MAX_NUMBER)


def with_age_in_ms(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as they are compared: of two ways to write an age, or a TTL of markers, each is as good."""
    age = arguments.get(_AGE_ARGUMENT)
    number = age_ms(age) if isinstance(age, str) else None
    if number is not None:
        arguments = {**arguments, _AGE_ARGUMENT: str(number)}
    marker_ms = marker_ttl_ms(arguments.get(MARKER_TTL))
    return arguments if marker_ms is None else {**arguments, MARKER_TTL: str(marker_ms)}


def switches_ttls_on(received: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether a redeclare of a stream with these arguments lets publishes say how long they live from now on (RULES
    J2). The other way round there is none: without the argument a redeclare is not equivalent."""
    return received.get(ALLOW_MSG_TTL) is True and not current.get(ALLOW_MSG_TTL, False)


def with_ttls_on(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a stream after that."""
    return {**arguments, ALLOW_MSG_TTL: True}


def stream_settings(arguments: Mapping[str, Any]) -> QueueSettings:
    """What the arguments of a stream say, once they are checked. Its age is the TTL of its messages, of all that are
    there."""
    age = arguments.get(_AGE_ARGUMENT)
    return QueueSettings(
        message_ttl_ms=None if age is None else age_ms(age),
        max_length_bytes=arguments.get("x-max-length-bytes"),
        ttl_retroactive=True,
        allow_msg_ttl=arguments.get(ALLOW_MSG_TTL, False),
        marker_ttl_ms=marker_ttl_ms(arguments.get(MARKER_TTL)),
        key_index=arguments.get(KEY_INDEX, False),
        mirror=arguments.get(MIRROR),
        upstream=arguments.get(UPSTREAM),
        sources=tuple(arguments.get(SOURCES, ())),
    )


def origins_of(settings: QueueSettings) -> tuple[str, ...]:
    """The names of the streams here whose messages a stream with these settings copies (RULES J4)."""
    if settings.upstream is not None:
        return ()
    return settings.sources if settings.mirror is None else (settings.mirror,)


def origins_said(arguments: Mapping[str, Any]) -> list[str]:
    """The same of arguments that nobody has checked yet."""
    if UPSTREAM in arguments:
        return []
    sources = arguments.get(SOURCES)
    said = [arguments.get(MIRROR), *(sources if isinstance(sources, list) else ())]
    return [name for name in said if isinstance(name, str)]


def sources_fault(value: Any) -> str | None:
    """What is wrong with an `x-sources`, but for its names; None if nothing is."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_SOURCES:
        return f"a list of 1 to {_MOST_SOURCES} names of streams expected"
    names = [each for each in value if isinstance(each, str)]
    if len(names) < len(value) or len(set(names)) < len(names):
        return "names of streams, each once, expected"
    return None


def with_policies(settings: QueueSettings, definition: Mapping[str, Any]) -> QueueSettings:
    """The settings with what the policies say: unlike a queue's, a stream's go by the policy before the argument. What
    else a policy says means nothing for a stream."""
    changes: dict[str, Any] = {}
    if "max-age" in definition:
        changes["message_ttl_ms"] = age_ms(definition["max-age"])
    if "max-length-bytes" in definition:
        changes["max_length_bytes"] = definition["max-length-bytes"]
    return msgspec.structs.replace(settings, **changes) if changes else settings


def size_fault(arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with the sizes of files, in RabbitMQ's words; None if nothing is."""
    if arguments.get("x-stream-max-segment-size-bytes", 0) > 3_000_000_000:
        return "Exceeded max value for x-stream-max-segment-size-bytes"
    if not 16 <= arguments.get("x-stream-filter-size-bytes", 16) <= 255:
        return "Invalid value for x-stream-filter-size-bytes"
    return None


def consumer_start(vhost: str, queue: str, arguments: Mapping[str, Any], types: Mapping[str, str]) -> Start:
    """From where a consumer with these arguments begins: at the end where it does not say. Raises Refusal (406).

    `types` has RabbitMQ's names for the types on the wire, where they are known.
    """
    if _OFFSET not in arguments:
        return Start(NEXT)
    value = arguments[_OFFSET]
    kind = types.get(_OFFSET, type_name(value))
    if isinstance(value, str):
        if value in _WORDS:
            return Start(_WORDS[value])
        since_ms = age_ms(value)
        if since_ms is not None:
            return Start(SINCE, since_ms)
    elif isinstance(value, datetime):
        return Start(TIME, _number(int(value.timestamp()) * _SECOND_MS))
    elif isinstance(value, int) and kind == "timestamp":
        return Start(TIME, _number(value * _SECOND_MS))
    elif isinstance(value, int) and not isinstance(value, bool):
        return Start(OFFSET, _number(value))
    fault = f"{{invalid_stream_offset_arg,{{{kind},{erlang_term(value)}}}}}"
    raise refusals.invalid_argument(vhost, queue, _OFFSET, fault)


def has_keys(settings: QueueSettings) -> bool:
    """Whether a stream knows where the messages of each routing key are (RULES J5)."""
    return settings.key_index or settings.marker_ttl_ms is not None


def filter_key(vhost: str, queue: str, arguments: Mapping[str, Any]) -> bytes | None:
    """The routing key of the messages that a consumer with these arguments is given, None for all (RULES J5). Raises
    Refusal (406)."""
    if FILTER_KEY not in arguments:
        return None
    value = arguments[FILTER_KEY]
    key = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(key, bytes) or len(key) > _SHORT_STRING:
        raise refusals.invalid_argument(vhost, queue, FILTER_KEY, "a routing key of at most 255 octets is expected")
    return key


def _number(value: int) -> int:
    return max(0, min(value, MAX_NUMBER))
