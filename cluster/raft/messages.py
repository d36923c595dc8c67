"""The values that pass through a Raft group: entries, hard state, membership, snapshots, messages.

They are plain mutable objects for speed, but once handed over they are treated as values: nobody
changes an entry, a message or a snapshot that someone else may hold. Kinds (entry type, message
type, ...) are plain integers under a namespace class, because a comparison of two ints costs a
fraction of one between enum members. The numbers are those of etcd's wire format; they may be
stored and sent.

The indices and terms are Raft's own (Ongaro and Ousterhout, figure 2): both start at 1, and 0
stands for "none". Node ids are positive integers; 0 is nobody.
"""

from typing import Final

NO_NODE: Final = 0
"""The id of nobody: no vote given, no sender, no recipient."""

NO_LEADER: Final = 0
"""The value of ``lead`` while no leader is known."""

NO_LIMIT: Final = (1 << 62) - 1
"""Stands for "unlimited" wherever a size in bytes or an index is expected."""

LOCAL_APPEND_THREAD: Final = (1 << 64) - 1
"""Recipient of STORAGE_APPEND messages when storage writes are asynchronous."""

LOCAL_APPLY_THREAD: Final = (1 << 64) - 2
"""Recipient of STORAGE_APPLY messages when storage writes are asynchronous."""

MAX_NODE_ID: Final = (1 << 63) - 1
"""The largest id a node may have."""


class EntryType:
    """What an entry's data means."""

    NORMAL: Final = 0
    CONF_CHANGE: Final = 1
    CONF_CHANGE_V2: Final = 2


class StateType:
    """The role a node plays in its group (Raft section 5.1, and 9.6 of the thesis for pre-candidates)."""

    FOLLOWER: Final = 0
    CANDIDATE: Final = 1
    LEADER: Final = 2
    PRE_CANDIDATE: Final = 3


class MessageType:
    """What a message asks or answers.

    HUP, BEAT, CHECK_QUORUM, UNREACHABLE, SNAP_STATUS and the STORAGE ones never leave the node.
    """

    HUP: Final = 0
    BEAT: Final = 1
    PROP: Final = 2
    APP: Final = 3
    APP_RESP: Final = 4
    VOTE: Final = 5
    VOTE_RESP: Final = 6
    SNAP: Final = 7
    HEARTBEAT: Final = 8
    HEARTBEAT_RESP: Final = 9
    UNREACHABLE: Final = 10
    SNAP_STATUS: Final = 11
    CHECK_QUORUM: Final = 12
    TRANSFER_LEADER: Final = 13
    TIMEOUT_NOW: Final = 14
    READ_INDEX: Final = 15
    READ_INDEX_RESP: Final = 16
    PRE_VOTE: Final = 17
    PRE_VOTE_RESP: Final = 18
    STORAGE_APPEND: Final = 19
    STORAGE_APPEND_RESP: Final = 20
    STORAGE_APPLY: Final = 21
    STORAGE_APPLY_RESP: Final = 22
    FORGET_LEADER: Final = 23


class ConfChangeType:
    """What one step of a membership change does to one node."""

    ADD_NODE: Final = 0
    REMOVE_NODE: Final = 1
    UPDATE_NODE: Final = 2
    ADD_LEARNER_NODE: Final = 3


class ConfChangeTransition:
    """How a membership change is carried out (thesis chapter 4).

    AUTO takes the simple way when at most one voter changes, else a joint configuration that is left
    by itself. JOINT_IMPLICIT always goes through a joint configuration and leaves it by itself;
    JOINT_EXPLICIT stays in it until an empty change is proposed.
    """

    AUTO: Final = 0
    JOINT_IMPLICIT: Final = 1
    JOINT_EXPLICIT: Final = 2


ENTRY_TYPE_NAMES: Final = ("NORMAL", "CONF_CHANGE", "CONF_CHANGE_V2")
STATE_NAMES: Final = ("FOLLOWER", "CANDIDATE", "LEADER", "PRE_CANDIDATE")
MESSAGE_TYPE_NAMES: Final = (
    "HUP", "BEAT", "PROP", "APP", "APP_RESP", "VOTE", "VOTE_RESP", "SNAP", "HEARTBEAT", "HEARTBEAT_RESP",
    "UNREACHABLE", "SNAP_STATUS", "CHECK_QUORUM", "TRANSFER_LEADER", "TIMEOUT_NOW", "READ_INDEX",
    "READ_INDEX_RESP", "PRE_VOTE", "PRE_VOTE_RESP", "STORAGE_APPEND", "STORAGE_APPEND_RESP",
    "STORAGE_APPLY", "STORAGE_APPLY_RESP", "FORGET_LEADER",
)


