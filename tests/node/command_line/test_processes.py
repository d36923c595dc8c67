"""Settings of several processes on one host, and the process that starts, restarts and ends them, with a stub for the
node."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mayfly.node.command_line import main
from mayfly.node.command_line.node_command import command as node_command
from mayfly.node.command_line.processes import (
    LASTED_S,
    LONGEST_PAUSE_S,
    Restarts,
    patience_s,
    plan_processes,
    refuse_surplus,
    resolve_processes,
)
from mayfly.node.command_line.processes import Supervisor as NodeSupervisor
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import HTTP_OFFSET, PEER_OFFSET
from mayfly.node.local_nodes.stop_signals import StopSignals
from mayfly.node.local_nodes.usable_cores import usable_cores
from mayfly.node.settings import FRAMES_OFFSET, NodeSettings, SettingsError
from mayfly.node.settings.kinds import Address
from mayfly.node.settings.processes import check_processes, choose_processes
from mayfly.node.settings.sources import keys_given, load_settings
from tests.integration.nodes import Ports
from tests.node.command_line.stubs import STUB, is_running
from tests.waiting import BOUND_S, wait_for

PORTS_BESIDE = 4
"""So many in a row are used of each kind."""
SUPERVISOR = """
import functools, sys
from mayfly.node.command_line import node_command, processes
from mayfly.node.local_nodes import local_cluster
stub = [sys.executable, sys.argv.pop(1)]
processes.LocalCluster = functools.partial(local_cluster.LocalCluster, executable=stub)
node_command.command()
"""


def settings_of(plan_arguments: list[str]) -> NodeSettings:
    """The settings that a planned command comes to, as its own reading has it."""
    assert plan_arguments[0] == "node"
    with node_command.make_context("node", plan_arguments[1:]) as context:
        given = dict(context.params)
    for key in ("stop_with_parent", "log_as"):
        given.pop(key)
    config = given.pop("config")
    return load_settings(config, {}, {key: value for key, value in given.items() if value is not None})


def planned(**given: object) -> list[NodeSettings]:
    settings = load_settings(options=given)
    check_processes(settings)
    plans = plan_processes(settings, settings.amqp_address, given, None)
    return [settings_of(plan.arguments()) for plan in plans]


def problems_of(**given: object) -> str:
    with pytest.raises(SettingsError) as caught:
        check_processes(load_settings(options=given))
    return str(caught.value)


# ---------------------------------------------------------------------- settings


def test_the_first_is_the_node_of_the_settings_and_the_others_join_through_it() -> None:
    first, second, third = planned(processes="3")
    alone = NodeSettings()
    assert (first.name, first.data_dir, first.peer_address, first.http_address, first.join, first.seeds) == (
        alone.name, alone.data_dir, alone.peer_address, alone.http_address, None, (),
    )  # fmt: skip
    assert [each.processes for each in (first, second, third)] == [1, 1, 1]
    assert {each.amqp_address for each in (first, second, third)} == {alone.amqp_address}
    assert all(each.amqp_reuse_port for each in (first, second, third))
    assert [str(each.peer_address) for each in (second, third)] == ["127.0.0.1:25673", "127.0.0.1:25674"]
    assert [str(each.http_address) for each in (second, third)] == ["127.0.0.1:15673", "127.0.0.1:15674"]
    assert [each.name for each in (second, third)] == ["node1-2", "node1-3"]
    assert [each.data_dir for each in (second, third)] == [alone.data_dir / "process2", alone.data_dir / "process3"]
    assert second.join == third.join == alone.peer_address


def test_all_have_the_same_address_for_tls() -> None:
    files = {"amqp_tls_cert": __file__, "amqp_tls_key": __file__}
    settings = planned(processes="2", amqp_tls_address="127.0.0.1:5671", **files)
    assert [str(each.amqp_tls_address) for each in settings] == ["127.0.0.1:5671", "127.0.0.1:5671"]
    for wrong, expected in (
        ("127.0.0.1:0", "a port other than 0"), ("127.0.0.1:15674", "ports other than those of amqp_tls_address"),
    ):
        assert expected in problems_of(processes="4", amqp_tls_address=wrong, **files)


def test_one_command_for_three_machines() -> None:
    """With seeds the first processes found the cluster; only the node's own address differs from machine to machine."""
    seeds = "a:25672,b:25672,c:25672"
    names = set()
    for host in "abc":
        first, second = planned(
            processes="2", seeds=seeds, peer_address="0.0.0.0:25672", advertised_peer_address=f"{host}:25672",
            failure_domain=host,
        )  # fmt: skip
        assert len(first.seeds) == 3 and first.join is None
        assert second.seeds == () and second.join == Address(host, 25672)
        assert second.reachable_peer_address == Address(host, 25673)
        assert str(second.peer_address) == "0.0.0.0:25673"
        assert first.failure_domain == second.failure_domain == host
        names |= {first.name, second.name}
    assert names == {"node1", "node2", "node3", "node1-2", "node2-2", "node3-2"}


