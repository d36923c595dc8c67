"""One life of a simulated host's process: the host, its replicas, and the shell that `node.shell.process` is in the
product.

The shell has what keeps a cluster safe around the host: it looks at the data of peers that greet it, ends the process
when the log was lost or a stored record is damaged, follows the members and takes the steps of their changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from mayfly.cluster.group.state_machine import Effect
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.host import Host
from mayfly.cluster.host.host import HostOutput as HostOutput
from mayfly.cluster.host.parts import HostParts
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import CorruptEntry, MissingEntry, WriteBatch
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.log.snapshot_codec import SnapshotGivenUp
from mayfly.cluster.raft import Entry, MessageType, RaftMessage
from simulation.cluster import host_machine as commands
from simulation.cluster.carried import carried
from simulation.cluster.host_invariants import HostObserver
from simulation.cluster.host_machine import ChainMachine, Directory, Echo, EchoCodec, payload_digest
from simulation.cluster.host_scenario import HostScenario
from simulation.cluster.machine import Machine, ProcessEnds
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.raft_invariants import InvariantError
from simulation.cluster.trace import Trace

LOST = "lost"
"""What waiters get whose answer can't be known."""

_LOOK_EVERY_MS = 500
_AGAIN_MS = 2_000
_STARTS_SHIFT = 20
_LONGEST_QUEUE = 6
CATALOG = 0


@dataclass(slots=True)
class HostAcquaintance:
    """What a node keeps beside its log: what its data is called, and whom it knew last (`node.membership.identity`)."""

    store: int
    members: list[int]
    version: int = 0
    joined: bool = False
    stores: dict[int, int] = field(default_factory=dict)
    """What the data of the members is called, as far as this node has ever heard."""


class HostClient:
    """Gives the commands of one life of a node to one group, numbered from 1, a few at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.given = 0
        self.done = 0
        self.waits_for_pieces = False
        """What is given meanwhile might overtake a command that goes in pieces: nothing is."""

    @property
    def waits(self) -> bool:
        """Whether something was given and not answered, be it by "lost"."""
        return self.done < self.given


class HostWorld(Protocol):
    """The run around the hosts, as one of them sees it."""

    scenario: HostScenario
    trace: Trace
    observers: list[HostObserver]
    known: dict[int, HostAcquaintance]

    def new_client(self) -> HostClient:
        """A client with a number that no other one ever has."""
        ...

    def program(self, node: int) -> HostNode | None:
        """What runs on a machine, if anything does."""
        ...

    def latest_clock_ms(self) -> int:
        """What the clock of a group may show at most."""
        ...

    def send(
        self, source: int, target: int, frame: Frame, result: Callable[[bool], None] | None = None
    ) -> None:
        """Put a frame on the network; with `result` it is a snapshot, on the stream for bulky things."""
        ...

    def as_sent(self, message: RaftMessage) -> RaftMessage:
        """A message with a snapshot as its sender has it in memory."""
        ...

    def send_away(self, node: int, why: str) -> None:
        """A node was told that it is out, or knows it itself."""
        ...

    def log_lost(self, node: int, why: str) -> None:
        """A leader showed a node that it once had more."""
        ...

    def has_voters(self, group: int, voters: Sequence[int]) -> bool:
        """Whether a group's leader shows these voters, and no change under way."""
        ...

    def count(self, what: str) -> None:
        """Something happened; tests want to see that it does."""
        ...

    def tell(self, text: str) -> None:
        """A line for people who read the trace."""
        ...


