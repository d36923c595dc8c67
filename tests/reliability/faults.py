"""The faults of a run: what is done to which node, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from random import Random
from signal import SIGBUS, SIGKILL
from typing import Final

from tests.integration.nodes import BUS_ERROR, Nodes, wait_for
from tests.reliability import clocks, disks, failing_disks, memory_groups, network
from tests.reliability.clocks import Clocks
from tests.reliability.damage import DAMAGES, Damages, damage
from tests.reliability.disks import Disks
from tests.reliability.failing_disks import FailingDisks
from tests.reliability.memory_groups import MemoryGroups
from tests.reliability.network import Network

KILL: Final = "kill"
FREEZE: Final = "freeze"
PARTITION: Final = "partition"
JEPSEN: Final = "jepsen"
"""Partitions by the names that the Jepsen runs for RabbitMQ's quorum queues have for them; meant for five nodes."""
POWER: Final = "power"
DAMAGE: Final = "damage"
DISK: Final = "disk"
MEMORY: Final = "memory"
CLOCK: Final = "clock"
"""Wall clocks that are set, and clocks that go too fast or too slow."""
WEATHER: Final = "weather"
"""Links that lose, delay, repeat and reorder single packets."""

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
    "slow disk": (DISK, "one node: every sync takes 1-3 s longer, for 4-12 s, until it leads nothing"),
    "slow disks": (DISK, "all nodes: every sync takes 1-3 s longer, for 4-12 s, until all groups are led"),
    "failing writes": (DISK, "one node: writes fail (EIO) until it has ended, and at its next start"),
    "failing syncs": (DISK, "one node: syncs fail (EIO) until it has ended, and at its next start"),
    "failing reads": (DISK, "one node: its log can't be read (SIGBUS) until it has ended, nor at its next start (EIO)"),
    "out of memory": (MEMORY, "one node: killed by the kernel at its control group's limit, started after 0.2-3 s"),
    "loss": (WEATHER, "each packet between one node and the others is lost with 5-20 %, for 3-8 s"),
    "delay": (WEATHER, "each packet between one node and the others is 50-250 ms late, for 3-8 s"),
    "disorder": (WEATHER, "those packets are 5-100 ms late, each by its own time, 10 % twice, 1 % lost, for 3-8 s"),
    "clock step": (CLOCK, "one node: its wall clock is set by an hour, or right; in half of the cases it starts anew"),
    "clock drift": (CLOCK, "one node: all its clocks go 2 % faster or slower than the others', for 4-12 s"),
    **{kind: (DAMAGE, what) for kind, what in DAMAGES.items()},
}
"""Kind -> its group, and what it is."""

USUAL: Final = [kind for kind, (group, _) in KINDS.items() if group in (KILL, FREEZE, PARTITION)]
"""What a run has if nothing else is asked for."""

DRIFT_PPM: Final = 20_000
STEPS_S: Final = (-3_600, 0, 3_600)

_SHARE: Final = {"kill": 3, "freeze": 2, "isolate": 2}
"""How often a kind stands in the deck, if not once."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What nodes have around them that can fail, if a run needs it."""

    network: Network | None = None
    disks: Disks | None = None
    damages: Damages | None = None
    failing_disks: FailingDisks | None = None
    memory: MemoryGroups | None = None
    clocks: Clocks | None = None


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
    sought_us: int = 0
    """When, before all that, the nodes were asked who leads what."""

    def __str__(self) -> str:
        nodes = ", ".join(map(str, self.victims))
        seconds = (self.healed_us - self.at_us) / 1e6
        led = ", ".join(self.led) or "nothing"
        return f"{self.at_us / 1e6:8.3f}s {self.kind} {nodes} for {seconds:.1f} s, led {led}"


def words_for_faults() -> list[str]:
    """What a run can be asked for: kinds, and groups of them."""
    return list(dict.fromkeys([*KINDS, *(group for group, _ in KINDS.values())]))