def test_each_process_has_a_port_for_frames_of_its_own() -> None:
    beside = [each.frames_listen_address.port for each in planned(processes="2")]
    given = [each.frames_listen_address.port for each in planned(processes="2", frames_address="127.0.0.1:7000")]
    assert (beside, given) == ([30672, 30673], [7000, 7001])
    assert [each.frames_listen_address.port for each in planned(processes="2", frames_address="127.0.0.1:0")] == [0, 0]
    assert "frames_address" in problems_of(processes="2", frames_address="127.0.0.1:25673")
    assert "frames_address" in problems_of(processes="8", peer_address="127.0.0.1:60530")


def test_processes_that_join_do_so_through_the_first_of_their_host() -> None:
    first, second = planned(processes="2", join="a:25672", peer_address="b:25672", name="left", aiomonitor=True)
    assert first.join == Address("a", 25672)
    assert second.join == Address("b", 25672)
    assert (first.name, second.name) == ("left", "left-2")
    assert (first.aiomonitor_port, second.aiomonitor_port) == (20101, 20104)
    assert [each.name for each in planned(processes="2", join="a:25672", peer_address="b:25672")] == ["", ""]


@pytest.mark.parametrize("text", ["0", "-1", "65", "two", "1.5"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"processes = .*expected a whole number from 1 to 64"):
        load_settings(options={"processes": text})
    shown = CliRunner().invoke(main, ["node", "--processes", text])
    assert shown.exit_code == 78 and "a whole number from 1 to 64" in shown.output


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"peer_address": "127.0.0.1:0"}, "peer_address = '127.0.0.1:0' (with processes = 4): expected a port other"),
        ({"http_address": "127.0.0.1:0"}, "http_address"),
        ({"peer_address": "127.0.0.1:65533"}, "a port up to 65532: 4 are needed from there on"),
        ({"http_address": "127.0.0.1:65535"}, "a port up to 65532"),
        ({"http_address": "127.0.0.1:25669"}, "http_address = '127.0.0.1:25669' (with processes = 4): expected ports "
                                              "other than those of peer_address: 4 are needed (25669 to 25672)"),
        ({"http_address": "0.0.0.0:25675"}, "ports other than those of peer_address"),
        ({"amqp_address": "127.0.0.1:15674"}, "ports other than those of amqp_address"),
        ({"peer_address": "0.0.0.0:25672"}, "advertised_peer_address"),
        ({"aiomonitor": True, "aiomonitor_port": "15661"}, "ports other than those of http_address: 12 are needed"),
        ({"name": "x" * 62}, "a shorter name"),
    ],
)  # fmt: skip
def test_what_several_processes_can_not_share(given: dict[str, object], expected: str) -> None:
    assert expected in problems_of(processes="4", **given)


def test_what_several_processes_can_share() -> None:
    check_processes(load_settings(options={"processes": "4", "http_address": "127.0.0.1:25676"}))
    check_processes(load_settings(options={"processes": "4", "http_address": "10.0.0.1:25673"}))
    check_processes(load_settings(options={"processes": "64"}))


# ---------------------------------------------------------------------- restarts


