"""Threads of this process, which stand where RabbitMQ counts Erlang's processes. Linux; elsewhere nothing is known."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_STATE_AFTER: Final = b") "
"""In a thread's `stat` the state stands behind its name, in which anything may stand."""
_UNLIMITED: Final = "max"


class Threads(NamedTuple):
    """As they are at the moment."""

    used: int
    allowed: int | None
    """None where no limit is known."""
    waiting: int
    """Those that want a core beside the one that asks: they have one, or wait for it."""


def threads(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Threads | None:
    """None where that can't be known."""
    try:
        names = os.listdir(proc / "self" / "task")
    except OSError:
        return None
    states = [_state(proc / "self" / "task" / name / "stat") for name in names]
    return Threads(len(names), _allowed(proc, groups), max(0, states.count(b"R") - 1))


def _state(file: Path) -> bytes:
    """One letter; nothing of a thread that has ended meanwhile."""
    try:
        return file.read_bytes().rpartition(_STATE_AFTER)[2][:1]
    except OSError:
        return b""


def _allowed(proc: Path, groups: Path) -> int | None:
    """The lowest of the limits of the user, of the machine, and of the control group."""
    of_user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    found = [] if of_user == resource.RLIM_INFINITY else [of_user]
    for file in (proc / "sys" / "kernel" / "threads-max", groups / "pids.max"):
        with suppress(OSError, ValueError):
            text = file.read_text().strip()
            if text != _UNLIMITED:
                found.append(int(text))
    return min(found, default=None)
