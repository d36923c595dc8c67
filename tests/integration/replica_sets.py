"""Shards that have replicas on some nodes: which, and clients on the others."""

import contextlib
import re
from collections.abc import Iterator
from urllib.request import urlopen

from mayfly.node.numbers import CATALOG_GROUP
from tests.integration.clients import Consumer, Publisher, channel, declare_led_by, judge
from tests.integration.nodes import Nodes
from tests.integration.operators import mayfly
from tests.waiting import BOUND_S, wait_for


def replicas(nodes: Nodes, id: int) -> set[int]:
    """The groups of which a node has a replica, by its own metrics, which ask no other node."""
    with urlopen(f"http://{nodes.plan(id).http}/metrics", timeout=BOUND_S) as page:
        text = page.read().decode()
    return {int(group) for group in re.findall(r'^mayfly_raft_term\{[^}]*group="(\d+)"', text, re.MULTILINE)}


def shard_of(nodes: Nodes, queue: str, witness: int = 1) -> int:
    """The queue's shard."""
    info = nodes.queue(witness, queue)
    assert info is not None, queue
    return int(info["shard"])


def without(nodes: Nodes, *queues: str) -> list[int]:
    """The nodes that run and have no replica of the shards of these queues."""
    shards = {shard_of(nodes, queue) for queue in queues}
    return [id for id in nodes.ids if nodes.runs(id) and not shards & replicas(nodes, id)]


def as_planned(nodes: Nodes, witness: int) -> bool:
    """Whether each node has the catalog and the shards that the plan gives it, and no others."""
    rows = nodes.page(witness, "/shards")[1]["shards"]
    members = nodes.page(witness, "/cluster/members")[1]["members"]
    ids = {row["name"]: int(row["id"]) for row in members if row["state"] != "removed"}
    for number in nodes.ids:
        if nodes.runs(number):
            id = ids[nodes.plan(number).name]
            planned = {int(row["group"]) for row in rows if row["group"] == CATALOG_GROUP or id in row["plan"]}
            if replicas(nodes, number) != planned:
                return False
    return True


@contextlib.contextmanager
def load(nodes: Nodes, queue: str, publishing: int, consuming: int, rate: float = 300) -> Iterator[Publisher]:
    """A publisher with confirms and a consumer with acknowledgements that go on meanwhile; then each confirmed message
    has come once, in order, and nobody was cancelled."""
    consumer = Consumer(nodes, consuming, queue).begin()
    publisher = Publisher(nodes, publishing, queue, rate=rate)
    publisher.start()
    publisher.until_confirmed(100)
    yield publisher
    publisher.until_confirmed(100)
    publisher.finish()
    consumer.until_received(len(publisher.confirmed))
    consumer.finish()
    judge(publisher, [consumer])
    assert not consumer.cancelled
    wait_for(lambda: nodes.ready(consuming, queue) == 0, f"an empty {queue}")


def declare_kept(nodes: Nodes, prefix: str, leader: int) -> tuple[str, int, int]:
    """A queue led by a node, whose shard stays where it is, whatever evenness says; and the two nodes without it."""
    with channel(nodes, 1) as declaring:
        queue = declare_led_by(nodes, declaring, prefix, lambda planned: planned == leader)
    here, there = without(nodes, queue)
    voters = [leader, *(id for id in nodes.ids if id not in (leader, here, there))]
    mayfly(nodes, here, "shards", "move", str(shard_of(nodes, queue)), *(nodes.plan(id).name for id in voters))
    return queue, here, there


def until_led(nodes: Nodes, queue: str, witness: int) -> int:
    """Wait for a leader of the queue's shard; the node."""
    found = 0

    def is_led() -> bool:
        nonlocal found
        found = nodes.leader_of(queue, witness)
        return bool(found)

    wait_for(is_led, f"a leader of {queue}")
    return found


def kill_leader(nodes: Nodes, queue: str, witness: int) -> int:
    """Kill -9 the node that leads the queue's shard; the node. Returns when another one leads it."""
    victim = until_led(nodes, queue, witness)
    nodes.kill(victim)
    wait_for(lambda: nodes.leader_of(queue, witness) not in (0, victim), f"another leader than node {victim}")
    return victim
