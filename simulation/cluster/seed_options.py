"""Which seeds a simulator's command line asks for."""

import argparse


def add_seed_options(parser: argparse.ArgumentParser) -> None:
    """`--seed`, `--seeds` and `--trace`."""
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", help="a range of seeds, the end left out: 1:5000")
    parser.add_argument("--trace", action="store_true", help="print every event of the run")


def seeds_of(options: argparse.Namespace) -> range:
    """The seeds that were asked for; 1 if none were."""
    if options.seeds is not None:
        first, end = (int(part) for part in options.seeds.split(":"))
        return range(first, end)
    first = options.seed if options.seed is not None else 1
    return range(first, first + 1)
