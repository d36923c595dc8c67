"""Damage to what a node has on disk: bits, ends of files, files and whole folders of an earlier time.

It is done to a node that has been killed, as pages that the system still holds are read instead of the disk. Then the
node is started, as a supervisor would; what it says when it refuses is done, as an operator would.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from mayfly.cluster.host.clocks_ahead import KEPT_ANEW_MS
from mayfly.node.shell.data_folder import DataFolder
from tests.integration.nodes import Nodes
from tests.reliability.read_back import KeptStreams, damage_left_in
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
    REWIND: "one node: the whole folder as it was 0.5-3 s before the process ended",
}
"""Kinds, and what they are."""

LOG_FILES: Final = {"data.mdb": 8, "ahead-1": 4, "ahead-2": 4, "last-commit": 2, "format": 1}
"""All of the log but the locks, which hold nothing, and how often they are taken."""
CLOCK: Final = "clock"
CLOCKS_AHEAD: Final = "clocks-ahead"
ON_THE_WAY: Final = "snapshots/*"
DAMAGED_FILES: Final = {**LOG_FILES, CLOCK: 2, CLOCKS_AHEAD: 2, ON_THE_WAY: 2}
"""All that a node keeps but its own token, which each start makes anew. A file of an earlier stop is one of the log:
the others are the same all the time, or were not there."""
WHOLE_FOLDER: Final = "all of them"
REFUSED: Final = 78
_MOST_STARTS: Final = 4
"""A damage that shows when an entry is read ends the process once, and the next start has it repaired."""
_SECTOR: Final = 512
_PIECE: Final = 1 << 20
_MOST_BITS: Final = 64
_MOST_CATCHES: Final = 3
"""Each takes a whole join."""
_REPLICAS: Final = 3
_LOOK_S: Final = 0.05
_LOOK_FOR_PARTS_S: Final = 0.002
SAYS_WHAT_TO_DO: Final = re.compile(r"empty (that|its|the|data) folder|put the right data back")
_ERROR: Final = re.compile(r"\S+Z (ERROR|CRITICAL) ")
_SENT_ANEW: Final = "is to be sent anew"
"""What whoever sends a snapshot says when it came damaged."""
_PROVOKED: Final = (
    "damaged",
    "cannot start",
    "will be rebuilt",
    "older copy",
    "of an earlier time",
    "is rebuilt from the other nodes",
    "is corrupt",
)
UNHURT: Final = "serves, and all that it has is right"
TOLD: Final = "serves, says that its clock differs"
UNREAD: Final = "serves, damaged in what was never read"
REBUILT: Final = "found, rebuilt from others"
REPLACED: Final = "refused, emptied, joined anew"
OUTCOMES: Final = (UNHURT, TOLD, UNREAD, REBUILT, REPLACED)


@dataclass(slots=True)
class Damages:
    """What was done to nodes of one run, and what came of it."""

    copies: Path
    streams: KeptStreams
    """What a damaged node has to lead and to deliver."""
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(kind, file, what became of it)."""
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
    """End a node, damage what it has on disk, have it started until it serves, and read what it leads then."""
    file = _some_file(kind, random)
    if kind == REWIND:
        nodes.freeze(id)
        damages.keep_copy(nodes, id, kind)
        nodes.thaw(id)
        time.sleep(random.uniform(0.5, 3.0))
    elif kind in (SWAP, ROLL_BACK) and not damages.copy(nodes, id, kind).exists():
        nodes.kill(id)
        for each in (SWAP, ROLL_BACK):
            damages.keep_copy(nodes, id, each)
        nodes.start(id)
        assert _ended_or_serves(nodes, id) is None, f"node {id} does not start again"
        time.sleep(random.uniform(0.5, 3.0))
    missed = file == ON_THE_WAY and not _catch_on_the_way(nodes, damages, id)
    if missed:
        file = random.choices(list(LOG_FILES), list(LOG_FILES.values()))[0]
    if file != ON_THE_WAY:
        nodes.kill(id)
    what = harm(nodes, damages, kind, file, id, random)
    if missed:
        what = f"no snapshot was on its way, {_MOST_CATCHES} times; {what}"
    seen = {other: len(nodes.log_text(other)) for other in nodes.ids}
    outcome = start_again(nodes, damages, id)
    if outcome != REPLACED:
        wait_for(lambda: _is_settled(nodes) or not nodes.runs(id), "votes for the damaged node", 3 * BOUND_S)
        while not damages.streams.are_read_from(nodes, id):
            # What it had to deliver was damaged; who has ended over that rebuilds it. Its first thread may have ended
            # while others have not yet: so long nobody is told the exit code.
            wait_for(lambda: _end_of(nodes, id) is not None, f"the end of node {id}: it does not deliver what it has")
            outcome = start_again(nodes, damages, id, said_before=True)
            if outcome == REPLACED:
                break
    if outcome == UNHURT and any(_SENT_ANEW in nodes.log_text(other)[seen[other] :] for other in nodes.ids):
        outcome = REBUILT
    if outcome != REPLACED:
        # Bodies that nobody has read may be damaged still, which with the next node's damage would be two failures.
        nodes.kill(id)
        left = damage_left_in(nodes.plan(id).data_dir) if outcome == UNHURT else ""
        if left:
            what, outcome = f"{what} ({left})", UNREAD
        _join_anew(nodes, damages, id)
        assert _ended_or_serves(nodes, id) is None, f"node {id} does not join with an empty folder"
    damages.outcomes[kind, file, outcome] += 1
    damages.told.append(f"node {id}: {what}: {outcome}")
    wait_for(lambda: _is_settled(nodes), "votes for the node that has joined", 3 * BOUND_S, every_s=0.05)


