"""Streams and their messages, wherever their shards are: looked at, and removed (RULES J3, J5); journals read (R4).

Looking reads a replica, which may be a moment behind. What removes something is a command of the shard's log.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mayfly.node.catalog import QueueRecord, Refusal
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.permissions import check_access
from mayfly.node.catalog.streams import KEY_INDEX, MARKER_TTL, STREAM, has_keys, origins_of
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such, refused
from mayfly.node.operating.shard_commands import give_command
from mayfly.node.operating.shard_sources import ShardSources, unknown_text
from mayfly.node.operating.views.client_views import ClientViews, ConsumerName
from mayfly.node.operating.views.journal_views import ROWS_AT_ONCE, JournalPart, records_in
from mayfly.node.operating.views.stream_views import (
    LatestPart,
    ReadersPart,
    Reading,
    StreamPart,
    latest_in,
    readers_in,
    stream_in,
)
from mayfly.node.operating.views.upstream_views import UpstreamPart, upstream_in
from mayfly.node.shard.commands import encode_delete_offset, encode_purge_key
from mayfly.node.shard.results import Purged, PurgedKey
from mayfly.node.shard.settings import MAX_NUMBER

_MOST_COPIES: Final = 100
_LATE: Final = "the stream's shard did not answer in time; whether it is done shows later"


class _Stream(msgspec.Struct, tag="StreamView"):
    """`stream_in`, of a queue by shard."""

    queues: dict[int, int]


class _Readers(msgspec.Struct, tag="StreamReaders"):
    """`readers_in`, of a queue by shard."""

    queues: dict[int, int]


class _Names(msgspec.Struct, tag="ConsumerNames"):
    """`ClientViews.named`."""

    consumers: list[int]


class _Latest(msgspec.Struct, tag="LatestOfKey"):
    """`latest_in`, of a queue by shard."""

    queues: dict[int, int]
    key: bytes


class _Journal(msgspec.Struct, tag="JournalRecords"):
    """`records_in`, of a queue by shard."""

    queues: dict[int, int]
    queue: bytes | None
    before: int
    most: int


class _Link(msgspec.Struct, tag="UpstreamLink"):
    """`upstream_in`, of a mirror."""

    queue: int


class Streams:
    """Implements `StreamPort`."""

    def __init__(
        self, engine: Engine, views: ClientViews, sources: ShardSources, questions: NodeQuestions,
        pump: Callable[[], None], now_ms: Callable[[], int],
    ) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._catalog = engine.catalog
        self._sources = sources
        self._questions = questions
        self._pump = pump

        def tell(asked: _Stream) -> dict[int, StreamPart]:
            found = {shard: stream_in(engine, shard, queue, now_ms()) for shard, queue in asked.queues.items()}
            return {shard: part for shard, part in found.items() if part is not None}

        def tell_latest(asked: _Latest) -> dict[int, LatestPart]:
            found = {shard: latest_in(engine, shard, queue, asked.key) for shard, queue in asked.queues.items()}
            return {shard: part for shard, part in found.items() if part is not None}

        def tell_readers(asked: _Readers) -> dict[int, ReadersPart]:
            found = {shard: readers_in(engine, shard, queue) for shard, queue in asked.queues.items()}
            return {shard: part for shard, part in found.items() if part is not None}

        questions.add(_Readers, dict[int, ReadersPart], tell_readers)
        questions.add(_Names, dict[int, ConsumerName], lambda asked: views.named(asked.consumers))

        def tell_journal(asked: _Journal) -> dict[int, JournalPart]:
            most = min(asked.most, ROWS_AT_ONCE)
            found = {
                shard: records_in(engine, shard, queue, asked.queue, asked.before, most)
                for shard, queue in asked.queues.items()
            }
            return {shard: part for shard, part in found.items() if part is not None}

        questions.add(_Journal, dict[int, JournalPart], tell_journal)
        questions.add(_Link, UpstreamPart | None, lambda asked: upstream_in(engine, asked.queue))
        questions.add(_Stream, dict[int, StreamPart], tell)
        questions.add(_Latest, dict[int, LatestPart], tell_latest)

    async def stream(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """See `StreamPort.stream`."""
        record = self._found(user, "read", vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        part = (await self._sources.ask({record.shard: record.id}, _Stream)).found.get(record.shard)
        if part is None:
            return _unknown(record)
        content: dict[str, Any] = part._asdict()
        del content["copied"]
        if part.keys < 0:
            content["keys"] = None
        if part.next_expiry_in_ms < 0:
            content["next_expiry_in_ms"] = None
        content |= await self._read_by(record, part)
        content |= await self._copying(user, record, part)
        content["upstream"] = await self._upstream(record)
        return HTTPStatus.OK, content

    async def _read_by(self, record: QueueRecord, part: StreamPart) -> dict[str, Any]:
        """How many consumers there are, None where nobody told in time, and where the first of those that are furthest
        behind have got to. Of one whose node did not tell in time it is not known who it is."""
        asked = await self._sources.ask({record.shard: record.id}, _Readers)
        told: ReadersPart | None = asked.found.get(record.shard)
        if told is None:
            return {"consumer_count": None, "consumers": [], "consumer_tags": []}
        by_node: dict[int, list[int]] = {}
        for reader in told.readers:
            by_node.setdefault(reader.node, []).append(reader.consumer_id)
        answers = await asyncio.gather(*[self._questions.ask(node, _Names(ids)) for node, ids in by_node.items()])
        names: dict[int, dict[int, ConsumerName]] = dict(zip(by_node, [each or {} for each in answers], strict=True))
        consumers = [self._reader(each, names[each.node].get(each.consumer_id), part) for each in told.readers]
        return {"consumer_count": told.total, "consumers": consumers, "consumer_tags": _by_tag(consumers)}

    def _reader(self, reader: Reading, name: ConsumerName | None, part: StreamPart) -> dict[str, Any]:
        node = self._catalog.node(reader.node)
        return {
            "consumer_tag": None if name is None else name.tag,
            "channel": None if name is None else name.channel,
            "node": None if node is None else node.name,
            "next_offset": reader.next_offset,
            "lag": max(0, part.next_offset - reader.next_offset),
            "unacknowledged": reader.unacknowledged,
        }

    async def _copying(self, user: AnyUser, record: QueueRecord, part: StreamPart) -> dict[str, Any]:
        """Which streams it copies and which copy it, of those that the user may read, and how far (RULES J4)."""
        vhost, catalog = record.vhost, self._catalog

        def may_read(name: str) -> bool:
            return check_access(catalog, user, "read", "queue", vhost, name) is None

        names = [name for name in origins_of(record.settings) if may_read(name)]
        copies = [
            copy for copy in catalog.copying_streams()
            if copy.vhost == vhost and record.name in origins_of(copy.settings) and may_read(copy.name)
        ][:_MOST_COPIES]  # fmt: skip
        origins = {name: catalog.queue(vhost, name) for name in names}
        parts = await self._parts([*[origin for origin in origins.values() if origin is not None], *copies])
        return {
            "origins": [
                _copied(name, origin, None if origin is None else parts.get(origin.id), part)
                for name, origin in origins.items()
            ],
            "copies": [_copied(copy.name, record, part, parts.get(copy.id)) for copy in copies],
        }

    async def _upstream(self, record: QueueRecord) -> dict[str, Any] | None:
        """Of a mirror of a stream in another cluster, how its leader reads that; None of all others. Where the leader
        does not tell in time, what the mirror was declared with."""
        cluster, stream = record.settings.upstream, record.settings.mirror
        if cluster is None or stream is None:
            return None
        leader = self._engine.leader_of(record.shard)
        part: UpstreamPart | None = None
        if leader:
            part = await self._questions.ask(leader, _Link(record.id))
        if part is None:
            return UpstreamPart(cluster, stream, "unknown", "", 0, -1).shown() | {"copied_to": None}
        return part.shown()

    async def _parts(self, streams: list[QueueRecord]) -> dict[int, StreamPart]:
        """What these streams have, by id; those of one shard one after the other."""
        found: dict[int, StreamPart] = {}
        left = {stream.id: stream for stream in streams}
        while left:
            wanted = {stream.shard: stream.id for stream in left.values()}
            told = await self._sources.ask(wanted, _Stream)
            for shard, id in wanted.items():
                del left[id]
                if shard in told.found:
                    found[id] = told.found[shard]
        return found

    async def latest(self, user: AnyUser, vhost: str, queue: str, key: str) -> Answer:
        """See `StreamPort.latest`."""
        record = self._found(user, "read", vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        if not has_keys(record.settings):
            return _without_keys(record)
        told = await self._sources.ask({record.shard: record.id}, partial(_latest_asked, _octets(key)))
        part = told.found.get(record.shard)
        if part is None:
            return _unknown(record)
        if not part.message:
            return no_such(f"stream '{queue}' in vhost '{vhost}' has no message with the routing key '{key}'")
        return HTTPStatus.OK, part.message

    async def journal(
        self, user: AnyUser, vhost: str, stream: str, queue: str | None, before: int, limit: int
    ) -> Answer:
        """See `StreamPort.journal`."""
        record = self._found(user, "read", vhost, stream)
        if not isinstance(record, QueueRecord):
            return record
        name = None if queue is None else _octets(queue)
        asked = partial(_records_asked, name, before, limit)
        part = (await self._sources.ask({record.shard: record.id}, asked)).found.get(record.shard)
        if part is None:
            return _unknown(record)
        return HTTPStatus.OK, {"records": part.records, "before": None if part.before < 0 else part.before}

    async def delete_message(self, user: AnyUser, vhost: str, queue: str, offset: int) -> Answer:
        """See `StreamPort.delete_message`."""
        record = self._found(user, "configure", vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        result = await self._command(record, encode_delete_offset(record.id, offset))
        if not isinstance(result, Purged):
            return in_doubt(_LATE)
        if not result.messages:
            return no_such(f"stream '{queue}' in vhost '{vhost}' has no message at offset {offset}")
        return HTTPStatus.NO_CONTENT, {}

    async def purge_key(self, user: AnyUser, vhost: str, queue: str, key: str) -> Answer:
        """See `StreamPort.purge_key`."""
        record = self._found(user, "configure", vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        if not has_keys(record.settings):
            return _without_keys(record)
        part = (await self._sources.ask({record.shard: record.id}, _Stream)).found.get(record.shard)
        if part is None:
            return _unknown(record)
        # What is there by now; a replica that is a moment behind is asked nothing that was published since.
        up_to = min(part.next_offset, MAX_NUMBER) - 1
        purged = 0
        while up_to >= 0:
            result = await self._command(record, encode_purge_key(record.id, _octets(key), up_to))
            if not isinstance(result, PurgedKey):
                return in_doubt(_LATE)
            purged += result.messages
            if not result.left:
                break
        return HTTPStatus.OK, {"purged": purged}

    def _found(self, user: AnyUser, access: str, vhost: str, queue: str) -> QueueRecord | Answer:
        """The record of a stream that the user may use so, or why not."""
        record = self._catalog.queue(vhost, queue)
        if record is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        refusal = check_access(
            self._catalog, user, "read" if access == "read" else "configure", "queue", vhost, queue
        )
        if isinstance(refusal, Refusal):
            return refused(refusal.text)
        if queue_type(record.arguments) != STREAM:
            return bad_request(f"queue '{queue}' in vhost '{vhost}' is no stream (x-queue-type)")
        return record

    async def _command(self, record: QueueRecord, command: bytes) -> object:
        return await give_command(self._engine, self._pump, record.shard, command)


def _by_tag(consumers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same consumers, furthest behind first, by their tags: how many have one, and where the last of these is."""
    found: dict[str | None, dict[str, Any]] = {}
    for each in consumers:
        tag = each["consumer_tag"]
        first = {"consumer_tag": tag, "consumers": 0, "next_offset": each["next_offset"], "lag": each["lag"]}
        found.setdefault(tag, first)["consumers"] += 1
    return list(found.values())


def _copied(
    shown: str, origin: QueueRecord | None, origin_part: StreamPart | None, copy_part: StreamPart | None
) -> dict[str, Any]:
    """How far a stream was copied: the offset that the copy wants next, and how many it has not; None where nobody told
    in time, or the origin is not there."""
    copied_to = None if origin is None or copy_part is None else copy_part.copied.get(origin.id, 0)
    lag = None if copied_to is None or origin_part is None else max(0, origin_part.next_offset - copied_to)
    return {"name": shown, "copied_to": copied_to, "lag": lag}


def _latest_asked(key: bytes, queues: dict[int, int]) -> _Latest:
    return _Latest(queues, key)


def _records_asked(queue: bytes | None, before: int, most: int, queues: dict[int, int]) -> _Journal:
    return _Journal(queues, queue, before, most)


def _octets(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _unknown(record: QueueRecord) -> Answer:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "unavailable", "reason": unknown_text(record.shard)}


def _without_keys(record: QueueRecord) -> Answer:
    return bad_request(
        f"stream '{record.name}' in vhost '{record.vhost}' has no index of routing keys: it was declared without "
        f"{KEY_INDEX} = true and without {MARKER_TTL}"
    )
