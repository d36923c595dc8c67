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


ENTRY_TYPE_NAMES: Final = ("NORMAL", "CONF_CHANGE", "CONF_CHANGE_V2")
STATE_NAMES: Final = ("FOLLOWER", "CANDIDATE", "LEADER", "PRE_CANDIDATE")
MESSAGE_TYPE_NAMES: Final = (
    "HUP", "BEAT", "PROP", "APP", "APP_RESP", "VOTE", "VOTE_RESP", "SNAP", "HEARTBEAT", "HEARTBEAT_RESP",
    "UNREACHABLE", "SNAP_STATUS", "CHECK_QUORUM", "TRANSFER_LEADER", "TIMEOUT_NOW", "READ_INDEX",
    "READ_INDEX_RESP", "PRE_VOTE", "PRE_VOTE_RESP", "STORAGE_APPEND", "STORAGE_APPEND_RESP",
    "STORAGE_APPLY", "STORAGE_APPLY_RESP", "FORGET_LEADER",
)


COUNTED_ENTRY_OVERHEAD_BYTES: Final = 24
"""What an entry counts beyond its data wherever sizes of entries are limited."""


class Entry:
    """One record of the replicated log."""

    __slots__ = ("data", "index", "term", "type")

    def __init__(
        self, term: int = 0, index: int = 0, type: int = EntryType.NORMAL, data: bytes = b""
    ) -> None:
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


def entry_bytes(entry: Entry) -> int:
    """The size of an entry as limits count it, in bytes."""
    return len(entry.data) + COUNTED_ENTRY_OVERHEAD_BYTES


def limit_entries(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """The longest prefix that fits in ``max_bytes``, but at least one entry where there is one."""
    if max_bytes >= NO_LIMIT:
        return entries
    total = 0
    for position, entry in enumerate(entries):
        total += len(entry.data) + COUNTED_ENTRY_OVERHEAD_BYTES
        if total > max_bytes and position > 0:
            return entries[:position]
    return entries


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
            f"ConfState(voters={self.voters}, learners={self.learners}, "
            f"voters_outgoing={self.voters_outgoing}, learners_next={self.learners_next}, "
            f"auto_leave={self.auto_leave})"
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
    """A state machine's state at one index, with the membership of that moment.

    ``body`` is what belongs to it and is too large to be held in memory. Raft passes it on without looking, and it
    does not count when snapshots are compared.
    """

    __slots__ = ("body", "data", "metadata")

    def __init__(
        self, metadata: SnapshotMetadata | None = None, data: bytes = b"", body: object = None
    ) -> None:
        self.metadata: SnapshotMetadata = metadata if metadata is not None else SnapshotMetadata()
        self.data: bytes = data
        self.body: object = body

    def is_empty(self) -> bool:
        return self.metadata.index == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.metadata == other.metadata and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.metadata, self.data))

    def __repr__(self) -> str:
        return f"Snapshot({self.metadata!r} {len(self.data)} bytes)"


class RaftMessage:
    """What one node of a group says to another, or to its own storage.

    Which fields count depends on the type:

    - APP: ``log_term``/``index`` of the entry before ``entries``, the leader's ``commit``.
    - APP_RESP: ``index`` up to which the sender's log agrees; when ``reject``, ``index`` is the refused
      one, and ``reject_hint``/``log_term`` say where the logs may agree.
    - VOTE, PRE_VOTE: ``log_term``/``index`` of the candidate's last entry; ``context`` names the kind.
    - VOTE_RESP, PRE_VOTE_RESP: when ``reject``, ``context`` says what the sender knows to be committed.
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
        responses: "list[RaftMessage] | None" = None,
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
        self.responses: list[RaftMessage] = responses if responses is not None else []

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RaftMessage)
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
            f"RaftMessage({name} {self.from_}->{self.to} term={self.term} log={self.log_term}/{self.index} "
            f"commit={self.commit} reject={self.reject} entries={len(self.entries)})"
        )
