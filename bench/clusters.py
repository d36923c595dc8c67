"""Running nodes of a broker, whichever it is: where clients connect, what the processes use, how nodes die."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from bench import machine

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared")) / "bench"
NODES: Final = 3
START_S: Final = 60
"""So long nodes may take to start."""
_SPREAD_WITHIN_S: Final = 120
_QUEUES: Final = re.compile(r'^mayfly_queues\{shard="([^"]+)"\} (\S+)$', re.MULTILINE)
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)

Process = subprocess.Popen[bytes]


class BrokerFailed(Exception):
    """A broker that does not start, or does not do what it is asked."""


class Cluster:
    """The nodes, by place from 0: URIs and process ids are in the same order."""

    def __init__(self, name: str, uris: list[str], pids: list[int], http: list[int]) -> None:
        self.name, self.uris, self.pids, self.http = name, uris, pids, http

    def cpu_s(self) -> float:
        """CPU that the nodes have used, together."""
        return sum(map(machine.cpu_s, self.pids))

    def memory_bytes(self) -> int:
        """Memory of the nodes, together, without files that are mapped."""
        return sum(map(machine.anonymous_bytes, self.pids))

    def resident_bytes(self) -> int:
        """Memory of the nodes, together, with files that are mapped; a page in two processes counts twice."""
        return sum(map(machine.resident_bytes, self.pids))

    def metric(self, name: str) -> list[float]:
        """A metric of MayflyMQ, summed over its samples, for each node."""
        values = []
        for port in self.http:
            lines = page(port, "/metrics").splitlines()
            values.append(sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))))
        return values

    def queues(self) -> int:
        """How many queues there are in shards, each as the node has it that knows most."""
        found: dict[str, float] = {}
        for port in self.http:
            for shard, count in _QUEUES.findall(page(port, "/metrics")):
                found[shard] = max(found.get(shard, 0.0), float(count))
        return int(sum(found.values()))

    def kill(self, place: int) -> float:
        """SIGKILL a node; the monotonic moment just before."""
        return self._signal(place, signal.SIGKILL)

    def freeze(self, place: int) -> float:
        """SIGSTOP a node; the monotonic moment just before."""
        return self._signal(place, signal.SIGSTOP)

    def terminate(self, place: int) -> float:
        """SIGTERM a node; the monotonic moment just before."""
        return self._signal(place, signal.SIGTERM)

    def has_ended(self, place: int) -> bool:
        """Whether the node's process has ended; one that nobody has waited for counts."""
        try:
            state = Path(f"/proc/{self.pids[place]}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    def thaw(self, place: int) -> float:
        """SIGCONT a node; the monotonic moment just before."""
        return self._signal(place, signal.SIGCONT)

    def _signal(self, place: int, number: signal.Signals) -> float:
        moment_s = time.monotonic()
        os.kill(self.pids[place], number)
        return moment_s


class ReplicatedCluster(Cluster, ABC):
    """Several nodes that replicate queues."""

    @abstractmethod
    def leader_of(self, queue: str) -> int:
        """The place of the node that leads a queue of the default vhost."""

    @abstractmethod
    def start_again(self, place: int) -> None:
        """Start a node that was killed, on its data; returns when it serves."""

    @abstractmethod
    def wait_until_well(self) -> None:
        """Return when all nodes serve and know each other's leaders."""


class Broker(ABC):
    """A broker that can be started here."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """Which it is, in words."""

    @abstractmethod
    def three_nodes(self) -> AbstractContextManager[Cluster]:
        """Three nodes without data of before, on loopback; they end with the block. Faults take a ReplicatedCluster."""

    @abstractmethod
    def single_node(self) -> AbstractContextManager[Cluster]:
        """One node without data of before, on loopback; it ends with the block."""

    @abstractmethod
    def commands(self) -> list[str]:
        """How the nodes are started, as lines for a shell."""


def start(words: Sequence[str], log: Path, environment: dict[str, str]) -> Process:
    """Start a program in the log's folder that gets SIGTERM when this one ends, however that comes (Linux)."""
    with log.open("ab") as output:
        return subprocess.Popen(
            words, stdout=output, stderr=output, cwd=log.parent, env=environment,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


@contextmanager
def running(words: Sequence[str], log: Path, environment: dict[str, str], end_within_s: float) -> Iterator[Process]:
    """The program until the end of the block, which SIGTERM tells it."""
    process = start(words, log, environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(end_within_s)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def until_spread(http: Sequence[int]) -> None:
    """Return when every shard is led by the node that is to lead it, as all nodes at these HTTP ports have it. Raises
    BrokerFailed at a bound."""

    def spread() -> bool:
        try:
            views = [json.loads(page(port, "/shards"))["shards"] for port in http]
        except OSError:
            return False
        return all(row["plan"] and row["leader"] == row["plan"][0] for view in views for row in view)

    wait_until(spread, "every shard is led by the node that is to lead it", _SPREAD_WITHIN_S)


def page(port: int, path: str) -> str:
    """What a node on this machine answers over HTTP. Raises OSError if it doesn't, or with an error."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def answers(port: int, path: str) -> bool:
    """Whether a node on this machine answers over HTTP, and not with an error."""
    try:
        page(port, path)
    except (OSError, urllib.error.HTTPError):
        return False
    return True


def wait_until(what: Callable[[], bool], description: str, within_s: float, every_s: float = 0.1) -> None:
    """Ask until it is so. Raises BrokerFailed at the bound."""
    deadline = time.monotonic() + within_s
    while not what():
        if time.monotonic() > deadline:
            raise BrokerFailed(f"not within {within_s:.0f} s: {description}")
        time.sleep(every_s)
