"""Five containers, three replicas of each shard: queues and a replica are on their way while a leader dies."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.clients import Consumer, Publisher, channel, declare_in_shard, drain, publish_all
from tests.integration.nodes import Nodes
from tests.integration.operators import ask_to_move, mayfly
from tests.integration.replica_sets import as_planned, declare_kept, load, shard_of, without
from tests.waiting import until_judged, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NODES: Final = 5
SHARDS: Final = 16
SETTINGS: Final = {
    "MAYFLY_BALANCE_BY_LOAD": "false",
    # A replica that moves is sent a snapshot, and that takes until the leader is dead and replaced. Much slower it
    # would begin anew and anew: of what is acknowledged meanwhile nothing is left in the log to be sent.
    "MAYFLY_COMPACT_ENTRIES": "1000",
    "MAYFLY_REPLICA_MOVE_BYTES_PER_SECOND": "4MiB",
}
JUDGED: Final = 2
ROUNDS: Final = 4
"""A round in which all had arrived before the engine killed the leader says nothing."""
RATE: Final = 100.0
LEASE_MS: Final = 10_000
"""Less than the rounds take: a consumer has to keep the queue on its way."""
TTL_MS: Final = 4_000
CLOCK_MS: Final = 2
"""Shard time is in whole milliseconds."""
LARGE: Final = [b"%d " % number + bytes(64 * 1024) for number in range(200)]
"""What the snapshot carries, and what is on its way to the other shard for some time. A half of it stays."""
MANY: Final = [b"%d" % number for number in range(9_000)]
"""More than a lane is filled with at a time."""


def test_clients_notice_nothing_of_moves_whose_leader_is_killed(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T5, D6, D7, L5: clients on nodes without a replica use queues of which some move to another shard and back and
    some stay. A replica of the one shard moves to one of those nodes, and back, and each time `docker kill` takes the
    leader of that shard meanwhile. Nothing that was confirmed is lost, comes twice, out of order or early, and nobody
    is cancelled; all moves end."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from tests.failover.containers import ContainerNetwork, ContainerNodes

    network = ContainerNetwork()
    try:
        nodes = ContainerNodes(tmp_path, network, SETTINGS, image, NODES)
        try:
            nodes.serve()
            while_moving(nodes)
        finally:
            nodes.close()
            assert nodes.log_faults() == []
    finally:
        network.close()


@dataclass
class Moves:
    """What goes there and back, between two shards and two nodes."""

    nodes: Nodes
    stays: str
    """A queue of the shard whose leader is killed."""
    here: int
    there: int
    """Where clients are: a replica comes to the one and leaves it, and none ever is at the other."""
    shard: int
    beside: int
    """Another shard, at first on the same nodes, which is led by the second of them."""
    homes: dict[str, int]
    """The queues that move, and the shard of each at first."""
    publishers: list[Publisher] = field(default_factory=list)

    def go_and_kill(self, number: int) -> bool:
        """One round; whether a queue and the replica were on their way when the leader had died. Returns when all is
        where it is to be."""
        nodes, here, there = self.nodes, self.here, self.there
        nodes.until_balanced()
        leader, second, last = nodes.planned_replicas(self.stays, there)
        comes, leaves = (here, last) if last != here else (self._other(leader, second), here)
        plan = (leader, second, comes)
        mayfly(nodes, there, "shards", "move", str(self.shard), *(nodes.plan(id).name for id in plan))
        wait_for(lambda: comes in self._row(there)["learners"], "a replica on its way")
        targets = self._targets(number)
        for place, (queue, target) in enumerate(targets.items()):
            if place == 0:
                mayfly(nodes, here, "queue", "move", "/", queue, str(target))
            else:
                assert ask_to_move(nodes, there, queue, target, nodes.login) < 300
        assert nodes.leader_of(self.stays, there) == leader
        nodes.kill(leader)
        under_way = self._under_way()
        wait_for(lambda: nodes.leader_of(self.stays, there) not in (0, leader), f"another leader than node {leader}")
        row = self._row(nodes.leader_of(self.stays, there))
        has_moved = comes in row["voters"] or leaves not in row["voters"]
        print(f"node {leader} killed: {under_way} on their way, replica {'there' if has_moved else 'on its way'}")
        self._until_confirmed()
        nodes.start(leader)
        self._until_arrived(targets, plan)
        self._until_confirmed()
        return bool(under_way) and not has_moved

    def _other(self, leader: int, second: int) -> int:
        return next(id for id in self.nodes.ids if id not in (leader, second, self.here, self.there))

    def _targets(self, number: int) -> dict[str, int]:
        """Where the queues go in this round: away from home, or back."""
        away = {self.shard: self.beside, self.beside: self.shard}
        return {queue: home if number % 2 else away[home] for queue, home in self.homes.items()}

    def _row(self, witness: int) -> Mapping[str, Any]:
        rows: Sequence[Mapping[str, Any]] = self.nodes.page(witness, "/shards")[1]["shards"]
        return next(row for row in rows if row["group"] == self.shard)

    def _under_way(self) -> list[str]:
        rows = {queue: self.nodes.queue(self.there, queue) or {} for queue in self.homes}
        return [queue for queue, row in rows.items() if row.get("moving_to") or row.get("left_behind")]

    def _until_confirmed(self) -> None:
        for publisher in self.publishers:
            publisher.until_confirmed(100)

    def _until_arrived(self, targets: Mapping[str, int], plan: Sequence[int]) -> None:
        from tests.reliability.chaos import is_whole

        wait_for(lambda: is_whole(self.nodes), "a whole cluster", every_s=0.05)
        wait_for(lambda: not self._under_way(), "the end of all moves of queues", every_s=0.05)
        wait_for(lambda: as_planned(self.nodes, self.there), "replicas as planned", every_s=0.05)
        assert {queue: shard_of(self.nodes, queue, self.there) for queue in targets} == targets
        assert set(self._row(self.there)["voters"]) == set(plan)
        assert self.there in without(self.nodes, *targets)


def while_moving(nodes: Nodes) -> None:
    """The load, and the rounds."""
    stays, here, there = declare_kept(nodes, "stays", leader=1)
    shard, beside = shard_of(nodes, stays), place_beside(nodes, stays, witness=here)
    dying = {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    with channel(nodes, here) as declaring:
        declaring.queue_declare("letters", durable=True)
        mortal = declare_in_shard(nodes, declaring, "mortal", shard, dying, witness=here)
        comes = declare_in_shard(nodes, declaring, "comes", beside, witness=here)
        kept, many, large = (
            declare_in_shard(nodes, declaring, prefix, shard, witness=here) for prefix in ("kept", "many", "large")
        )
    half = len(LARGE) // 2
    publish_all(nodes, there, kept, LARGE[:half])
    publish_all(nodes, there, large, LARGE[half:])
    publish_all(nodes, here, many, MANY)
    with channel(nodes, here) as declaring:
        leaves = declare_in_shard(nodes, declaring, "leaves", shard, {"x-expires": LEASE_MS}, witness=here)
    # The one that takes longest last.
    homes = {leaves: shard, mortal: shard, comes: beside, many: shard, large: shard}
    assert without(nodes, *homes) == [here, there]
    moves = Moves(nodes, stays, here, there, shard, beside, homes)
    letters = Consumer(nodes, there, "letters").begin()
    ageing = Publisher(nodes, here, mortal, rate=RATE)
    ageing.start()
    ageing.until_confirmed(50)
    with ExitStack() as loads:
        for queue, publishing, consuming in ((leaves, here, there), (stays, there, there), (comes, there, here)):
            moves.publishers.append(loads.enter_context(load(nodes, queue, publishing, consuming, rate=RATE)))
        until_judged(moves.go_and_kill, "moves under way when a leader dies", ROUNDS, JUDGED)
    assert drain(nodes, there, kept) == [(body, False) for body in LARGE[:half]]
    assert drain(nodes, there, large) == [(body, False) for body in LARGE[half:]]
    assert drain(nodes, there, many) == [(body, False) for body in MANY]
    ageing.finish()
    judge_letters(ageing, letters)


def place_beside(nodes: Nodes, queue: str, witness: int) -> int:
    """Have another shard on the nodes of this queue's, led by the second of them; the shard."""
    first, second, third = nodes.planned_replicas(queue, witness)
    shard = shard_of(nodes, queue, witness) % SHARDS + 1
    mayfly(nodes, witness, "shards", "move", str(shard), *(nodes.plan(id).name for id in (second, first, third)))
    wait_for(lambda: as_planned(nodes, witness), "replicas as planned", every_s=0.05)
    nodes.until_balanced()
    return shard


def judge_letters(publisher: Publisher, letters: Consumer) -> None:
    """T5, D6, D7: whatever was confirmed has died of its age, not before, and has come once and in order."""
    letters.until_received(len(publisher.confirmed))
    letters.finish()
    assert letters.numbers == sorted(publisher.confirmed) and not letters.cancelled
    assert {death["reason"] for each in letters.deliveries for death in each.headers["x-death"]} == {"expired"}
    early = [
        each.number
        for each in letters.deliveries
        if (each.at_s - publisher.sent_at_s[each.number]) * 1_000 < TTL_MS - CLOCK_MS
    ]
    assert not early, f"{len(early)} came early: {early[:10]}"