@pytest.mark.parametrize(
    ("given", "cores", "found", "chosen"),
    [
        ({}, 1, 1, {"processes": 1}),
        ({}, 2, 1, {"processes": 2, "replication_factor": 1, "shards": 16}),
        ({}, 16, 1, {"processes": 16, "replication_factor": 1, "shards": 64}),
        ({}, 500, 1, {"processes": 64, "replication_factor": 1, "shards": 256}),
        # Data of more processes than there are cores now: each is a member.
        ({}, 2, 4, {"processes": 4, "replication_factor": 1, "shards": 16}),
        ({"replication_factor": "3", "shards": "5"}, 4, 1, {"processes": 4}),
        ({"seeds": "127.0.0.1:25672,10.0.0.2:25672"}, 4, 1, {"processes": 4}),
        ({"join": "10.0.0.1:25672"}, 4, 1, {"processes": 4}),
    ],
)
def test_auto_follows_the_cores_and_leaves_what_was_said(
    given: dict[str, object], cores: int, found: int, chosen: dict[str, int]
) -> None:
    settings = load_settings(options={"processes": "auto", **given})
    assert choose_processes(settings, given.keys(), cores, found) == chosen


def test_auto_is_told_and_passed_on_to_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    config = tmp_path / "mayfly.toml"
    config.write_text(f'processes = "auto"\nname = "a"\ndata_dir = "{tmp_path}"\n')
    (tmp_path / "process4").mkdir()
    environment = {"MAYFLY_SHARDS": "7"}
    settings = load_settings(config, environment)
    keys = keys_given(config, environment, {})
    assert keys == {"processes", "name", "data_dir", "shards"}
    with caplog.at_level("INFO"):
        resolved, given = resolve_processes(settings, keys, {})
    cores = usable_cores()
    assert cores <= 3
    assert f"processes = auto, cores = {cores}: processes = 4, replication_factor = 1" in caplog.text
    assert (resolved.processes, resolved.replication_factor, resolved.shards) == (4, 1, 7)
    plans = plan_processes(resolved, resolved.amqp_address, given, config)
    assert [settings_of(plan.arguments()).processes for plan in plans] == [1] * 4
    assert [settings_of(plan.arguments()).replication_factor for plan in plans] == [1] * 4
    assert resolve_processes(resolved, keys, given) == (resolved, given), "a number is what it is"


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000\n", 6), ("250000 100000\n", 3), ("100000 100000\n", 1), ("900000 100000\n", 6), ("1", 6)],
)
def test_a_control_group_may_give_fewer_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == cores
    assert usable_cores(tmp_path / "none") == 6


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_good_run() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_s(1.0) for _ in range(60)]
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE_S
    assert restarts.pause_s(LASTED_S) == 0.2
    assert restarts.pause_s(1.0) == 0.4


def test_data_of_more_processes_than_shall_run_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "process3").mkdir()
    for processes in ("1", "2"):
        settings = load_settings(options={"processes": processes, "data_dir": str(tmp_path)})
        with pytest.raises(SettingsError, match=r"process 3.*start with --processes 3.*mayfly cluster remove"):
            refuse_surplus(settings)
    refuse_surplus(load_settings(options={"processes": "3", "data_dir": str(tmp_path)}))
    shown = CliRunner().invoke(main, ["node", "--data-dir", str(tmp_path)])
    assert shown.exit_code == 78 and "start with --processes 3" in shown.output


@pytest.fixture
def ports() -> Iterator[tuple[int, int, int]]:
    """An AMQP, an HTTP and a peer port that no other test takes, nor the system for an outgoing connection; nor their
    neighbours."""
    ports = Ports(PORTS_BESIDE)
    yield ports.base, ports.base + HTTP_OFFSET, ports.base + PEER_OFFSET
    ports.release()


def options(ports: tuple[int, int, int], folder: Path) -> list[str]:
    amqp, http, peer = (f"127.0.0.1:{port}" for port in ports)
    return [
        *("--processes", "2", "--data-dir", str(folder)),
        *("--amqp-address", amqp, "--http-address", http, "--peer-address", peer),
    ]


