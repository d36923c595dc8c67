"""What the C library keeps of freed memory is given back. One heap for all threads is for good: in a process apart."""

import subprocess
import sys
from pathlib import Path

import pytest

from node.process_memory import GIVE_BACK_AFTER_BYTES, FreedMemory

ROOT = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024

# A thread frees 64 MiB below a block that stays: glibc cannot shorten the heap by itself.
PROGRAM = """
import threading
from pathlib import Path
from node.process_memory import GIVE_BACK_AFTER_BYTES, FreedMemory, share_one_heap

def resident_kib():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

def use():
    blocks = [bytes(60_000) for _ in range(1100)]
    kept.append(blocks[-1])

share_one_heap()
kept = []
for _ in range(3):
    worker = threading.Thread(target=use)
    worker.start()
    worker.join()
before = resident_kib()
FreedMemory().give_back(GIVE_BACK_AFTER_BYTES)
print(before - resident_kib())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 * 1024


def test_it_is_looked_for_once_enough_was_written() -> None:
    freed = FreedMemory()
    assert not freed.give_back(GIVE_BACK_AFTER_BYTES - 1)
    assert freed.give_back(GIVE_BACK_AFTER_BYTES)
    assert not freed.give_back(2 * GIVE_BACK_AFTER_BYTES - 1)
    assert freed.give_back(2 * GIVE_BACK_AFTER_BYTES)
