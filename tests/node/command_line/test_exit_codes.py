"""Settings that can't be end every command that reads them with 78: a service manager does not try again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import plan_cluster, this_mayfly
from mayfly.node.settings import SettingsError
from mayfly.node.settings.sources import load_settings

ROOT = Path(__file__).resolve().parents[3]


def mayfly(*arguments: str, folder: Path, **environment: str) -> tuple[int, str]:
    """The exit code of the real process, and what it said on standard error."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("MAYFLY_")}
    done = subprocess.run(
        [*this_mayfly(), *arguments], cwd=folder, env=own | environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (("node", "--tick-ms", "x"), {}, "tick_ms = 'x' (option --tick-ms)"),
        (("node",), {"MAYFLY_SHARDS": "-1"}, "shards = '-1' (environment variable MAYFLY_SHARDS)"),
        (("node", "--config", "none.toml"), {}, "none.toml: cannot be read"),
        (("node", "--processes", "2", "--peer-address", "127.0.0.1:65535"), {}, "peer_address"),
        (("up",), {"MAYFLY_SHARDS": "-1"}, "shards = '-1' (environment variable MAYFLY_SHARDS)"),
        (("up", "--config", "none.toml"), {}, "none.toml: cannot be read"),
        (("demo", "--once"), {"MAYFLY_SHARDS": "-1"}, "shards = '-1' (environment variable MAYFLY_SHARDS)"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_bad_settings_end_with_78(
    arguments: tuple[str, ...], environment: dict[str, str], says: str, tmp_path: Path
) -> None:
    code, told = mayfly(*arguments, folder=tmp_path, **environment)
    assert says in told
    assert code == exit_codes.REFUSED == 78
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_data_of_more_processes_than_the_settings_say_ends_with_78(tmp_path: Path) -> None:
    (tmp_path / "data" / "process2").mkdir(parents=True)
    code, told = mayfly("node", "--data-dir", "data", folder=tmp_path)
    assert (code, "mayfly cluster remove" in told) == (exit_codes.REFUSED, True), told


def test_the_documents_and_the_unit_name_that_code() -> None:
    assert f"RestartPreventExitStatus={exit_codes.REFUSED}" in (ROOT / "deploy" / "mayfly.service").read_text()
    assert f"exit code {exit_codes.REFUSED}." in (ROOT / "docs" / "settings.md").read_text()


def test_a_cluster_of_which_no_node_may_go_on_ends_with_78(tmp_path: Path) -> None:
    """Each node refuses its data, which is that of another cluster."""
    stub = ROOT / "tests" / "node" / "command_line" / "stub_node.py"
    program = (
        "import sys; from pathlib import Path\n"
        "from mayfly.node.command_line import up_command; from mayfly.node.local_nodes import local_cluster\n"
        "made = local_cluster.LocalCluster\n"
        f"up_command.LocalCluster = lambda plans: made(plans, [sys.executable, {str(stub)!r}])\n"
        "from mayfly.node.command_line import main; main()"
    )
    for name in ("node1", "node2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sent away").touch()
    from tests.integration.nodes import Ports

    ports = Ports(2)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, "up", "--nodes=2", f"--base-port={ports.base}", f"--data-dir={tmp_path}"],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )
    finally:
        ports.release()
    assert done.returncode == exit_codes.REFUSED, done.stderr
    assert "no node is left" in done.stderr


def test_settings_that_each_node_has_for_itself_are_not_asked_of_the_file(tmp_path: Path) -> None:
    """The seeds of the file would be none of these nodes', and are not theirs."""
    file = tmp_path / "mayfly.toml"
    file.write_text('seeds = ["10.0.0.1:1", "10.0.0.2:1"]\n')
    for plan in plan_cluster(2, 5672, tmp_path, file):
        options = {key: str(value) for key, value in plan.own_settings().items()}
        assert load_settings(file, {}, options).seeds == plan.seeds
    with pytest.raises(SettingsError, match="seeds"):
        load_settings(file, {})
