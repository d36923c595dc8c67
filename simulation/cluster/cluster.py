"""Machines on one network, and the hand that breaks them according to a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Generic, TypeVar

from simulation.cluster import faults
from simulation.cluster.events import MILLISECOND_US, EventQueue
from simulation.cluster.faults import Fault
from simulation.cluster.machine import REFUSED_TO_START, Machine
from simulation.cluster.memory_store import ROT_ENTRY, ROT_HARD_STATE, ROT_SNAPSHOT
from simulation.cluster.network import LinkProfile, StreamNetwork
from simulation.cluster.trace import Trace

Frame = TypeVar("Frame")
Write = TypeVar("Write")


DRAIN_LOOK_US = 50 * MILLISECOND_US

RESTART_US = 200 * MILLISECOND_US
"""How long a supervisor waits before it starts a process again that has ended by itself."""


_ROTS = {faults.ROT_ENTRY: ROT_ENTRY, faults.ROT_SNAPSHOT: ROT_SNAPSHOT, faults.ROT_STATE: ROT_HARD_STATE}


class SimulatedCluster(Generic[Frame, Write]):
    """The machines of a run. Faults of overlapping times are counted, so that the end of one does not end
    another.

    Of disks: a process whose sync failed, or that met a rotten record, ends and is started again a moment later, like
    by a supervisor. One that can't start on its disk at all is told to `lost`, and stays down. What takes data away for
    good (rot, wiping) is asked of `may_lose` first, which says no by default.
    """

    def __init__(
        self, queue: EventQueue, random: Random, link_profile: LinkProfile, trace: Trace
    ) -> None:
        self.queue = queue
        self.trace = trace
        self.random = random
        self.machines: dict[int, Machine[Frame, Write]] = {}
        self.network: StreamNetwork[Frame] = StreamNetwork(
            queue, random, link_profile, self._deliver, self._peer_up, self._peer_down, self._peer_gone
        )
        self.transfer_leadership: Callable[[int, int], None] = lambda node, number: None
        """How a leadership transfer is asked for: (node that shall lead, number that picks the group)."""
        self.begin_drain: Callable[[int], None] = lambda node: None
        """How a running node is told to drain."""
        self.is_drained: Callable[[int], bool] = lambda node: True
        """Whether it has."""
        self._draining: dict[int, None] = {}
        self.frame_text: Callable[[Frame], str] = lambda frame: ""
        """How a frame is written into the trace."""
        self.may_lose: Callable[[int, str], bool] = lambda node, kind: False
        """Whether a node may lose some or all of its data now (kind as in `faults.DISK_KINDS`): a majority must keep
        what it has. Rot in an entry or a snapshot makes it rebuild itself; `ROT_STATE` and `WIPE` end it."""
        self.lost: Callable[[int, str], None] = lambda node, why: None
        """A node can't start on the disk it has, or was wiped: somebody has to replace it."""
        self.effects: dict[str, int] = {}
        """How often a fault of each kind did something, and how often a process ended by itself."""
        self._link_profile = link_profile
        self._calm = False
        self._down: dict[int, int] = {}
        self._frozen: dict[int, int] = {}
        self._blocked: dict[tuple[int, int], int] = {}
        self._slow_links = 0

    def add(self, machine: Machine[Frame, Write]) -> None:
        """Take a machine in; it was made with this cluster's network."""
        self.machines[machine.id] = machine
        machine.ended = self._ended

    def start_all(self) -> None:
        """Start every process that is not running and not meant to be down."""
        for machine in self.machines.values():
            self._start(machine)

    def schedule(self, plan: Sequence[Fault]) -> None:
        """Put the faults of a plan on the queue, each with its end."""
        for fault in plan:
            self.queue.at(fault.at_us, self._begin(fault))

    def calm_down(self, absent: Sequence[int] = ()) -> None:
        """Nothing goes wrong from here on: heal links and disks, thaw and start every machine.

        Those that are `absent` are down until `all_present`.
        """
        self.trace.add("calm")
        self._calm = True
        self._blocked.clear()
        self._link_profile = replace(self._link_profile, frame_loss=0.0, spike_probability=0.0)
        self.network.profile = self._link_profile
        self.network.heal()
        for machine in self.machines.values():
            machine.disk_profile.stuck = machine.disk_profile.full = machine.disk_profile.failing = False
            machine.disk_profile.slow_factor = 1
            machine.thaw()
        self._down.clear()
        self._frozen.clear()
        for node in self._draining:
            self.crash(node, stays_up=True)
        self._draining.clear()
        for node in absent:
            self._down[node] = 1
            self.crash(node)
        self.start_all()

    def all_present(self) -> None:
        """The absent come back."""
        self._down.clear()
        self.start_all()

    def start(self, node: int) -> None:
        """Start the process of a machine that was added while the others run."""
        self._start(self.machines[node])

    def take_away(self, node: int) -> None:
        """Kill the process of a node; it stays down until calm."""
        self._down[node] = self._down.get(node, 0) + 1
        self.crash(node)

    def crash(self, node: int, stays_up: bool = False) -> None:
        """Kill the process of a node now; it stays down until `start_all` or the end of its fault."""
        machine = self.machines[node]
        if machine.running:
            self.trace.add("crash", node)
            machine.crash(stays_up)

    def _deliver(self, target: int, source: int, frame: Frame) -> None:
        self.trace.add("frame", source, target, self.frame_text(frame))
        self.machines[target].received(source, frame)

    def _peer_up(self, end: int, other: int) -> None:
        self.trace.add("up", end, other)
        self.machines[end].peer_up(other)

    def _peer_down(self, end: int, other: int) -> None:
        self.trace.add("down", end, other)
        self.machines[end].peer_down(other)

    def _peer_gone(self, end: int, other: int) -> None:
        self.trace.add("gone", end, other)
        self.machines[end].peer_gone(other)

    def _start(self, machine: Machine[Frame, Write]) -> None:
        if not machine.running and not self._down.get(machine.id):
            self.trace.add("start", machine.id)
            machine.start()

    def _begin(self, fault: Fault) -> Callable[[], None]:
        """The action that starts a fault and puts its end on the queue."""
        starts, ends = self._actions()[fault.kind]

        def begin() -> None:
            if self._calm:
                return
            self.trace.add("fault", fault)
            starts(fault)
            if fault.duration_us:
                self.queue.after(fault.duration_us, end)

        def end() -> None:
            if not self._calm:
                self.trace.add("fault over", fault)
                ends(fault)

        return begin

    def _actions(self) -> dict[str, tuple[faults.FaultAction, faults.FaultAction]]:
        def nothing(fault: Fault) -> None:
            return

        return {
            faults.CRASH: (self._take_down, self._bring_up),
            faults.KILL: (self._kill, self._bring_up),
            faults.DRAIN: (self._drain, nothing),
            faults.FREEZE: (self._freeze, self._thaw),
            faults.PARTITION: (self._separate, self._rejoin),
            faults.ONE_WAY: (self._separate, self._rejoin),
            faults.RESET: (self._reset, nothing),
            faults.CLOCK_STEP: (self._step_clock, nothing),
            faults.SLOW_DISK: (self._slow_disk, self._fast_disk),
            faults.STUCK_DISK: (self._disk_flag("stuck", True), self._disk_flag("stuck", False)),
            faults.FULL_DISK: (self._disk_flag("full", True), self._disk_flag("full", False)),
            faults.TRANSFER: (self._transfer, nothing),
            faults.SLOW_LINKS: (self._slow_down_links, self._speed_up_links),
            faults.FAILING_SYNC: (self._disk_flag("failing", True), nothing),
            faults.ROT_ENTRY: (self._rot, nothing),
            faults.ROT_SNAPSHOT: (self._rot, nothing),
            faults.ROT_STATE: (self._rot, nothing),
            faults.WIPE: (self._wipe, nothing),
        }

    def count(self, effect: str) -> None:
        """Something that went wrong had an effect."""
        self.effects[effect] = self.effects.get(effect, 0) + 1

    def _ended(self, machine: Machine[Frame, Write], how: str, why: str) -> None:
        self.trace.add(how, machine.id, why)
        self.count(how)
        if how != REFUSED_TO_START:
            self.queue.after(RESTART_US, lambda: self._start(machine))
        else:
            self._down[machine.id] = self._down.get(machine.id, 0) + 1
            self.lost(machine.id, why)

    def _rot(self, fault: Fault) -> None:
        """Bits of a stored record flip. A damaged hard state is overwritten by the next write of a running process, so
        it happens to one that is not running."""
        for node in fault.nodes:
            if not self.may_lose(node, fault.kind):
                continue
            if fault.kind == faults.ROT_STATE:
                self.crash(node)
            hit = self.machines[node].disk.decay(_ROTS[fault.kind], self.random.randrange)
            self.trace.add("rot", node, hit)
            if hit:
                self.count(fault.kind)
            if fault.kind == faults.ROT_STATE:
                self._start(self.machines[node])

    def _wipe(self, fault: Fault) -> None:
        """A node loses its disk and comes back with an empty one, under its old id."""
        for node in fault.nodes:
            if self.may_lose(node, fault.kind):
                self.crash(node)
                self.machines[node].disk.wipe()
                self.trace.add("wipe", node)
                self.count(fault.kind)
                self.lost(node, "wiped")
                self._start(self.machines[node])

    def _take_down(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._down[node] = self._down.get(node, 0) + 1
            self.crash(node)

    def _kill(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._down[node] = self._down.get(node, 0) + 1
            self.crash(node, stays_up=True)

    def _drain(self, fault: Fault) -> None:
        for node in fault.nodes:
            machine = self.machines[node]
            if node in self._draining or not machine.serving or machine.frozen:
                continue
            self._draining[node] = None
            self.trace.add("drain", node)
            machine.call(partial(self.begin_drain, node))
            self._when_drained(node, machine.life, fault.duration_us)

    def _when_drained(self, node: int, life: int, away_us: int) -> None:
        """Its process ends when it has drained, unless it died before; it starts again after a while."""
        machine = self.machines[node]
        if node not in self._draining:
            return
        if machine.life != life or not machine.running:
            del self._draining[node]
        elif machine.frozen or not self.is_drained(node):
            self.queue.after(DRAIN_LOOK_US, partial(self._when_drained, node, life, away_us))
        else:
            del self._draining[node]
            self.count(faults.DRAIN)
            gone = Fault(self.queue.now_us, faults.KILL, (node,), away_us)
            self._kill(gone)
            self.queue.after(away_us, partial(self._return, gone))

    def _return(self, gone: Fault) -> None:
        if not self._calm:
            self._bring_up(gone)

    def _bring_up(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._down[node] -= 1
            self._start(self.machines[node])

    def _freeze(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._frozen[node] = self._frozen.get(node, 0) + 1
            self.machines[node].freeze()

    def _thaw(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._frozen[node] -= 1
            if self._frozen[node] == 0:
                self.machines[node].thaw()

    def _ways(self, fault: Fault) -> list[tuple[int, int]]:
        """The directions a partition blocks: all across, or only those into or out of its side."""
        inside = fault.nodes
        outside = [node for node in self.machines if node not in inside]
        outward = [(a, b) for a in inside for b in outside]
        inward = [(b, a) for a in inside for b in outside]
        if fault.kind == faults.PARTITION:
            return outward + inward
        return outward if fault.amount else inward

    def _separate(self, fault: Fault) -> None:
        for source, target in self._ways(fault):
            self._blocked[(source, target)] = self._blocked.get((source, target), 0) + 1
            self.network.block(source, target)
            if fault.kind == faults.PARTITION and fault.amount:
                self.network.reset(source, target)

    def _rejoin(self, fault: Fault) -> None:
        for way in self._ways(fault):
            if not self._blocked.get(way):
                continue  # one of its ends was not there yet when the fault began
            self._blocked[way] -= 1
            if self._blocked[way] == 0:
                self.network.unblock(*way)

    def _reset(self, fault: Fault) -> None:
        if len(fault.nodes) == 2:
            self.network.reset(*fault.nodes)

    def _step_clock(self, fault: Fault) -> None:
        for node in fault.nodes:
            self.machines[node].clock.step(fault.amount)

    def _slow_disk(self, fault: Fault) -> None:
        for node in fault.nodes:
            self.machines[node].disk_profile.slow_factor = fault.amount

    def _fast_disk(self, fault: Fault) -> None:
        for node in fault.nodes:
            self.machines[node].disk_profile.slow_factor = 1

    def _disk_flag(self, name: str, value: bool) -> faults.FaultAction:
        def action(fault: Fault) -> None:
            for node in fault.nodes:
                setattr(self.machines[node].disk_profile, name, value)

        return action

    def _transfer(self, fault: Fault) -> None:
        for node in fault.nodes:
            self.transfer_leadership(node, fault.amount)

    def _slow_down_links(self, fault: Fault) -> None:
        self._slow_links += 1
        profile = self._link_profile
        self.network.profile = replace(
            profile, base_us=profile.base_us * fault.amount, jitter_us=profile.jitter_us * fault.amount
        )

    def _speed_up_links(self, fault: Fault) -> None:
        self._slow_links -= 1
        if self._slow_links == 0:
            self.network.profile = self._link_profile
