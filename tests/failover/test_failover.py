"""Every fault once, on containers of a real engine, with messages, TTL, dead letters and leases in flight.

Nothing here is judged by the time it takes. FAILOVER_SEED repeats the choices of a run, though not its timing.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.integration.nodes import START_WITHIN_S, wait_for

STOP_WITHIN_S = 120

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_container_that_is_stopped_while_it_starts_ends_at_once(image: str) -> None:
    """Python has no handler for SIGTERM yet then; 137 would be the engine's SIGKILL, when its patience was over."""
    made = docker("run", "--detach", image)
    try:
        docker("stop", "--time", str(STOP_WITHIN_S), made)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", made) in ("0", "143")
    finally:
        docker("rm", "--force", "--volumes", made)


def test_the_image_needs_no_rights_and_is_healthy(image: str) -> None:
    """Read-only, no capabilities, not root; a node serves and stops in order."""
    made = docker("run", "--detach", "--read-only", "--cap-drop", "ALL", "--health-interval", "1s", image)
    try:
        wait_for(
            lambda: docker("inspect", "--format", "{{.State.Health.Status}}", made) == "healthy", "health",
            START_WITHIN_S, 0.5,
        )  # fmt: skip
        assert docker("exec", made, "id", "-u") == "10001"
        docker("stop", "--time", str(STOP_WITHIN_S), made)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", made) == "0"
    finally:
        docker("rm", "--force", "--volumes", made)


def docker(*words: str) -> str:
    """What the command says."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=3 * STOP_WITHIN_S)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def test_every_fault_once(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6, D7, L1, L7, T5: nothing confirmed is lost, nothing comes twice, early or out of order."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
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


def test_five_nodes_while_queues_and_replicas_move(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with some faults, while queues are on their way to other shards and replicas to other nodes."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from tests.failover.run import FailoverRun, carry_out_run, messages_checked
    from tests.failover.run_failover import report

    seed = int(os.environ.get("FAILOVER_SEED", random.randrange(1_000_000)))
    run = FailoverRun(seed, kinds=["kill", "pause", "isolate"], rate=90.0, nodes=5, moves=True)
    carry_out_run(run, tmp_path)
    print(report(run))
    assert not run.violations, f"FAILOVER_SEED={seed}: {run.violations[:10]}; logs in {tmp_path}"
    assert {fault.kind for fault in run.faults} == set(run.kinds)
    assert messages_checked(run) > 300
    assert run.streams.moves_asked and run.streams.places_asked
