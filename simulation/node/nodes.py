"""A whole node on a simulated machine: the engine and the broker, and the simulator's shell around them.

The shell does what `node.shell.process` does with sockets, threads and LMDB: it gives the engine time, frames
and a disk, sends Raft's snapshots on a stream of their own, and passes octets between clients and the
broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.pieces import PIECE_BYTES
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.host import HostOutput
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import CorruptEntry, MissingEntry, WriteBatch
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.log.snapshot_codec import SnapshotGivenUp
from mayfly.cluster.raft import Entry, MessageType
from mayfly.cluster.versions import LEVEL_FEEDS, LEVELS, VersionRange
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.catalog import Catalog
from mayfly.node.engine.drain import NOT_DRAINING, TEXT_OF_STOP, Drain, DrainSettings
from mayfly.node.engine.engine import Engine
from mayfly.node.engine.settings import EngineSettings
from mayfly.node.limits import CONSUMER_WINDOW_BYTES, LARGE_BODY_BYTES
from mayfly.node.membership.group_loads import Work
from mayfly.node.membership.plan_duty import PlanSettings
from mayfly.node.membership.queue_balance import HOT_FOR_MS
from mayfly.node.membership.settings import MembershipSettings
from simulation.cluster.carried import carried
from simulation.cluster.machine import Machine, ProcessEnds
from simulation.cluster.memory_store import SimulatedDisk
from simulation.logged_failures import hear
from simulation.node.probe import Probe, Seen
from simulation.node.sockets import Wire

MILLISECOND_US = 1_000
CURRENT_AGAIN_US = 50_000
DRAIN_ACKS_MS = 300
DRAIN_TIMEOUT_MS = 3_000
SOCKET_BYTES = 8_000
"""What a socket keeps for a client that does not read before it says that this is much."""
LARGEST_BYTES = 5_000
"""More than any message of a run counts for, without dead letters."""


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """The settings of all nodes of a run; see `node.settings` for their meaning."""

    shards: int = 3
    replication_factor: int = 3
    level: int = LEVELS.highest
    """The highest feature level that the nodes know."""
    tick_ms: int = 50
    heartbeat_ms: int = 100
    election_timeout_ms: int = 700
    session_timeout_ms: int = 5_000
    expiry_tick_ms: int = 250
    clock_bound_ms: int = 2_000
    session_window: int = 4
    entry_bytes: int = 1 << 20
    compact_bytes: int = 1 << 26
    compact_entries: int = 20_000
    cache_bytes: int = 1 << 20
    window_bytes: int = CONSUMER_WINDOW_BYTES
    large_body_bytes: int = LARGE_BODY_BYTES
    piece_bytes: int = PIECE_BYTES
    replace_after_ms: int = 600_000
    hot_for_ms: int = HOT_FOR_MS
    rests: bool = False
    """Whether nodes are at rest in turn, as far as their heartbeats go: those of a run always have something to do."""
    messages_weigh: int = 1
    """As so many each message counts where the load of shards is measured: clients of a run have few."""


@dataclass(slots=True)
class Acquaintance:
    """What a node keeps about the cluster besides its log: whom it knew last, whether it joined later, and, where a run
    minds them, its name and what its data is called."""

    members: list[int]
    founders: tuple[int, ...] = ()
    version: int = 0
    joined: bool = False
    name: str = ""
    store: str = ""
    failure_domain: str = ""


RESTS_FOR_TICKS = 7
QUIET_AFTER_MS = 200
"""Nodes have no clients for a moment only here, between those that come and go."""


class SimulatedNode:
    """One life of a node's process: made anew at every start of its machine."""

    def __init__(
        self,
        machine: Machine[Frame, WriteBatch],
        disk: SimulatedDisk,
        known: Acquaintance,
        profile: NodeProfile,
        random: Random,
        probe: Probe,
        sent_away: Callable[[int], None],
    ) -> None:
        """`sent_away(node)` is told when this node refuses another one for good, or learns that it is out itself."""
        self.machine = machine
        self._disk = disk
        self._known = known
        self._sent_away = sent_away
        self._connected: dict[int, None] = {}
        self._up: dict[int, None] = {}
        self.probe = probe
        self.ready = False
        self._tick_ms = profile.tick_ms
        self._rests = profile.rests
        self._ticks = 0
        self._looked_ms = machine.now_ms()
        self._led: dict[int, int] = {}
        """The groups that were led here at the last look, and in which term."""
        self.engine = _make_engine(machine.id, machine.life, self._read_entry, known, profile, random)
        self.engine.membership.changed = self._members_changed
        self.first_write = self.engine.start(disk.load(), machine.now_ms())
        self._seen: dict[int, Seen] = {}
        self.broker = Broker(
            probe.watch(self),
            lambda: random.randbytes(16),
            BrokerSettings(
                consumer_window_bytes=profile.window_bytes, large_body_bytes=profile.large_body_bytes
            ),
        )
        self.engine.broker = probe.watch_effects(self, self.broker)
        self.engine.quiet.quiet_after_ms = QUIET_AFTER_MS
        self.drain = Drain(self.engine.host, self.broker, self, DrainSettings(0, DRAIN_ACKS_MS, DRAIN_TIMEOUT_MS))
        self._random = random
        self._sockets: dict[int, ServerSocket] = {}
        self._next_socket = 0
        self._dirty: dict[int, ServerSocket] = {}
        self.engine.catalog_barrier(self._become_ready)

    @property
    def seen(self) -> list[Seen]:
        """What the probe saw of each replica that is here, the last time."""
        groups = self.engine.host.groups
        if list(self._seen) != list(groups):
            known = self._seen
            self._seen = {
                id: known[id] if id in known and known[id].group is group else self._see(id, group)
                for id, group in groups.items()
            }
        return list(self._seen.values())

    def _see(self, group_id: int, group: Group) -> Seen:
        if group.rebuild is not None:
            self.probe.rebuilt()
        return Seen(group_id, group)

    def _read_entry(self, group: int, index: int) -> Entry:
        """Read an entry back. One that rotted is noted and ends the process; the next start rebuilds its replica."""
        try:
            return self._disk.read_entry(group, index)
        except CorruptEntry as error:
            self._disk.mark_damaged(group, str(error))
            # Whoever asked may go on without that message; the process ends all the same.
            self.later(0, partial(self._stop, str(error)))
            raise

    def _stop(self, why: str) -> None:
        raise ProcessEnds(why)

    def _become_ready(self, result: object) -> None:
        """Clients are served once the catalog here is up to date; a question that is given up is asked again."""
        if result is None:
            self.ready = True
        else:
            self.later(CURRENT_AGAIN_US, lambda: self.engine.catalog_barrier(self._become_ready))

    # ------------------------------------------------------------------ draining

    def begin_drain(self) -> None:
        """The process was told to stop."""
        self.drain.begin(TEXT_OF_STOP, self.machine.now_ms())

    def take_no_clients(self) -> None:
        """See `DrainPort.take_no_clients`."""
        self.ready = False

    def pending_bytes(self) -> int:
        """See `DrainPort.pending_bytes`."""
        return self.engine.pending_bytes()

    # ------------------------------------------------------------------ clients

    def accept(self, wire: Wire) -> bool:
        """Take a client's connection; False while the node does not serve yet."""
        if not self.ready:
            return False
        self._next_socket += 1
        socket = ServerSocket(self, self._next_socket, wire)
        self._sockets[self._next_socket] = socket
        wire.server = socket
        return True

    def flush(self) -> None:
        """Write what the turn of the loop has made for clients."""
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for socket in dirty.values():
                socket.flush()

    def mark(self, socket: ServerSocket) -> None:
        """The socket has something to write at the end of the turn."""
        self._dirty[socket.number] = socket

    def forget(self, socket: ServerSocket) -> None:
        """A client is gone."""
        self._sockets.pop(socket.number, None)
        self._dirty.pop(socket.number, None)

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Run something in this process after a while, unless it has died by then."""
        machine, life = self.machine, self.machine.life

        def run() -> None:
            if machine.serving and machine.life == life:
                machine.call(action)

        machine.queue.after(delay_us, run)

    # ------------------------------------------------------------------ the outside that Machine drives

    def tick(self, now_ms: int) -> None:
        """See `Engine.tick`."""
        self._look(now_ms)
        self._ticks += 1
        if self._rests:
            self.engine.host.pace.at_rest = (self._ticks // RESTS_FOR_TICKS + self.machine.id) % 2 == 0
        self.engine.tick(now_ms)
        if self.drain.step != NOT_DRAINING:
            self.drain.tick(now_ms)

    def _look(self, now_ms: int) -> None:
        """Ticks may be further apart than those of any real node, whose leaders are charged for the time between two
        looks, up to a limit (RULES L6). They are charged for all of it here, but for that of a freeze."""
        if self._tick_ms <= GroupClock.LONGEST_LED_STEP_MS:
            return
        passed_ms = min(now_ms - self._looked_ms, self._tick_ms)
        self._looked_ms = now_ms
        led = {id: group for id, group in self.engine.host.groups.items() if group.leads}
        for id, group in led.items():
            clock = group.clock
            before_ms = clock.led_ms
            clock.advance_led(now_ms)
            if self._led.get(id) == group.term:
                clock.led_ms = max(clock.led_ms, before_ms + passed_ms)
        self._led = {id: group.term for id, group in led.items()}

    def receive(self, peer_id: int, frame: Frame, now_ms: int) -> None:
        """See `Engine.receive`. The transport takes nothing from a node that is not let in."""
        if self._lets_in(peer_id):
            if peer_id not in self._up:
                self._meet(peer_id, now_ms)
            self.engine.receive(peer_id, frame, now_ms)

    def peer_up(self, peer_id: int, now_ms: int) -> None:
        """See `Engine.peer_up`."""
        self._connected[peer_id] = None
        self._meet(peer_id, now_ms)

    def peer_down(self, peer_id: int, now_ms: int) -> None:
        """See `Engine.peer_down`."""
        self._connected.pop(peer_id, None)
        if peer_id in self._up:
            del self._up[peer_id]
            self.engine.peer_down(peer_id, now_ms)

    def peer_gone(self, peer_id: int) -> None:
        """See `Engine.peer_gone`."""
        self.engine.peer_gone(peer_id)

    def _lets_in(self, peer_id: int) -> bool:
        """As `node.shell.membership` decides: members, and those who came after all that is known here."""
        members = self.engine.catalog.members
        record = members.get(peer_id)
        if record is not None:
            return record.state != "removed"
        return not members.founded or all(other.id < peer_id for other in members.all())

    def _meet(self, peer_id: int, now_ms: int) -> None:
        """The two ends of a connection have greeted each other."""
        if self._lets_in(peer_id):
            if peer_id not in self._up and peer_id in self._connected:
                self._up[peer_id] = None
                self.engine.peer_up(peer_id, now_ms)
            return
        record = self.engine.catalog.members.get(peer_id)
        if record is not None and record.state == "removed":
            self._sent_away(peer_id)

    def _members_changed(self) -> None:
        """The catalog has other members: what the shell does about it comes after the engine's turn."""
        members = self.engine.catalog.members
        self._known.members = [record.id for record in members.with_replicas()]
        self._known.version = members.version
        self.later(0, self._follow_members)

    def _follow_members(self) -> None:
        if self.engine.membership.removed:
            self._sent_away(self.machine.id)
            return
        now_ms = self.machine.now_ms()
        for peer_id in list(self._connected):
            if peer_id in self._up and not self._lets_in(peer_id):
                del self._up[peer_id]
                self.engine.peer_down(peer_id, now_ms)
            self._meet(peer_id, now_ms)

    def pump(self, now_ms: int) -> HostOutput:
        """See `Engine.pump`; clients get what is theirs. No node of these runs comes back with less than it had."""
        if self.engine.host.log_lost is not None:
            raise AssertionError(f"node {self.machine.id} is told that its log was lost: {self.engine.host.log_lost}")
        self._look(now_ms)
        output = self.engine.pump(now_ms)
        if self._dirty:
            self.flush()
        return output

    @property
    def busy(self) -> bool:
        """See `Engine.busy`."""
        return self.engine.busy

    def persisted(self, now_ms: int) -> None:
        """See `Engine.persisted`."""
        self.engine.persisted(now_ms)

    def disk_full(self, text: str) -> None:
        """See `Engine.disk_full`."""
        self.engine.disk_full(text)

    def transmit(self, peer_id: int, frame: Frame, network_send: Callable[..., None]) -> None:
        """Send a frame; snapshots and what is unordered leave it and go on a stream of their own. The fate of snapshots
        is reported."""
        snapshots = [pair for pair in frame.raft if pair[1].type == MessageType.SNAP] if frame.raft else []
        if peer_id not in self._up:
            for group, _ in snapshots:
                self._reporter(peer_id, group)(False)
            return
        if snapshots:
            frame.raft = [pair for pair in frame.raft if pair[1].type != MessageType.SNAP]
        unordered = frame.take_unordered()
        # A frame with nothing in it tells the peer this node's clock, and that it lives.
        if not ((snapshots or unordered is not None) and frame.empty()):
            network_send(self.machine.id, peer_id, frame)
        if unordered is not None:
            network_send(self.machine.id, peer_id, unordered, bulk=True)
        for group, message in snapshots:
            alone = Frame(frame.clock_ms)
            try:
                alone.raft.append((group, carried(group, message)))
            except (MissingEntry, SnapshotGivenUp):
                self._reporter(peer_id, group)(False)
                continue
            network_send(
                self.machine.id, peer_id, alone, bulk=True, result=self._reporter(peer_id, group)
            )

    def _reporter(self, peer_id: int, group: int) -> Callable[[bool], None]:
        def report(arrived: bool) -> None:
            self.later(0, lambda: self.engine.host.snapshot_sent(peer_id, group, arrived))

        return report


