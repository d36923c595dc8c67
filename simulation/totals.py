"""How much has been tried so far: a file of totals in the tree, which soaks and runs of real nodes add to.

A simulated cluster-hour is an hour of the virtual time of one simulated cluster, however many nodes it has, from its
start to the verdict. Nothing is skipped: every look at the time and every heartbeat that the settings of its nodes ask
for was carried out; where those are slower than any real node's, the hours are told apart. Only seeds
that came to their end and kept every promise count; the others are counted as failed.

Whoever adds reads, adds and writes under a lock, so that two runs at once lose nothing.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- written from totals.json: begin -->", "<!-- written from totals.json: end -->"
WITHOUT_NODES = ("raft", "hosts", "machines")
"""Simulators that have consensus and hosts, but no shards and no clients."""
SLOWER_THAN_REAL = ("ages",)
"""Simulators whose nodes have ticks and heartbeats that are further apart than a node's settings allow."""
AIMS: Mapping[str, int] = {
    "simulated cluster-hours": 1_000_000, "processes killed, with clients": 500, "losses of power": 500,
    "damages of what a node has on disk": 1_000,
}  # fmt: skip
CUTS = ("cut", "cut majority", "cut all")
DAMAGES = ("flip", "truncate", "swap", "roll back", "rewind")

Totals = dict[str, Any]
"""As the file has it: `simulated` by simulator, `real` by the Makefile's target."""


def load(file: Path) -> Totals:
    """What the file holds; nothing if there is none."""
    totals: Totals = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {"simulated": {}, "real": {}, "damages": {}, **totals}


def add_simulated(file: Path, name: str, seeds: int, failed: int, virtual_us: int, cpu_s: float) -> None:
    """Add seeds of a simulator: `seeds` that kept every promise, in so much virtual time, and `failed` others."""
    with _changing(file) as totals:
        row = totals["simulated"].setdefault(name, {"seeds": 0, "failed": 0, "virtual_s": 0, "cpu_s": 0})
        row["seeds"] += seeds
        row["failed"] += failed
        row["virtual_s"] += round(virtual_us / 1_000_000)
        row["cpu_s"] += round(cpu_s)


def add_real(
    file: Path,
    target: str,
    faults: Mapping[str, int],
    nodes_killed: int,
    confirmed: int,
    broken: int,
    damages: Mapping[tuple[str, str, str], int] | None = None,
) -> None:
    """Add a run of real nodes: its faults by kind, the processes that got SIGKILL with clients at work, the messages
    that were confirmed, the promises that were broken, and how often which (kind of damage, file) ended how."""
    with _changing(file) as totals:
        empty = {"runs": 0, "confirmed": 0, "nodes_killed": 0, "broken": 0, "faults": {}}
        row = totals["real"].setdefault(target, empty)
        row["runs"] += 1
        row["confirmed"] += confirmed
        row["nodes_killed"] += nodes_killed
        row["broken"] += broken
        for kind, times in faults.items():
            row["faults"][kind] = row["faults"].get(kind, 0) + times
        for (kind, name, outcome), times in (damages or {}).items():
            outcomes = totals["damages"].setdefault(kind, {}).setdefault(name, {})
            outcomes[outcome] = outcomes.get(outcome, 0) + times


@contextmanager
def _changing(file: Path) -> Iterator[Totals]:
    with file.open("a+", encoding="utf-8") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        locked.seek(0)
        text = locked.read()
        totals: Totals = {"simulated": {}, "real": {}, "damages": {}, **(json.loads(text) if text else {})}
        yield totals
        locked.truncate(0)
        locked.write(json.dumps(totals, indent=1) + "\n")


def hours_of(totals: Totals, slower: bool = False) -> float:
    """Simulated cluster-hours, of all simulators together whose nodes have settings that a node takes; or of those with
    slower ones."""
    rows = totals["simulated"].items()
    return float(sum(row["virtual_s"] for name, row in rows if (name in SLOWER_THAN_REAL) == slower)) / 3_600


def faults_of(totals: Totals, kinds: tuple[str, ...]) -> int:
    """How many faults of these kinds real nodes have seen."""
    return sum(row["faults"].get(kind, 0) for row in totals["real"].values() for kind in kinds)


def tables(totals: Totals) -> str:
    """All of it, in Markdown."""
    rows = totals["simulated"]
    real = totals["real"]
    reached = (
        hours_of(totals), sum(row["nodes_killed"] for row in real.values()), faults_of(totals, CUTS),
        faults_of(totals, DAMAGES),
    )  # fmt: skip
    lines = ["| what | so far | aim |", "|---|---|---|"]
    for (what, aim), number in zip(AIMS.items(), reached, strict=True):
        lines.append(f"| {what} | {_text(number)} | {_text(aim)} |")
    lines.insert(3, f"| beside them, of nodes slower than any (`ages`) | {_text(hours_of(totals, slower=True))} | |")
    lines += ["", "| simulator | seeds | failed | cluster-hours | hours for each hour of CPU |"]
    lines.append("|---|---|---|---|---|")
    for name in sorted(rows, key=lambda each: (each in WITHOUT_NODES, each)):
        row = rows[name]
        rate = _text(row["virtual_s"] / row["cpu_s"]) if row["cpu_s"] else "-"
        hours = f"{row['virtual_s'] / 3_600:.1f}"
        about = " (no clients)" if name in WITHOUT_NODES else " (slower nodes)" if name in SLOWER_THAN_REAL else ""
        lines.append(f"| {name}{about} | {_text(row['seeds'])} | {row['failed']} | {hours} | {rate} |")
    lines += ["", "| command | runs | messages confirmed | processes killed | faults | promises broken |"]
    lines.append("|---|---|---|---|---|---|")
    for target, row in sorted(real.items()):
        faults = ", ".join(f"{kind} {times}" for kind, times in sorted(row["faults"].items())) or "-"
        killed, broken = row["nodes_killed"], row["broken"]
        lines.append(
            f"| `make {target}` | {row['runs']} | {_text(row['confirmed'])} | {killed} | {faults} | {broken} |"
        )
    if totals["damages"]:
        lines += ["", *_damage_table(totals["damages"])]
    return "\n".join(lines)


def _damage_table(damages: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[str]:
    """What became of which damage of which file, since that is counted."""
    rows = [(kind, name, damages[kind][name]) for kind in sorted(damages) for name in sorted(damages[kind])]
    columns = sorted({outcome for _, _, outcomes in rows for outcome in outcomes})
    lines = ["| damage | file | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for kind, name, outcomes in rows:
        lines += [f"| {kind} | {name} | " + " | ".join(str(outcomes.get(each, 0)) for each in columns) + " |"]
    return lines


def _text(number: float) -> str:
    """With a space between thousands."""
    return f"{number:,.0f}".replace(",", " ")


def write_tables(file: Path, page: Path) -> None:
    """Put the tables of the file between the two marks of a page. Raises ValueError if it has none."""
    before, begun, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"{page} has no lines {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n{tables(load(file))}\n{END}{after}", encoding="utf-8")
