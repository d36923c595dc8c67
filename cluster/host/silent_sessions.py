"""Sessions whose node is not there any more, or is there in a later life (pure)."""

from collections.abc import Collection, Mapping

from mayfly.cluster.group.group import Group
from mayfly.cluster.host.liveness import Liveness


class SilentSessions:
    """Has them closed through the log, in the groups that are led here."""

    def __init__(self, groups: Mapping[int, Group], liveness: Liveness, timeout_ms: int) -> None:
        """A node that was not heard for `timeout_ms` is not there any more. `groups` may grow and shrink."""
        self._groups = groups
        self._liveness = liveness
        self._timeout_ms = timeout_ms
        self._lives: dict[int, int] = {}
        """Node -> the lowest incarnation of the process that it is now."""

    def has_started(self, node: int, incarnation: int) -> None:
        """A node has started: sessions of a lower incarnation are over. It may itself have nothing to say to a group of
        which it has no replica, and so never end what an earlier life of it began there."""
        self._lives[node] = incarnation

    def close(self, members: Collection[int], now_ms: int) -> list[int]:
        """Propose to close those that are over; the groups that have something to do by that."""
        closing: list[int] = []
        for group in self._groups.values():
            if not group.established:
                continue
            for session in group.sessions.open_sessions():
                node, incarnation = session
                is_heard = node in members and self._liveness.heard_within(node, now_ms, self._timeout_ms)
                if is_heard and incarnation >= self._lives.get(node, 0):
                    continue
                group.propose_close(session)
                closing.append(group.id)
        return closing
