"""Hostile input from fresh seeds for some minutes: `make fuzz MINUTES=5`. Exit code 1 if something failed; again with
`--only KIND --seed N`."""

import argparse
import itertools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.fuzz.codecs import try_codecs
from tests.fuzz.conversations import Conversations
from tests.fuzz.endpoint_walks import walk as walk_endpoint
from tests.node.amqp.test_state_model import walk as walk_states

_TOLD_EVERY_S = 60
_ENOUGH_FAILURES = 100


def kinds() -> dict[str, Callable[[int], object]]:
    """What is done with a seed."""
    return {
        "endpoint": walk_endpoint,
        "conversation": Conversations().converse,
        "states": lambda seed: walk_states(random.Random(seed), 60),
        "codecs": try_codecs,
    }


def fresh_seeds() -> Iterator[int]:
    """Numbers that were never used."""
    source = random.SystemRandom()
    while True:
        yield source.getrandbits(40)


def fuzz(chosen: dict[str, Callable[[int], object]], seeds: Iterator[int], minutes: float) -> list[str]:
    """One seed after the other for each kind in turn; what failed."""
    end_s = time.monotonic() + 60 * minutes
    told_s = time.monotonic()
    counts: Counter[str] = Counter()
    failed: list[str] = []

    def tell() -> None:
        done = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        print(f"{done}; {time.process_time():.0f} s of CPU, {len(failed)} failed", flush=True)

    for seed, (kind, act) in zip(seeds, itertools.cycle(chosen.items()), strict=False):
        try:
            act(seed)
        except Exception as error:
            failed.append(f"--only {kind} --seed {seed}")
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{failed[-1]}: {place.name}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
        counts[kind] += 1
        now_s = time.monotonic()
        if now_s > end_s or len(failed) >= _ENOUGH_FAILURES:
            break
        if now_s - told_s > _TOLD_EVERY_S:
            told_s = now_s
            tell()
    tell()
    return failed


def main() -> None:
    """Run, and say what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--only", choices=list(kinds()), help="this kind alone")
    arguments = parser.parse_args()
    chosen = {kind: act for kind, act in kinds().items() if arguments.only in (None, kind)}
    seeds = fresh_seeds() if arguments.seed is None else iter([arguments.seed] * len(chosen))
    if failed := fuzz(chosen, seeds, arguments.minutes):
        sys.exit("failed: " + "; ".join(failed))


if __name__ == "__main__":
    main()
