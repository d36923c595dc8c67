"""A cluster that forms: its places, the processes that start and stop there, and somebody who has something done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.catalog import AddVhost, Refusal
from mayfly.node.membership.forming import FOUND, AbandonedPlaces, Forming
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EventQueue
from simulation.cluster.machine import Machine
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.network import LinkProfile
from simulation.cluster.randomness import continued, stream
from simulation.cluster.trace import Trace
from simulation.node.forming.asking import FOREIGN, NOBODY, Asking
from simulation.node.forming.cuts import Cuts
from simulation.node.forming.faults import Faults
from simulation.node.forming.judge import complaint_about
from simulation.node.forming.links import Links
from simulation.node.forming.outage import Outage
from simulation.node.forming.place import FormingError, StartPlace
from simulation.node.forming.scenario import CALM_US, PROFILE, FormingScenario
from simulation.node.history import History
from simulation.node.nodes import Acquaintance, SimulatedNode
from simulation.node.probe import Probe
from simulation.simulator import ScenarioRun, Sink, Violation

QUIET_US = 60 * SECOND_US
LOOK_US = 100 * MILLISECOND_US
HANDED_OVER_US = 15 * MILLISECOND_US
"""From the end of a place's questions until its node listens."""


class FormingNode(SimulatedNode):
    """A node that minds what the data of others is called, as `node.shell.membership` does."""

    world: FormingRun

    def _lets_in(self, peer_id: int) -> bool:
        if not super()._lets_in(peer_id):
            return False
        record = self.engine.catalog.members.get(peer_id)
        if record is None or not record.store:
            return True
        return record.store == self.world.store_of(peer_id)

    def _meet(self, peer_id: int, now_ms: int) -> None:
        super()._meet(peer_id, now_ms)
        record = self.engine.catalog.members.get(peer_id)
        if record is not None and record.state != "removed" and not self._lets_in(peer_id):
            self.world.refused(peer_id)


