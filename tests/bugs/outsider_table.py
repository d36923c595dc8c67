"""Each bug made on purpose, tried against the outsider's judge with a few seeds: a table for the documentation.

    python -m tests.bugs.outsider_table --write docs/measurements/second-judge.md

A bug is tried in a process of its own that reads the source as it is, and the one file with the bug in it; the seeds
are run until one of them fails: seeds of the outsider, then seeds of long times, then those whose queues move. With
`--write` the row of each bug is replaced or added as soon as it is known, and bugs that the page has as caught are not
tried again: it may be ended and begun again; with `--new`, all that the page has. `--only TEXT` tries the bugs of files
whose path has this text in it.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from tests.bugs.amqp_bugs import AMQP_BUGS
from tests.bugs.brake_bugs import BRAKE_BUGS
from tests.bugs.bug import ROOT, Bug
from tests.bugs.group_bugs import GROUP_BUGS
from tests.bugs.host_bugs import HOST_BUGS
from tests.bugs.http_bugs import HTTP_BUGS
from tests.bugs.log_bugs import LOG_BUGS
from tests.bugs.memory_bugs import MEMORY_BUGS
from tests.bugs.move_bugs import MOVE_BUGS
from tests.bugs.plan_bugs import PLAN_BUGS
from tests.bugs.queue_bugs import QUEUE_BUGS
from tests.bugs.raft_bugs import RAFT_BUGS
from tests.bugs.redrive_bugs import REDRIVE_BUGS
from tests.bugs.start_bugs import START_BUGS
from tests.bugs.stream_bugs import STREAM_BUGS
from tests.bugs.time_bugs import TIME_BUGS
from tests.bugs.transport_bugs import TRANSPORT_BUGS

KINDS: Final = {
    "time": TIME_BUGS, "queues": QUEUE_BUGS, "groups": GROUP_BUGS, "Raft": RAFT_BUGS, "AMQP": AMQP_BUGS,
    "hosts": HOST_BUGS, "log": LOG_BUGS, "memory": MEMORY_BUGS, "plans": PLAN_BUGS, "starts": START_BUGS,
    "HTTP": HTTP_BUGS, "transport": TRANSPORT_BUGS, "streams": STREAM_BUGS,
    "redrives": REDRIVE_BUGS, "brakes": BRAKE_BUGS, "moves": MOVE_BUGS,
}  # fmt: skip
LONGEST_S: Final = 1_200.0
SEEDS: Final = "353,30,188,339"
"""Few that have every family of queues among them, without faults, with crashes, and with leaders that hand over."""
LONG_SEEDS: Final = "3218,2384,3063"
"""The same for the runs of long times: outages of all, clocks that are stepped by hours, and leaders that hand over."""
MOVING_SEEDS: Final = "1,2,3,4,5"
"""The same for the runs whose queues move to other shards."""
OUTSIDE: Final = "its file does not run in simulated nodes"
CAUGHT, PASSED, NOT_RUN, TOO_LONG, ENDED = "caught", "passed", "not run", "too long", "ended"

WHY_NOT: Final = {
    "time": "needs a clock, an outage or a state that these seeds do not have",
    "queues": "breaks what these clients do not do (moves, transactions, streams, topics, permissions), or seldom",
    "groups": "needs a loss at one moment that a few seeds do not meet; no client sees it else",
    "Raft": "needs a loss at one moment that a few seeds do not meet; no client sees it else",
    "AMQP": "breaks octets or methods that a well-behaved client does not send, or seldom",
    "hosts": "costs time, or needs a disk that loses data, which the outsider's have not",
    "log": "needs a disk that loses or damages data, which the outsider's have not",
    "memory": "costs memory or time, which no answer shows",
    "plans": "needs members that come and go, which these runs have not",
    "starts": "needs members or shards that are added, which these runs have not",
    "HTTP": "breaks what is asked over HTTP, which the outsider does not use",
    "transport": "breaks connections between nodes, which simulated nodes have not",
    "streams": "breaks streams, which the outsider does not use",
    "redrives": "breaks redrives, which the outsider does not ask for",
    "brakes": "breaks brakes, for which a policy is needed; the outsider sets none",
    "moves": "needs a word, or a leader, of an earlier move that comes when the queue moves again",
}
"""Why bugs of a kind are not caught, where nothing better is known."""

WHY_NOT_THIS: Final = {
    "moves a queue that was declared anew": "needs a move by a queue's id; the outsider's operator says its name",
    "counts for a move how long an earlier one has waited":
        "moves sooner than it may, which breaks D7 at full queues, where the judge lets it pass",
    "sends a queue to a shard that nobody leads": "costs time, until that shard has a leader",
    "commits to where a queue has moved on without waiting for what is behind it":
        "breaks the order of transactions, which the outsider does not use",
    "puts a letter before what is still on its way with its queue":
        "needs a queue that refuses publishes and moves to the shard of one that dies into it",
    "passes over what a queue that comes back has in its lane":
        "needs a publish of a node that is behind, when the queue comes back",
    "keeps what was published in the entry that drops a queue on its way back":
        "needs a publish of a node that is behind, in the one entry that drops the queue",
    "lets a letter without room hold up who makes room":
        "needs consumers of a full queue that moves with letters before it",
    "sends nothing that lets a queue be used before there is room":
        "needs consumers of a full queue that moves with letters before it",
    "has publishers wait for letters without room": "costs publishers time, of which no rule speaks",
    "gives the place of consumers that are on their way to an exclusive one":
        "needs exclusive consumers, which the outsider has not",
}  # fmt: skip
"""The same where more is known of a bug."""


class BrokenLoader(SourceFileLoader):
    """Loads a module from its source with a bug in it."""

    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType | None:
        """Never from a cache."""
        text = self._bug.in_text(Path(self.path).read_text(encoding="utf-8"))
        code: CodeType = self.source_to_code(text.encode(), self.path)
        return code


class BrokenFinder(MetaPathFinder):
    """Finds every module where it is, and gives the one with the bug another loader."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug
        self._place = (ROOT / bug.path).resolve()
        self.met = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not fullname.startswith(("mayfly", "simulation")):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin and Path(spec.origin).resolve() == self._place:
            self.met = True
            spec.loader = BrokenLoader(fullname, spec.origin, self._bug)
        return spec