def _join_anew(nodes: Nodes, damages: Damages, id: int) -> None:
    """Start a node that was killed, with nothing of what it had."""
    shutil.rmtree(nodes.plan(id).data_dir)
    damages.drop_copies(nodes, id)
    nodes.start(id)


def _catch_on_the_way(nodes: Nodes, damages: Damages, id: int) -> bool:
    """Have the node join with an empty folder, and kill it when a part of a snapshot has come; False, and it serves, if
    the machine was too busy for that."""
    for _ in range(_MOST_CATCHES):
        nodes.kill(id)
        _join_anew(nodes, damages, id)
        if _sees_parts(nodes, id):
            nodes.kill(id)
            if _parts(nodes, id):
                return True
            nodes.start(id)
        assert _ended_or_serves(nodes, id) is None, f"node {id} does not join with an empty folder"
        wait_for(lambda: _is_settled(nodes), "votes for the node that has joined", 3 * BOUND_S, every_s=0.05)
    return False


def _sees_parts(nodes: Nodes, id: int) -> bool:
    """Whether something of a snapshot comes before the node serves. Who waits for an answer misses it: there are many
    looks for each question."""
    now_s = ask_s = time.monotonic()
    deadline_s = now_s + BOUND_S
    while now_s < deadline_s:
        if _parts(nodes, id):
            return True
        if now_s >= ask_s:
            assert _end_of(nodes, id) is None, f"node {id} does not join with an empty folder"
            if _is_ready(nodes, id):
                return False
            ask_s = time.monotonic() + 10 * _LOOK_S
        time.sleep(_LOOK_FOR_PARTS_S)
        now_s = time.monotonic()
    return False


def _parts(nodes: Nodes, id: int) -> list[Path]:
    """Snapshots that are on their way to a node, those of which something has come."""
    found = []
    for file in (nodes.plan(id).data_dir / "snapshots").glob("*.part"):
        with suppress(FileNotFoundError):
            found += [file] if file.stat().st_size else []
    return found


