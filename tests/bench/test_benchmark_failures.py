"""The benchmark goes on when a load, a fault or a broker fails: that costs its own figures and no others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import machine, side_by_side
from bench.clusters import Broker, BrokerFailed, Cluster, ReplicatedCluster
from bench.comparison import MAYFLY, RABBITMQ
from bench.load_generator import LoadGenerator
from bench.loads import Timing


class StandInLoad(LoadGenerator):
    """Answers as the load generator does; loses messages with four queues of 12 B."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []

    def run(self, cluster: Cluster, load: list[str], strict: bool = True) -> dict[str, Any]:
        self.runs.append(load)
        if "--queues" in load and "12" in load:
            raise BrokerFailed("3 lost")
        spread = {"p50": 1.0, "p99": 2.0}
        return {
            "confirmed_s": 5000, "consumed_s": 5000, "broker_cpu_per_100k": 1, "other_cores": 0,
            "latency_ms": spread, "confirm_ms": spread,
        }


class StandInCluster(ReplicatedCluster):
    def leader_of(self, queue: str) -> int:
        return 0

    def start_again(self, place: int) -> None:
        pass

    def wait_until_well(self) -> None:
        pass


class StandInBroker(Broker):
    def __init__(self, name: str, starts: bool) -> None:
        self.name, self._starts = name, starts
        self.started = 0

    def version(self) -> str:
        return "1"

    def commands(self) -> list[str]:
        return []

    @contextmanager
    def three_nodes(self) -> Iterator[ReplicatedCluster]:
        if not self._starts:
            raise BrokerFailed("it does not start")
        self.started += 1
        yield StandInCluster(self.name, [], [], [])

    @contextmanager
    def single_node(self) -> Iterator[Cluster]:
        yield Cluster(self.name, [], [], [])


def plan(parts: tuple[str, ...], kills: int = 0, freezes: int = 0) -> side_by_side.Plan:
    faults = {name: {"kill": kills, "freeze": freezes} for name in (MAYFLY, RABBITMQ)}
    return side_by_side.Plan(Timing(4, 1), 2, parts, faults)


def test_a_load_that_fails_costs_no_other() -> None:
    load = StandInLoad()
    comparison = side_by_side.Comparison(
        plan(("a1k", "b12", "half", "single")), [StandInBroker(MAYFLY, True), StandInBroker(RABBITMQ, False)], load
    )
    comparison.run()
    results = comparison.results
    assert [failure for failure in results.failures if "3 lost" in failure and "b12" in failure]
    assert [failure for failure in results.failures if "does not start" in failure and RABBITMQ in failure]
    assert results.values(MAYFLY, "b12.confirmed_s") == []
    assert results.values(MAYFLY, "half.latency_p99_ms") == [2.0, 2.0]
    assert results.values(RABBITMQ, "single.confirmed_s") == [5000, 5000]


def test_half_of_the_maximum_is_that_of_the_brokers_own_run() -> None:
    load = StandInLoad()
    side_by_side.Comparison(plan(("a1k", "half")), [StandInBroker(MAYFLY, True)], load).run()
    assert [run[run.index("--rate") + 1] for run in load.runs if "--rate" in run] == ["2500", "2500"]


def test_a_fault_that_fails_ends_its_kind_and_the_other_kind_gets_nodes_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[int] = []

    def kill(cluster: ReplicatedCluster, number: int) -> dict[str, float]:
        killed.append(number)
        if number == 1:
            raise BrokerFailed("2 lost")
        return {"gap_s": 0.1}

    monkeypatch.setattr(side_by_side, "measure_kill", kill)
    monkeypatch.setattr(side_by_side, "measure_freeze", lambda cluster, number: {"gap_s": 1.0})
    # Nothing is measured here: the lock that is the machine's is left alone, whoever holds it.
    monkeypatch.setattr(machine, "LOCK", Path("/nowhere/to/be/opened"))
    turns: list[int] = []

    @contextmanager
    def alone() -> Iterator[None]:
        turns.append(len(turns))
        yield

    broker = StandInBroker(MAYFLY, True)
    planned = plan(("kill", "freeze"), kills=4, freezes=2)
    comparison = side_by_side.Comparison(planned, [broker], StandInLoad(), alone)
    comparison.run()
    assert killed == [0, 1]
    assert len(turns) == 4  # two kills, two freezes
    assert comparison.results.values(MAYFLY, "kill.gap_s") == [0.1]
    assert comparison.results.values(MAYFLY, "freeze.gap_s") == [1.0, 1.0]
    assert (broker.started, len(comparison.results.failures)) == (2, 1)
