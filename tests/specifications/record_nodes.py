"""Records seeds of whole simulated nodes into a module: `python -P record_nodes.py leases SEED,SEED MODULE.tla`.

A program of its own so that it can run with broken sources (tests/bugs).
"""

import logging
import sys
from pathlib import Path

from tests.specifications.node_traces import MODULES


def main(about: str, seeds: str, file: str) -> None:
    """Writes these runs."""
    logging.disable(logging.CRITICAL)
    module = MODULES[about](Path(file).stem, [int(seed) for seed in seeds.split(",")])
    Path(file).write_text(module, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
