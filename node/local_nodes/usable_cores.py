"""How many cores the processes of this host may use."""

import os
from pathlib import Path
from typing import Final

_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: Path = _CPU_MAX) -> int:
    """Those that this process may run on, or fewer where its control group is given less time (as in a container);
    at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        given = -(-int(quota) // int(period))
    except (OSError, ValueError):
        return allowed  # No control group, or one without a limit ("max").
    return max(1, min(allowed, given))
