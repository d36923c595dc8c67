"""One member of a Raft group: its state, and the passage from one role to another.

How the core works
==================

The core is a state machine without input or output. Two things go in: ticks of a clock, and messages
(from other members, from storage, from the caller). What comes out gathers in lists, until `RawNode.ready`
hands it over: entries and a hard state to be stored, messages to be sent, entries to be applied. Nothing
here waits, and the only chance is the injected ``random``; the same input gives the same output.

Roles and what they do with a message are tables, one per role, in modules of their own:

    follower.py     take entries, heartbeats and snapshots from the leader; pass proposals on to it
    candidate.py    count votes
    leader.py       take proposals, answers of followers, read requests, transfers of leadership
    voting.py       what all roles share: begin an election, answer a request for a vote
    replication.py  what a leader sends, and when an entry is committed
    step.py         the way of a message: its term first (section 5.1), then the table of the role

Around them, each to be understood on its own:

    messages, conf_change, ready        the values that pass in and out
    log, unstable, storage              entries: what is on disk, and what is on its way there
    progress, inflights                 how far each follower is, and what is under way to it
    quorum, tracker                     who decides, and whether they have
    membership, reconfiguration         how the group changes, and what a running node does about it
    read_only                           reads without entries
    succession                          who stands for election when a leader is gone or gives up, and sooner
    admission                           what is refused before it can do harm
    raw_node                            the face of it all

`Raft` itself, in this module, holds the state that they share and the four passages between roles:

    FOLLOWER --timeout--> PRE_CANDIDATE --majority would vote--> CANDIDATE --majority votes--> LEADER
       ^                        |                                    |                           |
       +------- a leader, or a higher term, is heard of; an election is lost; no quorum answers -+

What must be durable before it is said
======================================

A vote, or the acceptance of entries, may only be told after it is on disk (section 5, figure 2; thesis
3.8). Such messages go to ``messages_after_append``; everything else to ``messages``, which may leave at
once. That holds for a node's own voice as well: the leader's own acknowledgement of its entries and a
candidate's vote for itself are messages to itself in ``messages_after_append``, and count only when they
come back.

Safety in short
===============

Elections (5.2, 5.4.1): one vote per term, only for a log at least as complete as one's own. Replication
(5.3): entries are taken only where the entry before them agrees, so equal index and term means equal
prefix. Commitment (5.4.2): a leader counts replicas only for entries of its own term; older ones are
committed by the first entry after them. Hence a leader begins its term with an empty entry.
"""

from collections.abc import Callable

from mayfly.cluster.raft.config import Config
from mayfly.cluster.raft.errors import RaftError
from mayfly.cluster.raft.log import RaftLog
from mayfly.cluster.raft.membership import ProgressLimits, restored_membership
from mayfly.cluster.raft.messages import NO_LEADER, NO_NODE, Entry, HardState, RaftMessage, Snapshot, StateType
from mayfly.cluster.raft.read_only import ReadOnly
from mayfly.cluster.raft.ready import ReadState
from mayfly.cluster.raft.tracker import Tracker


