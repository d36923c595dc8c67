"""The face of the core: what a caller drives one member of a group with.

With synchronous storage (the default), over and over:

    if node.has_ready():
        ready = node.ready()
        send(ready.messages_now)                # may overlap with the write below
        store(ready.snapshot, ready.entries, ready.hard_state)   # durable when ready.must_sync
        send(ready.messages_after_append)
        apply(ready.snapshot, ready.committed_entries)   # apply_conf_change() for membership entries
        node.advance()

Between `ready` and `advance` the caller may tick, step and propose (so while a write is under way the next
batch gathers), but not ask for another `ready`.

With ``async_storage_writes`` there is no `advance`, and `ready` may be called while writes are under way:
STORAGE_APPEND and STORAGE_APPLY messages in ``ready.messages`` say what to store and to apply; when one is
done, in order per kind, its ``responses`` are delivered, those to this node with `step`.

A caller asks and says what it has to through `RawNode` alone; what is behind it belongs to this package and its tests.
"""

from collections.abc import Collection

from mayfly.cluster.raft import follower, leader
from mayfly.cluster.raft.admission import check_message
from mayfly.cluster.raft.conf_change import ConfChange, ConfChangeV2, encode_conf_change
from mayfly.cluster.raft.config import Config
from mayfly.cluster.raft.errors import ProposalDropped, RaftError
from mayfly.cluster.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NO_LEADER,
    ConfState,
    Entry,
    HardState,
    MessageType,
    RaftMessage,
    Snapshot,
    SoftState,
    StateType,
    entry_bytes,
)
from mayfly.cluster.raft.progress import ProgressState
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.ready import Ready
from mayfly.cluster.raft.reconfiguration import apply_conf_change
from mayfly.cluster.raft.replication import send_append
from mayfly.cluster.raft.status import FollowerStatus, Status, followers_of, status_of
from mayfly.cluster.raft.step import entries_applied, step, tick
from mayfly.cluster.raft.succession import challenge, hasten_election, resign


