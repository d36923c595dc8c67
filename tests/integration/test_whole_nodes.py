"""The command with real nodes: the demonstration, a cluster of processes and its status, one node alone."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import mayfly
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import LocalCluster, NodePlan, plan_cluster, why_not_ready
from tests.integration.nodes import Ports, fetch
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]

PATIENCE_S: Final = 180.0
DEMONSTRATION_S: Final = 600.0
"""Longer than all that the demonstration waits for."""
PROMISES: Final = 16
"""As many as it makes, whatever happens."""
# The build under test, wherever pytest took it from.
MAYFLY: Final = [sys.executable, "-P", "-m", "mayfly"]
ENVIRONMENT: Final = os.environ | {"PYTHONPATH": str(Path(mayfly.__file__).parent.parent)}


@pytest.fixture
def base_port() -> Iterator[int]:
    """A base port that no other test takes, with those above it. All are below those that the system gives to outgoing
    connections: a node that starts again must find its own free."""
    ports = Ports(3)
    yield ports.base
    ports.release()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes, whether they run or not."""
    ports = Ports(3)
    three = LocalCluster(plan_cluster(3, ports.base, tmp_path_factory.mktemp("three")))
    yield three
    three.stop()
    ports.release()


@pytest.fixture
def cluster(three: LocalCluster) -> LocalCluster:
    """Three nodes that serve."""
    if not three.running():
        three.start()
    three.wait_until_serving(timeout_s=PATIENCE_S)
    return three


