"""Clusters that form: empty nodes started in any order, lost, cut off and wiped meanwhile.

Every place (an address, with a machine that may be emptied) runs what `mayfly node` does: an empty one asks
(`node.forming`), over a network that is cut now and then, all founders and what a name stands for at that moment, which
may be some, all, or addresses at which nobody or somebody else is. What decides becomes a whole node with its disk.

Judged at the end, when all has been quiet for a while: there is one cluster, every node that was started is a member of
it, and it has everything that any node said was done. On the way: no group has two leaders in a term, no node meets a
log that contradicts its own, and none is sent away but those that were wiped, or had not served yet.

    python -m node.simulation.forming --seeds 1:2000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from cluster.first_state import BOOTSTRAP_TERM
from cluster.frame import Frame
from cluster.log.batch import WriteBatch
from cluster.log.memory_store import SimulatedDisk
from cluster.simulator.cluster import SimulatedCluster
from cluster.simulator.events import MILLISECOND_US, SECOND_US, EventQueue
from cluster.simulator.machine import Machine
from cluster.simulator.network import LinkProfile
from cluster.simulator.randomness import stream
from cluster.simulator.trace import Trace
from cluster.versions import LEVELS
from node.broker.cluster_facade import SESSION_LOST
from node.catalog import AddMember, AddVhost, MemberAdded, Refusal, RemoveMember
from node.catalog.members import STILL_THERE
from node.catalog.records import CATALOG_GROUP
from node.forming import FORMING, FOUND, TAKEN, UNSURE, AbandonedPlaces, Forming, stance_towards
from node.simulation.history import History
from node.simulation.membership import settled
from node.simulation.nodes import Acquaintance, NodeProfile, SimulatedNode
from node.simulation.probe import Probe

CALM_US = 25 * SECOND_US
QUIET_US = 60 * SECOND_US
LOOK_US = 100 * MILLISECOND_US
ASK_TIMEOUT_US = 15 * SECOND_US
PROFILE = NodeProfile(shards=1, tick_ms=100, heartbeat_ms=200, election_timeout_ms=1_000)
NOBODY = "nobody"
FOREIGN = "somebody else"

Answer = Callable[[str, str, "int | None"], None]
"""(stance, name of the data that answered, id of the member that the asker becomes)"""


class FormingError(AssertionError):
    """A promise about clusters that form was broken."""


class FormingNode(SimulatedNode):
    """A node that minds what the data of others is called, as `node.membership_shell` does."""

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


class Place:
    """Where a node is started: its address, and what it has on its disk."""

    def __init__(self, number: int, is_founder: bool) -> None:
        self.number = number
        self.is_founder = is_founder
        self.address = f"machine {number}"
        self.name = f"node-{number}"
        self.store = ""
        self.joins_again = False
        self.node = 0
        """The id that it has, 0 while it is nobody."""
        self.known: Acquaintance | None = None
        self.unproven = False
        self.forming: Forming | None = None
        self.up = False
        self.life = 0
        self.may_be_refused = False
        self.abandoned = AbandonedPlaces()


class FormingRun:
    """One run, all of it drawn from the seed. `run` gives what happened; raises FormingError."""

    def __init__(self, seed: int, sink: Callable[[str], None] | None = None) -> None:
        self.random: Random = stream(seed, "forming")
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        links = LinkProfile(base_us=500, jitter_us=2_000, spike_probability=0.01)
        self.cluster: SimulatedCluster[Frame, WriteBatch] = SimulatedCluster(
            self.queue, stream(seed, "network"), links, self.trace
        )
        self.probe = Probe(self.queue, History())
        self.seed = seed
        founders = self.random.choice((1, 2, 3, 3, 3, 3, 5))
        joiners = self.random.choice((0, 0, 1, 2))
        self.places = [Place(number, number <= founders) for number in range(1, founders + joiners + 1)]
        self.founders = [place for place in self.places if place.is_founder]
        self.cut: set[tuple[int, int]] = set()
        self.accepted: list[str] = []
        self.counts: dict[str, int] = {}
        self._stores = 0
        self._asked = 0
        self._calm = False
        self._absent: list[Place] = []
        self.outage = False
        """Whether one with the loss of a disk is planned."""
        self._stale: Place | None = None
        """Stopped early, it stays away until an outage is over."""

    def count(self, what: str) -> None:
        """For the summary: faults that did something."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self) -> dict[str, int]:
        """All of it."""
        self._start_all()
        for _ in range(self.random.choice((0, 3, 8, 16))):
            self.queue.at(self.random.randint(0, CALM_US), self._fault)
        self.queue.at(LOOK_US, self.client)
        self.queue.run_until(CALM_US)
        self.calm_down()
        while self.queue.now_us < CALM_US + QUIET_US and self.complaint():
            self.queue.run_until(self.queue.now_us + SECOND_US)
        complaint = self.complaint()
        if complaint:
            raise FormingError(complaint)
        return self.counts

    def _start_all(self) -> None:
        spread_us = self.random.choice((0, 1_000, SECOND_US, 10 * SECOND_US, CALM_US))
        spare = (min(len(self.founders), PROFILE.replication_factor) - 1) // 2  # each group has no more voters
        if spare and self.random.random() < 0.3:
            self._absent = self.random.sample(self.founders, self.random.randint(1, spare))
            self.count("founders that never come")
        random = stream(self.seed, "outage")
        if len(self.founders) == 3 and not self._absent and random.random() < 0.25:
            self.outage = True
            self._plan_outage(random, random.sample(self.founders, 3))
            return
        for place in self.places:
            if place not in self._absent:
                self.queue.at(self.random.randint(0, spread_us), partial(self.start, place))

    def _plan_outage(self, random: Random, founders: Sequence[Place]) -> None:
        """Two found, and one of them stops at once; the third comes late and serves with the other. All stop, the late
        one loses its disk, and it comes back with the one that stopped, which has seen little or nothing of it."""
        first, stale, late = founders
        self._stale = stale
        after_us = random.randint(0, 1_000) * MILLISECOND_US

        def touched() -> bool:
            program = self.program_of(stale)
            return program is not None and not program.engine.untouched

        def stop_stale() -> None:
            self.stop(stale)
            disk = self.cluster.machines[stale.node].disk
            assert isinstance(disk, SimulatedDisk)
            if not any(group.hard_state.term > BOOTSTRAP_TERM or group.entries for group in disk.load().values()):
                # It is as one that never started; two such of three can't know of a cluster.
                self._stale = None
            for place in self.places:
                self.start(place)
            self.when(lambda: late.node == late.number and self._serves(late) and self._serves(first), outage)

        def late_comes() -> None:
            self.start(late)
            if random.random() < 0.5:
                self.when(lambda: late.node != 0, stop_stale)
            else:
                self.queue.after(random.randint(0, SECOND_US), stop_stale)

        def outage() -> None:
            self.queue.after(random.randint(0, 3 * SECOND_US), lose_late)

        def lose_late() -> None:
            if self._calm or self._stale is None or stale.up or not (first.node and late.node == late.number):
                return
            self.count("outages with a stale founder")
            self.trace.add("outage")
            for place in self.places:
                self.stop(place)
            self.wipe(late)
            self._stale = None
            for place in (stale, late):
                self.queue.after(random.randint(0, SECOND_US), partial(self.start, place))
            away_us = random.choice((SECOND_US, 4 * SECOND_US, 12 * SECOND_US))
            for place in self.places:
                self.queue.after(away_us + random.randint(0, SECOND_US), partial(self.start, place))

        for place in (first, stale):
            self.queue.at(random.randint(0, SECOND_US), partial(self.start, place))
        self.when(touched, lambda: self.queue.after(after_us, late_comes))

    def when(self, condition: Callable[[], bool], then: Callable[[], object]) -> None:
        """As soon as it is true, unless it is calm before."""
        if condition():
            then()
        elif not self._calm:
            self.queue.after(10 * MILLISECOND_US, partial(self.when, condition, then))

    def _serves(self, place: Place) -> bool:
        program = self.program_of(place)
        return program is not None and program.ready

    def calm_down(self) -> None:
        """Nothing is cut any more, and all that were ever started run."""
        self._calm = True
        for pair in list(self.cut):
            self._heal(*pair)
        for place in self.places:
            if place not in self._absent:
                self.start(place)

    # ------------------------------------------------------------------ processes

    def start(self, place: Place) -> None:
        """The process of a place is started, if it does not run."""
        if place.up or place in self._absent or (place is self._stale and place.life and not self._calm):
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

    def stop(self, place: Place) -> None:
        """Its process is killed."""
        place.up = False
        place.life += 1
        place.forming = None
        if place.node:
            self.cluster.crash(place.node)

    def wipe(self, place: Place) -> None:
        """Its process is killed and its disk emptied."""
        self.stop(place)
        if place.node:
            self.trace.add("wipe", place.number, place.node)
        self._forget(place)
        place.joins_again = False

    def _forget(self, place: Place) -> None:
        if place.node:
            disk = self.cluster.machines[place.node].disk
            assert isinstance(disk, SimulatedDisk)
            disk.wipe()
        place.store, place.node, place.known, place.unproven = "", 0, None, False

    def _look(self, place: Place, life: int) -> None:
        """The loop of `node.arrival`."""
        forming = place.forming
        if place.life != life or forming is None:
            return
        now_ms = self.queue.now_us // MILLISECOND_US
        if forming.decide(now_ms) == FOUND:
            ids = [founder.number for founder in self.founders]
            self._become(place, place.number, Acquaintance(ids, tuple(ids)), unproven=True)
            return
        for address in forming.whom_to_ask(self._resolve(), now_ms):
            self._ask(place, address)
        self.queue.after(LOOK_US, partial(self._look, place, life))

    def _resolve(self) -> list[str]:
        """What the name stands for now."""
        running = [place.address for place in self.places if place.up]
        some = [address for address in running if self.random.random() < 0.7]
        stale = [place.address for place in self.places if self.random.random() < 0.2]
        return some + stale + self.random.choice(([], [NOBODY], [FOREIGN]))

    def _become(self, place: Place, node: int, known: Acquaintance, unproven: bool) -> None:
        self.trace.add("becomes", place.number, node, unproven)
        place.forming, place.node, place.known, place.unproven = None, node, known, unproven
        known.name, known.store, known.failure_domain = place.name, place.store, place.address
        machine = self.cluster.machines.get(node) or self._machine(place, node)
        machine.start()

    def _machine(self, place: Place, node: int) -> Machine[Frame, WriteBatch]:
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
        for pair in self.cut:
            self._block(*pair)
        return machine

    def _transmit(self, machine: Machine[Frame, WriteBatch], peer: int, frame: Frame) -> None:
        program = machine.program
        if isinstance(program, SimulatedNode) and peer in self.cluster.machines:
            program.transmit(peer, frame, self.cluster.network.send)

    def _worked(self, machine: Machine[Frame, WriteBatch]) -> None:
        program = machine.program
        if isinstance(program, SimulatedNode):
            self.probe.look(program)
            place = self._place_of(machine.id)
            if program.ready and place is not None and place.unproven:
                self.trace.add("serves", place.number, machine.id)
                place.unproven = False

    def _place_of(self, node: int) -> Place | None:
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

    # ------------------------------------------------------------------ asking

    def _ask(self, place: Place, address: str) -> None:
        forming, life = place.forming, place.life
        assert forming is not None
        store = place.store
        founder = place.number if forming.may_found else 0
        over = [False]

        def answered(stance: str, by: str, node: int | None) -> None:
            if over[0] or place.life != life or place.forming is None:
                return
            over[0] = True
            now_ms = self.queue.now_us // MILLISECOND_US
            if node is not None:
                self._joined(place, node)
            elif by:
                forming.answered(address, stance, by, now_ms)
            else:
                forming.unanswered(address, now_ms)
            place.joins_again = place.joins_again or (place.is_founder and not forming.may_found)

        target = next((each for each in self.places if each.address == address), None)
        self.queue.after(ASK_TIMEOUT_US, partial(answered, "", "", None))
        if address == FOREIGN:
            self.queue.after(self._delay_us(), partial(answered, "", "of another cluster", None))
        elif target is None or not target.up:
            self.queue.after(self._delay_us(), partial(answered, "", "", None))
        elif not self._is_cut(place, target):
            back = partial(self._back, target, place, answered)
            self.queue.after(self._delay_us(), partial(self._asked_at, target, place, store, founder, back))

    def _delay_us(self) -> int:
        return self.random.choice((500, 2_000, 20_000, 300_000))

    def _back(self, target: Place, place: Place, answered: Answer, stance: str, by: str, node: int | None) -> None:
        if not self._is_cut(place, target):
            self.queue.after(self._delay_us(), partial(answered, stance, by, node))

    def _asked_at(self, target: Place, asker: Place, store: str, founder: int, back: Answer) -> None:
        """What `node.arrival` and `node.membership_shell` answer."""
        if not target.up:
            back("", "", None)
        elif target.forming is not None:
            back(FORMING if founder and target.forming.may_found else "", target.store, None)
        else:
            machine = self.cluster.machines[target.node]
            machine.call(partial(self._asked_node, target, machine, asker, store, founder, back))

    def _asked_node(
        self, target: Place, machine: Machine[Frame, WriteBatch], asker: Place, store: str, founder: int, back: Answer
    ) -> None:
        program, by = machine.program, target.store
        if not isinstance(program, FormingNode):
            return
        members = program.engine.catalog.members
        group = program.engine.host.groups[CATALOG_GROUP]

        def current(result: object = None) -> None:
            if result is not None or not members.founded:
                back(UNSURE if founder else "", by, None)
                return
            record = members.get(founder)
            named, present = ("", False) if record is None else (record.store, record.state != "removed")
            started = program.engine.catalog.node(founder) is not None
            stance = stance_towards(store, named, started, present, led) if founder else ""
            if stance not in ("", TAKEN):
                back(stance, by, None)
                return
            if group.leader == 0:
                back(stance, by, None)
            else:
                command = AddMember(asker.name, asker.address, store, (LEVELS.lowest, LEVELS.highest))
                program.engine.submit_catalog(command, partial(added, stance))

        def added(stance: str, result: object) -> None:
            if isinstance(result, MemberAdded):
                back("", by, result.member.id)
            else:
                if isinstance(result, Refusal) and STILL_THERE in result.text:
                    given = members.with_replicas()
                    place = target.abandoned.claimed(given, asker.name, asker.address, store)
                    if place:
                        self.count("abandoned places")
                        program.engine.submit_catalog(RemoveMember(str(place)), lambda _: None)
                back(stance, by, None)

        led = group.leader != 0
        if founder and not members.founded and target.unproven and program.engine.untouched:
            back(FORMING, by, None)
        elif founder and led:
            program.engine.catalog_barrier(current)
        else:
            current()

    def _joined(self, place: Place, node: int) -> None:
        self.count("joined")
        known: list[int] = []
        version = 0
        for machine in self.cluster.machines.values():
            program = machine.program
            if isinstance(program, SimulatedNode) and program.engine.catalog.members.version > version:
                members = program.engine.catalog.members
                known, version = [record.id for record in members.with_replicas()], members.version
        self._become(place, node, Acquaintance([*dict.fromkeys([*known, node])], (), version, True), unproven=False)

    # ------------------------------------------------------------------ faults

    def _fault(self) -> None:
        if self._calm:
            return
        place = self.random.choice(self.places)
        kind = self.random.choice(("crash", "crash", "cut off", "cut", "wipe", "wipe", "wipe"))
        if kind == "crash" and place.up:
            self.stop(place)
            self.queue.after(self.random.randint(0, 8 * SECOND_US), partial(self.start, place))
        elif kind == "wipe" and place not in self._absent and self._may_wipe(place):
            kind = "wiped as a node" if place.node else "wiped while asking"
            self.wipe(place)
            self.queue.after(self.random.randint(0, 8 * SECOND_US), partial(self.start, place))
        elif kind == "cut off":
            for other in self.places:
                self._cut_for_a_while(place, other)
        elif kind == "cut":
            self._cut_for_a_while(place, self.random.choice(self.places))
        else:
            return
        self.trace.add("fault", kind, place.number)
        self.count(kind)

    def _may_wipe(self, place: Place) -> bool:
        """One that has no data yet; else, where no outage takes a disk, one of a cluster at rest that has all that it
        wants, of three voters or more: what a majority loses can't be told from what never was. Nor can what the only
        founder loses."""
        if not place.node:
            return place.up
        if self.outage or (len(self.founders) == 1 and place.is_founder):
            return False
        programs = self._programs()
        if not programs or place.unproven or len(programs) != len([each for each in self.places if each.node]):
            return False
        newest = max(program.engine.catalog.members.version for program in programs)
        members = programs[0].engine.catalog.members
        stores = {record.id: record.store for record in members.with_replicas()}
        return (
            all(program.ready and settled(program) for program in programs)
            and all(program.engine.catalog.members.version == newest for program in programs)
            and all(len(voters) >= 3 for voters in members.plan.values())
            and stores == {each.node: each.store for each in self.places if each.node}
        )

    def _cut_for_a_while(self, one: Place, other: Place) -> None:
        pair = (min(one.number, other.number), max(one.number, other.number))
        if one is not other and pair not in self.cut:
            self.cut.add(pair)
            self._block(*pair)
            self.queue.after(self.random.randint(SECOND_US, 10 * SECOND_US), partial(self._heal, *pair))

    def _is_cut(self, one: Place, other: Place) -> bool:
        return (min(one.number, other.number), max(one.number, other.number)) in self.cut

    def _block(self, one: int, other: int) -> None:
        for source, target in self._ways(one, other):
            self.cluster.network.block(source, target)

    def _heal(self, one: int, other: int) -> None:
        if (one, other) in self.cut:
            self.cut.remove((one, other))
            for source, target in self._ways(one, other):
                self.cluster.network.unblock(source, target)

    def _ways(self, one: int, other: int) -> list[tuple[int, int]]:
        first, second = self.places[one - 1].node, self.places[other - 1].node
        known = self.cluster.machines
        return [(first, second), (second, first)] if first in known and second in known else []

    # ------------------------------------------------------------------ judging

    def _programs(self) -> list[SimulatedNode]:
        running = (self.cluster.machines[place.node].program for place in self.places if place.up and place.node)
        return [program for program in running if isinstance(program, SimulatedNode)]

    def program_of(self, place: Place) -> SimulatedNode | None:
        """The node that runs there; None: nobody, or one that asks."""
        return next((each for each in self._programs() if place.up and each.machine.id == place.node), None)

    def client(self) -> None:
        """Somebody who has something done every now and then, anywhere, and remembers what was said to be done."""
        serving = [program for program in self._programs() if program.ready]
        if serving:
            program = self.random.choice(serving)
            self._asked += 1
            name = f"vhost {self._asked}"

            def done(result: object) -> None:
                if result is not SESSION_LOST:
                    assert not isinstance(result, Refusal), result
                    self.accepted.append(name)

            program.machine.call(lambda: program.engine.submit_catalog(AddVhost(name), done))
        if not self._calm:
            self.queue.after(self.random.randint(LOOK_US, SECOND_US), self.client)

    def complaint(self) -> str:
        """What is not yet as it has to be in the end; "" if nothing."""
        present = [place for place in self.places if place not in self._absent]
        for place in present:
            if not place.node:
                waits = "" if place.forming is None else place.forming.describe(self.queue.now_us // MILLISECOND_US)
                return f"place {place.number} is nobody: {waits}"
        programs = self._programs()
        if len(programs) != len(present) or not all(program.ready for program in programs):
            return f"not all serve: {[(program.machine.id, program.ready) for program in programs]}"
        expected = {place.node: place.store for place in present}
        absent = {place.number for place in self._absent}
        for program in programs:
            members = program.engine.catalog.members
            known = {record.id: record.store for record in members.with_replicas() if record.id not in absent}
            if known != expected:
                return f"node {program.machine.id} knows the members {known}, they are {expected}"
            if any(record.state != "member" for record in members.with_replicas()):
                return f"node {program.machine.id}: {members.with_replicas()}"
            vhosts = {vhost.name for vhost in program.engine.catalog.vhosts()}
            missing = [name for name in self.accepted if name not in vhosts]
            if missing:
                return f"node {program.machine.id} lacks what was said to be done: {missing}"
        return ""


def main() -> int:
    """Run what the command line asks for; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m node.simulation.forming", description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--seed", type=int, help="one seed")
    wanted.add_argument("--seeds", help="a range of seeds, the end left out: 1:5000")
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args()
    if options.seeds is None:
        first, end = options.seed, options.seed + 1
    else:
        first, end = (int(part) for part in options.seeds.split(":"))
    total: dict[str, int] = {}
    failed = 0
    for seed in range(first, end):
        try:
            counts = FormingRun(seed, _print if options.trace else None).run()
        except AssertionError as error:
            failed += 1
            _print(f"seed {seed}: {error}")
            continue
        for what, count in counts.items():
            total[what] = total.get(what, 0) + count
    _print(f"{failed} failed; {dict(sorted(total.items()))}")
    return 1 if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
