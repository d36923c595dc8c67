"""Sessions for tests of one replica."""

from typing import Any

from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.settings import GroupSettings

SETTINGS = GroupSettings(
    election_ticks=10, heartbeat_ticks=2, session_window=10, batch_bytes=1 << 20, entry_bytes=1 << 20,
    repeat_after_ms=1000, session_timeout_ms=3000, compact_bytes=1 << 40, compact_entries=1 << 40,
    inflight_bytes=1 << 20,
)  # fmt: skip


def told_by_replica(group: int, events: Any, lost: object = None) -> OwnSession:
    """The session of node 1, in its incarnation 7, which the replica here tells."""
    session = OwnSession(group, 1, 7, SETTINGS, events, lost)
    session.is_told_by_replica()
    return session
