"""A cluster that goes from one release to another, node by node, and what becomes of nodes that go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mayfly.node.local_nodes.exit_codes import REFUSED
from tests.failover.containers import ContainerNodes
from tests.failover.releases import Upgrade
from tests.integration.nodes import wait_for
from tests.reliability.chaos import WHOLE_WITHIN_S, is_whole
from tests.reliability.faults import Fault

ROLLING_UPGRADE: Final = "rolling upgrade"
HELD_UPGRADE: Final = "rolling upgrade with the level held, and back"
UPGRADES: Final = (HELD_UPGRADE, ROLLING_UPGRADE)
"""In this order: the second one closes the way back."""
REFUSALS: Final = ("written by a newer MayflyMQ", "it needs a newer MayflyMQ")
"""What a release says of data that is beyond it: one of these."""


def upgrades_of(way: Upgrade) -> list[str]:
    """What is to be played, in this order."""
    return list(UPGRADES if way.can_be_held else UPGRADES[1:])


def upgrade_and_go_back(fault: Fault, nodes: ContainerNodes, way: Upgrade, now_us: Callable[[], int]) -> None:
    """Each node in turn to the new image, whose setting keeps the level where it is; then each in turn to the old one,
    which has to take the data."""
    level = way.old.levels.highest
    fault.at_us = now_us()
    wait_for(lambda: _levels(nodes) == {level}, f"level {level}", WHOLE_WITHIN_S)
    for image, limit in ((way.new.image, level), (way.old.image, 0)):
        for id in nodes.ids:
            _stopped(nodes, id)
            _started(nodes, id, image, limit)
            assert _levels(nodes) == {level}, f"the level was raised above feature_level_limit = {level}"
    fault.healed_us = now_us()


def upgrade(fault: Fault, nodes: ContainerNodes, way: Upgrade, now_us: Callable[[], int]) -> None:
    """Each node in turn: `docker stop`, a container of the new image, until all is whole. The level follows the last of
    them and not before. Then one node goes back: it has to serve with the old image, or that has to refuse the data."""
    before, after = way.old.levels.highest, way.new.levels.highest
    fault.at_us = now_us()
    wait_for(lambda: _levels(nodes) == {before}, f"level {before}", WHOLE_WITHIN_S)
    for id in nodes.ids:
        _stopped(nodes, id)
        assert _levels(nodes, but=id) == {before}, f"the level was raised before node {id} was new"
        _started(nodes, id, way.new.image)
    wait_for(lambda: _levels(nodes) == {after}, f"level {after}", WHOLE_WITHIN_S)
    _stopped(nodes, nodes.ids[0])
    if way.can_go_back:
        _started(nodes, nodes.ids[0], way.old.image)
        _stopped(nodes, nodes.ids[0])
    else:
        _is_refused(nodes, nodes.ids[0], way.old.image)
    nodes.change_image(nodes.ids[0], way.new.image)
    nodes.start(nodes.ids[0])
    fault.healed_us = now_us()


def _stopped(nodes: ContainerNodes, id: int) -> None:
    code = nodes.stop_politely(id)
    assert code == 0, f"node {id}, told to stop, ended with {code}"


def _started(nodes: ContainerNodes, id: int, image: str, level_limit: int = 0) -> None:
    nodes.change_image(id, image, level_limit)
    nodes.start(id)
    wait_for(lambda: is_whole(nodes), f"a whole cluster after node {id}", WHOLE_WITHIN_S, every_s=0.05)


def _is_refused(nodes: ContainerNodes, id: int, image: str) -> None:
    nodes.change_image(id, image)
    nodes.expected_errors += REFUSALS
    code, said = nodes.refused_start(id)
    assert code == REFUSED, f"{image} on data that is beyond it ended with {code}: {said[-2000:]}"
    assert any(text in said for text in REFUSALS), said[-2000:]


def _levels(nodes: ContainerNodes, but: int = 0) -> set[int]:
    return {nodes.level(id) for id in nodes.ids if id != but}