class Entry:
    """One record of the replicated log."""

    __slots__ = ("data", "index", "term", "type")

    def __init__(self, term: int = 0, index: int = 0, type: int = EntryType.NORMAL, data: bytes = b"") -> None:
        self.term: int = term
        self.index: int = index
        self.type: int = type
        self.data: bytes = data

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Entry)
            and self.index == other.index
            and self.term == other.term
            and self.type == other.type
            and self.data == other.data
        )

    def __hash__(self) -> int:
        return hash((self.term, self.index, self.type, self.data))

    def __repr__(self) -> str:
        name = ENTRY_TYPE_NAMES[self.type] if 0 <= self.type < len(ENTRY_TYPE_NAMES) else self.type
        return f"Entry({self.term}/{self.index} {name} {len(self.data)} bytes)"


class HardState:
    """What a node must have on disk before it answers (figure 2, "persistent state"); commit is a hint."""

    __slots__ = ("commit", "term", "vote")

    def __init__(self, term: int = 0, vote: int = NO_NODE, commit: int = 0) -> None:
        self.term: int = term
        self.vote: int = vote
        self.commit: int = commit

    def is_empty(self) -> bool:
        return self.term == 0 and self.vote == NO_NODE and self.commit == 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HardState)
            and self.term == other.term
            and self.vote == other.vote
            and self.commit == other.commit
        )

    def __hash__(self) -> int:
        return hash((self.term, self.vote, self.commit))

    def __repr__(self) -> str:
        return f"HardState(term={self.term}, vote={self.vote}, commit={self.commit})"


class SoftState:
    """What a node knows about leadership; never stored."""

    __slots__ = ("lead", "state")

    def __init__(self, lead: int = NO_LEADER, state: int = StateType.FOLLOWER) -> None:
        self.lead: int = lead
        self.state: int = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftState) and self.lead == other.lead and self.state == other.state

    def __hash__(self) -> int:
        return hash((self.lead, self.state))

    def __repr__(self) -> str:
        return f"SoftState(lead={self.lead}, state={STATE_NAMES[self.state]})"


class ConfState:
    """The membership of a group at one index.

    ``voters_outgoing`` is non-empty exactly in a joint configuration; ``learners_next`` are voters of the
    outgoing half that turn into learners when the joint configuration is left.
    """

    __slots__ = ("auto_leave", "learners", "learners_next", "voters", "voters_outgoing")

    def __init__(
        self,
        voters: list[int] | None = None,
        learners: list[int] | None = None,
        voters_outgoing: list[int] | None = None,
        learners_next: list[int] | None = None,
        auto_leave: bool = False,
    ) -> None:
        self.voters: list[int] = voters if voters is not None else []
        self.learners: list[int] = learners if learners is not None else []
        self.voters_outgoing: list[int] = voters_outgoing if voters_outgoing is not None else []
        self.learners_next: list[int] = learners_next if learners_next is not None else []
        self.auto_leave: bool = auto_leave

    def _key(self) -> tuple[list[int], list[int], list[int], list[int], bool]:
        return (
            sorted(self.voters),
            sorted(self.learners),
            sorted(self.voters_outgoing),
            sorted(self.learners_next),
            self.auto_leave,
        )

    def __eq__(self, other: object) -> bool:
        """Equal when the same nodes play the same parts; the order of ids is of no meaning."""
        return isinstance(other, ConfState) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(repr(self._key()))

    def __repr__(self) -> str:
        return (
            f"ConfState(voters={self.voters}, learners={self.learners}, voters_outgoing={self.voters_outgoing}, "
            f"learners_next={self.learners_next}, auto_leave={self.auto_leave})"
        )


