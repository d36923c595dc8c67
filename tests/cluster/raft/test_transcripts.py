"""The core against the recorded behaviour of etcd's Raft (shared/raft-transcripts).

Compared is every directive's whole answer: messages, contents of each Ready, hard and soft state, progress,
logs, errors. Left out are only the recorder's log lines (DEBUG, INFO, ...), which are its own wording.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from mayfly.cluster.raft import ConfChangeError, ConfChangeSingle
from mayfly.cluster.raft.membership import ConfigurationChange, ProgressLimits
from mayfly.cluster.raft.messages import NO_LIMIT
from mayfly.cluster.raft.progress import Progress
from mayfly.cluster.raft.quorum import VoteResult, joint_committed, joint_vote, majority_committed, majority_vote
from mayfly.cluster.raft.tracker import Configuration, empty_configuration
from tests.cluster.raft.datadriven import Directive, read_transcript, transcript_folder, transcripts
from tests.cluster.raft.notation import describe_all_progress, describe_configuration, parse_changes
from tests.cluster.raft.transcript_group import TranscriptGroup

# Files of `interaction` that are known not to match, and why. Strict: one that matches must leave the table.
DIFFERENT: dict[str, str] = {}

EXPECTED_FILES = {"quorum": 4, "confchange": 9, "interaction": 28}
EXPECTED_DIRECTIVES = {"quorum": 127, "confchange": 58, "interaction": 558}

LOG_LEVELS = ("DEBUG ", "INFO ", "WARN ", "ERROR ", "FATAL ")

# How the recordings word the reasons against a membership change.
REFUSALS = {
    ConfChangeError.ALREADY_JOINT: "config is already joint",
    ConfChangeError.NOT_JOINT: "can't leave a non-joint config",
    ConfChangeError.EMPTY_GROUP: "can't make a zero-voter config joint",
    ConfChangeError.SIMPLE_IN_JOINT: "can't apply simple config change in joint config",
    ConfChangeError.NO_VOTERS_LEFT: "removed all voters",
    ConfChangeError.TOO_MANY_VOTERS_CHANGED: "more than one voter changed without entering joint config",
}

VOTE_RESULTS = {
    VoteResult.PENDING: "VotePending",
    VoteResult.LOST: "VoteLost",
    VoteResult.WON: "VoteWon",
}

Answer = Callable[[Directive], list[str]]
Recorder = Callable[[str, object], None]


def cases(part: str) -> list[object]:
    """One case per file, or a single one that is skipped with the reason."""
    found = transcripts(part)
    if not found:
        missing = pytest.mark.skip(reason=missing_transcripts())
        return [pytest.param(Path(), id="missing", marks=missing)]
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.xfail(strict=True, reason=DIFFERENT[path.stem])]
            if path.stem in DIFFERENT
            else [],
        )
        for path in found
    ]


def missing_transcripts() -> str:
    return (
        f"Raft transcripts: nothing compared, {transcript_folder()} is missing (MAYFLY_SHARED says where the folder "
        "`shared` is)"
    )


def without_log_lines(lines: list[str]) -> list[str]:
    """What is left when the recorder's log lines go, and the `ok` that stands for nothing."""
    kept = [line for line in lines if not line.lstrip().startswith(LOG_LEVELS)]
    return [] if kept == ["ok"] else kept


def compare(path: Path, answer: Answer, record: Recorder) -> None:
    """Hold every directive's answer against the recording, and count them for the summary."""
    count = 0
    for directive in read_transcript(path):
        answered = without_log_lines(answer(directive))
        expected = without_log_lines(directive.expected.split("\n") if directive.expected else [])
        assert answered == expected, f"{path.name}, {directive}"
        count += 1
    assert count
    record("raft_directives", count)


@pytest.mark.parametrize("part", EXPECTED_FILES)
def test_all_files_are_there_with_all_their_directives(part: str) -> None:
    if not transcript_folder().is_dir():
        pytest.skip(missing_transcripts())
    files = transcripts(part)
    assert len(files) == EXPECTED_FILES[part]
    assert sum(len(read_transcript(path)) for path in files) == EXPECTED_DIRECTIVES[part]


@pytest.mark.parametrize("path", cases("interaction"))
def test_interaction(path: Path, record_property: Recorder) -> None:
    compare(path, TranscriptGroup().answer, record_property)


# Membership changes.


