"""Streams: each consumer sees each offset, in order, that is there when it is its turn; what stands at an offset stands
there for everybody; messages with TTLs go, not before their time, and the last of a key leaves a marker (RULES J1-J3).
A mirror has at each offset what its stream has there, and what a stream has from others comes once and in the order in
which it is there (J4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, History, Read
from simulation.node.topology import GATHERED, MIRROR, STREAM
from simulation.simulator import Violation

_MARKER = 0
_What = tuple[int, str]
"""A message, or _MARKER and why it is there."""


def check_streams(history: History, tolerance: Tolerance | None = None) -> list[Violation]:
    """None invented, none twice, none redelivered, none missing between but for those whose time was over; in the end
    all that was confirmed and stays is there, of each publisher in its order. That nothing is handed out when its time
    is over is judged with all other deadlines (T5)."""
    tolerance = tolerance or Tolerance()
    # A mirror has the offsets of its stream: as if it were that.
    own = [read for read in history.reads if read.stream != GATHERED]
    gathered = [read for read in history.reads if read.stream == GATHERED]
    at: dict[int, _What] = {}
    faults = [
        *_faults_of_contents(history, own, at),
        *_faults_of_gathered(history, gathered, at),
        *_faults_of_order(history, own, own, tolerance),
        *_faults_of_order(history, [read for read in own if read.stream == MIRROR], [], None),
        *_faults_of_order(history, gathered, [], None),
        *_faults_of_markers(history, own, tolerance),
        *_faults_of_no_marker(history, own, tolerance),
        *_faults_of_the_end(history, [read for read in own if read.stream == STREAM]),
        *_faults_of_the_end(history, [read for read in own if read.stream == MIRROR]),
        *_faults_of_the_end(history, [read for read in gathered if read.source != MIRROR]),
        *_faults_of_the_end(history, [read for read in gathered if read.source == MIRROR]),
    ]
    return [Violation("stream", fault) for fault in faults]


def _what(read: Read) -> _What:
    return (_MARKER, read.marker) if read.marker else (read.message_id, "")


def _faults_of_one(history: History, read: Read) -> Iterator[str]:
    if not read.marker and read.message_id not in history.appended:
        yield f"message {read.message_id} at {_where(read)}, was never published there"
    if read.redelivered:
        yield f"message {read.message_id} at {_where(read)}, is said to be redelivered"


def _faults_of_gathered(history: History, reads: list[Read], at: dict[int, _What]) -> Iterator[str]:
    """What is from a source is what stands there; each comes once, and in that order. ``at``: what is there."""
    places: dict[int, Read] = {}
    for read in reads:
        yield from _faults_of_one(history, read)
        first = places.setdefault(read.offset, read)
        if (first.source, first.source_offset, _what(first)) != (read.source, read.source_offset, _what(read)):
            yield f"message {read.message_id} at {_where(read)}, where another one was"
        if read.source not in (STREAM, MIRROR):
            yield f"message {read.message_id} at {_where(read)}, is from nowhere"
        if at.get(read.source_offset, _what(read)) != _what(read):
            yield f"message {read.message_id} at {_where(read)}, is not that of {read.source} at {read.source_offset}"
    last: dict[str, int] = {}
    for _, read in sorted(places.items()):
        if read.source_offset <= last.get(read.source, -1):
            yield f"offset {read.source_offset} of {read.source} at {_where(read)}, behind {last[read.source]}"
        last[read.source] = read.source_offset


def _faults_of_contents(history: History, reads: list[Read], at: dict[int, _What]) -> Iterator[str]:
    """Collects what is ``at`` each offset."""
    offsets: dict[int, int] = {}
    for read in reads:
        where = _where(read)
        what = _what(read)
        yield from _faults_of_one(history, read)
        if at.setdefault(read.offset, what) != what:
            yield f"message {read.message_id} at {where}, where {at[read.offset]} was"
        if not read.marker and offsets.setdefault(read.message_id, read.offset) != read.offset:
            yield f"message {read.message_id} at {where}, was at {offsets[read.message_id]}"
        if read.only_key and read.key != read.only_key:
            yield f"message {read.message_id} at {where}, has the key {read.key}, and {read.only_key} was asked for"


def _faults_of_order(
    history: History, reads: list[Read], others: list[Read], tolerance: Tolerance | None
) -> Iterator[str]:
    """Of what these readers or others have seen none is left out; without a tolerance nothing ever leaves."""
    at = {read.offset: _what(read) for read in (*reads, *others)}
    last: dict[str, Read] = {}
    for read in reads:
        before = last.get(read.holder)
        expected = max(read.begins, 0) if before is None else before.offset + 1
        if read.offset < expected:
            yield f"message {read.message_id} at {_where(read)}: offset {expected} was next"
        for offset in range(expected, read.offset):
            message_id, _ = at.get(offset, (_MARKER, ""))
            if message_id != _MARKER and not _may_miss(history, read, message_id, tolerance):
                yield f"message {read.message_id} at {_where(read)}: message {message_id} at offset {offset} was next"
        last[read.holder] = read


def _may_miss(history: History, read: Read, message_id: int, tolerance: Tolerance | None) -> bool:
    """Whether a reader who is given this one next may not have been given that message before."""
    publish = history.appended.get(message_id)
    if publish is None or (read.only_key and publish.key != read.only_key):
        return True
    if tolerance is None or publish.ttl_ms is None:
        return False
    return _may_be_over(publish.invoked_us, publish.ttl_ms, read.at_us, tolerance)


def _may_be_over(invoked_us: int, ttl_ms: int, now_us: int, tolerance: Tolerance) -> bool:
    if tolerance.early_ms is None:
        return True
    return now_us - invoked_us >= tolerance.shortest_us(ttl_ms) - tolerance.early_ms * 1_000


def _faults_of_markers(history: History, reads: list[Read], tolerance: Tolerance) -> Iterator[str]:
    """A marker says that no message of its key is left before it, and each time that once."""
    messages: dict[str, dict[int, int]] = defaultdict(dict)
    markers: dict[str, dict[int, Read]] = defaultdict(dict)
    for read in reads:
        if read.marker:
            markers[read.key].setdefault(read.offset, read)
        elif read.message_id in history.appended:
            messages[read.key][read.offset] = read.message_id
    known = {read.offset for read in reads}
    for key, of_key in markers.items():
        before = -1
        for offset, read in sorted(of_key.items()):
            where = f"the marker of {key} at {_where(read)}"
            if read.marker != "MaxAge":
                yield f"{where}, says {read.marker}"
            for place, message_id in messages[key].items():
                publish = history.appended[message_id]
                if place < offset and (
                    publish.ttl_ms is None
                    or not _may_be_over(publish.invoked_us, publish.ttl_ms, read.at_us, tolerance)
                ):
                    yield f"{where}, stands behind message {message_id} at {place}, whose time is not over"
            between = range(before + 1, offset)
            if before >= 0 and known.issuperset(between) and not any(place in messages[key] for place in between):
                yield f"{where}, follows one at {before} without a message of the key between them"
            before = offset


def _faults_of_no_marker(history: History, reads: list[Read], tolerance: Tolerance) -> Iterator[str]:
    """A key that has died out has a marker behind its last message. The mirror, which keeps all that its stream had,
    tells; what left the stream before the cluster was calm may never have been copied, nor its marker."""
    if tolerance.early_ms is None:
        return
    calm_us = history.calm_us + tolerance.settle_ms * 1_000
    # It comes so late, it is copied as late, and it is read.
    done_us = history.ended_us - (3 * tolerance.late_ms + tolerance.early_ms) * 1_000
    last: dict[str, Read] = {}
    over_us: dict[str, tuple[int, int]] = {}
    for read in reads:
        if read.stream != MIRROR or not read.final:
            continue
        if read.key not in last or read.offset > last[read.key].offset:
            last[read.key] = read
        publish = history.appended.get(read.message_id)
        if read.marker or publish is None:
            continue
        if publish.ttl_ms is None:
            over_us[read.key] = (0, history.ended_us)  # It stays.
            continue
        stored_us = read.at_us if publish.completed_us is None else min(read.at_us, publish.completed_us)
        earliest_us, latest_us = over_us.get(read.key, (0, 0))
        over_us[read.key] = (
            max(earliest_us, publish.invoked_us + publish.ttl_ms * 1_000),
            max(latest_us, stored_us + publish.ttl_ms * 1_000),
        )
    for key, read in last.items():
        earliest_us, latest_us = over_us.get(key, (0, 0))
        if not read.marker and earliest_us >= calm_us and latest_us <= done_us:
            yield f"message {read.message_id} at {_where(read)}, is the last of {key}, whose time is over: no marker"


def _faults_of_the_end(history: History, reads: list[Read]) -> Iterator[str]:
    finals = [read for read in reads if read.final]
    if not history.appended:
        return
    # The last reader may have had to begin anew: the last of its consumers counts.
    last = [read for read in finals if read.holder == finals[-1].holder]
    place = {read.message_id: read.offset for read in last if not read.marker}
    before: dict[int, int] = {}
    for publish in history.appended.values():
        offset = place.get(publish.message_id, -1)
        if offset < 0:
            if publish.outcome == CONFIRMED and publish.ttl_ms is None:
                yield f"message {publish.message_id} was confirmed, and is not in the stream"
        elif offset < before.get(publish.stream, -1):
            yield f"message {publish.message_id} is at {offset}, before one that was published earlier"
        else:
            before[publish.stream] = offset


def _where(read: Read) -> str:
    return f"offset {read.offset} at {read.at_us / 1e6:.6f}s, for {read.holder}"
