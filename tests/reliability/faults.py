"""The faults of a run: what is done to which node, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Final

from tests.integration.nodes import Nodes
from tests.reliability.network import Network

KILL: Final = "kill"
FREEZE: Final = "freeze"
PARTITION: Final = "partition"

KINDS: Final[dict[str, tuple[str, str]]] = {
    "kill": (KILL, "one node: SIGKILL, started again after 0.2-3 s"),
    "kill two": (KILL, "two nodes at once: SIGKILL, started again after 0.2-1 s"),
    "kill all": (KILL, "all nodes at once: SIGKILL, started again after 0.2-1 s"),
    "freeze": (FREEZE, "one node: SIGSTOP for 1-4 s, then SIGCONT"),
    "isolate": (PARTITION, "one node and the others do not hear each other, 1.5-6 s"),
    "deaf": (PARTITION, "one node does not hear the others, 1.5-6 s"),
    "mute": (PARTITION, "the others do not hear one node, 1.5-6 s"),
    "link": (PARTITION, "two nodes do not hear each other, the third hears and is heard by both, 1.5-6 s"),
}
"""Kind -> its group, and what it is."""

_SHARE: Final = {"kill": 3, "freeze": 2, "isolate": 2}
"""How often a kind stands in the deck, if not once."""


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


def kinds_of(words: Sequence[str]) -> list[str]:
    """The kinds that these words stand for: kinds themselves, or groups. Raises ValueError for another word."""
    chosen: list[str] = []
    for word in words:
        found = [kind for kind, (group, _) in KINDS.items() if word in (kind, kind.replace(" ", "-"), group)]
        if not found:
            raise ValueError(f"no fault is called {word!r}; there are {', '.join([*KINDS, PARTITION])}")
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
    if kind == "kill all":
        return tuple(ids)
    first = busiest if busiest in ids and random.random() < 0.5 else random.choice(list(ids))
    if kind in ("kill two", "link"):
        return first, random.choice([id for id in ids if id != first])
    return (first,)


def carry_out(
    fault: Fault, nodes: Nodes, network: Network | None, random: Random, now_us: Callable[[], int]
) -> None:
    """Do it, and undo it after a while."""
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
    else:
        assert network is not None
        pause_s = random.uniform(1.5, 6.0)
        fault.at_us = now_us()
        for sender, receiver in cuts(fault, nodes.ids):
            network.cut(sender, receiver)
        time.sleep(pause_s)
        network.heal()
        fault.healed_us = now_us()


def cuts(fault: Fault, ids: Sequence[int]) -> list[tuple[int, int]]:
    """The directions (sender, receiver) that a partition cuts."""
    first = fault.victims[0]
    pairs = permutations(ids, 2)
    if fault.kind == "link":
        return [pair for pair in pairs if set(pair) == set(fault.victims)]
    if fault.kind == "deaf":
        return [pair for pair in pairs if pair[1] == first]
    if fault.kind == "mute":
        return [pair for pair in pairs if pair[0] == first]
    return [pair for pair in pairs if first in pair]
