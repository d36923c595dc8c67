"""Runs of whole simulated nodes, recorded and given to TLC with the specification of what their shards do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bugs.bug import ROOT, Bug, broken_source
from tests.bugs.group_bugs import GROUP_BUGS
from tests.bugs.queue_bugs import QUEUE_BUGS
from tests.bugs.start_bugs import START_BUGS
from tests.bugs.time_bugs import TIME_BUGS
from tests.specifications import tlc
from tests.specifications.raft_runs import LONGEST_S, SPECIFICATIONS
from tests.specifications.scripted_moves import SCRIPTS, VARIANTS


@dataclass(frozen=True, slots=True)
class Traced:
    """What is recorded of nodes, and what it is held against."""

    folder: str
    module: str
    about: str
    """For `record_nodes.py`."""

    @property
    def config(self) -> str:
        """Follows all lines."""
        return f"{self.module}.cfg"

    @property
    def refusals(self) -> str:
        """Tells the lines that are refused."""
        return f"{self.module}Refusals.cfg"


LEASES = Traced("lease", "LeaseTrace", "leases")
OUTBOXES = Traced("outbox", "OutboxTrace", "outboxes")
CLOCKS = Traced("clock", "ClockTrace", "clocks")
SESSIONS = Traced("session", "SessionTrace", "sessions")
MOVES = Traced("move", "MoveTrace", "moves")
WITH_FEEDS = (34, 41, 47, 58)
"""Seeds of whole clusters in which nodes have sessions with groups of which they have no replica."""
WITH_MOVES = (31, 34, 43, 45)
"""Seeds of whole clusters in which replicas move."""
SCRIPTED_MOVES = tuple(-number - VARIANTS * variant for variant in range(2) for number in range(1, len(SCRIPTS) + 1))
"""Two variants of each script."""


@dataclass(frozen=True, slots=True)
class BrokenNodes:
    """Runs of a broken source, and the line at which the specification refuses one of them."""

    traced: Traced
    bug: Bug
    seeds: tuple[int, ...]
    at: str

    def __str__(self) -> str:
        return self.bug.name


def _planted(bugs: Sequence[Bug], name: str) -> Bug:
    return next(bug for bug in bugs if bug.name == name)


def _own(name: str, path: str, before: str, after: str) -> Bug:
    """A bug for the specification alone."""
    return Bug(name, path, before, after, "", "")


def _script(number: int) -> tuple[int, ...]:
    """Some variants of a script (`scripted_moves.py`), as seeds."""
    return tuple(-number - VARIANTS * variant for variant in range(4))


_LEASE = "node/shard/lease.py"
BROKEN_LEASES = [
    BrokenNodes(LEASES, _planted(TIME_BUGS, "ends a lease without a second look"), (1, 2, 3), "end"),
    BrokenNodes(LEASES, _planted(TIME_BUGS, "charges an outage to leases"), (1,), "enter"),
    BrokenNodes(LEASES, _planted(TIME_BUGS, "ends leases by the wall clock"), (1,), "enter"),
    BrokenNodes(
        LEASES,
        _own(
            "a use does not begin the lease anew", _LEASE,
            "        self.epoch += 1\n        self.started_ms = led_ms\n", "        self.epoch += 1\n",
        ),
        (5, 6, 7, 8), "renew",
    ),
]  # fmt: skip

_DEAD_LETTERS, _OUTBOX = "node/shard/dead_letters.py", "node/shard/outbox.py"
BROKEN_OUTBOXES = [
    BrokenNodes(OUTBOXES, _planted(QUEUE_BUGS, "moves a dead letter twice"), (211, 216, 217, 221), "take"),
    BrokenNodes(
        OUTBOXES,
        _own("takes an item after a gap", _DEAD_LETTERS, "    if first_sequence > highest + 1:\n", "    if False:\n"),
        (101, 289), "take",
    ),
    BrokenNodes(
        OUTBOXES,
        _own(
            "a lane begins anew when it is empty", _OUTBOX, "        lane.first_sequence += count\n",
            "        lane.first_sequence = lane.first_sequence + count if items else 1\n",
        ),
        (1, 2), "put",
    ),
    BrokenNodes(
        OUTBOXES,
        _own(
            "forgets an item more than has arrived", _OUTBOX, "max(0, min(up_to + 1 - lane",
            "max(0, min(up_to + 2 - lane",
        ),
        (1, 2), "settle",
    ),
]  # fmt: skip

_CLOCK = "cluster/group/clock.py"
BROKEN_CLOCKS = [
    BrokenNodes(
        CLOCKS,
        _own(
            "a new leader uses its own clock", _CLOCK,
            "        if self._anchor_time_ms < 0:\n            is_known", "        if term:\n            is_known",
        ),
        (*range(9, 17),), "lead",
    ),
    BrokenNodes(CLOCKS, _planted(TIME_BUGS, "stamps by a clock that runs far ahead of the others"), (76,), "lead"),
    BrokenNodes(CLOCKS, _planted(TIME_BUGS, "resets a lease when the leader changes"), (*range(9, 17),), "lead"),
    BrokenNodes(CLOCKS, _planted(TIME_BUGS, "charges an outage to leases"), (10,), "lead"),
    BrokenNodes(CLOCKS, _planted(TIME_BUGS, "ends leases by the wall clock"), (10,), "stamp"),
    BrokenNodes(
        CLOCKS, _planted(TIME_BUGS, "continues the clock of a heartbeat that waited"),
        (*range(41, 45), *range(49, 53)), "lead",
    ),
]  # fmt: skip

_TABLE = "cluster/group/sessions.py"
_ADMITS = "            if not is_open(last_state) or sequence != last_sequence + 1:\n"
BROKEN_SESSIONS = [
    BrokenNodes(SESSIONS, _planted(GROUP_BUGS, "reuses a sequence number"), (*range(9, 17),), "batch"),
    BrokenNodes(
        SESSIONS,
        _own(
            "admits a batch after a gap", _TABLE, _ADMITS,
            "            if not is_open(last_state) or sequence <= last_sequence:\n",
        ),
        (37,), "batch",
    ),
    BrokenNodes(
        SESSIONS,
        _own(
            "admits a batch of a session that was closed", _TABLE, _ADMITS,
            "            if sequence != last_sequence + 1:\n",
        ),
        (47,), "batch",
    ),
    BrokenNodes(SESSIONS, _planted(GROUP_BUGS, "goes on in the session that was closed"), (47,), "anew"),
    BrokenNodes(SESSIONS, _planted(GROUP_BUGS, "goes on behind a hole"), (-1, -2, -3, -4), "told"),
]  # fmt: skip

BROKEN_MOVES = [
    BrokenNodes(MOVES, _planted(GROUP_BUGS, "elects as if it had never had what it gave up"), _script(1), "vote"),
    BrokenNodes(MOVES, _planted(GROUP_BUGS, "forgets its vote with its replica"), _script(2), "begin"),
    BrokenNodes(MOVES, _planted(GROUP_BUGS, "gives a replica up for an old word"), _script(3), "give up"),
    BrokenNodes(
        MOVES,
        _own(
            "gives a learner a vote before it has the log", "cluster/host/leadership.py",
            "if match == 0 or group.raw.last_index - match > CAUGHT_UP_ENTRIES:", "if False:",
        ),
        _script(4), "change",
    ),
    BrokenNodes(
        MOVES,
        _own(
            "moves votes without a look at who has caught up", "cluster/host/membership_steps.py",
            "    if not wanted - voting <= set(there) or 2 * len(there) <= len(voters):\n        return None\n", "",
        ),
        _script(4), "change",
    ),
    BrokenNodes(
        MOVES,
        _own(
            "changes the members while a change waits", "cluster/raft/leader.py",
            "raft.pending_conf_index = raft.raft_log.last_index() + position + 1", "raft.pending_conf_index = 0",
        ),
        _script(5), "change",
    ),
    BrokenNodes(
        MOVES,
        _own(
            "counts the new half of a joint configuration alone", "cluster/raft/tracker.py",
            "            majority_committed(self._incoming, acknowledged), "
            "majority_committed(self._outgoing, acknowledged)\n",
            "            majority_committed(self._incoming, acknowledged), 1 << 62\n",
        ),
        _script(6), "commit",
    ),
    BrokenNodes(
        MOVES, _planted(START_BUGS, "begins an added group once more that its node had given up"), _script(7), "begin"
    ),
    BrokenNodes(MOVES, _planted(START_BUGS, "begins an added shard for itself alone"), (34, 45), "begin"),
]  # fmt: skip

BROKEN_NODES = [*BROKEN_LEASES, *BROKEN_OUTBOXES, *BROKEN_CLOCKS, *BROKEN_SESSIONS, *BROKEN_MOVES]


def record(traced: Traced, seeds: Sequence[int], module: Path, source: Path = ROOT) -> None:
    """Write a module with these seeds, run with the sources of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    program = source / "tests" / "specifications" / "record_nodes.py"
    ran = subprocess.run(
        [sys.executable, "-P", program, traced.about, ",".join(map(str, seeds)), module],
        cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def judge(folder: Path, traced: Traced, seeds: Sequence[int]) -> tlc.Answer:
    """Record runs of the sources as they are, and follow each in the specification."""
    _prepare(folder, traced)
    record(traced, seeds, folder / "Recorded.tla")
    return tlc.check(folder, traced.module, traced.config, LONGEST_S)


def refusal(folder: Path, broken: BrokenNodes) -> list[tuple[int, str]]:
    """Record runs of a broken source: which of them, and at which action the specification refuses them."""
    _prepare(folder, broken.traced)
    source = folder / "source"
    source.mkdir()
    broken_source(broken.bug, source)
    record(broken.traced, broken.seeds, folder / "Recorded.tla", source)
    shutil.rmtree(source)
    answer = tlc.check(folder, broken.traced.module, broken.traced.refusals, LONGEST_S, ("-deadlock",))
    assert answer.is_complete or answer.violated, answer.last_lines
    told = [line.strip("<>").split(", ") for line in answer.told]
    found = [(int(run), action.strip('"')) for _, run, _, action in told]
    return found + ([(0, answer.violated)] if answer.violated else [])


def _prepare(folder: Path, traced: Traced) -> None:
    for file in (SPECIFICATIONS / traced.folder).iterdir():
        shutil.copy(file, folder)