class Supervisor:
    """`mayfly node --processes 2` with stubs, and its log so far."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        root = Path(sys.modules["mayfly"].__file__ or "").parent.parent
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", SUPERVISOR, str(STUB), *arguments],
                stdout=file, stderr=file, env=os.environ | {"PYTHONPATH": str(root)},
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text()

    def pids(self, number: int) -> list[int]:
        return [int(pid) for pid in re.findall(rf"process {number} of 2 is pid (\d+)", self.text())]

    def until_started(self, number: int, times: int = 1) -> int:
        wait_for(lambda: len(self.pids(number)) >= times, f"process {number} started {times} times")
        pid = self.pids(number)[times - 1]
        # The stub obeys signals once it has been told whose child it is.
        wait_for(lambda: b"stub_node" in Path(f"/proc/{pid}/cmdline").read_bytes(), "the stub")
        return pid

    def ends(self) -> int:
        return self.process.wait(BOUND_S)


@pytest.fixture
def supervisor(ports: tuple[int, int, int], tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(options(ports, tmp_path / "data"), tmp_path / "log")
    yield supervisor
    supervisor.process.kill()
    supervisor.process.wait()


def serves(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_child_that_dies_is_started_again_and_the_other_is_left_alone(
    supervisor: Supervisor, ports: tuple[int, int, int]
) -> None:
    first, second = supervisor.until_started(1), supervisor.until_started(2)
    wait_for(lambda: serves(ports[1]) and serves(ports[1] + 1), "both serving")
    os.kill(second, signal.SIGKILL)
    again = supervisor.until_started(2, times=2)
    assert again != second and is_running(first) and supervisor.pids(1) == [first]
    assert f"process 2 (pid {second}) was killed by SIGKILL; it is started again in 0.2 s" in supervisor.text()
    os.kill(again, signal.SIGKILL)
    supervisor.until_started(2, times=3)
    assert "it is started again in 0.4 s" in supervisor.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(supervisor: Supervisor, ports: tuple[int, int, int], number: signal.Signals) -> None:
    pids = [supervisor.until_started(1), supervisor.until_started(2)]
    wait_for(lambda: serves(ports[1]) and serves(ports[1] + 1), "both serving")
    supervisor.process.send_signal(number)
    # The stub dies of the signal, as a node would not: the exit code tells.
    assert supervisor.ends() == 1
    assert not any(is_running(pid) for pid in pids)
    assert "stopping process 1, process 2" in supervisor.text()


def test_a_second_signal_does_not_wait_for_the_deaf(ports: tuple[int, int, int], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "deaf").touch()
    patient = [*options(ports, folder), "--drain-timeout-ms", str(int(2000 * BOUND_S))]
    supervisor = Supervisor(patient, tmp_path / "log")
    pids = [supervisor.until_started(1), supervisor.until_started(2)]
    wait_for(lambda: serves(ports[1]) and serves(ports[1] + 1), "both serving")
    supervisor.process.terminate()
    wait_for(lambda: not is_running(pids[1]), "the end of the one that hears")
    assert is_running(pids[0])
    supervisor.process.terminate()
    assert supervisor.ends() == 1  # well before its patience is over
    assert not is_running(pids[0])


def test_no_child_outlives_the_supervisor(supervisor: Supervisor, ports: tuple[int, int, int]) -> None:
    pids = [supervisor.until_started(1), supervisor.until_started(2)]
    wait_for(lambda: serves(ports[1]) and serves(ports[1] + 1), "both serving")
    supervisor.process.kill()
    wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of both")


def test_one_that_must_not_go_on_is_left_and_when_all_are_the_exit_code_tells(
    ports: tuple[int, int, int], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    (folder / "process2").mkdir(parents=True)
    (folder / "process2" / "sent away").touch()
    supervisor = Supervisor(options(ports, folder), tmp_path / "log")
    first = supervisor.until_started(1)
    wait_for(
        lambda: "process 2" in supervisor.text() and "it is not started again" in supervisor.text(),
        "what is said of process 2",
    )
    wait_for(lambda: serves(ports[1]), "process 1 serving")
    assert len(supervisor.pids(2)) == 1 and is_running(first)
    (folder / "sent away").touch()
    os.kill(first, signal.SIGKILL)
    assert supervisor.ends() == exit_codes.REFUSED
    assert "no process is left" in supervisor.text()


def test_one_that_can_not_be_started_again_yet_is_tried_until_it_can(
    supervisor: Supervisor, ports: tuple[int, int, int], tmp_path: Path
) -> None:
    """Whatever the system refuses to the supervisor, here a folder, says nothing about the processes that run."""
    first, second = supervisor.until_started(1), supervisor.until_started(2)
    wait_for(lambda: serves(ports[1]) and serves(ports[1] + 1), "both serving")
    folder = tmp_path / "data" / "process2"
    folder.rmdir()
    folder.touch()
    os.kill(second, signal.SIGKILL)
    wait_for(lambda: supervisor.text().count("process 2 can't be started: ") >= 2, "two attempts")
    assert "File exists" in supervisor.text() and "it is tried again in 0.8 s" in supervisor.text()
    assert is_running(first) and supervisor.process.poll() is None
    folder.unlink()
    supervisor.until_started(2, times=2)
    assert supervisor.pids(1) == [first]


def test_nobody_is_joined_at_the_amqp_address_who_is_there_already(ports: tuple[int, int, int], tmp_path: Path) -> None:
    """A second cluster that shared the port would get half of the clients of the first."""
    with socket.create_server(("127.0.0.1", ports[0]), reuse_port=True):
        shown = CliRunner().invoke(main, ["node", *options(ports, tmp_path)])
    assert shown.exit_code == 1
    assert f"amqp_address 127.0.0.1:{ports[0]} can't be had: Address already in use" in shown.output


def test_a_taken_port_is_told_before_anything_starts(ports: tuple[int, int, int], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", ports[2] + 1)):
        shown = CliRunner().invoke(main, ["node", *options(ports, tmp_path)])
    assert shown.exit_code == 1 and f"127.0.0.1:{ports[2] + 1} in use by another process" in shown.output
    assert not (tmp_path / "process2").exists()


def test_the_ports_for_frames_that_are_looked_at_are_those_that_are_used(
    ports: tuple[int, int, int], tmp_path: Path
) -> None:
    _, http, peer = ports
    frames = http + 2
    elsewhere = [*options(ports, tmp_path / "data"), "--frames-address", f"127.0.0.1:{frames}"]
    with socket.create_server(("127.0.0.1", frames + 1)):
        refused = Supervisor(elsewhere, tmp_path / "log")
        try:
            assert refused.ends() == 1
        finally:
            refused.process.kill()
            refused.process.wait()
    assert f"127.0.0.1:{frames + 1} in use by another process" in refused.text()
    with socket.create_server(("127.0.0.1", peer + FRAMES_OFFSET)):
        supervisor = Supervisor(elsewhere, tmp_path / "log")
        try:
            wait_for(
                lambda: supervisor.process.poll() is not None or (serves(http) and serves(http + 1)), "both serving"
            )
            assert supervisor.process.poll() is None, supervisor.text()
        finally:
            supervisor.process.kill()
            supervisor.process.wait()


def test_a_drain_may_take_the_time_that_the_settings_give_it() -> None:
    assert patience_s(NodeSettings()) == 15.0
    assert patience_s(NodeSettings(drain_notice_ms=20_000, drain_timeout_ms=60_000)) == 90.0


def test_the_supervisor_waits_as_long_as_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left then is killed."""
    waited: list[float] = []
    cluster: Any = SomeChildren([])

    def stop(patience_s: float, hurry: object) -> list[Any]:
        waited.append(patience_s)
        return []

    cluster.stop = stop
    with StopSignals() as signals:
        NodeSupervisor(cluster, signals, 90.0)._stop()
    assert waited == [90.0]


