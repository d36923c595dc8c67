"""What a queue is told about itself when it is created: the part of its record that its behaviour depends on.

A plain class, written as a msgpack array: mypyc keeps no annotations, so a msgspec Struct can't be compiled.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from mayfly.node.shard.dialect import DIALECTS
from mayfly.node.shard.errors import ShardError


class ShardQueueSettings:
    """The effective settings of one queue, arguments and policies merged by the catalog already. Immutable.

    ``vhost`` and ``name`` are kept so that deaths can be routed and events named after the queue is gone.
    Times in ms, None for none. ``message_ttl_ms`` counts for messages enqueued from now on (RULES T12), and
    for those queued as well when ``ttl_retroactive``. ``delivery_limit`` n: a message is delivered at most
    n + 1 times; None: without limit, and then what a consumer requeues goes to the back of the queue, as in
    RabbitMQ's quorum queues. ``dead_letter_at_most_once`` is for the router: drop what has no route (D8).
    ``max_length`` messages and ``max_length_bytes`` of bodies may be ready; ``overflow`` says what happens to more
    (DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX). ``expires_if_empty``, ``expires_dead_letter``: RULES L11.
    ``max_priority``: messages of higher priority come first, all above it count as this one; 0 for none.
    ``default_priority``: of messages that name none, 0 but for quorum queues, in which what comes back goes before all
    else (RULES Q2). ``ttl_dialect``: one of `node.shard.dialect.DIALECTS` (RULES X1).
    ``allow_schedule``: publishes may say when they are due (RULES S2). ``retry_*``: what `node.shard.retries.Retries`
    is made of; ``retry_ways`` 0: nothing waits that comes back (S5).
    ``expire_anywhere``: messages expire wherever they are in the queue (RULES X2).
    ``delays``: what is due in it does not become ready, but goes to ``dead_letter_exchange``, the delayed exchange
    whose messages wait here (RULES S1).
    ``is_stream``: its messages stay, for ``message_ttl_ms`` if that is set, whatever ``expiration`` they bring (RULES
    J1). ``marker_ttl_ms``: of the marker that a stream puts in the place of the last message of a routing key, None for
    no markers (J3). ``key_index``: a stream knows where each routing key's messages are (J5), as one with markers does.
    ``honours_ttls``: TTLs in the headers of messages that nobody publishes to the stream count there (J2, J4).
    ``is_mirror``: a stream with the messages of another one, at their offsets (J4).
    ``journal``: the stream of the same vhost in which is noted what time removes, None for none (RULES R4).
    ``brake_limit`` messages may fail within ``brake_window_ms`` before the queue delivers nothing; a window of 0: it
    has no brake (RULES R5).
    """

    __slots__ = (
        "allow_schedule",
        "auto_delete",
        "brake_limit",
        "brake_window_ms",
        "dead_letter_at_most_once",
        "dead_letter_exchange",
        "dead_letter_routing_key",
        "default_priority",
        "delays",
        "delivery_limit",
        "expire_anywhere",
        "expires_dead_letter",
        "expires_if_empty",
        "expires_ms",
        "honours_ttls",
        "is_mirror",
        "is_stream",
        "journal",
        "key_index",
        "marker_ttl_ms",
        "max_length",
        "max_length_bytes",
        "max_priority",
        "message_ttl_ms",
        "name",
        "overflow",
        "retry_counts_all",
        "retry_jitter_ppm",
        "retry_max_ms",
        "retry_min_ms",
        "retry_multiplier",
        "retry_ways",
        "single_active_consumer",
        "ttl_dialect",
        "ttl_retroactive",
        "vhost",
    )

    def __init__(
        self,
        vhost: str = "/",
        name: str = "",
        message_ttl_ms: int | None = None,
        expires_ms: int | None = None,
        dead_letter_exchange: str | None = None,
        dead_letter_routing_key: str | None = None,
        delivery_limit: int | None = None,
        auto_delete: bool = False,
        single_active_consumer: bool = False,
        ttl_retroactive: bool = False,
        dead_letter_at_most_once: bool = False,
        max_length: int | None = None,
        max_length_bytes: int | None = None,
        overflow: str = "drop-head",
        expires_if_empty: bool = False,
        expires_dead_letter: bool = False,
        max_priority: int = 0,
        default_priority: int = 0,
        ttl_dialect: str = "rabbitmq",
        allow_schedule: bool = False,
        retry_ways: int = 0,
        retry_min_ms: int = 0,
        retry_max_ms: int = 0,
        retry_multiplier: int = 0,
        retry_counts_all: bool = False,
        retry_jitter_ppm: int = 0,
        is_stream: bool = False,
        delays: bool = False,
        marker_ttl_ms: int | None = None,
        key_index: bool = False,
        expire_anywhere: bool = False,
        honours_ttls: bool = False,
        is_mirror: bool = False,
        journal: str | None = None,
        brake_limit: int = 0,
        brake_window_ms: int = 0,
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.message_ttl_ms = message_ttl_ms
        self.expires_ms = expires_ms
        self.dead_letter_exchange = dead_letter_exchange
        self.dead_letter_routing_key = dead_letter_routing_key
        self.delivery_limit = delivery_limit
        self.auto_delete = auto_delete
        self.single_active_consumer = single_active_consumer
        self.ttl_retroactive = ttl_retroactive
        self.dead_letter_at_most_once = dead_letter_at_most_once
        self.max_length = max_length
        self.max_length_bytes = max_length_bytes
        self.overflow = overflow
        self.expires_if_empty = expires_if_empty
        self.expires_dead_letter = expires_dead_letter
        self.max_priority = max_priority
        self.default_priority = default_priority
        self.ttl_dialect = ttl_dialect
        self.allow_schedule = allow_schedule
        self.retry_ways = retry_ways
        self.retry_min_ms = retry_min_ms
        self.retry_max_ms = retry_max_ms
        self.retry_multiplier = retry_multiplier
        self.retry_counts_all = retry_counts_all
        self.retry_jitter_ppm = retry_jitter_ppm
        self.is_stream = is_stream
        self.delays = delays
        self.marker_ttl_ms = marker_ttl_ms
        self.key_index = key_index
        self.expire_anywhere = expire_anywhere
        self.honours_ttls = honours_ttls
        self.is_mirror = is_mirror
        self.journal = journal
        self.brake_limit = brake_limit
        self.brake_window_ms = brake_window_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardQueueSettings) and encode_settings(self) == encode_settings(other)

    def __hash__(self) -> int:
        return hash((self.vhost, self.name))

    def __repr__(self) -> str:
        return f"ShardQueueSettings{_fields(self)}"


DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"
_OVERFLOWS: Final = (DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)

MAX_NUMBER: Final = 1 << 48
"""Above any time or limit that the catalog lets through, and far below what would not fit beside a time."""

_NAMES: Final = 2
"""The first fields, which are the queue's own: vhost and name. All others are its *terms*, which it may have in common
with a hundred thousand others."""

# In the order of the constructor. New ones go at the end: an array from before them is still read.
_FIELD_TYPES: Final[tuple[Any, ...]] = (
    str, str, int | None, int | None, str | None, str | None, int | None, bool, bool, bool, bool,
    int | None, int | None, str, bool, bool, int, int, str,
    bool, int, int, int, int, bool, int, bool, bool, int | None, bool, bool, bool, bool,
    str | None, int, int,
)
_LATER: Final[tuple[object, ...]] = (
    0, "rabbitmq", False, 0, 0, 0, 0, False, 0, False, False, None, False, False, False, False, None,
    0, 0,
)
"""What the last fields are in most queues: those that came with level 8 or later. They are left out from the end on
where they are so, and each is something else only where the cluster's level is high enough: nobody is given what it
can't read."""
_ALWAYS: Final = len(_FIELD_TYPES) - len(_LATER)
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[str | int | bool | None])
"""Nothing within something: how deep can be read depends on the stack, which is not the same on every replica."""
_whole_decoder: Final = msgspec.msgpack.Decoder(
    tuple[
        str, str, _Number | None, _Number | None, str | None, str | None, _Number | None, bool, bool, bool, bool,
        _Number | None, _Number | None, str, bool, bool, _Number,
    ]
)  # fmt: skip
"""Takes what is written for most queues in one go, and nothing that `_values` refuses."""
_terms_decoder: Final = msgspec.msgpack.Decoder(
    tuple[
        _Number | None, _Number | None, str | None, str | None, _Number | None, bool, bool, bool, bool,
        _Number | None, _Number | None, str, bool, bool, _Number,
    ]
)  # fmt: skip


