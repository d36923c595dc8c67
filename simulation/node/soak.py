"""`python -m simulation.node.soak --hours 8`: fresh seeds for all simulators, for as long as one likes.

A line a minute says how far it is. A seed that fails is printed, and written to a file of its own with all that is
needed to see it again; so is one that does not end. Ctrl-C ends early, with the totals. The exit code is 1 if a seed
failed. `make soak HOURS=8` is the same.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from simulation.cluster.host_group import HostSimulation
from simulation.cluster.host_scenario import draw_scenario as draw_host_scenario
from simulation.cluster.machine_loss import MachineLoss, draw_machines
from simulation.cluster.raft_group import RaftGroup
from simulation.node.__main__ import failure_of as cluster_failure
from simulation.node.forming.run import FormingRun
from simulation.node.lease_edges.__main__ import failure_of as lease_failure

REPORT_EVERY_S = 60.0
SHOWN_LINES = 4
"""How much of a failure is printed at once; its file has all of it."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """One kind of run. `failure_of(seed)` is "" when all went well, else a text that says what did not.

    It is a function of a module, since other processes find it by its name; `replay` is the command that shows a seed
    again, but for the seed itself. CPU time is shared out in proportion to `share`.
    """

    name: str
    failure_of: Callable[[int], str]
    replay: str
    share: int = 1

    def report(self, seed: int, failure: str) -> str:
        """All one needs to know of a seed that failed."""
        return f"{self.name}: seed {seed} failed\n{failure.rstrip()}\nreplay: {self.replay} {seed}"


def raft_failure(seed: int) -> str:
    """What went wrong in the Raft group of a seed; "" for nothing."""
    try:
        RaftGroup(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return ""


def host_failure(seed: int) -> str:
    """What went wrong among the hosts of a seed; "" for nothing."""
    scenario = draw_host_scenario(seed)
    try:
        HostSimulation(scenario).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{scenario.describe()}\n{traceback.format_exc()}"
    return ""


def machine_failure(seed: int) -> str:
    """What went wrong among the machines of a seed; "" for nothing."""
    scenario = draw_machines(seed)
    try:
        MachineLoss(scenario).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{scenario.describe()}\n{traceback.format_exc()}"
    return ""


def forming_failure(seed: int) -> str:
    """What went wrong while the cluster of a seed formed; "" for nothing."""
    try:
        FormingRun(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return ""


RAFT = Simulator("raft", raft_failure, "python -m simulation.cluster --trace --seed")
HOSTS = Simulator("hosts", host_failure, "python -m simulation.cluster --hosts --trace --seed")
CLUSTERS = Simulator("clusters", cluster_failure, "python -m simulation.node --trace --seed", share=2)
MACHINES = Simulator("machines", machine_failure, "python -m simulation.cluster --machines --trace --seed")
LEASES = Simulator("leases", lease_failure, "python -m simulation.node.lease_edges --trace --seed")
FORMING = Simulator("forming", forming_failure, "python -m simulation.node.forming --trace --seed")
SIMULATORS = (RAFT, HOSTS, CLUSTERS, MACHINES, LEASES, FORMING)


class Task(NamedTuple):
    """A seed for one of the simulators, by its place in the list."""

    place: int
    seed: int


class Tally:
    """What was run, what is next, and what failed. Knows no clock and no process."""

    def __init__(self, simulators: Sequence[Simulator], first_seed: int) -> None:
        self._simulators = simulators
        self._next_seeds = [first_seed] * len(simulators)
        self._cpu_s = [0.0] * len(simulators)
        self._under_way = [0] * len(simulators)
        self.done = [0] * len(simulators)
        self.failed: list[list[int]] = [[] for _ in simulators]

    def next_task(self) -> Task:
        """The next seed of the simulator that has had the least of its share."""

        def used(place: int) -> float:
            done = self.done[place]
            expected_s = self._under_way[place] * (self._cpu_s[place] / done if done else 1.0)
            return (self._cpu_s[place] + expected_s) / self._simulators[place].share

        place = min(range(len(self._simulators)), key=used)
        task = Task(place, self._next_seeds[place])
        self._next_seeds[place] += 1
        self._under_way[place] += 1
        return task

    def finished(self, task: Task, cpu_s: float, failure: str) -> None:
        """A seed is done; `failure` is "" if it went well."""
        self._under_way[task.place] -= 1
        self._cpu_s[task.place] += cpu_s
        self.done[task.place] += 1
        if failure:
            self.failed[task.place].append(task.seed)

    def any_failed(self) -> bool:
        """Whether a seed failed."""
        return any(self.failed)


    def line(self, elapsed_s: float) -> str:
        """How far it is."""
        clock = time.strftime("%H:%M:%S", time.gmtime(elapsed_s % 86_400))
        days = f"{int(elapsed_s // 86_400)}d " if elapsed_s >= 86_400 else ""
        counts = ", ".join(
            f"{simulator.name} {done}" for simulator, done in zip(self._simulators, self.done, strict=True)
        )
        return f"{days}{clock}  {counts} seeds, {sum(map(len, self.failed))} failed"

    def totals(self) -> str:
        """What came of it, a line for each simulator."""
        lines: list[str] = []
        for place, simulator in enumerate(self._simulators):
            done, cpu_s, failed = self.done[place], self._cpu_s[place], self.failed[place]
            each = f", {cpu_s / done:.3f} CPU s each" if done else ""
            first = f" from {self._next_seeds[place] - done - self._under_way[place]}" if done else ""
            text = f": {', '.join(map(str, failed))}" if failed else ""
            lines.append(f"{simulator.name}: {done} seeds{first}{each}, {len(failed)} failed{text}")
        return "\n".join(lines)


# ---------------------------------------------------------------------- what a worker process does


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


def _work(connection: Connection, simulators: Sequence[Simulator], limit_s: float) -> None:
    """Run the seeds that come, until none come any more."""
    logging.disable(logging.CRITICAL)
    with suppress(EOFError, BrokenPipeError):
        while True:
            task: Task = connection.recv()
            started_s = time.process_time()
            failure = failure_within(simulators[task.place].failure_of, task.seed, limit_s)
            connection.send((time.process_time() - started_s, failure))


class _Worker:
    """A process that runs one seed at a time."""

    def __init__(self, simulators: Sequence[Simulator], limit_s: float) -> None:
        context = multiprocessing.get_context("spawn")
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

    def take(self, limit_s: float) -> tuple[float, str, bool]:
        """The CPU time and the failure of the seed that has ended, and whether the process lives."""
        try:
            cpu_s, failure = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            if code == -signal.SIGXCPU:
                return limit_s, f"does not end within {limit_s:g} s of CPU time, and can't be interrupted", False
            return 0.0, f"its process died with exit code {code}", False
        return cpu_s, failure, True

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()


# ---------------------------------------------------------------------- the parent


def soak(
    simulators: Sequence[Simulator],
    first_seed: int,
    seconds: float,
    workers: int,
    directory: Path,
    cpu_limit_s: float,
    say: Callable[[str], None],
) -> Tally:
    """Run fresh seeds for so long; `say` gets the lines for the user. KeyboardInterrupt ends it early."""
    tally = Tally(simulators, first_seed)
    started_s = time.monotonic()
    next_report_s = started_s + REPORT_EVERY_S
    crew: list[_Worker] = []
    try:
        say(f"{seconds / 3_600:g} hours on {workers} processes, seeds from {first_seed}")
        crew.extend(_Worker(simulators, cpu_limit_s) for _ in range(workers))
        for worker in crew:
            worker.give(tally.next_task())
        while (now_s := time.monotonic()) < started_s + seconds:
            if now_s >= next_report_s:
                say(tally.line(now_s - started_s))
                next_report_s += REPORT_EVERY_S
            until_s = min(next_report_s, started_s + seconds)
            ready = wait([worker.connection for worker in crew], max(0.0, until_s - now_s))
            for place, worker in enumerate(crew):
                if worker.connection not in ready or worker.task is None:
                    continue
                cpu_s, failure, lives = worker.take(cpu_limit_s)
                tally.finished(worker.task, cpu_s, failure)
                if failure:
                    _report(simulators[worker.task.place], worker.task.seed, failure, directory, say)
                if not lives:
                    worker.end()
                    crew[place] = _Worker(simulators, cpu_limit_s)
                crew[place].give(tally.next_task())
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        for worker in crew:
            worker.end()
    return tally


def _report(simulator: Simulator, seed: int, failure: str, directory: Path, say: Callable[[str], None]) -> None:
    text = simulator.report(seed, failure)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{simulator.name}-{seed}.txt"
    file.write_text(text + "\n")
    lines = text.splitlines()
    shown = lines[:SHOWN_LINES] + (["  ..."] if len(lines) > SHOWN_LINES + 1 else [])
    say("\n".join([*shown, lines[-1], f"all of it: {file}"]))


def main() -> int:
    """Run what the command line asks for; the exit code says whether all seeds went well."""
    names = [simulator.name for simulator in SIMULATORS]
    parser = argparse.ArgumentParser(prog="python -m simulation.node.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long; fractions are allowed (default: 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a CPU)")
    parser.add_argument("--first", type=int, help="the first seed (default: the milliseconds since 1970)")
    parser.add_argument("--only", choices=names, action="append", help="this simulator alone; may be repeated")
    parser.add_argument("--directory", type=Path, default=Path("soak-failures"), help="where failures are written")
    parser.add_argument("--cpu-limit", type=float, default=60.0, help="CPU seconds a seed may take (default: 60)")
    options = parser.parse_args()
    for name in ("hours", "workers", "cpu_limit"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, and must be more than 0")
    simulators = [each for each in SIMULATORS if options.only is None or each.name in options.only]
    # Less than a thousand seeds a second are run: no later run meets the same ones.
    first = options.first if options.first is not None else time.time_ns() // 1_000_000
    # Both, for a shell starts what runs in its background with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tally = soak(
        simulators, first, options.hours * 3_600, options.workers, options.directory, options.cpu_limit,
        lambda text: print(text, flush=True),
    )
    print(tally.totals())
    return 1 if tally.any_failed() else 0


if __name__ == "__main__":
    sys.exit(main())
