"""Real processes that are killed under the outsider's clients, judged from outside as the simulated ones are.

RULES T2-T5, T10, T11, D1-D7, D9, L2-L5, L10, S3, S5, confirms and linearizability.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from simulation.outsider.judging.history import (
    DECLARE,
    EMPTY,
    GET,
    OutsiderHistory,
    Phases,
    Setting,
    Trouble,
    history_of,
    lines_of,
)
from simulation.outsider.judging.judge import judge
from simulation.outsider.recorder import Recorder
from simulation.outsider.workload import BIND, EXCHANGE, ClientPlan, ClientStep, Workload, draw_workload
from tests.integration.clients import url
from tests.integration.nodes import Nodes
from tests.integration.outsider_clients import RealClient, Surroundings

pytestmark = [pytest.mark.processes]

LENGTH_US = 9_000_000
GAP_US = 150_000
FAMILIES = 7
CLOCK_MS = 100
"""Nodes of one machine have one clock; a busy machine may hold an answer up, which is no matter: lateness is not
judged here."""
KILLED_AFTER_S, DOWN_S = 2.0, 1.5
LOOKS, LOOK_AGAIN_S = 3, 1.2


class Course:
    """One run of a workload over a cluster that loses a node and gets it back."""

    def __init__(self, nodes: Nodes, workload: Workload, seed: int) -> None:
        self.nodes = nodes
        self.workload = workload
        self.seed = seed
        setting = Setting(
            seed, workload.queues, workload.exchanges, 250, CLOCK_MS, None, int(time.time() * 1_000), settle_ms=15_000
        )
        self.history = OutsiderHistory(setting)
        urls = {id: url(nodes, id) for id in nodes.ids}
        self.around = Surroundings(Recorder(self.history), urls, workload.queues)

    async def run(self, victim: int) -> None:
        """From the first declare to the last get."""
        workload = self.workload
        steps = [ClientStep(0, EXCHANGE, exchange=exchange.name) for exchange in workload.exchanges]
        steps += [ClientStep(0, DECLARE, name) for name in workload.declared]
        steps += [
            ClientStep(0, BIND, queue, exchange=each.name) for each in workload.exchanges for queue in each.queues
        ]
        await self._do_all(ClientPlan("founder", 1, tuple(steps)))
        for id in self.nodes.ids:
            await asyncio.to_thread(self.nodes.until_told, id)
        clients = [RealClient(self.around, plan, Random(place)) for place, plan in enumerate(workload.clients)]
        await asyncio.gather(self._kill(victim), *(client.run() for client in clients))
        await asyncio.gather(*(client.finish() for client in clients))
        await asyncio.to_thread(self.nodes.until_well)
        calm_us = self.around.now_us()
        await asyncio.sleep(1)
        drain_us = self.around.now_us()
        await self._drain()
        self.history.phases = Phases(calm_us, drain_us, self.around.now_us())

    async def _kill(self, victim: int) -> None:
        await asyncio.sleep(KILLED_AFTER_S)
        from_us = self.around.now_us()
        await asyncio.to_thread(self.nodes.kill, victim)
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(self.nodes.start, victim)
        await asyncio.to_thread(self.nodes.until_serving)
        self.history.troubles.append(Trouble("kill", (), from_us, self.around.now_us()))

    async def _do_all(self, plan: ClientPlan) -> None:
        client = RealClient(self.around, plan, Random(0))
        await client.run()
        await client.finish()

    async def _drain(self) -> None:
        """Until nothing has come for some looks in a row."""
        empty = 0
        while empty < LOOKS:
            before = len(self.history.handed)
            names = [queue.name for queue in self.workload.queues]
            while names:
                first = len(self.history.calls)
                steps = tuple(ClientStep(0, GET, name, no_ack=True) for name in names for _ in range(5))
                await self._do_all(ClientPlan("drainer", 1, steps))
                done = {call.queue for call in self.history.calls[first:] if call.outcome == EMPTY or call.code}
                names = [name for name in names if name not in done]
            empty = empty + 1 if len(self.history.handed) == before else 0
            await asyncio.sleep(LOOK_AGAIN_S)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_nodes_that_are_killed_keep_their_promises(tmp_path: Path, seed: int) -> None:
    """A node dies and comes back while all clients go on; the history is kept beside the logs."""
    with Nodes(tmp_path / "nodes", 3) as nodes:
        nodes.serve()
        course = Course(nodes, draw_workload(Random(seed), 3, LENGTH_US, GAP_US, FAMILIES), seed)
        asyncio.run(course.run(victim=1 + seed % 3))
    lines = list(lines_of(course.history))
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    judgement = judge(history_of(lines))
    assert not judgement.findings, "\n".join(map(str, judgement.findings))
    assert sum(publish.outcome == "confirmed" for publish in course.history.publishes) > 100
    assert sum(bool(handed.deaths) for handed in course.history.handed) > 10
