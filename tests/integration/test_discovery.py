"""Real nodes that find each other by names: whichever starts first, one cluster forms, with all of them.

Each node has an address of its own (127.1.0.n) and the same ports. Names are looked up in a hosts file that stands in
the place of /etc/hosts for them alone, and changes while they run: `mayfly-0.mq` and so on are one node each, `mq` is
what a headless service is, a name with the addresses of those that are there, and of one that is not.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pika
import pytest

from mayfly.node.settings.kinds import Address
from tests.integration.nodes import START_WITHIN_S, Ports, fetch, wait_for
from tests.waiting import BOUND_S, until_judged

pytestmark = [pytest.mark.processes]

FOUNDERS: Final = 3
STALL_S: Final = 4.0
PROBE_TIMEOUT_S: Final = 1.0
MAYFLY: Final = f"""
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep({STALL_S}))  # the loop's thread is stuck
from mayfly.node.command_line import main
main()
"""
OWN_HOSTS: Final = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')


class Named:
    """Nodes 0, 1, 2 found, those after them join."""

    def __init__(self, folder: Path) -> None:
        self._ports = Ports(1)
        self._base = self._ports.base
        self._folder = folder
        self._hosts = folder / "hosts"
        self._hosts.touch()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def resolve(self, *numbers: int, service: tuple[int, ...]) -> None:
        """What names stand for from now on: those of these nodes, and the service."""
        lines = ["127.0.0.1 localhost", *(f"{host(number)} mayfly-{number}.mq" for number in numbers)]
        lines += [f"{host(number)} mq" for number in service]
        self._hosts.write_text("\n".join(lines) + "\n")

    def start(self, *numbers: int) -> None:
        """Start these nodes at the same moment, all with the same command but for what tells them apart."""
        peer = self._base + 20_000
        for number in numbers:
            settings = {
                "name": f"mayfly-{number}",
                "seeds": f"mayfly-{{0..{FOUNDERS - 1}}}.mq:{peer}",
                "join": f"mq:{peer}",
                "advertised-peer-address": f"mayfly-{number}.mq:{peer}",
                "peer-address": f"{host(number)}:{peer}",
                "amqp-address": f"{host(number)}:{self._base}",
                "http-address": str(self.http(number)),
                "data-dir": str(self._folder / f"data-{number}"),
            }
            words = [word for key, value in settings.items() for word in (f"--{key}", value)]
            command = [*OWN_HOSTS, str(self._hosts), sys.executable, "-c", MAYFLY, "node", *words]
            with (self._folder / f"{number}.log").open("ab") as log:
                self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def http(self, number: int) -> Address:
        return Address(host(number), self._base + 10_000)

    def page(self, number: int, path: str) -> tuple[int, dict[str, Any]]:
        """A page of a node; (0, {}) if nobody answers."""
        with suppress(OSError):
            return fetch(self.http(number), path)
        return 0, {}

    def until_ready(self, *numbers: int) -> None:
        for number in numbers:
            wait_for(lambda number=number: self.page(number, "/health/ready")[0] == 200,  # type: ignore[misc]
                     f"node {number} serving", START_WITHIN_S, every_s=0.1)

    def members(self, number: int) -> dict[str, tuple[int, str]]:
        """Present members as a node has them: (id, state) by name."""
        answer = self.page(number, "/cluster/members")[1]
        rows = answer.get("members", [])
        return {row["name"]: (row["id"], row["state"]) for row in rows if row["state"] != "removed"}

    def url(self, number: int) -> str:
        patience = f"socket_timeout={BOUND_S}&stack_timeout={2 * BOUND_S}"
        return f"amqp://guest:guest@{host(number)}:{self._base}/%2f?{patience}"

    def log_text(self, number: int) -> str:
        return (self._folder / f"{number}.log").read_text()

    def has_started(self, number: int) -> bool:
        return number in self._processes

    def process(self, number: int) -> subprocess.Popen[bytes]:
        return self._processes[number]

    def wipe(self, number: int) -> None:
        """Kill a node and empty its folder."""
        self._processes[number].kill()
        self._processes[number].wait()
        shutil.rmtree(self._folder / f"data-{number}")

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.release()


def host(number: int) -> str:
    return f"127.1.0.{number + 1}"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    allowed = subprocess.run([*OWN_HOSTS, "/etc/hosts", "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or allowed.returncode != 0:
        pytest.skip("takes root, for a hosts file of its own")
    nodes = Named(tmp_path_factory.mktemp("named"))
    try:
        yield nodes
    finally:
        nodes.stop()


def test_one_cluster_forms_whoever_starts_first(named: Named) -> None:
    """First one that joins and one founder, when names are not there yet; then the others at the same moment."""
    named.resolve(1, service=())
    named.start(3, 1)
    wait_for(lambda: named.page(1, "/health/live")[0] == 200, "a lone founder that lives", START_WITHIN_S)
    wait_for(lambda: named.page(3, "/health/live")[0] == 200, "a node without a cluster that lives", START_WITHIN_S)
    wait_for(lambda: waits_for_founders(named, 1), "a founder that says whom it waits for")
    named.resolve(0, 1, 2, service=(98, 1))
    named.start(2, 0)
    named.until_ready(0, 1, 2)
    named.resolve(0, 1, 2, 3, service=(98, 0, 2))
    named.until_ready(3)
    everybody = {f"mayfly-{number}": (number + 1, "member") for number in range(4)}
    for number in range(4):
        wait_for(lambda number=number: named.members(number) == everybody, f"all as seen by {number}")  # type: ignore[misc]
    with pika.BlockingConnection(pika.URLParameters(named.url(3))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", "kept", b"said at the last one to come")
    named.wipe(0)
    named.start(0)
    named.until_ready(0)
    with pika.BlockingConnection(pika.URLParameters(named.url(0))) as connection:
        assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"said at the last one to come"
    wait_for(lambda: named.members(0).get("mayfly-0", (0, ""))[0] == 5, "another member in its place")


def waits_for_founders(named: Named, number: int) -> bool:
    """Whether the node is not ready, because it is the only founder so far."""
    status, answer = named.page(number, "/health/ready")
    assert status != 200, answer
    return status == 503 and "1 of 3 founders are there" in answer["reason"]


@pytest.fixture
def formed(named: Named) -> Named:
    """Nodes 0, 1, 2, and whatever joined them: a cluster, whether or not a test before has formed it."""
    missing = [number for number in range(FOUNDERS) if not named.has_started(number)]
    if missing:
        named.resolve(*range(FOUNDERS), service=tuple(range(FOUNDERS)))
        named.start(*missing)
    named.until_ready(*range(FOUNDERS))
    return named


def test_a_loop_that_is_stuck_is_not_live_and_goes_on_afterwards(formed: Named) -> None:
    """The probe gets no answer while it lasts; the node is not given up for it, neither by itself nor by the others."""
    named = formed
    process = named.process(2)
    wait_for(lambda: answers_in_time(named, 2), "a loop that turns")

    def is_seen(_: int) -> bool:
        """Whether a probe came to its end while the loop was stuck, and not before or after that."""
        began_s = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        times_out = not answers_in_time(named, 2)
        in_time = time.monotonic() < began_s + STALL_S
        wait_for(lambda: answers_in_time(named, 2), "a loop that turns again", every_s=0.1)
        took_s = time.monotonic() - began_s
        named.until_ready(2)
        return times_out and in_time and took_s >= STALL_S

    until_judged(is_seen, "a probe that times out while the loop is stuck", rounds=10)
    assert process.poll() is None
    assert "stopping: " not in named.log_text(2)


def answers_in_time(named: Named, number: int) -> bool:
    """What a liveness probe finds."""
    try:
        with urlopen(f"http://{named.http(number)}/health/live", timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (TimeoutError, URLError):
        return False
