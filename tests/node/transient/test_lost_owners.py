"""Transient queues of a node that died, declared again through another one before the cluster has given it up."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.limits import OWNER_LATE_MS, OWNER_SETTLED_MS
from tests.node.broker.three_brokers import TICK_MS, NodeWorld, ThreeBrokers

SESSION_TIMEOUT_MS = 3000  # As ThreeBrokers has it.
EXCLUSIVE = commands.Queue.Declare(queue="q", exclusive=True)
AUTO_DELETE = commands.Queue.Declare(queue="q", auto_delete=True)
LOCKED = 405


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers()


def own_a_queue(brokers: ThreeBrokers, declare: Any, owner_node: int) -> Any:
    """A client of node `owner_node` that has declared a queue and put a message into it."""
    owner = brokers.nodes[owner_node].client()
    assert isinstance(owner.call(1, declare), commands.Queue.DeclareOk)
    owner.publish(1, "q", b"kept")
    brokers.run_until(lambda: all(node.engine.catalog.queue("/", "q") for node in brokers.nodes.values()))
    return owner


def lose_node(brokers: ThreeBrokers, *ids: int) -> None:
    """The others see the streams of these nodes break."""
    brokers.cut |= set(ids)
    for node in brokers.nodes.values():
        for other in brokers.ids:
            if other != node.id and {other, node.id} & set(ids):
                node.engine.peer_down(other, brokers.now_ms)
    brokers.settle()


def find_node(brokers: ThreeBrokers, id: int) -> None:
    """...and open again."""
    brokers.cut.discard(id)
    for node in brokers.nodes.values():
        for other in brokers.ids:
            if other != node.id and id in (other, node.id):
                node.engine.peer_up(other, brokers.now_ms)
    brokers.settle()


def settle_down(brokers: ThreeBrokers) -> None:
    """All nodes have been up for a while."""
    until_ms = brokers.now_ms + OWNER_SETTLED_MS
    brokers.run_until(lambda: brokers.now_ms > until_ms)


def answers(client: Any) -> list[Any]:
    return [item for channel, item in client.received if channel == 1]


@pytest.mark.parametrize("declare", [EXCLUSIVE, AUTO_DELETE], ids=["exclusive", "auto-delete"])
@pytest.mark.parametrize("owner_leads", [True, False], ids=["leader", "follower"])
def test_a_declare_waits_until_the_dead_nodes_queue_is_gone(
    brokers: ThreeBrokers, declare: Any, owner_leads: bool
) -> None:
    owner_node = brokers.leader() if owner_leads else brokers.followers()[0]
    own_a_queue(brokers, declare, owner_node)
    settle_down(brokers)
    (other, *_) = [id for id in brokers.ids if id != owner_node]
    node = brokers.nodes[other]
    again = node.client()
    again.take()
    old = node.engine.catalog.queue("/", "q")
    lose_node(brokers, owner_node)
    began_ms = brokers.now_ms
    again.send(1, declare)
    while not answers(again):
        assert brokers.now_ms - began_ms <= SESSION_TIMEOUT_MS + OWNER_LATE_MS
        brokers.step()
    (answer,) = answers(again)
    assert isinstance(answer, commands.Queue.DeclareOk), answer
    assert answer.message_count == 0, "a new one"
    new = node.engine.catalog.queue("/", "q")
    assert old is not None and new is not None
    assert (new.owner_node, new.id != old.id) == (other, True)
    assert brokers.now_ms - began_ms >= SESSION_TIMEOUT_MS - TICK_MS, "not removed before its time"
    again.take()
    again.publish(1, "q", b"new")
    brokers.run_until(lambda: again.count("q") == 1)


@pytest.mark.parametrize("owner_leads", [True, False], ids=["leader", "follower"])
def test_the_queue_of_a_node_that_is_gone_for_sure_is_made_anew(brokers: ThreeBrokers, owner_leads: bool) -> None:
    """Its process has ended: nothing is left to wait for but the cluster's decision."""
    owner_node = brokers.leader() if owner_leads else brokers.followers()[0]
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    settle_down(brokers)
    others = [brokers.nodes[id] for id in brokers.ids if id != owner_node]
    again = others[0].client()
    again.take()
    lose_node(brokers, owner_node)
    for node in others:
        node.engine.peer_gone(owner_node)
    began_ms = brokers.now_ms
    again.send(1, EXCLUSIVE)
    brokers.run_until(lambda: answers(again))
    assert isinstance(answers(again)[0], commands.Queue.DeclareOk)
    assert brokers.now_ms - began_ms < SESSION_TIMEOUT_MS // 2


