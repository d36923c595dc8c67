"""What all tests share: which build is under test is said at the top of the run, what was compared at its end."""

import sys
from collections.abc import Generator
from pathlib import Path

# Behind what is installed: `tests`, `bench` and `simulation` are found here, the product where it was put.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import hypothesis
import pytest

import mayfly.cluster.transport  # before gRPC: it says what gRPC logs
from mayfly.node.shell.build import describe_version
from tests.large_comparisons import explained
from tests.second_look import name_what_passed_alone, pytest_addoption, pytest_sessionfinish

__all__ = ["pytest_addoption", "pytest_sessionfinish"]

# How long an example takes says how busy the machine is, and nothing about what is tested. The examples are the same in
# every run, so that what fails is what was changed; with `--hypothesis-profile explore` they are others, and many.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.register_profile(
    "explore", hypothesis.settings.get_profile("any machine"), derandomize=False, max_examples=500
)
# Whether something is wrong, and not what the simplest example of it is: for bugs made on purpose.
hypothesis.settings.register_profile(
    "first failure",
    hypothesis.settings.get_profile("any machine"),
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    report_multiple_bugs=False,
)
hypothesis.settings.load_profile("any machine")


def pytest_report_header() -> str:
    return f"mayfly {describe_version()}, from {Path(mayfly.__file__).parent.parent}"


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(
    op: str, left: object, right: object
) -> Generator[None, list[list[str]], list[list[str]]]:
    """Much data is not compared line by line. pytest asks its own hook whatever another has said, so that is given
    these lines to say."""
    lines = explained(op, left, right)
    with pytest.MonkeyPatch.context() as patch:
        if lines:
            patch.setattr("_pytest.assertion.util.assertrepr_compare", lambda **_: iter(lines))
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Says how much of the recorded behaviour of Raft was compared (counted by
    tests/cluster/raft/test_transcripts.py), in the last line of a run in which they were due.

    Here and not beside those tests: with workers, the process that reports loads the conftest of the root alone.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        name_what_passed_alone(config, reporter)
        line = transcripts_line(reporter)
        if line:
            reporter.write_line(line)


def transcripts_line(reporter: pytest.TerminalReporter) -> str:
    """What was compared, or why nothing was; empty when the transcripts were no part of the run."""
    counts = [
        int(str(value))
        for report in reporter.getreports("passed")
        for name, value in report.user_properties
        if name == "raft_directives"
    ]
    if counts:
        return f"Raft transcripts: {sum(counts)} directives in {len(counts)} files compared"
    for report in reporter.getreports("skipped"):
        if "test_transcripts.py" in report.nodeid and isinstance(report.longrepr, tuple):
            return str(report.longrepr[2]).removeprefix("Skipped: ")
    return ""