@pytest.fixture
def stopped(three: LocalCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """Three nodes that have served and were stopped."""
    if three.running() or not three.plans[0].data_dir.exists():
        request.getfixturevalue("cluster").stop(PATIENCE_S)
    return three


def run_mayfly(*arguments: str, folder: Path, patience_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAYFLY, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=patience_s
    )


def test_the_demonstration_keeps_its_promises(base_port: int, tmp_path: Path) -> None:
    """T4-T7, L2, L4, L7, L10, D3, D4, D6, D7, as a reader of the README sees them. Nothing is early, nothing is missing
    and nothing is there twice; what is LATE on this machine, busy as it may be, is told and ends it with 1."""
    result = run_mayfly("demo", "--once", "--base-port", str(base_port), folder=tmp_path, patience_s=DEMONSTRATION_S)
    told = result.stdout
    assert "BROKEN" not in told and result.stderr == "", told + result.stderr
    late = told.count("  LATE  ")
    assert result.returncode == (1 if late else 0), told
    if late:
        assert f"0 of {PROMISES} promises broken, {late} late" in told, told
    else:
        assert f"All {PROMISES} promises kept" in told, told


def test_a_taken_port_does_not_stop_the_demonstration(base_port: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", base_port)):
        process = subprocess.Popen(
            [*MAYFLY, "demo", "--base-port", str(base_port)],
            cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        told = ""
        while "serves: AMQP" not in told and (line := process.stdout.readline()):
            told += line
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert f"127.0.0.1:{base_port} in use by another process" in told
    # The next one, unless something has a port there by chance.
    assert any(f"Taking base port {base_port + 100 * step} instead" in told for step in range(1, 10))
    assert "serves: AMQP" in told
    assert process.returncode == 130


def test_status_from_any_node(cluster: LocalCluster, tmp_path: Path) -> None:
    for plan in cluster.plans:
        shown = run_mayfly("status", "--all", "--node", str(plan.http), folder=tmp_path)
        assert shown.returncode == 0, shown.stderr
        for name in ("node1", "node2", "node3", "catalog", "shard 16"):
            assert name in shown.stdout
        status = json.loads(run_mayfly("status", "--json", "--node", str(plan.http), folder=tmp_path).stdout)
        assert len(status["groups"]) == 17


def test_operators_see_the_cluster_as_it_is_now_on_any_node(cluster: LocalCluster, tmp_path: Path) -> None:

    def is_current(plan: NodePlan) -> bool:
        """Whether all leaders have answered the node in time, which it says."""
        code, shown = fetch(plan.http, "/cluster/members")
        assert code == 200 and shown["current"] is ("reason" not in shown)
        assert [(row["id"], row["state"]) for row in shown["members"]] == [(id, "member") for id in (1, 2, 3)]
        shards = run_mayfly("shards", "status", "--node", str(plan.http), folder=tmp_path)
        assert shards.returncode == 0
        return shown["current"] is True and shards.stderr == ""

    for plan in cluster.plans:
        wait_for(partial(is_current, plan), f"{plan.name} is told by all leaders")


def test_leaders_are_spread_over_the_nodes(cluster: LocalCluster) -> None:
    def leaders() -> set[int]:
        _, status = fetch(cluster.plans[0].http, "/status")
        return {group["leader"] for group in status["groups"]}

    wait_for(lambda: leaders() == {1, 2, 3}, "leaders on all nodes", PATIENCE_S)


def test_pages_of_a_real_node(cluster: LocalCluster) -> None:
    plan = cluster.plans[0]
    assert fetch(plan.http, "/health/live")[0] == 200
    wait_for(lambda: fetch(plan.http, "/health/ready")[0] == 200, "a node that is ready")
    assert fetch(plan.http, "/queues/%2F/none")[0] == 404
    from urllib.request import urlopen

    from prometheus_client.parser import text_string_to_metric_families

    with urlopen(f"http://{plan.http}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert any(family.name.startswith("mayfly_") for family in families)


def test_nodes_log_no_traceback_and_end_on_sigterm(cluster: LocalCluster) -> None:
    assert [end.code for end in cluster.stop(PATIENCE_S)] == [0, 0, 0], "a node had to be killed"
    for plan in cluster.plans:
        assert "Traceback" not in plan.log_file.read_text()


@pytest.mark.parametrize("listener", ["amqp", "http", "peer"])
def test_a_node_whose_port_is_taken_says_so_and_ends(listener: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"amqp": 0, "http": 0, "peer": 0, listener: taken.getsockname()[1]}
        addresses = [word for name in ports for word in (f"--{name}-address", f"127.0.0.1:{ports[name]}")]
        result = run_mayfly("node", *addresses, folder=tmp_path)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "node1 cannot start" in result.stderr
    assert str(ports[listener]) in result.stderr


def test_a_node_whose_definitions_are_none_says_so_and_ends(tmp_path: Path) -> None:
    queues = [{"name": "good", "vhost": "/"}, {"name": "q", "vhost": "/", "arguments": {"x-expires": 10**30}}]
    (tmp_path / "bad.json").write_text(json.dumps({"queues": queues}))
    addresses = [word for name in ("amqp", "http", "peer") for word in (f"--{name}-address", "127.0.0.1:0")]
    result = run_mayfly("node", *addresses, "--load-definitions", "bad.json", folder=tmp_path)
    assert result.returncode == exit_codes.REFUSED
    assert "Traceback" not in result.stderr
    assert f"bad.json: queues[1].arguments.x-expires = {10**30}: a number from" in result.stderr


def test_a_node_that_waits_for_its_cluster_is_alive_not_ready_and_ends_on_sigterm(
    stopped: LocalCluster, tmp_path: Path
) -> None:
    plan = stopped.plans[0]
    alone = LocalCluster([plan])
    alone.start()
    try:
        wait_for(lambda: "starting" in str(why_not_ready(plan.http)), "a node that says that it starts", PATIENCE_S)
        assert fetch(plan.http, "/health/live")[0] == 200
        assert fetch(plan.http, "/health/ready")[0] == 503
        for page in ("/cluster/members", "/shards"):
            code, shown = fetch(plan.http, page)
            assert code == 200 and shown["current"] is False
            assert shown["reason"].startswith("no leader answered for groups 0, 1, 2,"), shown["reason"]
        shards = run_mayfly("shards", "status", "--node", str(plan.http), folder=tmp_path)
        assert shards.returncode == 0 and "shard 16" in shards.stdout
        assert shards.stderr.startswith("not current: no leader answered for groups 0, ")
    finally:
        ends = alone.stop(PATIENCE_S)
    assert [end.code for end in ends] == [0], "the node had to be killed"
    assert "Traceback" not in plan.log_file.read_text()


def test_data_of_another_cluster_is_refused(stopped: LocalCluster, tmp_path: Path) -> None:
    plan = stopped.plans[2]
    alone = [
        "--amqp-address",
        str(plan.amqp),
        "--http-address",
        str(plan.http),
        "--peer-address",
        str(plan.peer),
    ]
    result = run_mayfly("node", "--data-dir", str(plan.data_dir), *alone, folder=tmp_path)
    assert result.returncode == exit_codes.REFUSED
    assert "Traceback" not in result.stderr
    assert "was made with" in result.stderr
