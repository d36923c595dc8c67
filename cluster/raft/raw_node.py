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
"""

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
    Message,
    MessageType,
    SoftState,
    StateType,
    entry_bytes,
)
from mayfly.cluster.raft.progress import ProgressState
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.ready import Ready
from mayfly.cluster.raft.reconfiguration import apply_conf_change
from mayfly.cluster.raft.replication import send_append
from mayfly.cluster.raft.status import Status, status_of
from mayfly.cluster.raft.step import entries_applied, step, tick


class RawNode:
    """One member of a group. Not safe for use by several threads."""

    def __init__(self, config: Config) -> None:
        """Raises `RaftError` when what storage holds contradicts itself."""
        self.raft: Raft = Raft(config)
        self._async_storage_writes: bool = config.async_storage_writes
        raft = self.raft
        self._known_term: int = raft.term
        self._known_vote: int = raft.vote
        self._known_commit: int = raft.raft_log.committed
        self._known_lead: int = raft.lead
        self._known_state: int = raft.state
        # What `advance` is to do.
        self._awaits_advance: bool = False
        self._own_messages: list[Message] = []
        self._append_response: Message | None = None
        self._applying: list[Entry] = []

    # What goes in.

    def tick(self) -> None:
        """One unit of time has passed; ``election_tick`` and ``heartbeat_tick`` count these."""
        tick(self.raft)

    def campaign(self) -> None:
        """Stand for election now, if this node may."""
        step(self.raft, Message(MessageType.HUP, from_=self.raft.id))

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

    def check(self, message: Message) -> None:
        """Raise what `step` would for a message that no member can have sent, for a caller that keeps it for later."""
        check_message(self.raft, message, self._async_storage_writes)

    def step(self, message: Message) -> None:
        """Take a message of another member (or, with asynchronous writes, of the own storage).

        Raises `RaftError` for a message that no member can have sent, `UnknownPeer` for an answer of a node
        that isn't a member, `ProposalDropped` for a forwarded proposal that isn't taken. Nothing has changed
        then.
        """
        check_message(self.raft, message, self._async_storage_writes)
        step(self.raft, message)

    # Heartbeats without messages, for a caller that has many groups to tell the same peers about.

    def heartbeats(self) -> list[tuple[int, int]]:
        """On the leader: (node, commit) of the heartbeats that are due, instead of their messages (which `tick` makes
        unless `heartbeat_elapsed` is kept low). Nothing while reads wait: those go in messages."""
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

    def hear_beat(self, leader_id: int, term: int, commit: int) -> bool:
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

    def hear_beat_answer(self, node_id: int, term: int) -> bool:
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
        step(self.raft, Message(MessageType.UNREACHABLE, from_=node_id))

    def report_snapshot(self, node_id: int, ok: bool) -> None:
        """The sending of a snapshot has ended. Without this a node may wait for ever after a failure."""
        step(self.raft, Message(MessageType.SNAP_STATUS, from_=node_id, reject=not ok))

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
        step(self.raft, Message(MessageType.TRANSFER_LEADER, from_=node_id))

    def forget_leader(self) -> None:
        """Let a follower vote as if it had heard of no leader in this term."""
        step(self.raft, Message(MessageType.FORGET_LEADER))

    def read_index(self, context: bytes) -> None:
        """Ask for an index whose state is fresh enough to read; it comes in ``Ready.read_states``.

        The request may be lost with a message or a leader: ask again. Raises `ProposalDropped` when no
        leader is known.
        """
        if self.raft.lead == NO_LEADER:
            raise ProposalDropped("no leader is known")
        step(self.raft, Message(MessageType.READ_INDEX, entries=[Entry(data=context)]))

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

    def _storage_append_response(self, ready: Ready) -> Message | None:
        """What the core must hear when everything handed over so far is durable.

        It names the last entry even when this Ready brings none: the answer to the write that brought it may
        have been ignored because the term changed meanwhile, and the entries would stay unstable for ever.
        """
        raft = self.raft
        log = raft.raft_log
        if not log.unstable.entries and ready.snapshot is None:
            return None
        response = Message(
            MessageType.STORAGE_APPEND_RESP, raft.id, LOCAL_APPEND_THREAD, raft.term, snapshot=ready.snapshot
        )
        if log.unstable.entries:
            response.index = log.last_index()
            response.log_term = log.last_term()
        return response

    def _ask_storage(self, ready: Ready, after_append: list[Message], response: Message | None) -> None:
        own_id = self.raft.id
        ready.messages = ready.messages_now[:]
        if ready.entries or ready.hard_state is not None or ready.snapshot is not None or after_append:
            if response is not None:
                after_append.append(response)
            append = Message(
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
            done = Message(
                MessageType.STORAGE_APPLY_RESP, own_id, LOCAL_APPLY_THREAD, entries=entries
            )
            ready.messages.append(
                Message(
                    MessageType.STORAGE_APPLY, LOCAL_APPLY_THREAD, own_id, entries=entries, responses=[done]
                )
            )

    def _keep_for_advance(
        self, ready: Ready, after_append: list[Message], response: Message | None
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
