"""Which members of a group the leader's log is kept for, and from where on (pure).

A compaction takes entries from who has not got them yet: a snapshot is all that would help. That is right for a member
that is away, but one that gets on is let through, or it would need one snapshot after the other under load: while a
snapshot is on its way to it, while it reads and stores that, and while it catches up from there.

Nobody is waited for without progress. A transfer that gets no further is given up by the transport, which tells; the
rest has its time here. How much the log may grow for all that is `cluster.group.log_upkeep`'s.
"""

from collections.abc import Iterable
from typing import Final

from mayfly.cluster.raft import FollowerStatus

INSTALLS_WITHIN_MS: Final = 120_000
"""How long a member may take to read and store a snapshot that it has got whole. Millions of queues take half a minute,
and so do gigabytes of messages on a slow disk."""

FOLLOWS_WITHIN_MS: Final = 5_000
"""A member that has all but the newest entries, or gets them, acknowledges some at least as often as that."""

NOBODY: Final = 1 << 62
"""As an index from which on the log is needed: nobody needs it."""


class _Follower:
    __slots__ = ("match", "moved_ms", "snapshot")

    def __init__(self, snapshot: int = 0) -> None:
        self.match: int = -1
        self.moved_ms: int = 0
        self.snapshot: int = snapshot
        """The index of one that has come, until it says that it has as much."""


class Followers:
    """What a leader has seen of the others; `look` is to be called again and again."""

    def __init__(self) -> None:
        self.needed: int = NOBODY
        """The last index that all who get on have: they need the log behind it."""
        self.snapshots_under_way: set[int] = set()
        """The indices of snapshots that are on their way."""
        self._seen: dict[int, _Follower] = {}

    def has_got(self, node: int, index: int) -> None:
        """A snapshot of this index has come to a member whole."""
        self._seen[node] = _Follower(index)

    def look(self, members: Iterable[FollowerStatus], last_index: int, now_ms: int) -> None:
        """What is known of the members now; none on a replica that doesn't lead."""
        seen: dict[int, _Follower] = {}
        self.needed, self.snapshots_under_way = NOBODY, set()
        for member in members:
            follower = seen[member.node] = self._seen.get(member.node) or _Follower()
            if member.takes_snapshot:
                self.snapshots_under_way.add(member.sent)
            if member.match != follower.match or member.match >= last_index:
                follower.match, follower.moved_ms = member.match, now_ms
            self.needed = min(self.needed, _needed_by(member, follower, now_ms))
        self._seen = seen


def _needed_by(member: FollowerStatus, follower: _Follower, now_ms: int) -> int:
    if member.takes_snapshot:
        return member.sent
    idle_ms = now_ms - follower.moved_ms
    if member.match < follower.snapshot <= member.sent:
        return follower.snapshot if idle_ms < INSTALLS_WITHIN_MS else NOBODY
    return member.match if member.replicates and idle_ms < FOLLOWS_WITHIN_MS else NOBODY