class ServerSocket:
    """The node's end of a client's connection: the `ConnectionHost` of its `ClientConnection`."""

    def __init__(self, node: SimulatedNode, number: int, wire: Wire) -> None:
        self.node = node
        self.number = number
        self.connection: ClientConnection = node.broker.connect(self, f"client-{number}", True)
        self._wire = wire
        self._unsent: list[tuple[int, bytes]] = []
        """What the client does not take, with the time from which on the broker can't take it back."""
        self._unsent_bytes = 0
        self._most_unsent = most_unsent_bytes(node.broker.settings.consumer_window_bytes)
        self._held: list[bytes] = []

    # What the wire calls.

    def receive(self, octets: bytes) -> None:
        """Octets from the client; held back while the broker does not want to read."""
        if self._held or not self.connection.pressure.wants_reading:
            self._held.append(octets)
            return
        self.connection.receive(octets)

    def lost(self) -> None:
        """The client is gone."""
        self.node.forget(self)
        self.connection.lost()

    def client_reads_again(self) -> None:
        """What was kept goes to the client, unless it has stopped again."""
        if self._wire.client_reads:
            unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
            for left_us, octets in unsent:
                self._wire.write_from_server(octets, left_us)
            self._drained()

    # What the broker calls.

    def wake(self) -> None:
        """See `ConnectionHost.wake`."""
        self.node.mark(self)

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        """See `ConnectionHost.verify_password`: the slow check is another thread's, and not simulated."""
        self.node.later(5 * MILLISECOND_US, lambda: done(password == "guest"))

    def reading_changed(self) -> None:
        """See `ConnectionHost.reading_changed`."""
        if self._held and self.connection.pressure.wants_reading:
            held, self._held = self._held, []
            for octets in held:
                self.receive(octets)

    def flush(self) -> None:
        """Send what the connection has to write."""
        octets = b"".join(self.connection.flush())
        if self._unsent or not self._wire.client_reads:
            self._keep(octets)
            return
        # These sockets take everything at once.
        self._drained()
        if octets:
            self._wire.write_from_server(octets, self.node.machine.queue.now_us)
        if self.connection.over:
            self._wire.close_by_server()

    def _keep(self, octets: bytes) -> None:
        if octets:
            self._unsent.append((self.node.machine.queue.now_us, octets))
            self._unsent_bytes += len(octets)
        if self._unsent_bytes > SOCKET_BYTES:
            self.connection.pressure.set_output_blocked(True)
        if self._unsent_bytes > self._most_unsent:
            raise AssertionError(f"{self._unsent_bytes} octets wait for a client, {self._most_unsent} at most expected")

    def _drained(self) -> None:
        self.connection.pressure.set_output_blocked(False)
        self.connection.pressure.set_output_full(False)


