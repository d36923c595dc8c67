"""Dramatiq: a worker as a process, its delayed messages, retries and dead letters."""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import APPLICATIONS, NO_PYTHON_CLIENTS, WITHIN_S, Program, dead, fresh, python, url, urls

pytest.importorskip("dramatiq", reason=NO_PYTHON_CLIENTS)

pytestmark = [pytest.mark.processes]


class Work:
    """The actors, to send to, and what the worker reported."""

    def __init__(self, nodes: Nodes, actors: Any) -> None:
        self._nodes = nodes
        self.actors = actors
        self.reports: list[str] = []

    def until_reported(self, *words: str) -> None:
        """Read reports until all of these have come."""

        def reported() -> bool:
            with pika.BlockingConnection(pika.URLParameters(url(self._nodes, 3))) as connection:
                channel = connection.channel()
                while True:
                    try:
                        _, _, body = channel.basic_get(self.actors.QUEUE + "-done", auto_ack=True)
                    except pika.exceptions.ChannelClosedByBroker:
                        return False  # nothing was reported yet, so there is no such queue
                    if body is None:
                        return set(words) <= set(self.reports)
                    self.reports.append(json.loads(body)["args"][0])

        wait_for(reported, f"reports {words}", WITHIN_S, every_s=0.1)

    def messages(self, queue: str) -> int:
        """How many are ready in a queue."""
        return self._nodes.ready(3, queue)


@contextmanager
def working(nodes: Nodes, folder: Path, monkeypatch: pytest.MonkeyPatch, max_priority: str = "") -> Iterator[Work]:
    """A worker with one process and two threads that knows all nodes."""
    environment = {"BROKER_URLS": ";".join(urls(nodes)), "TASK_QUEUE": fresh("actors"), "MAX_PRIORITY": max_priority}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("dramatiq_actors", APPLICATIONS / "dramatiq_actors.py")
    assert spec is not None and spec.loader is not None
    actors: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(actors)
    queue = environment["TASK_QUEUE"]
    words = python("dramatiq", "dramatiq_actors", "--processes", "1", "--threads", "2", "--queues", queue)
    with Program(words, folder, {"PYTHONPATH": str(APPLICATIONS)}) as worker:
        worker.until_it_prints("ready for action")
        try:
            yield Work(nodes, actors)
        finally:
            actors.broker.close()


def test_delays_retries_and_the_dead(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(whole, tmp_path, monkeypatch) as work:
        actors = work.actors
        for number in range(10):
            actors.do.send(f"{number}")
        actors.do.send_with_options(args=("later",), delay=500)
        actors.fail_once.send("again")
        actors.fail_for_good.send()
        work.until_reported(*(f"{number}" for number in range(10)), "later", "again")
        wait_for(lambda: work.messages(actors.QUEUE + ".XQ") == 1, "the dead message", WITHIN_S, every_s=0.1)


def test_priorities(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(whole, tmp_path, monkeypatch, max_priority="5") as work:
        work.actors.do.send_with_options(args=("urgent",), broker_priority=5)
        work.actors.do.send("ordinary")
        work.until_reported("urgent", "ordinary")


@pytest.mark.interop_long
def test_the_worker_goes_to_another_node(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dramatiq takes one of the nodes at random, so each dies in turn."""
    with working(whole, tmp_path, monkeypatch) as work:
        for victim in (1, 2):
            with dead(whole, victim):
                for number in range(10):
                    word = f"{victim} {number}"
                    # It enqueues anew by itself until a node answers; a queue that it has not seen confirms late.
                    work.actors.do.send(word)
                    work.until_reported(word)
