"""Which policies have changed lately: for whoever keeps shards in step, so that not every queue is looked at again.

Not part of the replicated state: a replica that comes from a snapshot knows only that anything may have changed.
"""
from __future__ import annotations

from collections import deque
from typing import Final

from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.policies import matches
from mayfly.node.catalog.records import PolicyRecord, QueueRecord

_REMEMBERED: Final = 256


class PolicyChange:
    """A policy of a vhost as it was and as it is; None: there was or is none of that name."""

    __slots__ = ("after", "before", "vhost")

    def __init__(self, vhost: str, before: PolicyRecord | None, after: PolicyRecord | None) -> None:
        self.vhost = vhost
        self.before = before
        self.after = after

    def concerns(self, queue: QueueRecord) -> bool:
        """Whether the change can make a difference to the queue."""
        if queue.vhost != self.vhost:
            return False
        kind, before, after = queue_type(queue.arguments), self.before, self.after
        if before is None:
            return after is not None and matches(after, kind, queue.name)
        if matches(before, kind, queue.name):
            return True
        if after is None or (after.pattern == before.pattern and after.apply_to == before.apply_to):
            return False
        return matches(after, kind, queue.name)


class PolicyChanges:
    """The last changes, numbered: version n is reached by the n-th."""

    def __init__(self) -> None:
        self.version = 0
        self._last: deque[PolicyChange] = deque(maxlen=_REMEMBERED)

    def add(self, change: PolicyChange) -> None:
        """One change more."""
        self.version += 1
        self._last.append(change)

    def forget(self) -> None:
        """Anything may have changed."""
        self.version += 1
        self._last.clear()

    def since(self, version: int) -> list[PolicyChange] | None:
        """The changes after that version, oldest first; None if they are not all known any more."""
        count = self.version - version
        if not 0 <= count <= len(self._last):
            return None
        return list(self._last)[len(self._last) - count :]
