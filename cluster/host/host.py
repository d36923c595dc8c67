"""All replicas of one node, driven as one: ticks, frames, one write at a time.

The host is pure. The shell around it (asyncio, or the simulator) calls

    start(stored, now)             once, with what the log store holds
    tick(now)                      every tick
    receive(peer, frame, now)      for every frame of a peer
    peer_up / peer_down            when a peer's stream opens or breaks
    peer_gone                      when its process has ended
    pump(now) -> HostOutput            after any of these, after commands were submitted, and when `HostOutput.due_ms`
    has come persisted(now)                 when the write that `pump` returned is on disk; then pump again

`pump` gathers what became due for all groups: one frame for each peer, one write batch for the disk. While a write is
under way no other is returned; what comes due meanwhile goes into the next one. That is all the batching there is.

Whom it hears is in `cluster.host.liveness`, what it sends them in `cluster.host.outgoing_frames`, what is to be
written in `cluster.host.pending_writes`, who should lead and vote in `cluster.host.leadership`.

All times are the node's process clock in ms (see `cluster.group.clock`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.clock import MemberClocks
from mayfly.cluster.group.fed_entry import FeedCodec
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.rebuilding import Rebuild, SilentReplicas, decode_request
from mayfly.cluster.group.sessions import NOT_HELD, EnvelopeError, check_batches
from mayfly.cluster.group.state_machine import GroupEvents, StateMachine
from mayfly.cluster.host.delayed_appends import NEVER_DUE
from mayfly.cluster.host.disk_pace import DiskPace
from mayfly.cluster.host.disk_watch import DiskWatch
from mayfly.cluster.host.draining import Draining
from mayfly.cluster.host.feeding import KINDS as FEEDING_KINDS
from mayfly.cluster.host.feeding import BadFeeding, Feeding
from mayfly.cluster.host.first_state import bootstrap, founding_members, given_up, is_given_up, set_aside
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.heartbeats import BadHeartbeats, GroupHeartbeats
from mayfly.cluster.host.leadership import Leadership
from mayfly.cluster.host.liveness import Liveness
from mayfly.cluster.host.outgoing_frames import OutgoingFrames
from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import CorruptEntry, CorruptStore, StoredGroup, WriteBatch
from mayfly.cluster.log.group_log import EntryCache, GroupLog
from mayfly.cluster.raft import ConfState, Entry, HardState, LogLost, MessageType, RaftError, RaftMessage

NEVER: Final = -1

BALANCE_EVERY_MS: Final = 1000
"""How often leaders are balanced, silent sessions closed, rebuilds asked for and logs compacted."""

SLOW_SHARE_OF_ELECTION_TIMEOUT: Final = 3
"""A disk whose writes take a third of the election timeout is slow (see `cluster.host.disk_pace`)."""

PREFERRED_CAMPAIGNS_WITHIN_TICKS: Final = 4
"""How soon the preferred leader of a group stands for election when it starts."""

QUIET_WORDS_IN_ELECTION_TIMEOUT: Final = 2
"""How often a peer at least that is told nothing otherwise hears that this node lives."""

MOST_ROUNDS_PER_PUMP: Final = 8
"""What one turn does may give further groups something to do; after so many rounds the rest waits for the next pump."""


class HostOutput:
    """What `Host.pump` wants done: frames to send, and a batch to write (None: nothing, or one is under way).

    `write_waits`: whether something is to be done as soon as the batch is on disk; if not, it is soon enough to call
    `persisted` before the next `pump`.

    `due_ms` is when `pump` is to be called again though nothing happens until then; NEVER if it need not be."""

    __slots__ = ("due_ms", "frames", "write", "write_waits")

    def __init__(
        self, frames: dict[int, Frame], write: WriteBatch | None, due_ms: int = NEVER, write_waits: bool = True
    ) -> None:
        self.frames = frames
        self.write = write
        self.due_ms = due_ms
        self.write_waits = write_waits


class HostParts:
    """What a host is made with: the layer above, the log of this node, and where it says what it does."""

    def __init__(
        self,
        machine: Callable[[int], StateMachine],
        events: GroupEvents,
        codec: FeedCodec,
        reader: Callable[[int, int], Entry],
        cache: EntryCache,
        random: Callable[[int], int],
        lost: object,
        trace: Callable[[str], None] | None = None,
        detail: Callable[[str], None] | None = None,
    ) -> None:
        """`machine(id)` makes the state machine of a replica that is begun or taken up. `lost`: see `OwnSession`.
        `trace` is told what an operator wants to know, `detail` every turn of every group's consensus."""
        self.machine: Callable[[int], StateMachine] = machine
        self.events: GroupEvents = events
        self.codec: FeedCodec = codec
        self.reader: Callable[[int, int], Entry] = reader
        self.cache: EntryCache = cache
        self.random: Callable[[int], int] = random
        self.lost: object = lost
        self.trace: Callable[[str], None] | None = trace
        self.detail: Callable[[str], None] | None = detail


