"""`mayfly node --processes 2` as an operator runs it: one AMQP address, two nodes, a parent that looks after them."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pika
import pika.exceptions
import pytest
from pamqp import commands

from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import HOST, HTTP_OFFSET, PEER_OFFSET, this_mayfly, why_not_ready
from mayfly.node.settings.kinds import Address
from tests.integration.amqp_socket import AmqpSocket, method_frame
from tests.integration.nodes import START_WITHIN_S, Nodes, Ports, fetch, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

CONNECTIONS = 20
_ESTABLISHED = "01"


class Host:
    """One host with two processes: its command, what it logs, and whom its clients are connected to."""

    def __init__(self, folder: Path, base: int, name: str = HOST, *more: str) -> None:
        """Plans it; `start` starts it. `name` is its address, `more` are further options."""
        self.amqp = Address(name, base)
        self.http = [Address(name, base + HTTP_OFFSET + number) for number in (0, 1)]
        self.folder, self.log = folder / "data", folder / "log"
        self._options = [
            *("--amqp-address", str(self.amqp), "--http-address", str(self.http[0])),
            *("--peer-address", f"{name}:{base + PEER_OFFSET}", *more),
        ]
        self.parent: subprocess.Popen[bytes]

    def start(self, processes: int = 2) -> None:
        with self.log.open("ab") as log:
            self.parent = subprocess.Popen(
                [*this_mayfly(), "node", "--processes", str(processes), "--data-dir", str(self.folder), *self._options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def close(self) -> None:
        if self.parent.poll() is None:
            self.parent.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.parent.wait(BOUND_S)
            self.parent.kill()
            self.parent.wait()

    def kill(self) -> None:
        """All its processes at the same moment, as when the machine loses its power."""
        for pid in (self.parent.pid, *(self.pids(number)[-1] for number in (1, 2))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.parent.wait()

    def pids(self, number: int) -> list[int]:
        return [int(pid) for pid in re.findall(rf"process {number} of 2 is pid (\d+)", self.log.read_text())]

    def until_serving(self, processes: int = 2) -> None:
        def serving() -> bool:
            assert self.parent.poll() is None, self.log.read_text()
            return all(why_not_ready(at) is None for at in self.http[:processes])

        wait_for(serving, "processes that serve", START_WITHIN_S, 0.05)

    def members(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = fetch(self.http[1], "/cluster/members")[1]["members"]
        return rows

    def until_settled(self) -> None:
        def settled() -> bool:
            rows = self.members()
            return len(rows) == 2 and all(row["votes"] == row["votes_planned"] == 17 for row in rows)

        wait_for(settled, "two that vote in all groups", START_WITHIN_S, 0.05)

    def connect(self) -> pika.BlockingConnection:
        # pika's own socket must be told apart from those of other connections: by its local port.
        parameters = pika.ConnectionParameters(
            self.amqp.host, self.amqp.port, heartbeat=0, socket_timeout=BOUND_S, stack_timeout=2 * BOUND_S
        )
        return pika.BlockingConnection(parameters)

    def clients_of(self, pid: int) -> set[int]:
        """The ports of the clients that a process serves."""
        inodes = set()
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link)):
                    inodes.add(match[1])
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *rest = line.split()
            if state == _ESTABLISHED and int(local.split(":")[1], 16) == self.amqp.port and rest[5] in inodes:
                found.add(int(remote.split(":")[1], 16))
        return found


def port_of(connection: pika.BlockingConnection) -> int:
    port: int = connection._impl._transport._sock.getsockname()[1]
    return port


def hear(connection: pika.BlockingConnection) -> None:
    """Take what the broker sends, until it ends the connection."""
    wait_for(lambda: connection.process_data_events(0.2), "the end of the connection")


@pytest.fixture
def base_port() -> Iterator[int]:
    ports = Ports(2)
    yield ports.base
    ports.release()


@pytest.fixture
def host(tmp_path: Path, base_port: int) -> Iterator[Host]:
    host = Host(tmp_path, base_port, HOST, "--failure-domain", "this-machine")
    yield host
    host.close()


@pytest.fixture
def hosts(tmp_path: Path, base_port: int) -> Iterator[list[Host]]:
    """Three hosts, with one command but for their own address."""
    names = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    seeds = ",".join(f"{name}:{base_port + PEER_OFFSET}" for name in names)
    hosts = []
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        hosts.append(Host(folder, base_port, name, "--seeds", seeds, "--failure-domain", f"host-{name}"))
    yield hosts
    for host in hosts:
        host.close()


def test_two_processes_are_one_broker(host: Host) -> None:
    host.start()
    host.until_serving()
    host.until_settled()
    assert [(row["name"], row["failure_domain"]) for row in host.members()] == [
        ("node1", "this-machine"), ("node1-2", "this-machine"),
    ]  # fmt: skip
    for at in host.http:
        assert fetch(at, "/health/live")[0] == 200
        assert [node["failure_domain"] for node in fetch(at, "/status")[1]["nodes"]] == ["this-machine"] * 2

    # One address, and the kernel gives both their share.
    connections = [host.connect() for _ in range(CONNECTIONS)]
    channels = [connection.channel() for connection in connections]
    first, second = host.pids(1)[0], host.pids(2)[0]
    ports = [port_of(connection) for connection in connections]
    of_first: set[int] = set()
    of_second: set[int] = set()

    def all_are_found() -> bool:
        # Sockets that come and go while the kernel lists them may have it leave out some.
        of_first.update(host.clients_of(first))
        of_second.update(host.clients_of(second))
        return of_first | of_second == set(ports)

    wait_for(all_are_found, "all connections at the two processes")
    assert of_first and of_second

    # What one took, the other has.
    channels[0].queue_declare("kept", durable=True)
    for channel in channels:
        channel.confirm_delivery()
    sent = []

    def publish(place: int, number: int) -> None:
        body = b"%d-%d" % (place, number)
        channels[place].basic_publish("", "kept", body, pika.BasicProperties(delivery_mode=2))
        sent.append(body)

    for place in range(CONNECTIONS):
        for number in range(10):
            publish(place, number)

    # One of them dies: it is started again, and the clients of the other go on, with a pause.
    os.kill(second, signal.SIGKILL)
    kept = [place for place, port in enumerate(ports) if port in of_first]
    lost = [place for place, port in enumerate(ports) if port in of_second]
    for place in kept:
        for number in range(10, 20):
            publish(place, number)
    wait_for(lambda: len(host.pids(2)) == 2, "the next life of process 2")
    assert host.pids(1) == [first]
    assert f"process 2 (pid {second}) was killed by SIGKILL; it is started again in 0.2 s" in host.log.read_text()
    host.until_serving()
    for place in lost:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            channels[place].basic_publish("", "kept", b"never")
    late = [host.connect() for _ in range(CONNECTIONS)]
    assert host.clients_of(host.pids(2)[1]), "the one that came back has clients again"
    taken = []
    taking = late[0].channel()
    while (got := taking.basic_get("kept", auto_ack=True))[0] is not None:
        taken.append(got[2])
    assert sorted(taken) == sorted(sent)

    # The parent is told to stop: so are both, and their clients are told why.
    pids = [first, host.pids(2)[1]]
    host.parent.terminate()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
        hear(connections[kept[0]])
    assert host.parent.wait(2 * BOUND_S) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    log = host.log.read_text()
    assert "Traceback" not in log and " ERROR " not in log


def test_without_copies_each_of_two_processes_has_shards_of_its_own(tmp_path: Path, base_port: int) -> None:
    host = Host(tmp_path, base_port, HOST, "--replication-factor", "1")
    try:
        host.start()
        host.until_serving()

        def is_shared_out() -> bool:
            ids = {row["id"] for row in host.members()}
            catalog, *shards = fetch(host.http[1], "/shards")[1]["shards"]
            alone = all(row["voters"] == row["plan"] and len(row["plan"]) == 1 for row in shards)
            settled = alone and not any(row["learners"] or row["changing"] for row in shards)
            everywhere = {*catalog["voters"], *catalog["learners"]}
            return len(ids) == 2 and settled and {row["voters"][0] for row in shards} == ids == everywhere

        wait_for(is_shared_out, "shards on one of the two each, and the catalog on both", START_WITHIN_S, 0.05)
    finally:
        host.close()


def test_a_signal_to_all_processes_at_once_is_a_stop_in_order(host: Host) -> None:
    """What systemd does with KillMode=control-group. The parent then tells each of them once more."""
    host.start()
    host.until_serving()
    host.until_settled()
    connections = [host.connect() for _ in range(CONNECTIONS)]
    pids = [host.parent.pid, host.pids(1)[0], host.pids(2)[0]]
    assert all(host.clients_of(pid) for pid in pids[1:])
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    # Each node waits for those that have not said goodbye, while the parent's signal comes in.
    wait_for(lambda: "stopping process 1, process 2" in host.log.read_text(), "the parent's signal")
    for connection in connections:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
            hear(connection)
    assert host.parent.wait(2 * BOUND_S) == 0, host.log.read_text()


@pytest.mark.parametrize("supervised", [True, False])
def test_a_second_signal_is_impatience_where_nobody_supervises(tmp_path: Path, supervised: bool) -> None:
    nodes = Nodes(tmp_path, 1)
    plan = nodes.plan(1)
    parent = ["--stop-with-parent", str(os.getpid())] if supervised else []
    with plan.log_file.open("wb") as log:
        node = subprocess.Popen([*this_mayfly(), *plan.arguments(), *parent], stdout=log, stderr=log)
    try:
        wait_for(lambda: why_not_ready(plan.http) is None, "a node that serves", START_WITHIN_S, 0.05)
        with AmqpSocket(nodes, 1) as client:
            client.login()
            node.terminate()
            client.expect(commands.Connection.Close)
            node.terminate()
            if supervised:
                wait_for(lambda: "SIGTERM again" in plan.log_file.read_text(), "the second signal")
                client.send(method_frame(commands.Connection.CloseOk(), 0))
            assert node.wait(BOUND_S) == (0 if supervised else 128 + signal.SIGTERM), plan.log_file.read_text()
    finally:
        node.kill()
        node.wait()
        nodes.close()


def test_a_log_that_is_in_use_may_be_free_later_and_one_of_a_newer_format_stays_that(tmp_path: Path) -> None:
    def exit_code(said: str) -> int:
        addresses = [word for name in ("amqp", "http", "peer") for word in (f"--{name}-address", f"{HOST}:0")]
        ended = subprocess.run(
            [*this_mayfly(), "node", *addresses, "--data-dir", str(tmp_path)],
            capture_output=True, text=True, timeout=2 * BOUND_S, check=False,
        )  # fmt: skip
        assert said in ended.stderr and "Traceback" not in ended.stderr
        return ended.returncode

    store = LmdbLogStore(tmp_path / "log")
    assert exit_code(f"is in use by process {os.getpid()}") == 1
    store.close()
    with lmdb.open(str(tmp_path / "log"), max_dbs=4) as environment:
        meta = environment.open_db(b"meta", create=False)
        with environment.begin(write=True, db=meta) as transaction:
            transaction.put(b"\x00format", b"mayfly log 999")
    assert exit_code("has format 999, written by a newer MayflyMQ") == exit_codes.REFUSED


def test_a_node_becomes_two_and_one_that_was_removed_is_not_started_again(host: Host) -> None:
    """The one node there was is process 1 of two; a removed process ends for good, and the other goes on."""
    host.start(processes=1)
    host.until_serving(1)
    with host.connect() as connection:
        publishing = connection.channel()
        publishing.queue_declare("kept", durable=True)
        publishing.confirm_delivery()
        publishing.basic_publish("", "kept", b"before", pika.BasicProperties(delivery_mode=2))
    host.parent.terminate()
    assert host.parent.wait(2 * BOUND_S) == 0
    host.start()
    host.until_serving()
    host.until_settled()
    second = host.pids(2)[0]
    removed = subprocess.run(
        [*this_mayfly(), "cluster", "remove", "node1-2", "--node", str(host.http[0])],
        capture_output=True, text=True, timeout=5 * BOUND_S, check=False,
        env={**os.environ, "MAYFLY_PASSWORD": "guest"},
    )  # fmt: skip
    assert removed.returncode == 0, removed.stderr
    wait_for(lambda: "it is not started again" in host.log.read_text(), "the end of process 2")
    assert not Path(f"/proc/{second}").exists() and host.pids(2) == [second]
    wait_for(lambda: why_not_ready(host.http[0]) is None, "the other one")
    with host.connect() as connection:
        assert connection.channel().basic_get("kept")[2] == b"before"
    host.parent.send_signal(signal.SIGINT)
    assert host.parent.wait(2 * BOUND_S) == 0


def test_a_host_of_three_is_lost_and_nothing_that_was_confirmed(hosts: list[Host]) -> None:
    """Two processes on each of three hosts: every group votes on all three, and goes on without any one of them."""
    for host in hosts:
        host.start()
    for host in hosts:
        host.until_serving()
    domains: dict[int, str] = {}

    def spread() -> bool:
        rows = fetch(hosts[0].http[1], "/cluster/members")[1]["members"]
        domains.update((row["id"], row["failure_domain"]) for row in rows)
        groups = fetch(hosts[0].http[1], "/shards")[1]["shards"]
        return len(rows) == 6 and all(
            set(group["voters"]) == set(group["plan"]) and len({domains[id] for id in group["voters"]}) == 3
            for group in groups
        )

    wait_for(spread, "groups that vote on three hosts", 2 * START_WITHIN_S, 0.2)
    with hosts[0].connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(8):
            channel.queue_declare(f"kept-{number}", durable=True)
        sent = 0

        def publish() -> None:
            nonlocal sent
            for number in range(8):
                channel.basic_publish("", f"kept-{number}", b"%d" % sent, pika.BasicProperties(delivery_mode=2))
            sent += 1

        for _ in range(20):
            publish()
        hosts[2].kill()
        for _ in range(20):
            publish()
        with hosts[1].connect() as other:
            taking = other.channel()
            for number in range(8):
                bodies = [taking.basic_get(f"kept-{number}", auto_ack=True)[2] for _ in range(sent)]
                assert bodies == [b"%d" % each for each in range(sent)]
