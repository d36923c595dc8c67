"""How the cost of a message grows with message size, queues, connections, consumers, bindings, backlog, shards, nodes.

    python bench/growth.py [--quick] [--only size,backlog] [--source] [--draw-only] [--folder docs/measurements/growth]

Figures are kept as JSON, knob by knob: measuring one again keeps the others. Curves and tables are made of all that
are kept. What grows faster than linearly (see `growth_curves`), noise taken off, is red on its curve and told at the
end; that is no failure of the program. Compare CPU, not rates, on a machine that does other things too.
"""

import argparse
import datetime
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import BrokerFailed
from bench.growth_cluster import Load, Measuring
from bench.growth_curves import KNOBS, Knob
from bench.machine import describe_machine, load_average, only_benchmark


def measure(knob: Knob, points: tuple[int, ...], measuring: Measuring, load: Load) -> dict[str, Any]:
    """All points of a knob, and when and where they were measured."""
    began = time.monotonic()
    print(knob.name, flush=True)
    figures: dict[str, dict[str, float]] = {}
    for point, values in knob.measure(measuring, load, points):
        figures[str(point)] = {field: float(f"{value:.5g}") for field, value in values.items()}
        told = ", ".join(f"{field} {value:g}" for field, value in figures[str(point)].items())
        print(f"  {point:,}: {told}  [{time.monotonic() - began:.0f} s]", flush=True)
    return {
        "when": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "where": f"{describe_machine()}, {'source tree, uncompiled' if measuring.source else 'installed package'}, "
                 f"load average {load_average()} at the end",
        "command": " ".join(["python", "bench/growth.py", *sys.argv[1:]]),
        "took_s": round(time.monotonic() - began, 1),
        "points": figures,
    }


def main() -> None:
    """Measure, keep, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [knob.name for knob in KNOBS]
    parser.add_argument("--quick", action="store_true", help="few points, small sizes")
    parser.add_argument("--only", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--source", action="store_true", help="nodes of this tree, uncompiled")
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, draw what is kept")
    usual = ROOT / "docs" / "measurements" / "growth"
    parser.add_argument("--folder", type=Path, default=usual, help="for figures.json and pictures")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"--only: no such knob: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    # Before minutes of measuring, not after.
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("no matplotlib, which draws the curves; `make bench-growth` installs requirements/charts.txt")
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "figures.json"
    kept: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    if not arguments.draw_only:
        try:
            with only_benchmark():
                measuring, load = Measuring(arguments.source), Load()
                for knob in KNOBS:
                    if knob.name in wanted:
                        kept[knob.name] = measure(knob, knob.quick if arguments.quick else knob.points, measuring, load)
                        store.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        except BrokerFailed as failure:
            sys.exit(f"{failure}\n(the knobs before are kept)")
    from bench.growth_report import write_all

    document = folder.parent / f"{folder.name}.md"
    steep = write_all(kept, folder, document)
    print("\n".join(["worse than linear:", *(f"  {sentence}" for sentence in steep or ["nothing"])]))


if __name__ == "__main__":
    main()
