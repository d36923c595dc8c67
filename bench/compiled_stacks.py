"""Stacks of compiled nodes, sampled by perf with frames of C, as lines of py-spy's raw format.

perf copies the top of a stack for each sample and unwinds it afterwards, so the nodes are hardly held up. Functions
that mypyc compiled come out as "Frames.read (node/amqp/frames.py)", as py-spy writes interpreted ones; those it cannot
see. All other frames are functions of C: the interpreter, uvloop, the C library, the kernel.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.clusters import ROOT, BrokerFailed

_STACK_BYTES: Final = 16_384
_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (.*) \((.*)\)$")
_COMPILED: Final = re.compile(r"^CPy(?:Def|Py)_(.*)$")
_SEPARATOR: Final = "___"


def record(pids: Sequence[int], seconds: int, rate: int, file: Path) -> list[str]:
    """Sample these processes; lines of stacks and counts. `file` is perf's own. Raises `BrokerFailed` without perf, or
    the right to use it."""
    words = ["perf", "record", "--freq", str(rate), "--call-graph", f"dwarf,{_STACK_BYTES}", "--output", str(file),
             "--pid", ",".join(map(str, pids)), "--", "sleep", str(seconds)]  # fmt: skip
    _run(words)
    # Without --no-inline it looks up each line of the sources, for minutes.
    return collapsed(_run(["perf", "script", "--input", str(file), "--no-inline", "--fields", "comm,tid,ip,sym,dso"]))


def _run(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BrokerFailed("perf is not there (Debian: linux-perf)") from error
    if done.returncode:
        raise BrokerFailed(f"{' '.join(words[:2])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def collapsed(script: str) -> list[str]:
    """What `perf script` printed, as stacks from the outermost frame to the innermost, each with its count."""
    counts: Counter[str] = Counter()
    frames: list[str] = []
    for line in [*script.splitlines(), ""]:
        if not line.strip():
            if frames:
                counts[";".join(reversed(frames))] += 1
            frames = []
        elif (found := _FRAME.match(line)) is not None:
            frames.append(_readable(*found.groups()))
    return [f"{stack} {count}" for stack, count in counts.items()]


def _readable(symbol: str, library: str) -> str:
    compiled = _COMPILED.match(symbol)
    if compiled is not None:
        parts = compiled[1].removeprefix(f"mayfly{_SEPARATOR}").split(_SEPARATOR)
        for length in range(len(parts), 0, -1):
            module = _module("/".join(parts[:length]))
            if module:
                # A leading underscore of the name follows its separator.
                return f"{'.'.join(parts[length:])} ({module})"
    return f"{symbol.replace(';', ':')} ({Path(library).name})"


def _module(path: str) -> str:
    return next((each for each in (f"{path}.py", f"{path}/__init__.py") if (ROOT / each).is_file()), "")