def kinds_of(names: Sequence[str]) -> list[str]:
    """The kinds that these words stand for: kinds themselves, or groups. Raises ValueError for another word."""
    chosen: list[str] = []
    for word in names:
        found = [kind for kind, (group, _) in KINDS.items() if word in (kind, kind.replace(" ", "-"), group)]
        if not found:
            raise ValueError(f"no fault is called {word!r}; there are {', '.join(words_for_faults())}")
        chosen += [kind for kind in found if kind not in chosen]
    return chosen


def why_not(kinds: Sequence[str]) -> str:
    """What this machine lacks for these kinds, but for partitions, which a run can do without; empty: nothing."""
    groups = {KINDS[kind][0] for kind in kinds}
    reasons: dict[str, tuple[str, Callable[[], str]]] = {
        POWER: ("disks that forget", disks.why_impossible),
        DISK: ("disks that fail", failing_disks.why_impossible),
        MEMORY: ("limits of memory", memory_groups.why_impossible),
        CLOCK: ("clocks of one's own", clocks.why_impossible),
        WEATHER: ("disturbed networks", partial(network.why_impossible, soft=True)),
    }
    for group, (what, why_impossible) in reasons.items():
        reason = why_impossible() if group in groups else ""
        if reason:
            return f"no {what} on this machine: {reason}"
    return ""


def deck(kinds: Sequence[str], random: Random) -> Iterator[str]:
    """Kinds for ever, in random order, each as often as its share within one pass."""
    while True:
        cards = [kind for kind in kinds for _ in range(_SHARE.get(kind, 1))]
        random.shuffle(cards)
        yield from cards


