"""Containers that find each other by name, whatever the order in which they start: they form one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.nodes import START_WITHIN_S, wait_for

if TYPE_CHECKING:
    from tests.failover.containers import ContainerNodes

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize("turns", [[(1, 2, 3)], [(3,), (2,), (1,)], [(2, 3), (1,)]], ids=str)
def test_nodes_that_start_at_once_or_late_form_one_cluster(
    turns: Sequence[Sequence[int]], image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of those that come later are not known at first. A founder alone waits; two begin, the third is one of
    them when it comes."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from tests.failover.containers import ContainerNetwork, ContainerNodes

    network = ContainerNetwork()
    try:
        nodes = ContainerNodes(tmp_path, network, {})
        try:
            started: list[int] = []
            for turn in turns:
                nodes.start(*turn)
                started += turn
                if len(started) > 1:
                    nodes.until_serving()
                    pages = [nodes.page(id, "/cluster/members")[1] for id in started]
                    assert len({page["cluster"] for page in pages}) == 1
                else:
                    wait_for(partial(_waits, nodes, *started), "a founder that waits for others", START_WITHIN_S, 0.1)
            wait_for(lambda: all(_sees_all(nodes, id) for id in nodes.ids), "three members, up", START_WITHIN_S, 0.1)
        finally:
            nodes.close()
            assert nodes.log_faults() == []
    finally:
        network.close()


def _waits(nodes: ContainerNodes, id: int) -> bool:
    try:
        return "1 of 3 founders are there" in nodes.status(id).get("waits", "")
    except OSError:
        return False


def _sees_all(nodes: ContainerNodes, id: int) -> bool:
    try:
        rows = nodes.page(id, "/cluster/members")[1]["members"]
    except OSError:
        return False
    return sorted((row["name"], row["state"], row["up"]) for row in rows) == [
        (f"node{number}", "member", True) for number in nodes.ids
    ]
