"""What the C library keeps of freed memory is given back. One heap for all threads is for good: in a process apart."""

import subprocess
import sys
from pathlib import Path

import pytest

from node.process_memory import BUSY_BYTES, FreedMemory

ROOT = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024

# A thread frees 64 MiB below a block that stays: glibc cannot shorten the heap by itself.
PROGRAM = """
import threading
from pathlib import Path
from node.process_memory import BUSY_BYTES, FreedMemory, share_one_heap

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
freed = FreedMemory()
freed.look(BUSY_BYTES)
freed.look(BUSY_BYTES)
print(before - resident_kib())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 * 1024


def test_it_is_given_back_once_when_a_busy_time_is_over() -> None:
    freed = FreedMemory()
    written_bytes, given_back = 0, []
    for second, added_bytes in enumerate([0, BUSY_BYTES - 1, BUSY_BYTES, 9 * BUSY_BYTES, 1, 0, BUSY_BYTES, 0, 0]):
        written_bytes += added_bytes
        if freed.look(written_bytes):
            given_back.append(second)
    assert given_back == [4, 7]
