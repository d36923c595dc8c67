"""What is done to containers, and undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from tests.failover.containers import ContainerNodes
from tests.failover.upgrade import UPGRADES
from tests.integration.nodes import wait_for
from tests.reliability import faults
from tests.reliability.chaos import WHOLE_WITHIN_S, is_whole
from tests.reliability.faults import Fault, Surroundings

KINDS: Final[dict[str, str]] = {
    "kill": "`docker kill` (SIGKILL), started again after 0.2-3 s",
    "stop": "`docker stop` (SIGTERM), started again after 1-3 s",
    "pause": "`docker pause` for 1-4 s",
    "disconnect": "`docker network disconnect` for 2-5 s: clients don't reach the node either",
    "isolate": "a node and the others do not hear each other, for 1.5-6 s; clients reach all",
    "deaf": "a node does not hear the others, 1.5-6 s",
    "mute": "the others do not hear a node, 1.5-6 s",
    "link": "two nodes do not hear each other, the third hears both, 1.5-6 s",
    "disk full": "a node's small file system is filled to the last byte for 3-6 s",
    "slow disk": "a node's disk takes 20 writes a second (cgroup), for 5 s",
    "wiped": "SIGKILL, data deleted, started again with the same command: it joins as a new member, its old self goes",
    "rolling restart": "each node in turn: `docker stop`, start, until all is whole",
}
"""Kind -> what it is."""
_OF_PROCESSES: Final = {"kill": "kill", "pause": "freeze"}
_SLOW_WRITES_PER_S: Final = 20
_SLOW_FOR_S: Final = 5.0


def choose_victims(kind: str, nodes: ContainerNodes, busiest: int, random: Random) -> tuple[int, ...]:
    """The node that leads most, where the kind leaves the choice."""
    ids = list(nodes.ids)
    if kind == "disk full":
        return (nodes.with_small_disk,)
    if kind in ("slow disk", "wiped"):
        # The small disk is in memory; and who looks after leases asks the first two nodes.
        return (nodes.with_small_disk,) if kind == "wiped" else (random.choice(ids[:-1]),)
    if kind == "rolling restart" or kind in UPGRADES:
        return tuple(ids)
    others = [id for id in ids if id != busiest]
    return (busiest, random.choice(others)) if kind == "link" else (busiest,)


def carry_out(fault: Fault, nodes: ContainerNodes, random: Random, now_us: Callable[[], int]) -> None:
    """Do it, and undo it after a while. Raises OSError where this machine can't do it."""
    victim = fault.victims[0]
    if fault.kind in (*_OF_PROCESSES, *("isolate", "deaf", "mute", "link")):
        kind = fault.kind
        fault.kind = _OF_PROCESSES.get(kind, kind)
        faults.carry_out(fault, nodes, Surroundings(nodes.network), random, now_us)
        fault.kind = kind
        return
    fault.at_us = now_us()
    if fault.kind == "stop":
        _stopped(nodes, victim)
        time.sleep(random.uniform(1.0, 3.0))
        fault.healed_us = now_us()
        nodes.start(victim)
    elif fault.kind == "disconnect":
        nodes.network.disconnect(victim)
        time.sleep(random.uniform(2.0, 5.0))
        fault.healed_us = now_us()
        nodes.network.connect(victim)
    elif fault.kind == "disk full":
        nodes.fill_disk()
        time.sleep(random.uniform(3.0, 6.0))
        fault.healed_us = now_us()
        nodes.free_disk()
    elif fault.kind == "slow disk":
        with nodes.slow_disk(victim, _SLOW_WRITES_PER_S):
            time.sleep(_SLOW_FOR_S)
            fault.healed_us = now_us()
    elif fault.kind == "wiped":
        _wiped(nodes, victim)
        fault.healed_us = now_us()
    else:
        _rolling(nodes)
        fault.healed_us = now_us()


def _stopped(nodes: ContainerNodes, victim: int) -> None:
    code = nodes.stop_politely(victim)
    assert code == 0, f"node {victim}, told to stop, ended with {code}"


def _wiped(nodes: ContainerNodes, victim: int) -> None:
    witness = next(id for id in nodes.ids if id != victim)
    nodes.kill(victim)
    nodes.wipe(victim)
    nodes.start(victim)
    nodes.until_replaced(victim, witness)


def _rolling(nodes: ContainerNodes) -> None:
    for id in nodes.ids:
        _stopped(nodes, id)
        nodes.start(id)
        wait_for(lambda: is_whole(nodes), f"a whole cluster after node {id}", WHOLE_WITHIN_S, every_s=0.05)