def try_one(
    bug: Bug, seeds: Sequence[int], long_seeds: Sequence[int], moving_seeds: Sequence[int]
) -> dict[str, Any]:
    """What the outsider says of a bug, in this process, which must not have imported the product yet; and what the
    first judge does of the same runs (`simulation.outsider.both_judges`)."""
    finder = BrokenFinder(bug)
    sys.meta_path.insert(0, finder)
    logging.disable(logging.CRITICAL)
    from simulation.outsider.run import FIRST_JUDGE  # not before the finder is there
    from simulation.simulators import LONG, MOVING, OUTSIDER

    if not finder.met:
        return {"found": NOT_RUN}
    first = ""
    tries = [(OUTSIDER, seed) for seed in seeds]
    tries += [*((LONG, seed) for seed in long_seeds), *((MOVING, seed) for seed in moving_seeds)]
    for simulator, seed in tries:
        try:
            violations = simulator.begin(simulator.draw(seed), None).run().violations
        except Exception as error:  # of whatever the bug breaks; that a node falls over is no judgement
            return {"found": ENDED, "says": f"{type(error).__name__}: {error}"}
        says = [str(each) for each in violations if not each.rule.startswith(FIRST_JUDGE)]
        first = first or next((f"seed {seed}: {each}" for each in violations if each.rule.startswith(FIRST_JUDGE)), "")
        if says:
            return {"found": CAUGHT, "seed": f"{simulator.name} {seed}", "says": says[0], "first": first}
    return {"found": PASSED, "first": first}


def try_in_a_process(
    bug: Bug, seeds: Sequence[int], long_seeds: Sequence[int] = (), moving_seeds: Sequence[int] = ()
) -> dict[str, Any]:
    """The same in a process of its own, with an end."""
    words = [sys.executable, "-m", "tests.bugs.outsider_table", "--one", bug.name]
    words += ["--seeds", ",".join(map(str, seeds)), "--long-seeds", ",".join(map(str, long_seeds))]
    words += ["--moving-seeds", ",".join(map(str, moving_seeds))]
    try:
        ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return {"found": TOO_LONG}
    if ran.returncode:
        last = ran.stderr.strip().splitlines()[-1:] or ["no word"]
        return {"found": ENDED, "says": last[0]}
    result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return result


