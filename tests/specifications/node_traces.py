"""What shards of whole simulated nodes do, as specifications/lease/LeaseTrace.tla and outbox/OutboxTrace.tla read it.

A `RecordedShard` takes the place of the plain one in the engine while a run is recorded; nobody asks whether recording
is on. Each entry of a shard's log is told once, by the replica that applies it first, with what it changed.
Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import mayfly.node.engine.engine as engine_module
from mayfly.node.shard import dead_letters
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.tombstone import EXPIRED
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import draw_plan
from simulation.outsider.run import OutsiderRun
from simulation.outsider.scenario import draw_scenario
from tests.specifications.clock_traces import clock_module
from tests.specifications.move_traces import move_module
from tests.specifications.session_traces import session_module

MOST_QUEUES = 8
_ROUNDED_MS = 3
"""Clocks are read in whole milliseconds, and drift by up to 100 ppm."""
_LARGEST = 1 << 30
"""For TLC. No run lasts so many milliseconds."""
LeaseState = tuple[int, int, int]
"""Epoch, when it began, how many suspend it."""


@dataclass
class ShardTrace:
    """The lines of one shard's log."""

    shard: int
    lines: list[str] = field(default_factory=list)
    applied: int = 0
    stamp: int = -1
    queues: dict[int, int] = field(default_factory=dict)
    """Queue id -> its number in the trace."""

    def number(self, queue_id: int) -> int:
        """The number of a queue in the trace."""
        return self.queues.setdefault(queue_id, len(self.queues) + 1)


def _small(time_ms: int) -> int:
    return min(time_ms, _LARGEST)


class Recorder:
    """Gathers the traces of all shards of a run. `led_ms(shard)`: how long there has been a leader so far."""

    def __init__(self) -> None:
        self.traces: dict[int, ShardTrace] = {}
        self.led_ms: Callable[[int], int] = lambda shard: 0

    def trace(self, shard: int) -> ShardTrace:
        """That of a shard."""
        return self.traces.setdefault(shard, ShardTrace(shard))


def recorded_shard(recorder: Recorder) -> type[Shard]:
    """A class of shards that tell the recorder what entries do to leases."""

    class RecordedShard(Shard):
        """Tells each entry that it is the first to apply."""

        def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
            trace = recorder.trace(self.shard_id)
            self._tells = index > trace.applied
            trace.applied = max(trace.applied, index)
            self._before = self._leases()
            super().begin(index, time_ms, led_ms, data)

        def apply(self, session: Any, start: int, end: int) -> list[object]:
            try:
                return super().apply(session, start, end)
            finally:
                self._tell()

        def session_closed(self, session: Any) -> None:
            super().session_closed(session)
            self._tell()

        def finish(self) -> None:
            super().finish()
            self._tell()

        def due_leases(self, led_ms: int, limit: int = 1_000) -> list[tuple[int, int]]:
            due = super().due_leases(led_ms, limit)
            trace = recorder.trace(self.shard_id)
            for queue_id, epoch in due:
                trace.lines.append(f'<<"decide",{trace.number(queue_id)},{epoch},{_small(led_ms)}>>')
            return due

        def _leases(self) -> dict[int, LeaseState]:
            return {
                id: (queue.lease.epoch, queue.lease.started_ms, queue.lease.suspended_by)
                for id, queue in self._state.queues.items()
            }

        def _tell(self) -> None:
            before, after = self._before, self._leases()
            self._before = after
            if not self._tells or before == after:
                return
            trace = recorder.trace(self.shard_id)
            if self._state.led_ms != trace.stamp:
                trace.stamp = self._state.led_ms
                led_ms = recorder.led_ms(self.shard_id) + _ROUNDED_MS
                trace.lines.append(f'<<"enter",{_small(trace.stamp)},{_small(led_ms)}>>')
            for id in [*before, *(id for id in after if id not in before)]:
                if before.get(id) != after.get(id):
                    trace.lines.append(self._line(trace.number(id), id, before.get(id), after.get(id)))

        def _line(self, number: int, id: int, before: LeaseState | None, after: LeaseState | None) -> str:
            if after is None:
                gone = self._state.deleted.get(id)
                return f'<<"{"end" if gone is not None and gone.reason == EXPIRED else "delete"}",{number}>>'
            epoch, began, count = after[0], _small(after[1]), after[2]
            if before is None and epoch == 1:
                return f'<<"create",{number},{began},{count}>>'
            name = "renew" if before is None or epoch != before[0] else "leave"
            return f'<<"{name}",{number},{epoch},{began},{count}>>'

    return RecordedShard


def recorded_leases(seed: int) -> tuple[int, list[ShardTrace]]:
    """The period of all leases of a run at their edges, and what its shards did. What is wrong with it is left to the
    specification to find, so a run that ends with an error is recorded up to there."""
    recorder, plan = Recorder(), draw_plan(seed)
    with patch.object(engine_module, "Shard", recorded_shard(recorder)):
        run = EdgeRun(plan)
        recorder.led_ms = lambda shard: led_ms(run, shard)
        with suppress(Exception):
            run.pass_time()
    return plan.expires_ms, [trace for trace in recorder.traces.values() if trace.lines]


