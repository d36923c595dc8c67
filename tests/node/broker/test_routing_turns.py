"""A stream of publishes to exchanges whose bindings are made to be slow takes a bounded part of each turn of the node.

What is counted are steps of routing (`Catalog.routing_steps`), through the way that octets of clients take.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_ROUTING_WEIGHT
from mayfly.node.catalog import (
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    FoundCluster,
    NodeStarted,
    RaiseLevel,
    Refusal,
    SetPolicy,
    Unbind,
)
from mayfly.node.limits import (
    COPIES_CHARACTERS,
    KIB,
    ROUTING_STEPS_OF_MESSAGE,
    ROUTING_STEPS_PER_TURN,
    ROUTING_WEIGHT,
)
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client, World, closed
from tests.node.readings import statistics_of

READ_BYTES = 256 * KIB
"""What is read of a socket in one piece."""
KEYS = 64

random = Random(14)


def words(alphabet: str, count: int) -> str:
    return ".".join(random.choice(alphabet) for _ in range(count))


def topics(catalog: Catalog, count: int) -> None:
    for number in range(count):
        assert catalog.apply(Bind("/", "amq.topic", "queue", "q", f"{words('ab*', 100)}.#.{number}.#"))
    catalog.apply(Bind("/", "amq.topic", "queue", "q", "#"))


def headers(catalog: Catalog, count: int) -> None:
    for number in range(count):
        arguments = {"x-match": "any", "h": None, f"u{number}": 1}
        catalog.apply(Bind("/", "amq.headers", "queue", "q", "", arguments))


def exchanges(catalog: Catalog, count: int) -> None:
    catalog.apply(DeclareExchange("/", "first", "fanout"))
    for number in range(count):
        name = f"{number}"
        catalog.apply(DeclareExchange("/", name, "direct"))
        catalog.apply(Bind("/", "first", "exchange", name, ""))
        catalog.apply(Bind("/", name, "queue", "q", "k"))


def alternates(catalog: Catalog, count: int) -> None:
    for number in range(count):
        arguments = {"alternate-exchange": f"{count} {number + 1}"}
        catalog.apply(DeclareExchange("/", f"{count} {number}", "direct", arguments=arguments))
    catalog.apply(DeclareExchange("/", f"{count} {count}", "fanout"))
    catalog.apply(Bind("/", f"{count} {count}", "queue", "q", ""))
    catalog.apply(DeleteExchange("/", "first"))
    catalog.apply(DeclareExchange("/", "first", "direct", arguments={"alternate-exchange": f"{count} 0"}))


def delayed(catalog: Catalog, count: int) -> None:
    catalog.apply(DeclareExchange("/", "delayed", "x-delayed-message", arguments={"x-delayed-type": "direct"}))
    exchanges(catalog, count)
    catalog.apply(Bind("/", "first", "exchange", "delayed", ""))
    catalog.apply(Bind("/", "first", "queue", "q", ""))


def key(number: int) -> str:
    return f"{words('ab', 120)}.{number}"


def copies(number: int) -> list[str]:
    return [f"{words('ab', 100)}.{number}.{each}" for each in range(COPIES_CHARACTERS // 220)]


SHAPES: dict[str, tuple[Callable[[Catalog, int], None], Callable[[int], dict[str, Any]]]] = {
    "topics": (topics, lambda number: {"exchange": "amq.topic", "key": key(number)}),
    "copies": (topics, lambda number: {"exchange": "amq.topic", "key": "k", "headers": {"CC": copies(number)}}),
    "hidden copies": (topics, lambda number: {"exchange": "amq.topic", "key": "k", "headers": {"BCC": copies(number)}}),
    "headers": (headers, lambda number: {"exchange": "amq.headers", "key": "", "headers": {"h": number}}),
    "exchanges": (exchanges, lambda number: {"exchange": "first", "key": f"k{number}"}),
    "copies over exchanges": (
        exchanges, lambda number: {"exchange": "first", "key": "k", "headers": {"CC": [f"{number} {c}" for c in "abc"]}}
    ),
    "alternates": (alternates, lambda number: {"exchange": "first", "key": f"{number}"}),
    "no route": (exchanges, lambda number: {"exchange": "first", "key": f"nowhere {number}", "mandatory": True}),
    # Their routes are known when the first with a delay comes; where that waits is not.
    "delayed": (
        delayed,
        lambda number: {
            "exchange": "first", "key": f"{number % KEYS}", "headers": {"x-delay": 1} if number >= KEYS else None
        },
    ),
    "delayed copies": (
        delayed,
        lambda number: {"exchange": "first", "key": "k", "headers": {"x-delay": 1 + number % 2, "CC": [f"{number}"]}},
    ),
}


def read_of(client: Client, message: Callable[[int], dict[str, Any]], size: int = READ_BYTES) -> tuple[bytes, int]:
    """So many octets of publishes, bodies numbered, and how many publishes that are."""
    data = bytearray()
    number = 0
    while True:
        octets = client.publish_bytes(1, body=b"%d" % number, **message(number))
        if len(data) + len(octets) > size:
            return bytes(data), number
        data += octets
        number += 1


def most_of_one(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each message costs that is routed from now on: what may come on top of a turn."""
    costs = [0]
    plain = Catalog.route

    def counted(catalog: Catalog, *args: Any, **options: Any) -> Any:
        before = catalog.routing_steps
        found = plain(catalog, *args, **options)
        costs.append(catalog.routing_steps - before)
        return found

    monkeypatch.setattr(Catalog, "route", counted)
    return costs


