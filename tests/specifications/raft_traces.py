"""Runs of Raft groups as `specifications/raft/RaftTrace.tla` reads them: each step in the words of the specification.

Nothing is judged here. A step is split into the actions that it claims to be (a message of a higher term is heard,
then taken), and what nobody will ever look at is left out: heartbeats without effect, messages that are never taken.
TLC says whether each action was allowed, and whether it leads to what the code had in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from mayfly.cluster.raft import (
    ConfState,
    Entry,
    EntryType,
    MessageType,
    RaftMessage,
    RecordedStep,
    StateType,
)
from simulation.cluster.raft_group import RaftGroup
from simulation.cluster.raft_scenario import RaftScenario

_POSITION = struct.Struct(">QQ")
USES = ("hear", "count", "grant", "learn", "take", "accepted")
"""Lines that take a message: <<name, node, message, whether it may come again>>."""


class EnoughRecorded(Exception):
    """The trace is as long as it was to be; the run is not needed any more."""


def recorded_steps(scenario: RaftScenario, most: int) -> list[RecordedStep]:
    """The first `most` steps of a run. What is wrong with it is left to the specification to find, so a run that ends
    with an error is recorded up to there."""
    steps: list[RecordedStep] = []

    def record(step: RecordedStep) -> None:
        steps.append(step)
        if len(steps) >= most:
            raise EnoughRecorded

    with suppress(Exception):
        RaftGroup(scenario, record=record).pass_time()
    return steps


@dataclass
class Line:
    """An action: its name, the node, and what it is about."""

    name: str
    node: int
    text: str = ""
    """All other arguments, as TLA+ writes them."""
    message: int = 0
    """What is taken or promised."""
    messages: list[int] = field(default_factory=list)
    """What is said, or is in the promises of a write."""


@dataclass
class _Member:
    """What is remembered of a member from step to step."""

    role: int = StateType.FOLLOWER
    term: int = 0
    applied: int = 0
    matched: dict[int, int] = field(default_factory=dict)
    promised: list[RaftMessage] = field(default_factory=list)
    written: tuple[int, ...] = ()
    writing: list[RaftMessage] | None = None


class TracedRun:
    """One run: its messages and configurations by number, and its lines."""

    def __init__(self, steps: list[RecordedStep], pre_vote: bool, name: str) -> None:
        self.name = name
        self.pre_vote = pre_vote
        self.nodes = 1 + max((step.node for step in steps), default=1)
        self.lines: list[Line] = []
        self._messages: dict[str, int] = {}
        self._configurations: dict[str, int] = {}
        self._values: dict[bytes, int] = {b"": 0}
        self._reads: dict[bytes, int] = {}
        self._members: dict[int, _Member] = {}
        if steps and steps[0].members is not None:
            self._configuration(steps[0].members)
        self._changes: dict[tuple[int, int], int] = {}
        for step in steps:
            if step.what == "apply_conf_change" and step.members is not None:
                entry = step.entries[0]
                self._changes[entry.term, entry.index] = self._configuration(step.members)
        started = False
        for step in steps:
            # All start from the first state of the specification at the beginning of a run.
            started = started or step.what != "start"
            self._add_step(step, started)

    # Things by number.

    def _configuration(self, members: ConfState) -> int:
        text = (
            f"[voters |-> {_set(sorted(members.voters))}, outgoing |-> {_set(sorted(members.voters_outgoing))}, "
            f"learners |-> {_set(sorted(members.learners))}]"
        )
        return self._configurations.setdefault(text, len(self._configurations) + 1)

    def _entry(self, entry: Entry) -> str:
        value = self._values.setdefault(entry.data, len(self._values))
        change = 0 if entry.type == EntryType.NORMAL else self._changes.get((entry.term, entry.index), 0)
        return f"<<{entry.term},{value},{change}>>"

    def _entries(self, entries: list[Entry]) -> str:
        return f"<<{','.join(map(self._entry, entries))}>>"

    def _message(self, message: RaftMessage) -> int:
        text = (
            f'[type |-> "{kind_of(message)}", from |-> {message.from_}, to |-> {message.to}, term |-> {message.term}'
            f"{self._content(message)}]"
        )
        return self._messages.setdefault(text, len(self._messages) + 1)

    def _content(self, message: RaftMessage) -> str:
        kind = kind_of(message)
        if kind in ("vote", "prevote"):
            return f", last |-> {message.index}, lastTerm |-> {message.log_term}"
        if kind == "refuse":
            index, term = _POSITION.unpack(message.context)
            return f", commit |-> {index}, commitTerm |-> {term}"
        if kind == "append":
            return (
                f", prev |-> {message.index}, prevTerm |-> {message.log_term}, commit |-> {message.commit}, "
                f"entries |-> {self._entries(message.entries)}"
            )
        if kind == "accept":
            return f", index |-> {message.index}"
        if kind == "beat":
            return f", commit |-> {message.commit}"
        if kind == "snapshot" and message.snapshot is not None:
            metadata = message.snapshot.metadata
            return (
                f", index |-> {metadata.index}, indexTerm |-> {metadata.term}, "
                f"conf |-> {self._configuration(metadata.conf_state)}"
            )
        return ""

    # Steps as lines.

    def _add(self, name: str, node: int, text: str = "") -> None:
        self.lines.append(Line(name, node, text))

    def _add_use(self, name: str, node: int, message: RaftMessage) -> None:
        self.lines.append(Line(name, node, message=self._message(message)))

    def _add_step(self, step: RecordedStep, started: bool) -> None:
        node = step.node
        member = self._members.setdefault(node, _Member())
        if step.what == "start":
            member = self._members[node] = _Member(written=_stored(step))
            if started:
                self._add("restart", node, f",{step.after.applied},{step.after.commit}")
                self._add_standing(step)
            self._remember(member, step)
            return
        if step.what == "resign":
            self._add_sayings(step)
        if step.what == "advance":
            self._add_written(member, step)
        if step.message is not None and step.what != "advance":
            self._add_message(member, step, step.message)
        if step.what == "apply_conf_change":
            self._add("apply", node, f",{step.entries[0].index}")
            member.applied = step.entries[0].index
        self._add_passages(member, step)
        if step.message is not None and step.what == "advance":
            self._add_message(member, step, step.message)
        self._add_rest(member, step)
        self._remember(member, step)

    def _remember(self, member: _Member, step: RecordedStep) -> None:
        member.role, member.term = step.after.role, step.after.term
        member.applied = max(member.applied, step.after.applied)

    def _add_message(self, member: _Member, step: RecordedStep, message: RaftMessage) -> None:
        """What a message did: it was heard of a term, and it was taken."""
        node, after, kind = step.node, step.after, kind_of(message)
        if message.term > member.term and kind not in ("prevote", "pregrant") and after.term >= message.term:
            self._add_use("hear", node, message)
            member.term, member.role = message.term, StateType.FOLLOWER
            member.matched = {}
        if message.term != member.term and kind != "pregrant":
            return
        changed = after.commit != step.before.commit or after.last_index != step.before.last_index
        changed = changed or after.last_term != step.before.last_term
        accepts = any(kind_of(each) == "accept" and each.to == message.from_ for each in step.promised)
        if kind == "append" and accepts:
            self._add_use("take", node, message)
            member.role = StateType.FOLLOWER
        elif kind == "snapshot" and step.what != "hold" and (changed or member.role != after.role):
            self._add_use("take", node, message)
            member.role = StateType.FOLLOWER
            if step.members is not None:
                member.applied = after.commit
        elif kind in ("append", "beat") and (changed or member.role != after.role):
            self._add_use("take", node, message)
            member.role = StateType.FOLLOWER
        elif kind == "accept" and member.role == StateType.LEADER:
            self._add_accepted(member, node, message)
        elif kind == "vote":
            if any(kind_of(each) == "grant" and each.to == message.from_ for each in [*step.promised, *step.said]):
                self._add_use("grant", node, message)
        elif (kind == "grant" and member.role == StateType.CANDIDATE) or (
            kind == "pregrant" and member.role == StateType.PRE_CANDIDATE and message.term == member.term + 1
        ):
            self._add_use("count", node, message)
        elif kind == "refuse" and changed:
            self._add_use("learn", node, message)

    def _add_accepted(self, member: _Member, node: int, message: RaftMessage) -> None:
        if message.index > member.matched.get(message.from_, 0):
            member.matched[message.from_] = message.index
            self._add_use("accepted", node, message)

    def _add_written(self, member: _Member, step: RecordedStep) -> None:
        """The end of a write: promises leave, and the own ones are heard."""
        if member.writing is None:
            return
        promises = [self._message(each) for each in member.writing if kind_of(each) in ("grant", "accept")]
        self.lines.append(Line("written", step.node, messages=promises))
        for own in member.writing:
            if own.to != step.node or own.term != member.term:
                continue
            if kind_of(own) == "grant" and member.role == StateType.CANDIDATE:
                self._add_use("count", step.node, own)
            elif kind_of(own) == "accept" and member.role == StateType.LEADER:
                self._add_accepted(member, step.node, own)
        member.writing = None

    def _add_passages(self, member: _Member, step: RecordedStep) -> None:
        """From one role to another, and what a leader appends."""
        node, after = step.node, step.after
        own = [each for each in step.promised if each.to == node]
        if any(each.type == MessageType.PRE_VOTE_RESP for each in own):
            self._add("ask", node)
            member.role = StateType.PRE_CANDIDATE
        if any(each.type == MessageType.VOTE_RESP for each in own):
            asked = step.message is not None and step.message.type == MessageType.TIMEOUT_NOW
            why = "asked" if asked else "prevotes" if member.role == StateType.PRE_CANDIDATE else "timeout"
            self._add("stand", node, f',"{why}"')
            member.role, member.term = StateType.CANDIDATE, after.term
        entries = step.entries if step.what != "apply_conf_change" else []
        if after.role == StateType.LEADER and member.role != StateType.LEADER:
            self._add("lead", node)
            member.role, member.matched = StateType.LEADER, {}
            entries = entries[1:]
        if after.role == StateType.FOLLOWER and member.role != StateType.FOLLOWER and after.term == member.term:
            self._add("down", node)
            member.role, member.matched = StateType.FOLLOWER, {}
        if after.applied > member.applied:
            self._add("apply", node, f",{after.applied}")
            member.applied = after.applied
        if entries:
            self._add("propose", node, f",{self._entries(entries)}")
        if after.role == StateType.LEADER and after.commit > step.before.commit:
            self._add("commit", node, f",{after.commit}")

    def _add_rest(self, member: _Member, step: RecordedStep) -> None:
        """What was said and promised, a write that begins, reads, and what the member is now."""
        node = step.node
        if step.what != "resign":
            self._add_sayings(step)
        for message in step.promised:
            if message.to != node and kind_of(message) in ("grant", "accept"):
                self.lines.append(Line("promise", node, message=self._message(message)))
            elif message.to != node:
                self._add_saying(node, [message])
        member.promised += step.promised
        if step.what == "ready":
            if member.promised or _stored(step) != member.written:
                self._add("write", node)
                member.written = _stored(step)
                member.writing, member.promised = member.promised, []
            for context, index in step.context:
                self._add("answer", node, f",{self._reads[context]},{index}")
        if step.what == "read_index":
            for context, _ in step.context:
                self._reads[context] = len(self._reads) + 1
                self._add("read", node)
        if step.after != step.before or step.members is not None:
            self._add_standing(step)

    def _add_sayings(self, step: RecordedStep) -> None:
        self._add_saying(step.node, step.said)

    def _add_saying(self, node: int, messages: list[RaftMessage]) -> None:
        numbers = [self._message(each) for each in messages if each.term]
        if numbers:
            self.lines.append(Line("say", node, messages=numbers))

    def _add_standing(self, step: RecordedStep) -> None:
        after = step.after
        members = 0 if step.members is None else self._configuration(step.members)
        self._add(
            "is",
            step.node,
            f",<<{after.role},{after.term},{after.vote},{after.commit},{after.last_index},{after.last_term},"
            f"{after.applied},{members}>>",
        )

    # As TLA+.

    def lines_as_text(self) -> Iterator[str]:
        """Each line as a tuple. Messages that are not taken later are lost as soon as they are said."""
        uses: dict[int, int] = {}
        for place, line in enumerate(self.lines):
            if line.name in USES or line.name == "stand":
                uses[line.message] = place
        idle = {number for text, number in self._messages.items() if '"other"' in text or '"pregrant"' in text}
        kept = {number for text, number in self._messages.items() if '"hurry"' in text}
        for place, line in enumerate(self.lines):
            text = line.text
            if line.name in USES:
                text = f",{line.message},{_truth(uses[line.message] > place)}"
            elif line.name == "promise":
                text = f",{line.message}"
            elif line.name == "written":
                text = f",{_set(sorted(each for each in set(line.messages) if uses.get(each, 0) > place))}"
            elif line.name == "say":
                wanted = {each for each in line.messages if uses.get(each, 0) > place or each in kept}
                said = sorted(each for each in set(line.messages) if each in wanted or each not in idle)
                if not said:
                    continue
                text = f",{_set(said)},{_set([each for each in said if each not in wanted])}"
            yield f'<<"{line.name}",{line.node}{text}>>'

    def as_text(self, prefix: str) -> str:
        """The definition `<prefix>Run`, and its parts."""
        return "\n".join([
            _sequence(f"{prefix}L", list(self.lines_as_text())),
            _sequence(f"{prefix}M", list(self._messages)),
            f"\\* {self.name}",
            f"{prefix}Run == [settings |-> [prevote |-> {_truth(self.pre_vote)},",
            f"  configurations |-> <<{', '.join(self._configurations)}>>],",
            f"  messages |-> {prefix}M, lines |-> {prefix}L]",
        ])  # fmt: skip


def kind_of(message: RaftMessage) -> str:
    """What the specification calls it."""
    kind = message.type
    if kind == MessageType.VOTE_RESP or kind == MessageType.PRE_VOTE_RESP:
        if message.reject:
            return "refuse" if len(message.context) == _POSITION.size else "other"
        return "grant" if kind == MessageType.VOTE_RESP else "pregrant"
    if kind == MessageType.APP_RESP:
        return "accept" if not message.reject and message.index > 0 else "other"
    return {
        MessageType.VOTE: "vote",
        MessageType.PRE_VOTE: "prevote",
        MessageType.APP: "append",
        MessageType.SNAP: "snapshot",
        MessageType.HEARTBEAT: "beat",
        MessageType.TIMEOUT_NOW: "hurry",
    }.get(kind, "other")


def module_of(runs: list[TracedRun], name: str) -> str:
    """A module with these runs, as `<name>_Runs`."""
    body = "\n".join(run.as_text(f"{name}_{number}_") for number, run in enumerate(runs, 1))
    names = ", ".join(f"{name}_{number}_Run" for number in range(1, len(runs) + 1))
    return f"---- MODULE {name} ----\nEXTENDS Naturals, Sequences\n{body}\n{name}_Runs == <<{names}>>\n====\n"


def recorded_module(names: list[str], most_nodes: int) -> str:
    """The module `Recorded`, of the runs in these modules."""
    runs = " \\o ".join(f"{name}_Runs" for name in names)
    return (
        f"---- MODULE Recorded ----\nEXTENDS Naturals, Sequences, {', '.join(names)}\n"
        f"TracedNode == 1..{most_nodes}\nRuns == {runs}\n====\n"
    )


def _sequence(name: str, items: list[str]) -> str:
    """A long sequence in pieces, for the parser."""
    pieces = [items[start : start + 500] for start in range(0, len(items), 500)]
    text = "\n".join(
        f"{name}_{place} == <<\n{(',' + chr(10)).join(piece)}>>" for place, piece in enumerate(pieces)
    )
    whole = " \\o ".join(f"{name}_{place}" for place in range(len(pieces))) or "<<>>"
    return f"{text}\n{name} == {whole}"


def _set(items: list[int]) -> str:
    return "{" + ",".join(map(str, items)) + "}"


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _stored(step: RecordedStep) -> tuple[int, ...]:
    after = step.after
    return after.term, after.vote, after.commit, after.last_index, after.last_term
