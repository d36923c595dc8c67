"""Hostile conversations from fresh seeds for some minutes: `make fuzz MINUTES=5`. Exit code 1 if one failed; again with
`--seed N`."""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.amqp.test_state_model import walk
from tests.fuzz.conversations import fuzz


def fresh_seeds(minutes: float) -> Iterator[int]:
    """Numbers that were never used, until the time is over; between them walks of the state model."""
    end_s = time.monotonic() + 60 * minutes
    source = random.SystemRandom()
    count = 0
    told_s = time.monotonic()
    while time.monotonic() < end_s:
        seed = source.getrandbits(40)
        try:
            walk(random.Random(seed), 60)
        except Exception:
            print(f"state model, walk(random.Random({seed}), 60):", file=sys.stderr)
            raise
        yield seed
        count += 1
        if time.monotonic() - told_s > 30:
            told_s = time.monotonic()
            print(f"{count} conversations and walks", flush=True)
    print(f"{count} conversations and walks")


def main() -> None:
    """Run, and say what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, help="this one alone")
    arguments = parser.parse_args()
    seeds = fresh_seeds(arguments.minutes) if arguments.seed is None else iter([arguments.seed])
    failed = fuzz(lambda: next(seeds, None))
    if failed:
        sys.exit(f"failed: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