class Host:
    """The replicas of one node, and its sessions with all groups. `ids` are those of all groups of the cluster."""

    def __init__(self, settings: HostSettings, ids: Sequence[int], parts: HostParts, incarnation: int) -> None:
        self.settings: HostSettings = settings
        self.node: int = settings.node
        self.members: list[int] = list(settings.nodes)
        """The nodes that have a replica of every group, this one too unless it was removed."""
        self.peers: list[int] = [node for node in settings.nodes if node != settings.node]
        self.clocks: MemberClocks = MemberClocks(settings.clock_bound_ms)
        self.groups: dict[int, Group] = {}
        """Those that have a replica here."""
        self._parts = parts
        self._incarnation = incarnation
        self.sessions: dict[int, OwnSession] = {id: self._new_session(id) for id in ids}
        self.liveness: Liveness = Liveness(settings.node, settings.election_timeout_ms)
        self._lives: dict[int, int] = {}
        """Node -> the lowest incarnation of the process that it is now."""
        self._heartbeats: GroupHeartbeats = GroupHeartbeats(settings.node, self.groups)
        self._outgoing: OutgoingFrames = OutgoingFrames(
            settings.node, self.peers, self.groups, self.liveness, self._heartbeats
        )
        self._feeding: Feeding = Feeding(settings.node, self.groups, self.sessions, parts.codec, self.send_notice)
        self.cache: EntryCache = parts.cache
        self.clock_refusals: int = 0
        """How often a campaign was held back because this node's clock is too far ahead (RULES C3)."""
        self.log_lost: str | None = None
        """Why this node must not go on: entries that it once stored are gone, its votes could lose them for all."""
        self.short_of_disk: bool = False
        """Whether what is dead in the logs should give its room back early."""
        self._stored: dict[int, StoredGroup] = {}
        """What is stored of groups that are not known yet."""
        self._trace = parts.trace
        self._leaders_told: dict[int, tuple[int, int]] = {}
        self._writes: PendingWrites = PendingWrites()
        self._dirty: dict[int, None] = {}
        self._ticks = 0
        heartbeat_ms = settings.group.heartbeat_ticks * settings.tick_ms
        self._quiet_ticks = settings.group.heartbeat_ticks * max(
            1, settings.election_timeout_ms // (QUIET_WORDS_IN_ELECTION_TIMEOUT * heartbeat_ms)
        )
        """Every so many ticks all peers hear of this node; in between, those to whom there is something to say."""
        self._held: dict[int, int] = {}
        """Groups for which commands wait for company -> until when."""
        self._next_balance_ms = 0
        self._excess_noted = False
        self._silent_replicas: SilentReplicas = SilentReplicas()
        self.disk: DiskWatch = DiskWatch(settings.election_timeout_ms)
        self.disk_pace: DiskPace = DiskPace(settings.election_timeout_ms // SLOW_SHARE_OF_ELECTION_TIMEOUT)
        self._draining: Draining = Draining()
        self.leadership: Leadership = Leadership(settings, self.groups, ids, self.liveness, self._draining)
        self._begun: dict[int, HardState] = {}
        """Groups without a replica here for which this node has voted, or has given its replica up."""
        self._planned = False
        """Whether it is known from the catalog where replicas shall be."""

    # ------------------------------------------------------------------ start

    def start(self, stored: dict[int, StoredGroup], now_ms: int) -> WriteBatch | None:
        """Build the groups from what is stored. Returns a batch that must be on disk before anything else is done
        (groups that are new, or leftovers to release), or None."""
        first = WriteBatch()
        self._stored = dict(stored)
        for id in self.sessions:
            founds = self.settings.bootstrap and not stored and self._is_planned(id)
            self._begin(id, founding_members(self.settings, id), founds, first)
        self.liveness.expect(self.peers, now_ms)
        return None if first.empty() else first

    def add_group(self, id: int, first_voters: Sequence[int]) -> None:
        """A group that the cluster has got since its founding: at any time after `start`, in every life of this node.

        It goes on from what is stored. Where nothing is, it begins: on a node that is one of the `first_voters`, the
        preferred leader first, as all of these do, whenever they hear of it and whoever votes by then; on others with
        nothing, if they are to have a replica, until its leader sends them its state. So a node must not lose what it
        had of a group, and come under the same id to begin it once more: it could vote twice in a term.
        """
        self.sessions[id] = self._new_session(id)
        self.leadership.plan.setdefault(id, tuple(first_voters))
        first = WriteBatch()
        self._begin(id, ConfState(voters=sorted(first_voters)), self.node in first_voters, first)
        for write in first.groups.values():
            # What the group writes next comes behind it, and what it says that has to be on disk waits for that.
            self._writes.gather(write)

    def _new_session(self, id: int) -> OwnSession:
        parts = self._parts
        return OwnSession(id, self.node, self._incarnation, self.settings.group, parts.events, parts.lost)

    def _begin(self, id: int, began: ConfState, begins: bool, first: WriteBatch) -> None:
        """Take up what is stored of a group that `began` with those members, or, if `begins` and nothing is stored,
        begin it with them; a replica of which no more is left than what this node promised stays given up. What has to
        be stored before the group's next write goes into `first`."""
        known = self._stored.pop(id, None)
        if known is None and begins:
            known = bootstrap(began, first.group(id))
        if known is None or (known.snapshot is None and not known.damage) or is_given_up(known):
            if known is not None:
                self._begun[id] = known.hard_state
            if self.leadership.is_everywhere(id):
                self._open(id, first)
            return
        rebuild: Rebuild | None = None
        if known.damage:
            known, rebuild = set_aside(self.node, began, known, alone=not self.peers)
            self._tell(f"group {id} is damaged and will be rebuilt from the other nodes: {rebuild.damage}")
        self.sessions[id].is_told_by_replica()
        self._take_up(id, known, rebuild, first)
        self.submit(id, [b""], 0, False, None)

    def _is_planned(self, id: int) -> bool:
        """Whether this node shall have a replica of a group, as far as it knows by now."""
        return self.leadership.is_everywhere(id) or self.node in self.leadership.replicas(id)

    def _take_up(self, id: int, known: StoredGroup, rebuild: Rebuild | None, first: WriteBatch) -> None:
        parts = self._parts
        machine = parts.machine(id)
        log = GroupLog(id, parts.reader, parts.cache)
        group = Group(
            self.sessions[id], known, log, machine, self.settings.group, parts.random, self._detail_of(id), rebuild
        )
        live = set(machine.live_entries())
        orphans = [index for index in known.retained if index not in live]
        if orphans:
            first.group(id).release += orphans
        self.groups[id] = group
        self._prefer_here(group)
        self._dirty[id] = None
        parts.events.group_taken_up(id)

    def _open(self, id: int, first: WriteBatch) -> None:
        """Begin a replica with nothing, which waits to be sent a snapshot. What this node promised stays (Raft 5.2)."""
        promised = self._begun.pop(id, HardState())
        nothing = StoredGroup(HardState(promised.term, promised.vote, 0), None, [], [])
        if self.leadership.is_everywhere(id):
            self.sessions[id].is_told_by_replica()
            self.submit(id, [b""], 0, False, None)
        self._take_up(id, nothing, None, first)

    def _give_up(self, group: Group) -> None:
        """This node shall have no replica of the group, and is no member of it: drop it, but for term and vote."""
        write = given_up(group.id, group.hard_state)
        self._begun[group.id] = write.hard_state or HardState()
        del self.groups[group.id]
        self._held.pop(group.id, None)
        self._leaders_told.pop(group.id, None)
        self.cache.discard_group(group.id)
        self._writes.gather(write)
        self._tell(f"group {group.id} has no replica at node {self.node} any more")
        self._parts.events.group_given_up(group.id)

    def _detail_of(self, id: int) -> Callable[[str], None] | None:
        detail = self._parts.detail
        return None if detail is None else lambda text: detail(f"group {id}: {text}")

    def _tell_leader(self, group: Group) -> None:
        leader = (group.leader, group.term)
        if self._trace is not None and group.leader and self._leaders_told.get(group.id) != leader:
            self._leaders_told[group.id] = leader
            self._trace(f"group {group.id} is led by node {group.leader} in term {group.term}")

    def _ask_for_rebuilds(self, now_ms: int) -> None:
        for group in self.groups.values():
            if group.rebuild is not None:
                for peer in self.peers:
                    if not group.intake.is_busy(peer, now_ms):
                        self.send_notice(peer, notice_kinds.REBUILD, group.rebuild.request(group.id))

    def _send_rebuild(self, peer: int, data: bytes, now_ms: int) -> None:
        request = decode_request(data)
        if request is None or request[0] not in self.groups:
            self._refuse(peer, f"request of {len(data)} bytes to rebuild a group")
            return
        self._silent_replicas.asked(request[0], peer, now_ms)
        group = self.groups[request[0]]
        if not group.send_rebuild(peer, request[1]):
            self.leadership.hand_over(group, peer, now_ms)
        self._dirty[group.id] = None

    def _prefer_here(self, group: Group) -> None:
        """The preferred leader campaigns early, so that leaders are spread from the start."""
        if self.leadership.preferred(group.id) == self.node:
            group.raw.campaign_within(PREFERRED_CAMPAIGNS_WITHIN_TICKS)

    # ------------------------------------------------------------------ members

    def set_members(
        self, members: Sequence[int], plan: Mapping[int, Sequence[int]], now_ms: int, everywhere: bool = False
    ) -> None:
        """The cluster has these members from now on, and its groups shall be voted on according to the plan: there
        are replicas on those nodes, or on all (`everywhere`)."""
        for peer in self.peers:
            if peer not in members:
                self.liveness.forget(peer)
                self._outgoing.forget(peer)
                self._heartbeats.forget(peer)
                self.clocks.forget(peer)
        self.members = sorted(members)
        self.peers = self._outgoing.peers = [node for node in self.members if node != self.node]
        self.liveness.expect(self.peers, now_ms)
        self.leadership.set_members(members, plan, everywhere)
        self._planned = True
        if self.node not in members:
            for group in self.groups.values():
                group.leave()
        self._follow_plan()

    def _follow_plan(self) -> None:
        """Begin replicas that shall be here, and have sessions fed whose replica shall not."""
        if not self._planned or self.node not in self.members:
            return
        for id, session in self.sessions.items():
            if self._is_planned(id):
                if id not in self.groups and id not in self._writes.groups:
                    self._open(id, WriteBatch())
                elif session.is_fed:
                    self._dirty[id] = None
                else:
                    session.stay_with_replica()
            elif id in self.groups and not session.is_fed and not session.wants_feeds:
                session.ask_to_be_fed()
                self._dirty[id] = None

    def reconfigure(self, now_ms: int) -> None:
        """Take the next step of reconfiguration in every group that is led here and needs one."""
        self._have_work(self.leadership.reconfigure(now_ms))

    def set_draining(self, draining: bool) -> None:
        """Hand over all that is led here, and lead nothing as long as others can; or take part again. Not stored."""
        self._draining.set(draining)
        self._say_whether_draining()

    def _say_whether_draining(self) -> None:
        for peer in self.peers:
            self.send_notice(peer, notice_kinds.DRAINING, self._draining.word())

    def _have_work(self, ids: list[int]) -> None:
        for id in ids:
            self._dirty[id] = None

    # ------------------------------------------------------------------ input

    def tick(self, now_ms: int) -> None:
        """Time has passed: one tick of every group, heartbeats of clocks, sessions of nodes that went silent."""
        excess = self.clocks.excess_ms()
        if excess and not self._excess_noted and self._trace is not None:
            self._trace(f"clock of node {self.node} is {excess} ms beyond the bound: it stamps without the excess")
        self._excess_noted = excess > 0
        self.disk.looked(now_ms)
        stuck, quick = self.disk.is_stuck(now_ms), self.disk.may_lead(now_ms)
        # All groups' heartbeats and the clocks' go in one frame: a frame costs more than what is in it.
        since_heartbeat = self._ticks % self.settings.group.heartbeat_ticks
        beats = since_heartbeat + 1 == self.settings.group.heartbeat_ticks
        self._ticks += 1
        for session in self.sessions.values():
            if session.is_fed and (session.is_broken or not session.sender.idle or self._feeding.waits(session)):
                self._dirty[session.group] = None
        for group in self.groups.values():
            outvoted = excess > 0 and self.clocks.outvoted(
                group.conf_state.voters, self._silent_replicas.of(group.id, now_ms)
            )
            if stuck and group.leads and not group.raw.decides_alone:
                self._resign(group, now_ms)
            if outvoted and not group.leads and group.raw.is_election_due:
                self.clock_refusals += 1
            group.raw.pace_heartbeats(since_heartbeat)
            if group.intake.reading_from:
                self._read_snapshot(group, now_ms)
            group.tick(now_ms, not outvoted and (quick or group.raw.decides_alone))
            if beats and group.leads:
                self._heartbeats.are_due(group)
            if group.has_work:
                self._dirty[group.id] = None
        if beats:
            self._heartbeat(now_ms, self._ticks % self._quiet_ticks == 0)
        self._draining.disk_was_late = not quick or self.disk_pace.slow
        if self._draining.is_to_be_said(now_ms):
            self._say_whether_draining()
        if self._draining.here:
            self._have_work(self.leadership.drain(now_ms))
        if now_ms >= self._next_balance_ms:
            self._next_balance_ms = now_ms + BALANCE_EVERY_MS
            self._follow_plan()
            self._close_silent_sessions(now_ms)
            if self.disk_pace.hands_over(now_ms) and not self._draining.here:
                self._have_work(self.leadership.drain(now_ms))
            self._have_work(self.leadership.balance(now_ms))
            self._ask_for_rebuilds(now_ms)
            for group in self.groups.values():
                if group.compact(self._slowest_match(group), self.short_of_disk):
                    self._dirty[group.id] = None

    def _resign(self, group: Group, now_ms: int) -> None:
        """A write hangs: let somebody lead whose disk does not (see `cluster.host.disk_watch`)."""
        self._tell(f"group {group.id}: node {self.node} gives the lead up, its disk hangs")
        late = [peer for peer in self.peers if self._draining.disk_is_late(peer, now_ms)]
        draining = [peer for peer in self.peers if self._draining.drains(peer, now_ms)]
        message = group.resign(late, draining)
        if message is not None:
            self._outgoing.to(message.to).raft.append((group.id, message))

    def _heartbeat(self, now_ms: int, to_all: bool) -> None:
        for peer in self.peers:
            if to_all or self._outgoing.has_unhurried(peer):
                self._outgoing.to(peer)  # It hears of this node, and of its clock, whatever there is to say.
        for group in self.groups.values():
            if group.established:
                clock = (group.id, group.clock.current_ms(now_ms), group.clock.led_ms)
                for peer in self.peers:
                    if group.has_member(peer):
                        self._outgoing.to(peer).group_clocks.append(clock)
        self._feeding.heartbeat(self.peers, self.leadership.replicas, to_all)
        for peer, data in self._heartbeats.take_due():
            self._outgoing.to(peer).notices.append((notice_kinds.HEARTBEATS, data))

    def receive(self, peer: int, frame: Frame, now_ms: int) -> None:
        """A frame of a peer. What does not fit is left out, the rest is taken. Raises CorruptEntry alone, as `tick`
        and `pump` do: an entry of this node's own log is damaged."""
        self.liveness.heard(peer, now_ms)
        self.clocks.observe(peer, frame.clock_ms, now_ms)
        for id, message in frame.raft:
            self._step(peer, id, message, now_ms)
        for kind, data in frame.notices:
            if kind == notice_kinds.REBUILD:
                self._send_rebuild(peer, data, now_ms)
            elif kind in (notice_kinds.HEARTBEATS, notice_kinds.ANSWERS):
                self._take_heartbeats(peer, kind, data, now_ms)
            elif kind in FEEDING_KINDS:
                self._take_feeding(peer, kind, data, now_ms)
            elif kind == notice_kinds.DRAINING and not self._draining.heard(peer, data, now_ms):
                self._refuse(peer, f"word of draining in {len(data)} bytes")
        for id, time_ms, led_ms in frame.group_clocks:
            group = self.groups.get(id)
            if group is not None and group.leader == peer:
                group.clock.observed(time_ms, led_ms, now_ms, group.term)
        for id, batches in frame.proposals:
            group = self.groups.get(id)
            try:
                check_batches(batches)
            except EnvelopeError as malformed:
                self._refuse(peer, str(malformed))
                continue
            if group is not None:
                group.take_proposal(batches, peer)
                self._dirty[id] = None

    def _step(self, peer: int, id: int, message: RaftMessage, now_ms: int) -> None:
        if message.from_ != peer or message.to != self.node:
            self._refuse(peer, f"Raft message for group {id} from {message.from_} to {message.to}")
            return
        group = self.groups.get(id)
        if group is None:
            return  # Its replica here was given up, or it was added, and the catalog here has not told of it yet.
        if message.type == MessageType.TIMEOUT_NOW and not self.disk.may_lead(now_ms):
            return  # Who leads means to hand over to us, and has not heard yet that our disk was late.
        try:
            group.step(message, now_ms)
        except (RaftError, CorruptStore) as error:
            self._not_taken(peer, id, error)
        self._tell_of_intake(group)
        self._dirty[id] = None

    def _read_snapshot(self, group: Group, now_ms: int) -> None:
        """Go on with a snapshot that came in an earlier message: it is stepped only when all of it was read."""
        peer = group.intake.reading_from
        try:
            group.read_snapshot(now_ms)
        except (RaftError, CorruptStore) as error:
            self._not_taken(peer, group.id, error)
        self._tell_of_intake(group)
        self._dirty[group.id] = None

    def _not_taken(self, peer: int, id: int, error: Exception) -> None:
        if isinstance(error, LogLost):
            self.log_lost = f"group {id}: {error}"
        elif isinstance(error, CorruptEntry):
            raise error  # Of our own disk: we must not go on.
        else:
            self._refuse(peer, str(error))

    def _take_heartbeats(self, peer: int, kind: int, data: bytes, now_ms: int) -> None:
        changed: list[int] = []
        try:
            if kind == notice_kinds.HEARTBEATS:
                changed, messages = self._heartbeats.take_heartbeats(peer, data)
            else:
                messages = self._heartbeats.take_answers(peer, data)
        except BadHeartbeats as error:
            self._refuse(peer, str(error))
            return
        for id in changed:
            self._dirty[id] = None
        for id, message in messages:
            self._step(peer, id, message, now_ms)

    def _take_feeding(self, peer: int, kind: int, data: bytes, now_ms: int) -> None:
        try:
            changed = self._feeding.take(peer, kind, data, now_ms)
        except BadFeeding as error:
            self._refuse(peer, str(error))
            return
        for id in changed:
            self._dirty[id] = None
            group = self.groups.get(id)
            if kind == notice_kinds.LEADS and group is not None:
                self._is_told_out(group)

    def _is_told_out(self, group: Group) -> None:
        """A leader says that this node is no member of its group."""
        if not self._planned or self.leadership.is_everywhere(group.id) or not self._feeding.is_out(group):
            return
        if group.leads or group.in_flight is not None or group.rebuild is not None:
            return
        session = group.session
        if not session.is_fed:
            # Its replica will hear nothing more.
            group.stop_telling()
        if not self._is_planned(group.id):
            self._give_up(group)

    def _refuse(self, peer: int, text: str) -> None:
        self._tell(f"node {peer} sent what can't be used: {text}")

    def _tell_of_intake(self, group: Group) -> None:
        complaint = group.intake.take_complaint()
        if complaint:
            self._tell(complaint)

    def _tell(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)

    def peer_up(self, peer: int, now_ms: int) -> None:
        """The stream to a peer is open (again): what was sent before may be lost."""
        self.liveness.up(peer, now_ms)
        self._outgoing.stream_changed()
        for id in self._feeding.peer_changed(peer):
            self._dirty[id] = None
        if peer in self.peers:
            self._feeding.peer_up(peer)
        for group in self.groups.values():
            if group.leader == peer:
                group.forget_sent()
                self._dirty[group.id] = None
            elif group.leads:
                # A snapshot whose fate nobody reported would leave this member without entries for ever.
                group.raw.report_snapshot(peer, False)
                self._dirty[group.id] = None

    def peer_down(self, peer: int, now_ms: int) -> None:
        """The stream to a peer broke: its process is probably gone."""
        self.liveness.down(peer)
        self._outgoing.peer_down(peer)
        self._feeding.peer_changed(peer)
        self._feeding.peer_lost(peer)
        self.clocks.away(peer)
        for group in self.groups.values():
            if group.leads:
                group.raw.report_unreachable(peer)
            elif group.leader == peer:
                group.hasten_election(peer)
                self._dirty[group.id] = None

    def peer_gone(self, peer: int) -> None:
        """Nobody has listened for a while where a peer did whose stream broke: its process has ended, and will not be
        heard of again. Its sessions end without waiting for the timeout."""
        self.liveness.gone(peer)

    def has_started(self, node: int, incarnation: int) -> None:
        """A node has started: sessions of a lower incarnation are over. It may itself have nothing to say to a group of
        which it has no replica, and so never end what an earlier life of it began there."""
        self._lives[node] = incarnation

    def snapshot_sent(self, peer: int, id: int, ok: bool) -> None:
        """The transport has delivered a snapshot to a peer, or given up."""
        group = self.groups.get(id)
        if group is not None and group.leads:
            group.raw.report_snapshot(peer, ok)
            self._dirty[id] = None

    def submit(
        self,
        id: int,
        parts: list[bytes],
        size_bytes: int,
        answers: bool,
        waiter: Callable[[object], None] | None,
        hurried: bool = True,
    ) -> None:
        """Commands of this node's session with a group; see `SessionSender.add`."""
        self.sessions[id].give(parts, size_bytes, answers, waiter, hurried)
        self._dirty[id] = None

    def hurry(self, id: int) -> None:
        """What was given to a group, and waits for company, is to go now."""
        if self.sessions[id].sender.is_holding:
            self.sessions[id].sender.hurry()
            self._dirty[id] = None

    def read_index(self, id: int, done: Callable[[object], None]) -> None:
        """`done(None)` when the replica here is current; see `Group.read_index`."""
        self.groups[id].read_index(done)
        self._dirty[id] = None

    def propose_internal(self, id: int, commands: bytes) -> bool:
        """Commands of the leader of group `id`, which must be here; False if it is not."""
        self._dirty[id] = None
        return self.groups[id].propose_internal(commands)

    def send_internal(self, id: int, batch: bytes, unordered: bool = False) -> bool:
        """An encoded internal batch for a group's leader, wherever it is; False if none is known. It may get lost. For
        `unordered` see `Frame`."""
        group = self.groups.get(id)
        leader, _ = self._feeding.leader_of(id)
        if leader == 0:
            return False
        if leader == self.node:
            if group is not None:
                group.take_proposal(batch)
                self._dirty[id] = None
        else:
            frame = self._outgoing.to(leader)
            (frame.apart() if unordered else frame).proposals.append((id, batch))
        return True

    def send_notice(self, peer: int, kind: int, data: bytes, unordered: bool = False) -> None:
        """A notice of an upper layer; it may get lost when the stream breaks. For `unordered` see `Frame`."""
        frame = self._outgoing.to(peer)
        (frame.apart() if unordered else frame).notices.append((kind, data))

    # ------------------------------------------------------------------ output

    def pump(self, now_ms: int) -> HostOutput:
        """Do all that is due. See the module's text."""
        sent_before = self._writes.has_gathered
        if self._held:
            for id, due_ms in self._held.items():
                if now_ms >= due_ms:
                    self._dirty[id] = None
        for _ in range(MOST_ROUNDS_PER_PUMP):
            if not self._dirty:
                break
            dirty, self._dirty = self._dirty, {}
            for id in dirty:
                self._advance(id, now_ms)
        write = self._writes.begin()
        write_waits = True
        if write is not None:
            self.disk.began(now_ms, self._writes.under_way_bytes)
            # What gathers behind it waits for its end in any case.
            write_waits = (
                sent_before
                or self._writes.has_gathered
                or any(not self._waits_for_others(id) for id in write.groups)
            )
        frames = self._outgoing.take(now_ms)
        due_ms = self._outgoing.due_ms()
        if self._held:
            due_ms = min(due_ms, min(self._held.values()))
        return HostOutput(frames, write, NEVER if due_ms == NEVER_DUE else due_ms, write_waits)

    def _waits_for_others(self, id: int) -> bool:
        """Whether what is now written of a group, and leaves for the others in this turn, needs one of them as well to
        be committed: their answer comes later than this node's own disk, or is waited for anyway."""
        group = self.groups.get(id)
        return group is not None and group.leads and not group.raw.decides_alone and group.in_flight is not None

    @property
    def busy(self) -> bool:
        """Whether `pump` left something to do at once (its rounds are bounded)."""
        return bool(self._dirty)

    @property
    def writing(self) -> bool:
        """Whether a write is under way."""
        return self._writes.under_way is not None

    @property
    def writes_until_stored(self) -> int:
        """After how many writes, from the one under way on, all is on disk that waits for it by now; 0: it is."""
        return self._writes.until_stored

    def leader_of(self, id: int) -> int:
        """The node that leads a group, whether it has a replica here or not; 0: none is known."""
        return self._feeding.leader_of(id)[0]

    def _advance(self, id: int, now_ms: int) -> None:
        group, session = self.groups.get(id), self.sessions[id]
        if session.is_fed and not self._planned:
            # Perhaps every node is to have a replica of everything: then nothing is fed.
            leader, term = 0, 0
        elif session.is_fed:
            leader, term = self._advance_fed(session, group, now_ms)
        elif group is not None:
            leader, term = group.leader, group.term
        else:
            return
        if group is not None:
            batches = group.route(leader, term, now_ms)
        else:
            batches = session.route(leader, term, now_ms)
        if batches:
            self._outgoing.to(leader).proposals += [(id, batch) for batch in batches]
        if session.sender.held_until_ms != NOT_HELD:
            self._held[id] = session.sender.held_until_ms
        elif id in self._held:
            del self._held[id]
        if group is not None:
            self._advance_replica(group, now_ms)
        elif leader and not session.is_broken and session.sender.can_send:
            self._dirty[id] = None

    def _advance_fed(self, session: OwnSession, group: Group | None, now_ms: int) -> tuple[int, int]:
        """See that the session is told by whoever can; the leader and the term."""
        leader, term = self._feeding.leader_of(session.group)
        if group is not None and self._is_planned(session.group):
            kept = group.tell_session()
            if not kept and leader == self.node and group.established:
                session.is_broken = True
        if session.is_fed and group is not None and group.tell_from_here():
            self._feeding.rests(session)
        elif session.is_fed:
            self._feeding.attend(session, (leader, term), now_ms, self.settings.group.repeat_after_ms)
        return leader, term

    def _advance_replica(self, group: Group, now_ms: int) -> None:
        # By a name of its own: else the type checker, and so mypyc, takes `group.in_flight` for None below, too.
        under_way = group.in_flight
        if under_way is not None:
            return
        group.propose(now_ms, self.clocks)
        messages, write = group.collect()
        self._tell_leader(group)
        self._outgoing.post(group.id, messages, now_ms)
        self._has_applied(group)
        if write is not None:
            self._writes.gather(write)
        if group.in_flight is not None:
            self._writes.waiting.append(group.id)
        elif group.raw.has_ready() or group.proposes or (
            group.leader and not group.session.is_broken and group.sender.can_send
        ):
            self._dirty[group.id] = None

    def _has_applied(self, group: Group) -> None:
        """A replica may have applied something: tell those who are told from here."""
        self._feeding.applied(group, self.peers)
        if group.session.is_fed:
            group.tell_from_here()

    def persisted(self, now_ms: int) -> None:
        """The batch that `pump` returned last is on disk."""
        self.disk.looked(now_ms)
        self._note_pace(now_ms)
        self.disk.ended(now_ms)
        for id in self._writes.ended():
            group = self.groups[id]
            self._outgoing.post(id, group.persisted(), now_ms)
            self._has_applied(group)
            self._dirty[id] = None

    def _note_pace(self, now_ms: int) -> None:
        was_slow = self.disk_pace.slow
        self.disk_pace.took(self.disk.beyond_size_ms(now_ms), now_ms)
        if self.disk_pace.slow != was_slow:
            state = "slow: it hands its leads to nodes with quicker ones" if self.disk_pace.slow else "quick again"
            self._tell(f"the disk of node {self.node} is {state}")

    # ------------------------------------------------------------------ once a second

    def _close_silent_sessions(self, now_ms: int) -> None:
        timeout_ms = self.settings.group.session_timeout_ms
        for group in self.groups.values():
            if not group.established:
                continue
            for session in group.sessions.open_sessions():
                node, incarnation = session
                is_heard = node in self.members and self.liveness.heard_within(node, now_ms, timeout_ms)
                if is_heard and incarnation >= self._lives.get(node, 0):
                    continue
                group.propose_close(session)
                self._dirty[group.id] = None

    @staticmethod
    def _slowest_match(group: Group) -> int:
        """How far the slowest member of the group is; one that nobody waits for any more does not count."""
        if not group.leads:
            return group.applied
        return group.raw.slowest_match()
