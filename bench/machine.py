"""This machine and its processes: what they use, what else runs, and one benchmark at a time."""

import datetime
import fcntl
import os
import platform
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK: Final = Path(os.environ.get("BENCH_LOCK", "/tmp/bench.lock"))
"""The lock that the scripts in ../shared/bench take as well."""
RUNNING: Final = Path(tempfile.gettempdir()) / "mayfly-bench.running"
"""Locked by the one benchmark that may run; says which that is."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Wait until no other benchmark measures on this machine, and keep others waiting meanwhile."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def only_benchmark() -> Iterator[None]:
    """Around a program that starts brokers: two of them would share ports, cores and the disk, and measure that. Ends
    the program when another one runs, and says which. SIGTERM is as Ctrl-C: what was started is ended."""
    with RUNNING.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "one that has just begun"
            sys.exit(f"another benchmark runs on this machine, and they would disturb each other: {holder} ({RUNNING})")
        began = f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} UTC"
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}, {shlex.join(sys.argv)}, since {began}\n")
        lock.flush()
        before = signal.signal(signal.SIGTERM, _end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
            lock.truncate(0)


def _end(*_: object) -> None:
    sys.exit("ended by SIGTERM")


def cpu_s(pid: int) -> float:
    """CPU that a process has used, in user and system mode, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, mapped files included."""
    return _status_bytes(pid, "VmRSS")


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, without mapped files: those pages are the system's to take back."""
    return _status_bytes(pid, "RssAnon")


def _status_bytes(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def machine_cpu_s() -> float:
    """CPU that the whole machine has used since it started."""
    user, nice, system, _idle, _waiting, interrupts, soft = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + interrupts + soft) / _TICKS_PER_S


class OtherCores:
    """Cores that processes other than these and this one use, from here on."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._began_s, self._before_s = time.monotonic(), self._others_cpu_s()

    def used(self) -> float:
        """Cores, on average until now."""
        return max(0.0, self._others_cpu_s() - self._before_s) / (time.monotonic() - self._began_s)

    def _others_cpu_s(self) -> float:
        own = os.times()
        return machine_cpu_s() - sum(map(cpu_s, self._pids)) - own.user - own.system


def describe_machine() -> str:
    """Processor, cores, memory, system, Python."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"{os.cpu_count()} cores ({model}), {memory_bytes / 2**30:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def load_average() -> str:
    """Of the last one and five minutes."""
    return ", ".join(f"{value:.2f}" for value in os.getloadavg()[:2])
