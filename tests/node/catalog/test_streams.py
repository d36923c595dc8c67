"""Streams in the catalog (RULES J1): from which level on, what policies say of them, from where consumers begin."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_STREAMS
from mayfly.node.catalog import Catalog, DeclareQueue, MoveQueue, QueueRecord, Refusal, SetPolicy
from mayfly.node.catalog.shard_settings import KnownTerms, refuses_publishes, shard_settings
from mayfly.node.catalog.streams import age_ms, consumer_start
from mayfly.node.shard.settings import MAX_NUMBER, encode_terms
from mayfly.node.shard.stream import FIRST, LAST, NEXT, OFFSET, SINCE, TIME, Start


def stream(**arguments: Any) -> DeclareQueue:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return DeclareQueue("/", "s", True, False, False, {"x-queue-type": "stream", **named})


def declared(catalog: Catalog, command: DeclareQueue) -> QueueRecord:
    catalog.apply(command)
    record = catalog.queue("/", "s")
    assert record is not None
    return record


def at_level(level: int) -> Catalog:
    catalog = Catalog(2)
    catalog._state.level = level
    return catalog


def test_j1_there_are_streams_from_their_level_on() -> None:
    """Below it a stream is refused as by nodes that know none, and so are policies for streams."""
    of_streams = SetPolicy("/", "p", "", {"max-length-bytes": 1}, apply_to="streams")
    for command in (SetPolicy("/", "p", "", {"max-age": "1h"}), of_streams):
        assert isinstance(at_level(LEVEL_STREAMS - 1).apply(command), Refusal)
        assert not isinstance(at_level(LEVEL_STREAMS).apply(command), Refusal)
    refused = at_level(LEVEL_STREAMS - 1).apply(stream())
    assert isinstance(refused, Refusal)
    assert refused.text == (
        "invalid arg 'x-queue-type' for queue 's' in vhost '/': \"unsupported queue type 'stream'\""
    )
    assert declared(at_level(LEVEL_STREAMS), stream()).replicated


def test_j1_what_its_shard_is_told() -> None:
    catalog = at_level(LEVEL_STREAMS)
    record = declared(catalog, stream(x_max_age="2h", x_max_length_bytes=1000))
    settings = shard_settings(catalog, record)
    assert (settings.is_stream, settings.message_ttl_ms, settings.ttl_retroactive) == (True, 7_200_000, True)
    assert (settings.max_length_bytes, settings.overflow, settings.delivery_limit) == (1000, "drop-head", None)


def test_j1_policies() -> None:
    """RULES J1: the policy counts before the argument; what is not for streams means nothing for them."""
    catalog = at_level(LEVEL_STREAMS)
    record = declared(catalog, stream(x_max_age="2h", x_max_length_bytes=1000))
    definition = {
        "max-age": "1D", "max-length-bytes": 5000, "overflow": "reject-publish", "max-length": 1, "message-ttl": 1,
        "expires": 1, "dead-letter-exchange": "", "delivery-limit": 1,
    }  # fmt: skip
    catalog.apply(SetPolicy("/", "p", "", definition, apply_to="streams"))
    settings = shard_settings(catalog, record)
    assert (settings.message_ttl_ms, settings.max_length_bytes) == (86_400_000, 5000)
    assert (settings.expires_ms, settings.max_length, settings.dead_letter_exchange) == (None, None, None)
    assert not refuses_publishes(catalog, record)
    assert KnownTerms().of(catalog, record) == encode_terms(settings)
    catalog.apply(SetPolicy("/", "q", "", {"max-age": "1h"}, 5, apply_to="quorum_queues"))
    assert shard_settings(catalog, record).message_ttl_ms == 86_400_000
    refused = catalog.apply(SetPolicy("/", "p", "", {"max-age": "1x"}))
    assert isinstance(refused, Refusal)
    assert refused.text.startswith("max-age takes a number with a unit")


def test_a_stream_stays_in_its_shard() -> None:
    catalog = at_level(LEVEL_STREAMS)
    record = declared(catalog, stream())
    refused = catalog.apply(MoveQueue("/", "s", 3 - record.shard))
    assert isinstance(refused, Refusal)
    assert "is a stream" in refused.text


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1s", 1000), ("2m", 120_000), ("3h", 10_800_000), ("1D", 86_400_000), ("1M", 2_592_000_000),
        ("1Y", 31_536_000_000), ("007s", 7000), ("9" * 5000 + "Y", MAX_NUMBER), ("", None), ("s", None), ("0s", None),
        ("1", None), ("1 s", None), ("1S", None), ("-1s", None), ("1.5h", None), ("\u0661s", None), ("1hh", None),
    ],
)  # fmt: skip
def test_j1_ages(text: str, ms: int | None) -> None:
    assert age_ms(text) == ms


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("first", Start(FIRST)), ("last", Start(LAST)), ("next", Start(NEXT)), (5, Start(OFFSET, 5)),
        (-5, Start(OFFSET, 0)), (2**63 - 1, Start(OFFSET, MAX_NUMBER)), ("10m", Start(SINCE, 600_000)),
        (datetime(2020, 1, 1, tzinfo=UTC), Start(TIME, 1_577_836_800_000)),
    ],
)  # fmt: skip
def test_j1_where_consumers_begin(value: Any, start: Start) -> None:
    assert consumer_start("/", "s", {"x-stream-offset": value}, {}) == start


def test_j1_a_time_beyond_what_a_date_can_be() -> None:
    arguments = {"x-stream-offset": 1 << 45}
    assert consumer_start("/", "s", arguments, {"x-stream-offset": "timestamp"}) == Start(TIME, MAX_NUMBER)


@pytest.mark.parametrize("value", ["here", "", "5", True, 1.5, b"\xff", {}, [], None])
def test_j1_nowhere_else(value: Any) -> None:
    with pytest.raises(Refusal, match="invalid_stream_offset_arg"):
        consumer_start("/", "s", {"x-stream-offset": value}, {})
