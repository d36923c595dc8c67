"""What a node only logs, and goes on from, fails a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mayfly.cluster.log.batch import CorruptEntry
from mayfly.node.shell.log_events import EVENTS
from simulation.logged_failures import LEFT_ALONE, hear, logged_failures
from simulation.node.nodes import SimulatedNode
from simulation.node.probe import Probe
from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario
from simulation.simulators import CLUSTERS

ROOT = Path(__file__).resolve().parents[2]

logger = logging.getLogger("mayfly.node.somewhere")


@pytest.fixture(autouse=True)
def logging_is_off() -> Iterator[None]:
    """As in the processes of the runner."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def test_a_delivery_that_fails_once_fails_the_run() -> None:
    """The client of such a delivery is told 541 and comes again: it alone would not notice."""
    handed_out, spoiled = Probe.handed_out, False

    def hand_out_spoiled(probe: Probe, node: Any, shard: int, messages: Sequence[Any]) -> None:
        nonlocal spoiled
        handed_out(probe, node, shard, messages)
        if not spoiled:
            spoiled = True
            assert isinstance(messages, list)
            messages[0] = object()

    with patch.object(Probe, "handed_out", hand_out_spoiled), pytest.raises(AssertionError) as failed:
        CLUSTERS.kept(Simulation(draw_scenario(33)))
    assert spoiled
    reasons = str(failed.value).splitlines()[1:3]
    assert reasons[0].startswith("  nothing fails: delivery to client-")
    assert not reasons[1].startswith("  nothing fails")


def test_an_error_is_told_with_its_place_and_each_once() -> None:
    with logged_failures() as failures:
        for _ in range(2):
            try:
                raise ValueError("seven")
            except ValueError:
                logger.exception("an operation of %s failed", "client-1")
        logger.warning("this is none")
        logger.error("a command can't be read")
    logger.error("this comes too late")
    first, second = failures.texts
    assert first.startswith("an operation of client-1 failed: ValueError('seven') in test_an_error_is_told")
    assert second == "a command can't be read"
    assert logging.root.manager.disable == logging.CRITICAL


def test_what_a_run_does_on_purpose_is_no_failure() -> None:
    with logged_failures() as failures:
        logger.error(LEFT_ALONE, 3)
        try:
            raise CorruptEntry(1, 7, "rotten")
        except CorruptEntry:
            logger.exception("delivery to %s failed", "client-1")
    assert not failures.texts
    assert LEFT_ALONE in EVENTS


def test_commands_that_are_none_fail_the_run() -> None:
    """The batch is cut short, on all replicas alike, and nobody waits for it."""
    tick, given = SimulatedNode.tick, False

    def tick_and_give(node: SimulatedNode, now_ms: int) -> None:
        nonlocal given
        tick(node, now_ms)
        given = given or node.engine.host.propose_internal(1, b"\xff")

    with patch.object(SimulatedNode, "tick", tick_and_give), pytest.raises(AssertionError) as failed:
        CLUSTERS.kept(Simulation(draw_scenario(33)))
    assert given
    assert str(failed.value).splitlines()[1].startswith(
        "  nothing fails: group 1: a batch of session None was cut short: "
    )


@pytest.mark.parametrize(
    ("file", "told", "values"),
    [
        ("host/raft_input.py", "node {peer} sent what can't be used: {text}", {"peer": "2", "text": "3 octets"}),
        (
            "group/applying.py",
            "group {self._group}: a batch of session {session} is of the unknown form {form}",
            {"self._group": "1", "session": "(1, 2)", "form": "64"},
        ),
        (
            "group/applying.py",
            "group {self._group}: what borrows its body in entry {index} is passed over: {fault}",
            {"self._group": "1", "index": "7", "fault": "something follows it"},
        ),
    ],
)
def test_octets_that_are_not_understood_are_a_failure(file: str, told: str, values: dict[str, str]) -> None:
    """`told` is how the source has it, so that none changes there alone."""
    assert f'f"{told}"' in (ROOT / "cluster" / file).read_text(encoding="utf-8")
    for name, value in values.items():
        told = told.replace(f"{{{name}}}", value)
    with logged_failures() as failures:
        hear("group 1 is led by node 2 in term 3")
        hear("node 2 sent what can't be used: APP_RESP came from 2, which is not a member")
        hear(told)
    assert list(failures.texts) == [told]
