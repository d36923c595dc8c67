"""Says at the end of a run how much of the recorded behaviour was compared."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files = 0
    directives = 0
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "raft_directives":
                files += 1
                directives += int(str(value))
    if files:
        terminalreporter.write_line(f"Raft transcripts: {directives} directives in {files} files compared")
