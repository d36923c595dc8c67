"""Nodes of MayflyMQ for benchmarks: by `mayfly up`, or one by `mayfly node`."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bench.clusters import (
    NODES,
    ROOT,
    START_S,
    Broker,
    BrokerFailed,
    Cluster,
    Process,
    ReplicatedCluster,
    answers,
    page,
    running,
    start,
    until_spread,
    wait_until,
)

BASE_PORT: Final = int(os.environ.get("BASE_PORT", "6872"))
_HTTP_OFFSET: Final = 10_000
_SINGLE_PORT: Final = BASE_PORT + 10
_CALM_S: Final = 2.0
_WELL_S: Final = 60
_SERVES: Final = re.compile(r"^node(\d+) serves: .*, pid (\d+)\. Alone again: (.*)$", re.MULTILINE)

class MayflyCluster(ReplicatedCluster):
    """Nodes that `mayfly up` started."""

    def __init__(self, told: str, environment: dict[str, str], folder: Path) -> None:
        """`told`: what `mayfly up` says when they serve."""
        # They come in the order in which nodes serve.
        lines = sorted(_SERVES.findall(told), key=lambda line: int(line[0]))
        ports = range(BASE_PORT, BASE_PORT + len(lines))
        uris = [f"amqp://guest:guest@127.0.0.1:{port}/%2f" for port in ports]
        http = [port + _HTTP_OFFSET for port in ports]
        super().__init__("MayflyMQ", uris, [int(pid) for _, pid, _ in lines], http)
        self._commands = [command for _, _, command in lines]
        self._environment, self._folder = environment, folder
        self._started_again: dict[int, Process] = {}

    def leader_of(self, queue: str) -> int:
        """The place of the node that leads the queue's shard."""
        leader = int(json.loads(page(self.http[0], f"/queues/%2F/{quote(queue, safe='')}"))["leader"] or 0)
        if not leader:
            raise BrokerFailed(f"{queue} has no leader")
        for place, port in enumerate(self.http):
            # Who comes back without its data is another member.
            if int(json.loads(page(port, "/status"))["id"]) == leader:
                return place
        raise BrokerFailed(f"{queue} is led by node {leader}, which is none of these")

    def start_again(self, *places: int) -> None:
        """By the commands that `mayfly up` gave for them."""
        for place in places:
            words, log = shlex.split(self._commands[place]), self._folder / f"again-{place}.log"
            process = start(words, log, self._environment)
            self._started_again[place] = process
            self.pids[place] = process.pid
        for place in places:
            ready = partial(answers, self.http[place], "/health/ready")
            wait_until(ready, f"node {place + 1} serves again", START_S)

    def data_folder(self, place: int) -> Path:
        """Where the node has its data."""
        words = shlex.split(self._commands[place])
        return Path(words[words.index("--data-dir") + 1])

    def wait_until_well(self) -> None:
        """Until all know the same leaders, as many on every node, and that has stayed so for a while."""
        self._wait_for_leaders(_spread, "all nodes know the same leaders, spread over the nodes")

    def wait_until_agreed(self) -> None:
        """The same, however many are on which node: under load they are evened out by what they do."""
        self._wait_for_leaders(_agree, "all nodes know the same leaders")

    def _wait_for_leaders(self, are_well: Callable[[list[dict[int, int]], int], bool], what: str) -> None:
        calm_since_s, last = time.monotonic(), self._leaders()

        def well() -> bool:
            nonlocal calm_since_s, last
            now = self._leaders()
            if now != last or not are_well(now, len(self.pids)):
                calm_since_s, last = time.monotonic(), now
            return time.monotonic() - calm_since_s > _CALM_S

        wait_until(well, what, _WELL_S)

    def _leaders(self) -> list[dict[int, int]]:
        try:
            views: list[list[dict[str, Any]]] = [json.loads(page(port, "/status"))["groups"] for port in self.http]
        except OSError:
            return []
        return [{int(row["group"]): int(row["leader"] or 0) for row in view} for view in views]

    def end_started_again(self) -> None:
        """End the nodes that `mayfly up` doesn't."""
        for process in self._started_again.values():
            process.terminate()
        for process in self._started_again.values():
            process.wait(START_S)


