"""How the clocks of groups of whole simulated nodes are handed over, as specifications/clock/ClockTrace.tla reads it.

A `RecordedGroup` takes the place of the plain one in the host while a run is recorded; nobody asks whether recording
is on. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

import mayfly.cluster.group.applying as applying_module
import mayfly.cluster.host.replicas as replicas_module
from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.sessions import ENTRY_HEADER
from mayfly.cluster.raft import EntryType
from simulation.cluster.clocks import EPOCH_MS
from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario

BEGIN_MS = 100_000_000
"""What the traces call the time at which runs begin: no clock is so far behind."""
_LARGEST = 1 << 30
"""For TLC. No run lasts so many milliseconds."""


def _shown(time_ms: int) -> int:
    """A reading of a clock, as the traces have it."""
    return max(0, time_ms - EPOCH_MS + BEGIN_MS)


def _part(part: str | int) -> str:
    return f'"{part}"' if isinstance(part, str) else f"{max(-_LARGEST, min(part, _LARGEST))}"


@dataclass
class Heard:
    """The best that a node has heard of the clocks of a term, and when it heard the last of it."""

    term: int
    led_ms: int
    ahead_ms: int
    at_ms: int


@dataclass
class ClockTrace:
    """The lines of one group."""

    lines: list[str] = field(default_factory=list)
    made: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """When the entry of an index with these stamps was made."""
    decided: list[int] = field(default_factory=list)
    """The indices of the entries that some replica has applied."""
    heard: dict[int, Heard] = field(default_factory=dict)

    def tell(self, *line: str | int) -> None:
        """Add a line."""
        self.lines.append("<<" + ",".join(map(_part, line)) + ">>")

    def flush(self, node: int) -> None:
        """Tell what a node has heard."""
        heard = self.heard.pop(node, None)
        if heard is not None:
            self.tell("heard", node, heard.term, heard.led_ms, heard.ahead_ms, heard.at_ms)

    def entries(self, applied: int) -> int:
        """How many entries there are up to an index."""
        count = len(self.decided)
        while count and self.decided[count - 1] > applied:
            count -= 1
        return count


class Recorder:
    """Gathers the traces of all groups of a run. `at_ms()` is the true time; `most_ms(node)` how far a node may be
    ahead of it that begins with a clock of its own."""

    def __init__(self) -> None:
        self.traces: dict[int, ClockTrace] = {}
        self.at_ms: Callable[[], int] = lambda: BEGIN_MS
        self.most_ms: Callable[[int], int] = lambda node: 0

    def trace(self, group: int) -> ClockTrace:
        """That of a group."""
        return self.traces.setdefault(group, ClockTrace())


def recorded_clock(recorder: Recorder) -> type[GroupClock]:
    """A class of clocks that tell the recorder what they are shown, and with what they lead."""

    class RecordedClock(GroupClock):
        """Its group is told to it."""

        group: Any = None

        def observed(self, time_ms: int, led_ms: int, now_ms: int, term: int = 0) -> None:
            super().observed(time_ms, led_ms, now_ms, term)
            trace, node, at_ms = recorder.trace(self.group.id), self.group.node, recorder.at_ms()
            ahead_ms = _shown(time_ms) - at_ms
            known = trace.heard.get(node)
            if known is not None and known.term == term:
                led_ms, ahead_ms = max(led_ms, known.led_ms), max(ahead_ms, known.ahead_ms)
            else:
                trace.flush(node)
            trace.heard[node] = Heard(term, led_ms, ahead_ms, at_ms)

        def lead(self, now_ms: int, trusted_ms: int, term: int = 0, last_term: int = 0) -> None:
            super().lead(now_ms, trusted_ms, term, last_term)
            group, at_ms = self.group, recorder.at_ms()
            trace, node = recorder.trace(group.id), group.node
            trace.flush(node)
            last = group.raw.term_at(group.leader_index - 1)
            trace.tell("has", node, last, trace.entries(group.applied), at_ms)
            ahead_ms = _shown(self.current_ms(now_ms)) - at_ms
            trace.tell("lead", node, group.term, self.led_ms, ahead_ms, recorder.most_ms(node))

        def follow(self) -> None:
            trace = recorder.trace(self.group.id)
            heard = trace.heard.pop(self.group.node, None)
            trace.tell("follow", self.group.node, self._term, self.led_ms, recorder.at_ms())
            if heard is not None:
                trace.heard[self.group.node] = heard
            super().follow()

    return RecordedClock


def recorded_group(recorder: Recorder) -> type[Group]:
    """A class of groups that tell the recorder when they begin, and which stamps they make."""

    class RecordedGroup(Group):
        """Its clock knows it."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            cast(Any, self.clock).group = self  # It is a recorded one.
            trace = recorder.trace(self.id)
            trace.heard.pop(self.node, None)
            trace.tell("begin", self.node)

        def propose(self, now_ms: int, clocks: Any) -> None:
            before = self.raw.last_index
            super().propose(now_ms, clocks)
            trace, at_ms = recorder.trace(self.id), recorder.at_ms()
            for index in range(before + 1, self.raw.last_index + 1):
                (entry,) = self.raw.raft.raft_log.slice(index, index + 1, 1 << 30)
                if entry.type == EntryType.NORMAL and entry.data:
                    _, time_ms, led_ms = ENTRY_HEADER.unpack_from(entry.data)
                    trace.made[index, entry.data[: ENTRY_HEADER.size]] = at_ms
                    count = trace.entries(self.applied)
                    trace.tell("stamp", self.node, self.term, count, _shown(time_ms), led_ms, at_ms)

    return RecordedGroup