def led_ms(run: EdgeRun, shard: int) -> int:
    """How long some node has led the shard, rounded up. A frozen leader counts: no more than this can be charged."""
    leads: set[int] = set()
    led_us = since_us = 0
    for at_us, group, node, begins in run.history.leading:
        if group != shard:
            continue
        if begins:
            since_us = at_us if not leads else since_us
            leads.add(node)
        elif node in leads:
            leads.discard(node)
            led_us += 0 if leads else at_us - since_us
    if leads:
        led_us += run.queue.now_us - since_us
    return -(-led_us // 1_000)


def lease_module(name: str, seeds: list[int]) -> str:
    """A module `Recorded` with the runs of these seeds, one for each shard."""
    runs = []
    for seed in seeds:
        period, traces = recorded_leases(seed)
        for trace in traces:
            lines = ",\n".join(trace.lines)
            runs.append(f"\\* seed {seed}, shard {trace.shard}\n[period |-> {period}, lines |-> <<\n{lines}>>]")
    return (
        f"---- MODULE {name} ----\nEXTENDS Naturals, Sequences\n"
        f"TracedQueue == 1..{MOST_QUEUES}\nRuns == <<\n{(','+chr(10)).join(runs)}\n>>\n====\n"
    )


class OutboxRecorder:
    """Gathers what becomes of items between shards, by lane."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.applied: dict[int, int] = {}
        self.lanes: dict[tuple[int, int], int] = {}
        self.items: dict[bytes, int] = {}
        self.taken: list[int] = []
        """By the transfer that is applied now."""
        self.routes = False
        self.tells = False

    def lane(self, source: int, queue_id: int) -> int:
        """The number of a lane in the trace."""
        return self.lanes.setdefault((source, queue_id), len(self.lanes) + 1)

    def item(self, data: bytes, message: Any) -> int:
        """The number of an item in the trace, by its octets."""
        octets = data[message.offset : message.offset + message.content_length]
        return self.items.setdefault(octets, len(self.items) + 1)


def recorded_outbox(recorder: OutboxRecorder) -> type[Shard]:
    """A class of shards that tell the recorder what entries do to lanes."""

    class RecordedShard(Shard):
        """Tells each entry that it is the first to apply."""

        def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
            recorder.tells = index > recorder.applied.get(self.shard_id, 0)
            recorder.applied[self.shard_id] = max(index, recorder.applied.get(self.shard_id, 0))
            super().begin(index, time_ms, led_ms, data)

        def apply(self, session: Any, start: int, end: int) -> list[object]:
            before = self._places()
            recorder.taken = []
            try:
                return super().apply(session, start, end)
            finally:
                if recorder.tells:
                    self._tell(before)

        def _places(self) -> dict[int, tuple[int, int]]:
            return {
                id: (lane.first_sequence, lane.last_sequence())
                for id, lane in self._state.outbox.lanes.items()
                if lane.target_shard != self.shard_id
            }

        def _tell(self, before: dict[int, tuple[int, int]]) -> None:
            state, lines = self._state, recorder.lines
            after = self._places()
            for id, (first, last) in after.items():
                had_first, had_last = before.get(id, (1, 0))
                lane = recorder.lane(self.shard_id, id)
                if first > had_first:
                    lines.append(f'<<"settle",{lane},{first - 1}>>')
                for number in range(had_last + 1, last + 1):
                    item = state.outbox.lanes[id].items[number - first]
                    lines.append(f'<<"put",{lane},{number},{recorder.item(state.data, item)}>>')
                if last < had_last:
                    lines.append(f'<<"put",{lane},{last},0>>')
            lines += [f'<<"close",{recorder.lane(self.shard_id, id)}>>' for id in before if id not in after]

    return RecordedShard


@contextmanager
def recording_outboxes(recorder: OutboxRecorder) -> Iterator[None]:
    """Shards made meanwhile are recorded ones, and what they take in is noted."""
    plain_take_in, plain_move_content = dead_letters.take_in, dead_letters.move_content
    plain_note_received = Queue.note_received

    def take_in(state: Any, queue: Any, content: Any, *beyond_limits: Any) -> bool:
        taken = plain_take_in(state, queue, content, *beyond_limits)
        if taken and not recorder.routes:
            recorder.taken.append(recorder.item(state.data, content))
        return taken

    def move_content(*arguments: Any) -> None:
        recorder.routes = True
        plain_move_content(*arguments)
        recorder.routes = False

    def note_received(queue: Queue, source: int, sequence: int) -> None:
        taken, recorder.taken = recorder.taken, []
        if recorder.tells:
            lane, first = recorder.lane(source, queue.queue_id), sequence - len(taken) + 1
            recorder.lines += [
                f'<<"take",{lane},{number},{item}>>' for number, item in enumerate(taken, first)
            ]
            if not taken:
                recorder.lines.append(f'<<"take",{lane},{sequence},0>>')
        plain_note_received(queue, source, sequence)

    with (
        patch.object(engine_module, "Shard", recorded_outbox(recorder)),
        patch.object(dead_letters, "take_in", take_in),
        patch.object(dead_letters, "move_content", move_content),
        patch.object(Queue, "note_received", note_received),
    ):
        yield


def outbox_module(name: str, seeds: list[int]) -> str:
    """A module `Recorded` with the runs of these seeds of the outsider, whose queues have dead letters in other
    shards."""
    runs, lanes = [], 1
    for seed in seeds:
        recorder = OutboxRecorder()
        with recording_outboxes(recorder), suppress(Exception):
            OutsiderRun(draw_scenario(seed)).pass_time()
        lines = ",\n".join(recorder.lines)
        runs.append(f"\\* seed {seed}\n<<\n{lines}>>")
        lanes = max(lanes, len(recorder.lanes))
    return (
        f"---- MODULE {name} ----\nEXTENDS Naturals, Sequences\n"
        f"TracedLane == 1..{lanes}\nRuns == <<\n{(',' + chr(10)).join(runs)}\n>>\n====\n"
    )


MODULES = {
    "leases": lease_module,
    "outboxes": outbox_module,
    "clocks": clock_module,
    "sessions": session_module,
    "moves": move_module,
}
"""What can be recorded."""
