"""What the scripts of this folder share: commands that must not fail, what is waited for, what has to be so."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Final

from tests.waiting import wait_for

LOOK_S: Final = 0.2


def run(*words: str) -> str:
    """What the command says; it must not fail."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return done.stdout.strip()


def until(condition: Callable[[], object], what: str, within_s: float) -> None:
    """Wait for it, and say so."""
    wait_for(condition, what, within_s, LOOK_S)
    print(f"there is {what}", flush=True)


def check(holds: bool, what: str) -> None:
    """It has to be so."""
    assert holds, f"not so: {what}"
    print(what, flush=True)
