"""Some seconds of `make chaos` with disks that are slow or fail, too little memory, and links that lose and delay.

CHAOS_SEED repeats the choices of a run, though not its timing.
"""

from pathlib import Path

import pytest

from tests.reliability.chaos import Run, carry_out_run
from tests.reliability.faults import DISK, MEMORY, WEATHER, kinds_of, why_not
from tests.reliability.run_chaos import report
from tests.reliability.test_chaos import demand, seed

pytestmark = [pytest.mark.processes, pytest.mark.slow]

RATE = 100.0


@pytest.mark.parametrize("kind", kinds_of([DISK, MEMORY, WEATHER]))
def test_nothing_confirmed_is_lost_or_comes_twice(kind: str, tmp_path: Path) -> None:
    """And the node is hit as it is meant: `tests.reliability.faults` looks at what it does and says."""
    reason = why_not([kind])
    if reason:
        pytest.skip(reason)
    run = Run(seed(), 0, [kind], RATE, least_faults=1)
    carry_out_run(run, tmp_path)
    print(report(run))
    demand(run, tmp_path)
    assert run.is_hit_enough and run.clients is not None and len(run.clients.history.deliveries) > 200