def row_of(kind: str, bug: Bug, result: dict[str, Any], seeds: Sequence[int]) -> str:
    """A row of the table."""
    found = result["found"]
    if found == CAUGHT:
        says = str(result["says"]).replace("|", "\\|")
        verdict, reason = f"caught, seed {result.get('seed', '-')}", says[:150]
    elif found == NOT_RUN:
        verdict, reason = "not run", OUTSIDE
    elif found == ENDED:
        verdict, reason = "not judged", f"the run ends by itself: {str(result['says'])[:120]}"
    elif found == TOO_LONG:
        verdict, reason = "not caught", f"took more than {LONGEST_S:.0f} s"
    else:
        verdict, reason = f"not caught, {len(seeds)} seeds", WHY_NOT_THIS.get(bug.name, WHY_NOT[kind])
        if result.get("first"):
            verdict, reason = f"{verdict}; the first judge does", str(result["first"]).replace("|", "\\|")[:150]
    return f"| {kind} | {bug.name} | {verdict} | {reason} |"


def put_row(page: Path, row: str) -> None:
    """Replace the row of this bug in a page, or add it behind those of its kind, or behind all."""
    lines = page.read_text(encoding="utf-8").splitlines()
    kind, name = row.split(" | ")[:2]
    same = [place for place, line in enumerate(lines) if line.startswith(f"{kind} | {name} | ")]
    if same:
        lines[same[0]] = row
    else:
        like = [place for place, line in enumerate(lines) if line.startswith(f"{kind} | ")]
        rows = [place for place, line in enumerate(lines) if line.startswith("| ")]
        lines.insert(max(like or rows or [len(lines) - 1]) + 1, row)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_settled(page: Path, kind: str, bug: Bug, only_new: bool = False) -> bool:
    """Whether the page has this bug as caught, or as one that can't run; or at all, when `only_new` ones are tried."""
    begin = f"| {kind} | {bug.name} | "
    settled = (begin,) if only_new else (f"{begin}caught", f"{begin}not run")
    return any(line.startswith(settled) for line in page.read_text(encoding="utf-8").splitlines())


def main(arguments: Sequence[str]) -> int:
    """The table, row by row as it is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.bugs.outsider_table", description=__doc__)
    parser.add_argument("--seeds", default=SEEDS, help=f"which, one after the other (default: {SEEDS})")
    parser.add_argument("--long-seeds", default=LONG_SEEDS, help=f"and of long times (default: {LONG_SEEDS})")
    parser.add_argument("--moving-seeds", default=MOVING_SEEDS, help=f"and of moves (default: {MOVING_SEEDS})")
    parser.add_argument("--only", default="", help="only bugs in files whose path has this text in it")
    parser.add_argument("--kind", default="", help=f"only one kind: {', '.join(KINDS)}")
    parser.add_argument("--new", action="store_true", help="only bugs that the page with the table has not")
    parser.add_argument("--write", type=Path, help="a page with the table, whose rows are replaced")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seeds, long_seeds, moving_seeds = (
        [int(seed) for seed in text.split(",") if seed]
        for text in (options.seeds, options.long_seeds, options.moving_seeds)
    )
    if options.one:
        bug = next(bug for bugs in KINDS.values() for bug in bugs if bug.name == options.one)
        print(json.dumps(try_one(bug, seeds, long_seeds, moving_seeds)))
        return 0
    for kind, bugs in KINDS.items():
        for bug in bugs:
            if options.only not in bug.path or options.kind not in ("", kind):
                continue
            if options.write is not None and is_settled(options.write, kind, bug, options.new):
                continue
            found = try_in_a_process(bug, seeds, long_seeds, moving_seeds)
            row = row_of(kind, bug, found, [*seeds, *long_seeds, *moving_seeds])
            print(row, flush=True)
            if options.write is not None:
                put_row(options.write, row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
