"""One node without its shell: consensus, catalog, shards, leaders' duties and the way in for its clients.

The engine is pure: the shell (`node.shell.process` with sockets and disk, or the simulator) drives it as
`cluster.host.host` says. It is the `ClusterFacade` of the node's broker, and it tells the broker what the local
replicas decided.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.sessions import KIND_INTERNAL, encode_batch
from mayfly.cluster.group.state_machine import Effect, StateMachine
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.host import Host, HostOutput
from mayfly.cluster.host.parts import HostParts
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import StoredGroup, WriteBatch
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.notice_kinds import FEED
from mayfly.cluster.raft import Entry
from mayfly.cluster.versions import LEVEL_FED_MARKS
from mayfly.node import notice_kinds
from mayfly.node.amqp.content import Content
from mayfly.node.broker.access_counts import AccessCounts
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterEvents, OnDone, ShardHandle
from mayfly.node.broker.direct_replies import DirectReplies
from mayfly.node.broker.peer_questions import PeerQuestions
from mayfly.node.catalog import Catalog, CatalogCommand, NodeLost, NodeStarted, QueueMoved, RemoveQueues, encode
from mayfly.node.catalog.machine import CatalogMachine, frame_command
from mayfly.node.duties.alarms import MEMORY, Alarms
from mayfly.node.duties.catalog_spread import CatalogSpread
from mayfly.node.duties.distant_targets import KINDS as DISTANT_KINDS
from mayfly.node.duties.distant_targets import DistantTargets
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.quiet import Quiet, QuietPort
from mayfly.node.duties.shard_leader import ShardLeader
from mayfly.node.duties.upstream_mirrors import UpstreamMirrors
from mayfly.node.engine.feed_codec import ShardFeedCodec
from mayfly.node.engine.flow_control import FlowControl
from mayfly.node.engine.replicated_shard import ReplicatedShard
from mayfly.node.engine.settings import EngineSettings
from mayfly.node.membership.duties import MembershipDuties
from mayfly.node.numbers import CATALOG_GROUP, STARTS_SHIFT, is_transient, node_of
from mayfly.node.shard.room import Room
from mayfly.node.shard.shard import Shard
from mayfly.node.transient import streams
from mayfly.node.transient.lost_owners import LostOwners
from mayfly.node.transient.transient_shards import TransientShards

OPERATORS_ANSWER_WITHIN_MS: Final = 2_000
"""A node that has not answered an operator's question by then counts as one that cannot be reached."""