class Raft:
    """The state of one member. Everything but the passages between roles is done by the role modules."""

    def __init__(self, config: Config) -> None:
        hard_state, conf_state = config.storage.initial_state()
        self.id: int = config.id
        self.term: int = hard_state.term
        self.vote: int = hard_state.vote
        self.state: int = StateType.FOLLOWER
        self.lead: int = NO_LEADER
        self.lead_transferee: int = NO_NODE
        self.is_learner: bool = False

        self.raft_log: RaftLog = RaftLog(
            config.storage, config.max_committed_size_per_ready, config.given_up
        )
        self.limits: ProgressLimits = ProgressLimits(config.max_inflight_messages, config.max_inflight_bytes)
        configuration, progress = restored_membership(conf_state, self.raft_log.last_index(), self.limits)
        self.tracker: Tracker = Tracker(configuration, progress)
        self.read_only: ReadOnly = ReadOnly(config.read_only_option)
        self.postponed_reads: list[RaftMessage] = []
        self.held_snapshot: RaftMessage | None = None
        self.read_states: list[ReadState] = []

        self.messages: list[RaftMessage] = []
        self.messages_after_append: list[RaftMessage] = []

        # A membership change may be proposed once this index is applied (one at a time, thesis 4.1).
        self.pending_conf_index: int = 0
        self.uncommitted_bytes: int = 0

        self.max_message_bytes: int = config.max_size_per_message
        self.max_uncommitted_bytes: int = config.max_uncommitted_bytes
        self.check_quorum: bool = config.check_quorum
        self.pre_vote: bool = config.pre_vote
        self.disable_proposal_forwarding: bool = config.disable_proposal_forwarding
        self.disable_conf_change_validation: bool = config.disable_conf_change_validation
        self.step_down_on_removal: bool = config.step_down_on_removal

        self.election_elapsed: int = 0
        self.heartbeat_elapsed: int = 0
        self.election_timeout: int = config.election_tick
        self.heartbeat_timeout: int = config.heartbeat_tick
        self.randomized_election_timeout: int = config.election_tick
        self.random: Callable[[int], int] = config.random
        self.trace: Callable[[str], None] | None = config.trace

        self._load(hard_state, config.applied)
        self.configuration_changed()
        self.become_follower(self.term, NO_LEADER)

    def _load(self, hard_state: HardState, applied: int) -> None:
        log = self.raft_log
        if not hard_state.is_empty():
            last = log.last_index()
            if hard_state.commit > last:
                raise RaftError(f"commit {hard_state.commit} is stored, the last entry is {last}: log lost?")
            # The stored commit index is only a hint; a snapshot may be ahead of it.
            log.committed = max(log.committed, hard_state.commit)
        if applied > 0:
            log.applied_to(applied, 0)

    def tell(self, sentence: str) -> None:
        """Pass a sentence to the trace; callers on hot paths look first whether there is one."""
        if self.trace is not None:
            self.trace(f"{self.id} at term {self.term}: {sentence}")

    # Passages between roles.

    def become_follower(self, term: int, lead: int) -> None:
        self._reset(term)
        self.state = StateType.FOLLOWER
        self.lead = lead
        self.tell(f"follower of {lead}")

    def become_pre_candidate(self) -> None:
        """Ask whether an election could be won, without touching term or vote (thesis 9.6)."""
        if self.state == StateType.LEADER:
            raise RaftError("a leader is no candidate")
        self.tracker.reset_votes()
        self.state = StateType.PRE_CANDIDATE
        self.lead = NO_LEADER
        self.tell("pre-candidate")

    def become_candidate(self) -> None:
        """Begin a new term with a vote for oneself (section 5.2)."""
        if self.state == StateType.LEADER:
            raise RaftError("a leader is no candidate")
        self._reset(self.term + 1)
        self.state = StateType.CANDIDATE
        self.vote = self.id
        self.tell("candidate")

    def become_leader(self) -> None:
        """Take the lead of the present term. The caller appends the term's first entry."""
        if self.state == StateType.FOLLOWER:
            raise RaftError("a follower must stand for election before it leads")
        self._reset(self.term)
        self.state = StateType.LEADER
        self.lead = self.id
        own = self.tracker.progress[self.id]
        own.become_replicate()
        own.recent_active = True
        # There may be a membership change in the part of the log that isn't applied yet. Instead of
        # looking, wait until all of it is.
        self.pending_conf_index = self.raft_log.last_index()
        self.tell("leader")

    def _reset(self, term: int) -> None:
        if self.term != term:
            self.term = term
            self.vote = NO_NODE
        self.lead = NO_LEADER
        self.lead_transferee = NO_NODE
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.randomized_election_timeout = self.election_timeout + self.random(self.election_timeout)
        self.tracker.reset_votes()
        last_index = self.raft_log.last_index()
        for node_id, progress in self.tracker.progress.items():
            progress.reset(last_index if node_id == self.id else 0, last_index + 1)
        self.pending_conf_index = 0
        self.uncommitted_bytes = 0
        self.read_only = ReadOnly(self.read_only.option)
        self.postponed_reads = []

    # What several roles ask.

    def configuration_changed(self) -> None:
        """Note what part this node plays itself."""
        own = self.tracker.progress.get(self.id)
        self.is_learner = own is not None and own.is_learner

    def is_promotable(self) -> bool:
        """Whether this node may stand for election: a voter, with no snapshot half installed, and with all that it ever
        had."""
        return (
            self.id in self.tracker.progress
            and not self.is_learner
            and self.raft_log.unstable.snapshot is None
            and not self.raft_log.is_behind_what_was_given_up
        )

    @property
    def taken_snapshot(self) -> Snapshot | None:
        """The newest snapshot that was taken in place of the log and is not applied yet, or that is held until what is
        being applied is done; None: there is none."""
        held = self.held_snapshot
        if held is not None and held.snapshot is not None:
            return held.snapshot
        return self.raft_log.unstable.snapshot

    def has_committed_in_term(self) -> bool:
        """Whether an entry of the present term is committed, so that the commit index is up to date."""
        return self.raft_log.term_or_zero(self.raft_log.committed) == self.term

    # The size of what is proposed but not committed.

    def take_uncommitted(self, entries: list[Entry]) -> bool:
        """Count entries in, unless that crosses the limit. Empty ones, and any first one, always pass."""
        size = 0
        for entry in entries:
            size += len(entry.data)
        taken = self.uncommitted_bytes
        if taken > 0 and size > 0 and taken + size > self.max_uncommitted_bytes:
            return False
        self.uncommitted_bytes = taken + size
        return True

    def release_uncommitted(self, entries: list[Entry]) -> None:
        """Count applied entries out. Those of former terms may never have been counted in."""
        left = self.uncommitted_bytes
        if left > 0:
            for entry in entries:
                left -= len(entry.data)
            self.uncommitted_bytes = left if left > 0 else 0