def _fields(settings: ShardQueueSettings) -> tuple[object, ...]:
    return (
        settings.vhost,
        settings.name,
        settings.message_ttl_ms,
        settings.expires_ms,
        settings.dead_letter_exchange,
        settings.dead_letter_routing_key,
        settings.delivery_limit,
        settings.auto_delete,
        settings.single_active_consumer,
        settings.ttl_retroactive,
        settings.dead_letter_at_most_once,
        settings.max_length,
        settings.max_length_bytes,
        settings.overflow,
        settings.expires_if_empty,
        settings.expires_dead_letter,
        settings.max_priority,
        settings.default_priority,
        settings.ttl_dialect,
        settings.allow_schedule,
        settings.retry_ways,
        settings.retry_min_ms,
        settings.retry_max_ms,
        settings.retry_multiplier,
        settings.retry_counts_all,
        settings.retry_jitter_ppm,
        settings.is_stream,
        settings.delays,
        settings.marker_ttl_ms,
        settings.key_index,
        settings.expire_anywhere,
        settings.honours_ttls,
        settings.is_mirror,
        settings.journal,
        settings.brake_limit,
        settings.brake_window_ms,
    )


def _written(settings: ShardQueueSettings) -> tuple[object, ...]:
    """The fields up to the last that is not as in most queues."""
    fields = _fields(settings)
    count = len(fields)
    while count > _ALWAYS and fields[count - 1] == _LATER[count - 1 - _ALWAYS]:
        count -= 1
    return fields[:count]


