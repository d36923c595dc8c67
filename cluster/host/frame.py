"""What one node sends another at once."""

from typing import Final

from mayfly.cluster.raft import RaftMessage

MESSAGE_OVERHEAD_BYTES: Final = 48
"""About what a Raft message or an entry costs on the wire besides its data."""

ITEM_OVERHEAD_BYTES: Final = 16
"""...and anything else."""


class Frame:
    """Everything for one peer that was due at the same moment, over all groups, in order within each kind.

    ``clock_ms`` is the sender's process clock when the frame was made (for `MemberClocks`).
    ``raft`` holds (group, message); ``group_clocks`` (group, time_ms, led_ms) of groups the sender leads;
    ``proposals`` (group, envelope) for groups the receiver leads; ``notices`` (kind, bytes) of the layers
    above.

    ``unordered`` holds what may overtake all that and be overtaken by it: proposals and notices that are harmless
    when they come late or twice. They travel on another stream, and among themselves they stay in order.
    """

    __slots__ = ("clock_ms", "group_clocks", "notices", "proposals", "raft", "unordered")

    def __init__(self, clock_ms: int = 0) -> None:
        self.clock_ms: int = clock_ms
        self.raft: list[tuple[int, RaftMessage]] = []
        self.group_clocks: list[tuple[int, int, int]] = []
        self.proposals: list[tuple[int, bytes]] = []
        self.notices: list[tuple[int, bytes]] = []
        self.unordered: Frame | None = None

    def empty(self) -> bool:
        """Whether the frame carries nothing but its clock, and perhaps something `unordered`."""
        return not self.raft and not self.group_clocks and not self.proposals and not self.notices

    def apart(self) -> "Frame":
        """The frame within this one for what is unordered."""
        if self.unordered is None:
            self.unordered = Frame()
        return self.unordered

    def take_unordered(self) -> "Frame | None":
        """Take out what is unordered, as a frame with the same clock; None if there is nothing of the kind."""
        taken, self.unordered = self.unordered, None
        if taken is not None:
            taken.clock_ms = self.clock_ms
        return taken

    def merge(self, other: "Frame") -> None:
        """Append a later frame to this one; its clock counts."""
        self.clock_ms = other.clock_ms
        self.raft.extend(other.raft)
        self.group_clocks.extend(other.group_clocks)
        self.proposals.extend(other.proposals)
        self.notices.extend(other.notices)
        if other.unordered is not None:
            self.apart().merge(other.unordered)

    def parts(self, most_bytes: int) -> list["Frame"]:
        """The same as frames of about so many bytes, in order within each kind, notices first; a Raft message, an
        envelope and a notice are not divided (but see `cluster.host.divided_notices`). The receiver ends the stream for
        a frame that is much too large."""
        if self.approximate_bytes() <= most_bytes:
            return [self]
        raft, self.raft = self.raft, []
        proposals, self.proposals = self.proposals, []
        notices, self.notices = self.notices, []
        parts = _Parts(self, most_bytes)
        # Heartbeats are notices: they go before what is large.
        for kind, notice in notices:
            parts.with_room(ITEM_OVERHEAD_BYTES + len(notice)).notices.append((kind, notice))
        for group, message in raft:
            parts.with_room(size_of(message)).raft.append((group, message))
        for group, envelope in proposals:
            parts.with_room(ITEM_OVERHEAD_BYTES + len(envelope)).proposals.append((group, envelope))
        return parts.frames

    def approximate_bytes(self) -> int:
        """About the size on the wire, for limits; snapshots count with their data."""
        total = ITEM_OVERHEAD_BYTES * (1 + len(self.group_clocks))
        for _, message in self.raft:
            total += size_of(message)
        for _, envelope in self.proposals:
            total += ITEM_OVERHEAD_BYTES + len(envelope)
        for _, notice in self.notices:
            total += ITEM_OVERHEAD_BYTES + len(notice)
        return total

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Frame)
            and self.clock_ms == other.clock_ms
            and self.raft == other.raft
            and self.group_clocks == other.group_clocks
            and self.proposals == other.proposals
            and self.notices == other.notices
            and self.unordered == other.unordered
        )

    def __hash__(self) -> int:
        return hash((self.clock_ms, len(self.raft), len(self.proposals), len(self.notices)))

    def __repr__(self) -> str:
        return (
            f"Frame(clock_ms={self.clock_ms}, raft={self.raft!r}, group_clocks={self.group_clocks!r}, "
            f"proposals={len(self.proposals)}, notices={len(self.notices)}, unordered={self.unordered!r})"
        )


class _Parts:
    """The frames that one is divided into."""

    def __init__(self, first: Frame, most_bytes: int) -> None:
        self.frames: list[Frame] = [first]
        self._clock_ms = first.clock_ms
        self._most_bytes = most_bytes
        self._size_bytes = first.approximate_bytes()

    def with_room(self, size_bytes: int) -> Frame:
        """The frame that something of this size goes to: the last one, or a new one."""
        if self._size_bytes + size_bytes > self._most_bytes and not self.frames[-1].empty():
            self.frames.append(Frame(self._clock_ms))
            self._size_bytes = 0
        self._size_bytes += size_bytes
        return self.frames[-1]


def size_of(message: RaftMessage) -> int:
    """About how many bytes a Raft message has on the wire."""
    total = MESSAGE_OVERHEAD_BYTES + len(message.context)
    for entry in message.entries:
        total += MESSAGE_OVERHEAD_BYTES + len(entry.data)
    if message.snapshot is not None:
        total += len(message.snapshot.data)
    return total
