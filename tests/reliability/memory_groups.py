"""Control groups with a memory limit, one for each node; a node is killed in it by the kernel for want of memory.

Linux, root, a mounted memory controller (v1 or v2): `why_impossible` says what is missing. The node shares its group
with another process that takes what is left, and that is held for more important, as a sidecar of the same pod would
be: the kernel kills the node first, though the other may have grown larger by then.
"""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.waiting import wait_for

_MIB: Final = 1 << 20
_ROOMY_BYTES: Final = 4096 * _MIB
"""No limit to a node of a test."""
_LEFT_BYTES: Final = 48 * _MIB
"""Between what the group has and its limit when memory gets short: enough for the other process to begin."""
_GREEDY: Final = "import time; taken = []\nwhile True: taken.append(b'x' * 1048576); time.sleep(0.002)"
_FIRST_TO_GO: Final = "1000"
"""The score that makes the kernel choose a process before all others; a lower one than usual takes a capability."""


def why_impossible() -> str:
    """Why this machine can have no such group; empty when it can."""
    if not sys.platform.startswith("linux"):
        return f"control groups are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "control groups take root"
    try:
        groups = MemoryGroups([1])
        try:
            command = [*groups.words(1), "sh", "-c", "exit 7"]
            if subprocess.run(command, check=False, capture_output=True).returncode != 7:
                return "no process can be put into a control group for memory"
        finally:
            groups.close()
    except OSError as error:
        return f"no control group with a memory limit can be made: {error}"
    return ""


class MemoryGroups:
    """Groups 1, 2, ..., without a limit that matters at first."""

    def __init__(self, ids: Sequence[int]) -> None:
        """Raises OSError, and leaves nothing behind, if that can't be had."""
        parent, self._is_v2 = _parent()
        self._name = f"mayfly-{os.getpid()}-{secrets.token_hex(4)}"
        self._groups: dict[int, Path] = {}
        try:
            for id in ids:
                group = parent / f"{self._name}-{id}"
                group.mkdir()
                self._groups[id] = group
                self._limit(id, _ROOMY_BYTES)
        except BaseException:
            self.close()
            raise

    def words(self, id: int) -> list[str]:
        """The words before a command that is to run in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._groups[id] / "cgroup.procs")]

    def kills(self, id: int) -> int:
        """How many processes of the group the kernel has killed for want of memory."""
        file = self._groups[id] / ("memory.events" if self._is_v2 else "memory.oom_control")
        rows = dict(line.split() for line in file.read_text().splitlines())
        return int(rows["oom_kill"])

    @contextlib.contextmanager
    def shortage(self, id: int) -> Iterator[None]:
        """Memory gets short, and stays so until the end of the block. Who is in the group now is killed first."""
        for pid in (self._groups[id] / "cgroup.procs").read_text().split():
            Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_GO)
        self._limit(id, self._used_bytes(id) + _LEFT_BYTES)
        greedy = subprocess.Popen([*self.words(id), sys.executable, "-c", _GREEDY])
        try:
            yield
        finally:
            greedy.kill()
            greedy.wait()
            self._limit(id, _ROOMY_BYTES)

    def close(self) -> None:
        """Remove the groups. No process may be in one; those that have just ended may be for a moment."""
        for group in self._groups.values():
            wait_for(partial(_removed, group), f"the end of {group}")
        self._groups = {}

    def _used_bytes(self, id: int) -> int:
        file = "memory.current" if self._is_v2 else "memory.usage_in_bytes"
        return int((self._groups[id] / file).read_text())

    def _limit(self, id: int, limit_bytes: int) -> None:
        file = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        (self._groups[id] / file).write_text(str(limit_bytes))


def _parent() -> tuple[Path, bool]:
    """The group in which this process is, or the uppermost one of v2 (in which alone there may be processes and
    limited groups), and whether it is of v2. Raises OSError."""
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = {controller: path for _, controllers, path in rows for controller in controllers.split(",")}
    if "memory" in own:
        folder = Path("/sys/fs/cgroup/memory")
        inner = folder / own["memory"].strip("/")
        return (inner if inner.is_dir() else folder), False
    folder = Path("/sys/fs/cgroup")
    if "memory" not in (folder / "cgroup.controllers").read_text().split():
        raise OSError("no memory controller is mounted")
    with contextlib.suppress(OSError):
        (folder / "cgroup.subtree_control").write_text("+memory")
    return folder, True


def _removed(group: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        try:
            group.rmdir()
        except OSError:
            return False
    return True
