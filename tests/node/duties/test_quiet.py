"""Who is waited for, in whatever order words, changes and clients come: who is served has all that was answered.

Nodes with words between them in order, a log that all apply in their own time, and changes that are answered when the
peers that are waited for have them. No word is lost, and none takes longer than nodes have patience.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from mayfly.node import notice_kinds
from mayfly.node.duties.quiet import Quiet, QuietPort

NODES = (1, 2, 3)
STEPS = 400
QUIET_AFTER_MS = 3


class Node:
    """A node with its replica."""

    def __init__(self, id: int, network: Network) -> None:
        self.id = id
        self.applied = 0
        self.clients = 0
        self.barriers: list[tuple[int, Callable[[object], None]]] = []
        self.unanswered: list[int] = []
        self._network = network
        port = QuietPort(
            lambda: [other for other in NODES if other != id], lambda peer: True, self._send,
            self._send_unhurried, self._barrier, lambda: self.clients > 0,
        )
        self.quiet = Quiet(port, 1, lambda: None)
        self.quiet.quiet_after_ms = QUIET_AFTER_MS

    def _send(self, peer: int, kind: int, data: bytes) -> None:
        assert kind == notice_kinds.QUIET
        self._network.hurry((self.id, peer))
        self._network.mail.setdefault((self.id, peer), deque()).append(data)

    def _send_unhurried(self, peer: int, kind: int, data: bytes) -> None:
        assert kind == notice_kinds.QUIET
        self._network.unhurried[(self.id, peer)] = data

    def _barrier(self, done: Callable[[object], None]) -> None:
        self.barriers.append((self._network.committed, done))

    def look(self) -> None:
        """Barriers that are over, and changes that can be answered."""
        over = [each for each in self.barriers if each[0] <= self.applied]
        self.barriers = [each for each in self.barriers if each[0] > self.applied]
        for _, done in over:
            done(None)
        for index in list(self.unanswered):
            if all(
                other.applied >= index or self.quiet.peer_is_quiet(other.id)
                for other in self._network.nodes
                if other is not self
            ):
                self.unanswered.remove(index)
                self._network.answered = max(self._network.answered, index)


class Network:
    """All of them, and what happens."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.mail: dict[tuple[int, int], deque[bytes]] = {}
        self.unhurried: dict[tuple[int, int], bytes] = {}
        """What waits for other words to go with, but not for ever."""
        self.committed = 0
        self.answered = 0
        self.now_ms = 0
        self.served = self.answered_without_all = 0
        self.nodes = [Node(id, self) for id in NODES]

    def step(self) -> None:
        node = self.random.choice(self.nodes)
        what = self.random.choice((self._deliver, self._deliver, self._apply, self._change, self._client, self._tick))
        what(node)
        before = self.answered
        for each in self.nodes:
            each.look()
        if self.answered > before and min(each.applied for each in self.nodes) < self.answered:
            self.answered_without_all += 1
        for each in self.nodes:
            assert not each.quiet.serves or each.applied >= self.answered, f"node {each.id} serves"

    def _deliver(self, node: Node) -> None:
        if self.unhurried and self.random.randrange(2):
            self.hurry(self.random.choice(list(self.unhurried)))
        links = [link for link, words in self.mail.items() if words]
        if links:
            sender, to = self.random.choice(links)
            self.nodes[to - 1].quiet.notice(sender, self.mail[(sender, to)].popleft())

    def hurry(self, link: tuple[int, int]) -> None:
        """What waits leaves."""
        if link in self.unhurried:
            self.mail.setdefault(link, deque()).append(self.unhurried.pop(link))

    def _apply(self, node: Node) -> None:
        node.applied = min(self.committed, node.applied + 1)

    def _change(self, node: Node) -> None:
        if node.quiet.serves:
            self.committed += 1
            node.applied = self.committed
            node.unanswered.append(self.committed)

    def _client(self, node: Node) -> None:
        if node.clients and self.random.randrange(3):
            node.clients = 0
        else:
            node.quiet.serve(partial(self._is_served, node))

    def _is_served(self, node: Node) -> None:
        assert node.applied >= self.answered
        node.clients += 1
        self.served += 1

    def _tick(self, _: Node) -> None:
        self.now_ms += 1
        for node in self.nodes:
            node.quiet.tick(self.now_ms)


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_who_is_served_has_all_that_was_answered(first_seed: int) -> None:
    served = without_all = 0
    for seed in range(first_seed, first_seed + 50):
        network = Network(seed)
        for _ in range(STEPS):
            network.step()
        served += network.served
        without_all += network.answered_without_all
    assert served > 500
    assert without_all > 50, "changes were answered that a quiet node had not applied"


def test_one_whose_stream_is_open_before_it_is_a_member_hears_that_clients_are_served() -> None:
    """It was told that there are none when the stream opened, and would not wait for this node else."""
    members = [2]
    told: list[tuple[int, bytes]] = []
    port = QuietPort(
        lambda: members, lambda peer: peer in members, lambda peer, kind, data: told.append((peer, data)),
        lambda peer, kind, data: None, lambda done: done(None), lambda: True,
    )  # fmt: skip
    quiet = Quiet(port, 1, lambda: None)
    other = Quiet(port, 2, lambda: None)
    quiet.peer_up(3)
    other.notice(1, told.pop()[1])
    assert other.peer_is_quiet(1) and not told
    quiet.serve(lambda: None)
    words = [data for peer, data in told if peer == 3]
    other.notice(1, words[-1])
    assert not other.peer_is_quiet(1)
    assert not quiet.has_told(3)
    quiet.notice(3, told[-1][1])
    assert quiet.has_told(3)
    quiet.peer_down(3)
    told.clear()
    quiet.tick(1)
    assert {peer for peer, _ in told} == {2}
    members.append(3)
    quiet.peer_up(3)
    assert told[-1][0] == 3 and not quiet.has_told(3)
