"""How replicas of groups move between whole simulated nodes, as specifications/move/MoveTrace.tla reads it.

A `RecordedGroup` takes the place of the plain one in the host while a run is recorded, and so do its Raft node, who
gives replicas up, and who hears that a node is no member; nobody asks whether recording is on. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import mayfly.cluster.group.group as group_module
import mayfly.cluster.host.host as host_module
import mayfly.cluster.host.replicas as replicas_module
from mayfly.cluster.group.group import Group
from mayfly.cluster.host.feeding import Feeding
from mayfly.cluster.host.replicas import Replicas
from mayfly.cluster.raft import ConfChangeType, ConfState, EntryType, MessageType, RaftMessage, RawNode
from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario
from tests.specifications.scripted_moves import scripted

INDICES = 100_000
"""No run has so many entries: a place in a log is one number, its term times this and its index."""


def place(term: int, index: int) -> int:
    """Of two places the later one is greater (Raft 5.4.1)."""
    return term * INDICES + index


def _set(nodes: Iterable[int]) -> str:
    return "{" + ",".join(map(str, sorted(nodes))) + "}"


def _members(conf: ConfState) -> list[str]:
    return [_set(it) for it in (conf.voters, conf.voters_outgoing, conf.learners, conf.learners_next)]


@dataclass
class MoveTrace:
    """The lines of one group."""

    lines: list[str] = field(default_factory=list)
    first: ConfState | None = None
    """The members that it began with."""
    has: dict[int, int] = field(default_factory=dict)
    """By node: the end of its log on disk, where no line says so yet."""
    counted: tuple[int, int, int] | None = None
    """A leader, up to where it has counted a majority, and what it had applied: no line says so yet."""
    decided: int = 0
    """The index of the last change of the members that some replica has applied."""
    heeded: dict[int, int] = field(default_factory=dict)
    """By node: the last word that it is no member: the end of its leader's log."""

    def tell(self, *line: str | int) -> None:
        """Add a line, behind what is known of disks and majorities."""
        has, self.has, counted, self.counted = self.has, {}, self.counted, None
        for node, end in has.items():
            self._add("has", node, end)
        if counted is not None:
            self._add("commit", *counted)
        self._add(*line)

    def _add(self, name: str | int, *parts: str | int) -> None:
        self.lines.append(f'<<"{name}",' + ",".join(map(str, parts)) + ">>")


class Recorder:
    """Gathers the traces of all groups of a run."""

    def __init__(self) -> None:
        self.traces: dict[int, MoveTrace] = {}

    def trace(self, group: int) -> MoveTrace:
        """That of a group."""
        return self.traces.setdefault(group, MoveTrace())


def recorded_raft(recorder: Recorder) -> type[RawNode]:
    """A class of members that tell the recorder what changes of the members they propose and apply."""

    class RecordedRaft(RawNode):
        """Its group is told to it."""

        group: Any = None

        def propose_conf_change(self, change: Any) -> None:
            before = self.last_index
            super().propose_conf_change(change)
            log = self.raft.raft_log
            if self.last_index == before or log.slice(before + 1, before + 2, 1 << 30)[0].type == EntryType.NORMAL:
                return
            kinds: dict[int, set[int]] = {}
            for single in change.as_v2().changes:
                kinds.setdefault(single.type, set()).add(single.node_id)
            named = (ConfChangeType.ADD_NODE, ConfChangeType.ADD_LEARNER_NODE, ConfChangeType.REMOVE_NODE)
            recorder.trace(self.group.id).tell(
                "change", self.group.node, place(self.term, self.last_index), self.group.applied,
                *(_set(kinds.get(kind, ())) for kind in named),
            )  # fmt: skip

        def apply_conf_change(self, change: Any) -> ConfState:
            conf = super().apply_conf_change(change)
            trace, index = recorder.trace(self.group.id), self.group.applied + 1
            if index > trace.decided:
                trace.decided = index
                trace.tell("decide", place(self.term_at(index), index), *_members(conf))
            trace.tell("apply", self.group.node, index)
            return conf

    return RecordedRaft


