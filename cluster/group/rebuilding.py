"""How a replica whose stored log is damaged comes back without breaking a promise (pure).

The disk gave back something else than what was written, and a checksum shows it. What the replica has acknowledged
may have been counted for a majority, so it must not go on as if it had never said so: with its vote a leader could
be elected that lacks what was committed with its help. Its vote and term are stored apart and are intact (a replica
that lost those as well is refused at start).

So such a replica is *silent*. It takes no message, answers none, grants no vote, does not campaign and applies
nothing, as if it were down; it asks the leader for a snapshot of the whole state, again and again, and comes back
with the write that puts the snapshot in place of the damaged log. The snapshot has to cover everything that was
committed with the help of what the replica said before:

* it reaches up to the last entry that the damaged log had, or beyond: then all that the replica has acknowledged is
  either in it, or was replaced by other entries for good; or
* it comes from a leader of a term later than any in which the replica spoke, and includes an entry of that term:
  what was committed in earlier terms is in that leader's log before its first own entry (Leader Completeness).

The leader checks the same before it sends, and forgets what the replica had acknowledged, which Raft itself never
does. That is safe: a smaller number can only make it commit later.

A leader can be unable to cover it for good: the replica spoke in a later term than its own (others would answer the
leader with that term, and it would step down), or had more entries, which nobody else has, and nothing new is
written. Then somebody else is to lead, in the next term; and again, until the term is late enough.
"""

import struct
from typing import Final

from mayfly.cluster.raft import MessageType, RaftMessage

_REQUEST: Final = struct.Struct("<IQQ")

REMEMBERED_MS: Final = 3000
"""For so long a request counts; a silent replica asks once a second."""


class Rebuild:
    """What a silent replica waits for: `last_index` and `term` are of its damaged log and its intact hard state."""

    def __init__(self, damage: str, last_index: int, term: int) -> None:
        self.damage: str = damage
        self.last_index: int = last_index
        self.term: int = term

    def request(self, group: int) -> bytes:
        """The notice's content."""
        return _REQUEST.pack(group, self.last_index, self.term)

    def is_ended_by(self, message: RaftMessage) -> bool:
        """Whether this message brings a snapshot that covers all that this replica has said."""
        snapshot = message.snapshot
        if message.type != MessageType.SNAP or snapshot is None:
            return False
        return self.is_covered_by(snapshot.metadata.index, snapshot.metadata.term, message.term)

    def is_covered_by(self, index: int, term: int, leader_term: int) -> bool:
        """Whether a leader's snapshot at this position covers it. Of a leader in an earlier term Raft takes nothing."""
        return leader_term >= self.term and (index >= self.last_index or term == leader_term > self.term)


class SilentReplicas:
    """Which replicas of other nodes are silent, as those nodes said a moment ago: they will not lead."""

    def __init__(self) -> None:
        self._asked_ms: dict[tuple[int, int], int] = {}
        """(group, node) -> when it last asked."""

    def asked(self, group: int, node: int, now_ms: int) -> None:
        """A node asks for what its silent replica of a group waits for."""
        self._asked_ms[(group, node)] = now_ms

    def of(self, group: int, now_ms: int) -> list[int]:
        """The nodes whose replica of a group is silent."""
        recent_ms = now_ms - REMEMBERED_MS
        return [node for (asked, node), asked_ms in self._asked_ms.items() if asked == group and asked_ms > recent_ms]


def decode_request(data: bytes) -> tuple[int, Rebuild] | None:
    """The group, and what its silent replica waits for; None for bytes that are not a request."""
    if len(data) != _REQUEST.size:
        return None
    group, last_index, term = _REQUEST.unpack(data)
    return group, Rebuild("", last_index, term)
