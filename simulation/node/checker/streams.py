"""Streams: each consumer sees each offset, in order, that is there when it is its turn; what stands at an offset stands
there for everybody; messages with TTLs go, not before their time, and the last of a key leaves a marker (RULES J1-J3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, History, Read
from simulation.simulator import Violation

_MARKER = 0


def check_streams(history: History, tolerance: Tolerance | None = None) -> list[Violation]:
    """None invented, none twice, none redelivered, none missing between but for those whose time was over; in the end
    all that was confirmed and stays is there, of each publisher in its order. That nothing is handed out when its time
    is over is judged with all other deadlines (T5)."""
    tolerance = tolerance or Tolerance()
    faults = [
        *_faults_of_reads(history, tolerance), *_faults_of_markers(history, tolerance), *_faults_of_the_end(history)
    ]
    return [Violation("stream", fault) for fault in faults]


def _faults_of_reads(history: History, tolerance: Tolerance) -> Iterator[str]:
    at: dict[int, tuple[int, str]] = {}
    offsets: dict[int, int] = {}
    for read in history.reads:
        where = _where(read)
        what = (_MARKER, read.marker) if read.marker else (read.message_id, "")
        if not read.marker and read.message_id not in history.appended:
            yield f"message {read.message_id} at {where}, was never published there"
        if read.redelivered:
            yield f"message {read.message_id} at {where}, is said to be redelivered"
        if at.setdefault(read.offset, what) != what:
            yield f"message {read.message_id} at {where}, where {at[read.offset]} was"
        if not read.marker and offsets.setdefault(read.message_id, read.offset) != read.offset:
            yield f"message {read.message_id} at {where}, was at {offsets[read.message_id]}"
        if read.only_key and read.key != read.only_key:
            yield f"message {read.message_id} at {where}, has the key {read.key}, and {read.only_key} was asked for"
    last: dict[str, Read] = {}
    for read in history.reads:
        before = last.get(read.holder)
        expected = max(read.begins, 0) if before is None else before.offset + 1
        if read.offset < expected:
            yield f"message {read.message_id} at {_where(read)}: offset {expected} was next"
        for offset in range(expected, read.offset):
            message_id, _ = at.get(offset, (_MARKER, ""))
            if message_id != _MARKER and not _may_miss(history, read, message_id, tolerance):
                yield f"message {read.message_id} at {_where(read)}: message {message_id} at offset {offset} was next"
        last[read.holder] = read


def _may_miss(history: History, read: Read, message_id: int, tolerance: Tolerance) -> bool:
    """Whether a reader who is given this one next may not have been given that message before."""
    publish = history.appended.get(message_id)
    if publish is None or (read.only_key and publish.key != read.only_key):
        return True
    return publish.ttl_ms is not None and _may_be_over(publish.invoked_us, publish.ttl_ms, read.at_us, tolerance)


def _may_be_over(invoked_us: int, ttl_ms: int, now_us: int, tolerance: Tolerance) -> bool:
    if tolerance.early_ms is None:
        return True
    return now_us - invoked_us >= tolerance.shortest_us(ttl_ms) - tolerance.early_ms * 1_000


def _faults_of_markers(history: History, tolerance: Tolerance) -> Iterator[str]:
    """A marker says that no message of its key is left before it, and each time that once."""
    messages: dict[str, dict[int, int]] = defaultdict(dict)
    markers: dict[str, dict[int, Read]] = defaultdict(dict)
    for read in history.reads:
        if read.marker:
            markers[read.key].setdefault(read.offset, read)
        elif read.message_id in history.appended:
            messages[read.key][read.offset] = read.message_id
    known = {read.offset for read in history.reads}
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


def _faults_of_the_end(history: History) -> Iterator[str]:
    finals = [read for read in history.reads if read.final]
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
