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

Which groups have a replica here is in `cluster.host.replicas`, who should lead and vote in them in
`cluster.host.leadership`, who tells the sessions that are fed in `cluster.host.fed_sessions`, whom the host hears in
`cluster.host.liveness`, what it sends in `cluster.host.outgoing_frames`, what is to be written in
`cluster.host.pending_writes`.

All times are the node's process clock in ms (see `cluster.group.clock`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.clock import MemberClocks
from mayfly.cluster.group.commit_times import CommitTimes
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.rebuilding import decode_request
from mayfly.cluster.group.sessions import NOT_HELD, EnvelopeError, check_batches
from mayfly.cluster.host.delayed_appends import NEVER_DUE
from mayfly.cluster.host.disk_pace import DiskPace
from mayfly.cluster.host.disk_watch import DiskWatch
from mayfly.cluster.host.draining import Draining
from mayfly.cluster.host.fed_sessions import FedSessions
from mayfly.cluster.host.feeding import KINDS as FEEDING_KINDS
from mayfly.cluster.host.feeding import BadFeeding, Feeding
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.heartbeat_pace import HeartbeatPace
from mayfly.cluster.host.heartbeats import GroupHeartbeats
from mayfly.cluster.host.leadership import Leadership
from mayfly.cluster.host.liveness import Liveness
from mayfly.cluster.host.outgoing_frames import OutgoingFrames
from mayfly.cluster.host.parts import HostParts
from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.host.raft_input import RaftInput
from mayfly.cluster.host.rebuilds import Rebuilds
from mayfly.cluster.host.replicas import Replicas
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.host.silent_sessions import SilentSessions
from mayfly.cluster.log.batch import StoredGroup, WriteBatch
from mayfly.cluster.log.group_log import EntryCache

NEVER: Final = -1

BALANCE_EVERY_MS: Final = 1000
"""How often leaders are balanced, silent sessions closed, rebuilds asked for and logs compacted."""

OTHERS_ARE_HEARD_SHARE: Final = 4
"""A leader whose disk is late waits for such a part of the election timeout before it resigns: what makes its disk late
may make all late, and then nobody could take over."""
HANGS_AFTER_ELECTION_TIMEOUTS: Final = 10
"""When a leader whose disk is late resigns although others' are late as well: theirs may end a write some time."""
HANGS_BESIDE_A_QUICK_ONE_AFTER_ELECTION_TIMEOUTS: Final = 4
"""The same where one of them is quick, and those that it takes to elect it may be no more than slow."""
SLOW_SHARE_OF_ELECTION_TIMEOUT: Final = 3
"""A disk whose writes take a third of the election timeout is slow (see `cluster.host.disk_pace`)."""

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


