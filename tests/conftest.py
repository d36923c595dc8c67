"""What all tests share: which build is under test is said at the top of the run."""

from pathlib import Path

import node
from node.build import describe_version


def pytest_report_header() -> str:
    return f"mayfly {describe_version()}, from {Path(node.__file__).parent.parent}"