def harm(nodes: Nodes, damages: Damages, kind: str, file: str, id: int, random: Random) -> str:
    """Damage the data of a node that does not run; what was done, in words."""
    data = nodes.plan(id).data_dir
    if kind in (SWAP, ROLL_BACK, REWIND):
        return _take_back(nodes, damages, kind, file, id, damages.copy(nodes, id, kind))
    if file == CLOCKS_AHEAD and not (data / file).exists():
        _write_clocks_ahead(data)
    if file == ON_THE_WAY:
        found = random.choice(_parts(nodes, id))
    else:
        found = data / "log" / file if file in LOG_FILES else data / file
    if kind == TRUNCATE:
        length = random.randrange(used(found))
        with found.open("rb+") as opened:
            opened.truncate(length)
        return f"{found.name} cut off at {length}"
    places = [_flip(found, random) for _ in range(random.randint(1, _MOST_BITS))]
    return f"{found.name}: bits flipped at {places}"


def _write_clocks_ahead(data: Path) -> None:
    """As a node keeps it whose groups' clocks are ahead; here they are so by nothing."""
    folder = DataFolder(data)
    kept = folder.kept_clock()
    assert kept is not None, f"{folder.clock} can't be read"
    folder.keep_ahead(*kept, dict.fromkeys(range(4), (1, KEPT_ANEW_MS)))


def _take_back(nodes: Nodes, damages: Damages, kind: str, name: str, id: int, copy: Path) -> str:
    data = nodes.plan(id).data_dir
    if kind == SWAP:
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


def _some_file(kind: str, random: Random) -> str:
    if kind in (ROLL_BACK, REWIND):
        return WHOLE_FOLDER
    files = LOG_FILES if kind == SWAP else DAMAGED_FILES
    return random.choices(list(files), list(files.values()))[0]


def used(file: Path) -> int:
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
    outcome = REBUILT if said_before else UNHURT
    for _ in range(_MOST_STARTS):
        seen = len(nodes.log_text(id))
        nodes.start(id)
        code = _ended_or_serves(nodes, id)
        said = nodes.log_text(id)[seen:]
        if "rebuilt" in said:
            outcome = REBUILT
        elif "the wall clock was set by" in said and outcome == UNHURT:
            outcome = TOLD
        if code is None:
            return outcome
        if code == REFUSED:
            words = last_words(said)
            assert SAYS_WHAT_TO_DO.search(words), f"what is to be done? {words}"
            damages.refusals.append(words)
            shutil.rmtree(nodes.plan(id).data_dir)
            damages.drop_copies(nodes, id)
            outcome = REPLACED
        else:
            assert code == 1 and "is corrupt" in said, f"node {id} ended with {code}: {said[-1_000:]}"
    raise AssertionError(f"node {id} has ended {_MOST_STARTS} times; {nodes.log_text(id)[-1_000:]}")


def last_words(said: str) -> str:
    """Why a node that has logged this has ended. While it stops it may go on telling of others."""
    errors = [line for line in said.splitlines() if _ERROR.match(line)]
    return errors[-1] if errors else ""


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
        if _is_ready(nodes, id):
            return None
        time.sleep(_LOOK_S)
    raise AssertionError(f"node {id} neither ends nor serves; {nodes.log_text(id)[-1_000:]}")


def _is_ready(nodes: Nodes, id: int) -> bool:
    try:
        return nodes.page(id, "/health/ready")[0] == 200
    except OSError:
        return False


def damage_table(damages: Damages) -> list[str]:
    """How often what became of which damage, by kind and by file, as lines of Markdown."""
    return [
        *_table("damage", lambda kind, _: DAMAGES[kind], damages),
        "",
        *_table("file", lambda _, file: f"`{file}`" if file in DAMAGED_FILES else file, damages),
    ]


def _table(what: str, name: Callable[[str, str], str], damages: Damages) -> list[str]:
    lines = [f"| {what} | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 1) + "|"]
    rows: dict[str, Counter[str]] = {}
    for (kind, file, outcome), times in damages.outcomes.items():
        rows.setdefault(name(kind, file), Counter())[outcome] += times
    order = [*DAMAGES.values(), *(f"`{file}`" for file in DAMAGED_FILES), WHOLE_FOLDER]
    for row in sorted(rows, key=order.index):
        lines += [f"| {row} | " + " | ".join(str(rows[row][outcome]) for outcome in OUTCOMES) + " |"]
    return lines
