"""Some losses of power under real nodes (`make power-cuts`), and a log that skips its syncs, which has to show.

CHAOS_SEED repeats the choices of a run, though not its timing.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from mayfly.node.local_nodes.local_cluster import this_mayfly
from simulation.node.checker import Violation
from tests.reliability.chaos import Run, carry_out_run
from tests.reliability.dead_letters import DeadLetterRun, carry_out_dead_letters
from tests.reliability.disks import Disks, why_impossible
from tests.reliability.faults import POWER, kinds_of
from tests.reliability.run_chaos import report, report_dead_letters
from tests.reliability.test_chaos import RATE, demand, seed
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SOME = 3
CAUGHT_WITHIN = 20
REFUSES = "cannot start: "
"""What a node says that does not take its folder, before why."""


@pytest.fixture(autouse=True)
def disks_that_forget() -> None:
    reason = why_impossible()
    if reason:
        pytest.skip(f"no disks that forget on this machine: {reason}")


def test_t5_d6_dead_letters_through_losses_of_power(tmp_path: Path) -> None:
    """Nothing that was confirmed is lost, no dead letter comes twice or early."""
    run = DeadLetterRun(seed(), 0, kinds_of([POWER]), RATE, least_faults=SOME)
    carry_out_dead_letters(run, tmp_path)
    print(report_dead_letters(run))
    demand(run, tmp_path)
    assert run.is_hit_enough and run.clients is not None and run.clients.confirmed() > 500


def test_acknowledgements_through_losses_of_power(tmp_path: Path) -> None:
    """What was applied stays applied: an acknowledged message goes to nobody who comes later."""
    run = Run(seed(), 0, kinds_of([POWER]), RATE, least_faults=SOME)
    carry_out_run(run, tmp_path)
    print(report(run))
    demand(run, tmp_path)
    assert run.is_hit_enough and run.clients is not None and len(run.clients.proven) > 200


def test_a_log_that_skips_its_syncs_breaks_a_promise(tmp_path: Path) -> None:
    """Else these cuts would show nothing."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: syncs are skipped by a library made for it")
    library = tmp_path / "no_sync.so"
    source = Path(__file__).with_name("no_sync.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    run = DeadLetterRun(seed(), 0, kinds_of([POWER]), RATE, least_faults=CAUGHT_WITHIN)
    run.executable = ["env", f"LD_PRELOAD={library}", *this_mayfly()]
    carry_out_dead_letters(run, tmp_path)
    print(f"after {len(run.faults)} losses of power: {run.violations[:3]}")
    broken = [violation for violation in run.violations if shows_a_loss(violation)]
    assert broken, f"nothing was lost, came twice or early, and no node refused its folder: {run.violations}"


def shows_a_loss(violation: Violation) -> bool:
    """Not that a slow machine does not recover in time, or a line in a log; but that a node refuses its folder."""
    return violation.rule not in ("recovery", "log") or REFUSES in violation.text


def test_a_slow_recovery_shows_no_loss() -> None:
    assert not shows_a_loss(Violation("recovery", "node 1 is ready: not within 180 s"))
    assert shows_a_loss(Violation("log", f"node1 {REFUSES}data.mdb is damaged: page 2 is not a page"))


def test_a_disk_comes_back_though_another_namespace_began_with_it(tmp_path: Path) -> None:
    """As hosts of tests that run at the same time do; the file system would stay as it was, stopped."""
    disks = Disks(tmp_path, [1])
    try:
        data = disks.data_folder(1)
        data.mkdir()
        other = subprocess.Popen(["unshare", "--mount", "--propagation", "slave", "sleep", "600"])
        try:
            wait_for(lambda: Path(f"/proc/{other.pid}/cmdline").read_bytes().startswith(b"sleep"), "another namespace")
            disks.cut(1)
            with pytest.raises(OSError):
                (data / "lost").touch()
            disks.come_back(1)
            disks.data_folder(1).mkdir(exist_ok=True)
            (data / "there").touch()
        finally:
            other.kill()
            other.wait()
    finally:
        disks.close()
