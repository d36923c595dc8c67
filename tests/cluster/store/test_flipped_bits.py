"""One flipped bit anywhere in the log file: never an end of the process, other data, or an error without a name."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from mayfly.cluster.store.lmdb_store import LmdbLogStore
from tests.cluster.store import flips

OUTCOMES = {"refused", "told", "same"}
"""By name and place; as a damaged group or entry; nothing that anybody sees, or mended."""


def campaign(folder: Path, first: int, last: int, history: int) -> Counter[tuple[str, str]]:
    """Flips by seed, each of a copy of the log that a history has left: kinds of pages and outcomes, counted."""
    log = folder / "log"
    store = LmdbLogStore(log, flips.MAP_BYTES)
    flips.fill(store, Random(history))
    store.close()
    found: Counter[tuple[str, str]] = Counter()
    command = [sys.executable, "-m", "tests.cluster.store.flips", str(log), str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": "."})
    for line in done.stdout.splitlines():
        place, _, outcome = line.partition(": ")
        assert outcome in OUTCOMES, f"{line}: {outcome or f'ended with {done.returncode}'}"
        found[place.split(" ", 1)[1].rsplit(" ", 1)[0], outcome] += 1
    assert done.returncode == 0, done.stderr
    assert found.total() == last - first
    return found


def test_some_flips_in_pages_of_every_kind(in_memory: Path) -> None:
    found = campaign(in_memory, 0, 60, 1)
    assert {kind for kind, _ in found} == set(flips.KINDS)
    assert {outcome for _, outcome in found} == OUTCOMES
    assert {outcome for kind, outcome in found if kind == "meta"} == {"same"}, "they are in a second place"


@pytest.mark.slow
@pytest.mark.parametrize("history", range(2, 12))
def test_many_flips_in_pages_of_every_kind(in_memory: Path, history: int) -> None:
    campaign(in_memory, 1000 * history, 1000 * history + 300, history)
