"""What clients of one node see of what clients of others, or of the same node, have declared."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.raft import MessageType
from mayfly.node.broker import publishing
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.duties.catalog_spread import SPREAD_WITHIN_MS
from tests.node.broker.three_brokers import TICK_MS, NodeWorld, ThreeBrokers
from tests.node.readings import statistics_of


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers()


def last_index(brokers: ThreeBrokers, id: int) -> int:
    return brokers.nodes[id].catalog_group.raw.raft.raft_log.last_index()


def ready(node: NodeWorld) -> int:
    """How many messages wait in all queues, as the node knows."""
    return sum(statistics_of(shard).ready for shard in node.engine.shards.values())


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
    declaring.send(1, commands.Queue.Declare(queue="q", durable=True))
    declaring.send(1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*"))
    brokers.run_until(lambda: len(declaring.received) == 2)
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


# --- changes are answered when the other nodes have them ------------------------------------------------


BIND = commands.Queue.Bind(queue="q", exchange="amq.direct", routing_key="k")


def two_queues(brokers: ThreeBrokers, id: int) -> Any:
    """A client of a node, with queues `first`, bound to amq.direct with key k, and `q`, which is not. The other nodes
    have clients, too."""
    for other in brokers.ids:
        brokers.nodes[other].client()
    client = brokers.nodes[id].client()
    client.declare("first")
    client.declare("q")
    bound = client.call(1, commands.Queue.Bind(queue="first", exchange="amq.direct", routing_key="k"))
    assert isinstance(bound, commands.Queue.BindOk)
    return client


def bindings(brokers: ThreeBrokers, id: int) -> set[str]:
    """Where node `id` would route a message with key k at this moment."""
    routed = brokers.nodes[id].engine.catalog.route("/", "amq.direct", "k", {})
    return {queue.name for queue in routed}


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_after_bind_ok_every_node_routes_by_the_binding(brokers: ThreeBrokers, place: str) -> None:
    """A publish that has a route already does not ask whether there are more."""
    id = brokers.leader() if place == "leader" else brokers.followers()[0]
    client = two_queues(brokers, id)
    told: list[list[set[str]]] = []
    hear = client.output

    def look(data: bytes) -> None:
        hear(data)
        if data:
            told.append([bindings(brokers, other) for other in brokers.ids])

    client.output = look
    assert isinstance(client.call(1, BIND), commands.Queue.BindOk)
    assert told == [[{"first", "q"}] * 3]
    unbind = commands.Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k")
    assert isinstance(client.call(1, unbind), commands.Queue.UnbindOk)
    assert told[1:] == [[{"first"}] * 3]
    assert isinstance(client.call(1, commands.Queue.Delete(queue="first")), commands.Queue.DeleteOk)
    assert told[2:] == [[set()] * 3]


def test_the_answer_to_a_bind_waits_for_a_node_that_is_behind(brokers: ThreeBrokers) -> None:
    client = two_queues(brokers, brokers.leader())
    behind = brokers.followers()[0]
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    client.take(1)
    client.send(1, BIND)
    for _ in range(4):
        brokers.step()
    assert "q" in bindings(brokers, brokers.leader()) and "q" not in bindings(brokers, behind)
    assert on_channel(client) == []
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: client.received)
    assert "q" in bindings(brokers, behind)
    assert isinstance(on_channel(client)[0], commands.Queue.BindOk)


def test_a_node_that_hangs_costs_one_wait_and_is_waited_for_again_when_it_has_caught_up(brokers: ThreeBrokers) -> None:
    client = two_queues(brokers, brokers.leader())
    behind = brokers.followers()[0]
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    client.take(1)
    began_ms = brokers.now_ms
    client.send(1, BIND)
    brokers.run_until(lambda: client.received)
    assert SPREAD_WITHIN_MS <= brokers.now_ms - began_ms <= SPREAD_WITHIN_MS + 2 * TICK_MS
    assert isinstance(on_channel(client)[0], commands.Queue.BindOk)
    assert isinstance(client.call(1, BIND), commands.Queue.BindOk), "answered at once"
    brokers.loses = lambda sender, to, message: False
    brokers.run_until(lambda: "q" in bindings(brokers, behind))
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    client.send(1, commands.Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k"))
    assert on_channel(client) == []


def test_nobody_waits_for_a_node_that_is_gone(brokers: ThreeBrokers) -> None:
    client = two_queues(brokers, brokers.leader())
    gone = brokers.followers()[0]
    brokers.cut = {gone}
    for id in brokers.ids:
        if id != gone:
            brokers.nodes[id].engine.peer_down(gone, brokers.now_ms)
    assert isinstance(client.call(1, BIND), commands.Queue.BindOk)


def test_a_word_of_another_length_is_no_word(brokers: ThreeBrokers) -> None:
    client = two_queues(brokers, brokers.leader())
    behind = brokers.followers()[0]
    brokers.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    client.take(1)
    client.send(1, BIND)
    for data in (b"", b"\xff" * 7, b"\xff" * 9):
        brokers.nodes[brokers.leader()].engine.spread.notice(behind, data)
    brokers.settle()
    assert on_channel(client) == []


def test_l10_a_removal_whose_answer_is_lost_counts_as_none(brokers: ThreeBrokers) -> None:
    """The node's replica of the catalog was replaced, say: what a leader asked for before may have happened or not."""
    node = brokers.nodes[brokers.followers()[0]]
    answers: list[bool] = []
    node.engine.remove_queues((7,), answers.append)
    group = node.catalog_group
    assert group.route(group.leader, group.term, brokers.now_ms)
    for _, waiter in group.sender.skip(1 << 60):
        assert waiter is not None
        waiter(SESSION_LOST)
    assert answers == [False]
    other = brokers.nodes[brokers.followers()[1]]
    other.engine.remove_queues((7,), answers.append)
    brokers.run_until(lambda: len(answers) == 2)
    assert answers == [False, True]


