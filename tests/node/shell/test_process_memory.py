"""What the C library keeps of freed memory is given back. One heap for all threads is for good: in a process apart."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from mayfly.node.shell.process_memory import (
    BUSY_BYTES,
    FASTEST_BYTES_PER_S,
    FREE_AT_END_BYTES,
    FreedMemory,
    MemoryWatch,
    available_bytes,
    used_bytes,
)

ROOT = Path(__file__).resolve().parents[3]
MIB = 1024 * 1024

# A thread frees 64 MiB below a block that stays: glibc cannot shorten the heap by itself.
PROGRAM = """
import threading
from pathlib import Path
from mayfly.node.shell.process_memory import BUSY_BYTES, FreedMemory, share_one_heap

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
freed.look(BUSY_BYTES, 0)
freed.look(BUSY_BYTES, 0)
print(before - resident_kib())
"""

# The memory of the first hash goes back by itself; unless it is told otherwise, glibc keeps that of the next ones.
HASHES = """
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.shell.process_memory import share_one_heap, used_bytes

share_one_heap()
make_password_hash("secret", bytes(16))
before = used_bytes()
for _ in range(2):
    make_password_hash("secret", bytes(16))
print(used_bytes() - before)
"""

# After something large, glibc keeps twice as much at the end of the heap, unless it is told otherwise.
AT_THE_END = """
from mayfly.node.shell.process_memory import share_one_heap, used_bytes

share_one_heap()
b"x" * (16 << 20 | len(__name__))
before = used_bytes()
blocks = [b"x" * (400_000 | len(__name__)) for _ in range(75)]
most = used_bytes()
del blocks
print(most - before, used_bytes() - before)
"""

QUIETLY = """
from mayfly.node.shell.process_memory import FreedMemory, share_one_heap, used_bytes

share_one_heap()
freed = FreedMemory()
told = [freed.look(0, used_bytes())]
blocks = [b"x" * 60_000 for _ in range(400)]
kept = blocks[-1]
del blocks
before = used_bytes()
told += [freed.look(0, used_bytes()), freed.look(0, used_bytes()), freed.look(0, used_bytes())]
print(told, before - used_bytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40 * 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_logins_took_goes_back_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", HASHES], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_is_free_at_the_end_of_the_heap_goes_back_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", AT_THE_END], cwd=ROOT, capture_output=True, text=True, check=True)
    most_bytes, left_bytes = map(int, done.stdout.split())
    assert most_bytes > 24 * MIB
    assert left_bytes < FREE_AT_END_BYTES + MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_was_taken_for_a_moment_goes_back_without_a_busy_time() -> None:
    done = subprocess.run([sys.executable, "-c", QUIETLY], cwd=ROOT, capture_output=True, text=True, check=True)
    told, _, given_back_bytes = done.stdout.rpartition(" ")
    assert told == "[False, True, False, False]"
    assert int(given_back_bytes) > 12 * MIB


def test_growth_is_looked_at_from_the_least_that_was_used() -> None:
    freed = FreedMemory()
    used_bytes = [30 * MIB, 20 * MIB, 28 * MIB - 1, 28 * MIB, 28 * MIB, 36 * MIB - 1, 36 * MIB]
    assert [each for each, used in enumerate(used_bytes) if freed.look(0, used)] == [3, 6]


def test_nothing_is_given_back_while_it_is_busy() -> None:
    freed = FreedMemory()
    assert not any(freed.look(BUSY_BYTES * second, 20 * MIB * second) for second in range(1, 5))


def test_it_is_given_back_once_when_a_busy_time_is_over() -> None:
    freed = FreedMemory()
    written_bytes, given_back = 0, []
    for second, added_bytes in enumerate([0, BUSY_BYTES - 1, BUSY_BYTES, 9 * BUSY_BYTES, 1, 0, BUSY_BYTES, 0, 0]):
        written_bytes += added_bytes
        if freed.look(written_bytes, 0):
            given_back.append(second)
    assert given_back == [4, 7]


def group(folder: Path, **limits: str) -> Path:
    """A tree of control groups: file name -> content, with the folder before it."""
    for name, text in limits.items():
        where = folder / name.replace("__", "/").replace("_dot_", ".")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
    return folder


def test_what_a_process_may_use_is_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    proc = group(tmp_path / "proc", meminfo="MemFree: 5 kB\nMemTotal:       1000 kB\n", self__cgroup="0::/a/b\n")
    v2 = tmp_path / "v2"
    assert available_bytes(proc, v2) == 1_024_000
    group(v2, a__b__memory_dot_max="max\n", a__memory_dot_max="900000\n")
    assert available_bytes(proc, v2) == 900_000
    group(v2, a__b__memory_dot_max="800000\n")
    assert available_bytes(proc, v2) == 800_000
    old = group(tmp_path / "old", self__cgroup="4:cpu,memory:/x\n1:name=systemd:/x\n")
    v1 = group(tmp_path / "v1", memory__memory_dot_limit_in_bytes="700000\n")
    assert available_bytes(old, v1) == 700_000
    assert available_bytes(tmp_path / "none", v1) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_too_much_memory_is_told_until_it_is_clearly_less() -> None:
    before = used_bytes()
    assert before is not None
    # By more than the tenth that has to be free again, however large this process is by now.
    spare = 40 * MIB + before // 5
    watch = MemoryWatch(before + spare)
    assert watch.look() is None
    much = bytearray(b"x") * (spare + 20 * MIB)
    text = watch.look()
    assert text is not None
    assert f"the limit is {before + spare} (memory_limit_bytes)" in text
    del much
    assert watch.look() is None
    assert watch.rest_s <= (spare + before) / FASTEST_BYTES_PER_S
    much = bytearray(b"x") * (spare + 20 * MIB)
    assert watch.is_overrun() and watch.rest_s == 0
    del much
    never = MemoryWatch(0)
    assert never.rest_s == math.inf
    assert never.look() is None and never.used_bytes > 0