class Engine:
    """A whole node without sockets, disk and clock. See the module's text."""

    def __init__(
        self,
        host_settings: HostSettings,
        settings: EngineSettings,
        reader: Callable[[int, int], Entry],
        cache: EntryCache,
        random: Callable[[int], int],
        incarnation: int,
        trace: Callable[[str], None] | None = None,
        detail: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self.node_id: int = host_settings.node
        self.incarnation: int = incarnation
        self.catalog: Catalog = settings.catalog()
        self.shards: dict[int, Shard] = {}
        """Those that have a replica here."""
        self._catalog_machine = CatalogMachine(self.catalog, self._catalog_applied)
        parts = HostParts(
            self._machine, self, ShardFeedCodec(self._tells_marks), reader, cache, random, SESSION_LOST, trace, detail
        )
        self.host: Host = Host(host_settings, range(settings.shards + 1), parts, incarnation)
        port = QuietPort(
            lambda: self.host.peers, self.host.liveness.is_connected, self.host.send_notice,
            self.host.send_unhurried_notice, self.catalog_barrier, self._has_clients,
        )
        self.quiet: Quiet = Quiet(port, incarnation, lambda: self.spread.look())
        self.spread: CatalogSpread = CatalogSpread(self.host, self._catalog_machine, self.quiet.peer_is_quiet)
        self.membership: MembershipDuties = MembershipDuties(
            self.host, self.catalog, self, settings.membership, self._work, self._queue_works
        )
        self.broker: ClusterEvents | None = None
        self.large_transfers: LargeTransfers = LargeTransfers(
            self.host.leader_of, self._submit_large, host_settings.group.piece_bytes
        )
        self.transient: TransientShards = TransientShards(
            self.node_id, incarnation, self, self._send_notice, lambda: self.broker, _pumped_anyway,
            self.large_transfers, settings.large_body_bytes,
        )
        self.replies: DirectReplies = DirectReplies(self.node_id, self._send_notice, lambda: self.broker)
        self.questions: PeerQuestions = PeerQuestions(
            self._send_notice, notice_kinds.QUESTION, notice_kinds.ANSWER, OPERATORS_ANSWER_WITHIN_MS
        )
        """What operators ask here about other nodes."""
        self.lost_owners: LostOwners = LostOwners(
            self.node_id, lambda: self.catalog, host_settings.group.session_timeout_ms
        )
        self.access_counts: AccessCounts = AccessCounts()
        self.flow: FlowControl = FlowControl(self.host, self.transient, lambda: self.broker)
        self.alarms: Alarms = self.flow.alarms
        self._handles: dict[int, ShardHandle] = {}
        self._replicated: dict[int, ReplicatedShard] = {}
        self._leaders: dict[int, ShardLeader] = {}
        self._with_lanes: dict[int, ShardLeader] = {}
        """Those whose dead letters wait for other shards. That changes with the shard alone."""
        self.distant: DistantTargets = DistantTargets(self.shards, self.host)
        self.upstreams: UpstreamMirrors = UpstreamMirrors(
            self.catalog, self.shards, self.host.groups, self.transfer, random, self.large_transfers
        )
        self._changed: dict[int, None] = {}
        self._now_ms = 0
        self._lost_reported: set[tuple[int, int]] = set()
        self._catalog_touched = False
        self._later: list[OnDone] = []
        self._started = False

    def start(self, stored: dict[int, StoredGroup], now_ms: int) -> WriteBatch | None:
        """Take over what the log store holds. The batch returned must be on disk before anything else is done."""
        self._now_ms = now_ms
        first = self.host.start(stored, now_ms)
        for id in range(1, self._settings.shards + 1):
            self._attend(id)
        self._started = True
        self._add_shards()
        self.announce()
        return first

    def _attend(self, id: int) -> None:
        """Give commands to a shard that the host knows."""
        self._handles[id] = self._replicated[id] = ReplicatedShard(id, self.host, self.shards)

    def _add_shards(self) -> None:
        """Know all shards that the catalog here names."""
        members = self.catalog.members
        for id in range(len(self._replicated) + 1, members.shard_count + 1):
            self.host.add_group(id, members.first_voters(id) or ())
            self._attend(id)
            self.flow.group_added(id)

    def _machine(self, id: int) -> StateMachine:
        """The state machine of a replica that is taken up here."""
        if id == CATALOG_GROUP:
            return self._catalog_machine
        self.shards[id] = Shard(id, self.node_id)
        return self.shards[id]

    @property
    def untouched(self) -> bool:
        """Whether the replicas are as founders begin: the node has neither voted nor taken anything in.

        Where there are more founders than voters, shards may be led before the catalog is, whose voters are others;
        nothing is served then, and it must not keep those others out: so only groups of the catalog's voters count."""
        groups = self.host.groups
        voters = set(groups[CATALOG_GROUP].conf_state.voters)
        return all(group.untouched for group in groups.values() if voters.issuperset(group.conf_state.voters))

    def announce(self) -> None:
        """See `MembershipPort.announce`."""
        settings, membership = self._settings, self._settings.membership
        command = NodeStarted(
            self.node_id, self.incarnation, settings.name, settings.addresses, membership.store,
            membership.failure_domain, (membership.levels.lowest, membership.levels.highest),
        )
        self.submit_catalog(command, lambda _: None)

    # ------------------------------------------------------------------ driven by the shell

    def tick(self, now_ms: int) -> None:
        """Call every tick."""
        self._now_ms = now_ms
        if self.broker is not None:
            self.broker.ticked(now_ms)
        self.host.tick(now_ms)
        self.catalog.let_go()
        for id, leader in self._leaders.items():
            leader.tick(now_ms)
            self._note_lanes(id)
        self.upstreams.tick(now_ms)
        self.transient.tick(now_ms)
        self.replies.tick(now_ms)
        self.questions.tick(now_ms)
        self.lost_owners.tick(now_ms)
        later, self._later = self._later, []
        for done in later:
            done(None)
        self._drop_lost_nodes(now_ms)
        self.membership.tick(now_ms)
        self.quiet.tick(now_ms)
        self.spread.tick(now_ms)
        news = self.access_counts.news(self.catalog, now_ms)
        if news is not None:
            for peer in self.host.peers:
                self.host.send_notice(peer, notice_kinds.COUNTS, news)
        self.flow.tick(now_ms)
        self.host.cache.drop_spent(self._is_spent)

    def can_wait(self, now_ms: int, until_ms: int) -> bool:
        """Whether ticks may come as late as that: nothing waits for one, and nothing is due by then. (When replicas may
        stand for election is said by `Host.ticks_to_election`.)"""
        if until_ms - now_ms > GroupClock.LONGEST_LED_STEP_MS:
            return False  # Leases would be charged for a part of that time alone.
        if self.host.writing or self._later or self._with_lanes or self.transient.local.is_due_by(until_ms):
            return False
        return not any(leader.is_due_by(now_ms, until_ms) for leader in self._leaders.values())

    def _tells_marks(self) -> bool:
        return self.catalog.level >= LEVEL_FED_MARKS

    def _work(self, group: int) -> tuple[int, int]:
        shard = self.shards.get(group)
        return (0, 0) if shard is None else shard.work()

    def _queue_works(self, group: int) -> Iterator[tuple[int, int, int, bool]]:
        shard = self.shards.get(group)
        return iter(()) if shard is None else shard.queue_works()

    def _is_spent(self, id: int, index: int) -> bool:
        """Whether an entry of the log is applied here and holds nothing that this node is likely to look at again: what
        is still to be delivered, by consumers of this node, or as the leader of its group."""
        shard = self.shards.get(id)
        if id not in self.host.groups:
            return True
        group = self.host.groups[id]
        if index > group.applied or group.holds_pieces(index):
            return False
        return shard is None or index not in shard.live_entries() or not (group.leads or self._consumes_from(id))

    def receive(self, peer: int, frame: Frame, now_ms: int) -> None:
        """A frame of a peer."""
        self._now_ms = now_ms
        self.host.receive(peer, frame, now_ms)
        if frame.notices:
            for kind, data in frame.notices:
                if kind == FEED:
                    continue  # The host has taken it, and they are many.
                if kind == notice_kinds.APPLIED:
                    self.spread.notice(peer, data)
                elif kind == notice_kinds.QUIET:
                    self.quiet.notice(peer, data)
                elif kind == notice_kinds.COUNTS:
                    self.access_counts.told(peer, data)
                elif kind == notice_kinds.ALARMS:
                    self.alarms.notice(peer, data)
                elif kind == notice_kinds.GROUPS:
                    self.membership.plan.notice(data, now_ms)
                elif kind in DISTANT_KINDS:
                    self.distant.notice(peer, kind, data)
                self.questions.notice(peer, kind, data)
                self.transient.notice(peer, kind, data)
                self.replies.notice(peer, kind, data)

    def peer_up(self, peer: int, now_ms: int) -> None:
        """The stream to a peer opened."""
        self.host.peer_up(peer, now_ms)
        self.transient.peer_up(peer)
        self.replies.peer_up(peer)
        self.questions.peer_up(peer)
        self.lost_owners.peer_up(peer, now_ms)
        self.quiet.peer_up(peer)
        self.spread.peer_up(peer)
        self.host.send_notice(peer, notice_kinds.COUNTS, self.access_counts.encoded(self.catalog))
        self.alarms.peer_up(peer)

    def peer_down(self, peer: int, now_ms: int) -> None:
        """The stream to a peer broke."""
        self.host.peer_down(peer, now_ms)
        self.lost_owners.peer_down(peer)
        self.transient.peer_down(peer)
        self.replies.peer_down(peer)
        self.questions.peer_down(peer)
        self.quiet.peer_down(peer)
        self.spread.peer_down(peer)
        self.access_counts.forget(peer)
        self.alarms.peer_down(peer)

    def peer_gone(self, peer: int) -> None:
        """See `Host.peer_gone`."""
        self.host.peer_gone(peer)

    def pump(self, now_ms: int) -> HostOutput:
        """Do what is due; frames to send and a batch to write. Call again while `busy`."""
        self._now_ms = now_ms
        worked = self.busy
        self.catalog.routing_turns.begin()
        self.transient.pump(now_ms)
        output = self.host.pump(now_ms)
        if self._changed:
            changed, self._changed = self._changed, {}
            for id in changed:
                if id in self._leaders:
                    self._leaders[id].advance(now_ms)
                    self._note_lanes(id)
            for id, leader in self._with_lanes.items():
                if id not in changed:
                    leader.others_changed(now_ms)
            self.distant.applied(changed)
        elif self.distant.take_news():
            for leader in self._with_lanes.values():
                leader.others_changed(now_ms)
        # What was given since the last time, or is applied now, made somebody busy before.
        if worked:
            self.flow.backlog_changed()
        return output

    def _note_lanes(self, id: int) -> None:
        leader = self._leaders[id]
        if leader.has_lanes:
            self._with_lanes[id] = leader
        else:
            self._with_lanes.pop(id, None)

    @property
    def busy(self) -> bool:
        """Whether `pump` should be called again at once."""
        return self.host.busy or self.transient.busy or self.catalog.routing_turns.has_waiting

    def persisted(self, now_ms: int) -> None:
        """The batch of the last `pump` is on disk."""
        self._now_ms = now_ms
        self.host.persisted(now_ms)
        self.flow.persisted(now_ms)

    def disk_full(self, text: str) -> None:
        """The batch could not be written for lack of room; the shell keeps trying."""
        self.flow.disk_full(text, self._now_ms)

    def disk_space(self, text: str | None) -> None:
        """The shell's look at the disk: why publishers must be blocked, or None when there is room."""
        self.flow.disk_space(text)

    def memory_used(self, text: str | None) -> None:
        """The shell's look at the memory of the process: why publishers must be blocked, or None."""
        self.alarms.set(MEMORY, text)

    def cpu_used(self, permille: int) -> None:
        """The shell's look at the process: how much of a core it has taken since the last one, in thousandths."""
        self.membership.plan.loads.cpu_permille = permille

    # ------------------------------------------------------------------ ClusterFacade

    def submit_catalog(self, command: CatalogCommand, done: OnDone) -> None:
        """See `ClusterFacade.submit_catalog`."""
        parts = frame_command(encode(command))
        self.host.submit(CATALOG_GROUP, parts, sum(map(len, parts)), True, done)

    def catalog_barrier(self, done: OnDone) -> None:
        """See `ClusterFacade.catalog_barrier`."""
        self.host.read_index(CATALOG_GROUP, done)

    def catalog_spread(self, done: OnDone, everywhere: bool = False) -> None:
        """See `ClusterFacade.catalog_spread`; with `everywhere` nodes without clients are waited for, too."""
        self.spread.wait(self._now_ms, everywhere, done)

    def serve(self, done: OnDone) -> None:
        """See `ClusterFacade.serve`."""
        self.quiet.serve(partial(done, None))

    def _consumes_from(self, shard_id: int) -> bool:
        return self.broker is not None and self.broker.consumes_from(shard_id)

    def _has_clients(self) -> bool:
        return self.broker is not None and self.broker.has_clients()

    def later(self, done: OnDone) -> None:
        """See `ClusterFacade.later`."""
        self._later.append(done)

    def await_owner(self, queue_id: int, done: OnDone) -> None:
        """See `ClusterFacade.await_owner`."""
        self.lost_owners.wait(queue_id, done)

    def reply(self, address: str, content: Content) -> None:
        """See `ClusterFacade.reply`."""
        self.replies.reply(address, content)

    def ask_for_reply_address(self, address: str, done: OnDone) -> None:
        """See `ClusterFacade.ask_for_reply_address`."""
        self.replies.ask(address, done)

    def shard(self, shard_id: int) -> ShardHandle:
        """See `ClusterFacade.shard`."""
        handle = self._handles.get(shard_id)
        if handle is not None:
            return handle
        if is_transient(shard_id):
            return self.transient.handle(node_of(shard_id))
        # It was added in the entry that the catalog is applying, and a queue was declared there in the same one.
        self._add_shards()
        return self._handles[shard_id]

    def pending_bytes(self) -> int:
        """See `FlowControl.pending_bytes`."""
        return self.flow.pending_bytes()

    @property
    def now_ms(self) -> int:
        """See `ClusterFacade.now_ms`."""
        return self._now_ms

    @property
    def overloaded(self) -> bool:
        """See `ClusterFacade.overloaded`."""
        return self.flow.overloaded

    @property
    def blocked(self) -> str | None:
        """See `ClusterFacade.blocked`."""
        return self.alarms.reason

    @property
    def no_room(self) -> str | None:
        """See `ClusterFacade.no_room`."""
        return self.flow.no_room

    # ------------------------------------------------------------------ GroupEvents

    def group_effects(self, group: int, effects: Sequence[Effect]) -> None:
        """Deliveries and cancellations for this node's consumers."""
        if self.broker is not None:
            self.broker.shard_effects(group, effects)
        handle = self._replicated.get(group)
        if handle is not None:
            handle.delivered()

    def group_taken_up(self, group: int) -> None:
        """There is a replica here from now on."""
        if group != CATALOG_GROUP:
            give = partial(self.host.propose_internal, group)
            expiry_tick_ms = self._settings.expiry_tick_ms
            replica = self.host.groups[group]
            borrow = partial(self.host.propose_borrowing, group)
            large = LargeBodies(
                replica.log, borrow, self.large_transfers, self.catalog, self._settings.large_body_bytes
            )
            self._leaders[group] = ShardLeader(self.shards[group], replica, self, give, expiry_tick_ms, large)
            self._note_lanes(group)

    def group_given_up(self, group: int) -> None:
        """There is no replica here any more."""
        del self.shards[group], self._leaders[group]
        self._with_lanes.pop(group, None)
        self._changed.pop(group, None)

    def group_session_lost(self, group: int) -> None:
        """The group dropped this node's session."""
        if group != CATALOG_GROUP and self.broker is not None:
            self.broker.session_lost(group)

    def group_proposes(self, group: int) -> None:
        """What is due in the group's shard may go with the entry that is made."""
        if group in self._leaders:
            self._leaders[group].join_entry(self._now_ms)

    def group_applied(self, group: int) -> None:
        """The group's state changed."""
        self._changed[group] = None
        if group == CATALOG_GROUP:
            self.spread.applied()
            if self._catalog_touched:
                self._catalog_touched = False
                self._catalog_changed()

    def _catalog_applied(self) -> None:
        self._catalog_touched = True
        if self._started:
            self._add_shards()

    def _catalog_changed(self) -> None:
        for other in self.catalog.nodes():
            self.host.has_started(other.id, other.incarnation >> STARTS_SHIFT << STARTS_SHIFT)
        record = self.catalog.node(self.node_id)
        if record is not None and record.incarnation == self.incarnation and not record.alive:
            self.incarnation += 1
            self.announce()
        self.membership.catalog_changed(self._now_ms)
        self.lost_owners.catalog_changed()
        removed = self._catalog_machine.take_removed()
        if self.broker is not None:
            if removed:
                self.broker.queues_removed(removed)
            self.broker.catalog_changed()

    # ------------------------------------------------------------------ DutyPort

    def transfer(self, target_shard: int, command: bytes) -> None:
        """See `DutyPort.transfer`."""
        if is_transient(target_shard):
            self.transient.transfer(target_shard, command)
        else:
            if target_shard not in self.shards:
                self.distant.transfer(target_shard, command)
                return
            # Dropped where it was received before, repeated until the target's replica here shows that it was.
            batch = encode_batch(KIND_INTERNAL, 0, 0, 0, command)
            self.host.send_internal(target_shard, batch, unordered=True)

    def _submit_large(
        self, shard: int, parts: list[bytes], size_bytes: int, applied: Callable[[object], None]
    ) -> None:
        self.host.submit_large(shard, parts, size_bytes, False, applied, counts=False)

    def _send_notice(self, peer: int, kind: int, data: bytes) -> None:
        self.host.send_notice(peer, kind, data, unordered=kind in streams.UNORDERED)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        """See `DutyPort.received_up_to`."""
        if is_transient(target_shard):
            return self.transient.received_up_to(target_shard, queue, source)
        shard = self.shards.get(target_shard)
        if shard is None:
            return self.distant.received_up_to(target_shard, queue, source)
        return shard.received_up_to(queue, source)

    def ask_again(self, target_shard: int, queue: int, source: int) -> None:
        """See `DutyPort.ask_again`."""
        if not is_transient(target_shard) and target_shard not in self.shards:
            self.distant.ask_again(target_shard, queue, source, self._now_ms)

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        """See `DutyPort.room`."""
        if is_transient(target_shard):
            return self.transient.room(target_shard, queue, source, next_bytes)
        shard = self.shards.get(target_shard)
        if shard is None:
            return self.distant.room(target_shard, queue, source, next_bytes, self._now_ms)
        return shard.room(queue, source, next_bytes)

    def leads(self, shard_id: int) -> bool:
        """See `ClusterFacade.leads`."""
        if is_transient(shard_id):
            return shard_id == self.transient.local.shard.shard_id
        return self.host.leader_of(shard_id) == self.node_id

    def leader_of(self, shard_id: int) -> int:
        """The node that leads a shard, as far as is known here; 0: none is."""
        return self.host.leader_of(shard_id)

    def has_leader(self, shard: int) -> bool:
        """See `DutyPort.has_leader`."""
        return self.host.leader_of(shard) != 0

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        """See `DutyPort.queue_moved`."""
        self.submit_catalog(QueueMoved(queue, source, target, number), lambda _: None)

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        """See `DutyPort.remove_queues`."""
        self.submit_catalog(RemoveQueues(ids), lambda result: done(result is not SESSION_LOST))

    @property
    def is_waited_for(self) -> bool:
        """See `DutyPort.is_waited_for`."""
        return self.quiet.serves

    def barrier(self, done: Callable[[], None]) -> None:
        """See `DutyPort.barrier`."""

        def current(result: object) -> None:
            if result is not SESSION_LOST:
                done()

        self.catalog_barrier(current)

    def _drop_lost_nodes(self, now_ms: int) -> None:
        """The catalog's leader takes out nodes that have not been heard of for the session timeout."""
        group = self.host.groups[CATALOG_GROUP]
        if not group.established:
            self._lost_reported.clear()
            return
        timeout_ms = self.host.settings.group.session_timeout_ms
        for record in self.catalog.nodes():
            known = (record.id, record.incarnation)
            if not record.alive or known in self._lost_reported:
                continue
            if not self.host.liveness.heard_within(record.id, now_ms, timeout_ms):
                self._lost_reported.add(known)
                self.submit_catalog(NodeLost(*known), lambda _: None)


def _pumped_anyway() -> None:
    """Whoever gives a command to a transient shard is in the middle of a turn that ends with `pump`."""
