"""Rebuilding damaged replicas, between hosts: who asks whom, and what a leader does about it (pure).

What a damaged replica waits for, and why, is in `cluster.group.rebuilding`.
"""

from collections.abc import Callable, Iterable, Mapping

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.rebuilding import SilentReplicas, decode_request
from mayfly.cluster.host.leadership import Leadership


class Rebuilds:
    """The requests of this node's damaged replicas, and those of other nodes' to the groups that are led here."""

    def __init__(
        self, groups: Mapping[int, Group], leadership: Leadership, send: Callable[[int, int, bytes], None]
    ) -> None:
        """`groups` may grow and shrink. `send(peer, kind, notice)`."""
        self.silent: SilentReplicas = SilentReplicas()
        self._groups = groups
        self._leadership = leadership
        self._send = send

    def ask(self, peers: Iterable[int], now_ms: int) -> None:
        """Ask for what is still missing here."""
        for group in self._groups.values():
            if group.rebuild is not None:
                for peer in peers:
                    if not group.intake.is_busy(peer, now_ms):
                        self._send(peer, notice_kinds.REBUILD, group.rebuild.request(group.id))

    def asked(self, peer: int, data: bytes, now_ms: int) -> Group | None:
        """A peer asks: send it the group's state, or make way for a leader that can. The group, which has something to
        send; None for a request that can't be used."""
        request = decode_request(data)
        if request is None or request[0] not in self._groups:
            return None
        self.silent.asked(request[0], peer, now_ms)
        group = self._groups[request[0]]
        if not group.send_rebuild(peer, request[1]):
            self._leadership.hand_over(group, peer, now_ms)
        return group