def choose_victims(kind: str, ids: Sequence[int], busiest: int, random: Random) -> tuple[int, ...]:
    """Nodes at random; half of the time `busiest`, the one that leads most of what is in use, is among them, and
    always where a disk or memory is bad."""
    if kind in ("kill all", "cut all", "slow disks"):
        return tuple(ids)
    if kind == "partition-majorities-ring":
        return tuple(random.sample(list(ids), len(ids)))
    if kind == "partition-halves":
        return tuple(ids[: len(ids) // 2])
    if kind == "random-partition-halves":
        return tuple(random.sample(list(ids), len(ids) // 2))
    always = KINDS[kind][0] in (DISK, MEMORY)
    first = busiest if busiest in ids and (always or random.random() < 0.5) else random.choice(list(ids))
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
    elif group == DISK:
        assert around.failing_disks is not None
        fault.at_us = now_us()
        if fault.kind in _FAILURES:
            have_failing_disk(nodes, around.failing_disks, fault)
        else:
            have_slow_disks(nodes, around.failing_disks, fault, random)
        fault.healed_us = now_us()
        if fault.kind in _FAILURES:
            nodes.start(*fault.victims)
    elif group == MEMORY:
        assert around.memory is not None
        pause_s = random.uniform(0.2, 3.0)
        fault.at_us = now_us()
        run_out_of_memory(nodes, around.memory, fault.victims[0])
        time.sleep(pause_s)
        fault.healed_us = now_us()
        nodes.start(*fault.victims)
    elif group == CLOCK:
        assert around.clocks is not None
        fault.at_us = now_us()
        if fault.kind == "clock step":
            set_wall_clock(nodes, around.clocks, fault.victims[0], random)
        else:
            around.clocks.drift(fault.victims[0], random.choice((-DRIFT_PPM, DRIFT_PPM)))
            time.sleep(random.uniform(4.0, 12.0))
            around.clocks.drift(fault.victims[0], 0)
        fault.healed_us = now_us()
    elif group == WEATHER:
        assert around.network is not None
        fault.at_us = now_us()
        disturb(fault, nodes, around.network, random)
        time.sleep(random.uniform(3.0, 8.0) if partition_s is None else partition_s)
        around.network.heal()
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


def have_slow_disks(nodes: Nodes, disks: FailingDisks, fault: Fault, random: Random) -> None:
    """A node whose syncs are slow gives its leads to others. Where all are slow, somebody leads all the same."""
    others = [id for id in nodes.ids if id not in fault.victims]
    before = _given_up(nodes)
    for victim in fault.victims:
        disks.slow(victim, random.randrange(1_000, 3_000))
    time.sleep(random.uniform(2.0, 6.0))
    for victim in fault.victims if others else ():
        wait_for(partial(nodes.leads_nothing, victim, others[0]), f"node {victim}, whose disk is slow, leads nothing")
    wait_for(lambda: 0 not in nodes.leaders(nodes.ids[0]), "leaders while disks are slow")
    time.sleep(random.uniform(2.0, 6.0))
    for victim in fault.victims:
        disks.heal(victim)
    given_up = _given_up(nodes) - before
    # On a busy machine one may hear too late that others' disks are slow, too.
    assert others or given_up <= len(nodes.groups(nodes.ids[0])), f"leads were given up {given_up} times, to nobody"


def _given_up(nodes: Nodes) -> int:
    """How often a lead was given up because a write was late."""
    return sum(nodes.log_text(id).count("gives the lead up, its disk hangs") for id in nodes.ids)


def have_failing_disk(nodes: Nodes, disks: FailingDisks, fault: Fault) -> None:
    """The node ends and says why; started while its disk still fails it ends again, and says what to look at. Neither
    time with the code that tells a supervisor not to start it again."""
    [victim] = fault.victims
    what, signal, words = _FAILURES[fault.kind]
    seen = len(nodes.log_text(victim))
    disks.fail(victim, what if signal is None else "map")
    code = nodes.ends_by_itself(victim)
    said = nodes.log_text(victim)[seen:]
    assert code == (1 if signal is None else -signal), f"node {victim} ended with {code}: {said[-1_000:]}"
    assert words in said, f"node {victim} does not say why it has ended: {said[-1_000:]}"
    disks.fail(victim, what)
    seen = len(nodes.log_text(victim))
    nodes.start(victim)
    code = nodes.ends_by_itself(victim)
    said = nodes.log_text(victim)[seen:]
    data = nodes.plan(victim).data_dir
    assert code == 1, f"node {victim} ended with {code}: {said[-1_000:]}"
    assert str(data) in said.partition("cannot start")[2], f"what can't be used? {said[-1_000:]}"
    disks.heal(victim)


_FAILURES: Final = {
    "failing writes": ("write", None, "the log can't be written"),
    "failing syncs": ("sync", None, "the log can't be written"),
    "failing reads": ("read", SIGBUS, "Bus error"),
}
"""Kind -> which calls fail, the signal that ends the process if there is one, and what it says."""

PROVOKED: Final = (
    "the log can't be written",
    "cannot start",
    "stopped by itself",
    *BUS_ERROR,
)
"""Lines of errors that faults of disks bring about."""


def run_out_of_memory(nodes: Nodes, groups: MemoryGroups, victim: int) -> None:
    """The kernel kills the node."""
    before = groups.kills(victim)
    with groups.shortage(victim):
        code = nodes.ends_by_itself(victim)
    assert code == -SIGKILL and groups.kills(victim) > before, f"node {victim} was not killed for memory: {code}"


def set_wall_clock(nodes: Nodes, of_nodes: Clocks, victim: int, random: Random) -> None:
    """A node that runs on, and a process that starts again, go on with the time they had."""
    of_nodes.step(victim, random.choice(STEPS_S))
    time.sleep(random.uniform(1.0, 4.0))
    if random.random() < 0.5:
        nodes.kill(victim)
        nodes.start(victim)


def disturb(fault: Fault, nodes: Nodes, network: Network, random: Random) -> None:
    """Make the weather of a fault, in both directions between its victim and all others."""
    for sender, receiver in cuts(fault, nodes.ids):
        if fault.kind == "loss":
            network.disturb(sender, receiver, loss=random.uniform(0.05, 0.2))
        elif fault.kind == "delay":
            network.disturb(sender, receiver, delay_ms=random.uniform(50, 250))
        else:
            network.disturb(sender, receiver, loss=0.01, delay_ms=5, jitter_ms=95, repeats=0.1)


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