class FormingRun(ScenarioRun[FormingScenario]):
    """One run."""

    def __init__(self, scenario: FormingScenario, sink: Sink = None) -> None:
        self.scenario = scenario
        seed = self.seed = scenario.seed
        self.random: Random = continued(scenario.rest)
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        links = LinkProfile(base_us=500, jitter_us=2_000, spike_probability=0.01)
        self.cluster: SimulatedCluster[Frame, WriteBatch] = SimulatedCluster(
            self.queue, stream(seed, "network"), links, self.trace
        )
        self.probe = Probe(self.queue, History())
        numbers = range(1, scenario.founders + scenario.joiners + 1)
        self.places = [StartPlace(number, number <= scenario.founders) for number in numbers]
        self.founders = [place for place in self.places if place.is_founder]
        self.cuts = Cuts(self.queue, self.cluster, self.random, self.places)
        self.asking = Asking(self)
        self._links = Links(lambda: self.queue.now_us)
        self.accepted: list[str] = []
        self.counts: dict[str, int] = {}
        self._stores = 0
        self._asked = 0
        self.calm = False
        self.absent: list[StartPlace] = []
        self.outage: Outage | None = None
        """If one with the loss of a disk is planned."""

    def count(self, what: str) -> None:
        """For the summary: faults that did something."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def pass_time(self) -> None:
        """Faults until the calm, and then until all is as it has to be, for so long at most."""
        self._start_all()
        faults = Faults(self)
        for at_us in self.scenario.strikes_us:
            self.queue.at(at_us, faults.strike)
        self.queue.at(LOOK_US, self.client)
        self.queue.run_until(CALM_US)
        self.calm_down()
        while self.queue.now_us < CALM_US + QUIET_US and self.complaint():
            self.queue.run_until(self.queue.now_us + SECOND_US)

    def judge(self) -> list[Violation]:
        """Whether there is one cluster, with everybody in it and all that was said to be done."""
        complaint = self.complaint()
        return [Violation("one cluster", complaint)] if complaint else []

    def happened(self) -> dict[str, int]:
        """Faults that did something, and what came of them."""
        return dict(sorted(self.counts.items()))

    def _start_all(self) -> None:
        scenario = self.scenario
        if scenario.absent:
            self.absent = [self.places[number - 1] for number in scenario.absent]
            self.count("founders that never come")
        if scenario.outage is not None:
            parts = [self.places[number - 1] for number in scenario.outage.founders]
            self.outage = Outage(self, continued(scenario.outage.rest), parts)
            self.outage.plan()
        for number, at_us in scenario.starts_us:
            self.queue.at(at_us, partial(self.start, self.places[number - 1]))

    @property
    def loses_a_disk(self) -> bool:
        """Whether an outage with the loss of a disk is planned."""
        return self.outage is not None

    def when(self, condition: Callable[[], bool], then: Callable[[], object]) -> None:
        """As soon as it is true, unless it is calm before."""
        if condition():
            then()
        elif not self.calm:
            self.queue.after(10 * MILLISECOND_US, partial(self.when, condition, then))

    def serves(self, place: StartPlace) -> bool:
        """Whether a node that serves runs there."""
        program = self.program_of(place)
        return program is not None and program.ready

    def calm_down(self) -> None:
        """Nothing is cut any more, and all that were ever started run."""
        self.calm = True
        self.cuts.heal_all()
        for place in self.places:
            if place not in self.absent:
                self.start(place)

    # ------------------------------------------------------------------ processes

    def start(self, place: StartPlace) -> None:
        """The process of a place is started, if it does not run."""
        if place.up or place in self.absent:
            return
        if self.outage is not None and self.outage.keeps_away(place) and not self.calm:
            return
        place.up = True
        place.life += 1
        self.trace.add("start", place.number, place.node)
        if place.node:
            self.cluster.machines[place.node].start()
            return
        if not place.store:
            self._stores += 1
            place.store = f"store {self._stores}"
        place.abandoned = AbandonedPlaces()
        addresses = [founder.address for founder in self.founders]
        may_found = place.is_founder and not place.joins_again
        place.forming = Forming(addresses, place.address, place.store, may_found)
        self._look(place, place.life)

    def stop(self, place: StartPlace) -> None:
        """Its process is killed."""
        self._links.ended(place.node)
        place.up = False
        place.life += 1
        place.forming = None
        if place.node:
            self.cluster.crash(place.node)

    def wipe(self, place: StartPlace) -> None:
        """Its process is killed and its disk emptied."""
        self.stop(place)
        if place.node:
            self.trace.add("wipe", place.number, place.node)
        self._forget(place)
        place.joins_again = False

    def _forget(self, place: StartPlace) -> None:
        if place.node:
            disk = self.cluster.machines[place.node].disk
            assert isinstance(disk, SimulatedDisk)
            disk.wipe()
        place.store, place.node, place.known, place.unproven = "", 0, None, False

    def _look(self, place: StartPlace, life: int) -> None:
        """The loop of `node.shell.arrival`."""
        self.look_once(place, life)
        if place.life == life and place.forming is not None:
            self.queue.after(LOOK_US, partial(self._look, place, life))

    def look_once(self, place: StartPlace, life: int) -> None:
        """One turn of it; also when the place was asked or answered."""
        forming = place.forming
        if place.life != life or forming is None:
            return
        now_ms = self.queue.now_us // MILLISECOND_US
        if forming.decide(now_ms) == FOUND:
            ids = [founder.number for founder in self.founders]
            self._become(place, place.number, Acquaintance(ids, tuple(ids)), unproven=True)
            return
        for address in forming.whom_to_ask(self._resolve(), now_ms):
            self.asking.ask(place, address)

    def _resolve(self) -> list[str]:
        """What the name stands for now."""
        running = [place.address for place in self.places if place.up]
        some = [address for address in running if self.random.random() < 0.7]
        stale = [place.address for place in self.places if self.random.random() < 0.2]
        return some + stale + self.random.choice(([], [NOBODY], [FOREIGN]))

    def _become(self, place: StartPlace, node: int, known: Acquaintance, unproven: bool) -> None:
        self.trace.add("becomes", place.number, node, unproven)
        place.forming, place.node, place.known, place.unproven = None, node, known, unproven
        place.listens_at_us = self.queue.now_us + HANDED_OVER_US
        known.name, known.store, known.failure_domain = place.name, place.store, place.address
        machine = self.cluster.machines.get(node) or self._machine(place, node)
        machine.start()

    def _machine(self, place: StartPlace, node: int) -> Machine[Frame, WriteBatch]:
        disk = SimulatedDisk()

        def boot(machine: Machine[Frame, WriteBatch]) -> tuple[SimulatedNode, WriteBatch | None]:
            known = place.known
            assert known is not None
            random = stream(self.seed, f"node {node} life {machine.life}")
            program = FormingNode(machine, disk, known, PROFILE, random, self.probe, self._out)
            program.world = self
            return program, program.first_write

        random = stream(self.seed, f"machine {node}")
        machine: Machine[Frame, WriteBatch] = Machine(node, self.queue, random, self.cluster.network, disk, boot)
        machine.after_input = self._worked
        machine.transmit = lambda peer, frame: self._transmit(machine, peer, frame)
        self.cluster.add(machine)
        self.cuts.hold_for_new_nodes()
        return machine

    def _transmit(self, machine: Machine[Frame, WriteBatch], peer: int, frame: Frame) -> None:
        program = machine.program
        if isinstance(program, SimulatedNode) and self._reaches(machine.id, peer) and peer in self.cluster.machines:
            program.transmit(peer, frame, self.cluster.network.send)

    def _reaches(self, node: int, peer: int) -> bool:
        source, target = self._place_of(node), self._place_of(peer)
        if target is None:
            target = next((place for place in self.founders if place.number == peer), None)
        if source is None or target is None or self.cuts.is_cut(source, target):
            return True  # the network decides
        listens = target.node == peer and target.up and self.queue.now_us >= target.listens_at_us
        return self._links.carries(node, peer, listens)

    def _worked(self, machine: Machine[Frame, WriteBatch]) -> None:
        program = machine.program
        if isinstance(program, SimulatedNode):
            self.probe.look(program)
            place = self._place_of(machine.id)
            if program.ready and place is not None and place.unproven:
                self.trace.add("serves", place.number, machine.id)
                place.unproven = False

    def _place_of(self, node: int) -> StartPlace | None:
        return next((place for place in self.places if place.node == node), None)

    def store_of(self, node: int) -> str:
        """What the data of the one that is this node now is called."""
        place = self._place_of(node)
        return "" if place is None else place.store

    def refused(self, node: int) -> None:
        """A node is told that its data is not what the cluster knows under its id."""
        self.queue.after(1, partial(self._sent_away, node, False))

    def _out(self, node: int) -> None:
        """A node is told that it was removed."""
        self.queue.after(1, partial(self._sent_away, node, True))

    def _sent_away(self, node: int, removed: bool) -> None:
        place = self._place_of(node)
        if place is None or not place.up:
            return
        self.trace.add("sent away", place.number, node, removed)
        if not place.unproven or removed:
            raise FormingError(f"node {node} at place {place.number} is sent away for good (removed: {removed})")
        self.count("gave its data up")
        self.stop(place)
        self._forget(place)
        place.joins_again = True
        self.start(place)

    def joined(self, place: StartPlace, node: int) -> None:
        """It was let in as this node."""
        self.count("joined")
        known: list[int] = []
        version = 0
        for machine in self.cluster.machines.values():
            program = machine.program
            if isinstance(program, SimulatedNode) and program.engine.catalog.members.version > version:
                members = program.engine.catalog.members
                known, version = [record.id for record in members.with_replicas()], members.version
        self._become(place, node, Acquaintance([*dict.fromkeys([*known, node])], (), version, True), unproven=False)

    def programs(self) -> list[SimulatedNode]:
        """The nodes that run, not those that ask."""
        running = (self.cluster.machines[place.node].program for place in self.places if place.up and place.node)
        return [program for program in running if isinstance(program, SimulatedNode)]

    def program_of(self, place: StartPlace) -> SimulatedNode | None:
        """The node that runs there; None: nobody, or one that asks."""
        return next((each for each in self.programs() if place.up and each.machine.id == place.node), None)

    def client(self) -> None:
        """Somebody who has something done every now and then, anywhere, and remembers what was said to be done."""
        serving = [program for program in self.programs() if program.ready]
        if serving:
            program = self.random.choice(serving)
            self._asked += 1
            name = f"vhost {self._asked}"

            def done(result: object) -> None:
                if result is not SESSION_LOST:
                    assert not isinstance(result, Refusal), result
                    self.accepted.append(name)

            program.machine.call(lambda: program.engine.submit_catalog(AddVhost(name), done))
        if not self.calm:
            self.queue.after(self.random.randint(LOOK_US, SECOND_US), self.client)

    def complaint(self) -> str:
        """What is not yet as it has to be in the end; "" if nothing."""
        return complaint_about(self)
