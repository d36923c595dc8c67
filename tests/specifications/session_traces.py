"""What becomes of the sessions of whole simulated nodes, as specifications/session/SessionTrace.tla reads it.

A `RecordedSession` takes the place of the plain one in the host while a run is recorded, and so do the table of
sessions and who applies entries to it; nobody asks whether recording is on. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import mayfly.cluster.group.applying as applying_module
import mayfly.cluster.group.group as group_module
import mayfly.cluster.host.replicas as replicas_module
from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.fed_entry import FedEntry
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.sessions import BATCH_HEADER, KIND_CLOSE, SessionKey, SessionRow, SessionTable
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, draw_scenario
from tests.specifications.scripted_feeds import WINDOW, behind_a_hole

NOTHING_TOLD = -1


@dataclass
class SessionTrace:
    """The lines of the sessions of one node with one group."""

    lines: list[str] = field(default_factory=list)
    sent: tuple[int, int] = (0, 0)
    """The life of the node, and the highest number that it has sent."""
    told: int = NOTHING_TOLD
    """The index up to which it was told, where no line says so yet."""

    def tell(self, *line: object) -> None:
        """Add a line."""
        told, self.told = self.told, NOTHING_TOLD
        if told != NOTHING_TOLD:
            self.lines.append(f'<<"told",{told}>>')
        self.lines.append("<<" + ",".join(_part(part) for part in line) + ">>")


def _part(part: object) -> str:
    return f'"{part}"' if isinstance(part, str) else f"{part}".upper()


class Recorder:
    """Gathers the traces of all nodes and groups of a run."""

    def __init__(self) -> None:
        self.traces: dict[tuple[int, int], SessionTrace] = {}
        self.applied: dict[int, int] = {}
        """By group: the last entry that some replica has applied."""

    def trace(self, group: int, node: int) -> SessionTrace:
        """That of a node with a group."""
        return self.traces.setdefault((group, node), SessionTrace())


def recorded_session(recorder: Recorder) -> type[OwnSession]:
    """A class of sessions that tell the recorder what they send, and what they are told."""

    class RecordedSession(OwnSession):
        """See there."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.trace = recorder.trace(self.group, self.node)
            self.trace.told = NOTHING_TOLD
            self.trace.tell("anew", self.sender.incarnation)

        def route(self, leader: int, term: int, now_ms: int) -> list[bytes]:
            batches = super().route(leader, term, now_ms)
            for batch in batches:
                kind, _, life, number, _ = BATCH_HEADER.unpack_from(batch)
                if kind != KIND_CLOSE and (life, number) > self.trace.sent:
                    self.trace.sent = (life, number)
                    self.trace.tell("send", number)
            return batches

        def answered(self, sequence: int, results: Sequence[object] | None) -> None:
            self.trace.tell("answer", sequence)
            super().answered(sequence, results)

        def tell_all(self, entries: list[FedEntry], up_to: int, payload: Callable[[int], bytes]) -> None:
            life = self.sender.incarnation
            super().tell_all(entries, up_to, payload)
            if self.sender.incarnation == life:
                self.trace.told = self.cursor

        def ended(self, row: SessionRow | None) -> None:
            known = row is not None and row[1] == self.sender.incarnation
            self.trace.tell("over", row[2] if known and row is not None else 0)
            super().ended(row)
            self.trace.tell("anew", self.sender.incarnation)

    return RecordedSession


def recorded_table(recorder: Recorder) -> type[SessionTable]:
    """A class of tables that tell the recorder what they admit, of each entry that they are the first to apply."""

    class RecordedTable(SessionTable):
        """Its group is told to it, and which entry is applied."""

        group: int = 0
        index: int = 0
        tells: bool = False

        def admit(
            self, node: int, incarnation: int, sequence: int, fed: bool = False
        ) -> tuple[bool, SessionKey | None]:
            admitted, ended = super().admit(node, incarnation, sequence, fed)
            if self.tells:
                recorder.trace(self.group, node).tell("batch", incarnation, sequence, admitted, self.index)
            return admitted, ended

        def close(self, node: int, incarnation: int) -> bool:
            closed = super().close(node, incarnation)
            if self.tells:
                recorder.trace(self.group, node).tell("close", incarnation, closed, self.index)
            return closed

    return RecordedTable


def recorded_applying(recorder: Recorder) -> type[Applying]:
    """A class that tells the recorder up to where the session of its own node was told."""

    class RecordedApplying(Applying):
        """See there."""

        def apply(self, index: int, data: bytes) -> None:
            table: Any = self.sessions
            table.group, table.index = self._group, index
            table.tells = index > recorder.applied.get(self._group, 0)
            recorder.applied[self._group] = max(index, recorder.applied.get(self._group, 0))
            super().apply(index, data)
            self._is_told(index)

        def install(self, read: Any, index: int) -> None:
            super().install(read, index)
            self._is_told(index)

        def tell(self, applied: int) -> None:
            super().tell(applied)
            self._is_told(applied)

        def _is_told(self, index: int) -> None:
            if not self.session.is_fed:
                recorder.trace(self._group, self._node).told = index

    return RecordedApplying


def recorded_sessions(run: Callable[[], object]) -> list[tuple[int, int, SessionTrace]]:
    """What became of all sessions of a run. What is wrong with it is left to the specification to find, so a run that
    ends with an error is recorded up to there."""
    recorder = Recorder()
    with (
        patch.object(replicas_module, "OwnSession", recorded_session(recorder)),
        patch.object(applying_module, "SessionTable", recorded_table(recorder)),
        patch.object(group_module, "Applying", recorded_applying(recorder)),
        suppress(Exception),
    ):
        run()
    return [(group, node, trace) for (group, node), trace in recorder.traces.items()]


def _simulated(scenario: NodeScenario) -> None:
    Simulation(scenario).pass_time()


def session_module(name: str, seeds: list[int]) -> str:
    """A module `Recorded` with the runs of these seeds, one for each node and group; those below 0 are variants of the
    script."""
    runs = []
    for seed in seeds:
        scenario = draw_scenario(max(seed, 0))
        window = scenario.node_profile.session_window if seed >= 0 else WINDOW
        run = partial(behind_a_hole, -seed - 1) if seed < 0 else partial(_simulated, scenario)
        for group, node, trace in recorded_sessions(run):
            lines = ",\n".join(trace.lines)
            runs.append(
                f"\\* seed {seed}, group {group}, node {node}\n[window |-> {window}, lines |-> <<\n{lines}>>]"
            )
    return (
        f"---- MODULE {name} ----\nEXTENDS Naturals, Sequences\nRuns == <<\n{(',' + chr(10)).join(runs)}\n>>\n====\n"
    )
