"""`message_stats` of a cluster: what several nodes tell, added up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from mayfly.node.broker.traffic import Traffic
from mayfly.node.operating.message_totals import MessageTotals
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.views.rates import Rates


class World:
    """Nodes by number; each tells of its own traffic, and the first is asked."""

    def __init__(self, nodes: int) -> None:
        self.now_ms = 0
        self.traffic = {id: Traffic() for id in range(1, nodes + 1)}
        self.silent: set[int] = set()
        self._answers: dict[int, dict[type, Any]] = {}
        self.totals = next(iter([self._totals_of(id) for id in self.traffic]))

    def _totals_of(self, id: int) -> MessageTotals:
        questions = cast(NodeQuestions, SimpleNamespace(add=self._adder(id), ask_all=self._ask_all))
        return MessageTotals(questions, self.traffic[id], Rates(), lambda: self.now_ms)

    def _adder(self, id: int) -> Any:
        answers = self._answers.setdefault(id, {})
        return lambda question, answer_type, answer: answers.__setitem__(question, answer)

    async def _ask_all(self, question: msgspec.Struct) -> dict[int, Any]:
        told = {id: answers[type(question)](question) for id, answers in self._answers.items()}
        return {id: answer for id, answer in told.items() if id not in self.silent}


def test_nodes_are_added_up_and_so_are_their_rates() -> None:
    world = World(3)
    for id, traffic in world.traffic.items():
        traffic.of_vhost("v").received = traffic.received = 100 * id
        traffic.of_vhost("v").by_exchange[b"x"] = id
    first = asyncio.run(world.totals.of_cluster())
    assert (first["publish"], "publish_details" in first) == (600, False)
    asyncio.run(world.totals.of_vhosts(["v"]))
    world.now_ms = 5_000
    for traffic in world.traffic.values():
        traffic.received += 10
    assert asyncio.run(world.totals.of_cluster())["publish_details"] == {"rate": 6.0}
    vhosts = asyncio.run(world.totals.of_vhosts(["v", "other"]))
    assert (vhosts["v"]["publish"], vhosts["v"]["publish_details"]) == (600, {"rate": 0.0})
    assert vhosts["other"]["publish"] == 0
    exchanges = asyncio.run(world.totals.of_exchanges([("v", "x"), ("v", "y"), ("w", "x")]))
    assert [each["publish_in"] for each in exchanges.values()] == [6, 0, 0]


def test_a_node_that_says_nothing_for_a_while_makes_no_jump() -> None:
    world = World(2)
    for traffic in world.traffic.values():
        traffic.received = 1_000_000
    asyncio.run(world.totals.of_cluster())
    world.now_ms, world.silent = 5_000, {2}
    assert asyncio.run(world.totals.of_cluster())["publish_details"] == {"rate": 0.0}
    world.now_ms, world.silent = 10_000, set()
    told = asyncio.run(world.totals.of_cluster())
    assert (told["publish"], told["publish_details"]) == (2_000_000, {"rate": 0.0})
    world.now_ms += 5_000
    world.traffic[2].received = 7  # It began anew.
    told = asyncio.run(world.totals.of_cluster())
    assert (told["publish"], "publish_details" in told) == (1_000_007, False)
