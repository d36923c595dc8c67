"""Every fault once, on containers of a real engine, with messages, TTL, dead letters and leases in flight.

Nothing here is judged by the time it takes. FAILOVER_SEED repeats the choices of a run, though not its timing.
"""

import os
import random
from pathlib import Path

import pytest

from tests.failover.engine import DEMANDED, make_image, why_no_engine

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_every_fault_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, D7, L1, L7, T5: nothing confirmed is lost, nothing comes twice, early or out of order."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    reason = why_no_engine()
    if reason and not DEMANDED:
        pytest.skip(f"no failover tests on this machine: {reason}")
    assert not reason, f"an engine is demanded (MAYFLY_DEMAND_ENGINE): {reason}"
    make_image()

    from tests.failover.run import FailoverRun, carry_out_run, messages_checked
    from tests.failover.run_failover import report

    seed = int(os.environ.get("FAILOVER_SEED", random.randrange(1_000_000)))
    run = FailoverRun(seed)
    carry_out_run(run, tmp_path)
    print(report(run))
    assert not run.violations, f"FAILOVER_SEED={seed}: {run.violations[:10]}; logs in {tmp_path}"
    # Something happened, and was seen by both sides.
    assert {fault.kind for fault in run.faults} | set(run.impossible) == set(run.kinds)
    assert not set(run.impossible) - {"slow disk"}
    assert messages_checked(run) > 1_000
    assert run.leases is not None and any(lease.gone_s for lease in run.leases.leases)