class MayflyNode(Cluster):
    """A node alone, by `mayfly node`."""

    def __init__(self, process: Process, start_on_its_data: Callable[[], Process]) -> None:
        uri = f"amqp://guest:guest@127.0.0.1:{_SINGLE_PORT}/%2f"
        super().__init__("MayflyMQ", [uri], [process.pid], [_SINGLE_PORT + _HTTP_OFFSET])
        self._process, self._start = process, start_on_its_data
        self._started_again = False

    def end(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        self._process.wait(START_S)

    def start_again(self) -> float:
        """On its data, when it has ended; how long it takes until it is ready, in s."""
        began_s = time.monotonic()
        self._process = self._start()
        self._started_again = True
        self.pids = [self._process.pid]
        wait_until(lambda: answers(self.http[0], "/health/ready"), "the node serves again", START_S, every_s=0.02)
        return time.monotonic() - began_s

    def end_started_again(self) -> None:
        """End the node if it is not the first one."""
        if self._started_again:
            self.end()


def _agree(views: list[dict[int, int]], _: int) -> bool:
    """Whether there is one view of the leaders, each of which is known."""
    return bool(views) and all(view == views[0] for view in views) and 0 not in views[0].values()


def _spread(views: list[dict[int, int]], nodes: int) -> bool:
    """Whether there is one view of the leaders, and no node leads much more than another."""
    if not _agree(views, nodes):
        return False
    led = Counter(views[0].values())
    return len(led) == nodes and max(led.values()) - min(led.values()) <= 2


class Mayfly(Broker):
    """The installed package, or (`source`) this tree, uncompiled."""

    name = "MayflyMQ"

    def __init__(self, source: bool) -> None:
        self._program = [sys.executable, *([] if source else ["-P"]), "-m", "mayfly"]
        self._environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._source = source
        if source:
            self._environment["PYTHONPATH"] = str(ROOT)

    def version(self) -> str:
        """As `mayfly --version` says, which tells whether it is compiled."""
        with tempfile.TemporaryDirectory() as elsewhere:
            done = subprocess.run(
                [*self._program, "--version"], cwd=elsewhere, env=self._environment, capture_output=True, text=True,
            )
        if done.returncode:
            raise BrokerFailed(f"{shlex.join(self._program)} --version: {done.stderr}")
        return done.stdout.strip().removeprefix("mayfly ")

    def commands(self) -> list[str]:
        """How the nodes are started."""
        return [
            shlex.join(["mayfly", *_up(Path("FOLDER"))]),
            shlex.join(["mayfly", *_alone(Path("FOLDER"))]),
        ]

    @contextmanager
    def three_nodes(self) -> Iterator[MayflyCluster]:
        """By `mayfly up`, with leaders spread."""
        with self._running(_up) as (process, folder):
            log = folder / "up.log"

            def serve() -> bool:
                _check(process, log)
                return len(_SERVES.findall(log.read_text())) == NODES

            _wait(serve, log)
            cluster = MayflyCluster(log.read_text(), self._environment, folder)
            until_spread(cluster.http)
            try:
                yield cluster
            finally:
                cluster.end_started_again()

    @contextmanager
    def single_node(self) -> Iterator["MayflyNode"]:
        """By `mayfly node`."""
        with self._running(_alone) as (process, folder):
            http = _SINGLE_PORT + _HTTP_OFFSET

            def serves() -> bool:
                _check(process, folder / "up.log")
                return answers(http, "/health/ready")

            _wait(serves, folder / "up.log")
            node = MayflyNode(process, lambda: start(
                [*self._program, *_alone(folder)], folder / "again.log", self._environment
            ))
            try:
                yield node
            finally:
                node.end_started_again()

    @contextmanager
    def _running(self, arguments: Callable[[Path], list[str]]) -> Iterator[tuple[Process, Path]]:
        with tempfile.TemporaryDirectory(prefix="mayfly-bench-") as name:
            folder = Path(name)
            words = [*self._program, *arguments(folder)]
            with running(words, folder / "up.log", self._environment, START_S) as process:
                yield process, folder


def _up(folder: Path) -> list[str]:
    return ["up", "--nodes", str(NODES), "--base-port", str(BASE_PORT), "--data-dir", str(folder)]


def _alone(folder: Path) -> list[str]:
    return [
        "node", "--data-dir", str(folder / "node"), "--amqp-address", f"127.0.0.1:{_SINGLE_PORT}",
        "--http-address", f"127.0.0.1:{_SINGLE_PORT + _HTTP_OFFSET}",
        "--peer-address", f"127.0.0.1:{_SINGLE_PORT + 2 * _HTTP_OFFSET}",
    ]


def _wait(serve: Callable[[], bool], log: Path) -> None:
    try:
        wait_until(serve, "MayflyMQ serves", START_S)
    except BrokerFailed as failure:
        raise BrokerFailed(f"{failure}\n{log.read_text()}") from None


def _check(process: Process, log: Path) -> None:
    # It ends at once if something else has its ports, and whatever that is might answer.
    if process.poll() is not None:
        raise BrokerFailed(f"MayflyMQ has ended:\n{log.read_text()}")