def recorded_group(recorder: Recorder) -> type[Group]:
    """A class of groups that tell the recorder with what they begin, what they have, and for whom they vote."""

    class RecordedGroup(Group):
        """Its member of the group knows it."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            raw: Any = self.raw
            raw.group = self
            self.trace = recorder.trace(self.id)
            self.asked: dict[tuple[int, int], int] = {}
            """By term and candidate: the end of its log."""
            self.voted = (self.hard_state.term, self.hard_state.vote)
            self.known = self.raw.committed
            if self.trace.first is None and self.conf_state.voters:
                self.trace.first = self.conf_state
            if self.rebuild is not None:
                self.trace.tell("damaged", self.node, *self.voted)
            else:
                voters = _set(self.conf_state.voters)
                self.trace.tell("begin", self.node, *self.voted, self._end(), self.applied, voters, self.raw.committed)

        def _end(self) -> int:
            return place(self.log.term(self.log.last_index()), self.log.last_index())

        def step(self, message: RaftMessage, now_ms: int) -> None:
            if message.type == MessageType.VOTE:
                self.asked[message.term, message.from_] = place(message.log_term, message.index)
            super().step(message, now_ms)
            # Heartbeats tell it at once, though this node's own write is under way: others may be the majority.
            self._count()

        def collect(self) -> Any:
            self._count()
            return super().collect()

        def persisted(self) -> Any:
            self._count()
            writes = self.in_flight is not None
            messages = super().persisted()
            if writes:
                self._is_written()
            self._count()
            return messages

        def _is_written(self) -> None:
            vote = (self.hard_state.term, self.hard_state.vote)
            if vote[1] and vote != self.voted:
                self.voted = vote
                own = vote[1] == self.node
                self.trace.tell("vote", self.node, *vote, self._end() if own else self.asked[vote])
            if not self.rebuild:
                self.trace.has[self.node] = self._end()

        def _count(self) -> None:
            raw, known = self.raw, self.known
            self.known = raw.committed
            if raw.committed > known and self.leads and raw.term_at(raw.committed) == raw.term:
                self.trace.counted = (self.node, place(raw.term, raw.committed), self.applied)

        def _install(self, snapshot: Any) -> None:
            super()._install(snapshot)
            # Both at once: it never has the one log with the members of another. What others have told before stands
            # before them.
            self.trace.tell("apply", self.node, self.applied)
            self.trace.has[self.node] = self._end()

    return RecordedGroup


def recorded_replicas(recorder: Recorder) -> type[Replicas]:
    """A class of replicas that tell the recorder which of them are given up."""

    class RecordedReplicas(Replicas):
        """See there."""

        def _give_up(self, group: Group) -> None:
            trace = recorder.trace(group.id)
            trace.tell("give up", group.node, trace.heeded.get(group.node, 0))
            super()._give_up(group)

    return RecordedReplicas


def recorded_feeding(recorder: Recorder) -> type[Feeding]:
    """A class that notes which word of a leader a replica may be given up for."""

    class RecordedFeeding(Feeding):
        """See there."""

        def is_out(self, group: Group) -> bool:
            term = self.leader_of(group.id)[1]
            recorder.trace(group.id).heeded[group.node] = place(term, self._excluded_at.get(group.id, 0))
            return super().is_out(group)

    return RecordedFeeding


def recorded_moves(run: Callable[[], object]) -> list[tuple[int, MoveTrace]]:
    """What became of the replicas of all groups of a run. What is wrong with it is left to the specification to find,
    so a run that ends with an error is recorded up to there."""
    recorder = Recorder()
    with (
        patch.object(group_module, "RawNode", recorded_raft(recorder)),
        patch.object(replicas_module, "Group", recorded_group(recorder)),
        patch.object(host_module, "Replicas", recorded_replicas(recorder)),
        patch.object(host_module, "Feeding", recorded_feeding(recorder)),
        suppress(Exception),
    ):
        run()
    for trace in recorder.traces.values():
        trace.tell("end", 0)
    return [(group, trace) for group, trace in recorder.traces.items() if trace.first is not None]


def _run(seed: int) -> None:
    if seed < 0:
        scripted(seed)
    else:
        Simulation(draw_scenario(seed)).pass_time()


def move_module(name: str, seeds: Collection[int]) -> str:
    """A module `Recorded` with the runs of these seeds, one for each group; a seed below 0 is that of a
    script."""
    runs = []
    for seed in seeds:
        for group, trace in recorded_moves(partial(_run, seed)):
            assert trace.first is not None
            lines = ",\n".join(trace.lines)
            runs.append(
                f"\\* seed {seed}, group {group}\n[voters |-> {_set(trace.first.voters)}, "
                f"learners |-> {_set(trace.first.learners)}, lines |-> <<\n{lines}>>]"
            )
    return (
        f"---- MODULE {name} ----\nEXTENDS Naturals, Sequences\nTracedNode == 1..16\nIndices == {INDICES}\n"
        f"Runs == <<\n{(',' + chr(10)).join(runs)}\n>>\n====\n"
    )
