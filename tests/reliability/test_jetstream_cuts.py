"""What stands beside `make power-cuts`: one loss of power under JetStream with each of its settings."""

from pathlib import Path

import pytest

from tests.reliability.jetstream_cuts import CutRun, carry_out, report, why_impossible

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def cut_once(sync: str, folder: Path) -> CutRun:
    reason = why_impossible()
    if reason:
        pytest.skip(f"no losses of power under JetStream on this machine: {reason}")
    run = carry_out(folder, sync, cuts=1, seconds=4, least=100)
    print(report([run]))
    assert run.cuts[0].acknowledged > 100
    return run


def test_a_sync_before_each_answer_loses_nothing(tmp_path: Path) -> None:
    assert cut_once("always", tmp_path).cuts[0].lost == 0


def test_what_is_not_synced_is_counted_as_lost(tmp_path: Path) -> None:
    """Else a figure of 0 would say nothing."""
    assert cut_once("default", tmp_path).cuts[0].lost > 0
