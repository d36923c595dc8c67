"""Moves by a script, of hosts without clients or faults: what runs of whole nodes meet too seldom to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mayfly.cluster import notice_kinds
from mayfly.cluster.raft import MessageType
from tests.cluster.host.changing import Changing

_NOT_HEARTBEATS = (MessageType.APP, MessageType.SNAP)


@dataclass(slots=True)
class Place:
    """A cluster at rest, one of its groups, and a node that has no replica of it."""

    cluster: Changing
    group: int
    leader: int
    second: int
    third: int
    another: int

    def plan(self, *voters: int) -> None:
        """Who shall vote from now on, the preferred leader first."""
        self.cluster.plan[self.group] = voters
        self.cluster.follow()

    def work(self, count: int = 5) -> None:
        """Commands by the leader's node, one a step."""
        for number in range(count):
            self.cluster.nodes[self.leader].host.submit(self.group, [b"%04d" % number], 4, True, lambda result: None)
            self.cluster.step()

    def steps(self, count: int) -> None:
        """Time passes."""
        for _ in range(count):
            self.cluster.step()

    def lose(self, loses: Callable[[int, int], bool]) -> None:
        """Entries and snapshots get lost, by sender and receiver; heartbeats do not."""
        self.cluster.loses = lambda sender, to, message: message.type in _NOT_HEARTBEATS and loses(sender, to)

    def has_replica(self, node: int) -> bool:
        """Whether it is there."""
        return self.group in self.cluster.nodes[node].host.groups


def _place(variant: int) -> Place:
    """Of 4 or 5 nodes, and one group or the other, by the variant."""
    cluster = Changing(4 + variant % 2, everywhere=False)
    cluster.run_until(cluster.settled)
    group = 1 + variant // 2 % 2
    another = next(id for id in cluster.members if id not in cluster.plan[group])
    leader, second, third = cluster.plan[group]
    place = Place(cluster, group, leader, second, third, another)
    place.work(1 + variant)
    return place


def given_up_and_come_again(variant: int) -> None:
    """A group has moved from one node to another while a voter was sent no entries. It is to come back when its leader
    dies and the other new one is frozen: left are the voter that has not heard of the move, and the node that has
    nothing any more of what it was counted for."""
    it = _place(variant)
    it.lose(lambda sender, to: to == it.second)
    it.plan(it.leader, it.second, it.another)
    it.work()
    it.cluster.run_until(lambda: not it.has_replica(it.third))
    it.cluster.kill(it.leader)
    it.cluster.frozen = {it.another}
    it.plan(it.leader, it.another, it.third)
    it.steps(60)


def given_up_and_restarted(variant: int) -> None:
    """A node that has given its replica up begins anew; then the group comes back to it."""
    it = _place(variant)
    it.plan(it.leader, it.second, it.another)
    it.work()
    it.cluster.run_until(lambda: not it.has_replica(it.third))
    it.steps(5)
    it.cluster.kill(it.third)
    it.cluster.start(it.third)
    it.plan(it.leader, it.second, it.third)
    it.cluster.run_until(it.cluster.settled)


def an_old_word(variant: int) -> None:
    """A leader says that a node is no member; the node becomes one, and the plan moves on before the word comes."""
    it = _place(variant)
    feeding = it.cluster.nodes[it.leader].host._feeding
    said: list[bytes] = []
    send = feeding._send

    def listening(peer: int, kind: int, data: bytes) -> None:
        if peer == it.another and kind == notice_kinds.LEADS:
            said.append(data)
        send(peer, kind, data)

    feeding._send = listening
    it.cluster.run_until(lambda: bool(said))
    feeding._send = send
    it.plan(it.leader, it.second, it.another)
    it.cluster.run_until(it.cluster.settled)
    host = it.cluster.nodes[it.another].host
    plan = {**it.cluster.plan, it.group: (it.leader, it.second, it.third)}
    host.set_members(it.cluster.members, plan, it.cluster.now)
    host._take_feeding(it.leader, notice_kinds.LEADS, said[0], it.cluster.now)
    it.steps(20)


def a_learner_that_gets_nothing(variant: int) -> None:
    """What the leader sends to the node that is to vote is lost; then it arrives."""
    it = _place(variant)
    it.lose(lambda sender, to: to == it.another)
    it.plan(it.leader, it.second, it.another)
    it.work()
    it.steps(20)
    it.lose(lambda sender, to: False)
    it.cluster.run_until(it.cluster.settled)


def a_change_that_waits(variant: int) -> None:
    """No entries of the leader arrive for a while, the first change of the members among them."""
    it = _place(variant)
    it.lose(lambda sender, to: sender == it.leader)
    it.plan(it.leader, it.second, it.another)
    it.steps(20)
    it.lose(lambda sender, to: False)
    it.cluster.run_until(it.cluster.settled)


def half_of_a_joint_configuration(variant: int) -> None:
    """In the joint configuration only the leader and the new voter have what is new, for a while."""
    it = _place(variant)
    group = it.cluster.nodes[it.leader].host.groups[it.group]
    late = {it.second, it.third}
    it.lose(lambda sender, to: to in late and bool(group.conf_state.voters_outgoing))
    it.plan(it.leader, it.second, it.another)
    it.cluster.run_until(lambda: bool(group.conf_state.voters_outgoing), 100)
    it.work()
    it.steps(10)
    it.lose(lambda sender, to: False)
    it.cluster.run_until(it.cluster.settled)


def an_added_group_given_up_and_restarted(variant: int) -> None:
    """A node begins a group that was added, and gives it up. It begins anew and hears of the group once more, and of
    its first voters, one of which it is; then the group comes back to it."""
    it = _place(variant)
    it.group = max(it.cluster.plan) + 1
    first = it.leader, it.second, it.third
    for node in it.cluster.nodes.values():
        node.host.add_group(it.group, first)
    it.plan(*first)
    it.cluster.run_until(it.cluster.settled)
    it.work()
    it.plan(it.leader, it.second, it.another)
    it.cluster.run_until(lambda: it.cluster.settled() and not it.has_replica(it.third))
    it.cluster.kill(it.third)
    it.cluster.start(it.third)
    it.cluster.nodes[it.third].host.add_group(it.group, first)
    it.cluster.follow()
    it.steps(5)
    it.plan(it.leader, it.second, it.third)
    it.cluster.run_until(it.cluster.settled)


SCRIPTS: tuple[Callable[[int], None], ...] = (
    given_up_and_come_again, given_up_and_restarted, an_old_word, a_learner_that_gets_nothing, a_change_that_waits,
    half_of_a_joint_configuration, an_added_group_given_up_and_restarted,
)  # fmt: skip
VARIANTS = 10


def scripted(seed: int) -> None:
    """Seed -1 is the first script, -11 the same in another variant, and so on."""
    variant, script = divmod(-seed - 1, VARIANTS)
    SCRIPTS[script](variant)
