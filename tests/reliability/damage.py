"""Damage to what a node has on disk: bits, ends of files, files and whole folders of an earlier time.

It is done to a node that has been killed, as pages that the system still holds are read instead of the disk. Then the
node is started, as a supervisor would; what it says when it refuses is done, as an operator would.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S, wait_for

FLIP: Final = "flip"
TRUNCATE: Final = "truncate"
SWAP: Final = "swap"
ROLL_BACK: Final = "roll back"
REWIND: Final = "rewind"
DAMAGES: Final = {
    FLIP: "one node: 1 to 64 bits of a file",
    TRUNCATE: "one node: the end of a file is missing",
    SWAP: "one node: a file of an earlier stop",
    ROLL_BACK: "one node: the whole folder of an earlier stop",
    REWIND: "one node: the whole folder as it was 2-5 s before the process ended",
}
"""Kinds, and what they are."""

DAMAGED_FILES: Final = {"data.mdb": 8, "ahead-1": 4, "ahead-2": 4, "last-commit": 2, "format": 1}
"""All but the locks, which hold nothing, and how often they are taken."""
REFUSED: Final = 78
_MOST_STARTS: Final = 4
"""A damage that shows when an entry is read ends the process once, and the next start has it repaired."""
_SECTOR: Final = 512
_PIECE: Final = 1 << 20
_MOST_BITS: Final = 64
_REPLICAS: Final = 3
_LOOK_S: Final = 0.05
_SAYS_WHAT_TO_DO: Final = re.compile(r"empty (that|its|the|data) folder|put the right data back")
_PROVOKED: Final = (
    "damaged",
    "cannot start",
    "will be rebuilt",
    "older copy",
    "of an earlier time",
    "is rebuilt from the other nodes",
    "is corrupt",
)
SERVED, REBUILT, REPLACED = "served as if nothing was", "rebuilt from others", "refused, emptied, joined anew"


@dataclass(slots=True)
class Damages:
    """What was done to nodes of one run, and what came of it."""

    copies: Path
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind, what became of it)."""
    refusals: list[str] = field(default_factory=list)
    """What nodes said that refused."""
    told: list[str] = field(default_factory=list)

    def copy(self, nodes: Nodes, id: int, kind: str) -> Path:
        """Where the older copy of a node's data for a kind of damage is."""
        return self.copies / f"{kind.replace(' ', '-')}-{id}"

    def keep_copy(self, nodes: Nodes, id: int, kind: str) -> None:
        """Copy a node's data as it is now, in place of the copy before."""
        copy = self.copy(nodes, id, kind)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(nodes.plan(id).data_dir, copy)

    def drop_copies(self, nodes: Nodes, id: int) -> None:
        """The node is another member from now on."""
        for kind in (SWAP, ROLL_BACK, REWIND):
            shutil.rmtree(self.copy(nodes, id, kind), ignore_errors=True)


def expect_words_of_damage(nodes: Nodes) -> None:
    """Errors that say that something is damaged are no faults of this run."""
    nodes.expected_errors += _PROVOKED


def damage(nodes: Nodes, damages: Damages, kind: str, id: int, random: Random) -> None:
    """End a node, damage what it has on disk, and have it started until it serves."""
    if kind == REWIND:
        nodes.freeze(id)
        damages.keep_copy(nodes, id, kind)
        nodes.thaw(id)
        time.sleep(random.uniform(2.0, 5.0))
    elif kind in (SWAP, ROLL_BACK) and not damages.copy(nodes, id, kind).exists():
        nodes.kill(id)
        for each in (SWAP, ROLL_BACK):
            damages.keep_copy(nodes, id, each)
        nodes.start(id)
        assert _ended_or_serves(nodes, id) is None, f"node {id} does not start again"
        time.sleep(random.uniform(2.0, 5.0))
    nodes.kill(id)
    what = harm(nodes, damages, kind, id, random)
    outcome = start_again(nodes, damages, id)
    if outcome != REPLACED:
        time.sleep(random.uniform(2.0, 4.0))
        if _end_of(nodes, id) is not None:
            outcome = start_again(nodes, damages, id, said_before=True)
    damages.outcomes[kind, outcome] += 1
    damages.told.append(f"node {id}: {what}: {outcome}")
    if outcome != REPLACED:
        # Bodies that nobody has read may be damaged still, which with the next node's damage would be two failures.
        nodes.kill(id)
        shutil.rmtree(nodes.plan(id).data_dir)
        damages.drop_copies(nodes, id)
        nodes.start(id)
        assert _ended_or_serves(nodes, id) is None, f"node {id} does not join with an empty folder"
    wait_for(lambda: _is_settled(nodes), "votes for the node that has joined", 3 * BOUND_S, every_s=0.1)


