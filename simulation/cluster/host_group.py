"""Whole hosts on machines that fail: `cluster.host.host.Host` with its groups, sessions, clocks, rebuilds and members.

Between `raft_group` (bare Raft, message by message) and `simulation.node` (whole nodes with AMQP clients). A tiny state
machine (`host_machine`) stands in for shards and catalog, so that a run is short and every step is checked
(`host_invariants`). Chaos, then calm: in the end all members agree, and all that was asked in the calm is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mayfly.cluster.group.snapshot_intake import UNREADABLE
from mayfly.cluster.host import placement
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import CorruptStore, WriteBatch
from mayfly.cluster.raft import RaftMessage, Snapshot
from simulation.cluster import faults
from simulation.cluster.clocks import EPOCH_MS, MachineClock
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EventQueue
from simulation.cluster.host_invariants import HostObserver
from simulation.cluster.host_node import HostAcquaintance, HostClient, HostNode
from simulation.cluster.host_operator import HostOperator
from simulation.cluster.host_scenario import CHAOS_US, USUAL_OFFSET_MS, HostScenario
from simulation.cluster.machine import Machine, MachineProfile
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.raft_invariants import InvariantError
from simulation.cluster.randomness import exponential_us, stream
from simulation.cluster.trace import Trace
from simulation.logged_failures import hear
from simulation.simulator import ScenarioRun, Sink, Violation

LONGEST_CALM_US = 90 * SECOND_US
"""The longest probation of a disk that was late again and again is 30 s."""
_SLICE_US = SECOND_US // 2


class HostSimulation(ScenarioRun[HostScenario]):
    """A run of one scenario."""

    def __init__(self, scenario: HostScenario, sink: Sink = None) -> None:
        """`sink` gets the trace line by line."""
        self.scenario = scenario
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        self.observers = [HostObserver(group) for group in range(scenario.profile.groups)]
        self.known: dict[int, HostAcquaintance] = {}
        self.out_of_action: dict[int, str] = {}
        """Nodes that have lost their data for good, and were not taken out of the cluster yet."""
        self.counts: dict[str, int] = {}
        self._ever_lost: dict[int, None] = {}
        self._wiped: dict[int, None] = {}
        """Nodes that had joined and were wiped: they ask to join, and are told to wait until their old id is out."""
        self._sink = sink
        self._random = stream(scenario.seed, "host clients")
        self._calm = False
        self._clients = 0
        self._stores = 0
        self.cluster: SimulatedCluster[Frame, WriteBatch] = SimulatedCluster(
            self.queue, stream(scenario.seed, "host network"), scenario.links, self.trace
        )
        self.cluster.frame_text = lambda frame: f"{frame.clock_ms} {len(frame.raft)} {len(frame.proposals)}"
        self.cluster.transfer_leadership = self._transfer_leadership
        self.cluster.begin_drain = self._begin_drain
        self.cluster.is_drained = self._is_drained
        self.cluster.may_lose = self._may_lose
        self.cluster.lost = self._lost
        self._repeats = stream(scenario.seed, "host repeats")
        self._damage = stream(scenario.seed, "host damaged snapshots")
        for place, node in enumerate(scenario.founders):
            self._add(node, HostAcquaintance(self._new_store(), list(scenario.founders)), scenario.offsets_us[place])
        self.operator = HostOperator(self, scenario.changes)
        if not scenario.changes and scenario.profile.nodes_per_domain == 1:
            for observer in self.observers:
                observer.copies = self._copies(observer.group)

    # ------------------------------------------------------------------ machines

    def _new_store(self) -> int:
        self._stores += 1
        return self._stores

    def new_client(self) -> HostClient:
        """A client with a number that no other one ever has."""
        self._clients += 1
        return HostClient(self._clients)

    def add_member(self, node: int, store: int, members: list[int], version: int) -> None:
        """A machine for a node that has been given a place; it starts at once."""
        if node not in self.cluster.machines:
            self._add(node, HostAcquaintance(store, members, version, joined=True), 0)
            self.cluster.start(node)

    def new_store(self) -> int:
        """A name for data that has none."""
        return self._new_store()

    def _add(self, node: int, known: HostAcquaintance, offset_us: int) -> None:
        scenario, disk = self.scenario, SimulatedDisk()
        self.known[node] = known

        def boot(machine: Machine[Frame, WriteBatch]) -> tuple[HostNode, WriteBatch | None]:
            if node in self._wiped:
                raise CorruptStore("its data is gone, and its old id is not for a node that joins")
            random = stream(scenario.seed, f"host {node} life {machine.life}")
            program = HostNode(self, machine, disk, self.known[node], random)
            return program, program.first_write

        machine: Machine[Frame, WriteBatch] = Machine(
            node,
            self.queue,
            stream(scenario.seed, f"host machine {node}"),
            self.cluster.network,
            disk,
            boot,
            MachineClock(offset_us),
            MachineProfile(tick_us=scenario.profile.tick_ms * MILLISECOND_US, loop_us=500),
            replace(scenario.disk),
        )
        disk.written = lambda batch: self._written(node, disk, batch)
        machine.transmit = lambda peer, frame: self._transmit(machine, peer, frame)
        self.cluster.add(machine)

    def _written(self, node: int, disk: SimulatedDisk, batch: WriteBatch) -> None:
        store = self.known[node].store
        for group, write in batch.groups.items():
            self.observers[group].written(node, store, write, partial(disk.term, group))

    def _copies(self, group: int) -> Callable[[int, int], tuple[int, int]]:
        """For groups whose members stay: on how many voters' disks an entry is, and how many are a majority."""
        nodes = self.scenario.founders
        voters = placement.voters(group, nodes, self.scenario.profile.replication_factor)

        def count(index: int, term: int) -> tuple[int, int]:
            if self.operator.busy or self.operator.done:
                return 1, 0  # somebody was wiped and replaced: its copy was there once
            disks = [self.cluster.machines[node].disk for node in voters]
            found = sum(isinstance(disk, SimulatedDisk) and disk.covers(group, index, term) for disk in disks)
            return found, len(voters) // 2 + 1

        return count

    def latest_clock_ms(self) -> int:
        """What the clock of a group may show at most (RULES C3), where whoever leads has heard enough others to say."""
        if min(len(self.scenario.founders), self.scenario.profile.replication_factor) < 3 or self.scenario.changes:
            return 1 << 62
        slack_ms = self.scenario.profile.clock_bound_ms + USUAL_OFFSET_MS + 100
        return EPOCH_MS + self.queue.now_us // MILLISECOND_US + slack_ms

    def program(self, node: int) -> HostNode | None:
        """What runs on a machine, if anything does."""
        machine = self.cluster.machines.get(node)
        program = None if machine is None else machine.program
        return program if isinstance(program, HostNode) else None

    def programs(self) -> list[HostNode]:
        """All that runs."""
        return [it for it in map(self.program, self.cluster.machines) if it is not None]

    def members(self) -> list[HostNode]:
        """What runs on members, by the directory that is furthest ahead."""
        running = self.programs()
        if not running:
            return []
        present = max(running, key=lambda it: it.directory.version).directory.present()
        return [it for it in running if it.id in present]

    def _transmit(self, machine: Machine[Frame, WriteBatch], peer: int, frame: Frame) -> None:
        if isinstance(machine.program, HostNode):
            machine.program.transmit(peer, frame)

    def send(
        self, source: int, target: int, frame: Frame, result: Callable[[bool], None] | None = None
    ) -> None:
        """Put a frame on the network; with `result` it is a snapshot, on the stream for bulky things."""
        self.cluster.network.send(source, target, frame, result is not None, result)
        if self.scenario.repeated and not self._calm and self._repeats.random() < self.scenario.repeated:
            self.cluster.network.send(source, target, frame, True)
            self.count("repeated")

    def as_sent(self, message: RaftMessage) -> RaftMessage:
        """A message with a snapshot as its sender has it in memory: its digest is worked out from there on."""
        snapshot = message.snapshot
        if snapshot is None or self._calm or self._damage.random() >= self.scenario.damaged:
            return message
        self.count("snapshot damaged")
        cut = Snapshot(snapshot.metadata, snapshot.data[:-1])
        return RaftMessage(message.type, message.to, message.from_, message.term, snapshot=cut)

    # ------------------------------------------------------------------ what happens to nodes

    def has_voters(self, group: int, voters: Sequence[int]) -> bool:
        """Whether a group's leader shows these voters, and no change under way."""
        for program in self.members():
            replica = program.host.groups.get(group)
            if replica is not None and replica.established:
                return set(replica.conf_state.voters) == set(voters) and not replica.conf_state.voters_outgoing
        return False

    def count(self, what: str) -> None:
        """Something happened; tests want to see that it does."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def tell(self, text: str) -> None:
        """A line for people who read the trace."""
        hear(text)
        if UNREADABLE in text:
            self.count("snapshot refused")
        if self._sink is not None:
            self._sink(f"{self.queue.now_us} # {text}")

    def send_away(self, node: int, why: str) -> None:
        """A node was told that it is out, or knows it itself: its process ends a moment later."""
        self.trace.add("sent away", node, why)
        self.count("sent away")
        if node in self.scenario.founders and self.known[node].store > len(self.scenario.founders):
            self.count("wiped sent away")
        life = self.cluster.machines[node].life

        def go() -> None:
            if self.cluster.machines[node].life == life:
                self.cluster.take_away(node)

        self.queue.after(self._random.randint(1, 50) * MILLISECOND_US, go)

    def log_lost(self, node: int, why: str) -> None:
        """A leader showed a node that it once had more: true only of one that was wiped."""
        if self.known[node].store <= len(self.scenario.founders) or node not in self.scenario.founders:
            raise InvariantError(f"node {node} was not wiped, but: {why}")
        self.count("log lost")
        self.queue.after(1, lambda: self.cluster.take_away(node))

    def impaired(self) -> list[int]:
        """The nodes that have lost some of their data, and not got it back."""
        nodes = dict.fromkeys(self.out_of_action)
        for node, machine in self.cluster.machines.items():
            program, disk = self.program(node), machine.disk
            if isinstance(disk, SimulatedDisk) and disk.rotten() and self.is_present(node):
                nodes[node] = None
            if program is not None and program.rebuilding:
                nodes[node] = None
        return list(nodes)

    def is_present(self, node: int) -> bool:
        """Whether a node is a member, by the directory that is furthest ahead."""
        running = self.programs()
        return not running or node in max(running, key=lambda it: it.directory.version).directory.present()

    def all_settled(self) -> bool:
        """Whether all members run, show the same members and are at rest with them."""
        members = self.members()
        versions = {it.directory.version for it in members}
        return (
            len(versions) == 1
            and len(members) == len(members[0].directory.present())
            and all(it.settled() and not it.machine.frozen for it in members)
        )

    def _may_lose(self, node: int, kind: str) -> bool:
        """A minority of the voters of every group, in a cluster at rest: no promise holds otherwise."""
        impaired = self.impaired()
        if node in impaired or self.operator.busy or not self.is_present(node):
            return False
        members = self.members()
        if not members or not self.all_settled():
            return False
        if any((len(chosen) - 1) // 2 <= len(impaired) for chosen in members[0].directory.plan.values()):
            return False
        if kind == faults.WIPE:
            # Data is known by its name once the node has said it (docs/decisions/members.md, 7).
            return all(node in it.directory.stores for it in members)
        return True

    def _lost(self, node: int, why: str) -> None:
        """A node is without its data. A wiped one comes back under its old id, as new; it has to be replaced."""
        if why == "wiped" and self.known[node].joined:
            self._wiped[node] = None
        elif why == "wiped":
            self.known[node] = HostAcquaintance(self._new_store(), list(self.scenario.founders))
        else:
            self.count("refused to start")
        if node not in self._ever_lost:
            self._ever_lost[node] = None
            self.out_of_action[node] = why
            self.operator.replace(node)

    def _begin_drain(self, node: int) -> None:
        program = self.program(node)
        if program is not None:
            program.host.set_draining(True)

    def _is_drained(self, node: int) -> bool:
        """Whether it leads nothing that others could lead."""
        program = self.program(node)
        return program is None or not program.host.leadership.can_hand_over(program.machine.now_ms())

    def _transfer_leadership(self, node: int, number: int) -> None:
        id = number % self.scenario.profile.groups
        for program in self.programs():
            group = program.host.groups.get(id)
            if group is not None and group.leads and node != program.id and node in group.conf_state.voters:
                program.machine.call(partial(group.raw.transfer_leader, node))

    # ------------------------------------------------------------------ the course of a run

    def pass_time(self) -> None:
        """Chaos, then calm."""
        self.begin()
        self.queue.run_until(CHAOS_US)
        self.calm_down()
        self.come_to_rest()

    def begin(self) -> None:
        """Start everything that is meant to happen."""
        self.cluster.start_all()
        self.cluster.schedule(self.scenario.plan)
        self.operator.start()
        self._ask_later()

    def calm_down(self, absent: Sequence[int] = ()) -> None:
        """Nothing goes wrong from here on, and clients at large fall silent; those that are `absent` stay down."""
        self._calm = True
        self.cluster.calm_down(absent)

    def come_to_rest(self) -> None:
        """The calm at the end: all settle, all that is asked now is answered, and all agree on what there is."""
        self.wait_for(lambda: not self.operator.busy and self.all_settled() and self.led())
        calm = [(it, it.clients[group]) for it in self.members() for group in it.clients]
        for program in self.members():
            program.machine.call(partial(self._ask_in_calm, program))
        self.wait_for(lambda: not any(client.waits for _, client in calm))
        self.wait_for(self._converged)

    def led(self) -> bool:
        """Whether every group has one leader among the members that run."""
        return all(
            sum(group in it.host.groups and it.host.groups[group].established for it in self.members()) == 1
            for group in range(self.scenario.profile.groups)
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let time pass until it is so; InvariantError if it does not come to that."""
        while not condition():
            if self.queue.now_us > CHAOS_US + LONGEST_CALM_US:
                raise InvariantError("no calm: " + self._state())
            self.queue.run_until(self.queue.now_us + _SLICE_US)

    def _state(self) -> str:
        """Who is where, for a run that does not come to an end."""
        texts = [f"operator {self.operator}, impaired {self.impaired()}"]
        for node, machine in self.cluster.machines.items():
            program = self.program(node)
            if program is None:
                texts.append(f"node {node} {'starts' if machine.running else 'is down'}")
                continue
            for id, group in program.host.groups.items():
                texts.append(
                    f"node {node} group {id}: leader {group.leader} term {group.term} applied {group.applied} "
                    f"committed {group.committed} {group.conf_state!r} waits {program.clients[id].waits}"
                )
            texts.append(f"  directory {program.directory.stored()}")
        return "\n".join(texts)

    def _ask_later(self) -> None:
        self.queue.after(exponential_us(self._random, self.scenario.gap_us, SECOND_US), self._ask)

    def _ask(self) -> None:
        """Somebody wants something of some node."""
        if self._calm:
            return
        self._ask_later()
        random = self._random
        machine = random.choice(list(self.cluster.machines.values()))
        group, roll, size = random.randrange(self.scenario.profile.groups), random.random(), random.choice((0, 8, 150))
        program = machine.program
        if not isinstance(program, HostNode):
            return
        if roll < 0.1:
            machine.call(lambda: program.read_back(group, size))
        elif roll < 0.2:
            machine.call(lambda: program.read_index(group))
        else:
            machine.call(lambda: program.say_something(group, size, roll > 0.7))

    def _ask_in_calm(self, program: HostNode) -> None:
        for group in program.clients:
            program.say_something(group, 8, keep=True)
            program.say_something(group, 8, keep=False)

    def _converged(self) -> bool:
        members = self.members()
        return all(
            len({it.host.groups[group].applied for it in members if group in it.host.groups}) == 1
            for group in range(self.scenario.profile.groups)
        )

    def judge(self) -> list[Violation]:
        """In the end all members have one state, with everything in it that was answered."""
        violations: list[Violation] = []
        for group, observer in enumerate(self.observers):
            hosts = [it for it in self.members() if group in it.machines]
            digests = {it.machines[group].digest for it in hosts}
            if len(digests) != 1:
                text = f"in the end the members have {len(digests)} states of group {group}"
                violations.append(Violation("convergence", text))
                continue
            for program in hosts:
                observer.keeps_acknowledged(program.id, program.machines[group].counters)
            self.trace.add("end", group, digests.pop().hex(), observer.highest_applied)
        if not self.counts.get("answered"):
            violations.append(Violation("unanswered", "nothing was ever answered"))
        return violations

    def happened(self) -> dict[str, int]:
        """What faults and clients brought about."""
        happened = {**self.cluster.effects, **self.counts}
        inside = sum(machine.crashes_in_a_write for machine in self.cluster.machines.values())
        if inside:
            happened["crashed in a write"] = inside
        return dict(sorted(happened.items()))
