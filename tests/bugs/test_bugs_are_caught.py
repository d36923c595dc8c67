"""The checks can fail: every bug beside this (`*_bugs.py`) is caught by the check it names, which passes without it.

A check runs in a process of its own, on a copy of the source tree with the bug in it, and hypothesis looks for no
simpler example of what is wrong. `make test` alone tries the first
bug of each kind, and whether the others' places are still there; THOROUGH=1 tries all.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mayfly.node.version import VERSION
from tests.bugs.amqp_bugs import AMQP_BUGS
from tests.bugs.brake_bugs import BRAKE_BUGS
from tests.bugs.bug import ROOT, Bug, broken_source, reused_source, with_bug
from tests.bugs.group_bugs import GROUP_BUGS
from tests.bugs.host_bugs import HOST_BUGS
from tests.bugs.http_bugs import HTTP_BUGS
from tests.bugs.log_bugs import LOG_BUGS
from tests.bugs.memory_bugs import MEMORY_BUGS
from tests.bugs.move_bugs import MOVE_BUGS
from tests.bugs.plan_bugs import PLAN_BUGS
from tests.bugs.queue_bugs import QUEUE_BUGS
from tests.bugs.raft_bugs import RAFT_BUGS
from tests.bugs.redrive_bugs import REDRIVE_BUGS
from tests.bugs.start_bugs import START_BUGS
from tests.bugs.stream_bugs import STREAM_BUGS
from tests.bugs.time_bugs import TIME_BUGS
from tests.bugs.transport_bugs import TRANSPORT_BUGS

KINDS = (
    RAFT_BUGS, GROUP_BUGS, LOG_BUGS, HOST_BUGS, TIME_BUGS, QUEUE_BUGS, AMQP_BUGS, HTTP_BUGS, MEMORY_BUGS, START_BUGS,
    TRANSPORT_BUGS, PLAN_BUGS, STREAM_BUGS, REDRIVE_BUGS, BRAKE_BUGS, MOVE_BUGS,
)  # fmt: skip
BUGS = [bug for kind in KINDS for bug in kind]
TRIED = [
    pytest.param(bug, id=bug.name, marks=() if bug is kind[0] else pytest.mark.slow) for kind in KINDS for bug in kind
]

TESTS_FAILED = 1
"""pytest's exit code when tests ran and failed; errors in collecting them have others."""

LONGEST_RUN_S = 900
"""Only a check that hangs takes so long: all of them in one process take 20 s of CPU."""

FOUND_BY_HOSTS = (
    "replays no hard state",
    "takes a torn record for a whole one",
    "carries on after a failed sync as if it had synced",
    "serves a damaged entry",
    "starts with a damaged vote",
    "frees an entry before it says why",
    "lets a replica with a damaged log take part",
    "lets answers leave before the write",
    "reuses a sequence number",
    "goes on in the session that was closed",
    "loses a session batch when the leader changes",
    "acknowledges entries before they are on disk",
    "forgets its vote at restart",
    "votes twice in a term",
)

FOUND_BY_WIDE = ("leaves an entry out when it goes on for another leader",)
"""Of the bugs in how nodes are told by others."""

LONGEST_SEARCH_S = 1800


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reused")
    reused_source(folder)
    return folder


def run(folder: Path, arguments: list[str], longest_s: int = LONGEST_RUN_S) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    # What pytest prints depends on these, and so what a check says.
    for name in ("PYTEST_ADDOPTS", "CI", "BUILD_NUMBER"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=longest_s,
    )  # fmt: skip


def run_checks(folder: Path, checks: list[str]) -> subprocess.CompletedProcess[str]:
    """The tests with these ids, with the sources of `folder`."""
    alone = ["-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile", "first failure"]
    return run(folder, ["-m", "pytest", *alone, *checks])


@pytest.mark.parametrize("bug", TRIED)
def test_a_bug_is_caught(bug: Bug, reused: Path) -> None:
    with with_bug(bug, reused):
        ran = run_checks(reused, [bug.check])
    assert ran.returncode == TESTS_FAILED, f"{bug} got past {bug.check}\n{ran.stdout}{ran.stderr}"
    assert f", from {reused}\n" in ran.stdout
    assert bug.says in ran.stdout, f"{bug} was caught for another reason than {bug.says!r}:\n{ran.stdout}"


def test_the_place_of_each_bug_is_there() -> None:
    for bug in BUGS:
        text = (ROOT / bug.path).read_text(encoding="utf-8")
        assert bug.in_text(text) != text, f"{bug} changes nothing"


@pytest.mark.slow
def test_without_a_bug_the_same_checks_pass(reused: Path) -> None:
    checks = list(dict.fromkeys(bug.check for bug in BUGS))
    ran = run_checks(reused, checks)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " failed" not in ran.stdout and " skipped" not in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("bug", RAFT_BUGS, ids=repr)
def test_the_simulator_finds_it_without_being_told_where_to_look(bug: Bug, tmp_path: Path) -> None:
    """Raft groups under chaos, held against figure 3 of the paper."""
    broken_source(bug, tmp_path)
    search(bug, tmp_path, "raft")


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in FOUND_BY_HOSTS], ids=repr)
def test_the_simulator_of_hosts_finds_it_without_being_told_where_to_look(bug: Bug, tmp_path: Path) -> None:
    """Whole hosts under chaos."""
    broken_source(bug, tmp_path)
    search(bug, tmp_path, "hosts")


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in FOUND_BY_WIDE], ids=repr)
def test_the_simulator_of_wide_clusters_finds_it_without_being_told_where_to_look(bug: Bug, tmp_path: Path) -> None:
    """Whole nodes, most of which are told by others."""
    broken_source(bug, tmp_path)
    search(bug, tmp_path, "wide")


def search(bug: Bug, folder: Path, simulator: str) -> None:
    """Run seeds until one finds the bug; the unbroken source passes far more."""
    for first in range(1, 161, 40):
        seeds = f"{first}:{first + 40}"
        ran = run(folder, ["-m", "simulation", simulator, "--seeds", seeds], LONGEST_SEARCH_S)
        assert "40 seeds, " in ran.stdout, ran.stdout + ran.stderr
        if ran.returncode == 1:
            return
    pytest.fail(f"{bug} got past 160 seeds of the simulator")


def test_a_bug_whose_place_has_gone_is_told(tmp_path: Path) -> None:
    gone = Bug("gone", "cluster/host/frame.py", "this text is not there", "", "", "")
    with pytest.raises(LookupError, match="write the bug anew"):
        broken_source(gone, tmp_path)


def test_a_bug_leaves_the_copy_in_which_it_was_as_it_had_been(tmp_path: Path) -> None:
    """Also for Python, which takes a text of the same length and second for the one that it knows."""
    reused_source(tmp_path)
    module = tmp_path / "node" / "version.py"
    text = module.read_text()
    other = VERSION.replace(VERSION[-1], "X")
    asks = ["-c", "from mayfly.node import version; print(version.VERSION, version.__file__)"]
    said = []
    for bug in (None, Bug("another version", "node/version.py", f'"{VERSION}"', f'"{other}"', "", ""), None):
        with with_bug(bug, tmp_path) if bug else contextlib.nullcontext():
            said.append(run(tmp_path, asks).stdout.split())
    there = str(tmp_path / "mayfly" / "node" / "version.py")
    assert said == [[VERSION, there], [other, there], [VERSION, there]]
    assert module.read_text() == text
