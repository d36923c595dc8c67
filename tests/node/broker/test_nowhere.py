"""Mandatory publishes to queues that the catalog has, and their shard has not yet, or not any more: the log decides,
and what came to no queue is returned before it is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.raft import MessageType
from mayfly.node.catalog import DeclareQueue
from mayfly.node.shard.commands import encode_create_queue
from mayfly.node.shard.moving import Moving
from mayfly.node.shard.results import QueueCounts
from mayfly.node.shard.settings import ShardQueueSettings
from tests.node.broker.three_brokers import NodeWorld, ThreeBrokers
from tests.node.conftest import Client, Delivery
from tests.node.readings import statistics_of

ALLOWED = {"x-allow-schedule": True}


@pytest.fixture
def confirming(world: Any) -> Any:
    client = world.client()
    client.send(1, commands.Confirm.Select())
    client.take()
    return client


def half_declare(world: Any, *names: str, bound: bool = False, **arguments: Any) -> None:
    """The catalog has these queues, and their shards have them not."""
    client = world.client()
    for name in names:
        world.cluster.submit_catalog(DeclareQueue("/", name, durable=True, arguments=arguments), lambda _: None)
        world.settle()
        if bound:
            client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))


def create(world: Any, name: str) -> None:
    """The shard has it by now."""
    queue = world.cluster.catalog.queue("/", name)
    answers: list[object] = []
    command = encode_create_queue(queue.id, ShardQueueSettings(name=name))
    world.cluster.shard(queue.shard).submit(command, answers.append)
    world.settle()
    assert isinstance(answers[0], QueueCounts)


def shown(frames: list[Any]) -> list[object]:
    """Bodies of what came back, (tag, multiple) of acks, and names of all else."""
    return [
        item.body if isinstance(item, Delivery)
        else (item.delivery_tag, item.multiple) if isinstance(item, commands.Basic.Ack)
        else item.name
        for item in frames
    ]  # fmt: skip


def test_what_came_to_no_queue_is_returned_before_its_confirm(world: Any, confirming: Any) -> None:
    half_declare(world, "early")
    confirming.send_bytes(
        confirming.publish_bytes(1, "early", b"1", mandatory=True, message_id="m")
        + confirming.publish_bytes(1, "early", b"2")
        + confirming.publish_bytes(1, "early", b"3", mandatory=True)
    )
    *returned, acked = confirming.take(1)
    assert shown([*returned, acked]) == [b"1", b"3", (3, True)]
    method = returned[0].method
    assert (method.reply_code, method.reply_text, method.exchange, method.routing_key) == (312, "NO_ROUTE", "", "early")
    assert returned[0].properties.message_id == "m"
    create(world, "early")
    confirming.publish(1, "early", b"4", mandatory=True)
    assert shown(confirming.take(1)) == [(4, False)]
    assert confirming.get("early").body == b"4"


def test_without_confirms_it_is_returned_all_the_same(world: Any, client: Any) -> None:
    half_declare(world, "early")
    client.publish(1, "early", b"1", mandatory=True)
    client.publish(1, "early", b"2")
    assert shown(client.take(1)) == [b"1"]


@pytest.mark.parametrize("made", ["", "a", "b", "ab"])
def test_a_fan_out_comes_back_if_all_of_its_queues_are_not_there(world: Any, confirming: Any, made: str) -> None:
    """They are in several shards, each of which answers for itself."""
    half_declare(world, "a", "b", "c", bound=True)
    assert len({world.cluster.catalog.queue("/", name).shard for name in "abc"}) > 1
    for name in made:
        create(world, name)
    confirming.publish(1, "", b"m", exchange="amq.fanout", mandatory=True)
    confirming.publish(1, "", b"not mandatory", exchange="amq.fanout")
    assert shown(confirming.take(1)) == ([(1, False), (2, False)] if made else [b"m", (1, False), (2, False)])


def test_what_a_lost_session_may_have_lost_is_refused_and_does_not_come_back(world: Any, confirming: Any) -> None:
    half_declare(world, "a", "b", bound=True)
    shards = [world.cluster.catalog.queue("/", name).shard for name in "ab"]
    assert shards[0] != shards[1]
    world.running = False
    confirming.publish(1, "", b"m", exchange="amq.fanout", mandatory=True)
    world.cluster.lose_session(shards[0])
    world.running = True
    world.settle()
    assert shown(confirming.take(1)) == ["Basic.Nack"]


def test_what_one_queue_refuses_does_not_come_back(world: Any, confirming: Any) -> None:
    confirming.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    half_declare(world, "a", "b", "c", bound=True)
    confirming.call(1, commands.Queue.Bind(queue="full", exchange="amq.fanout"))
    confirming.publish(1, "", b"m", exchange="amq.fanout", mandatory=True)
    assert shown(confirming.take(1)) == ["Basic.Nack"]


def test_nobody_is_told_on_a_channel_that_is_another_one_by_now(world: Any, client: Any) -> None:
    half_declare(world, "early")
    world.running = False
    client.publish(1, "early", b"m", mandatory=True)
    client.send(1, commands.Channel.Close(200, "bye", 0, 0), commands.Channel.Open())
    client.take()
    world.running = True
    world.settle()
    assert client.take() == []


def test_s2_what_says_when_it_is_due_comes_back_at_once(world: Any, confirming: Any) -> None:
    """S2: and what says that it recurs."""
    half_declare(world, "early", **ALLOWED)
    confirming.publish(1, "early", b"later", headers={"x-delay": 5_000}, mandatory=True)
    confirming.publish(1, "early", b"recurs", headers={"x-schedule": "@every 5s"}, message_id="a", mandatory=True)
    assert shown(confirming.take(1)) == [b"later", (1, False), b"recurs", (2, False)]


def test_s1_so_does_what_is_to_wait_for_an_exchange_that_is_being_declared(world: Any, confirming: Any) -> None:
    """S1: the queue in which it is to wait is not there yet."""
    arguments: Any = {"x-delayed-type": "direct"}
    confirming.call(
        1, commands.Exchange.Declare(exchange="d", exchange_type="x-delayed-message", durable=True, arguments=arguments)
    )
    confirming.declare("q")
    confirming.call(1, commands.Queue.Bind(queue="q", exchange="d", routing_key="k"))
    waiting = world.cluster.catalog.delay_queue("/", "d")
    shard = world.cluster.shards[waiting.shard]
    shard.shard._state.queues.pop(waiting.id)
    confirming.publish(1, "k", b"later", exchange="d", headers={"x-delay": 5_000}, mandatory=True)
    confirming.publish(1, "k", b"now", exchange="d", mandatory=True)
    assert shown(confirming.take(1)) == [b"later", (1, False), (2, False)]


def test_a_transaction_returns_it_before_its_commit_is_answered(world: Any, client: Any) -> None:
    """What came to one of its queues is not returned, nor what is not mandatory."""
    half_declare(world, "a", "b", "c", bound=True)
    client.declare("there")
    client.send(1, commands.Tx.Select())
    for number, (exchange, key) in enumerate((("", "a"), ("", "there"), ("amq.fanout", ""), ("", "b"))):
        client.publish(1, key, b"%d" % number, exchange=exchange, mandatory=True)
    client.publish(1, "a", b"dropped")
    client.publish(1, "no such queue", b"4", mandatory=True)
    client.take()
    client.send(1, commands.Tx.Commit())
    *returned, done = client.take(1)
    assert sorted(each.body for each in returned) == [b"0", b"2", b"3", b"4"]
    assert isinstance(done, commands.Tx.CommitOk)
    create(world, "c")
    client.publish(1, "", b"5", exchange="amq.fanout", mandatory=True)
    client.send(1, commands.Tx.Commit())
    assert shown(client.take(1)) == ["Tx.CommitOk"]


@pytest.mark.parametrize("confirms", [False, True])
def test_s6_what_recurs_is_not_refused_where_nobody_could_be_told(world: Any, client: Any, confirms: bool) -> None:
    """S6: while its queue is on its way between shards, and whatever is published beside it."""
    client.open_channel(2, confirms)
    client.declare("q", arguments=ALLOWED)
    record = world.cluster.catalog.queue("/", "q")
    queue = world.cluster.shards[record.shard].shard.queue(record.id)
    queue.moving = Moving()
    queue.moving.source_shard = 9
    recurring = {"headers": {"x-schedule": "@every 5s"}, "message_id": "a", "mandatory": True}
    client.send_bytes(
        client.publish_bytes(2, "q", b"m", mandatory=True) + client.publish_bytes(2, "q", b"a", **recurring)
    )
    assert (queue.schedule is None) == confirms
    assert shown(client.take(2)) == ([(1, False), "Basic.Nack"] if confirms else [])


# --- three nodes -------------------------------------------------------------------------------------


def counted(node: NodeWorld, name: str) -> int:
    """How many messages a queue has, as the node knows."""
    record = node.engine.catalog.queue("/", name)
    assert record is not None
    queue = node.engine.shards[record.shard].queue(record.id)
    assert queue is not None
    return queue.ready_count()


def is_returned(brokers: ThreeBrokers, client: Client) -> bool:
    """Whether its publish came back before its confirm."""
    brokers.run_until(lambda: any(isinstance(item, commands.Basic.Ack) for _, item in client.received))
    *returned, ack = client.take(1)
    assert isinstance(ack, commands.Basic.Ack) and len(returned) < 2
    return bool(returned)


def confirming_on(node: NodeWorld) -> Client:
    client = node.client(channel=False)
    client.open_channel(1, confirms=True)
    return client


def test_while_a_queue_is_declared_through_another_node_a_publish_is_in_it_or_comes_back() -> None:
    """At each step between the declare and its answer; its shard is led where the publisher is."""
    brokers = ThreeBrokers(shards=1)
    (near,) = [id for id, node in brokers.nodes.items() if node.engine.host.groups[1].established]
    far = next(id for id in brokers.ids if id not in (near, brokers.leader()))
    declaring, publishing = brokers.nodes[far].client(), confirming_on(brokers.nodes[near])
    outcomes: list[bool] = []
    for steps in range(8):
        name = f"q{steps}"
        brokers.running = False
        declaring.send(1, commands.Queue.Declare(queue=name, durable=True))
        for _ in range(steps):
            brokers._work()
        publishing.publish(1, name, b"m", mandatory=True)
        brokers.running = True
        outcomes.append(is_returned(brokers, publishing))
        brokers.run_until(lambda: declaring.received)
        assert isinstance(declaring.take(1)[0], commands.Queue.DeclareOk)
        assert counted(brokers.nodes[near], name) == (0 if outcomes[-1] else 1)
    assert outcomes == sorted(outcomes, reverse=True), "what comes later is in it"
    assert not outcomes[-1]
    assert statistics_of(brokers.nodes[near].engine.shards[1]).missing_targets > 0, "one came in between"


def is_returned_through(brokers: ThreeBrokers, behind: int, ends: Callable[[Client], None], **arguments: Any) -> bool:
    """Whether a publish to a queue with these arguments comes back through a node whose catalog has not heard of its
    end: `ends` is given a client elsewhere, and brings that about."""
    client = brokers.nodes[brokers.leader()].client()
    publishing = confirming_on(brokers.nodes[behind])
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
    brokers.run_until(lambda: client.received)
    client.take(1)
    publishing.publish(1, "q", b"before", mandatory=True)
    assert not is_returned(brokers, publishing)
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    ends(client)
    brokers.run_until(lambda: brokers.nodes[brokers.leader()].engine.catalog.queue("/", "q") is None)
    assert brokers.nodes[behind].engine.catalog.queue("/", "q") is not None
    publishing.publish(1, "q", b"m", mandatory=True)
    brokers.settle()
    brokers.loses = lambda sender, to, message: False
    return is_returned(brokers, publishing)


def delete(client: Client) -> None:
    client.send(1, commands.Queue.Delete(queue="q"))


def wait(client: Client) -> None:
    """Its lease ends."""


def test_through_a_node_that_has_not_heard_that_the_queue_was_deleted_a_publish_comes_back() -> None:
    brokers = ThreeBrokers()
    assert is_returned_through(brokers, brokers.followers()[0], delete)


def test_l10_so_it_does_where_the_lease_has_ended() -> None:
    """L10: a later use is told that the queue is not there."""
    brokers = ThreeBrokers()
    assert is_returned_through(brokers, brokers.followers()[0], wait, **{"x-expires": 500})


@pytest.mark.parametrize("ends", [delete, wait])
def test_l10_a_node_without_a_replica_of_the_shard_is_told_so(ends: Callable[[Client], None]) -> None:
    """L10: by the shard's leader."""
    brokers = ThreeBrokers(nodes=5, shards=1)
    fed = next(
        id for id, node in brokers.nodes.items() if node.engine.host.sessions[1].is_fed and id != brokers.leader()
    )
    assert is_returned_through(brokers, fed, ends, **({"x-expires": 500} if ends is wait else {}))
