"""The next step from the membership that a group has to the one it should have (thesis chapter 4).

A group's leader asks again after every step; nothing is remembered between two of them, so any leader can go on where
another one stopped. The order of the steps is what keeps a group safe and available:

1. Who is to have a replica and has none becomes a learner: it is sent the log, and counts for nothing.
2. When those that do not vote yet have caught up, and a majority of the future voters has, one joint change makes them
   voters and takes the vote from the others. Until then the old voters stay: replicas are rebuilt elsewhere before any
   is given up. One that votes before and after the change and is not there holds nothing up: it is replaced next.
3. A leader that is not among the future voters stays a voter in that change, hands its lead to one that is and has
   caught up, and the next leader takes the vote from it.
4. Who is to have no replica goes last, as a learner, and not before its clients are told by others
   (`cluster.host.feeding`).

One change at a time: the next one waits until the group has left the joint configuration.
"""

from collections.abc import Callable, Collection, Sequence

from mayfly.cluster.raft import ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState


class HandOver:
    """The step is that the leader hands its lead to `node`."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node: int = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandOver) and self.node == other.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return f"HandOver({self.node})"


Step = ConfChangeV2 | HandOver | None


def next_step(
    present: ConfState,
    voters: Sequence[int],
    replicas: Collection[int],
    leader: int,
    caught_up: Callable[[int], bool],
    may_go: Callable[[int], bool] | None = None,
) -> Step:
    """What the leader has to do now, or None: all is as it should be, or something has to be waited for.

    `voters` are the future ones, the preferred leader first, all among `replicas`: the nodes that shall have a replica.
    `caught_up(node)` says of a member whether it is there and its log reaches (nearly) as far as the leader's.
    `may_go(node)` says whether a learner may lose its replica; None: any may, and a voter at once.
    """
    if present.voters_outgoing:
        return None
    voting = set(present.voters)
    members = voting | set(present.learners)
    for node in sorted(replicas):
        if node not in members:
            return _change([ConfChangeSingle(ConfChangeType.ADD_LEARNER_NODE, node)])
    future = set(voters)
    if future and voting != future:
        return _towards(voting, voters, replicas if may_go is None else members, leader, caught_up)
    for node in present.learners:
        if node not in replicas and (may_go is None or may_go(node)):
            return _change([ConfChangeSingle(ConfChangeType.REMOVE_NODE, node)])
    return None


def _towards(
    voting: set[int],
    voters: Sequence[int],
    learning: Collection[int],
    leader: int,
    caught_up: Callable[[int], bool],
) -> Step:
    """Change who votes. Of those that vote no more the ones in `learning` stay as learners."""
    there = [node for node in voters if node == leader or caught_up(node)]
    wanted = set(voters)
    if not wanted - voting <= set(there) or 2 * len(there) <= len(voters):
        return None
    if leader not in wanted:
        if wanted <= voting:
            return HandOver(there[0])
        wanted.add(leader)
    changes = [ConfChangeSingle(ConfChangeType.ADD_NODE, node) for node in sorted(wanted - voting)]
    for node in sorted(voting - wanted):
        kind = ConfChangeType.ADD_LEARNER_NODE if node in learning else ConfChangeType.REMOVE_NODE
        changes.append(ConfChangeSingle(kind, node))
    return _change(changes) if changes else None


def _change(changes: list[ConfChangeSingle]) -> ConfChangeV2:
    return ConfChangeV2(ConfChangeTransition.AUTO, changes)
