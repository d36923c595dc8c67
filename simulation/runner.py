"""Many seeds on several processes, each within a limit of CPU time."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple

from simulation.simulator import Outcome, Simulator

Failing = Callable[[int, Callable[[Outcome], None]], str]
"""Runs a seed, tells the outcome, and says what went wrong."""


class Task(NamedTuple):
    """A seed for one of the simulators, by its place in the list."""

    place: int
    seed: int


class Result(NamedTuple):
    """What came of a task. `failure` is "" if all went well; there is no outcome if the run did not come to its end."""

    task: Task
    cpu_s: float
    failure: str
    outcome: Outcome | None


class Crew:
    """Processes that run one seed at a time each; those that die are replaced."""

    def __init__(self, simulators: Sequence[Simulator[Any]], workers: int, cpu_limit_s: float) -> None:
        self._simulators = simulators
        self._size = workers
        self._cpu_limit_s = cpu_limit_s
        self._workers: list[_Worker] = []

    def give(self, next_task: Callable[[], Task | None]) -> None:
        """Let all that are idle run a seed, as long as there is one."""
        while len(self._workers) < self._size:
            self._workers.append(_Worker(self._simulators, self._cpu_limit_s))
        for worker in self._workers:
            task = next_task() if worker.task is None else None
            if task is not None:
                worker.give(task)

    def results(self, timeout_s: float | None = None) -> list[Result]:
        """What came of the seeds that end next; nothing if none does within that time, or none is under way."""
        busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
        results: list[Result] = []
        for connection in wait(list(busy), timeout_s) if busy else []:
            assert isinstance(connection, Connection)
            worker = busy[connection]
            result, lives = worker.take()
            results.append(result)
            if not lives:
                worker.end()
                self._workers.remove(worker)
        return results

    def end(self) -> None:
        """End all processes, whatever they do."""
        for worker in self._workers:
            worker.end()


def run_seeds(
    simulator: Simulator[Any], seeds: Sequence[int], workers: int, cpu_limit_s: float
) -> Iterator[Result]:
    """What comes of these seeds, in their order."""
    crew = Crew([simulator], min(workers, len(seeds)), cpu_limit_s)
    left, early = iter(seeds), dict[int, Result]()

    def next_task() -> Task | None:
        seed = next(left, None)
        return None if seed is None else Task(0, seed)

    try:
        for seed in seeds:
            while seed not in early:
                crew.give(next_task)
                early |= {result.task.seed: result for result in crew.results()}
            yield early.pop(seed)
    finally:
        crew.end()


# ---------------------------------------------------------------------- what a process of the crew does


class _DoesNotEnd(BaseException):
    """The CPU limit of a seed is reached. No `except Exception` of the code under test must stop it."""


@contextmanager
def _cpu_limit(limit_s: float) -> Iterator[None]:
    """Raise _DoesNotEnd after so much CPU time; where Python code gets no chance to, end the process a while later."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _DoesNotEnd

    signal.signal(signal.SIGPROF, end)
    before_s, most_s = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + limit_s) + 5, most_s))
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # A process that goes on to other things must not be ended by this.
        resource.setrlimit(resource.RLIMIT_CPU, (before_s, most_s))


def failure_within(failure_of: Callable[[int], str], seed: int, limit_s: float) -> str:
    """Run a seed; what `failure_of` says, what it raised, or where it was when the CPU limit was reached."""
    try:
        with _cpu_limit(limit_s):
            return failure_of(seed)
    except _DoesNotEnd:
        return f"does not end within {limit_s:g} s of CPU time; it was here:\n{traceback.format_exc()}"
    except Exception:
        return traceback.format_exc()


def _work(connection: Connection, simulators: Sequence[Simulator[Any]], limit_s: float) -> None:
    """Run the seeds that come, until none come any more."""
    logging.disable(logging.CRITICAL)
    with suppress(EOFError, BrokenPipeError):
        while True:
            task: Task = connection.recv()
            started_s = time.process_time()
            outcomes: list[Outcome] = []
            simulator = simulators[task.place]

            def failure_of(seed: int) -> str:
                return simulator.failure_of(seed, ended=outcomes.append)  # noqa: B023

            failure = failure_within(failure_of, task.seed, limit_s)
            cpu_s = time.process_time() - started_s
            connection.send(Result(task, cpu_s, failure, outcomes[0] if outcomes else None))


class _Worker:
    """A process of the crew, as its parent has it."""

    def __init__(self, simulators: Sequence[Simulator[Any]], limit_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._limit_s = limit_s
        self.connection, others_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_work, args=(others_end, simulators, limit_s), daemon=True
        )
        # Ctrl-C reaches everyone at the terminal; it is for the parent alone, also while the worker starts.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        others_end.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        """Let it run a seed. (One that has died meanwhile says so in `take`.)"""
        self.task = task
        with suppress(BrokenPipeError):
            self.connection.send(task)

    def take(self) -> tuple[Result, bool]:
        """What came of the seed that has ended, and whether the process lives."""
        task, self.task = self.task, None
        assert task is not None
        try:
            result: Result = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code, limit_s = self._process.exitcode, self._limit_s
            if code == -signal.SIGXCPU:
                text = f"does not end within {limit_s:g} s of CPU time, and can't be interrupted"
                return Result(task, limit_s, text, None), False
            return Result(task, 0.0, f"its process died with exit code {code}", None), False
        return result, True

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()
