"""Redrives as operators see them: how far they have come, and what one would move (RULES R1). Pure: reads the replica
here."""

import base64
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from mayfly.node.amqp.content import Content
from mayfly.node.dead_letter import RedriveDecision, RedriveRouter, RedriveTerms, terms_of
from mayfly.node.dead_letter.publisher_headers import as_shown
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.redrive_judge import MOVES, NO_ROUTE, NOT_ITS_OWN, Judged, RedriveJudge
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.redrives import RedriveWish
from mayfly.node.operating.views.json_tables import shown_properties
from mayfly.node.operating.views.json_values import json_value
from mayfly.node.operating.views.log_entries import LogEntries
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard.message import Message
from mayfly.node.shard.redrive import STATES, Place, Redrive
from mayfly.node.shard.redrive_scan import ahead_of

LOOKS_PER_STEP: Final = 100
"""Messages that a preview looks at in one step: a few milliseconds."""
BYTES_READ: Final = 32 * 1024 * 1024
"""Of log entries that one answer reads; the last one may go beyond."""
_PAYLOAD_BYTES: Final = 200


class RedrivePlace(NamedTuple):
    """How far a preview has come, and what it is about: messages up to this entry and this time."""

    up_to_index: int
    up_to_ms: int
    is_back: bool = False
    priority: int = 0
    entry: int = -1
    """-1: nothing was looked at yet."""
    offset: int = 0
    enqueued_ms: int = 0
    acquired_count: int = 0


class PreviewPart(NamedTuple):
    """Some of what a redrive would do. ``no_route`` are among those that stay; ``targets`` counts by queue; ``place``
    is None at the end."""

    moves: int
    stays: int
    no_route: int
    targets: dict[str, int]
    rows: list[dict[str, Any]]
    place: RedrivePlace | None


class RedriveRow(NamedTuple):
    """A redrive of a queue. ``name`` is that of its state; ``terms`` are `RedriveTerms.encoded`."""

    queue_id: int
    redrive_id: int
    name: str
    terms: bytes
    rate: int
    started_ms: int
    changed_ms: int
    time_ms: int
    waiting: int
    moved: int
    stayed: int


def encoded_terms(wish: RedriveWish) -> bytes:
    """What a shard is told of a wish."""
    return RedriveTerms(
        wish.target_queue, wish.target_exchange, wish.target_key, wish.reason, wish.from_queue, wish.key, wish.headers,
        wish.min_age_ms, wish.max_age_ms,
    ).encoded()  # fmt: skip


def shown_terms(encoded: bytes) -> dict[str, Any]:
    """Target and filters as they were asked for, without those that were not; nothing where a later release has said
    more than is known here."""
    try:
        terms = terms_of(encoded)
    except msgspec.MsgspecError:
        return {}
    shown: dict[str, Any] = {
        "target_queue": terms.queue, "target_exchange": terms.exchange, "target_routing_key": terms.routing_key,
        "reason": terms.reason, "from_queue": terms.origin, "routing_key": terms.key,
        "headers": dict(terms.headers) or None, "min_age_ms": terms.min_age_ms, "max_age_ms": terms.max_age_ms,
    }  # fmt: skip
    return {name: value for name, value in shown.items() if value is not None}


def redrives_in(engine: Engine, shard_id: int, queues: list[int] | None, now_ms: int) -> list[RedriveRow] | None:
    """The redrives of these queues, None for all; None where this node has no replica of the shard."""
    shard = shard_here(engine, shard_id)
    if shard is None:
        return None
    time_ms = shard_now(engine, shard, now_ms).time_ms
    return [
        RedriveRow(
            queue.queue_id, it.redrive_id, STATES[it.state], it.terms, it.per_second, it.started_ms, it.changed_ms,
            time_ms, it.waiting, it.moved, it.stayed,
        )
        for queue, it in shard.redrives()
        if queues is None or queue.queue_id in queues
    ]  # fmt: skip


def preview_steps(
    engine: Engine, shard_id: int, queue_id: int, encoded: bytes, place: RedrivePlace | None, shown: int, most: int,
    now_ms: int,
) -> Iterator[PreviewPart | None]:
    """What a redrive would do to the next messages of a queue, at most so many, at last, and None for each step before;
    nothing where this node has no such queue."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    if shard is None or queue is None:
        return
    time_ms = shard_now(engine, shard, now_ms).time_ms
    if place is None:
        place = RedrivePlace(shard.index, time_ms)
    terms = terms_of(encoded)
    entries = LogEntries(engine, shard_id)
    judge = RedriveJudge(
        RedriveRouter(engine.catalog), lambda message: content_of(entries.data(message.index), message)
    )
    redrive = Redrive(place.up_to_index, encoded, 0, place.up_to_ms, 0)
    found = _Found(shown)
    looked = 0
    while True:
        at = None if place.entry < 0 else Place(*place[2:])
        ahead = ahead_of(queue, at, place.up_to_ms)
        if not ahead.messages:
            yield found.part(None)
            return
        for message in ahead.messages:
            judged = judge.judge(queue, redrive, terms, message, time_ms, found.shows_more)
            found.add(message, judged, redrive.started_ms)
            place = RedrivePlace(
                place.up_to_index, place.up_to_ms, *ahead.name, message.index, message.offset, message.enqueued_ms,
                message.acquired_count,
            )
            looked += 1
            if looked >= most or entries.bytes_read >= BYTES_READ:
                yield found.part(place)
                return
            if looked % LOOKS_PER_STEP == 0:
                yield None


class _Found:
    """What a preview has come to."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._moves = self._stays = self._no_route = 0
        self._targets: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []

    @property
    def shows_more(self) -> bool:
        """Whether what moves next is shown."""
        return len(self._rows) < self._shown

    def add(self, message: Message, judged: Judged, time_ms: int) -> None:
        if judged.fate == MOVES and judged.decision is not None:
            self._moves += 1
            for target in judged.decision.targets:
                self._targets[target.name] = self._targets.get(target.name, 0) + 1
            if self.shows_more:
                self._rows.append(_row(message, judged.decision, time_ms))
        elif judged.fate != NOT_ITS_OWN:
            self._stays += 1
            self._no_route += judged.fate == NO_ROUTE

    def part(self, place: RedrivePlace | None) -> PreviewPart:
        return PreviewPart(self._moves, self._stays, self._no_route, self._targets, self._rows, place)


def _row(message: Message, decision: RedriveDecision, time_ms: int) -> dict[str, Any]:
    content = decision.content
    assert content is not None
    shown = Content(content.exchange_and_key, as_shown(content.header), content.body)
    body = shown.body[:_PAYLOAD_BYTES]
    try:
        payload, encoding = body.decode("utf-8"), "string"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(body).decode(), "base64"
    return {
        "targets": [queue.name for queue in decision.targets],
        "exchange": json_value(shown.exchange),
        "routing_key": json_value(shown.routing_key),
        "reason": None if decision.origin is None else json_value(decision.origin.reason),
        "from_queue": None if decision.origin is None else json_value(decision.origin.queue),
        "age_ms": max(0, time_ms - message.enqueued_ms),
        "properties": shown_properties(shown.header),
        "payload_bytes": message.body_length,
        "payload": payload,
        "payload_encoding": encoding,
    }
