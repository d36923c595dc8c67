"""What fails beside all other tests is tried once more, alone: `--second-look`.

Tests of real processes, sockets and time share the machine with each other and with whatever else runs there. What is
wrong fails again. What passes alone is a race of the test or of the product: it is shown with its failure, named in the
last line, and has to be looked into. What ended its process, was not collected, or is more than a few, counts at once.
"""

import subprocess
import sys
from collections.abc import Generator
from typing import Final

import pytest

MOST: Final = 3
"""So many tests are looked at again; where more fail, the machine is not why."""

PASSED_ALONE: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-look", action="store_true", help="try up to three tests that failed again, alone")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    yield
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not config.getoption("--second-look") or hasattr(config, "workerinput") or reporter is None:
        return
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reports = [*reporter.getreports("failed"), *reporter.getreports("error")]
    failed = list(dict.fromkeys(report.nodeid for report in reports))
    if len(failed) > MOST or any(report.when not in ("setup", "call", "teardown") for report in reports):
        return
    # `-P`: as the command `pytest` does, which has what is installed first on the path.
    command = [sys.executable, "-P", "-m", "pytest", *failed]
    again = subprocess.run(
        command, cwd=config.rootpath, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    reporter.write_line("")
    reporter.write_sep("=", "a second look, alone")
    reporter.write(again.stdout)
    if again.returncode == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.OK
        config.stash[PASSED_ALONE] = failed


def name_what_passed_alone(config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
    for nodeid in config.stash.get(PASSED_ALONE, []):
        reporter.write_line(f"FAILED BESIDE OTHERS, PASSED ALONE: {nodeid}", red=True)