class SnapshotMetadata:
    """The position a snapshot stands for: everything up to and including ``index`` is in it."""

    __slots__ = ("conf_state", "index", "term")

    def __init__(self, index: int = 0, term: int = 0, conf_state: ConfState | None = None) -> None:
        self.index: int = index
        self.term: int = term
        self.conf_state: ConfState = conf_state if conf_state is not None else ConfState()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SnapshotMetadata)
            and self.index == other.index
            and self.term == other.term
            and self.conf_state == other.conf_state
        )

    def __hash__(self) -> int:
        return hash((self.index, self.term))

    def __repr__(self) -> str:
        return f"SnapshotMetadata({self.term}/{self.index} {self.conf_state!r})"


class Snapshot:
    """A state machine's state at one index, with the membership of that moment."""

    __slots__ = ("data", "metadata")

    def __init__(self, metadata: SnapshotMetadata | None = None, data: bytes = b"") -> None:
        self.metadata: SnapshotMetadata = metadata if metadata is not None else SnapshotMetadata()
        self.data: bytes = data

    def is_empty(self) -> bool:
        return self.metadata.index == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.metadata == other.metadata and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.metadata, self.data))

    def __repr__(self) -> str:
        return f"Snapshot({self.metadata!r} {len(self.data)} bytes)"


class Message:
    """What one node of a group says to another, or to its own storage.

    Which fields count depends on the type:

    - APP: ``log_term``/``index`` of the entry before ``entries``, the leader's ``commit``.
    - APP_RESP: ``index`` up to which the sender's log agrees; when ``reject``, ``index`` is the refused
      one, and ``reject_hint``/``log_term`` say where the logs may agree.
    - VOTE, PRE_VOTE: ``log_term``/``index`` of the candidate's last entry; ``context`` names the kind.
    - HEARTBEAT: ``commit``, and the ``context`` of a read index request, given back in HEARTBEAT_RESP.
    - SNAP: ``snapshot``. SNAP_STATUS, UNREACHABLE: ``from_`` is the peer reported about.
    - STORAGE_APPEND: ``term``, ``vote``, ``commit`` as a hard state, ``entries``, ``snapshot``, and in
      ``responses`` what must be delivered after the write is durable.
    """

    __slots__ = (
        "commit",
        "context",
        "entries",
        "from_",
        "index",
        "log_term",
        "reject",
        "reject_hint",
        "responses",
        "snapshot",
        "term",
        "to",
        "type",
        "vote",
    )

    def __init__(
        self,
        type: int,
        to: int = NO_NODE,
        from_: int = NO_NODE,
        term: int = 0,
        log_term: int = 0,
        index: int = 0,
        commit: int = 0,
        vote: int = NO_NODE,
        reject: bool = False,
        reject_hint: int = 0,
        entries: list[Entry] | None = None,
        snapshot: Snapshot | None = None,
        context: bytes = b"",
        responses: "list[Message] | None" = None,
    ) -> None:
        self.type: int = type
        self.to: int = to
        self.from_: int = from_
        self.term: int = term
        self.log_term: int = log_term
        self.index: int = index
        self.commit: int = commit
        self.vote: int = vote
        self.reject: bool = reject
        self.reject_hint: int = reject_hint
        self.entries: list[Entry] = entries if entries is not None else []
        self.snapshot: Snapshot | None = snapshot
        self.context: bytes = context
        self.responses: list[Message] = responses if responses is not None else []

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Message)
            and self.type == other.type
            and self.to == other.to
            and self.from_ == other.from_
            and self.term == other.term
            and self.log_term == other.log_term
            and self.index == other.index
            and self.commit == other.commit
            and self.vote == other.vote
            and self.reject == other.reject
            and self.reject_hint == other.reject_hint
            and self.entries == other.entries
            and self.snapshot == other.snapshot
            and self.context == other.context
            and self.responses == other.responses
        )

    def __hash__(self) -> int:
        return hash((self.type, self.to, self.from_, self.term, self.index))

    def __repr__(self) -> str:
        name = MESSAGE_TYPE_NAMES[self.type] if 0 <= self.type < len(MESSAGE_TYPE_NAMES) else self.type
        return (
            f"Message({name} {self.from_}->{self.to} term={self.term} log={self.log_term}/{self.index} "
            f"commit={self.commit} reject={self.reject} entries={len(self.entries)})"
        )


