"""What clients of one node see of what clients of others, or of the same node, have declared."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from cluster.raft import MessageType
from tests.broker.three_brokers import NodeWorld, ThreeBrokers


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers()


def last_index(brokers: ThreeBrokers, id: int) -> int:
    return brokers.nodes[id].catalog_group.raw.raft.raft_log.last_index()


def ready(node: NodeWorld) -> int:
    """How many messages wait in all queues, as the node knows."""
    return sum(shard.statistics().ready for shard in node.engine.shards.values())


def on_channel(client: Any) -> list[Any]:
    return [item for item in client.take(1) if not isinstance(item, commands.Basic.Ack)]


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_a_refused_passive_declare_costs_no_entry(brokers: ThreeBrokers, place: str) -> None:
    id = brokers.leader() if place == "leader" else brokers.followers()[0]
    client = brokers.nodes[id].client()
    before = last_index(brokers, brokers.leader())
    closed = client.call(1, commands.Queue.Declare(queue="absent", passive=True))
    assert (closed.reply_code, closed.reply_text) == (404, "NOT_FOUND - no queue 'absent' in vhost '/'")
    assert last_index(brokers, brokers.leader()) == before


def test_what_was_declared_and_bound_on_a_node_is_found_on_one_that_is_behind(brokers: ThreeBrokers) -> None:
    """Its replica of the catalog has not heard of it; it neither refuses nor returns before it is current."""
    near, behind = brokers.leader(), brokers.followers()[0]
    asking, publishing = brokers.nodes[behind].client(), brokers.nodes[behind].client()
    declaring = brokers.nodes[near].client()
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    assert isinstance(declaring.declare("q"), commands.Queue.DeclareOk)
    bind = commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*")
    assert isinstance(declaring.call(1, bind), commands.Queue.BindOk)
    assert brokers.nodes[behind].engine.catalog.queue("/", "q") is None
    asking.send(1, commands.Queue.Declare(queue="q", passive=True))
    publishing.send_bytes(publishing.publish_bytes(1, "a.b", exchange="amq.topic", mandatory=True))
    assert on_channel(asking) == [] and on_channel(publishing) == []
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: asking.received)
    (answer,) = on_channel(asking)
    assert isinstance(answer, commands.Queue.DeclareOk)
    brokers.run_until(lambda: ready(brokers.nodes[near]) == 1)
    assert on_channel(publishing) == []


def test_a_node_that_is_cut_off_refuses_nothing_that_is_there(brokers: ThreeBrokers) -> None:
    """It led the catalog, and may believe that it does."""
    old = brokers.leader()
    asking = brokers.nodes[old].client()
    others = {id: brokers.nodes[id].client() for id in brokers.followers()}
    brokers.cut = {old}
    brokers.run_until(lambda: brokers.leader() not in (0, old))
    declaring = others[brokers.leader()]
    declaring.send(1, commands.Queue.Declare(queue="q", durable=True))
    brokers.run_until(lambda: declaring.received)
    assert isinstance(on_channel(declaring)[0], commands.Queue.DeclareOk)
    asking.send(1, commands.Queue.Declare(queue="q", passive=True))
    for _ in range(30):
        brokers.step()
    assert on_channel(asking) == []
    brokers.cut = set()
    brokers.run_until(lambda: asking.received)
    assert isinstance(on_channel(asking)[0], commands.Queue.DeclareOk)


# --- what this node's other connections have asked for before -------------------------------------------


def hold_commits(brokers: ThreeBrokers) -> None:
    """From now on nothing is committed, while heartbeats are answered: a read index alone comes at once."""
    brokers.loses = lambda sender, to, message: message.type == MessageType.APP


def release_commits(brokers: ThreeBrokers) -> None:
    brokers.loses = lambda sender, to, message: False
    brokers.settle()


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_a_queue_declared_before_on_another_connection_of_the_node_is_found(brokers: ThreeBrokers, place: str) -> None:
    node = brokers.nodes[brokers.leader() if place == "leader" else brokers.followers()[0]]
    declaring, asking = node.client(), node.client()
    hold_commits(brokers)
    declaring.send(1, commands.Queue.Declare(queue="q", durable=True, nowait=True))
    asking.send(1, commands.Queue.Declare(queue="q", passive=True))
    assert on_channel(asking) == []
    release_commits(brokers)
    brokers.run_until(lambda: asking.received)
    assert isinstance(on_channel(asking)[0], commands.Queue.DeclareOk)


def test_a_binding_made_before_on_another_connection_of_the_node_routes(brokers: ThreeBrokers) -> None:
    node = brokers.nodes[brokers.followers()[0]]
    binding, publishing = node.client(), node.client()
    binding.declare("q")
    hold_commits(brokers)
    binding.send(1, commands.Queue.Bind(queue="q", exchange="amq.direct", routing_key="k", nowait=True))
    publishing.send_bytes(publishing.publish_bytes(1, "k", exchange="amq.direct", mandatory=True))
    release_commits(brokers)
    brokers.run_until(lambda: ready(node) == 1)
    assert on_channel(publishing) == []


def test_an_exclusive_queue_is_gone_when_its_connection_was_closed_before(brokers: ThreeBrokers) -> None:
    node = brokers.nodes[brokers.followers()[0]]
    owner, asking = node.client(), node.client()
    assert isinstance(owner.declare("mine", exclusive=True, durable=False), commands.Queue.DeclareOk)
    refused = asking.call(1, commands.Queue.Declare(queue="mine", passive=True))
    assert refused.reply_code == 405
    asking.send(1, commands.Channel.CloseOk())
    asking.open_channel(1)
    hold_commits(brokers)
    owner.lose()
    asking.send(1, commands.Queue.Declare(queue="mine", passive=True))
    assert on_channel(asking) == []
    release_commits(brokers)
    brokers.run_until(lambda: asking.received)
    assert on_channel(asking)[0].reply_code == 404