def harm(nodes: Nodes, damages: Damages, kind: str, id: int, random: Random) -> str:
    """Damage the data of a node that does not run; what was done, in words."""
    folder = nodes.plan(id).data_dir / "log"
    if kind in (SWAP, ROLL_BACK, REWIND):
        return _take_back(nodes, damages, kind, id, damages.copy(nodes, id, kind), random)
    file = folder / _some_file(random)
    if kind == TRUNCATE:
        length = random.randrange(_used(file))
        with file.open("rb+") as opened:
            opened.truncate(length)
        return f"{file.name} cut off at {length}"
    places = [_flip(file, random) for _ in range(random.randint(1, _MOST_BITS))]
    return f"{file.name}: bits flipped at {places}"


def _take_back(nodes: Nodes, damages: Damages, kind: str, id: int, copy: Path, random: Random) -> str:
    data = nodes.plan(id).data_dir
    if kind == SWAP:
        name = _some_file(random)
        older = copy / "log" / name
        kept = older.with_name(f"{name}.kept")
        shutil.copyfile(data / "log" / name, kept)
        shutil.copyfile(older, data / "log" / name)
        kept.replace(older)
        return f"{name} replaced with an older copy"
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    damages.drop_copies(nodes, id)
    return "the whole folder replaced with an older copy"


def _some_file(random: Random) -> str:
    return random.choices(list(DAMAGED_FILES), list(DAMAGED_FILES.values()))[0]


def _used(file: Path) -> int:
    """How long a file is without the zeros at its end."""
    end = file.stat().st_size
    with file.open("rb") as opened:
        while end > _PIECE:
            opened.seek(end - _PIECE)
            if any(opened.read(_PIECE)):
                break
            end -= _PIECE
        opened.seek(max(0, end - _PIECE))
        return max(1, max(0, end - _PIECE) + len(opened.read(end).rstrip(b"\0")))


def _flip(file: Path, random: Random) -> int:
    """Flip a bit, mostly where something is; its octet."""
    size = file.stat().st_size
    with file.open("rb+") as opened:
        for _ in range(1_000):
            offset = random.randrange(size)
            opened.seek(offset - offset % _SECTOR)
            if any(opened.read(_SECTOR)):
                break
        opened.seek(offset)
        octet = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([octet ^ 1 << random.randrange(8)]))
    return offset


def start_again(nodes: Nodes, damages: Damages, id: int, said_before: bool = False) -> str:
    """Start the node until it serves; the outcome. Whoever refuses says why and what to do, and is emptied. If it has
    ended over what it read, it has `said_before` what is damaged."""
    outcome = REBUILT if said_before else SERVED
    for _ in range(_MOST_STARTS):
        seen = len(nodes.log_text(id))
        nodes.start(id)
        code = _ended_or_serves(nodes, id)
        said = nodes.log_text(id)[seen:]
        if "rebuilt" in said:
            outcome = REBUILT
        if code is None:
            return outcome
        if code == REFUSED:
            words = said.strip().splitlines()[-1]
            assert _SAYS_WHAT_TO_DO.search(words), f"what is to be done? {words}"
            damages.refusals.append(words)
            shutil.rmtree(nodes.plan(id).data_dir)
            damages.drop_copies(nodes, id)
            outcome = REPLACED
        else:
            assert code == 1 and "is corrupt" in said, f"node {id} ended with {code}: {said[-1_000:]}"
    raise AssertionError(f"node {id} has ended {_MOST_STARTS} times; {nodes.log_text(id)[-1_000:]}")


def _is_settled(nodes: Nodes) -> bool:
    """Whether every group has its three voters: with two of them no damage can be repaired."""
    try:
        shards = nodes.page(nodes.ids[0], "/shards")[1]["shards"]
    except OSError:
        return False
    return all(len(row["voters"]) == _REPLICAS and not row["changing"] and not row["owed"] for row in shards)


def _end_of(nodes: Nodes, id: int) -> int | None:
    """The exit code of a node that has ended; None while it runs. No other may end."""
    code = None
    for end in nodes.ends():
        assert end.plan.name == nodes.plan(id).name, f"another node: {end.describe()}"
        code = end.code
    return code


def _ended_or_serves(nodes: Nodes, id: int) -> int | None:
    """The exit code of a node that is starting; None when it serves."""
    deadline_s = time.monotonic() + 3 * BOUND_S
    while time.monotonic() < deadline_s:
        code = _end_of(nodes, id)
        if code is not None:
            return code
        try:
            if nodes.page(id, "/health/ready")[0] == 200:
                return None
        except OSError:
            time.sleep(_LOOK_S)
    raise AssertionError(f"node {id} neither ends nor serves; {nodes.log_text(id)[-1_000:]}")


def damage_table(damages: Damages) -> list[str]:
    """How often what became of which damage, as lines of Markdown."""
    outcomes = (SERVED, REBUILT, REPLACED)
    lines = ["| damage | " + " | ".join(outcomes) + " |", "|---" * (len(outcomes) + 1) + "|"]
    for kind, what in DAMAGES.items():
        counts = [damages.outcomes[kind, outcome] for outcome in outcomes]
        if any(counts):
            lines.append(f"| {what} | " + " | ".join(map(str, counts)) + " |")
    return lines
