"""`python -m cluster.simulator --seed 17 [--trace]` or `--seeds 1:5000`: Raft groups on the worst network."""

from __future__ import annotations

import argparse
import sys

from cluster.simulator.raft_group import RaftGroup


def main() -> int:
    """Run the seeds asked for; the exit code says whether all of them kept Raft's properties."""
    parser = argparse.ArgumentParser(prog="python -m cluster.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", help="a range of seeds, the end left out: 1:5000")
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args()
    if options.seeds:
        first, end = (int(part) for part in options.seeds.split(":"))
    else:
        first = options.seed if options.seed is not None else 1
        end = first + 1
    failed: list[int] = []
    for seed in range(first, end):
        group = RaftGroup(seed, print if options.trace else None)
        try:
            group.run()
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            if end - first <= 20:
                applied = group.observer.highest_applied
                print(
                    f"seed {seed}: {applied} entries, {len(group.observer.leaders)} leaders, trace "
                    f"{group.trace.digest()}"
                )
    print(f"{end - first} seeds, {len(failed)} failed {failed[:20] if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
