"""Reads that are as fresh as a write without being one (section 8; thesis section 6.4).

The leader notes its commit index for each request, then makes sure that it still leads: every heartbeat
carries the number of requests noted so far, and whoever answers it vouches for all of those at once. When
a quorum has vouched for the first n requests, they are answered.
"""

import struct
from collections.abc import Mapping
from typing import Final

from mayfly.cluster.raft.messages import RaftMessage
from mayfly.cluster.raft.quorum import joint_committed

_COUNT: Final = struct.Struct("<Q")

CONTEXT_BYTES: Final = _COUNT.size
"""The length of a heartbeat's context, when it has one."""


class ReadRequest:
    """A request that waits, and the commit index of the moment when it came."""

    def __init__(self, message: RaftMessage, index: int) -> None:
        self.message: RaftMessage = message
        self.index: int = index


class ReadOnly:
    """The requests of one leadership."""

    def __init__(self, option: int) -> None:
        self.option: int = option
        self._waiting: list[ReadRequest] = []
        self._confirmed: int = 0
        self._acknowledged: dict[int, int] = {}

    def add(self, message: RaftMessage, commit_index: int) -> None:
        self._waiting.append(ReadRequest(message, commit_index))

    def context(self) -> bytes:
        """What a heartbeat must carry to confirm all that wait; nothing when nothing does."""
        if not self._waiting:
            return b""
        return _COUNT.pack(self._confirmed + len(self._waiting))

    def acknowledge(self, node_id: int, context: bytes) -> None:
        """A node answered a heartbeat with this context. A count that was never sent is ignored."""
        if len(context) != CONTEXT_BYTES:
            return
        count = int(_COUNT.unpack(context)[0])
        if self._acknowledged.get(node_id, 0) < count <= self._confirmed + len(self._waiting):
            self._acknowledged[node_id] = count

    def take_confirmed(self, incoming: set[int], outgoing: set[int]) -> list[ReadRequest]:
        """The requests that a quorum has vouched for since the last time."""
        acknowledged: Mapping[int, int] = self._acknowledged
        confirmed = joint_committed(incoming, outgoing, acknowledged)
        fresh = min(confirmed - self._confirmed, len(self._waiting))
        if fresh <= 0:
            return []
        taken = self._waiting[:fresh]
        del self._waiting[:fresh]
        self._confirmed += fresh
        return taken