def test_a_node_that_is_here_again_is_not_gone(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    settle_down(brokers)
    lose_node(brokers, owner_node)
    find_node(brokers, owner_node)
    for node in brokers.nodes.values():
        node.engine.peer_gone(owner_node)
    settle_down(brokers)
    assert brokers.nodes[other].client().call(1, EXCLUSIVE).reply_code == LOCKED


def test_what_was_under_way_when_the_node_died_waits_as_well(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.leader(), brokers.followers()[0]
    own_a_queue(brokers, AUTO_DELETE, owner_node)
    settle_down(brokers)
    again = brokers.nodes[other].client()
    again.take()
    brokers.cut = {owner_node}
    again.send(1, AUTO_DELETE)
    lose_node(brokers, owner_node)
    assert answers(again) == []
    brokers.run_until(lambda: answers(again))
    assert isinstance(answers(again)[0], commands.Queue.DeclareOk)


def test_a_node_that_comes_back_keeps_its_queues(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    own_a_queue(brokers, commands.Queue.Declare(queue="shared", auto_delete=True), owner_node)
    brokers.nodes[owner_node].client().publish(1, "shared", b"kept")
    settle_down(brokers)
    refused, served = brokers.nodes[other].client(), brokers.nodes[other].client()
    lose_node(brokers, owner_node)
    for client, queue, exclusive in ((refused, "q", True), (served, "shared", False)):
        client.take()
        client.send(1, commands.Queue.Declare(queue=queue, exclusive=exclusive, auto_delete=not exclusive))
    for _ in range(10):
        brokers.step()
    assert answers(refused) == [] and answers(served) == []
    find_node(brokers, owner_node)
    brokers.run_until(lambda: answers(refused) and answers(served), SESSION_TIMEOUT_MS // 2 // TICK_MS)
    assert answers(refused)[0].reply_code == LOCKED
    assert answers(served)[0].message_count == 1


def test_an_exclusive_queue_of_a_node_that_is_there_is_refused_at_once(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    settle_down(brokers)
    assert brokers.nodes[other].client().call(1, EXCLUSIVE).reply_code == LOCKED


def test_a_node_that_begins_anew_frees_its_queues(brokers: ThreeBrokers) -> None:
    """It is reached again before it has said that it is a new one."""
    owner_node, other = brokers.followers()
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    settle_down(brokers)
    again = brokers.nodes[other].client()
    again.take()
    lose_node(brokers, owner_node)
    again.send(1, EXCLUSIVE)
    brokers.nodes[owner_node] = NodeWorld(brokers, owner_node, 2)
    find_node(brokers, owner_node)
    brokers.run_until(lambda: answers(again), SESSION_TIMEOUT_MS // 2 // TICK_MS)
    assert isinstance(answers(again)[0], commands.Queue.DeclareOk)


def test_the_wait_has_an_end(brokers: ThreeBrokers) -> None:
    """Without a majority nobody takes the queue out."""
    owner_node, other, third = brokers.ids
    own_a_queue(brokers, AUTO_DELETE, owner_node)
    settle_down(brokers)
    again = brokers.nodes[other].client()
    again.take()
    lose_node(brokers, owner_node, third)
    began_ms = brokers.now_ms
    again.send(1, AUTO_DELETE)
    brokers.run_until(lambda: answers(again))
    (refused,) = answers(again)
    assert refused.reply_text == "NOT_FOUND - home node of queue 'q' in vhost '/' is down or inaccessible"
    assert brokers.now_ms - began_ms <= SESSION_TIMEOUT_MS + OWNER_LATE_MS + TICK_MS


def test_a_client_that_does_not_wait_leaves_no_queue(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, EXCLUSIVE, owner_node)
    settle_down(brokers)
    node = brokers.nodes[other]
    again = node.client()
    lose_node(brokers, owner_node)
    again.send(1, EXCLUSIVE)
    again.lose()
    old = node.engine.catalog.queue("/", "q")
    seen = []
    for _ in range((SESSION_TIMEOUT_MS + OWNER_LATE_MS) // TICK_MS):
        brokers.step()
        seen.append(node.engine.catalog.queue("/", "q"))
    assert seen[0] is old and seen[-1] is None


KEPT = {
    "if-empty": (commands.Queue.Delete(queue="q", if_empty=True), True),
    "if-unused": (commands.Queue.Delete(queue="q", if_unused=True), True),
    "without conditions": (commands.Queue.Delete(queue="q"), False),
}


@pytest.mark.parametrize("conditions", KEPT)
def test_only_its_home_says_whether_a_queue_may_be_deleted(brokers: ThreeBrokers, conditions: str) -> None:
    """It holds a message and has a consumer there; nobody deletes it behind the owner's back."""
    owner_node, other = brokers.followers()
    owner = own_a_queue(brokers, AUTO_DELETE, owner_node)
    owner.call(1, commands.Basic.Qos(prefetch_count=1))
    owner.consume("q", "tag")
    owner.publish(1, "q", b"more")
    settle_down(brokers)
    node = brokers.nodes[other]
    client = node.client()
    client.take()
    lose_node(brokers, owner_node)
    delete, is_kept = KEPT[conditions]
    client.send(1, delete)
    for _ in range(10):
        brokers.step()
        assert node.engine.catalog.queue("/", "q") is not None
    assert answers(client) == []
    find_node(brokers, owner_node)
    brokers.run_until(lambda: answers(client), SESSION_TIMEOUT_MS // TICK_MS)
    (answer,) = answers(client)
    assert (node.engine.catalog.queue("/", "q") is not None) == is_kept
    if is_kept:
        why = conditions.replace("if-empty", "not empty").replace("if-unused", "in use")
        assert answer.reply_text == f"PRECONDITION_FAILED - queue 'q' in vhost '/' {why}"
    else:
        assert isinstance(answer, commands.Queue.DeleteOk)


@pytest.mark.parametrize("conditions", KEPT)
def test_a_queue_of_a_node_that_is_given_up_is_gone(brokers: ThreeBrokers, conditions: str) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, AUTO_DELETE, owner_node)
    settle_down(brokers)
    client = brokers.nodes[other].client()
    client.take()
    lose_node(brokers, owner_node)
    client.send(1, KEPT[conditions][0])
    assert answers(client) == []
    brokers.run_until(lambda: answers(client))
    (answer,) = answers(client)
    assert (answer.name, answer.message_count) == ("Queue.DeleteOk", 0)


@pytest.mark.parametrize("conditions", KEPT)
def test_a_delete_that_nobody_can_decide_is_refused(brokers: ThreeBrokers, conditions: str) -> None:
    """Without a majority the owner is neither reached nor given up."""
    owner_node, other, third = brokers.ids
    own_a_queue(brokers, AUTO_DELETE, owner_node)
    settle_down(brokers)
    client = brokers.nodes[other].client()
    client.take()
    lose_node(brokers, owner_node, third)
    client.send(1, KEPT[conditions][0])
    brokers.run_until(lambda: answers(client))
    (refused,) = answers(client)
    assert refused.reply_text == "NOT_FOUND - home node of queue 'q' in vhost '/' is down or inaccessible"
    assert brokers.nodes[other].engine.catalog.queue("/", "q") is not None


def test_what_else_is_asked_of_such_a_queue_is_refused_at_once(brokers: ThreeBrokers) -> None:
    owner_node, other = brokers.followers()
    own_a_queue(brokers, AUTO_DELETE, owner_node)
    settle_down(brokers)
    lose_node(brokers, owner_node)
    for method in (
        commands.Queue.Declare(queue="q", passive=True),
        commands.Basic.Consume(queue="q", consumer_tag="tag"),
        commands.Basic.Get(queue="q"),
    ):
        assert brokers.nodes[other].client().call(1, method).reply_code == 404
    publisher = brokers.nodes[other].client()
    publisher.call(1, commands.Confirm.Select())
    publisher.publish(1, "q")
    assert publisher.acks() == [(1, False, True)]
