"""`make specifications`: all states of the specifications, their mutants, groups broken on purpose, and recorded runs.

    python -P tests/specifications/run_specifications.py [--runs 500] [--steps 2000]

Exit code 1 if anything is not as it is to be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.specifications import tlc
from tests.specifications.models import MODELS, MUTANTS, check, check_mutant
from tests.specifications.node_runs import (
    BROKEN_NODES,
    CLOCKS,
    LEASES,
    MOVES,
    OUTBOXES,
    SCRIPTED_MOVES,
    SESSIONS,
    WITH_FEEDS,
    WITH_MOVES,
    refusal,
)
from tests.specifications.node_runs import judge as judge_nodes
from tests.specifications.raft_runs import BROKEN, NOT_REFUSED, judge, refusals

BATCH = 20
"""Runs for one start of TLC: it takes a second to start, and 100 000 lines fill its memory."""


def traces(runs: int, steps: int) -> bool:
    """The first so many seeds of the Raft simulator against specifications/raft. Whether all were allowed."""
    lines, seconds, refused = 0, 0.0, 0
    for first in range(1, runs + 1, BATCH):
        seeds = range(first, min(first + BATCH, runs + 1))
        with tempfile.TemporaryDirectory() as folder:
            answer = judge(Path(folder), seeds, steps)
        lines += answer.states
        seconds += answer.seconds
        if not answer.is_complete:
            refused += 1
            print(f"seeds {seeds[0]} to {seeds[-1]}: {answer.violated or 'TLC failed'}\n{answer.last_lines}")
        done = f"{lines} states in {seconds:.0f} s, {refused} batches refused"
        print(f"runs of seeds 1 to {seeds[-1]}: {done}", flush=True)
    return not refused


def nodes(runs: int) -> bool:
    """Shards of whole nodes, and broken ones. Whether all were as they are to be."""
    sound = True
    some = range(1, runs // 10 + 2)
    recorded = (
        (LEASES, range(1, runs + 1)), (OUTBOXES, some), (CLOCKS, some), (SESSIONS, [*some, *WITH_FEEDS]),
        (MOVES, [*some, *WITH_MOVES, *SCRIPTED_MOVES]),
    )  # fmt: skip
    for traced, seeds in recorded:
        with tempfile.TemporaryDirectory() as folder:
            answer = judge_nodes(Path(folder), traced, seeds)
        sound = sound and answer.is_complete
        found = "allowed" if answer.is_complete else f"{answer.violated or 'TLC failed'}\n{answer.last_lines}"
        print(f"{traced.about} of {len(seeds)} runs: {answer.states} states: {found}", flush=True)
    for broken in BROKEN_NODES:
        with tempfile.TemporaryDirectory() as folder:
            refused = refusal(Path(folder), broken)
        sound = sound and bool(refused)
        print(f"{broken}: {f'refused at {refused[0][1]}' if refused else 'ALLOWED'}", flush=True)
    return sound


def broken_groups() -> bool:
    """Each planted bug of consensus. Whether all were refused."""
    with tempfile.TemporaryDirectory() as folder:
        found = refusals(Path(folder), BROKEN)
    for runs in BROKEN:
        refused = found[runs.bug.name].items()
        where = ", ".join(f"seed {seed}: line {line}, {action}" for seed, (line, action) in refused)
        print(f"{runs.bug.name}: {'refused at ' + where if where else 'ALLOWED'}")
    for name, reason in NOT_REFUSED.items():
        print(f"{name}: not tried, {reason}")
    return all(found.values())


def models() -> bool:
    """All states of each specification. Whether all hold."""
    sound = True
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            answer = check(Path(folder), model)
        sound = sound and answer.is_complete
        found = "holds" if answer.is_complete else f"{answer.violated or 'TLC failed'}\n{answer.last_lines}"
        print(f"{model}: {answer.states} states, depth {answer.depth}, {answer.seconds:.0f} s: {found}", flush=True)
    return sound


def mutants() -> bool:
    """Each mutant. Whether all were found."""
    sound = True
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as folder:
            answer = check_mutant(Path(folder), mutant)
        sound = sound and answer.violated == mutant.violates
        print(f"{mutant}: {answer.violated or 'NOT FOUND'} after {answer.states} states", flush=True)
    return sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="of the Raft simulator, from seed 1 on")
    parser.add_argument("--steps", type=int, default=2_000, help="of each run, from its beginning on")
    arguments = parser.parse_args()
    reason = tlc.why_not()
    if reason:
        print(f"The specifications can't be checked: {reason}", file=sys.stderr)
        return 2
    done = [models(), mutants(), broken_groups(), nodes(min(arguments.runs, 100))]
    done.append(traces(arguments.runs, arguments.steps))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