def most_unsent_bytes(window_bytes: int) -> int:
    """What may wait in a node for a client that has one consumer and does not read.

    While its socket keeps less than is much, all that comes is said to be taken, and what comes then is a window more,
    in the turn in which the socket finds out, and another one behind what was said in that turn.
    """
    return SOCKET_BYTES + 2 * (window_bytes + LARGEST_BYTES)


def _make_engine(
    node_id: int,
    life: int,
    read_entry: Callable[[int, int], Entry],
    known: Acquaintance,
    profile: NodeProfile,
    random: Random,
) -> Engine:
    group = GroupSettings(
        election_ticks=max(2, profile.election_timeout_ms // profile.tick_ms),
        heartbeat_ticks=max(1, profile.heartbeat_ms // profile.tick_ms),
        session_window=profile.session_window,
        batch_bytes=profile.entry_bytes // 2,
        entry_bytes=profile.entry_bytes,
        repeat_after_ms=2 * profile.election_timeout_ms,
        session_timeout_ms=profile.session_timeout_ms,
        compact_bytes=profile.compact_bytes,
        compact_entries=profile.compact_entries,
        inflight_bytes=1 << 24,
        piece_bytes=profile.piece_bytes,
    )
    host = HostSettings(
        node_id,
        known.members,
        profile.replication_factor,
        profile.tick_ms,
        profile.election_timeout_ms,
        profile.clock_bound_ms,
        group,
        bootstrap=not known.joined,
        everywhere=profile.level < LEVEL_FEEDS,
    )
    founders = [] if known.joined else [(id, f"node-{id}", f"machine {id}") for id in known.founders]
    membership = MembershipSettings(
        known.store,
        founders,
        known.version,
        known.failure_domain,
        VersionRange(LEVELS.lowest, profile.level),
        PlanSettings(profile.replace_after_ms, hot_for_ms=profile.hot_for_ms),
    )
    name = known.name or f"node-{node_id}"
    settings = EngineSettings(
        name, profile.shards, profile.expiry_tick_ms, {}, lambda: Catalog(profile.shards), membership,
        profile.large_body_bytes,
    )
    engine = Engine(
        host, settings, read_entry, EntryCache(profile.cache_bytes), random.randrange, life << 20, hear
    )
    loads = engine.membership.plan.loads
    work = loads.work

    def weighed(group: int) -> Work:
        messages, size_bytes = work(group)
        return messages * profile.messages_weigh, size_bytes

    loads.work = weighed
    return engine
