"""The process clock: wall time that nobody can step.

The wall clock is read once, when the first process of a node starts after the machine did; from then on only elapsed
time counts. `CLOCK_BOOTTIME` goes on while the machine is suspended, so a message's deadline is not put off by a nap of
the machine, and while no process of the node runs: what was read is kept in the data folder, and a process that starts
on the same boot goes on with it. So an outage of all nodes is as long as it was, however clocks were set meanwhile
(RULES T14).
"""

import logging
import time
from pathlib import Path
from typing import Final

from mayfly.node.shell.data_folder import DataFolder

TOLD_MS: Final = 1_000
"""A wall clock that was set by more than this since is worth a word."""

_ELAPSED_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE: Final = Path("/proc/self/ns/time")
log = logging.getLogger(__name__)


class ProcessClock:
    """Milliseconds since 1970: what the wall clock said once, plus the time that has passed since."""

    def __init__(self, origin_ns: int | None = None) -> None:
        """`origin_ns` is that of an earlier clock of the same boot, to go on with; None: read the wall clock."""
        self.origin_ns: int = time.time_ns() - _elapsed_ns() if origin_ns is None else origin_ns

    def now_ms(self) -> int:
        """The time now, in ms; never goes back."""
        return (self.origin_ns + _elapsed_ns()) // 1_000_000


def _elapsed_ns() -> int:
    return time.clock_gettime_ns(_ELAPSED_CLOCK)


def this_boot() -> str:
    """Names the boot by whose elapsed time clocks of this process count; "" where nothing does."""
    try:
        # In a time namespace of its own a container may count from elsewhere.
        namespace = _TIME_NAMESPACE.stat().st_ino if _TIME_NAMESPACE.exists() else 0
        return f"{_BOOT_ID.read_text().strip()}-{namespace}"
    except OSError:
        return ""


def kept_clock(folder: DataFolder, boot: str) -> ProcessClock:
    """The clock that an earlier process kept in the folder on this boot, or else a new one, kept from now on."""
    kept = folder.kept_clock()
    if kept is not None and kept[0] == boot:
        clock = ProcessClock(kept[1])
        set_by_ms = ProcessClock().now_ms() - clock.now_ms()
        if abs(set_by_ms) > TOLD_MS:
            log.warning(
                "the wall clock was set by %+d ms since this machine started; this node goes on with the time it had "
                "(delete %s while it is stopped to have it read the wall clock)", set_by_ms, folder.clock,
            )  # fmt: skip
        return clock
    clock = ProcessClock()
    if boot:
        try:
            folder.keep_clock(boot, clock.origin_ns)
        except OSError as error:
            log.warning("the clock can't be kept in %s: %s", folder.path, error)
    return clock


def forget_clock(folder: DataFolder) -> None:
    """The next process reads the wall clock."""
    try:
        folder.clock.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s can't be deleted: %s", folder.clock, error)