# --- consumers of one queue on different nodes ----------------------------------------------------------


def bodies_of(client: Any) -> list[bytes]:
    return [item.body for item in client.take(1) if hasattr(item, "body")]


@pytest.mark.parametrize("durable", [True, False])
def test_the_highest_priority_gets_all_while_it_has_room_whatever_node_it_is_on(
    brokers: ThreeBrokers, durable: bool
) -> None:
    """Golden queue.consumer_priority, with a consumer on each node; what is not durable lives on one of them."""
    low, high, middle = (brokers.nodes[id].client() for id in brokers.ids)

    def do(client: Any, method: Any) -> None:
        client.send(1, method)
        brokers.run_until(lambda: client.received)
        client.take(1)

    do(low, commands.Queue.Declare(queue="q", durable=durable))
    for client, priority in ((low, -1), (high, 10), (middle, 5)):
        do(client, commands.Basic.Qos(prefetch_count=2))
        do(client, commands.Basic.Consume(queue="q", consumer_tag="c", arguments={"x-priority": priority}))
    publisher = brokers.nodes[1].client()
    got: dict[str, list[bytes]] = {"low": [], "high": [], "middle": []}

    def publish(count: int, first: int) -> None:
        for number in range(first, first + count):
            publisher.publish(1, "q", b"%d" % number)
        before = sum(map(len, got.values()))

        def all_came() -> bool:
            for name, client in (("low", low), ("high", high), ("middle", middle)):
                got[name] += bodies_of(client)
            return sum(map(len, got.values())) == before + count

        brokers.run_until(all_came)

    publish(1, 0)
    assert got == {"low": [], "high": [b"0"], "middle": []}
    publish(4, 1)
    assert got == {"low": [b"4"], "high": [b"0", b"1"], "middle": [b"2", b"3"]}
    high.send(1, commands.Basic.Ack(delivery_tag=2, multiple=True))
    for _ in range(3):
        brokers.step()
    publish(2, 5)
    assert got == {"low": [b"4"], "high": [b"0", b"1", b"5", b"6"], "middle": [b"2", b"3"]}
    middle.send(1, commands.Basic.Ack(delivery_tag=2, multiple=True))
    for _ in range(3):
        brokers.step()
    high.lose()
    brokers.run_until(lambda: sum(hasattr(frame, "consumer_tag") for _, frame in middle.received) == 2)
    assert bodies_of(middle) == [b"5", b"6"], "what the highest held goes to the next, not to the lowest"


def test_a_single_active_consumer_yields_to_the_highest_priority_of_any_node(brokers: ThreeBrokers) -> None:
    """As RabbitMQ 4.3 (golden sac4.higher_priority_takes_over), once it holds nothing; and it is followed by it."""
    one, two, three = (brokers.nodes[id].client() for id in brokers.ids)
    one.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-single-active-consumer": True}))
    brokers.run_until(lambda: one.received)
    publisher = brokers.nodes[2].client()
    publisher.send(1, commands.Confirm.Select())
    for client, priority in ((one, 0), (two, 1), (three, 2)):
        client.take(1)
        client.send(1, commands.Basic.Consume(queue="q", arguments={"x-priority": priority}))
        brokers.run_until(partial(getattr, client, "received"))
        client.take(1)
        publisher.take(1)
        publisher.publish(1, "q", b"%d" % priority)
        brokers.run_until(lambda: publisher.received)
    brokers.run_until(lambda: one.received)
    assert [bodies_of(client) for client in (one, two, three)] == [[b"0"], [], []]
    one.send(1, commands.Basic.Ack(delivery_tag=1))
    brokers.run_until(lambda: three.received)
    assert [bodies_of(client) for client in (one, two, three)] == [[], [], [b"1", b"2"]]
    three.lose()
    brokers.run_until(lambda: two.received)
    assert [bodies_of(client) for client in (one, two)] == [[], [b"1", b"2"]]



@pytest.mark.skipif(publishing.__file__.endswith(".so"), reason="the bounds, which are made small, are compiled in")
def test_large_messages_that_wait_for_their_turn_are_pressure(
    brokers: ThreeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many clients publish one each: publishers are not read while too much waits, and then they are."""
    monkeypatch.setattr("mayfly.node.engine.flow_control.PENDING_BYTES_HIGH", 1_000_000)
    monkeypatch.setattr("mayfly.node.engine.flow_control.PENDING_BYTES_LOW", 100_000)
    monkeypatch.setattr("mayfly.node.broker.publishing.LARGE_PUBLISH_BYTES", 100_000)
    node = brokers.nodes[brokers.leader()]
    clients = [node.client() for _ in range(12)]
    clients[0].declare("large")
    brokers.running = False
    for client in clients:
        client.open_channel(2, confirms=True)
        client.publish(2, "large", bytes(110_000))
    assert node.broker.large_publishes.waiting_bytes > 1_000_000
    node.engine.pump(brokers.now_ms)
    assert node.engine.overloaded
    assert not any(client.connection.pressure.wants_reading for client in clients)
    brokers.running = True
    brokers.run_until(lambda: ready(node) == len(clients))
    brokers.settle()
    assert node.broker.large_publishes.waiting_bytes == 0 == node.engine.pending_bytes()
    assert [client.acks(2) for client in clients] == [[(1, False, False)]] * len(clients)
    assert all(client.connection.pressure.wants_reading for client in clients)
