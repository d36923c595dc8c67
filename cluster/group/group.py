"""One replica of one group on this node: consensus, the state machine it carries, sessions and clocks.

    commands of this node  -> SessionSender -> (frame to the leader) -> proposals -> one entry -> Raft
    committed entries      -> session table -> state machine -> answers and effects for this node's clients

The replica of a client's own node gives all answers, so nothing needs to be told twice when a leader dies: whatever
leader an entry came from, this node applies it once.

The group is driven by `cluster.host.host.Host`; it touches no clock, disk or network. What has to be written comes out
as a `GroupWrite`; nothing that depends on it leaves the node before `persisted` is called.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.clock import GroupClock, MemberClocks
from mayfly.cluster.group.commit_times import AwaitedCommits, CommitTimes
from mayfly.cluster.group.feeds import Feeds
from mayfly.cluster.group.log_upkeep import LogUpkeep
from mayfly.cluster.group.own_session import OwnSession, close_batch
from mayfly.cluster.group.pieces import BORROWS, ITS_REST, LENT
from mayfly.cluster.group.proposals import Proposals
from mayfly.cluster.group.reads import Reads
from mayfly.cluster.group.rebuilding import Rebuild
from mayfly.cluster.group.sessions import (
    ENTRY_HEADER,
    ENTRY_VERSION,
    KIND_INTERNAL,
    OPEN,
    SessionKey,
    SessionRow,
    SessionSender,
    SessionTable,
    Waiter,
    encode_batch,
)
from mayfly.cluster.group.settings import BOOTSTRAP_INDEX, BOOTSTRAP_TERM, GroupSettings
from mayfly.cluster.group.snapshot_intake import SnapshotIntake
from mayfly.cluster.group.state_machine import BadSnapshot, StateMachine
from mayfly.cluster.log.batch import GroupWrite, StoredGroup, StoredSnapshot
from mayfly.cluster.log.group_log import GroupLog
from mayfly.cluster.log.snapshot_codec import live_entries
from mayfly.cluster.raft import (
    NO_LEADER,
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    ProposalDropped,
    RaftMessage,
    RawNode,
    Ready,
    Snapshot,
    decode_conf_change,
)


class Traces(NamedTuple):
    """Where a replica says what it does, if anywhere; for both see `cluster.host.parts.HostParts`."""

    trace: Callable[[str], None] | None = None
    detail: Callable[[str], None] | None = None


NO_TRACES: Final = Traces()


class Group:
    """A replica of a group; `session` is this node's with the group: it is here whether a
    replica is or not."""

    def __init__(
        self,
        session: OwnSession,
        stored: StoredGroup,
        log: GroupLog,
        machine: StateMachine,
        settings: GroupSettings,
        random: Callable[[int], int],
        traces: Traces = NO_TRACES,
        rebuild: Rebuild | None = None,
    ) -> None:
        id, node = session.group, session.node
        self.id: int = id
        self.rebuild: Rebuild | None = rebuild
        """What this replica waits for in silence, because its log is damaged; None for a sound one."""
        self.node: int = node
        self.log: GroupLog = log
        self.log.load(stored)
        self.log.make_snapshot = self._make_snapshot
        self.machine: StateMachine = machine
        self.settings: GroupSettings = settings
        self.session: OwnSession = session
        self.sender: SessionSender = session.sender
        self._applying: Applying = Applying(session, machine, traces.trace)
        self.feeds: Feeds = self._applying.feeds
        self.clock: GroupClock = self._applying.clock
        self.sessions: SessionTable = self._applying.sessions
        self.log.rests = self._applying.pieces.rests
        self._applying.payload = self.log.data
        self.upkeep: LogUpkeep = LogUpkeep(id, stored, self.log, self._applying, settings)
        self.reads: Reads = Reads(node, session.sender.incarnation)
        self._proposals: Proposals = Proposals()
        self.awaited_commits: AwaitedCommits = AwaitedCommits()
        self.applied: int = self.log.snapshot_metadata.index
        self.conf_state: ConfState = self.log.snapshot_metadata.conf_state
        self.in_flight: Ready | None = None
        """The Ready whose write is under way or waiting for the disk."""
        self.leader_index: int = 0
        """Index of the first entry of this node's own term as leader; 0 while it does not lead."""
        self._lead_seen: tuple[int, int] = (0, 0)
        self._lost_leader: int = 0
        """The leader whose process is gone, until another one leads."""
        self._led: bool = False
        self._hard_state: HardState = stored.hard_state
        self._members_changed: bool = False
        """Whether a change of the members was applied that a restart might not know to be committed."""
        self._left: bool = False
        self.intake: SnapshotIntake = SnapshotIntake(id, self._applying, settings.refusal_ms)
        self._to_apply: list[Entry] = []
        if stored.snapshot is not None and stored.snapshot.state:
            self._restore(stored.snapshot.state)
        self.raw: RawNode = RawNode(
            Config(
                id=node,
                election_tick=settings.election_ticks,
                heartbeat_tick=settings.heartbeat_ticks,
                storage=self.log,
                random=random,
                applied=self.applied,
                max_inflight_bytes=settings.inflight_bytes,
                check_quorum=True,
                pre_vote=True,
                disable_proposal_forwarding=True,
                step_down_on_removal=True,
                trace=traces.detail,
                given_up=stored.given_up,
            )
        )

    # ------------------------------------------------------------------ what others may ask

    @property
    def leader(self) -> int:
        """The node that leads, as far as this replica knows; 0 when none is known."""
        return self.raw.lead

    @property
    def leads(self) -> bool:
        """Whether this replica is the leader (perhaps one that has not applied an entry of its own term yet)."""
        return self.raw.leads

    @property
    def established(self) -> bool:
        """Whether this replica leads and has applied an entry of its own term, so that it may decide (RULES L6)."""
        return 0 < self.leader_index <= self.applied and self.leads

    @property
    def term(self) -> int:
        """The current term."""
        return self.raw.term

    @property
    def untouched(self) -> bool:
        """Whether the replica is as founders begin: it knows of no election, and has no entry."""
        return self.raw.term <= BOOTSTRAP_TERM and self.raw.last_index <= BOOTSTRAP_INDEX

    @property
    def hard_state(self) -> HardState:
        """Term and vote, and what is known to be committed, as written last."""
        return self._hard_state

    @property
    def vouched(self) -> tuple[int, int]:
        """Term and index of the last entry that this node ever said it has; of a damaged log the term is the latest
        that it can be."""
        if self.rebuild is not None:
            return self.rebuild.term, self.rebuild.last_index
        return self.raw.vouched

    @property
    def last_index(self) -> int:
        """Of the log, before it was damaged if it was."""
        return self.raw.last_index if self.rebuild is None else self.rebuild.last_index

    @property
    def gave_up_more(self) -> bool:
        """Whether a replica that this node has given up had more than there is here."""
        return self.raw.is_behind_what_was_given_up

    @property
    def committed(self) -> int:
        """The commit index."""
        return self.raw.committed

    # ------------------------------------------------------------------ commands

    def read_index(self, waiter: Waiter) -> None:
        """`waiter(None)` once this replica has applied all that was committed anywhere when this was called, and all
        commands that this node gave before; `waiter(lost)`, perhaps at once, if this node is no member any more.

        Costs no entry: the leader is asked for an index (thesis 6.4), again if need be. Without a leader that a
        majority follows nothing is answered until there is one."""
        if self._left_out:
            waiter(self.session.lost)
        else:
            self.sender.hurry()
            self.reads.wait(waiter, self.sender.given_batches)

    def _ask_for_reads(self, now_ms: int) -> None:
        # Without membership (a node that joins, a damaged replica) the answer would not be heard.
        if self.reads.idle or self.raw.lead == NO_LEADER or self.rebuild is not None:
            return
        if self.raw.is_member(self.node):
            context = self.reads.request(now_ms, self.settings.repeat_after_ms)
            if context is not None:
                self.raw.read_index(context)

    def _finish_reads(self) -> None:
        if not self.reads.waiting:
            return
        if self._left_out:
            for waiter in self.reads.give_up():
                waiter(self.session.lost)
            return
        for waiter in self.reads.due(self.applied, self.sender.applied_batches):
            waiter(None)

    @property
    def _left_out(self) -> bool:
        """Whether this node was a member of the group and is none any more."""
        conf = self.conf_state
        if self._left or not conf.voters:
            return self._left
        return not self.has_member(self.node)

    def leave(self) -> None:
        """This node was removed: it may never hear so from the group itself, and its replica is not current again."""
        self._left = True
        self.upkeep.give_up_offers("this node is out of the group")
        self._finish_reads()

    def forget_sent(self) -> None:
        """The leader or the way to it changed: what was sent to it and not answered is to be sent again."""
        self.sender.forget_sent()
        self.reads.forget_asked()

    def route(self, lead: int, term: int, now_ms: int) -> list[bytes]:
        """Batches that go to another node's leader now. Those for a leader here are taken in at once."""
        if (lead, term) != self._lead_seen:
            self._lead_seen = (lead, term)
            if lead:
                self._lost_leader = 0
            self.reads.forget_asked()
        self._ask_for_reads(now_ms)
        if self._proposals.gathered and lead == self.node:
            self.sender.hurry()  # There will be an entry anyway.
        batches = self.session.route(lead, term, now_ms)
        if batches and lead == self.node:
            for batch in batches:
                self.take_proposal(batch)
            return []
        return batches

    def take_proposal(self, batches: bytes, asking: int = 0) -> None:
        """Batches for the log, from any node; dropped if this replica does not lead (their sender repeats them).
        `asking`: another node that wants to hear at once of their commit."""
        if self.leads:
            self._proposals.add(batches, asking)

    def propose_internal(self, commands: bytes) -> bool:
        """Commands of the leader itself; False (and nothing done) if this replica does not lead."""
        if not self.leads:
            return False
        self.take_proposal(encode_batch(KIND_INTERNAL, 0, 0, 0, commands))
        return True

    def propose_borrowing(self, command: bytes, index: int, start: int, length: int) -> bool:
        """The same for one command without its body, which are so many octets of the payload of the entry at `index`,
        from `start` on: it is not written again. Nothing is done if nothing of that entry is alive any more when the
        command is applied. From `cluster.versions.LEVEL_LARGE_DEAD_LETTERS` on."""
        if not self.leads:
            return False
        in_rest = self.log.elsewhere(index, start)
        lent = LENT.pack(index, start if in_rest < 0 else ITS_REST + in_rest, length)
        self.take_proposal(encode_batch(KIND_INTERNAL | BORROWS, 0, 0, 0, lent + command))
        return True

    def propose_close(self, session: SessionKey) -> None:
        """Ask the log to end a session."""
        self.take_proposal(close_batch(session))

    # ------------------------------------------------------------------ consensus

    def tick(self, now_ms: int, may_campaign: bool) -> None:
        """One tick of Raft's clock; a replica that may not campaign (RULES C3) stays quiet."""
        if self.rebuild is not None:
            return
        self.upkeep.step()
        if self.upkeep.offers:
            self.upkeep.look(self.raw.followers(), self.raw.last_index, now_ms)
            self.upkeep.mind_offer(now_ms)
        if not may_campaign and self.raw.is_election_due and not self.leads:
            return
        self.raw.tick()
        if self.leads:
            self.clock.advance_led(now_ms)

    def hasten_election(self, lost: int) -> None:
        """The leader's process is gone: forget it, and campaign soon; who comes first differs from group to group."""
        self.raw.forget_leader()
        self._lost_leader = lost
        self.raw.hasten_election(lost, self.id)

    def resign(self, late: Collection[int], draining: Collection[int]) -> RaftMessage | None:
        """Give the lead up at once; a message that has another voter stand for election, if one can. For what `late`
        and `draining` mean see `RawNode.resign`."""
        return self.raw.resign(late, draining)

    def step(self, message: RaftMessage, now_ms: int) -> None:
        """A Raft message from a peer. A replica with a damaged log hears nothing but the snapshot it waits for.

        A snapshot that is to take the place of the log is read first (`cluster.group.snapshot_intake`): a small one
        now, a large one in the ticks that follow."""
        if self.rebuild is not None and not self.rebuild.is_ended_by(message):
            return
        if message.type == MessageType.READ_INDEX and not self.leads:
            return  # Whoever asks repeats it, and knows better by then who leads.
        snapshot = message.snapshot
        if message.type == MessageType.SNAP and snapshot is not None and self.raw.would_restore(message.term, snapshot):
            self.raw.check(message)
            self.intake.begin(message, snapshot, now_ms)
            self.read_snapshot(now_ms)
            return
        busy = message.type == MessageType.APP and self.intake.is_busy(message.from_, now_ms)
        if busy and message.index > self.raw.last_index:
            return
        self.raw.step(message)
        if message.type == MessageType.PRE_VOTE and not self.leads:
            self.raw.challenge(message, self._lost_leader or self.leader, self.id)

    def read_snapshot(self, now_ms: int) -> None:
        """Go on with a snapshot that is being read, in each tick. Raises what `step` does."""
        message = self.intake.step(self.term, self.raw.committed, now_ms)
        if message is not None:
            try:
                self.raw.step(message)
            finally:
                self.intake.keep(self.raw.taken_snapshot)

    def propose(self, now_ms: int, clocks: MemberClocks) -> None:
        """If this replica leads, make one entry (or a few, by size) of what has gathered; stamp it (RULES C1, C2)."""
        self._note_leadership(now_ms, clocks)
        if not self._proposals.gathered:
            return
        if not self.leads:
            self._proposals.drop()
            self.awaited_commits.forget()
            return
        if self.hands_over:
            return
        self.session.events.group_proposes(self.id)
        before = self.raw.last_index
        # The led clock up to this moment: a renewal stamped with the last tick's would shorten its lease (RULES L4).
        self.clock.advance_led(now_ms)
        for batches in self._proposals.in_entries(self.settings.entry_bytes):
            header = ENTRY_HEADER.pack(ENTRY_VERSION, self.clock.current_ms(now_ms), self.clock.led_ms)
            try:
                self.raw.propose(b"".join([header, *batches]))
            except ProposalDropped:
                break
        last_index = self.raw.last_index
        self._proposals.are_proposed(last_index)
        self.awaited_commits.proposed(self.raw.term, last_index, last_index - before, now_ms)

    def note_times(self, now_ms: int, times: CommitTimes) -> None:
        """In every turn in which it has something to do a leader notes since when the next entry gathers, and which
        are committed by now."""
        if not self.leads:
            return
        if self._proposals.gathered:
            self.awaited_commits.gathers(now_ms)
        self.awaited_commits.committed(self.raw.term, self.raw.committed, now_ms, times)

    def owes(self, node: int, commit: int) -> bool:
        """On the leader: whether a node should hear at once that the log is committed so far, because somebody waits
        there. The others learn it with what comes next. Ask only about what is then told."""
        if self._proposals.tell(node, commit):
            return True
        audience = self.machine.audience()
        return audience is None or node in audience

    def is_awaited_by(self, node: int) -> bool:
        """On the leader: whether somebody at a node waits for what is appended: its commands, or its consumers."""
        if self._proposals.is_owed(node):
            return True
        audience = self.machine.audience()
        return audience is None or node in audience

    @property
    def hands_over(self) -> bool:
        """Whether this leader waits for another to take over. Proposals are kept until that is decided: Raft would drop
        them, and their senders repeat them long after a transfer that came to nothing."""
        return self.leads and self.raw.lead_transferee != 0

    @property
    def proposes(self) -> bool:
        """Whether something waits to be made an entry, and is not kept for whom this leader hands over to."""
        return bool(self._proposals.gathered) and not self.hands_over

    def _note_leadership(self, now_ms: int, clocks: MemberClocks) -> None:
        if self.leads and not self._led:
            self._led = True
            self.leader_index = self.raw.last_index
            self.clock.lead(now_ms, clocks.trusted(now_ms), self.term, self.raw.term_at(self.leader_index - 1))
        elif self._led and not self.leads:
            self._led = False
            self.leader_index = 0
            self._proposals.forget_owed()
            self.awaited_commits.forget()
            self.clock.follow()

    @property
    def has_work(self) -> bool:
        """Whether a turn would do something: anything to say or to repeat, to write, or to free."""
        if self.in_flight is not None:
            return False
        if self._proposals.gathered or self.upkeep.has_write:
            return True
        return not (self.sender.idle and self.reads.idle) or self.session.is_broken or self.raw.has_ready()

    def collect(self) -> tuple[list[RaftMessage], GroupWrite | None]:
        """The next Ready, if there is one: messages that may leave now, and what must be written first for the rest.

        With a write, `persisted` must follow before the next call; without one everything is done."""
        write: GroupWrite | None = None
        messages: list[RaftMessage] = []
        if self.in_flight is None and self.raw.has_ready():
            ready = self.raw.ready()
            for read in ready.read_states:
                self.reads.answered(read.request_context, read.index)
            messages = ready.messages_now
            write = self._write_of(ready)
            if write is None:
                messages = messages + ready.messages_after_append
                self._apply_all(ready.committed_entries)
                self.raw.advance()
            else:
                self.in_flight = ready
                self._apply_stable(ready)
            self._finish_reads()
        if self._members_changed or self.upkeep.has_write:
            self._members_changed = False
            write = self.upkeep.join(write, self._hard_state)
        return messages, write

    def _write_of(self, ready: Ready) -> GroupWrite | None:
        if ready.hard_state is not None:
            self._hard_state = ready.hard_state
        if not (ready.must_sync or ready.entries or ready.snapshot is not None):
            return None
        write = GroupWrite(self.id)
        write.hard_state = self._hard_state
        if ready.snapshot is not None:
            self.upkeep.replaced(ready.snapshot)
            write.install = True
            write.snapshot = StoredSnapshot(ready.snapshot.metadata, ready.snapshot.data)
            write.live_entries = live_entries(ready.snapshot)
        if ready.entries:
            write.entries = ready.entries
            self.upkeep.appended(ready.entries)
        return write

    def _apply_stable(self, ready: Ready) -> None:
        """Apply what was on disk before this Ready, without waiting for its write; the rest waits."""
        if ready.snapshot is not None:
            self._to_apply = ready.committed_entries
            return
        first_unstable = ready.entries[0].index if ready.entries else 1 << 62
        committed = ready.committed_entries
        count = 0
        while count < len(committed) and committed[count].index < first_unstable:
            count += 1
        self._apply_all(committed[:count])
        self._to_apply = committed[count:]

    def persisted(self) -> list[RaftMessage]:
        """The write of the Ready in flight is on disk: the messages that waited for it."""
        ready = self.in_flight
        if ready is None:
            return []
        self.in_flight = None
        if ready.snapshot is not None:
            self._install(ready.snapshot)
        self.log.append(ready.entries)
        self._apply_all(self._to_apply)
        self.raw.advance()
        if self.intake.has_read:
            # One that Raft held until now may have been of no use by then.
            self.intake.keep(self.raw.taken_snapshot)
        self._finish_reads()
        return ready.messages_after_append

    # ------------------------------------------------------------------ applying

    def _apply_all(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.type != EntryType.NORMAL:
                before = nodes_of(self.conf_state)
                self.conf_state = self.raw.apply_conf_change(decode_conf_change(entry))
                if nodes_of(self.conf_state) - before:
                    # It would not take a snapshot in which it is no member, or still is from another time.
                    self.upkeep.set_offer_aside()
                self._members_changed = True
            elif entry.data:
                self._applying.apply(entry.index, entry.data)
            self.applied = entry.index
        if entries:
            self._release()
            self.session.events.group_applied(self.id)

    def _release(self) -> None:
        released = self._applying.take_released()
        if released:
            self.upkeep.released(released)

    # ------------------------------------------------------------------ this node's session, and those of others

    def tell_from_here(self) -> bool:
        """Tell this node's session, which is fed, what this replica has kept for it; False if that does not go on
        where the session is."""
        session, feed = self.session, self.feeds.get(self.node)
        if feed is None or feed.incarnation != session.sender.incarnation:
            return False
        if not feed.base <= session.cursor <= self.applied:
            return False
        session.tell_all(feed.behind(session.cursor), self.applied, self.log.data)
        self.is_told(session.key, session.cursor)
        return True

    def tell_session(self) -> bool:
        """Tell this node's session, which was fed, from here on, if this replica has kept all that it was not told.

        One that does not vote yet may still be given a snapshot in place of what it has."""
        if not self.session.is_fed:
            return True
        if self.node not in self.conf_state.voters or self.rebuild is not None:
            return False
        if self.applied < self.session.cursor or not self._applying.can_tell():
            return False
        self._applying.tell(self.applied)
        return True

    def stop_telling(self) -> None:
        """This replica will apply nothing more, for it is out of the group: this node's session is told by others."""
        self.session.sender.say_fed()
        self.session.is_told_by_feeds(self.applied)
        self.feeds.begin(self.session.key, self.applied)

    def is_told(self, session: SessionKey, index: int) -> None:
        """A fed session of another node was told everything up to this index."""
        self.feeds.is_told(session, index)
        if self.feeds.withholds:
            self._release()

    def row(self, node: int) -> SessionRow | None:
        """What the table of sessions has of a node."""
        return self._applying.row(node)

    def tells(self, node: int) -> bool:
        """Whether a node has an open session that its own replica tells."""
        row = self.row(node)
        return row is not None and row[3] == OPEN

    def state_entries(self) -> Iterable[int]:
        """See `Applying.state_entries`."""
        return self._applying.state_entries()

    def holds_pieces(self, index: int) -> bool:
        """Whether an entry has a piece of what is alive, or still to come."""
        return index in self._applying.pieces.held

    def has_member(self, node: int) -> bool:
        """Whether a node votes, or learns, as far as is applied here."""
        conf = self.conf_state
        return node in conf.voters or node in conf.learners or node in conf.voters_outgoing

    # ------------------------------------------------------------------ snapshots and compaction

    def compact(self, now_ms: int, hurried: bool = False) -> bool:
        """Shorten the log if it has grown enough; see `LogUpkeep.compact`. Only a leader keeps it for others."""
        self.upkeep.look(self.raw.followers(), self.raw.last_index, now_ms)
        slowest_match = self.raw.slowest_match() if self.leads else self.applied
        return self.upkeep.compact(slowest_match, self.applied, self.conf_state, self.in_flight is None, hurried)

    def snapshot_sent(self, peer: int, ok: bool) -> None:
        """The transport has delivered a snapshot to a peer, or given up, or its fate is not known (not `ok`)."""
        if not self.leads:
            return
        if ok:
            for member in self.raw.followers():
                if member.node == peer and member.takes_snapshot:
                    self.upkeep.delivered(peer, member.sent)
        self.raw.report_snapshot(peer, ok)

    def _make_snapshot(self) -> Snapshot:
        return self.upkeep.make_snapshot(self.applied, self.conf_state)

    def send_rebuild(self, node: int, wanted: Rebuild) -> bool:
        """The replica of `node` is damaged: send it the state, if this replica leads and its state covers the need.
        False if it can't come to cover it, whatever is committed in this term or because nothing is under way."""
        if not self.established:
            return True
        if not wanted.is_covered_by(self.applied, self.log.term(self.applied), self.term):
            return self.term >= wanted.term and self.applied < self.log.last_index()
        offered = self.upkeep.offered
        if offered is not None and not wanted.is_covered_by(offered.index, offered.term, self.term):
            self.upkeep.set_offer_aside()
        self.raw.send_all_anew(node)
        return True

    def _restore(self, state: bytes) -> None:
        try:
            reading = self._applying.reading(state)
            while not reading.step():
                pass
        except BadSnapshot as error:
            raise BadSnapshot(f"the snapshot that group {self.id} has stored can't be read: {error}") from error
        self._applying.restore(reading, self.applied)

    def _install(self, snapshot: Snapshot) -> None:
        """The leader's snapshot is on disk in place of our log: go on from it."""
        self.applied = snapshot.metadata.index
        self.conf_state = snapshot.metadata.conf_state
        self.log.install_snapshot(snapshot.metadata)
        self.rebuild = None
        self._applying.install(self.intake.take(snapshot), self.applied)
        self.session.events.group_applied(self.id)


def nodes_of(members: ConfState) -> set[int]:
    """All who are sent the log."""
    return {*members.voters, *members.learners, *members.voters_outgoing}