def encode_settings(settings: ShardQueueSettings) -> bytes:
    """The settings as the bytes CREATE_QUEUE carries; equal settings give equal bytes."""
    return _encoder.encode(_written(settings))


def encode_terms(settings: ShardQueueSettings) -> bytes:
    """All but vhost and name, as UPDATE_QUEUES carries it; equal terms give equal bytes."""
    return _encoder.encode(_written(settings)[_NAMES:])


def decode_terms(data: bytes, vhost: str = "", name: str = "") -> ShardQueueSettings:
    """The settings of a queue with these names and the terms in ``data``; ShardError when they are none."""
    try:
        settings = ShardQueueSettings(vhost, name, *_terms_decoder.decode(data))
    except (msgspec.MsgspecError, ValueError):
        settings = _settings(vhost, name, *_values(data, _NAMES))
    return _checked(settings)


def decode_settings(data: bytes) -> ShardQueueSettings:
    """The settings in ``data``; ShardError when they are none."""
    try:
        settings = ShardQueueSettings(*_whole_decoder.decode(data))
    except (msgspec.MsgspecError, ValueError):
        settings = _settings(*_values(data))
    return _checked(settings)


def _checked(settings: ShardQueueSettings) -> ShardQueueSettings:
    if settings.overflow not in _OVERFLOWS:
        raise ShardError(f"queue settings with the overflow {settings.overflow!r}, one of {_OVERFLOWS} expected")
    if settings.ttl_dialect not in DIALECTS:
        raise ShardError(f"queue settings with the TTL dialect {settings.ttl_dialect!r}, one of {DIALECTS} expected")
    return settings


def _values(data: bytes, first: int = 0) -> list[str | int | bool | None]:
    """One by one, from the ``first`` field on: for those of fewer queues, or of an earlier release, and to say what is
    wrong with others. Terms, which are without names, have all that every release has written."""
    try:
        values = _decoder.decode(data)
        if first + len(values) > len(_FIELD_TYPES):
            raise ShardError(f"queue settings of a newer release: {first + len(values)} fields")
        if first and first + len(values) < _ALWAYS:
            raise ShardError(f"terms of queues that can't be read: {len(values)} fields")
        for value, wanted in zip(values, _FIELD_TYPES[first:], strict=False):
            msgspec.convert(value, wanted)
            if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
                raise ShardError(f"queue settings with the number {value}, at most {MAX_NUMBER} expected")
    except (msgspec.MsgspecError, ValueError) as error:
        raise ShardError(f"queue settings that can't be read: {error}") from error
    return values


def _settings(*values: object) -> ShardQueueSettings:
    """Positional, after the types were checked."""
    return ShardQueueSettings(*values)  # type: ignore[arg-type]