@pytest.mark.parametrize("shape", SHAPES)
def test_a_read_of_hostile_publishes_costs_a_bounded_number_of_steps_in_each_turn(
    world: World, client: Client, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A curve over the number of bindings. Others, who publish as ever, are confirmed in each of these turns."""
    bind, message = SHAPES[shape]
    other = world.client()
    other.open_channel(2, confirms=True)
    client.declare("q")
    client.declare("other")
    client.call(1, commands.Confirm.Select())
    data, count = read_of(client, message, READ_BYTES if bind is topics else READ_BYTES // 8)
    catalog = world.cluster.catalog
    curve = []
    for bindings in (50, 200, 800):
        bind(catalog, bindings)
        other.publish(2, "other")
        other.take(2)
        client.publish(1, **message(0))
        costs = most_of_one(world, monkeypatch)
        world.running = False
        turns, most, before = 0, 0, catalog.routing_steps
        client.connection.receive(data)
        most = catalog.routing_steps - before
        while world.cluster.busy:
            turns += 1
            other.connection.receive(other.publish_bytes(2, "other"))
            before = catalog.routing_steps
            world.cluster.turn()
            most = max(most, catalog.routing_steps - before)
            world.settle()
            assert len(other.acks(2)) == 1, "in the same turn"
        world.running = True
        world.settle()
        curve.append((bindings, count, turns, most, max(costs)))
        # Each message looks for headers exchanges and delayed ones before it is routed.
        assert most <= ROUTING_STEPS_PER_TURN + 2 * max(costs) + 2 * bindings, curve
        monkeypatch.undo()
    assert curve[-1][2] > 2, curve
    assert world.broker.waiting_events.size_bytes == 0


def test_each_exchange_that_is_come_to_counts_for_each_key(world: World) -> None:
    """So does each policy that is held against the name of one, when they have changed."""
    catalog = world.cluster.catalog
    exchanges(catalog, 100)

    def cost(exchange: str, *keys: str) -> int:
        before = catalog.routing_steps
        catalog.route("/", exchange, "k", None, keys)
        return catalog.routing_steps - before

    few, many = cost("first", "l"), cost("first", *(f"l{each}" for each in range(50)))
    assert many - few >= 49 * 100
    for number in range(40):
        catalog.apply(SetPolicy("/", f"{number}", "^x", {"alternate-exchange": "x"}, apply_to="exchanges"))
    assert cost("first", "l") - few >= 40 * 100
    assert cost("first", "l") == few, "looked up once"


def test_a_message_that_takes_too_long_alone_is_refused(world: World, client: Client) -> None:
    """Many keys for many exchanges: no turn could be shorter than it. A dead letter of that kind is parked (RULES D8),
    and has its route when there are fewer of them."""
    catalog = world.cluster.catalog
    catalog.apply(DeclareExchange("/", "first", "fanout"))
    client.declare("q")
    client.declare("timed", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "first"})
    for number in range(300):
        catalog.apply(DeclareExchange("/", f"{number}", "direct"))
        catalog.apply(Bind("/", "first", "exchange", f"{number}", ""))
        catalog.apply(Bind("/", f"{number}", "queue", "q", "k"))
    many = {"CC": ["k"] * (COPIES_CHARACTERS // 2)}
    before = catalog.routing_steps
    client.publish(1, "timed", exchange="first", headers={"CC": many["CC"][:5]})
    assert client.take(1) == [] and len(bodies_in(client, "q")) == 1
    client.publish(1, "k", exchange="first", headers=many)
    assert catalog.routing_steps - before < 1.1 * ROUTING_STEPS_OF_MESSAGE
    assert closed(client.take(1)[-1]) == ("channel", 406, (
        "PRECONDITION_FAILED - invalid message: exchange 'first' in vhost '/' leads to so many exchanges that "
        "4097 routing keys, with those in CC and BCC, take more than 1048576 steps"
    ))
    client.send(1, commands.Channel.CloseOk())
    client.open_channel()
    client.publish(1, "timed", b"dead", headers=many)
    catalog.apply(DeclareExchange("/", "last", "fanout"))
    catalog.apply(Bind("/", "last", "queue", "q", ""))
    world.advance(500)
    assert client.count("q") == 0
    for number in range(300):
        catalog.apply(Unbind("/", "first", "exchange", f"{number}", ""))
    catalog.apply(Bind("/", "first", "exchange", "last", ""))
    world.advance(6_000)
    assert bodies_in(client, "q") == [b"dead"]


@pytest.mark.parametrize("shards", [1, 4], ids=["one shard", "some shards"])
def test_copies_for_many_queues_count_also_where_the_route_is_remembered(shards: int) -> None:
    """A read of empty messages for ten thousand queues would be half a gigabyte to give to their shards."""
    world = World(shards)
    client = world.client()
    for number in range(1_000):
        world.cluster.catalog.apply(DeclareQueue("/", f"{number}", durable=True))
        world.cluster.catalog.apply(Bind("/", "amq.fanout", "queue", f"{number}", ""))
    client.publish(1, "", exchange="amq.fanout")
    world.running = False
    received = world.broker.traffic.routed
    data, count = read_of(client, lambda number: {"exchange": "amq.fanout", "key": ""}, READ_BYTES // 16)
    assert count > 200
    client.connection.receive(data)
    while world.cluster.busy:
        assert world.broker.traffic.routed - received <= ROUTING_STEPS_PER_TURN + 1_000
        received = world.broker.traffic.routed
        world.cluster.turn()
    assert world.broker.traffic.routed == 1_000 * (count + 1)


def flood(client: Client, messages: int, channel: int = 1) -> bytes:
    """Publishes that cost a turn each, about."""
    table = {"h": 1}
    bodies = range(messages)
    return b"".join(
        client.publish_bytes(channel, "", b"%d" % each, exchange="amq.headers", headers=table) for each in bodies
    )


@pytest.fixture
def hostile(world: World, client: Client) -> Client:
    """A client of a vhost in which a publish to amq.headers costs a whole turn."""
    client.declare("q")
    headers(world.cluster.catalog, ROUTING_STEPS_PER_TURN // 5)
    client.publish(1, "", exchange="amq.headers", headers={"h": 1})
    client.call(1, commands.Queue.Purge(queue="q"))
    world.running = False
    return client


def turn(world: World) -> None:
    world.cluster.turn()
    world.settle()


def bodies_in(client: Client, queue: str) -> list[bytes]:
    client.take()
    bodies = []
    while not isinstance(got := client.get(queue), commands.Basic.GetEmpty):
        bodies.append(got.body)
    return bodies


def test_what_comes_on_a_channel_keeps_its_order_over_turns(world: World, hostile: Client) -> None:
    """Publishes that are dear, ordinary ones, a method, and more of them, read at once; confirms in order as well."""
    world.running = True
    hostile.call(1, commands.Confirm.Select())
    world.running = False
    parts = []
    for number in range(12):
        dear = number % 3 != 2
        options: dict[str, Any] = {"exchange": "amq.headers", "headers": {"h": 1}} if dear else {}
        parts.append(hostile.publish_bytes(1, "" if dear else "q", b"%d" % number, **options))
        if number == 5:
            parts.append(frame.marshal(commands.Queue.Declare(queue="q", passive=True), 1))
    hostile.connection.receive(b"".join(parts))
    turns = 0
    while world.cluster.busy:
        turn(world)
        turns += 1
    assert turns >= 4
    answers = hostile.take(1)
    declared = next(place for place, each in enumerate(answers) if isinstance(each, commands.Queue.DeclareOk))
    assert answers[declared].message_count == 6
    tags = [each.delivery_tag for each in answers if isinstance(each, commands.Basic.Ack)]
    assert tags == sorted(tags) and tags[-1] == 12
    world.running = True
    assert bodies_in(hostile, "q") == [b"%d" % number for number in range(12)]


def test_connections_have_their_turns_one_after_the_other_whatever_they_have_to_do(
    world: World, hostile: Client
) -> None:
    """A connection with fifty channels has no more of them than one with one publish."""
    world.running = True
    others = [world.client() for _ in range(3)]
    for channel in range(2, 51):
        hostile.open_channel(channel)
    world.running = False
    for channel in range(1, 51):
        hostile.connection.receive(flood(hostile, 4, channel))
    for number, other in enumerate(others):
        octets = other.publish_bytes(1, "", b"other %d" % number, exchange="amq.headers", headers={"h": 1})
        other.connection.receive(octets)
    turn(world)
    for _ in range(5):
        turn(world)
    world.running = True
    stored = [record for record in world.cluster.shards.values() if statistics_of(record.shard).ready]
    assert stored
    bodies = bodies_in(others[0], "q")
    assert [body for body in bodies[:9] if body.startswith(b"other")] == [b"other 0", b"other 1", b"other 2"]
    assert len(bodies) == 203


PLAIN_AND_TIMED: tuple[dict[str, Any], ...] = ({}, {"expiration": "60000"})


def test_what_needs_no_routing_waits_for_no_turn(world: World, hostile: Client) -> None:
    """Known keys, also with a time to live: the route is remembered."""
    world.running = True
    other = world.client()
    other.open_channel(2, confirms=True)
    for properties in PLAIN_AND_TIMED:
        other.publish(2, "q", **properties)
    other.acks(2)
    world.running = False
    hostile.connection.receive(flood(hostile, 50))
    assert world.cluster.catalog.routing_turns.is_over
    for properties in PLAIN_AND_TIMED:
        other.connection.receive(other.publish_bytes(2, "q", b"m", **properties))
        assert not other.connection.channels[2].is_busy
    turn(world)
    assert other.acks(2)


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
def test_what_ends_in_the_line_leaves_nothing_behind(world: World, hostile: Client, end: str) -> None:
    """What its client closed in order is published to the end; what broke is not. Others have their turns."""
    world.running = True
    other = world.client()
    world.running = False
    hostile.connection.receive(flood(hostile, 20))
    other.connection.receive(flood(other, 2))
    if end == "socket":
        hostile.lose()
    elif end == "channel":
        hostile.connection.receive(frame.marshal(commands.Channel.Close(200, "", 0, 0), 1))
    else:
        hostile.connection.receive(frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
    while world.cluster.busy:
        turn(world)
    world.running = True
    bodies = bodies_in(other, "q")
    assert len(bodies) == 22 if end != "socket" else 3 <= len(bodies) <= 5
    assert world.broker.waiting_events.size_bytes == 0
    assert not world.cluster.catalog.routing_turns.has_waiting


def test_publishes_of_a_transaction_wait_for_turns_too(world: World, hostile: Client) -> None:
    world.running = True
    hostile.call(1, commands.Tx.Select())
    world.running = False
    hostile.connection.receive(flood(hostile, 10) + frame.marshal(commands.Tx.Commit(), 1))
    most = turns = 0
    while world.cluster.busy:
        before = world.cluster.catalog.routing_steps
        turn(world)
        most = max(most, world.cluster.catalog.routing_steps - before)
        turns += 1
    assert turns >= 9 and most <= 1.1 * ROUTING_STEPS_PER_TURN
    assert isinstance(hostile.take(1)[-1], commands.Tx.CommitOk)
    world.running = True
    assert bodies_in(hostile, "q") == [b"%d" % number for number in range(10)]


def test_who_reads_on_while_in_line_is_stopped(world: World, hostile: Client) -> None:
    """What waits for a turn counts as all that waits does."""
    data = flood(hostile, READ_BYTES // 60)
    reads = 0
    while hostile.connection.pressure.wants_reading and reads < 100:
        hostile.connection.receive(data)
        reads += 1
    assert reads < 100


def test_an_engine_begins_a_turn_with_each_pump_and_is_busy_while_somebody_waits() -> None:
    brokers = ThreeBrokers()
    node = brokers.nodes[1]
    client = node.client()
    client.declare("q")
    headers(node.engine.catalog, ROUTING_STEPS_PER_TURN // 5)
    brokers.running = False
    client.connection.receive(flood(client, 10))
    costs = []
    while node.engine.catalog.routing_turns.has_waiting:
        assert node.engine.busy
        before = node.engine.catalog.routing_steps
        brokers._work()
        costs.append(node.engine.catalog.routing_steps - before)
    assert len(costs) >= 9 and max(costs) <= 1.1 * ROUTING_STEPS_PER_TURN
    brokers.running = True
    brokers.settle()
    assert client.count("q") == 10


# -- what dies and what is due --------------------------------------------------------------------


def steps_of_turns(world: World, ms: int) -> list[int]:
    """Time passes; what each turn and each tick of that costs."""
    catalog = world.cluster.catalog
    costs = []
    end = world.cluster.now_ms + ms
    while world.cluster.now_ms < end or world.cluster.busy:
        before = catalog.routing_steps
        world.cluster.tick(world.cluster.now_ms + 50)
        costs.append(catalog.routing_steps - before)
        for _ in range(20):
            before = catalog.routing_steps
            turn(world)
            costs.append(catalog.routing_steps - before)
    return costs


def test_d7_the_dead_of_all_shards_share_the_turns(world: World, hostile: Client) -> None:
    """Whatever they die of in however many shards: one costs a turn here, and each arrives, in order."""
    world.running = True
    queues = [f"timed {number}" for number in range(8)]
    for number, queue in enumerate(queues):
        arguments = {"x-message-ttl": 100, "x-dead-letter-exchange": "amq.headers"}
        hostile.declare(queue, arguments=arguments, durable=number > 0)
        for each in range(6):
            hostile.publish(1, queue, b"%d %d" % (number, each), headers={"h": each})
    records = [world.cluster.catalog.queue("/", queue) for queue in queues]
    assert len({record.shard for record in records if record is not None}) >= 4
    world.running = False
    costs = steps_of_turns(world, 5_000)
    assert max(costs) <= 1.1 * ROUTING_STEPS_PER_TURN
    assert sum(costs) >= 48 * ROUTING_STEPS_PER_TURN
    world.running = True
    bodies = bodies_in(hostile, "q")
    assert len(bodies) == 48
    for number in range(8):
        own = [body for body in bodies if body.startswith(b"%d " % number)]
        assert own == [b"%d %d" % (number, each) for each in range(6)]


def test_s3_what_is_due_in_delayed_exchanges_takes_turns(world: World, hostile: Client) -> None:
    world.running = True
    late = commands.Exchange.Declare(
        exchange="late", exchange_type="x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    assert isinstance(hostile.call(1, late), commands.Exchange.DeclareOk)
    world.cluster.catalog.apply(Bind("/", "late", "exchange", "amq.headers", ""))
    for each in range(20):
        hostile.publish(1, "", b"%d" % each, exchange="late", headers={"h": each, "x-delay": 100})
    assert bodies_in(hostile, "q") == []
    world.running = False
    costs = steps_of_turns(world, 3_000)
    assert max(costs) <= 1.1 * ROUTING_STEPS_PER_TURN
    world.running = True
    assert bodies_in(hostile, "q") == [b"%d" % each for each in range(20)]


def test_d8_parked_ones_and_publishes_and_the_dead_all_come_to_their_turn(world: World, hostile: Client) -> None:
    """While one floods, parked dead letters get the route that is made for them, and those that die later theirs."""
    world.running = True
    hostile.declare("parked", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "missing"})
    hostile.declare("timed", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "amq.headers"})
    for each in range(5):
        hostile.publish(1, "parked", b"parked %d" % each, headers={"h": 1})
    world.advance(1_000)
    world.cluster.catalog.apply(DeclareExchange("/", "missing", "fanout"))
    world.cluster.catalog.apply(Bind("/", "missing", "exchange", "amq.headers", ""))
    for each in range(5):
        hostile.publish(1, "timed", b"timed %d" % each, headers={"h": 1})
    world.running = False
    hostile.connection.receive(flood(hostile, 300))
    costs = steps_of_turns(world, 12_000)
    assert max(costs) <= 1.2 * ROUTING_STEPS_PER_TURN
    world.running = True
    bodies = bodies_in(hostile, "q")
    assert [body for body in bodies if body.startswith(b"parked")] == [b"parked %d" % each for each in range(5)]
    assert [body for body in bodies if body.startswith(b"timed")] == [b"timed %d" % each for each in range(5)]
    assert bodies.index(b"timed 4") < 100, "they did not wait for the end of the flood"
    assert [body for body in bodies if b" " not in body] == [b"%d" % each for each in range(300)]


def test_the_dead_take_turns_where_an_older_log_has_bound_more_than_may_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By patterns from before the level, out of a snapshot: no turn takes more than one of the dear messages, and each
    arrives, in order."""
    old = Catalog(4)
    old.apply(FoundCluster(((1, "a", "a:1"),), 1, LEVEL_ROUTING_WEIGHT - 1))
    for number in range(ROUTING_WEIGHT // 70):
        old.apply(Bind("/", "amq.topic", "exchange", "amq.fanout", f"{words('a*', 100)}.#.{number}.#"))
    catalog, own = world.cluster.catalog, world.cluster.incarnation
    catalog.restore(old.snapshot())
    catalog.apply(NodeStarted(1, own, "direct", levels=(1, LEVEL_HIGHEST)))
    catalog.apply(RaiseLevel(LEVEL_HIGHEST, ((1, own),)))
    assert catalog.level == LEVEL_HIGHEST
    assert isinstance(catalog.apply(Bind("/", "amq.topic", "exchange", "amq.fanout", "*.b")), Refusal), "over the limit"
    world.add_user("guest", "guest", ".*", ".*", ".*")
    client = world.client()
    client.declare("q")
    client.call(1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    client.declare("timed", arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "amq.topic"})
    for number in range(40):
        client.publish(1, "timed", b"%d" % number, headers={"CC": [f"{words('a', 120)}.b{number}"]})
    costs = most_of_one(world, monkeypatch)
    world.running = False
    turns = steps_of_turns(world, 1_000)
    assert ROUTING_STEPS_PER_TURN < max(costs) <= ROUTING_STEPS_OF_MESSAGE
    assert max(turns) <= ROUTING_STEPS_PER_TURN + max(costs)
    assert sum(cost > 0 for cost in turns) == 40, "a turn each"
    world.running = True
    assert bodies_in(client, "q") == [b"%d" % number for number in range(40)]
