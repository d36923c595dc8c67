"""The faults of a run: what is done to which node, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Final

from tests.integration.nodes import Nodes, wait_for
from tests.reliability.damage import DAMAGES, Damages, damage
from tests.reliability.disks import Disks
from tests.reliability.network import Network

KILL: Final = "kill"
FREEZE: Final = "freeze"
PARTITION: Final = "partition"
JEPSEN: Final = "jepsen"
"""Partitions by the names that the Jepsen runs for RabbitMQ's quorum queues have for them; meant for five nodes."""
POWER: Final = "power"
DAMAGE: Final = "damage"

KINDS: Final[dict[str, tuple[str, str]]] = {
    "kill": (KILL, "one node: SIGKILL, started again after 0.2-3 s"),
    "kill two": (KILL, "two nodes at once: SIGKILL, started again after 0.2-1 s"),
    "kill all": (KILL, "all nodes at once: SIGKILL, started again after 0.2-1 s"),
    "freeze": (FREEZE, "one node: SIGSTOP for 1-4 s, then SIGCONT"),
    "isolate": (PARTITION, "one node and the others do not hear each other, 1.5-6 s"),
    "deaf": (PARTITION, "one node does not hear the others, 1.5-6 s"),
    "mute": (PARTITION, "the others do not hear one node, 1.5-6 s"),
    "link": (PARTITION, "two nodes do not hear each other, the third hears and is heard by both, 1.5-6 s"),
    "partition-random-node": (JEPSEN, "one node and the others do not hear each other, 5-10 s"),
    "partition-halves": (JEPSEN, "the lower ids and the others do not hear each other, 5-10 s"),
    "random-partition-halves": (JEPSEN, "nodes at random, as many, and the others do not hear each other, 5-10 s"),
    "partition-majorities-ring": (JEPSEN, "each node hears a majority, and no two of them the same one, 5-10 s"),
    "cut": (POWER, "one node loses its power, and has it again after 0.2-3 s"),
    "cut majority": (POWER, "all nodes but one at once; again after 0.2-1 s"),
    "cut all": (POWER, "all nodes at once; again after 0.2-1 s"),
    **{kind: (DAMAGE, what) for kind, what in DAMAGES.items()},
}
"""Kind -> its group, and what it is."""

USUAL: Final = [kind for kind, (group, _) in KINDS.items() if group in (KILL, FREEZE, PARTITION)]
"""What a run has if nothing else is asked for."""

_SHARE: Final = {"kill": 3, "freeze": 2, "isolate": 2}
"""How often a kind stands in the deck, if not once."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What nodes have around them that can fail, if a run needs it."""

    network: Network | None = None
    disks: Disks | None = None
    damages: Damages | None = None


@dataclass(slots=True)
class Fault:
    """One fault. Moments in microseconds of the clients' clock; 0: not yet."""

    kind: str
    victims: tuple[int, ...]
    led: tuple[str, ...] = ()
    """The queues in use that the victims led when it began."""
    at_us: int = 0
    healed_us: int = 0
    """When victims were started or thawed, or could hear again."""
    whole_us: int = 0
    """When all nodes were ready after that, and knew the same leader of every group."""

    def __str__(self) -> str:
        nodes = ", ".join(map(str, self.victims))
        seconds = (self.healed_us - self.at_us) / 1e6
        led = ", ".join(self.led) or "nothing"
        return f"{self.at_us / 1e6:8.3f}s {self.kind} {nodes} for {seconds:.1f} s, led {led}"


def kinds_of(names: Sequence[str]) -> list[str]:
    """The kinds that these words stand for: kinds themselves, or groups. Raises ValueError for another word."""
    chosen: list[str] = []
    for word in names:
        found = [kind for kind, (group, _) in KINDS.items() if word in (kind, kind.replace(" ", "-"), group)]
        if not found:
            words = ", ".join([*KINDS, PARTITION, JEPSEN, POWER, DAMAGE])
            raise ValueError(f"no fault is called {word!r}; there are {words}")
        chosen += [kind for kind in found if kind not in chosen]
    return chosen


def deck(kinds: Sequence[str], random: Random) -> Iterator[str]:
    """Kinds for ever, in random order, each as often as its share within one pass."""
    while True:
        cards = [kind for kind in kinds for _ in range(_SHARE.get(kind, 1))]
        random.shuffle(cards)
        yield from cards


