"""Nobody waits for a node without clients; before it has its first one it gets what was answered without it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.raft import MessageType
from mayfly.node.catalog import PutUser
from mayfly.node.duties.quiet import CURRENT_WITHIN_MS, HEARD_WITHIN_MS
from mayfly.node.numbers import CATALOG_GROUP
from tests.node.broker.test_three_nodes import BIND, bindings, on_channel
from tests.node.broker.three_brokers import TICK_MS, NodeWorld, ThreeBrokers

QUIET_AFTER_MS = 500


@pytest.fixture
def brokers() -> ThreeBrokers:
    return with_quiet_nodes(ThreeBrokers())


def with_quiet_nodes(brokers: ThreeBrokers) -> ThreeBrokers:
    for node in brokers.nodes.values():
        node.engine.quiet.quiet_after_ms = QUIET_AFTER_MS
    return brokers


def all_know_quiet(brokers: ThreeBrokers, id: int) -> bool:
    others = [node.engine.quiet for other, node in brokers.nodes.items() if other != id]
    return not brokers.nodes[id].engine.quiet.serves and all(quiet.peer_is_quiet(id) for quiet in others)


def make_quiet(brokers: ThreeBrokers, id: int) -> None:
    brokers.run_until(lambda: all_know_quiet(brokers, id))


def keep_behind(brokers: ThreeBrokers, id: int) -> None:
    """The node hears of nothing that is appended to the catalog, but of its leader."""
    brokers.loses = lambda sender, to, message: to == id and message.type == MessageType.APP


def two_queues(brokers: ThreeBrokers, id: int) -> Any:
    """A client of a node, the only one; one queue is bound to amq.direct with key k, and `q` is not."""
    client = brokers.nodes[id].client()
    client.declare("first")
    client.declare("q")
    client.call(1, commands.Queue.Bind(queue="first", exchange="amq.direct", routing_key="k"))
    return client


def comes(node: NodeWorld) -> Any:
    """A client that has asked to open its connection; what it is answered is to be looked at."""
    client = node.login()
    (tune,) = client.take()
    client.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
    client.send(0, commands.Connection.Open(virtual_host="/"))
    return client


def is_open(client: Any) -> bool:
    return any(isinstance(item, commands.Connection.OpenOk) for item in client.received) or any(
        isinstance(item, commands.Connection.OpenOk) for item in client.take()
    )


def test_nobody_waits_for_a_node_without_clients(brokers: ThreeBrokers) -> None:
    client = two_queues(brokers, brokers.leader())
    behind = brokers.followers()[0]
    make_quiet(brokers, behind)
    keep_behind(brokers, behind)
    began_ms = brokers.now_ms
    assert isinstance(client.call(1, BIND), commands.Queue.BindOk)
    assert brokers.now_ms == began_ms
    assert "q" not in bindings(brokers, behind)


def test_its_first_client_is_served_when_it_has_what_was_answered(brokers: ThreeBrokers) -> None:
    """And a change that is made from then on waits for it."""
    client = two_queues(brokers, brokers.leader())
    behind = brokers.followers()[0]
    make_quiet(brokers, behind)
    keep_behind(brokers, behind)
    assert isinstance(client.call(1, BIND), commands.Queue.BindOk)
    first = comes(brokers.nodes[behind])
    for _ in range(2 * HEARD_WITHIN_MS // TICK_MS):
        brokers.step()
    assert not is_open(first)
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: is_open(first))
    assert "q" in bindings(brokers, behind)
    keep_behind(brokers, behind)
    client.send(1, commands.Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k"))
    brokers.settle()
    assert on_channel(client) == []
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: client.received)
    assert "q" not in bindings(brokers, behind)


def test_a_peer_that_does_not_answer_is_not_waited_for_long(brokers: ThreeBrokers) -> None:
    hanging, coming = brokers.followers()
    make_quiet(brokers, coming)
    brokers.late = {hanging}
    began_ms = brokers.now_ms
    first = comes(brokers.nodes[coming])
    brokers.run_until(lambda: is_open(first))
    assert HEARD_WITHIN_MS <= brokers.now_ms - began_ms <= HEARD_WITHIN_MS + 2 * TICK_MS
    assert brokers.nodes[hanging].engine.quiet.peer_is_quiet(coming)
    brokers.late = set()
    brokers.step()
    assert not brokers.nodes[hanging].engine.quiet.peer_is_quiet(coming), "it is told until it answers"


def test_without_a_leader_clients_are_served_in_the_end(brokers: ThreeBrokers) -> None:
    coming = brokers.followers()[0]
    make_quiet(brokers, coming)
    brokers.silent = {CATALOG_GROUP}
    began_ms = brokers.now_ms
    first = comes(brokers.nodes[coming])
    brokers.run_until(lambda: is_open(first))
    assert CURRENT_WITHIN_MS <= brokers.now_ms - began_ms <= CURRENT_WITHIN_MS + 2 * TICK_MS


def test_with_clients_a_node_never_is_quiet_and_the_next_is_served_at_once(brokers: ThreeBrokers) -> None:
    id = brokers.followers()[0]
    client = brokers.nodes[id].client()
    for _ in range(3 * QUIET_AFTER_MS // TICK_MS):
        brokers.step()
    assert brokers.nodes[id].engine.quiet.serves
    brokers.running = False
    assert is_open(comes(brokers.nodes[id]))
    brokers.running = True
    client.lose()
    brokers.nodes[id].broker.close_all("end")
    make_quiet(brokers, id)


def test_a_node_that_comes_back_says_again_what_it_is(brokers: ThreeBrokers) -> None:
    leader, (id, other) = brokers.leader(), brokers.followers()
    make_quiet(brokers, id)

    def reconnect() -> None:
        for here, there in ((id, other), (other, id)):
            brokers.nodes[here].engine.peer_down(there, brokers.now_ms)
        assert not brokers.nodes[other].engine.quiet.peer_is_quiet(id)
        for here, there in ((id, other), (other, id)):
            brokers.nodes[here].engine.peer_up(there, brokers.now_ms)
        brokers.step()

    reconnect()
    assert all_know_quiet(brokers, id)
    brokers.cut = {other}
    first = comes(brokers.nodes[id])
    brokers.nodes[id].engine.peer_down(other, brokers.now_ms)
    brokers.run_until(lambda: is_open(first))
    assert brokers.nodes[other].engine.quiet.peer_is_quiet(id), "its stream broke on one side alone"
    brokers.cut = set()
    brokers.nodes[id].engine.peer_up(other, brokers.now_ms)
    brokers.step()
    assert not brokers.nodes[other].engine.quiet.peer_is_quiet(id)
    assert not brokers.nodes[leader].engine.quiet.peer_is_quiet(id)


def test_words_that_are_none_and_words_from_before_say_nothing(brokers: ThreeBrokers) -> None:
    id = brokers.followers()[0]
    make_quiet(brokers, id)
    there = brokers.nodes[brokers.leader()].engine.quiet
    number = there._heard[id]
    for data in (b"", b"\x01" * 16, b"\x01" * 18, b"\x03" + bytes(16), b"\x01" + bytes(16)):
        there.notice(id, data)
        assert there.peer_is_quiet(id), data
    brokers.nodes[id].client()
    assert not there.peer_is_quiet(id)
    there.notice(id, b"\x00" + number[0].to_bytes(8, "little") + number[1].to_bytes(8, "little"))
    assert not there.peer_is_quiet(id), "a word that was late"


def test_what_operators_change_is_waited_for_everywhere(brokers: ThreeBrokers) -> None:
    """Who logs in is no client yet."""
    node, behind = brokers.nodes[brokers.leader()], brokers.followers()[0]
    make_quiet(brokers, behind)
    keep_behind(brokers, behind)
    answers: list[object] = []
    node.engine.submit_catalog(PutUser("new", "any"), answers.append)
    brokers.run_until(lambda: answers)
    told: list[object] = []
    node.engine.catalog_spread(told.append, everywhere=True)
    brokers.settle()
    assert told == []
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: told)
    assert brokers.nodes[behind].engine.catalog.user("new") is not None


def test_d6_a_leader_without_clients_routes_what_died_by_what_was_answered_before() -> None:
    """It has a route, but an older one."""
    brokers = with_quiet_nodes(ThreeBrokers(shards=8))
    here, quiet = brokers.leader(), brokers.followers()[0]
    client = brokers.nodes[here].client()
    client.declare("old")
    client.call(1, commands.Queue.Bind(queue="old", exchange="amq.fanout", routing_key=""))
    client.declare("new")
    brokers.run_until(lambda: led_by(brokers, quiet))
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-queue-leader-locator": "balanced"}
    name = next(
        name
        for name in (f"dies-{number}" for number in range(32))
        if client.declare(name, arguments=arguments)
        and shard_of(brokers, name) in led_by(brokers, quiet)
    )
    client.publish(1, name, b"first")
    brokers.settle()
    die(brokers, client, name)
    brokers.run_until(lambda: bodies(client, "old") == [b"first"])
    make_quiet(brokers, quiet)
    keep_catalog_behind(brokers, quiet)
    assert isinstance(
        client.call(1, commands.Queue.Bind(queue="new", exchange="amq.fanout", routing_key="")), commands.Queue.BindOk
    )
    assert len(brokers.nodes[quiet].engine.catalog.route("/", "amq.fanout", "", {})) == 1
    client.publish(1, name, b"second")
    die(brokers, client, name)
    for _ in range(10):
        brokers.step()
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: bodies(client, "new") == [b"second"])
    brokers.run_until(lambda: bodies(client, "old") == [b"second"])


def shard_of(brokers: ThreeBrokers, name: str) -> int:
    record = brokers.nodes[brokers.leader()].engine.catalog.queue("/", name)
    assert record is not None
    return record.shard


def led_by(brokers: ThreeBrokers, id: int) -> list[int]:
    groups = brokers.nodes[id].engine.host.groups.values()
    return [group.id for group in groups if group.established and group.id != CATALOG_GROUP]


def keep_catalog_behind(brokers: ThreeBrokers, id: int) -> None:
    engine = brokers.nodes[id].engine
    catalog_index = engine.host.groups[CATALOG_GROUP].raw.last_index

    def loses(sender: int, to: int, message: Any) -> bool:
        entries = message.type == MessageType.APP and message.entries
        return bool(to == id and entries and message.index == catalog_index and sender == brokers.leader())

    brokers.loses = loses


def die(brokers: ThreeBrokers, client: Any, name: str) -> None:
    """A message of the queue is rejected."""
    client.send(1, commands.Basic.Get(queue=name))
    brokers.settle()
    got = next(item for item in client.take(1) if hasattr(item, "body"))
    client.send(1, commands.Basic.Reject(delivery_tag=got.method.delivery_tag, requeue=False))
    brokers.settle()


def bodies(client: Any, name: str) -> list[bytes]:
    """What is got from the queue."""
    client.send(1, commands.Basic.Get(queue=name, no_ack=True))
    client.world.settle()
    return [item.body for item in client.take(1) if hasattr(item, "body")]
