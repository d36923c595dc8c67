"""Delayed exchanges of three nodes: leaders die, queues move, exchanges go (RULES S1, S3)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from mayfly.node.catalog import MoveQueue, QueueRecord
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client

SHARDS = 3


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=SHARDS)


def call(brokers: ThreeBrokers, client: Client, method: Any) -> Any:
    client.take(1)
    client.send(1, method)
    brokers.run_until(lambda: client.received)
    return client.take(1)[-1]


def declare(brokers: ThreeBrokers, client: Client, queues: int = 3) -> None:
    """A delayed exchange, and queues that get all that comes through it: one in each shard."""
    arguments: Any = {"x-delayed-type": "fanout"}
    call(
        brokers, client,
        commands.Exchange.Declare(exchange="later", exchange_type="x-delayed-message", arguments=arguments),
    )  # fmt: skip
    for number in range(queues):
        call(brokers, client, commands.Queue.Declare(queue=f"q{number}", durable=True))
        call(brokers, client, commands.Queue.Bind(queue=f"q{number}", exchange="later"))


def hidden(brokers: ThreeBrokers, node: int = 1) -> QueueRecord:
    record = brokers.nodes[node].engine.catalog.delay_queue("/", "later")
    assert record is not None
    return record


def publish(client: Client, body: int, delay_ms: int, **options: Any) -> None:
    client.publish(1, "k", b"%d" % body, exchange="later", headers={"x-delay": delay_ms}, **options)


def pass_ms(brokers: ThreeBrokers, ms: int) -> None:
    for _ in range(ms // TICK_MS):
        brokers.step()


def take(brokers: ThreeBrokers, client: Client, queue: str) -> list[int]:
    found: list[int] = []
    while not isinstance(got := call(brokers, client, Basic.Get(queue=queue, no_ack=True)), Basic.GetEmpty):
        found.append(int(got.body))
    return found


def confirmed(brokers: ThreeBrokers, client: Client) -> None:
    brokers.run_until(lambda: not any(node.broker.owes_answers for node in brokers.nodes.values()))
    assert not any(refused for _, _, refused in client.acks())


def test_s1_s3_queues_in_all_shards_get_each_once_in_order(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    declare(brokers, client)
    for body in range(300):
        publish(client, body, 5_000 if body % 2 else 60_000)
    pass_ms(brokers, 65_000)
    expected = [*range(1, 300, 2), *range(0, 300, 2)]
    for number in range(3):
        assert take(brokers, client, f"q{number}") == expected


@pytest.mark.parametrize("when_ms", [0, 900, 1000, 1100])
def test_s1_s3_a_leader_that_dies_loses_none_and_none_comes_twice(brokers: ThreeBrokers, when_ms: int) -> None:
    """It dies while they wait, or about the time at which they are due and on their way."""
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    declare(brokers, client)
    shard = hidden(brokers).shard
    for body in range(50):
        publish(client, body, 1000)
    confirmed(brokers, client)
    pass_ms(brokers, when_ms)
    dead = next(id for id in brokers.ids if brokers.nodes[id].engine.host.groups[shard].leader == id)
    brokers.cut.add(dead)
    alive = brokers.nodes[next(id for id in brokers.ids if id != dead)].client()
    pass_ms(brokers, 6000)
    for number in range(3):
        assert take(brokers, alive, f"q{number}") == list(range(50))


def test_s1_s3_what_waits_moves_with_its_times_and_its_order(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    declare(brokers, client)
    before = hidden(brokers)
    target = before.shard % SHARDS + 1
    for body in range(100):
        publish(client, body, 8_000 + 10 * body)
    answers: list[object] = []
    brokers.nodes[2].engine.submit_catalog(MoveQueue("/", "later", target, delays=True), answers.append)
    for body in range(100, 140):
        publish(client, body, 20_000)
        brokers.step()
    brokers.run_until(lambda: all(hidden(brokers, node).shard == target for node in brokers.ids))
    for body in range(140, 150):
        publish(client, body, 20_000)
    confirmed(brokers, client)
    assert take(brokers, brokers.nodes[2].client(), "q0") == []
    pass_ms(brokers, 25_000)
    other = brokers.nodes[3].client()
    for number in range(3):
        assert take(brokers, other, f"q{number}") == list(range(150))


def test_s3_a_ttl_comes_along_to_queues_of_other_shards_and_nodes(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    declare(brokers, client)
    call(brokers, client, commands.Queue.Declare(queue="mine", exclusive=True))
    call(brokers, client, commands.Queue.Bind(queue="mine", exchange="later"))
    publish(client, 1, 1000, expiration="2000")
    pass_ms(brokers, 2000)
    names = ["q0", "q1", "q2", "mine"]
    for name in names:
        assert call(brokers, client, commands.Queue.Declare(queue=name, passive=True)).message_count == 1, name
    pass_ms(brokers, 2600)
    for name in names:
        assert call(brokers, client, commands.Queue.Declare(queue=name, passive=True)).message_count == 0, name


def test_s1_an_exchange_that_is_deleted_leaves_nothing_in_its_shard(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    declare(brokers, client)
    publish(client, 1, 5000)
    record = hidden(brokers)
    pass_ms(brokers, 500)
    shards = [brokers.nodes[id].engine.shards[record.shard] for id in brokers.ids]
    assert all(shard.queue(record.id) is not None for shard in shards)
    call(brokers, client, commands.Exchange.Delete(exchange="later"))
    brokers.run_until(lambda: all(shard.queue(record.id) is None for shard in shards))
