"""`python -m simulation.node.forming --seed 17 [--trace]` replays one seed; `--seeds 1:2000` runs a range."""

from __future__ import annotations

import argparse
import sys

from simulation.node.forming.run import FormingRun


def main() -> int:
    """Run what the command line asks for; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m simulation.node.forming", description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--seed", type=int, help="one seed")
    wanted.add_argument("--seeds", help="a range of seeds, the end left out: 1:5000")
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args()
    if options.seeds is None:
        first, end = options.seed, options.seed + 1
    else:
        first, end = (int(part) for part in options.seeds.split(":"))
    total: dict[str, int] = {}
    failed = 0
    for seed in range(first, end):
        try:
            counts = FormingRun(seed, _print if options.trace else None).run()
        except AssertionError as error:
            failed += 1
            _print(f"seed {seed}: {error}")
            continue
        for what, count in counts.items():
            total[what] = total.get(what, 0) + count
    _print(f"{failed} failed; {dict(sorted(total.items()))}")
    return 1 if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
