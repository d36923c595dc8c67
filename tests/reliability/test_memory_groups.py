"""Who is killed where memory gets short."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.memory_groups import MemoryGroups, why_impossible
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

_SMALL_WITH_FILES = """
import sys, time
with open(sys.argv[1], "wb") as file:
    for _ in range(128):
        file.write(bytes(1 << 20))
print("written", flush=True)
time.sleep(1000)
"""


def test_the_node_goes_first_however_small_it_is(tmp_path: Path) -> None:
    """What it has in the page cache is given to the other process, which so becomes the larger one."""
    reason = why_impossible()
    if reason:
        pytest.skip(reason)
    groups = MemoryGroups([1])
    try:
        words = [*groups.words(1), sys.executable, "-c", _SMALL_WITH_FILES, str(tmp_path / "pages")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as small:
            try:
                assert small.stdout is not None and small.stdout.readline() == b"written\n"
                with groups.shortage(1):
                    wait_for(lambda: small.poll() is not None, "the end of the small process")
                assert small.returncode == -signal.SIGKILL and groups.kills(1) > 0
            finally:
                small.kill()
    finally:
        groups.close()
