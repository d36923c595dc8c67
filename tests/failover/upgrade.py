"""A cluster that goes from one release to another, node by node, and cannot go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cluster.versions import VersionRange
from node.command_line.exit_codes import REFUSED
from tests.failover.containers import ContainerNodes
from tests.integration.nodes import wait_for
from tests.reliability.chaos import WHOLE_WITHIN_S, is_whole
from tests.reliability.faults import Fault

ROLLING_UPGRADE: Final = "rolling upgrade"
REFUSALS: Final = ("written by a newer MayflyMQ", "it needs a newer MayflyMQ")
"""What a release says of data that is beyond it: one of these."""


@dataclass(frozen=True)
class Upgrade:
    """From which image to which, and the feature levels that these know."""

    old: str
    new: str
    old_levels: VersionRange
    new_levels: VersionRange


def upgrade(fault: Fault, nodes: ContainerNodes, ways: Upgrade, now_us: Callable[[], int]) -> None:
    """Each node in turn: `docker stop`, a container of the new image, until all is whole. The level follows the last of
    them and not before; then the old image is refused."""
    fault.at_us = now_us()
    wait_for(lambda: _levels(nodes) == {ways.old_levels.highest}, f"level {ways.old_levels.highest}", WHOLE_WITHIN_S)
    for id in nodes.ids:
        code = nodes.stop_politely(id)
        assert code == 0, f"node {id}, told to stop, ended with {code}"
        assert _levels(nodes, but=id) == {ways.old_levels.highest}, f"the level was raised before node {id} was new"
        nodes.change_image(id, ways.new)
        nodes.start(id)
        wait_for(lambda: is_whole(nodes), f"a whole cluster after node {id}", WHOLE_WITHIN_S, every_s=0.05)
    wait_for(lambda: _levels(nodes) == {ways.new_levels.highest}, f"level {ways.new_levels.highest}", WHOLE_WITHIN_S)
    fault.healed_us = now_us()
    _cannot_go_back(nodes, nodes.ids[0], ways)


def _cannot_go_back(nodes: ContainerNodes, id: int, ways: Upgrade) -> None:
    code = nodes.stop_politely(id)
    assert code == 0, f"node {id}, told to stop, ended with {code}"
    nodes.change_image(id, ways.old)
    nodes.expected_errors += REFUSALS
    code, said = nodes.refused_start(id)
    assert code == REFUSED, f"the old image on data of the new one ended with {code}: {said[-2000:]}"
    assert any(text in said for text in REFUSALS), said[-2000:]
    nodes.change_image(id, ways.new)
    nodes.start(id)


def _levels(nodes: ContainerNodes, but: int = 0) -> set[int]:
    return {nodes.level(id) for id in nodes.ids if id != but}
