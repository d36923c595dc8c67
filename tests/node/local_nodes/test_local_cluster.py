"""`mayfly up` and the processes it watches, with a stub in the place of the node."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.node.local_nodes import local_cluster
from mayfly.node.local_nodes.local_cluster import (
    HTTP_OFFSET,
    PEER_OFFSET,
    ChildEnd,
    ClusterError,
    LocalCluster,
    NodePlan,
    ephemeral_ports,
    frames_offset,
    plan_cluster,
)
from mayfly.node.settings.sources import load_settings
from tests.integration.nodes import Ports
from tests.node.command_line.stubs import STUB, is_running
from tests.waiting import BOUND_S, wait_for

SUPERVISOR = """
import functools, sys
from mayfly.node.command_line import up_command
from mayfly.node.local_nodes import local_cluster
stub = [sys.executable, sys.argv.pop(1)]
up_command.LocalCluster = functools.partial(local_cluster.LocalCluster, executable=stub)
up_command.command()
"""


@pytest.fixture
def base_port() -> Iterator[int]:
    """A base port that no other test takes, nor the system for an outgoing connection, with those above it."""
    ports = Ports(3)
    yield ports.base
    ports.release()


@pytest.fixture
def cluster(base_port: int, tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(plan_cluster(3, base_port, tmp_path), [sys.executable, str(STUB)])
    yield cluster
    cluster.stop(patience_s=1)


def test_ports_follow_from_the_base_port(tmp_path: Path) -> None:
    plans = plan_cluster(3, 5672, tmp_path)
    assert [plan.name for plan in plans] == ["node1", "node2", "node3"]
    for i, plan in enumerate(plans):
        ports = [address.port for address in plan.addresses]
        assert ports == [5672 + i + offset for offset in (0, HTTP_OFFSET, PEER_OFFSET, 15_000)]


@pytest.mark.parametrize(("base_port", "count"), [(45_534, 3), (0, 1), (-5, 1), (70_000, 1), (45_536, 1)])
def test_ports_that_do_not_exist_are_refused(base_port: int, count: int, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"choose a base port from 1 to 455\d\d"):
        plan_cluster(count, base_port, tmp_path)
    plan_cluster(count, 45_535 - count + 1, tmp_path)


@pytest.mark.parametrize("ephemeral", [range(32_768, 61_000), range(15_000, 32_768), range(1_024, 65_536)])
def test_frames_are_no_ports_that_the_system_gives_to_others(ephemeral: range) -> None:
    """As far as there are others; and never one of the other addresses of the nodes."""
    count = 99
    for base_port in range(1, 45_437, 7):
        frames = range(first := base_port + frames_offset(count, base_port, ephemeral), first + count)
        assert frames.start >= 1 and frames.stop <= 65_536
        for offset in (0, HTTP_OFFSET, PEER_OFFSET):
            first_other = base_port + offset
            assert frames.stop <= first_other or frames.start >= first_other + count
        if ephemeral.start == 32_768:
            assert frames.stop <= ephemeral.start or frames.start >= ephemeral.stop, base_port


def test_the_ephemeral_ports_are_those_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(local_cluster, "_EPHEMERAL_FILE", told)
    assert ephemeral_ports() == range(32_768, 61_000)
    told.write_text("20000\t30000\n")
    assert ephemeral_ports() == range(20_000, 30_001)
    assert plan_cluster(1, 5672, tmp_path)[0].frames.port == 30_672


def test_the_command_of_a_node_is_complete(tmp_path: Path) -> None:
    """A node that is killed can be started again alone with the command that was printed."""
    folder = tmp_path / "with space"
    for i, plan in enumerate(plan_cluster(3, 5672, folder), 1):
        words = shlex.split(plan.command())
        arguments = words[words.index("node") + 1 :]
        options = {key[2:].replace("-", "_"): value for key, value in zip(arguments[::2], arguments[1::2], strict=True)}
        settings = load_settings(options=options)
        assert (settings.node_id, settings.name, len(settings.nodes)) == (i, f"node{i}", 3)
        assert settings.data_dir == folder / f"node{i}"
        assert settings.frames_listen_address == plan.frames
    assert "--seeds" not in plan_cluster(1, 5672, folder)[0].arguments()


def test_taken_ports_are_told_before_anything_starts(cluster: LocalCluster, base_port: int) -> None:
    with (
        socket.create_server(("127.0.0.1", base_port + HTTP_OFFSET + 1)),
        pytest.raises(ClusterError, match=f"127.0.0.1:{base_port + HTTP_OFFSET + 1} in use by another process"),
    ):
        cluster.start()
    assert cluster.running() == []


def test_nodes_are_started_killed_and_started_again(cluster: LocalCluster) -> None:
    serving: list[NodePlan] = []
    cluster.start()
    cluster.wait_until_serving(serving.append, timeout_s=BOUND_S)
    assert sorted(plan.name for plan in serving) == ["node1", "node2", "node3"]
    victim = cluster.plans[1]
    end = cluster.kill(victim)
    assert end.describe() == f"node2 (pid {end.pid}) was killed by SIGKILL"
    assert victim not in cluster.running()
    assert cluster.ended() == []
    cluster.start_node(victim)
    cluster.wait_until_serving(timeout_s=BOUND_S)
    pids = [cluster.pid(plan) for plan in cluster.plans]
    cluster.stop()
    assert not [pid for pid in pids if pid is not None and is_running(pid)]


def test_a_node_that_dies_while_starting_is_told_and_the_others_go_on(cluster: LocalCluster) -> None:
    plan = cluster.plans[0]
    plan.data_dir.mkdir(parents=True)
    (plan.data_dir / "refuse").touch()
    ends: list[ChildEnd] = []
    cluster.start()
    cluster.wait_until_serving(on_end=ends.append, timeout_s=BOUND_S)
    assert ends[0].plan is plan
    assert ends[0].describe().endswith("ended with exit code 1")
    assert len(cluster.running()) == 2


def test_nothing_left_is_an_error_with_the_end_of_the_log(cluster: LocalCluster) -> None:
    for plan in cluster.plans:
        plan.data_dir.mkdir(parents=True)
        (plan.data_dir / "refuse").touch()
    cluster.start()
    with pytest.raises(ClusterError, match=r"(?s)no node is left.*this node does not want to"):
        cluster.wait_until_serving(timeout_s=BOUND_S)


def test_a_node_that_ignores_sigterm_is_killed(cluster: LocalCluster) -> None:
    plan = cluster.plans[0]
    plan.data_dir.mkdir(parents=True)
    (plan.data_dir / "deaf").touch()
    cluster.start()
    cluster.wait_until_serving(timeout_s=BOUND_S)
    pid = cluster.pid(plan)
    assert pid is not None
    cluster.stop(patience_s=0.3)
    assert not is_running(pid)


@pytest.fixture
def supervisor(base_port: int, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`mayfly up` as a process of its own."""
    root = Path(sys.modules["mayfly"].__file__ or "").parent.parent
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", SUPERVISOR, str(STUB)),
            *("--nodes", "3", "--base-port", str(base_port), "--data-dir", str(tmp_path)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    yield process
    process.kill()
    process.communicate()


def serving_lines(supervisor: subprocess.Popen[str]) -> list[str]:
    assert supervisor.stdout is not None
    return [supervisor.stdout.readline() for _ in range(3)]


def pids_in(lines: list[str]) -> list[int]:
    return [int(match[1]) for line in lines if (match := re.search(r"pid (\d+)", line))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_prints_a_line_per_node_and_ends_cleanly(
    supervisor: subprocess.Popen[str], base_port: int, number: signal.Signals
) -> None:
    lines = serving_lines(supervisor)
    form = r"node[123] serves: AMQP 127\.0\.0\.1:\d+, HTTP .*, peers .*, pid \d+\. Alone again: .* node --name"
    assert all(re.match(form, line) for line in lines)
    pids = pids_in(lines)
    assert all(is_running(pid) for pid in pids)
    supervisor.send_signal(number)
    output, errors = supervisor.communicate(timeout=BOUND_S)
    assert (supervisor.returncode, output, errors) == (0, "", "")
    assert not any(is_running(pid) for pid in pids)


def test_up_reports_a_node_that_dies_and_goes_on(supervisor: subprocess.Popen[str]) -> None:
    pids = pids_in(serving_lines(supervisor))
    os.kill(pids[1], signal.SIGKILL)
    assert supervisor.stderr is not None
    assert supervisor.stderr.readline().endswith(f"(pid {pids[1]}) was killed by SIGKILL; the others go on\n")
    assert supervisor.poll() is None
    supervisor.terminate()
    supervisor.communicate(timeout=BOUND_S)
    assert supervisor.returncode == 0


def test_no_node_outlives_its_supervisor(supervisor: subprocess.Popen[str]) -> None:
    pids = pids_in(serving_lines(supervisor))
    supervisor.kill()
    wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of the nodes")


def test_up_refuses_ports_that_do_not_exist(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from mayfly.node.command_line import main

    result = CliRunner().invoke(main, ["up", "--base-port", "60000", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "choose a base port from 1 to 45533" in result.output
