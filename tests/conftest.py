"""What all tests share: which build is under test is said at the top of the run, what was compared at its end."""

from pathlib import Path

import pytest

import node
from node.build import describe_version


def pytest_report_header() -> str:
    return f"mayfly {describe_version()}, from {Path(node.__file__).parent.parent}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how much of the recorded behaviour of Raft was compared (counted by tests/raft/test_transcripts.py).

    Here and not beside those tests: with workers, the process that reports loads the conftest of the root alone.
    """
    files = 0
    directives = 0
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "raft_directives":
                files += 1
                directives += int(str(value))
    if files:
        terminalreporter.write_line(f"Raft transcripts: {directives} directives in {files} files compared")