class Host:
    """The replicas of one node, and its sessions with all groups. `ids` are those of all groups of the cluster."""

    def __init__(self, settings: HostSettings, ids: Sequence[int], parts: HostParts, incarnation: int) -> None:
        self.settings: HostSettings = settings
        self.node: int = settings.node
        self.members: list[int] = list(settings.nodes)
        """All nodes of the cluster, this one too unless it was removed."""
        self.peers: list[int] = [node for node in settings.nodes if node != settings.node]
        self.clocks: MemberClocks = MemberClocks(settings.clock_bound_ms)
        self.groups: dict[int, Group] = {}
        """Those that have a replica here."""
        self._trace = parts.trace
        self._dirty: dict[int, None] = {}
        self._writes: PendingWrites = PendingWrites()
        self.liveness: Liveness = Liveness(settings.node, settings.election_timeout_ms)
        self._draining: Draining = Draining()
        self.leadership: Leadership = Leadership(settings, self.groups, ids, self.liveness, self._draining)
        self.replicas: Replicas = Replicas(
            settings, ids, parts, incarnation, self.leadership, self._writes, self._has_work
        )
        self.sessions: dict[int, OwnSession] = self.replicas.sessions
        self._silent_sessions: SilentSessions = SilentSessions(
            self.groups, self.liveness, settings.group.session_timeout_ms
        )
        self._heartbeats: GroupHeartbeats = GroupHeartbeats(settings.node, self.groups)
        self.disk: DiskWatch = DiskWatch(settings.election_timeout_ms)
        self._resign_after_ms = settings.election_timeout_ms // OTHERS_ARE_HEARD_SHARE
        self._hangs_after_ms = settings.election_timeout_ms * HANGS_AFTER_ELECTION_TIMEOUTS
        self._hangs_beside_a_quick_one_after_ms = (
            settings.election_timeout_ms * HANGS_BESIDE_A_QUICK_ONE_AFTER_ELECTION_TIMEOUTS
        )
        self._rebuilds: Rebuilds = Rebuilds(self.groups, self.leadership, self.send_notice)
        self._input: RaftInput = RaftInput(
            settings.node, self.groups, self._heartbeats, self.disk, self._has_work, self._rebuilds.ask_anew, self._tell
        )
        self._outgoing: OutgoingFrames = OutgoingFrames(
            settings.node, self.peers, self.groups, self.liveness, self._heartbeats
        )
        self._feeding: Feeding = Feeding(settings.node, self.groups, self.sessions, parts.codec, self.send_notice)
        self._fed_sessions: FedSessions = FedSessions(settings, self.replicas, self.leadership, self._feeding)
        self.cache: EntryCache = parts.cache
        self.commit_times: CommitTimes = CommitTimes()
        self.clock_refusals: int = 0
        """How often a campaign was held back because this node's clock is too far ahead (RULES C3)."""
        self.short_of_disk: bool = False
        """Whether what is dead in the logs should give its room back early."""
        self._leaders_told: dict[int, tuple[int, int]] = {}
        self.pace: HeartbeatPace = HeartbeatPace(settings)
        self._held: dict[int, int] = {}
        """Groups for which commands wait for company -> until when."""
        self._next_balance_ms = 0
        self._excess_noted = False
        self.disk_pace: DiskPace = DiskPace(settings.election_timeout_ms // SLOW_SHARE_OF_ELECTION_TIMEOUT)

    # ------------------------------------------------------------------ start

    def start(self, stored: dict[int, StoredGroup], now_ms: int) -> WriteBatch | None:
        """Build the groups from what is stored. Returns a batch that must be on disk before anything else is done
        (groups that are new, or leftovers to release), or None."""
        first = self.replicas.start(stored)
        self.liveness.expect(self.peers, now_ms)
        return None if first.empty() else first

    def add_group(self, id: int, first_voters: Sequence[int]) -> None:
        """See `Replicas.add`."""
        self.replicas.add(id, first_voters)

    def _tell_leader(self, group: Group) -> None:
        leader = (group.leader, group.term)
        if self._trace is not None and group.leader and self._leaders_told.get(group.id) != leader:
            self._leaders_told[group.id] = leader
            self._trace(f"group {group.id} is led by node {group.leader} in term {group.term}")

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
        self.replicas.set_members(members)

    def reconfigure(self, now_ms: int) -> None:
        """Take the next step of reconfiguration in every group that is led here and needs one."""
        self._all_have_work(self.leadership.reconfigure(now_ms))

    def set_draining(self, draining: bool) -> None:
        """Hand over all that is led here, and lead nothing as long as others can; or take part again. Not stored."""
        self._draining.set(draining)
        self._announce_draining()

    def _announce_draining(self) -> None:
        for peer in self.peers:
            self.send_notice(peer, notice_kinds.DRAINING, self._draining.word())

    def _has_work(self, id: int) -> None:
        self._dirty[id] = None

    def _all_have_work(self, ids: list[int]) -> None:
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
        overdue_ms, quick = self.disk.overdue_ms(now_ms), self.disk.may_lead(now_ms)
        # All groups' heartbeats and the clocks' go in one frame: a frame costs more than what is in it.
        self.pace.tick()
        self._all_have_work(self._fed_sessions.unfinished())
        for group in self.groups.values():
            outvoted = excess > 0 and self.clocks.outvoted(
                group.conf_state.voters, self._rebuilds.silent.of(group.id, now_ms)
            )
            others_are_quick = quick or self.leadership.others_are_quick(group, now_ms)
            is_late = overdue_ms > 0 and group.leads and not group.raw.decides_alone
            if is_late and overdue_ms >= self._bearable_ms(group, others_are_quick, now_ms):
                self._resign(group, now_ms)
            if outvoted and not group.leads and group.raw.is_election_due:
                self.clock_refusals += 1
            group.raw.pace_heartbeats(self.pace.since)
            if group.intake.reading_from:
                self._input.read_snapshot(group, now_ms)
            # Where all disks are late somebody has to lead all the same.
            group.tick(now_ms, not outvoted and (quick or not others_are_quick or group.raw.decides_alone))
            if self.pace.is_due and group.leads:
                self._heartbeats.are_due(group)
            if group.has_work:
                self._dirty[group.id] = None
        if self.pace.is_due:
            self._heartbeat(now_ms, self.pace.tells_all)
        self._draining.disk_was_late = not quick or self.disk_pace.slow
        if self._draining.announcement_is_due(now_ms):
            self._announce_draining()
        if self._draining.here:
            self._all_have_work(self.leadership.drain(now_ms))
        if now_ms >= self._next_balance_ms:
            self._next_balance_ms = now_ms + BALANCE_EVERY_MS
            self.replicas.follow_plan()
            self._all_have_work(self._silent_sessions.close(self.members, now_ms))
            if self.disk_pace.hands_over(now_ms) and not self._draining.here and (quick or self._is_beaten(now_ms)):
                self._all_have_work(self.leadership.drain(now_ms))
            self._all_have_work(self.leadership.balance(now_ms))
            self._rebuilds.ask(self.peers, now_ms)
            for text in self._rebuilds.news(self.beyond_repair(now_ms)):
                self._tell(text)
            for group in self.groups.values():
                if group.compact(now_ms, self.short_of_disk):
                    self._dirty[group.id] = None

    def ticks_to_election(self) -> int:
        """With how many more ticks a replica here may stand for election if nothing is heard until then: two more than
        there are to a heartbeat of a node at rest, at most."""
        least = self.pace.ticks_at_rest + 2
        for group in self.groups.values():
            least = group.raw.ticks_to_election(least)
        return least

    def _bearable_ms(self, group: Group, others_are_quick: bool, now_ms: int) -> int:
        """For how long a write may be late before this node gives up the group's lead."""
        if others_are_quick:
            return self._resign_after_ms
        if self.leadership.another_is_quick(group, now_ms):
            return self._hangs_beside_a_quick_one_after_ms
        return self._hangs_after_ms

    def _is_beaten(self, now_ms: int) -> bool:
        """Whether writes here come late time and again, though never by so much that this node resigns, and all that it
        leads could be led without it."""
        if self.disk.overdue_ms(now_ms):
            return False
        led = [group for group in self.groups.values() if group.leads]
        return all(self.leadership.others_are_quick(group, now_ms) for group in led)

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
            self._input.step(peer, id, message, now_ms)
        for kind, data in frame.notices:
            if kind == notice_kinds.REBUILD:
                request = decode_request(data)
                if request is None:
                    self._input.refuse(peer, f"request of {len(data)} bytes to rebuild a group")
                elif self._rebuilds.asked(peer, *request, now_ms):
                    self._dirty[request[0]] = None
            elif kind in (notice_kinds.HEARTBEATS, notice_kinds.ANSWERS):
                self._input.heartbeats(peer, kind, data, now_ms)
            elif kind in FEEDING_KINDS:
                self._take_feeding(peer, kind, data, now_ms)
            elif kind == notice_kinds.DRAINING and not self._draining.heard(peer, data, now_ms):
                self._input.refuse(peer, f"word of draining in {len(data)} bytes")
        for id, time_ms, led_ms in frame.group_clocks:
            group = self.groups.get(id)
            if group is not None and group.leader == peer:
                group.clock.observed(time_ms, led_ms, now_ms, group.term)
        for id, batches in frame.proposals:
            group = self.groups.get(id)
            try:
                check_batches(batches)
            except EnvelopeError as malformed:
                self._input.refuse(peer, str(malformed))
                continue
            if group is not None:
                group.take_proposal(batches, peer)
                self._dirty[id] = None

    def _take_feeding(self, peer: int, kind: int, data: bytes, now_ms: int) -> None:
        try:
            changed = self._feeding.take(peer, kind, data, now_ms)
        except BadFeeding as error:
            self._input.refuse(peer, str(error))
            return
        for id in changed:
            self._dirty[id] = None
            group = self.groups.get(id)
            if kind != notice_kinds.LEADS or group is None or not self._feeding.is_out(group):
                continue
            if self.replicas.is_told_out(group):
                self._held.pop(id, None)
                self._leaders_told.pop(id, None)

    def beyond_repair(self, now_ms: int) -> dict[int, list[int]]:
        """See `Rebuilds.beyond_repair`."""
        return self._rebuilds.beyond_repair(self.node, self.members, now_ms)

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
                group.snapshot_sent(peer, False)
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
        """See `SilentSessions.has_started`."""
        self._silent_sessions.has_started(node, incarnation)

    def snapshot_sent(self, peer: int, id: int, ok: bool) -> None:
        """The transport has delivered a snapshot to a peer, or given up."""
        group = self.groups.get(id)
        if group is not None and group.leads:
            group.snapshot_sent(peer, ok)
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

    def submit_large(
        self,
        id: int,
        parts: list[bytes],
        size_bytes: int,
        answers: bool,
        waiter: Callable[[object], None] | None,
        counts: bool = True,
    ) -> None:
        """One command of this node's session with a group, whose body is the last of these parts: it goes in pieces.
        From `cluster.versions.LEVEL_PIECES` on; see `SessionSender.add_large`."""
        self.sessions[id].give_large(parts, size_bytes, answers, waiter, counts)
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

    def propose_borrowing(self, id: int, command: bytes, index: int, start: int, length: int) -> bool:
        """The same for one command whose body stands in the group's log; see `Group.propose_borrowing`."""
        self._dirty[id] = None
        return self.groups[id].propose_borrowing(command, index, start, length)

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

    def send_unhurried_notice(self, peer: int, kind: int, data: bytes) -> None:
        """The same for a notice that can wait for the next heartbeat, so that it costs no frame of its own; a later one
        of its kind takes its place."""
        self._outgoing.add_unhurried(peer, kind, data)

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
        """Whether `pump` left something to do at once (its rounds are bounded), or something was given since then that
        is to leave."""
        return bool(self._dirty) or self._outgoing.has_frames

    @property
    def log_lost(self) -> str | None:
        """See `RaftInput.log_lost`."""
        return self._input.log_lost

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
        if session.is_fed:
            leader, term = self._fed_sessions.advance(session, group, now_ms)
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

    def _advance_replica(self, group: Group, now_ms: int) -> None:
        group.note_times(now_ms, self.commit_times)
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
