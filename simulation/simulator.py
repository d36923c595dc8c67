"""What all simulators have in common: a seed is drawn, time passes in a world of its own, and the run is judged.

`simulation.simulators` has the list of them; `simulation.runner` runs many seeds on several processes.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from simulation.cluster.events import EventQueue
from simulation.cluster.trace import Trace
from simulation.logged_failures import logged_failures

MOST_SHOWN = 10
"""So many of the reasons why a seed failed are told."""

Sink = Callable[[str], None] | None
"""What gets the trace of a run line by line."""


class Scenario(Protocol):
    """All that a seed decides before a run begins."""

    @property
    def seed(self) -> int:
        """Whatever was not drawn before comes from streams of this seed."""
        ...

    def describe(self) -> str:
        """Settings and faults in a few lines."""
        ...


S = TypeVar("S", bound=Scenario)


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise that was broken: its RULES id (or the checker's own name for it) and what was seen."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    violations: list[Violation]
    trace_digest: str
    events: int
    counts: dict[str, int]
    """What happened, and how often."""
    virtual_us: int = 0
    """How long it was for the cluster."""

    def summary(self) -> str:
        """One line."""
        counts = "".join(f", {number} {what}" for what, number in self.counts.items())
        return f"seed {self.seed}: {self.events} events{counts}; trace {self.trace_digest}"


class ScenarioRun(ABC, Generic[S]):
    """One run of one scenario. Use `run` once.

    What must hold at every step is checked there, and raised; what must hold in the end is judged. `EventQueue` and
    `Trace` bound the steps, `pass_time` the virtual time.
    """

    scenario: S
    queue: EventQueue
    trace: Trace

    def run(self) -> Outcome:
        """From the start to the verdict."""
        with logged_failures() as failures:
            self.pass_time()
        violations = self.judge() + [Violation("nothing fails", text) for text in failures.texts]
        return Outcome(
            self.scenario.seed, violations, self.trace.digest(), self.queue.executed, self.happened(),
            self.queue.now_us,
        )  # fmt: skip

    @abstractmethod
    def pass_time(self) -> None:
        """All that happens. Raises whatever a node raised, and what a check of a step says."""

    @abstractmethod
    def judge(self) -> list[Violation]:
        """Every promise that was broken in the end; an empty list is what one wants to see."""

    @abstractmethod
    def happened(self) -> dict[str, int]:
        """What happened, and how often."""


@dataclass(frozen=True, slots=True)
class Simulator(Generic[S]):
    """One kind of run: `draw(seed)` gives a scenario, `begin(scenario, sink)` a run of it.

    Both are of a module, since other processes find them by their names. A soak shares CPU time out in proportion to
    `share`.
    """

    name: str
    about: str
    draw: Callable[[int], S]
    begin: Callable[[S, Sink], ScenarioRun[S]]
    share: int = 1

    def replay(self, seed: int) -> str:
        """The command that shows a seed again, event by event."""
        return f"python -m simulation {self.name} --seed {seed} --trace"

    def report(self, seed: int, failure: str) -> str:
        """All one needs to know of a seed that failed."""
        return f"{self.name}: seed {seed} failed\n{failure.rstrip()}\nreplay: {self.replay(seed)}"

    def failure_of(
        self, seed: int, sink: Sink = None, ended: Callable[[Outcome], None] = lambda outcome: None
    ) -> str:
        """Run a seed; "" if it kept all promises, else why not, and under what faults.

        `ended` is told of a run that came to its end.
        """
        return _failure_of(self.begin(self.draw(seed), sink), ended)

    def kept(self, run: ScenarioRun[S]) -> Outcome:
        """What comes of a run that keeps all promises; AssertionError with all one needs to know of any other."""
        outcomes: list[Outcome] = []
        failure = _failure_of(run, outcomes.append)
        if failure:
            raise AssertionError(self.report(run.scenario.seed, failure))
        return outcomes[0]


def _failure_of(run: ScenarioRun[S], ended: Callable[[Outcome], None]) -> str:
    try:
        outcome = run.run()
    except Exception as error:
        return f"{_reasons([f'{type(error).__name__}: {error}'])}\n{run.scenario.describe()}\n{traceback.format_exc()}"
    ended(outcome)
    if not outcome.violations:
        return ""
    return f"{_reasons([str(each) for each in outcome.violations])}\n{run.scenario.describe()}"


def _reasons(reasons: Sequence[str]) -> str:
    shown = [f"  {reason}" for reason in reasons[:MOST_SHOWN]]
    if len(reasons) > MOST_SHOWN:
        shown.append(f"  ... and {len(reasons) - MOST_SHOWN} more")
    return "\n".join(shown)