class RawNode:
    """One member of a group. Not safe for use by several threads."""

    def __init__(self, config: Config) -> None:
        """Raises `RaftError` when what storage holds contradicts itself."""
        self.raft: Raft = Raft(config)
        """For this package and its tests alone."""
        self._async_storage_writes: bool = config.async_storage_writes
        raft = self.raft
        self._known_term: int = raft.term
        self._known_vote: int = raft.vote
        self._known_commit: int = raft.raft_log.committed
        self._known_lead: int = raft.lead
        self._known_state: int = raft.state
        # What `advance` is to do.
        self._awaits_advance: bool = False
        self._own_messages: list[RaftMessage] = []
        self._append_response: RaftMessage | None = None
        self._applying: list[Entry] = []

    # What goes in.

    def tick(self) -> None:
        """One unit of time has passed; ``election_tick`` and ``heartbeat_tick`` count these."""
        tick(self.raft)

    def campaign(self) -> None:
        """Stand for election now, if this node may."""
        step(self.raft, RaftMessage(MessageType.HUP, from_=self.raft.id))

    def propose(self, data: bytes) -> None:
        """Propose one entry, here or through the leader. Raises `ProposalDropped`."""
        self._propose([Entry(data=data)])

    def propose_batch(self, batch: list[bytes]) -> None:
        """Propose entries that are taken all or not at all, and stay together. Raises `ProposalDropped`."""
        if batch:
            self._propose([Entry(data=data) for data in batch])

    def propose_conf_change(self, change: ConfChange | ConfChangeV2) -> None:
        """Propose a membership change. Raises `ProposalDropped`.

        A change that can't be made at present (another one is pending, say) ends up as an empty entry.
        """
        self._propose([encode_conf_change(change)])

    def _propose(self, entries: list[Entry]) -> None:
        raft = self.raft
        if raft.state == StateType.LEADER:
            leader.propose(raft, entries)
        else:
            follower.forward_proposal(raft, entries, raft.id)

    def apply_conf_change(self, change: ConfChange | ConfChangeV2) -> ConfState:
        """Put a membership change of a committed entry in force; returns the membership from now on.

        Raises `ConfChangeError`, with nothing changed, when it can't be made.
        """
        return apply_conf_change(self.raft, change.as_v2())

    def check(self, message: RaftMessage) -> None:
        """Raise what `step` would for a message that no member can have sent, for a caller that keeps it for later."""
        check_message(self.raft, message, self._async_storage_writes)

    def step(self, message: RaftMessage) -> None:
        """Take a message of another member (or, with asynchronous writes, of the own storage).

        Raises `RaftError` for a message that no member can have sent, `UnknownPeer` for an answer of a node
        that isn't a member, `ProposalDropped` for a forwarded proposal that isn't taken. Nothing has changed
        then.
        """
        check_message(self.raft, message, self._async_storage_writes)
        step(self.raft, message)

    # Elections sooner than Raft's clock says, and leads given up. No timer and no lead is needed for safety.

    def campaign_within(self, ticks: int) -> None:
        """Stand for election when so many ticks have passed without a leader, perhaps sooner."""
        raft = self.raft
        raft.election_elapsed = max(0, raft.randomized_election_timeout - ticks)

    def hasten_election(self, lost: int, first: int) -> None:
        """The process of the leader `lost` is gone: campaign soon instead of after a whole timeout.

        The voters left take turns, a few ticks apart, because those that campaign at once split the vote and then wait
        for a whole timeout after all. `first` says who comes first; it should differ from group to group, so that each
        leads its share."""
        hasten_election(self.raft, lost, first)

    def challenge(self, request: RaftMessage, lost: int, first: int) -> None:
        """Somebody without the end of this log asks for a vote and gets none (a leader may have held its last entries
        back from them): so that no time is lost, stand for election in the next tick, if no leader is followed. Of
        several whose logs are longer the voters take turns, as in `hasten_election`."""
        challenge(self.raft, request, lost, first)

    def resign(self, late: Collection[int], draining: Collection[int]) -> RaftMessage | None:
        """Give the lead up at once; a message that has the most advanced voter stand for election, if one is known.

        None of the `late`, whose disks hang or did a moment ago: they would not stand. One of the `draining` only where
        there is nobody else: it is about to stop.

        Safe at any moment: it is the step down of a leader that finds no quorum (thesis 6.2), and whoever is asked
        still has to win an election. For a leader whose disk hangs: its Ready may be stuck behind the write, so the
        message does not go through it."""
        return resign(self.raft, late, draining)

    # Heartbeats without messages, for a caller that has many groups to tell the same peers about.

    def pace_heartbeats(self, elapsed: int) -> None:
        """Before each `tick`: the caller's heartbeats were `elapsed` ticks ago. Raft makes those messages of its own
        with which reads wait, at the same pace; all others are in `heartbeats`."""
        raft = self.raft
        raft.heartbeat_elapsed = elapsed if raft.read_only.context() else -1

    def heartbeats(self) -> list[tuple[int, int]]:
        """On the leader: (node, commit) of the heartbeats that are due, instead of their messages (which `tick` makes
        without `pace_heartbeats`). Nothing while reads wait: those go in messages."""
        raft = self.raft
        if raft.state != StateType.LEADER or raft.read_only.context():
            return []
        committed = raft.raft_log.committed
        due: list[tuple[int, int]] = []
        for node_id in raft.tracker.members():
            if node_id != raft.id:
                progress = raft.tracker.progress[node_id]
                commit = progress.match if progress.match < committed else committed
                progress.sent_commit = commit
                due.append((node_id, commit))
        return due

    def take_heartbeat(self, leader_id: int, term: int, commit: int) -> bool:
        """A heartbeat that asks nothing: the same as to `step` its message, but that the caller answers. False, and
        nothing done, unless it is of the leader that this node follows and about entries that it has."""
        raft = self.raft
        if (
            raft.state != StateType.FOLLOWER
            or raft.term != term
            or raft.lead != leader_id
            or commit > raft.raft_log.last_index()
        ):
            return False
        raft.election_elapsed = 0
        raft.raft_log.commit_to(commit)
        return True

    def take_heartbeat_response(self, node_id: int, term: int) -> bool:
        """The answer to a heartbeat that asked nothing: the same as to `step` its message. False, and nothing done,
        unless this node leads in that term and the other one needs nothing."""
        raft = self.raft
        progress = raft.tracker.progress.get(node_id)
        if (
            raft.state != StateType.LEADER
            or raft.term != term
            or progress is None
            or progress.match < raft.raft_log.last_index()
            or progress.state == ProgressState.PROBE
        ):
            return False
        progress.recent_active = True
        progress.flow_paused = False
        return True

    def report_unreachable(self, node_id: int) -> None:
        """Messages to a node are being lost."""
        step(self.raft, RaftMessage(MessageType.UNREACHABLE, from_=node_id))

    def report_snapshot(self, node_id: int, ok: bool) -> None:
        """The sending of a snapshot has ended. Without this a node may wait for ever after a failure."""
        step(self.raft, RaftMessage(MessageType.SNAP_STATUS, from_=node_id, reject=not ok))

    def send_all_anew(self, node_id: int) -> None:
        """On the leader: a member's log is damaged, it asks for everything. What it acknowledged no longer counts,
        and it gets a snapshot (unless one is on its way)."""
        raft = self.raft
        progress = raft.tracker.progress.get(node_id)
        if raft.state != StateType.LEADER or progress is None or progress.state == ProgressState.SNAPSHOT:
            return
        progress.reset(0, 1)
        progress.recent_active = True
        send_append(raft, node_id, progress, True)

    def transfer_leader(self, node_id: int) -> None:
        """Ask the leader, wherever it is, to hand over to a voter."""
        step(self.raft, RaftMessage(MessageType.TRANSFER_LEADER, from_=node_id))

    def forget_leader(self) -> None:
        """Let a follower vote as if it had heard of no leader in this term."""
        step(self.raft, RaftMessage(MessageType.FORGET_LEADER))

    def read_index(self, context: bytes) -> None:
        """Ask for an index whose state is fresh enough to read; it comes in ``Ready.read_states``.

        The request may be lost with a message or a leader: ask again. Raises `ProposalDropped` when no
        leader is known.
        """
        if self.raft.lead == NO_LEADER:
            raise ProposalDropped("no leader is known")
        step(self.raft, RaftMessage(MessageType.READ_INDEX, entries=[Entry(data=context)]))

    # What may be asked at any time.

    @property
    def lead(self) -> int:
        """The leader that is known; `NO_LEADER` without one (etcd's ``SoftState.Lead``)."""
        return self.raft.lead

    @property
    def leads(self) -> bool:
        """Whether this node is the leader (etcd's ``StateLeader``)."""
        return self.raft.state == StateType.LEADER

    @property
    def term(self) -> int:
        """The current term (section 5.1)."""
        return self.raft.term

    @property
    def committed(self) -> int:
        """The commit index (section 5.3)."""
        return self.raft.raft_log.committed

    @property
    def last_index(self) -> int:
        """The index of the last entry, whether it is on disk or not."""
        return self.raft.raft_log.last_index()

    @property
    def vouched(self) -> tuple[int, int]:
        """Term and index of the last entry that this node has, or has had before it gave its log up."""
        return self.raft.raft_log.vouched

    @property
    def is_behind_what_was_given_up(self) -> bool:
        """Whether this node has had more, in a log that it gave up."""
        return self.raft.raft_log.is_behind_what_was_given_up

    def term_at(self, index: int) -> int:
        """The term of the entry at an index. Raises `Compacted` or `Unavailable` where the log has none."""
        return self.raft.raft_log.term(index)

    @property
    def taken_snapshot(self) -> Snapshot | None:
        """See `Raft.taken_snapshot`."""
        return self.raft.taken_snapshot

    def would_restore(self, term: int, snapshot: Snapshot) -> bool:
        """Whether a leader's snapshot would take the place of the log: it is of no earlier term, and has something
        committed that the log has not (section 7; etcd's ``restore``)."""
        log, metadata = self.raft.raft_log, snapshot.metadata
        return (
            term >= self.raft.term
            and metadata.index > log.committed
            and not log.matches(metadata.index, metadata.term)
        )

    @property
    def is_election_due(self) -> bool:
        """Whether the election timeout ends with the next tick (section 5.2; etcd's ``pastElectionTimeout``)."""
        raft = self.raft
        return raft.election_elapsed + 1 >= raft.randomized_election_timeout

    def ticks_to_election(self, most: int) -> int:
        """With how many more ticks this node may stand for election if nothing is heard until then; `most` if that is
        not sooner, as where it leads, or may not be elected."""
        raft = self.raft
        ticks = raft.randomized_election_timeout - raft.election_elapsed
        return most if ticks >= most or raft.state == StateType.LEADER or not raft.is_promotable() else ticks

    @property
    def decides_alone(self) -> bool:
        """Whether one voter is all there is (etcd's ``IsSingleton``)."""
        return self.raft.tracker.is_singleton()

    def is_member(self, node_id: int) -> bool:
        """Whether a node is a voter or a learner, as far as this node knows."""
        return node_id in self.raft.tracker.progress

    # And on the leader.

    @property
    def lead_transferee(self) -> int:
        """To whom the lead is being handed; `NO_NODE` if to nobody (thesis 3.10; etcd's ``LeadTransferee``)."""
        return self.raft.lead_transferee

    @property
    def has_pending_conf_change(self) -> bool:
        """Whether there may be a membership change that is not applied, so that none can be proposed (thesis 4.1;
        etcd's ``pendingConfIndex``)."""
        return self.raft.pending_conf_index > self.raft.raft_log.applied

    def is_replicating(self, node_id: int) -> bool:
        """Whether a member follows, so that nothing waits for its answer to an empty message (etcd's
        ``StateReplicate``)."""
        progress = self.raft.tracker.progress.get(node_id)
        return progress is not None and progress.state == ProgressState.REPLICATE

    def matched(self, node_id: int) -> int:
        """The last index known to be on a member's disk (section 5.3: matchIndex); 0 if it is not a member."""
        progress = self.raft.tracker.progress.get(node_id)
        return 0 if progress is None else progress.match

    def slowest_match(self) -> int:
        """The last index known to be on every member's disk."""
        return min(progress.match for progress in self.raft.tracker.progress.values())

    def followers(self) -> list[FollowerStatus]:
        """The other members as the leader sees them (etcd's ``WithProgress``); nobody where this node does not lead."""
        return followers_of(self.raft)

    # What comes out.

    def has_ready(self) -> bool:
        """Whether `ready` has anything to hand over."""
        raft = self.raft
        log = raft.raft_log
        return bool(
            raft.messages
            or raft.messages_after_append
            or log.committed != self._known_commit
            or raft.term != self._known_term
            or raft.vote != self._known_vote
            or raft.lead != self._known_lead
            or raft.state != self._known_state
            or log.unstable.has_next_entries()
            or log.has_next_committed(not self._async_storage_writes)
            or log.unstable.next_snapshot() is not None
            or raft.read_states
        )

    def ready(self) -> Ready:
        """Hand over what has gathered. Raises `RaftError` when the last one was not advanced."""
        if self._awaits_advance:
            raise RaftError("the last Ready was not advanced")
        raft = self.raft
        log = raft.raft_log
        ready = Ready()
        ready.entries = log.unstable.next_entries()
        ready.snapshot = log.unstable.next_snapshot()
        ready.committed_entries = log.next_committed(not self._async_storage_writes)
        self._note_states(ready)
        if raft.read_states:
            ready.read_states = raft.read_states
            raft.read_states = []
        ready.messages_now = raft.messages
        raft.messages = []
        after_append = raft.messages_after_append
        raft.messages_after_append = []
        response = self._storage_append_response(ready)
        if self._async_storage_writes:
            self._ask_storage(ready, after_append, response)
        else:
            self._keep_for_advance(ready, after_append, response)
        self._accept(ready)
        return ready

    def _note_states(self, ready: Ready) -> None:
        raft = self.raft
        committed = raft.raft_log.committed
        if raft.lead != self._known_lead or raft.state != self._known_state:
            self._known_lead = raft.lead
            self._known_state = raft.state
            ready.soft_state = SoftState(raft.lead, raft.state)
        voted = raft.term != self._known_term or raft.vote != self._known_vote
        ready.must_sync = voted or bool(ready.entries)
        if voted or committed != self._known_commit:
            self._known_term = raft.term
            self._known_vote = raft.vote
            self._known_commit = committed
            ready.hard_state = HardState(raft.term, raft.vote, committed)

    def _storage_append_response(self, ready: Ready) -> RaftMessage | None:
        """What the core must hear when everything handed over so far is durable.

        It names the last entry even when this Ready brings none: the answer to the write that brought it may
        have been ignored because the term changed meanwhile, and the entries would stay unstable for ever.
        """
        raft = self.raft
        log = raft.raft_log
        if not log.unstable.entries and ready.snapshot is None:
            return None
        response = RaftMessage(
            MessageType.STORAGE_APPEND_RESP, raft.id, LOCAL_APPEND_THREAD, raft.term, snapshot=ready.snapshot
        )
        if log.unstable.entries:
            response.index = log.last_index()
            response.log_term = log.last_term()
        return response

    def _ask_storage(self, ready: Ready, after_append: list[RaftMessage], response: RaftMessage | None) -> None:
        own_id = self.raft.id
        ready.messages = ready.messages_now[:]
        if ready.entries or ready.hard_state is not None or ready.snapshot is not None or after_append:
            if response is not None:
                after_append.append(response)
            append = RaftMessage(
                MessageType.STORAGE_APPEND,
                LOCAL_APPEND_THREAD,
                own_id,
                entries=ready.entries,
                snapshot=ready.snapshot,
                responses=after_append,
            )
            hard_state = ready.hard_state
            if hard_state is not None:
                append.term, append.vote, append.commit = hard_state.term, hard_state.vote, hard_state.commit
            ready.messages.append(append)
        if ready.committed_entries:
            entries = ready.committed_entries
            done = RaftMessage(
                MessageType.STORAGE_APPLY_RESP, own_id, LOCAL_APPLY_THREAD, entries=entries
            )
            ready.messages.append(
                RaftMessage(
                    MessageType.STORAGE_APPLY, LOCAL_APPLY_THREAD, own_id, entries=entries, responses=[done]
                )
            )

    def _keep_for_advance(
        self, ready: Ready, after_append: list[RaftMessage], response: RaftMessage | None
    ) -> None:
        own_id = self.raft.id
        for message in after_append:
            if message.to == own_id:
                self._own_messages.append(message)
            else:
                ready.messages_after_append.append(message)
        if ready.messages_after_append:
            ready.messages = ready.messages_now + ready.messages_after_append
        else:
            ready.messages = ready.messages_now
        self._append_response = response
        self._applying = ready.committed_entries
        self._awaits_advance = True

    def _accept(self, ready: Ready) -> None:
        log = self.raft.raft_log
        log.unstable.accept()
        committed = ready.committed_entries
        if committed:
            size = 0
            for entry in committed:
                size += entry_bytes(entry)
            log.accept_applying(committed[-1].index, size, not self._async_storage_writes)

    def advance(self) -> None:
        """What the last `ready` handed over is stored, sent and applied."""
        if self._async_storage_writes:
            raise RaftError("with asynchronous storage writes nothing is advanced")
        raft = self.raft
        own_messages = self._own_messages
        if own_messages:
            self._own_messages = []
            for message in own_messages:
                step(raft, message)
        response = self._append_response
        if response is not None:
            self._append_response = None
            step(raft, response)
        applied = self._applying
        if applied:
            self._applying = []
            entries_applied(raft, applied)
        self._awaits_advance = False

    def status(self) -> Status:
        """A copy of what this node knows."""
        return status_of(self.raft)
