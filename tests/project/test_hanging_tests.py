"""A test that hangs is ended and named, and the other tests run."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.waiting import BOUND_S

ROOT: Final = Path(__file__).resolve().parents[2]

# A function of C that is called through PyDLL keeps the interpreter's lock.
HANGING: Final = """
import ctypes
import pytest

@pytest.mark.parametrize("number", range(40))
def test_it(number):
    if number == 5:
        ctypes.PyDLL(None).sleep(600)
"""


# Much longer than any of the other tests takes, however busy the machine is: one that is ended as well would count.
HANGS_AFTER_S: Final = 20


def test_a_test_that_holds_the_interpreter_s_lock_is_ended_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING, encoding="utf-8")
    configuration = tmp_path / "pyproject.toml"
    configuration.write_bytes((ROOT / "pyproject.toml").read_bytes())
    options = ["-n", "2", "--dist", "worksteal", "-q", "-c", str(configuration)]
    options += ["-o", f"faulthandler_timeout={HANGS_AFTER_S}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_hanging.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * BOUND_S,
        check=False,
    )
    assert "crashed while running 'test_hanging.py::test_it[5]'" in run.stdout, run.stdout + run.stderr
    assert "1 failed, 39 passed" in run.stdout
    assert "in test_it" in run.stderr, "where it hung is not shown"
