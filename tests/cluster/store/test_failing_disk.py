"""One call to the disk after the other fails with EIO, or no file can be opened for want of descriptors: the store says
so, and what it said was written is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.failing_disks import FailingDisks, why_impossible

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("call", ["write", "sync", "read", "open"])
def test_whatever_call_fails_what_was_written_is_there(call: str, tmp_path: Path) -> None:
    """Of opening, recording, moving, snapshots, releases and closing; once, or from then on for ever."""
    reason = why_impossible()
    if reason:
        pytest.skip(reason)
    disks = FailingDisks(tmp_path / "switches", lambda _: tmp_path / "disk")
    program = Path(__file__).with_name("failing_calls.py")
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    command = [*disks.words(1), f"PYTHONPATH={path}", sys.executable, "-P", str(program), call]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    print(last)
    assert int(last.split()[0]) > 20, "hardly any call has failed"