class TranscriptMembership:
    """Obeys the directives of the `confchange` transcripts."""

    def __init__(self) -> None:
        self.configuration: Configuration = empty_configuration()
        self.progress: dict[int, Progress] = {}
        self.last_index = 0

    def answer(self, directive: Directive) -> list[str]:
        change = ConfigurationChange(self.configuration, self.progress, self.last_index, ProgressLimits(10, NO_LIMIT))
        self.last_index += 1
        try:
            self.make(change, directive, parse_changes(directive.given))
            self.configuration, self.progress = change.result()
        except ConfChangeError as error:
            return [REFUSALS[error.reason]]
        return [describe_configuration(self.configuration), *describe_all_progress(self.progress)]

    def make(self, change: ConfigurationChange, directive: Directive, changes: list[ConfChangeSingle]) -> None:
        if directive.command == "simple":
            change.simple(changes)
        elif directive.command == "enter-joint":
            change.enter_joint(directive.flag("autoleave"), changes)
        else:
            assert directive.command == "leave-joint"
            change.leave_joint()


@pytest.mark.parametrize("path", cases("confchange"))
def test_membership(path: Path, record_property: Recorder) -> None:
    compare(path, TranscriptMembership().answer, record_property)


# Quorums.


def answer_quorum(directive: Directive) -> list[str]:
    incoming = {int(value) for value in directive.values("cfg")}
    is_joint = bool(directive.values("cfgj"))
    outgoing = {int(value) for value in directive.values("cfgj") if value != "zero"}
    # Values belong to the voters in the order in which they are first named.
    named = [*directive.values("cfg"), *(value for value in directive.values("cfgj") if value != "zero")]
    voters = [int(value) for value in dict.fromkeys(named)]
    given = directive.values("idx" if directive.command == "committed" else "votes")
    if len(given) != len(voters):
        shown = " ".join(value.replace("_", "0") for value in given)
        return [
            f"error: mismatched input (explicit or _) for voters {show_ids(set(voters))}: [{shown}]"
        ]
    known = {voter: value for voter, value in zip(voters, given, strict=True) if value != "_"}
    if directive.command == "committed":
        return committed_lines(incoming, outgoing, is_joint, {voter: int(known[voter]) for voter in known})
    votes = {voter: known[voter] == "y" for voter in known}
    result = joint_vote(incoming, outgoing, votes)
    assert result == joint_vote(outgoing, incoming, votes)
    if not is_joint:
        assert result == majority_vote(incoming, votes)
    return [VOTE_RESULTS[result]]


def show_ids(ids: set[int]) -> str:
    return "map[" + " ".join(f"{voter}:{{}}" for voter in sorted(ids)) + "]"


def committed_lines(
    incoming: set[int], outgoing: set[int], is_joint: bool, known: dict[int, int]
) -> list[str]:
    index = joint_committed(incoming, outgoing, known)
    assert index == joint_committed(outgoing, incoming, known)
    if not is_joint:
        assert index == majority_committed(incoming, known)
        assert index == joint_committed(incoming, incoming, known)
        # Whoever is above the outcome decides nothing by how far.
        for voter, own in known.items():
            if own > index:
                assert index == majority_committed(incoming, known | {voter: own - 1}) or own - 1 < index
    lines = draw_indices(incoming | outgoing, known)
    shown = "∞" if index == NO_LIMIT else str(index)
    if not incoming | outgoing:
        return [lines[0] + shown]
    return [*lines, shown]


def draw_indices(voters: set[int], known: dict[int, int]) -> list[str]:
    """A bar per voter, as long as there are voters with lower indices."""
    if not voters:
        return ["<empty majority quorum>"]
    width = len(voters)
    by_index = sorted(voters, key=lambda voter: (known.get(voter, 0), voter))
    bars: dict[int, int] = {}
    for position, voter in enumerate(by_index):
        before = by_index[position - 1] if position else voter
        level = known.get(before, 0) == known.get(voter, 0)
        bars[voter] = bars.get(before, 0) if level else position
    lines = [" " * width + "    idx"]
    for voter in sorted(voters):
        if voter in known:
            bar = "x" * bars[voter] + ">" + " " * (width - bars[voter])
        else:
            bar = "?" + " " * width
        lines.append(f"{bar} {known.get(voter, 0):5d}    (id={voter:x})")
    return lines


@pytest.mark.parametrize("path", cases("quorum"))
def test_quorum(path: Path, record_property: Recorder) -> None:
    compare(path, answer_quorum, record_property)
