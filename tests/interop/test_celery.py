"""Celery: a worker as a process, its results, times, retries and remote control."""

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import APPLICATIONS, NO_PYTHON_CLIENTS, WITHIN_S, Program, dead, fresh, python, urls

pytest.importorskip("celery", reason=NO_PYTHON_CLIENTS)
import kombu.pools

pytestmark = [pytest.mark.processes]


class Work:
    """An application and its running worker."""

    def __init__(self, tasks: Any, worker: Program) -> None:
        self.tasks = tasks
        self.worker = worker


@contextmanager
def working(nodes: Nodes, folder: Path, monkeypatch: pytest.MonkeyPatch, queue_type: str = "") -> Iterator[Work]:
    """A worker with two processes that knows all nodes; the test's own application as its client."""
    environment = {"BROKER_URLS": ";".join(urls(nodes)), "TASK_QUEUE": fresh("celery"), "QUEUE_TYPE": queue_type}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = python("celery", "--app", "celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO")
    words += ["--hostname", fresh("worker") + "@%h"]
    with Program(words, folder, {"PYTHONPATH": str(APPLICATIONS)}) as worker:
        worker.until_it_prints("ready.")
        # What this process itself asks with is closed, too.
        with application() as tasks:
            yield Work(tasks, worker)


@contextmanager
def application() -> Iterator[Any]:
    """The tasks, as a web server would import them."""
    spec = importlib.util.spec_from_file_location("celery_tasks", APPLICATIONS / "celery_tasks.py")
    assert spec is not None and spec.loader is not None
    tasks: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tasks)
    try:
        yield tasks
    finally:
        tasks.app.close()
        kombu.pools.reset()


def test_results_times_retries_and_control(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(whole, tmp_path, monkeypatch) as work:
        tasks = work.tasks
        asked = [tasks.add.delay(number, number) for number in range(20)]
        assert [result.get(timeout=WITHIN_S) for result in asked] == [2 * number for number in range(20)]
        with pytest.raises(ValueError, match="on purpose"):
            tasks.fail.delay().get(timeout=WITHIN_S)
        assert tasks.third_time.delay("well").get(timeout=WITHIN_S) == "well after 2"
        chain = tasks.add.s(1, 2) | tasks.add.s(4)
        assert chain.apply_async().get(timeout=WITHIN_S) == 7

        due_s = time.time() + 1.5
        ran_s = tasks.moment_s.apply_async(countdown=1.5).get(timeout=WITHIN_S)
        assert ran_s >= due_s - 0.1

        control = tasks.app.control
        # With limit=1 an answer ends the wait.
        (answer,) = control.ping(timeout=WITHIN_S, limit=1)
        assert list(answer.values()) == [{"ok": "pong"}]
        inspect = control.inspect(timeout=WITHIN_S, limit=1)
        (registered,) = inspect.registered().values()
        assert "celery_tasks.add" in registered
        later = tasks.add.apply_async((1, 1), countdown=600)
        wait_for(lambda: later.id in str(inspect.scheduled()), "the task with its ETA", WITHIN_S)
        later.revoke()
        wait_for(lambda: later.id in str(inspect.revoked()), "the revoked task", WITHIN_S)


@pytest.mark.slow
def test_quorum_queues_with_native_delays(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's own way with quorum queues: an ETA goes through a chain of queues with TTL and dead letters, so that
    more tasks than the prefetch may wait for their time while others run."""
    with working(whole, tmp_path, monkeypatch, "quorum") as work:
        tasks = work.tasks
        due_s = time.time() + 4
        late = [tasks.moment_s.apply_async(countdown=4) for _ in range(30)]
        assert tasks.add.delay(1, 1).get(timeout=WITHIN_S) == 2
        moments_s = [result.get(timeout=WITHIN_S) for result in late]
        # Celery rounds to whole seconds.
        assert min(moments_s) >= due_s - 1


@pytest.mark.interop_long
def test_the_worker_goes_to_another_node(whole: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that the worker and this client are connected to dies: both go on at another, with all tasks."""
    with working(whole, tmp_path, monkeypatch) as work:
        tasks = work.tasks
        assert tasks.add.delay(1, 1).get(timeout=WITHIN_S) == 2
        waiting = [tasks.third_time.apply_async((f"{number}",), ignore_result=True) for number in range(20)]
        with dead(whole, 1):
            policy = {"max_retries": 100, "interval_start": 0, "interval_step": 0.2}
            waiting += [
                tasks.third_time.apply_async((f"{number}",), ignore_result=True, retry=True, retry_policy=policy)
                for number in range(20, 40)
            ]
            work.worker.until_it_prints("succeeded", times=1 + len(waiting))
        for number in range(40):
            assert f"'{number} after 2'" in work.worker.output
        # A new client gets results from the worker that has moved.
        with application() as again:
            assert again.add.delay(2, 2).get(timeout=WITHIN_S) == 4
