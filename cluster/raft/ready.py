"""What a node hands to its caller: things to store, to send and to apply."""

from mayfly.cluster.raft.messages import Entry, HardState, RaftMessage, Snapshot, SoftState


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


class Ready:
    """What a node wants done since the last time it was asked.

    Without asynchronous storage writes the caller, in this order: may send ``messages_now`` at once;
    stores ``snapshot``, ``entries`` and ``hard_state`` (durably when ``must_sync`` is set or there is a
    snapshot; a mere change of the commit index may wait or get lost); sends ``messages_after_append``;
    applies ``snapshot`` and then ``committed_entries``; calls ``advance``. Entries that were stored before
    may be applied without waiting for the write.

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
        self.messages: list[RaftMessage] = []
        self.must_sync: bool = False
        self.messages_now: list[RaftMessage] = []
        self.messages_after_append: list[RaftMessage] = []

    def __repr__(self) -> str:
        return (
            f"Ready(soft={self.soft_state!r}, hard={self.hard_state!r}, entries={self.entries!r}, "
            f"committed={self.committed_entries!r}, messages={self.messages!r})"
        )