def recorded_applying(recorder: Recorder) -> type[Applying]:
    """A class that tells the recorder of each entry that it is the first to apply."""

    class RecordedApplying(Applying):
        """See there."""

        def apply(self, index: int, data: bytes) -> None:
            trace = recorder.trace(self._group)
            if not trace.decided or index > trace.decided[-1]:
                _, time_ms, led_ms = ENTRY_HEADER.unpack_from(data)
                trace.decided.append(index)
                trace.tell("decide", _shown(time_ms), led_ms, trace.made[index, data[: ENTRY_HEADER.size]])
            super().apply(index, data)

    return RecordedApplying


def recorded_clocks(seed: int) -> list[tuple[int, ClockTrace]]:
    """What became of the clocks of all groups of a run of whole nodes with clients. What is wrong with it is left to
    the specification to find, so a run that ends with an error is recorded up to there."""
    recorder, scenario = Recorder(), draw_scenario(seed)
    with (
        patch.object(applying_module, "GroupClock", recorded_clock(recorder)),
        patch.object(replicas_module, "Group", recorded_group(recorder)),
        patch("mayfly.cluster.group.group.Applying", recorded_applying(recorder)),
    ):
        run = Simulation(scenario)
        recorder.at_ms = lambda: run.queue.now_us // 1_000 + BEGIN_MS
        recorder.most_ms = lambda node: most_ms(run, node)
        with suppress(Exception):
            run.pass_time()
    return [(group, trace) for group, trace in recorder.traces.items() if trace.decided]


def most_ms(run: Simulation, node: int) -> int:
    """How far a node may be ahead of true time with a clock of its own (C3): as far as its clock is, and by the bound
    more than any but one of the others, of which only one may be wrong."""
    now_us = run.queue.now_us
    errors = {id: machine.process_clock.error_ms(now_us) for id, machine in run.cluster.machines.items()}
    profile = run.scenario.node_profile
    if min(len(run.scenario.nodes), profile.replication_factor) < 3 or run.scenario.changes:
        return errors[node]
    return min(errors[node], sorted(errors.values())[-2] + profile.clock_bound_ms)


def clock_module(name: str, seeds: list[int]) -> str:
    """A module `Recorded` with the runs of these seeds, one for each group."""
    runs, nodes = [], 1
    for seed in seeds:
        nodes = max(nodes, 2 * len(draw_scenario(seed).nodes))
        for group, trace in recorded_clocks(seed):
            lines = ",\n".join(trace.lines)
            runs.append(f"\\* seed {seed}, group {group}\n[lines |-> <<\n{lines}>>]")
    return (
        f"---- MODULE {name} ----\nEXTENDS Integers, Sequences\n"
        f"TracedNode == 1..{nodes}\nRunsBegin == {BEGIN_MS}\nRuns == <<\n{(',' + chr(10)).join(runs)}\n>>\n====\n"
    )
