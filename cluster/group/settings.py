"""What all groups of a node share."""

from dataclasses import dataclass
from typing import Final

from mayfly.cluster.group.pieces import PIECE_BYTES

BOOTSTRAP_INDEX: Final = 1
"""Every group begins with a snapshot of nothing at this index, so that all members agree on the membership."""
BOOTSTRAP_TERM: Final = 1
"""The term of that snapshot; the first election has the next one."""


SNAPSHOT_REFUSED_FOR_MS: Final = 40_000
"""Longer than a leader keeps a snapshot on offer (`cluster.group.snapshot_offer`): the next one that comes is a
new one.
"""


@dataclass(slots=True, eq=False)
class GroupSettings:
    """Settings of every group of a node. Ticks are calls of `Host.tick`. Commands that nobody waits for wait
    `unhurried_ms` at most for others to go with. A replica that was sent a snapshot which it can't read has
    none sent for `refusal_ms`. `piece_bytes`: of a large command in one entry (`cluster.group.pieces`)."""

    election_ticks: int
    heartbeat_ticks: int
    session_window: int
    batch_bytes: int
    entry_bytes: int
    repeat_after_ms: int
    session_timeout_ms: int
    compact_bytes: int
    compact_entries: int
    inflight_bytes: int
    unhurried_ms: int = 5
    refusal_ms: int = SNAPSHOT_REFUSED_FOR_MS
    piece_bytes: int = PIECE_BYTES
