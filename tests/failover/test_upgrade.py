"""A rolling upgrade on containers of a real engine, with messages, TTL, dead letters and leases in flight.

From the image of these sources to one that is as the next release could be. `make test-upgrade FROM=COMMIT` goes from
an earlier commit to these sources.
"""

import random
from pathlib import Path

import pytest

from tests.failover.engine import make_next_image

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_rolling_upgrade_loses_nothing(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, D7, L1, L7, T5. While the level is held all nodes can go back; else it is raised when the last node is new,
    and the old release is refused after that."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from tests.failover.run import FailoverRun, carry_out_run, messages_checked
    from tests.failover.run_failover import report
    from tests.failover.upgrade import UPGRADES

    run = FailoverRun(random.randrange(1_000_000), kinds=UPGRADES, next_image=make_next_image(f"{image}-next"))
    carry_out_run(run, tmp_path)
    print(report(run))
    assert not run.violations, f"{run.violations[:10]}; logs in {tmp_path}"
    assert [fault.kind for fault in run.faults] == list(UPGRADES)
    assert messages_checked(run) > 1_000