class ReadState:
    """The answer to a read index request: state applied up to ``index`` is fresh enough to be read."""

    __slots__ = ("index", "request_context")

    def __init__(self, index: int, request_context: bytes) -> None:
        self.index: int = index
        self.request_context: bytes = request_context

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReadState)
            and self.index == other.index
            and self.request_context == other.request_context
        )

    def __hash__(self) -> int:
        return hash((self.index, self.request_context))

    def __repr__(self) -> str:
        return f"ReadState(index={self.index}, request_context={self.request_context!r})"


class ConfChangeSingle:
    """One step of a membership change."""

    __slots__ = ("node_id", "type")

    def __init__(self, type: int, node_id: int) -> None:
        self.type: int = type
        self.node_id: int = node_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfChangeSingle) and self.type == other.type and self.node_id == other.node_id

    def __hash__(self) -> int:
        return hash((self.type, self.node_id))

    def __repr__(self) -> str:
        return f"ConfChangeSingle({self.type}, {self.node_id})"


class ConfChange:
    """A membership change of one node, applied the simple way (entry type CONF_CHANGE)."""

    __slots__ = ("context", "node_id", "type")

    def __init__(self, type: int, node_id: int, context: bytes = b"") -> None:
        self.type: int = type
        self.node_id: int = node_id
        self.context: bytes = context

    def as_v2(self) -> "ConfChangeV2":
        return ConfChangeV2(ConfChangeTransition.AUTO, [ConfChangeSingle(self.type, self.node_id)], self.context)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfChange)
            and self.type == other.type
            and self.node_id == other.node_id
            and self.context == other.context
        )

    def __hash__(self) -> int:
        return hash((self.type, self.node_id, self.context))

    def __repr__(self) -> str:
        return f"ConfChange({self.type}, {self.node_id})"


class ConfChangeV2:
    """A membership change of any number of nodes (entry type CONF_CHANGE_V2).

    Without changes, and with transition AUTO, it asks to leave a joint configuration.
    """

    __slots__ = ("changes", "context", "transition")

    def __init__(
        self,
        transition: int = ConfChangeTransition.AUTO,
        changes: list[ConfChangeSingle] | None = None,
        context: bytes = b"",
    ) -> None:
        self.transition: int = transition
        self.changes: list[ConfChangeSingle] = changes if changes is not None else []
        self.context: bytes = context

    def as_v2(self) -> "ConfChangeV2":
        return self

    def leaves_joint(self) -> bool:
        """Whether this is the empty change that ends a joint configuration."""
        return not self.changes and self.transition == ConfChangeTransition.AUTO

    def enters_joint(self) -> bool:
        """Whether this change goes through a joint configuration."""
        return self.transition != ConfChangeTransition.AUTO or len(self.changes) > 1

    def auto_leave(self) -> bool:
        """Whether the joint configuration that this change enters is left without being asked."""
        return self.transition != ConfChangeTransition.JOINT_EXPLICIT

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfChangeV2)
            and self.transition == other.transition
            and self.changes == other.changes
            and self.context == other.context
        )

    def __hash__(self) -> int:
        return hash((self.transition, tuple(self.changes), self.context))

    def __repr__(self) -> str:
        return f"ConfChangeV2({self.transition}, {self.changes!r})"


class Ready:
    """What a node wants done since the last time it was asked.

    Without asynchronous storage writes the caller, in this order: may send ``messages_now`` at once;
    stores ``snapshot``, ``entries`` and ``hard_state`` durably (``must_sync`` says whether a sync is due);
    sends ``messages_after_append``; applies ``snapshot`` and then ``committed_entries``; calls ``advance``.

    ``messages`` holds the same messages as the two views together, in the order the core made them, with
    asynchronous storage writes also those for the local storage threads.
    """

    __slots__ = (
        "committed_entries",
        "entries",
        "hard_state",
        "messages",
        "messages_after_append",
        "messages_now",
        "must_sync",
        "read_states",
        "snapshot",
        "soft_state",
    )

    def __init__(self) -> None:
        self.soft_state: SoftState | None = None
        self.hard_state: HardState | None = None
        self.read_states: list[ReadState] = []
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.committed_entries: list[Entry] = []
        self.messages: list[Message] = []
        self.must_sync: bool = False
        self.messages_now: list[Message] = []
        self.messages_after_append: list[Message] = []

    def __repr__(self) -> str:
        return (
            f"Ready(soft={self.soft_state!r}, hard={self.hard_state!r}, entries={self.entries!r}, "
            f"committed={self.committed_entries!r}, messages={self.messages!r})"
        )
