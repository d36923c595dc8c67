"""What a shard may be told of a queue: what the catalog makes of some declaration, and nothing else.

Tests say settings as a shard has them, which is shorter than arguments. So that they say none that no path produces,
they are held against the product's own way: the arguments that come closest are declared, and what a shard is told of
that queue has to be the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import (
    AddVhost,
    Catalog,
    CatalogCommand,
    DeclareExchange,
    DeclareQueue,
    FoundCluster,
    NodeStarted,
    QueueDeclared,
    QueueRecord,
    Refusal,
)
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.shard.retries import ON_FAILED, ON_GIVEN_BACK
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, encode_settings

_RETRY_TYPES = {ON_FAILED | ON_GIVEN_BACK: "all", ON_FAILED: "failed", ON_GIVEN_BACK: "returned"}


def check_declared(settings: ShardQueueSettings) -> None:
    """AssertionError unless some queue has these settings, at the feature level of a new cluster."""
    _check(encode_settings(settings))


@cache
def _check(encoded: bytes) -> None:
    settings = decode_settings(encoded)
    made = _made(settings)
    assert encode_settings(made) == encoded, f"no queue has the settings\n{settings}\nbut with such arguments\n{made}"


def _made(settings: ShardQueueSettings) -> ShardQueueSettings:
    catalog = Catalog(1)
    _apply(catalog, FoundCluster(((1, "n1", "h:1"),), 1, LEVEL_HIGHEST))
    _apply(catalog, NodeStarted(1, 1, "n1"))
    vhost, name = settings.vhost, settings.name
    _apply(catalog, AddVhost(vhost))
    made = shard_settings(catalog, _declare(catalog, settings))
    if settings.is_stream:
        # Ages are said in seconds, TTLs of markers have a least one, and tests are in a hurry.
        made.message_ttl_ms, made.marker_ttl_ms = settings.message_ttl_ms, settings.marker_ttl_ms
    if not settings.delays:
        made.name = name
        if not settings.is_stream:
            # A policy may say a key to a queue whose exchange another one says, or none.
            made.dead_letter_routing_key = settings.dead_letter_routing_key
        if settings.auto_delete:
            # Such a queue is transient, and has a limit that is never reached for none.
            made.delivery_limit = settings.delivery_limit
    return made


def _declare(catalog: Catalog, settings: ShardQueueSettings) -> QueueRecord:
    vhost, name = settings.vhost, settings.name or "q"
    if settings.delays:
        _apply(catalog, DeclareExchange(vhost, name, "x-delayed-message", arguments={"x-delayed-type": "direct"}))
        record = catalog.delay_queue(vhost, name)
        assert record is not None
        return record
    if settings.is_mirror:
        _apply(catalog, DeclareQueue(vhost, "origin", True, arguments={"x-queue-type": "stream"}))
    if settings.journal is not None:
        _apply(catalog, DeclareQueue(vhost, settings.journal, True, arguments={"x-queue-type": "stream"}))
    arguments = _of_a_stream(settings) if settings.is_stream else _of_a_queue(settings)
    answer = _apply(
        catalog,
        DeclareQueue(
            vhost, name, True, auto_delete=settings.auto_delete, arguments=arguments, node_id=1, incarnation=1,
            connection="c",
        ),
    )
    assert isinstance(answer, QueueDeclared)
    return answer.queue


def _apply(catalog: Catalog, command: CatalogCommand) -> object:
    answer = catalog.apply(command)
    assert not isinstance(answer, Refusal), f"{command} is refused: {answer.text}"
    return answer


def _of_a_stream(settings: ShardQueueSettings) -> dict[str, Any]:
    said = {
        "x-max-length-bytes": settings.max_length_bytes,
        "x-delete-marker-ttl": None if settings.marker_ttl_ms is None else "1s",
        "x-stream-key-index": settings.key_index or None,
        "x-allow-msg-ttl": settings.honours_ttls or None,
        "x-mirror": "origin" if settings.is_mirror else None,
        "x-max-age": None if settings.message_ttl_ms is None else "1s",
    }
    return {"x-queue-type": "stream", **{key: value for key, value in said.items() if value is not None}}


def _brake(settings: ShardQueueSettings) -> dict[str, Any]:
    window_ms = settings.brake_window_ms
    if not window_ms:
        return {}
    # A limit of 0 is that of a rate of less than one message in the window.
    rate = (settings.brake_limit or 0.5) * 1000 / window_ms
    return {"x-dead-letter-brake-rate": rate, "x-dead-letter-brake-window": window_ms}


def _of_a_queue(settings: ShardQueueSettings) -> dict[str, Any]:
    is_quorum = settings.default_priority > 0
    said: dict[str, Any] = {
        "x-queue-type": "quorum" if is_quorum else None,
        "x-max-priority": None if is_quorum else settings.max_priority or None,
        "x-message-ttl": settings.message_ttl_ms,
        "x-expires": settings.expires_ms,
        "x-dead-letter-exchange": settings.dead_letter_exchange,
        "x-dead-letter-strategy": "at-most-once" if settings.dead_letter_at_most_once else "at-least-once",
        "x-max-length": settings.max_length,
        "x-max-length-bytes": settings.max_length_bytes,
        "x-delivery-limit": -1 if settings.delivery_limit is None else settings.delivery_limit,
        "x-single-active-consumer": settings.single_active_consumer,
        "x-ttl-applies": "retroactive" if settings.ttl_retroactive else "default",
        "x-overflow": settings.overflow,
        "x-expires-if": "empty" if settings.expires_if_empty else "unused",
        "x-expires-dead-letter": settings.expires_dead_letter,
        "x-ttl-dialect": settings.ttl_dialect,
        "x-allow-schedule": settings.allow_schedule,
        "x-expire-scope": "any" if settings.expire_anywhere else "head",
        "x-journal": settings.journal,
        **_brake(settings),
    }
    if settings.retry_ways:
        said["x-delayed-retry-min"] = settings.retry_min_ms
        said["x-delayed-retry-max"] = settings.retry_max_ms
        said["x-delayed-retry-multiplier"] = settings.retry_multiplier or None
        said["x-delayed-retry-jitter"] = settings.retry_jitter_ppm / 1_000_000
        if not settings.retry_counts_all or settings.retry_ways != ON_FAILED | ON_GIVEN_BACK:
            said["x-delayed-retry-type"] = _RETRY_TYPES[settings.retry_ways]
    return {key: value for key, value in said.items() if value is not None}