class HostNode:
    """The program of one process. Made anew at every start of its machine."""

    def __init__(
        self,
        world: HostWorld,
        machine: Machine[Frame, WriteBatch],
        disk: SimulatedDisk,
        known: HostAcquaintance,
        random: Random,
    ) -> None:
        self.id = machine.id
        self.machine = machine
        self.known = known
        profile = world.scenario.profile
        self._world = world
        self._disk = disk
        self._sending: dict[tuple[int, int], RaftMessage] = {}
        """Snapshots that are being read, by peer and group."""
        self._connected: dict[int, None] = {}
        self._up: dict[int, None] = {}
        self._seen_version = -1
        self._led: dict[int, int] = {}
        self._next_look_ms = 0
        self._barrier_since_ms = -_AGAIN_MS
        self._sent_away = False
        groups = range(profile.groups)
        founders = known.members if known.joined else world.scenario.founders
        self.directory = Directory(founders, list(groups), profile.replication_factor, profile.domain)
        self.machines: dict[int, ChainMachine] = {}
        self._echoed: dict[int, int] = {}
        """Group -> the last number of its client that was heard of."""
        self._lost: dict[int, None] = {}
        """Groups in which a session was lost since."""
        self.clients = {group: world.new_client() for group in groups}
        settings = HostSettings(
            self.id, known.members, profile.replication_factor, profile.tick_ms,
            profile.election_timeout_ms, profile.clock_bound_ms, profile.group(), bootstrap=not known.joined,
            everywhere=profile.everywhere,
        )  # fmt: skip
        parts = HostParts(
            self._machine, self, EchoCodec(), self._read_entry, EntryCache(profile.cache_bytes), random.randrange, LOST,
            world.tell,
        )  # fmt: skip
        self.host = Host(settings, groups, parts, machine.life << _STARTS_SHIFT)
        stored = disk.load()
        for group, shown in stored.items():
            world.observers[group].loaded(self.id, known.store, shown.hard_state)
        self._commits = {group: shown.hard_state.commit for group, shown in stored.items() if not shown.damage}
        """Up to where logs are known to be committed at start, while their kept payloads were not looked at."""
        self.first_write = self.host.start(stored, machine.now_ms())
        self.rebuilding = [group.id for group in self.host.groups.values() if group.rebuild is not None]
        self.submit(CATALOG, commands.STARTED, self.id, known.store)

    def _machine(self, group: int) -> ChainMachine:
        observer = self._world.observers[group]
        self.machines[group] = ChainMachine(
            self.directory if group == CATALOG else None,
            lambda index, data: observer.applying(self.id, Entry(self._term(group, index), index, 0, data)),
            lambda index, digest: observer.has_state(self.id, index, digest),
            observer.bodies,
        )
        return self.machines[group]

    def _term(self, group: int, index: int) -> int:
        return self.host.groups[group].log.term(index)

    def _read_entry(self, group: int, index: int) -> Entry:
        """As `node.shell.reading_back`: whoever asked must not go on, and the next start knows."""
        try:
            return self._disk.read_entry(group, index)
        except CorruptEntry as error:
            self._disk.mark_damaged(group, str(error))
            raise

    # ------------------------------------------------------------------ clients

    def submit(
        self, group: int, kind: int, first: int, second: int, then: Callable[[object], None] | None = None
    ) -> None:
        """Give a command to a group, through this node's session."""
        command = commands.encode_command(kind, first, second)
        self.host.submit(group, [command], len(command), True, then)

    def say_something(self, group: int, padding: int, keep: bool) -> None:
        """The next command of this node's client, unless many wait already."""
        client = self.clients[group]
        if client.given - client.done >= _LONGEST_QUEUE or client.waits_for_pieces:
            return
        client.given += 1
        number, observer = client.given, self._world.observers[group]

        def answered(result: object) -> None:
            client.done += 1
            client.waits_for_pieces = client.waits_for_pieces and client.done < client.given
            if client.done != number:
                raise InvariantError(f"command {number} of client {client.number} was answered as number {client.done}")
            if result != LOST:
                kind, *rest = result if isinstance(result, tuple) else (0,)
                observer.answered(client.number, number, (kind, *rest))
                self._world.count("answered")

        kind = commands.KEEP if keep else commands.COMMAND
        if 0 < self._world.scenario.profile.piece_bytes < padding:
            client.waits_for_pieces = True
            parts = commands.encode_large(kind, client.number, number, padding)
            if number % 2:
                # All of it is in the pieces, and is read where it is applied.
                parts = [b"".join(parts)]
            self.host.submit_large(group, parts, sum(map(len, parts)), True, answered)
            self._world.count("in pieces")
            return
        command = commands.encode_command(kind, client.number, number, padding)
        self.host.submit(group, [command], len(command), True, answered, number % 3 > 0)

    def read_back(self, group: int, choice: int) -> None:
        """Read a payload that is kept, from the log, as a delivery does."""
        if group in self._commits or group not in self.machines:
            # What it holds is of its snapshot; the log goes on to where some of it has been released.
            return
        kept = self.machines[group].kept
        if kept:
            index = kept[choice % len(kept)]
            data = self.host.groups[group].log.data(index)
            self._world.observers[group].payload_read(self.id, index, data)
            self._world.count("payload read")

    def _read_all_kept(self) -> None:
        """Once after the start: whatever the state refers to is there, as clients that wait for it would find."""
        for group, commit in list(self._commits.items()):
            if group not in self.host.groups:
                del self._commits[group]
            elif self.host.groups[group].applied >= commit:
                del self._commits[group]
                for choice in range(len(self.machines[group].kept)):
                    self.read_back(group, choice)

    def read_index(self, group: int) -> None:
        """Read what is current: all that any replica has applied by now must be there."""
        if group not in self.host.groups or self.host.sessions[group].is_fed:
            return
        observer = self._world.observers[group]
        least = observer.highest_applied

        def current(result: object) -> None:
            if result is None and group in self.machines:
                if self.machines[group].index < least:
                    raise InvariantError(
                        f"stale read at node {self.id}: group {group} is at {self.machines[group].index} here, "
                        f"{least} was applied before it began"
                    )
                self._world.count("read")

        self.host.read_index(group, current)

    # ------------------------------------------------------------------ what the host tells

    def group_effects(self, group: int, effects: Sequence[Effect]) -> None:
        """Each command of this life's client echoes once, in order, with what the log has."""
        client, observer = self.clients[group].number, self._world.observers[group]
        for echo in effects:
            if not isinstance(echo, Echo) or echo.client != client:
                continue
            before = self._echoed.get(group, 0)
            if echo.number <= before or (echo.number > before + 1 and group not in self._lost):
                raise InvariantError(
                    f"node {self.id} is told of command {echo.number} of group {group} after that of {before}"
                )
            self._echoed[group] = echo.number
            self._lost.pop(group, None)
            if self.host.sessions[group].is_fed:
                self._world.count("fed")
                known = observer.applied.get(echo.index)
                # What the replica here has kept for it comes without a digest, and is read from its log.
                digest = echo.digest or payload_digest(self.host.sessions[group].payload(echo.index))
                if known is None or payload_digest(known.data + observer.bodies.get(echo.index, b"")) != digest:
                    raise InvariantError(f"node {self.id} is told another payload of entry {echo.index}")

    def group_session_lost(self, group: int) -> None:
        """What was pending goes on in a new session."""
        self._lost[group] = None
        self._world.count("fed session lost" if self.host.sessions[group].is_fed else "session lost")

    def group_taken_up(self, group: int) -> None:
        """A replica begins."""
        self._world.count("taken up")

    def group_given_up(self, group: int) -> None:
        """A replica is no more."""
        del self.machines[group]
        if group in self.rebuilding:
            self.rebuilding.remove(group)
        self._world.count("given up")

    def group_proposes(self, group: int) -> None:
        """This node gives nothing of its own."""

    def group_applied(self, group: int) -> None:
        """Follow the members that the catalog has; older ones than were known before are passed over."""
        if group in self.rebuilding and self.host.groups[group].rebuild is None:
            self.rebuilding.remove(group)
            self._world.count("rebuilt")
        directory = self.directory
        if group != CATALOG or directory.version == self._seen_version or directory.version < self.known.version:
            return
        self._seen_version = self.known.version = directory.version
        self.known.members = directory.present()
        self.known.stores.update(directory.stores)
        everywhere = self._world.scenario.profile.everywhere
        self.host.set_members(self.known.members, directory.plan, self.machine.now_ms(), everywhere)
        life = self.machine.life
        self.machine.queue.after(0, lambda: self._follow_members(life))

    # ------------------------------------------------------------------ the gate

    def objection(self, peer: int, store: int) -> str:
        """Why a peer that shows this data is sent away for good, as `node.shell.membership`; "" for none."""
        if self.directory.states.get(peer) == commands.REMOVED:
            return "it was removed"
        named = self.directory.stores.get(peer, self.known.stores.get(peer, 0))
        return "it has other data than it had" if named and named != store else ""

    def lets_in(self, peer: int) -> bool:
        """Whether what a peer sends is taken: it is a member, or came after all that is known here."""
        if self.objection(peer, self._world.known[peer].store):
            return False
        states = self.directory.states
        return peer in states or peer in self.known.members or peer > max(states)

    def greet(self, peer: int) -> None:
        """Open the stream to a connected peer, if it lets this node in; it may send this node away for good."""
        other = self._world.program(peer)
        if other is None or peer not in self._connected:
            return
        why = other.objection(self.id, self.known.store)
        if why:
            self._go_away(f"node {peer} says: {why}")
        if other.lets_in(self.id):
            if peer not in self._up:
                self._up[peer] = None
                self.host.peer_up(peer, self.machine.now_ms())
        elif peer in self._up:
            del self._up[peer]
            self.host.peer_down(peer, self.machine.now_ms())

    def _go_away(self, why: str) -> None:
        if not self._sent_away:
            self._sent_away = True
            self._world.send_away(self.id, why)

    def _follow_members(self, life: int) -> None:
        """The members have changed: peers greet again, and learn whether they are let in still."""
        if self.machine.program is not self or self.machine.life != life:
            return
        if self.directory.states.get(self.id) == commands.REMOVED:
            self._go_away("it was removed")
            return
        for peer in list(self._connected):
            other = self._world.program(peer)
            if other is not None:
                other.machine.call(partial(other.greet, self.id))
            self.greet(peer)

    # ------------------------------------------------------------------ the outside that Machine drives

    def tick(self, now_ms: int) -> None:
        """See `Host.tick`."""
        self.host.tick(now_ms)
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + _LOOK_EVERY_MS
            self._do_duties(now_ms)

    def _do_duties(self, now_ms: int) -> None:
        """As `node.membership.duties`: the next step of a change after a barrier; who leaves is let go."""
        host, directory = self.host, self.directory
        if now_ms - self._barrier_since_ms > _AGAIN_MS and any(
            host.leadership.reconfiguration(group, now_ms) is not None for group in host.groups
        ):
            self._barrier_since_ms = now_ms

            def passed(result: object) -> None:
                if result != LOST and self._barrier_since_ms == now_ms:
                    self._barrier_since_ms = -_AGAIN_MS
                    host.reconfigure(now_ms)

            self.submit(CATALOG, commands.BARRIER, 0, 0, passed)
        if host.groups[CATALOG].established:
            leaving = [node for node, state in directory.states.items() if state == commands.LEAVING]
            if leaving and all(self._world.has_voters(id, directory.plan[id]) for id in directory.plan):
                for node in leaving:
                    self.submit(CATALOG, commands.GONE, node, 0)

    def settled(self) -> bool:
        """Whether every replica here shows the members that the directory here wants, and nobody comes or goes."""
        directory = self.directory
        if any(state in (commands.JOINING, commands.LEAVING) for state in directory.states.values()):
            return False
        for id, chosen in directory.plan.items():
            everywhere = self._world.scenario.profile.everywhere or id == CATALOG
            replicas = set(directory.present() if everywhere else chosen)
            group = self.host.groups.get(id)
            if group is None or self.id not in replicas:
                if group is not None or self.id in replicas:
                    return False
                continue
            conf = group.conf_state
            if conf.voters_outgoing or set(conf.voters) != set(chosen):
                return False
            if {*conf.voters, *conf.learners} != replicas or self.host.sessions[id].is_fed:
                return False
        return True

    def receive(self, peer_id: int, frame: Frame, now_ms: int) -> None:
        """See `Host.receive`. The transport takes nothing from a node that is not let in."""
        if not self.lets_in(peer_id):
            return
        for group, message in frame.raft:
            if message.type == MessageType.VOTE_RESP:
                self._world.observers[group].delivered(message)
        self.host.receive(peer_id, frame, now_ms)

    def peer_up(self, peer_id: int, now_ms: int) -> None:
        """See `Host.peer_up`."""
        self._connected[peer_id] = None
        self.greet(peer_id)

    def peer_down(self, peer_id: int, now_ms: int) -> None:
        """See `Host.peer_down`."""
        self._connected.pop(peer_id, None)
        if peer_id in self._up:
            del self._up[peer_id]
            self.host.peer_down(peer_id, now_ms)

    def peer_gone(self, peer_id: int) -> None:
        """See `Host.peer_gone`."""
        self.host.peer_gone(peer_id)

    def pump(self, now_ms: int) -> HostOutput:
        """See `Host.pump`."""
        if self.host.log_lost is not None:
            self._world.log_lost(self.id, self.host.log_lost)
            raise ProcessEnds(f"log lost: {self.host.log_lost}")
        output = self.host.pump(now_ms)
        self._look()
        if self._commits:
            self._read_all_kept()
        return output

    @property
    def busy(self) -> bool:
        """See `Host.busy`."""
        return self.host.busy

    def persisted(self, now_ms: int) -> None:
        """See `Host.persisted`."""
        self.host.persisted(now_ms)

    def disk_full(self, text: str) -> None:
        """The write is tried again; publishes would be refused meanwhile, commands are not."""
        self._world.count("disk full")

    def transmit(self, peer_id: int, frame: Frame) -> None:
        """Send a frame; snapshots leave it and go on a stream of their own, and their fate is reported."""
        snapshots = [pair for pair in frame.raft if pair[1].type == MessageType.SNAP]
        if peer_id not in self._up:
            for group, _ in snapshots:
                self._snapshot_fate(peer_id, group)(False)
            return
        send = self._world.send
        if snapshots:
            frame.raft = [pair for pair in frame.raft if pair[1].type != MessageType.SNAP]
        if not (snapshots and frame.empty()):
            send(self.id, peer_id, frame)
        for group, message in snapshots:
            self._world.count("snapshot sent")
            self._begin_snapshot(peer_id, group, message, frame.clock_ms)

    def _begin_snapshot(self, peer_id: int, group: int, message: RaftMessage, clock_ms: int) -> None:
        """Read a snapshot from the log for a while, and put it on the network then; at most one of a group to a peer,
        the newest."""
        machine, life = self.machine, self.machine.life
        self._sending[peer_id, group] = message

        def send() -> None:
            if machine.life == life and self._sending.get((peer_id, group)) is message:
                del self._sending[peer_id, group]
                machine.call(lambda: self._send_snapshot(peer_id, group, message, clock_ms))

        takes_us = self._world.scenario.snapshot_takes_us
        if takes_us:
            machine.queue.after(takes_us, send)
        else:
            del self._sending[peer_id, group]
            self._send_snapshot(peer_id, group, message, clock_ms)

    def _send_snapshot(self, peer_id: int, group: int, message: RaftMessage, clock_ms: int) -> None:
        if peer_id not in self._up:
            self._snapshot_fate(peer_id, group)(False)
            return
        alone = Frame(clock_ms)
        try:
            alone.raft.append((group, carried(group, self._world.as_sent(message))))
        except SnapshotGivenUp:
            self._world.count("snapshot given up")
            self._snapshot_fate(peer_id, group)(False)
            return
        except MissingEntry as error:
            raise InvariantError(f"node {self.id} was sending a snapshot of group {group}: {error}") from error
        self._world.send(self.id, peer_id, alone, self._snapshot_fate(peer_id, group))

    def _snapshot_fate(self, peer_id: int, group: int) -> Callable[[bool], None]:
        machine, life = self.machine, self.machine.life

        def report() -> None:
            if machine.life == life:
                machine.call(lambda: self.host.snapshot_sent(peer_id, group, arrived[0]))

        arrived = [False]

        def fate(did: bool) -> None:
            arrived[0] = did
            machine.queue.after(0, report)

        return fate

    def _look(self) -> None:
        """After every turn: the clocks of the groups, and who leads with which log."""
        latest_ms = self._world.latest_clock_ms()
        for id, group in self.host.groups.items():
            if group.clock.time_ms > latest_ms:
                raise InvariantError(
                    f"node {self.id}: the clock of group {id} is {group.clock.time_ms - latest_ms} ms further ahead of "
                    "true time than the clock of a minority may make it"
                )
            raw = group.raw
            if raw.leads and self._led.get(id) != raw.term:
                self._led[id] = raw.term
                observer = self._world.observers[id]
                observer.leads(self.id, raw.term)
                terms = {index: raw.term_at(index) for index in range(group.log.first_index(), raw.last_index + 1)}
                observer.leader_has(self.id, raw.term, terms)
                self._world.trace.add("leads", self.id, id, raw.term)
