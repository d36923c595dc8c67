"""Streams: each consumer sees each offset, in order; what stands at an offset stands there for everybody (RULES J1)."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.node.history import CONFIRMED, History, Read
from simulation.simulator import Violation


def check_streams(history: History) -> list[Violation]:
    """None invented, none twice, none redelivered, none missing between; in the end all that was confirmed is there, of
    each publisher in its order."""
    faults = [*_faults_of_reads(history), *_faults_of_the_end(history)]
    return [Violation("stream", fault) for fault in faults]


def _faults_of_reads(history: History) -> Iterator[str]:
    at: dict[int, int] = {}
    offsets: dict[int, int] = {}
    last: dict[str, Read] = {}
    for read in history.reads:
        where = f"offset {read.offset} at {read.at_us / 1e6:.6f}s, for {read.holder}"
        if read.message_id not in history.appended:
            yield f"message {read.message_id} at {where}, was never published there"
        if read.redelivered:
            yield f"message {read.message_id} at {where}, is said to be redelivered"
        if at.setdefault(read.offset, read.message_id) != read.message_id:
            yield f"message {read.message_id} at {where}, where {at[read.offset]} was"
        if offsets.setdefault(read.message_id, read.offset) != read.offset:
            yield f"message {read.message_id} at {where}, was at {offsets[read.message_id]}"
        before = last.get(read.holder)
        expected = max(read.begins, 0) if before is None else before.offset + 1
        if read.offset != expected:
            yield f"message {read.message_id} at {where}: offset {expected} was next"
        last[read.holder] = read


def _faults_of_the_end(history: History) -> Iterator[str]:
    finals = [read for read in history.reads if read.final]
    if not history.appended:
        return
    # The last reader may have had to begin anew: the last of its consumers counts.
    last = [read for read in finals if read.holder == finals[-1].holder]
    place = {read.message_id: read.offset for read in last}
    before: dict[int, int] = {}
    for publish in history.appended.values():
        offset = place.get(publish.message_id, -1)
        if offset < 0:
            if publish.outcome == CONFIRMED:
                yield f"message {publish.message_id} was confirmed, and is not in the stream"
        elif offset < before.get(publish.stream, -1):
            yield f"message {publish.message_id} is at {offset}, before one that was published earlier"
        else:
            before[publish.stream] = offset
