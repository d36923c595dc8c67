"""Some seconds of `make chaos`: real nodes die, freeze and are cut off under load, and nothing is lost or comes twice.

Nothing here is judged by the time it takes. CHAOS_SEED repeats the choices of a run, though not its timing.
"""

import os
import random
from pathlib import Path

import pytest

from simulation.node.history import CONFIRMED
from tests.reliability.chaos import Run, carry_out_run
from tests.reliability.dead_letters import DeadLetterRun, carry_out_dead_letters
from tests.reliability.faults import USUAL, kinds_of, why_not
from tests.reliability.figures import notes_of, served_from_afar
from tests.reliability.network import why_impossible
from tests.reliability.redrives import RedriveRun, carry_out_redrive
from tests.reliability.run_chaos import (
    report,
    report_dead_letters,
    report_redrive,
    report_schedules,
    report_streams,
    save,
)
from tests.reliability.run_jepsen import RUNS, carry_out, row_of
from tests.reliability.schedule_judging import GIVEN_BACK, Attempt
from tests.reliability.schedules import ScheduleRun, carry_out_schedules
from tests.reliability.streams import StreamRun, carry_out_streams

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SECONDS = 25.0
LEAST_FAULTS = 2
RATE = 300.0


def seed() -> int:
    """The seed that was asked for, or one of its own."""
    chosen = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    print(f"CHAOS_SEED={chosen}")
    return chosen


def demand(run: Run, folder: Path) -> None:
    """No promise was broken."""
    if run.violations:
        raise AssertionError(f"CHAOS_SEED={run.seed}: {run.violations[:10]}; all of it in {save(run, folder)}")


def check(kinds: list[str], folder: Path, nodes: int = 3, moves: bool = False) -> Run:
    """Run, and demand that no promise was broken; the run."""
    run = Run(seed(), SECONDS, kinds, RATE, least_faults=LEAST_FAULTS, nodes=nodes, moves=moves)
    carry_out_run(run, folder)
    print(report(run))
    demand(run, folder)
    clients = run.clients
    assert clients is not None
    # Something happened, and was seen by both sides.
    assert run.is_hit_enough
    assert len(clients.proven) > 200
    assert (bool(run.moves_asked), bool(run.places_asked)) == (moves, moves)
    return run


def test_kills_and_freezes(tmp_path: Path) -> None:
    check(kinds_of(["kill", "freeze"]), tmp_path)


def test_five_nodes_while_queues_and_replicas_move(tmp_path: Path) -> None:
    """Two of five nodes have no replica of a shard, and their clients the same promises."""
    run = check(kinds_of(["kill", "freeze"]), tmp_path, nodes=5, moves=True)
    clients = run.clients
    assert clients is not None
    notes = notes_of(clients.homes, clients.confirms, clients.moves)
    assert min(served_from_afar(run.replicas_of, notes, clients.history, clients.places)) > 100


def test_everything_with_partitions(tmp_path: Path) -> None:
    reason = why_impossible()
    if reason:
        pytest.skip(f"no partitions on this machine: {reason}")
    check([kind for kind in USUAL if kind != "kill two"], tmp_path)


@pytest.mark.parametrize("only", ["asynchronous group size 3", "polling"])
def test_jepsens_runs(only: str, tmp_path: Path) -> None:
    """Two of `make chaos-jepsen`, in short: half a minute with one partition."""
    reason = why_impossible()
    if reason:
        pytest.skip(f"no partitions on this machine: {reason}")
    [jepsen] = [each for each in RUNS if each.name.endswith(only)]
    run = carry_out(jepsen, seed(), 30, tmp_path)
    print(row_of(jepsen, run))
    demand(run, tmp_path)
    assert run.is_hit_enough and run.clients is not None and len(run.clients.history.deliveries) > 200


def test_d6_d7_dead_letters_come_once_and_in_order(tmp_path: Path) -> None:
    """5 000 messages expire into queues of other nodes while nodes fail: `make chaos-deadletters`, in short."""
    kinds = USUAL if not why_impossible() else kinds_of(["kill", "freeze"])
    run = DeadLetterRun(seed(), 0, kinds, RATE, least_faults=1, messages=5_000)
    carry_out_dead_letters(run, tmp_path)
    print(report_dead_letters(run))
    demand(run, tmp_path)
    clients = run.clients
    assert clients is not None
    assert clients.confirmed() >= run.messages
    assert run.is_hit_enough
    came = {(delivery.queue, delivery.message_id) for delivery in clients.history.deliveries}
    assert len(came) >= run.messages


def test_s3_s4_s5_what_waits_comes_once_and_in_time_or_is_cancelled(tmp_path: Path) -> None:
    """Some hundred messages wait for their time and for retries while nodes fail: `make chaos-schedules`, in short."""
    kinds = kinds_of(["kill", "freeze"])
    run = ScheduleRun(seed(), 0, kinds, 100.0, least_faults=LEAST_FAULTS, messages=600)
    carry_out_schedules(run, tmp_path)
    print(report_schedules(run))
    demand(run, tmp_path)
    clients = run.clients
    assert clients is not None
    assert clients.confirmed() >= run.messages
    assert run.is_hit_enough
    # Something was cancelled, something came back, and answers are known to have been applied.
    attempts = [each for each in clients.history.deliveries if isinstance(each, Attempt)]
    assert any(cancel.outcome == CONFIRMED for cancel in clients.history.cancels)
    assert any(attempt.failed for attempt in attempts)
    assert any(attempt.applied_us >= 0 and attempt.settled == GIVEN_BACK for attempt in attempts)


def test_l8_s3_t5_what_waits_and_leases_go_by_clocks_that_are_set_and_drift(tmp_path: Path) -> None:
    """`make chaos-schedules FAULTS=clock`, in short: nothing comes early, no lease ends early, and each ends."""
    reason = why_not(kinds_of(["clock"]))
    if reason:
        pytest.skip(reason)
    run = ScheduleRun(seed(), 0, kinds_of(["clock"]), 60.0, least_faults=4, messages=200)
    carry_out_schedules(run, tmp_path)
    print(report_schedules(run))
    demand(run, tmp_path)
    assert {fault.kind for fault in run.faults} == set(run.kinds)
    assert run.leases is not None and sum(bool(lease.gone_s) for lease in run.leases.leases) > 5


def test_r1_d6_d7_what_is_redriven_comes_back_once_and_in_order(tmp_path: Path) -> None:
    """Some thousand dead messages are redriven while nodes are killed: `make chaos-redrive`, in short."""
    run = RedriveRun(seed(), 0, ["kill"], least_faults=LEAST_FAULTS, messages=4_000, per_second=100, judges_pace=False)
    carry_out_redrive(run, tmp_path)
    print(report_redrive(run))
    demand(run, tmp_path)
    assert run.redriven.moving == 4_000
    assert run.faults


def test_j1_j2_j3_j4_streams_are_read_in_order_and_leave_their_markers(tmp_path: Path) -> None:
    """Some thousand messages in streams with mirrors while nodes fail: `make chaos-streams`, in short."""
    run = StreamRun(seed(), 0, kinds_of(["kill", "freeze"]), 200.0, least_faults=LEAST_FAULTS, messages=2_000)
    carry_out_streams(run, tmp_path)
    print(report_streams(run))
    demand(run, tmp_path)
    clients = run.clients
    assert clients is not None
    assert clients.confirmed() >= run.messages
    assert run.is_hit_enough
    # Something died out, and was seen to; readers left and came back.
    assert any(read.marker for read in clients.history.reads)
    assert any(read.begins > 0 for read in clients.history.reads)
