"""Wall clocks that a test steps, each for one node's process alone: the machine's own clock stays as it is."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mayfly.node.shell.data_folder import DataFolder
from tests.integration.nodes import Nodes

_SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClocks:
    """Starts nodes whose wall clock is `ahead_s` seconds off, as last said, also while they run."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        """Compiles what is loaded into the nodes. Skips the test where that can't be done."""
        self._nodes = nodes
        self._folder = folder
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler: the wall clock of a process is stepped by a library made for it")
        self._library = folder / "wall_clock.so"
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"wall_clock.c does not compile here: {made.stderr[:200]}")

    def step(self, ahead_s: int, *ids: int) -> None:
        """Set the clocks of these nodes to so many seconds ahead of the machine's."""
        for id in ids:
            written = self._file(id).with_suffix(".new")
            written.write_text(f"{ahead_s}\n")
            written.replace(self._file(id))

    def start(self, *ids: int) -> None:
        """Start nodes with clocks that can be stepped."""
        for id in ids:
            if not self._file(id).exists():
                self.step(0, id)
            with _environment(LD_PRELOAD=str(self._library), WALL_CLOCK_AHEAD_FILE=str(self._file(id))):
                self._nodes.start(id)

    def restart_machines(self, *ids: int) -> None:
        """As if the machines of these nodes, which are down, had started anew: their wall clocks are read."""
        for id in ids:
            DataFolder(self._nodes.plan(id).data_dir).clock.unlink(missing_ok=True)

    def shown_s(self, id: int) -> int:
        """How far ahead of the machine's clock a process of this node would read it now."""
        environment = {**os.environ, "LD_PRELOAD": str(self._library), "WALL_CLOCK_AHEAD_FILE": str(self._file(id))}
        told = subprocess.run(["date", "+%s"], env=environment, capture_output=True, text=True, check=True)
        real = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True)
        return int(told.stdout) - int(real.stdout)

    def _file(self, id: int) -> Path:
        return self._folder / f"ahead-of-node{id}"


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """What processes started meanwhile see; this one has read its own long before."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
