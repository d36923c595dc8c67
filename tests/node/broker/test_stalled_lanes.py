"""Lanes of dead letters that cannot move, on three nodes (RULES D8)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.readings import statistics_of

SHARDS = 4
MESSAGES = 300
"""More than one transfer takes."""
REJECT = {"x-max-length": 2, "x-overflow": "reject-publish"}
BATCH = range(MESSAGES)


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=SHARDS)


def call(brokers: ThreeBrokers, client: Any, method: Any) -> Any:
    """What a node answers, however much virtual time it takes."""
    client.take(1)
    client.send(1, method)
    brokers.run_until(lambda: client.received)
    return client.take(1)[-1]


def names(
    brokers: ThreeBrokers, client: Any, prefix: str, arguments: dict[str, Any]
) -> Iterator[tuple[str, int]]:
    """New queues without end, and their shards."""
    for number in itertools.count(1):
        name = f"{prefix}{number}"
        call(brokers, client, commands.Queue.Declare(queue=name, durable=True, arguments=arguments))
        record = brokers.nodes[1].engine.catalog.queue("/", name)
        assert record is not None
        yield name, record.shard


def one_in_each_shard(brokers: ThreeBrokers, client: Any) -> dict[int, str]:
    """Shard -> a queue there."""
    found: dict[int, str] = {}
    for name, shard in names(brokers, client, "target", {}):
        found.setdefault(shard, name)
        if len(found) == SHARDS:
            return found
    raise AssertionError("unreachable")


def dying_into(brokers: ThreeBrokers, client: Any, shard: int, targets: list[str]) -> str:
    """A queue of this shard whose messages die at once, each into all the targets."""
    call(brokers, client, commands.Exchange.Declare(exchange="dead", exchange_type="fanout", durable=True))
    for target in targets:
        call(brokers, client, commands.Queue.Bind(queue=target, exchange="dead"))
    arguments = {"x-message-ttl": 100, "x-dead-letter-exchange": "dead"}
    return next(name for name, where in names(brokers, client, "source", arguments) if where == shard)


def publish(client: Any, queue: str, numbers: range) -> None:
    client.send_bytes(b"".join(client.publish_bytes(1, queue, b"%d" % number) for number in numbers))


def ready(brokers: ThreeBrokers, queue: str) -> int:
    """As the leader of its shard has it; -1 without a leader."""
    for node in brokers.nodes.values():
        record = node.engine.catalog.queue("/", queue)
        assert record is not None
        if node.engine.host.groups[record.shard].established:
            found = node.engine.shards[record.shard].queue(record.id)
            assert found is not None
            return found.ready_count()
    return -1


def outbox(brokers: ThreeBrokers, shard: int) -> list[int]:
    """Dead letters on their way, on each node."""
    return [statistics_of(node.engine.shards[shard]).outbox for node in brokers.nodes.values()]


def take(brokers: ThreeBrokers, client: Any, queue: str) -> list[int]:
    """Everything in a queue."""
    found: list[int] = []
    while True:
        got = call(brokers, client, commands.Basic.Get(queue=queue, no_ack=True))
        if isinstance(got, commands.Basic.GetEmpty):
            return found
        found.append(int(got.body))


@pytest.mark.parametrize("renewed", [False, True])
def test_d8_a_target_without_a_leader_does_not_hold_the_others(brokers: ThreeBrokers, renewed: bool) -> None:
    """Each message goes to all four shards, the source's own among them; one of the others has no leader for a minute.

    `renewed`: the source's shard changes its leader meanwhile, so that its lanes are sent by one who knows nothing.
    """
    client = brokers.nodes[1].client()
    targets = one_in_each_shard(brokers, client)
    own, stalled, *_ = targets
    source = dying_into(brokers, client, own, list(targets.values()))
    brokers.silent = {stalled}
    brokers.run_until(lambda: ready(brokers, targets[stalled]) == -1)
    free = [queue for shard, queue in targets.items() if shard != stalled]
    publish(client, source, BATCH)
    brokers.run_until(lambda: all(ready(brokers, queue) == MESSAGES for queue in free))
    if renewed:
        leader = next(id for id, node in brokers.nodes.items() if node.engine.host.groups[own].established)
        other = 1 + leader % 3
        brokers.nodes[leader].engine.host.groups[own].raw.transfer_leader(other)
        brokers.run_until(lambda: brokers.nodes[other].engine.host.groups[own].established)
    publish(client, source, range(MESSAGES, 2 * MESSAGES))
    brokers.run_until(lambda: all(ready(brokers, queue) == 2 * MESSAGES for queue in free))
    for _ in range(1_200):
        brokers.step()
    assert ready(brokers, targets[stalled]) == -1
    assert outbox(brokers, own) == [2 * MESSAGES] * 3
    brokers.silent = set()
    brokers.run_until(lambda: outbox(brokers, own) == [0] * 3)
    for queue in targets.values():
        assert take(brokers, client, queue) == list(range(2 * MESSAGES))


def test_d8_a_full_target_does_not_hold_the_others(brokers: ThreeBrokers) -> None:
    """One in another shard, and one in the source's own: both take two and refuse more."""
    client = brokers.nodes[2].client()
    targets = one_in_each_shard(brokers, client)
    own, other, *_ = targets
    narrow: dict[int, str] = {}
    for name, shard in names(brokers, client, "narrow", REJECT):
        narrow.setdefault(shard, name)
        if narrow.keys() >= {own, other}:
            break
    full = [narrow[own], narrow[other]]
    source = dying_into(brokers, client, own, [*full, *targets.values()])
    publish(client, source, BATCH)
    brokers.run_until(lambda: all(ready(brokers, queue) == MESSAGES for queue in targets.values()))
    publish(client, source, range(MESSAGES, 2 * MESSAGES))
    brokers.run_until(lambda: all(ready(brokers, queue) == 2 * MESSAGES for queue in targets.values()))
    brokers.run_until(lambda: [ready(brokers, queue) for queue in full] == [2, 2])
    brokers.step()
    brokers.step()  # A heartbeat: on nodes without a client of the shard nobody waits for its state.
    assert outbox(brokers, own) == [2 * (2 * MESSAGES - 2)] * 3
    for queue in targets.values():
        assert take(brokers, client, queue) == list(range(2 * MESSAGES))
    for queue in full:
        assert take(brokers, client, queue)[:2] == [0, 1]