def choose_victims(kind: str, ids: Sequence[int], busiest: int, random: Random) -> tuple[int, ...]:
    """Nodes at random; half of the time `busiest`, the one that leads most of what is in use, is among them."""
    if kind in ("kill all", "cut all"):
        return tuple(ids)
    if kind == "partition-majorities-ring":
        return tuple(random.sample(list(ids), len(ids)))
    if kind == "partition-halves":
        return tuple(ids[: len(ids) // 2])
    if kind == "random-partition-halves":
        return tuple(random.sample(list(ids), len(ids) // 2))
    first = busiest if busiest in ids and random.random() < 0.5 else random.choice(list(ids))
    if kind in ("kill two", "link"):
        return first, random.choice([id for id in ids if id != first])
    if kind == "cut majority":
        return first, *random.sample([id for id in ids if id != first], len(ids) - 2)
    return (first,)


def carry_out(
    fault: Fault,
    nodes: Nodes,
    around: Surroundings,
    random: Random,
    now_us: Callable[[], int],
    partition_s: float | None = None,
) -> None:
    """Do it, and undo it after a while, a partition after `partition_s`."""
    group = KINDS[fault.kind][0]
    if group == KILL:
        pause_s = random.uniform(0.2, 3.0 if fault.kind == "kill" else 1.0)
        fault.at_us = now_us()
        nodes.kill(*fault.victims)
        time.sleep(pause_s)
        fault.healed_us = now_us()
        nodes.start(*fault.victims)
    elif group == FREEZE:
        pause_s = random.uniform(1.0, 4.0)
        fault.at_us = now_us()
        for victim in fault.victims:
            nodes.freeze(victim)
        time.sleep(pause_s)
        fault.healed_us = now_us()
        for victim in fault.victims:
            nodes.thaw(victim)
    elif group == POWER:
        assert around.disks is not None
        pause_s = random.uniform(0.2, 3.0 if fault.kind == "cut" else 1.0)
        fault.at_us = now_us()
        cut_power(nodes, around.disks, fault.victims)
        time.sleep(pause_s)
        fault.healed_us = now_us()
        nodes.start(*fault.victims)
    elif group == DAMAGE:
        assert around.damages is not None
        fault.at_us = now_us()
        damage(nodes, around.damages, fault.kind, fault.victims[0], random)
        fault.healed_us = now_us()
    else:
        network = around.network
        assert network is not None
        drawn_s = random.uniform(5.0, 10.0) if group == JEPSEN else random.uniform(1.5, 6.0)
        pause_s = drawn_s if partition_s is None else partition_s
        fault.at_us = now_us()
        for sender, receiver in cuts(fault, nodes.ids):
            network.cut(sender, receiver)
        time.sleep(pause_s)
        network.heal()
        fault.healed_us = now_us()


def cut_power(nodes: Nodes, disks: Disks, victims: Sequence[int]) -> None:
    """The nodes end at once, and what they had not synced is gone. They stand still when their disks go, so that none
    of them sees a disk that fails."""
    for victim in victims:
        nodes.freeze(victim)
    wait_for(lambda: all(nodes.stands_still(victim) for victim in victims), "processes that stand still", every_s=0.001)
    for victim in victims:
        disks.cut(victim)
    nodes.kill(*victims)
    for victim in victims:
        disks.come_back(victim)


def cuts(fault: Fault, ids: Sequence[int]) -> list[tuple[int, int]]:
    """The directions (sender, receiver) that a partition cuts."""
    first = fault.victims[0]
    pairs = permutations(ids, 2)
    if fault.kind == "link":
        return [pair for pair in pairs if set(pair) == set(fault.victims)]
    if fault.kind in ("partition-halves", "random-partition-halves"):
        return [pair for pair in pairs if (pair[0] in fault.victims) != (pair[1] in fault.victims)]
    if fault.kind == "partition-majorities-ring":
        return [pair for pair in pairs if pair[0] not in _window(fault.victims, pair[1])]
    if fault.kind == "deaf":
        return [pair for pair in pairs if pair[1] == first]
    if fault.kind == "mute":
        return [pair for pair in pairs if pair[0] == first]
    return [pair for pair in pairs if first in pair]


def _window(ring: Sequence[int], id: int) -> list[int]:
    """The majority of the ring that has the node in its middle."""
    size = len(ring) // 2 + 1
    first = ring.index(id) - size // 2
    return [ring[(first + step) % len(ring)] for step in range(size)]