def test_hanging_up_is_noted_only_where_it_is_asked_for() -> None:
    """Elsewhere it ends the process, as when its terminal goes."""
    with StopSignals(hang_up=True) as signals:
        assert not signals.hung_up()
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.hung_up()
        assert not signals.hung_up()
        assert not signals.asked()
    before = signal.getsignal(signal.SIGHUP)
    with StopSignals():
        assert signal.getsignal(signal.SIGHUP) == before


def test_hanging_up_is_passed_on_to_all_processes(tmp_path: Path) -> None:
    """Processes that say so: each has its certificates to read."""
    script = (
        "import signal, sys, time; signal.signal(signal.SIGHUP, lambda *_: sys.exit(7)); print('up', flush=True); "
        "time.sleep(60)"
    )
    children = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
        cluster: Any = SomeChildren(children)
        supervisor = NodeSupervisor(cluster, StopSignals(hang_up=True), 1.0)
        supervisor._pass_on_hang_up()
        assert [child.wait(BOUND_S) for child in children] == [7, 7]
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


class SomeChildren:
    """As much of a LocalCluster as is asked for."""

    def __init__(self, children: list[subprocess.Popen[bytes]]) -> None:
        self.plans: list[Any] = []
        self._children = children

    def running(self) -> list[int]:
        return list(range(len(self._children)))

    def pid(self, plan: int) -> int:
        return self._children[plan].pid
