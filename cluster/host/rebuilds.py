"""Rebuilding damaged replicas, between hosts: who asks whom, and what a leader does about it (pure).

What a damaged replica waits for, and why, is in `cluster.group.rebuilding`. A replica in place of one that was given up
here is in the same need where its leader counts on what that one had.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.rebuilding import Rebuild, SilentReplicas
from mayfly.cluster.host.leadership import Leadership


class Rebuilds:
    """The requests of this node's damaged replicas, and those of other nodes' to the groups that are led here."""

    def __init__(
        self, groups: Mapping[int, Group], leadership: Leadership, send: Callable[[int, int, bytes], None]
    ) -> None:
        """`groups` may grow and shrink. `send(peer, kind, notice)`."""
        self.silent: SilentReplicas = SilentReplicas()
        self._told: dict[int, list[int]] = {}
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

    def ask_anew(self, leader: int, group: Group) -> None:
        """A leader counts on what a replica had that was given up here: ask it not to."""
        wanted = Rebuild("", group.vouched[1], group.term)
        self._send(leader, notice_kinds.REBUILD, wanted.request(group.id))

    def asked(self, peer: int, id: int, wanted: Rebuild, now_ms: int) -> bool:
        """A peer asks: send it the group's state, or make way for a leader that can. False if the group has no replica
        here: whoever asks asks everybody."""
        group = self._groups.get(id)
        if group is None:
            return False
        self.silent.asked(id, peer, now_ms)
        if not group.send_rebuild(peer, wanted):
            self._leadership.hand_over(group, peer, now_ms)
        return True

    def beyond_repair(self, node: int, members: Sequence[int], now_ms: int) -> dict[int, list[int]]:
        """The groups of this node that nobody can rebuild, as so many of their voters say that theirs is damaged that
        the others are no majority, and which nodes those are. A replica that has lost who its voters are counts on all
        `members`."""
        found: dict[int, list[int]] = {}
        for group in self._groups.values():
            voters = group.conf_state.voters or members
            damaged = {node} if group.rebuild is not None else set()
            damaged.update(self.silent.of(group.id, now_ms))
            if damaged and group.leader == 0 and 2 * len(damaged.intersection(voters)) >= len(voters):
                found[group.id] = sorted(damaged)
        return found

    def news(self, found: dict[int, list[int]]) -> list[str]:
        """What is new in what `beyond_repair` found, in words."""
        before, self._told = self._told, found
        return [
            f"group {id} is damaged on {of_nodes(nodes)}, {ADVICE}"
            for id, nodes in found.items()
            if before.get(id) != nodes
        ]


ADVICE: Final = (
    "its other voters are no majority: nobody can rebuild it. If a voter is down whose data are sound, start it. If "
    "not, stop all nodes and make a new cluster of all their data folders with `mayfly restore`: see 'A lost cluster' "
    "in docs/operations/backup.md"
)
"""What to do about groups that are beyond repair."""


def of_nodes(nodes: Sequence[int]) -> str:
    """Nodes, in words."""
    return f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, nodes))}"
