"""A member that tells each of its steps: what went in, what it says and promises because of it, and what it is then.

For holding runs against a specification (specifications/README.md), and for whoever wants to see a group think. Whoever
does not make one of these pays nothing: a `RawNode` knows nothing of recording.
"""

from collections.abc import Callable, Collection

from mayfly.cluster.raft.conf_change import ConfChange, ConfChangeV2
from mayfly.cluster.raft.config import Config
from mayfly.cluster.raft.messages import ConfState, Entry, EntryType, MessageType, RaftMessage, StateType
from mayfly.cluster.raft.raw_node import RawNode
from mayfly.cluster.raft.ready import Ready


class Standing:
    """What a member is at a moment: the variables of figure 2, without the log's entries."""

    __slots__ = ("applied", "commit", "last_index", "last_term", "role", "term", "vote")

    def __init__(self, node: RawNode) -> None:
        raft = node.raft
        log = raft.raft_log
        self.role: int = raft.state
        self.term: int = raft.term
        self.vote: int = raft.vote
        self.commit: int = log.committed
        self.applied: int = log.applied
        self.last_index: int = log.last_index()
        self.last_term: int = log.last_term()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Standing)
            and self.role == other.role
            and self.term == other.term
            and self.vote == other.vote
            and self.commit == other.commit
            and self.applied == other.applied
            and self.last_index == other.last_index
            and self.last_term == other.last_term
        )

    def __hash__(self) -> int:
        return hash((self.term, self.vote, self.commit, self.last_index))


class RecordedStep:
    """One step of one member."""

    __slots__ = ("after", "before", "context", "entries", "members", "message", "node", "promised", "said", "what")

    def __init__(self, node: int, what: str, before: Standing, after: Standing) -> None:
        self.node: int = node
        self.what: str = what
        """The method of `RawNode` that was called; "start" for its making."""
        self.before: Standing = before
        self.after: Standing = after
        self.message: RaftMessage | None = None
        """What was heard (`step`), or taken now though it was heard before (`advance`)."""
        self.said: list[RaftMessage] = []
        """Messages that may leave at once, made in this step."""
        self.promised: list[RaftMessage] = []
        """Messages that wait for the next write, made in this step; those to itself too."""
        self.entries: list[Entry] = []
        """What a leader appended; of `apply_conf_change` the entry that was applied."""
        self.members: ConfState | None = None
        """The membership from now on, where the step put one in force."""
        self.context: list[tuple[bytes, int]] = []
        """Reads that were asked for (with index 0) or answered (with theirs)."""


class RecordedNode(RawNode):
    """A `RawNode` that passes each step to `record` when it has been made."""

    def __init__(self, config: Config, record: Callable[[RecordedStep], None]) -> None:
        super().__init__(config)
        self._record: Callable[[RecordedStep], None] = record
        self._said: int = 0
        self._promised: int = 0
        self._standing: Standing = Standing(self)
        self._changes: list[Entry] = []
        step = RecordedStep(self.raft.id, "start", self._standing, self._standing)
        step.members = self.raft.tracker.configuration.conf_state()
        record(step)

    def _note(self, what: str, message: RaftMessage | None = None) -> RecordedStep:
        """The step just made, as far as it shows; whoever asked may add to it, and passes it on."""
        raft = self.raft
        before, after = self._standing, Standing(self)
        step = RecordedStep(raft.id, what, before, after)
        step.message = message
        step.said = raft.messages[self._said :]
        step.promised = raft.messages_after_append[self._promised :]
        if after.role == StateType.LEADER and after.last_index > before.last_index:
            step.entries = raft.raft_log.slice(before.last_index + 1, after.last_index + 1, 1 << 60)
        self._standing = after
        self._said = len(raft.messages)
        self._promised = len(raft.messages_after_append)
        return step

    def tick(self) -> None:
        super().tick()
        self._record(self._note("tick"))

    def campaign(self) -> None:
        super().campaign()
        self._record(self._note("campaign"))

    def propose(self, data: bytes) -> None:
        super().propose(data)
        self._record(self._note("propose"))

    def propose_batch(self, batch: list[bytes]) -> None:
        super().propose_batch(batch)
        self._record(self._note("propose_batch"))

    def propose_conf_change(self, change: ConfChange | ConfChangeV2) -> None:
        super().propose_conf_change(change)
        self._record(self._note("propose_conf_change"))

    def apply_conf_change(self, change: ConfChange | ConfChangeV2) -> ConfState:
        members = super().apply_conf_change(change)
        step = self._note("apply_conf_change")
        step.members = members
        step.entries = [self._changes.pop(0)]
        self._record(step)
        return members

    def step(self, message: RaftMessage) -> None:
        try:
            super().step(message)
        finally:
            step = self._note("step", message)
            if self.raft.held_snapshot is message:
                step.what = "hold"
            self._note_restored(step)
            self._record(step)

    def _note_restored(self, step: RecordedStep) -> None:
        """A snapshot that was taken in place of the log brings its membership."""
        message = step.message
        taken = self.raft.raft_log.unstable.snapshot
        if message is not None and taken is not None and message.snapshot is taken:
            step.members = self.raft.tracker.configuration.conf_state()

    def resign(self, late: Collection[int], draining: Collection[int]) -> RaftMessage | None:
        told = super().resign(late, draining)
        step = self._note("resign")
        if told is not None:
            step.said.append(told)
        self._record(step)
        return told

    def heartbeats(self) -> list[tuple[int, int]]:
        due = super().heartbeats()
        step = self._note("heartbeats")
        raft = self.raft
        step.said += [
            RaftMessage(MessageType.HEARTBEAT, node, raft.id, raft.term, commit=commit) for node, commit in due
        ]
        self._record(step)
        return due

    def take_heartbeat(self, leader_id: int, term: int, commit: int) -> bool:
        heard = super().take_heartbeat(leader_id, term, commit)
        if heard:
            message = RaftMessage(MessageType.HEARTBEAT, self.raft.id, leader_id, term, commit=commit)
            self._record(self._note("step", message))
        return heard

    def report_unreachable(self, node_id: int) -> None:
        super().report_unreachable(node_id)
        self._record(self._note("report_unreachable"))

    def report_snapshot(self, node_id: int, ok: bool) -> None:
        super().report_snapshot(node_id, ok)
        self._record(self._note("report_snapshot"))

    def send_all_anew(self, node_id: int) -> None:
        super().send_all_anew(node_id)
        self._record(self._note("send_all_anew"))

    def transfer_leader(self, node_id: int) -> None:
        super().transfer_leader(node_id)
        self._record(self._note("transfer_leader"))

    def forget_leader(self) -> None:
        super().forget_leader()
        self._record(self._note("forget_leader"))

    def read_index(self, context: bytes) -> None:
        super().read_index(context)
        step = self._note("read_index")
        step.context = [(context, 0)]
        self._record(step)

    def ready(self) -> Ready:
        ready = super().ready()
        self._said = 0
        self._promised = 0
        self._changes = [entry for entry in ready.committed_entries if entry.type != EntryType.NORMAL]
        step = self._note("ready")
        step.context = [(state.request_context, state.index) for state in ready.read_states]
        self._record(step)
        return ready

    def advance(self) -> None:
        held = self.raft.held_snapshot
        super().advance()
        step = self._note("advance")
        if held is not None and self.raft.held_snapshot is None:
            step.message = held
            self._note_restored(step)
        self._record(step)
