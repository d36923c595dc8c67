"""What clients ask for waits in memory: it counts by what it takes there, and who has too much of it is not read."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.base import Frame

from mayfly.node.amqp.events import ACK, Event, MethodReceived, PublishesReceived, SettlementsReceived
from mayfly.node.amqp.field_table import (
    FieldTable,
    FieldValue,
    array,
    boolean,
    integer,
    long_integer,
    long_string,
    table,
    timestamp,
)
from mayfly.node.amqp.methods import decode_method_without_table
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.waiting_events import waiting_bytes, working_bytes
from mayfly.node.limits import (
    ARGUMENT_VALUES,
    ARGUMENTS_BYTES,
    KIB,
    MADE_IN_ALARM,
    WAITING_EVENTS_BYTES,
    WAITING_EVENTS_LEAST_BYTES,
    WAITING_EVENTS_OF_NODE_BYTES,
    WAITING_EVENTS_OF_NODE_LOW_BYTES,
)
from tests.node.conftest import Client, World, closed

MANY = 400
READ_BYTES = 256 * KIB
"""What is read of a socket in one piece."""


def declare_octets(arguments: bytes, name: str = "q") -> bytes:
    """The octets of a passive declare with this table, without those of its frame."""
    plain = frame.marshal(commands.Queue.Declare(queue=name, passive=True), 1)[7:-1]
    assert plain.endswith(bytes(4))
    return bytes(plain[:-4]) + arguments


def as_frame(payload: bytes, channel: int = 1) -> bytes:
    return b"\x01" + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def values(value: FieldValue, count: int) -> bytes:
    return FieldTable([(f"{number:04}", value) for number in range(count)]).encode()


VALUES = {
    "void": FieldValue(ord("V"), b""),
    "boolean": boolean(True),
    "octet": FieldValue(ord("b"), b"\x81"),
    "integer": integer(100_000),
    "long": long_integer(2**40),
    "double": FieldValue(ord("d"), b"\x01" * 8),
    "decimal": FieldValue(ord("D"), b"\x03\x01\x01\x01\x01"),
    "timestamp": timestamp(1_600_000_000),
    "empty string": long_string(""),
    "wide string": long_string("\N{GRINNING FACE}" + "a" * 40),
    "binary": FieldValue(ord("x"), bytes(4)),
    "empty array": array([]),
    "array": array([integer(1_000)]),
    "empty table": table(FieldTable()),
    "table": table(FieldTable([("a", integer(1_000))])),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_method_takes_no_more_memory_than_it_counts_for(kind: str) -> None:
    """While it waits, and while it is worked on; nor does it count for a great multiple."""
    payload = declare_octets(values(VALUES[kind], ARGUMENT_VALUES // 2))
    tracemalloc.start()
    try:
        events = []
        for _ in range(50):
            method, arguments = decode_method_without_table(bytes(bytearray(payload)))
            events.append(MethodReceived(1, method, arguments, len(payload)))
        waiting, _ = tracemalloc.get_traced_memory()
        for event in events:
            event.decode_table()
        working, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert waiting / 4 < sum(map(waiting_bytes, events)) * 2 and waiting <= sum(map(waiting_bytes, events))
    assert working / 8 < sum(map(working_bytes, events)) and working <= sum(map(working_bytes, events))


def test_settlements_take_no_more_memory_than_they_count_for() -> None:
    event = SettlementsReceived(1, [(ACK, 1_000 + number, False, False) for number in range(MANY)])
    # Not traced: tuples of this length may come from those that the interpreter keeps.
    taken = sys.getsizeof(event.settlements)
    taken += sum(sys.getsizeof(settlement) + sys.getsizeof(settlement[1]) for settlement in event.settlements)
    assert taken <= waiting_bytes(event) <= 2 * taken


def send_declares(client: Client, count: int, arguments: bytes = bytes(4), channel: int = 1) -> int:
    """As many as are read, in pieces as a socket gives them; how many octets."""
    octets = as_frame(declare_octets(arguments), channel)
    sent = 0
    while count > 0 and client.connection.pressure.wants_reading:
        now = min(count, max(1, READ_BYTES // len(octets)))
        client.connection.receive(octets * now)
        sent += len(octets) * now
        count -= now
    return sent


def test_pipelined_declares_with_tables_stop_the_reading(world: World) -> None:
    """Of a client without any permission, and without an alarm. What is held is no more than the limit and a read."""
    world.add_user("nobody", "nobody", "^$", "^$", "^$")
    client = world.client(user="nobody", password="nobody")
    world.running = False
    # Its first operation waits for the cluster; all the others wait behind it.
    client.connection.receive(as_frame(declare_octets(bytes(4), "not-there")))
    sent = send_declares(client, 10**6, values(VALUES["table"], ARGUMENT_VALUES // 2))
    assert not client.connection.pressure.wants_reading
    assert WAITING_EVENTS_BYTES < client.connection.pressure.waiting_bytes < WAITING_EVENTS_BYTES + 2 * READ_BYTES
    assert sent < WAITING_EVENTS_BYTES
    world.running = True
    world.settle()
    assert client.connection.pressure.waiting_bytes == 0 == world.broker.waiting_events.size_bytes
    assert client.connection.pressure.wants_reading


def test_what_is_worked_on_counts_too(world: World) -> None:
    """One method on each of many channels waits behind nothing."""
    client = world.client(channel=False)
    channels = range(1, 101)
    for channel in channels:
        client.open_channel(channel)
    world.running = False
    arguments = values(VALUES["table"], ARGUMENT_VALUES // 2)
    for channel in channels:
        client.connection.receive(as_frame(declare_octets(arguments, f"q{channel}"), channel))
    one, arguments_read = decode_method_without_table(declare_octets(arguments, "q100"))
    event = MethodReceived(1, one, arguments_read, len(declare_octets(arguments, "q100")))
    assert client.connection.pressure.waiting_bytes == pytest.approx(100 * working_bytes(event), rel=0.01)
    client.lose()
    world.running = True
    world.settle()
    assert world.broker.waiting_events.size_bytes == 0


def test_all_connections_together_are_bounded(world: World) -> None:
    """A connection with little of it goes on being read."""
    world.running = False
    greedy = [_client(world) for _ in range(12)]
    modest = _client(world)
    for client in greedy:
        client.connection.receive(as_frame(declare_octets(bytes(4), "not-there")))
        send_declares(client, 10**6, values(long_string("x" * 8_000), 1))
    assert world.broker.waiting_events.is_too_much
    most = WAITING_EVENTS_OF_NODE_BYTES + len(greedy) * (WAITING_EVENTS_LEAST_BYTES + READ_BYTES)
    assert WAITING_EVENTS_OF_NODE_BYTES < world.broker.waiting_events.size_bytes < most
    assert not any(client.connection.pressure.wants_reading for client in greedy)
    send_declares(modest, 20)
    assert modest.connection.pressure.wants_reading
    world.running = True
    world.settle()
    assert world.broker.waiting_events.size_bytes == 0
    assert not world.broker.waiting_events.is_too_much
    assert all(client.connection.pressure.wants_reading for client in greedy)
    assert WAITING_EVENTS_OF_NODE_LOW_BYTES < WAITING_EVENTS_OF_NODE_BYTES


def _client(world: World) -> Client:
    was, world.running = world.running, True
    try:
        return world.client()
    finally:
        world.running = was


@pytest.mark.parametrize("pressure", ["alarm", "overload"])
def test_under_pressure_little_may_wait_whatever_it_is(world: World, client: Client, pressure: str) -> None:
    """Also of a client that has published nothing. What it asked for is done, and then it is read again."""
    client.declare("q")
    if pressure == "alarm":
        world.alarm("low on memory")
    else:
        world.cluster.overloaded = True
        world.broker.pressure_changed(True)
    assert client.connection.pressure.wants_reading
    world.running = False
    client.connection.receive(as_frame(declare_octets(bytes(4), "not-there")))
    sent = send_declares(client, 10**6)
    assert not client.connection.pressure.wants_reading
    assert sent <= READ_BYTES
    world.running = True
    world.settle()
    assert client.connection.pressure.wants_reading


def test_what_waits_when_an_alarm_comes_stops_the_reading_then(world: World, client: Client) -> None:
    world.running = False
    client.connection.receive(as_frame(declare_octets(bytes(4), "not-there")))
    send_declares(client, 2 * WAITING_EVENTS_LEAST_BYTES // 512)
    assert client.connection.pressure.wants_reading
    world.alarm("low on memory")
    assert not client.connection.pressure.wants_reading
    host: Any = client.connection.host
    assert not host.reading
    world.alarm(None)
    assert host.reading


# -- what clients make during an alarm ----------------------------------------------------------


def make(number: int) -> Frame:
    name = f"made{number}"
    if number % 3 == 0:
        return commands.Queue.Declare(queue=name, durable=True)
    if number % 3 == 1:
        return commands.Exchange.Declare(exchange=name)
    return commands.Queue.Bind(queue="there", exchange="amq.topic", routing_key=name)


def test_during_an_alarm_a_user_makes_a_bounded_number_of_things() -> None:
    world = World()
    world.add_user("other", "other", ".*", ".*", ".*")
    client, other = world.client(), world.client(user="other", password="other")
    client.declare("there")
    world.alarm("low on disk")
    for number in range(MADE_IN_ALARM):
        assert not isinstance(client.call(1, make(number)), commands.Channel.Close)
    # What is there already is no more of it, on any connection.
    assert isinstance(client.declare("there"), commands.Queue.DeclareOk)
    assert isinstance(client.call(1, make(2)), commands.Queue.BindOk)
    again = world.client()
    for number in range(MADE_IN_ALARM, MADE_IN_ALARM + 3):
        kind, code, text = closed(again.call(1, make(number)))
        assert (kind, code) == ("channel", 406)
        assert text == (
            f"PRECONDITION_FAILED - user 'guest' has made {MADE_IN_ALARM} queues, exchanges and bindings while the "
            "cluster is low on disk: that is the most until it no longer is"
        )
        again.send(1, commands.Channel.CloseOk())
        again.open_channel()
    refused = next(number for number in range(MADE_IN_ALARM, MADE_IN_ALARM + 3) if number % 3 == 0)
    assert world.cluster.catalog.queue("/", f"made{refused}") is None
    assert isinstance(other.call(1, make(refused)), commands.Queue.DeclareOk)
    world.alarm(None)
    assert isinstance(again.call(1, make(refused + 3)), commands.Queue.DeclareOk)
    assert MADE_IN_ALARM >= 100, "who comes to empty queues needs some of his own"


# -- arguments ----------------------------------------------------------------------------------

TOO_LONG = values(long_string("x" * ARGUMENTS_BYTES), 1)
TOO_MANY = FieldTable([("a", array([table(FieldTable([("b", boolean(True))]))] * (ARGUMENT_VALUES // 2)))]).encode()


def with_table(method: Frame, arguments: bytes) -> bytes:
    plain = bytes(frame.marshal(method, 1)[7:-1])
    assert plain.endswith(bytes(4))
    return as_frame(plain[:-4] + arguments)


METHODS: list[Frame] = [
    commands.Queue.Declare(queue="made", durable=True),
    commands.Queue.Declare(queue="q", passive=True),
    commands.Queue.Bind(queue="q", exchange="amq.headers"),
    commands.Queue.Unbind(queue="q", exchange="amq.headers"),
    commands.Exchange.Declare(exchange="made"),
    commands.Exchange.Bind(destination="amq.fanout", source="amq.headers"),
    commands.Exchange.Unbind(destination="amq.fanout", source="amq.headers"),
    commands.Basic.Consume(queue="q"),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_arguments_have_a_limit(client: Client, method: Frame) -> None:
    """In octets and in values. The channel is closed for it, the connection goes on, and nothing was done."""
    client.declare("q")
    world = client.world
    for arguments, text in (
        (TOO_LONG, f"arguments of {len(TOO_LONG)} octets, where {ARGUMENTS_BYTES} are the most"),
        (TOO_MANY, f"arguments with {ARGUMENT_VALUES + 1} values, where {ARGUMENT_VALUES} are the most"),
    ):
        client.take()
        client.send_bytes(with_table(method, arguments))
        (refused,) = client.take(1)
        assert closed(refused) == ("channel", 406, f"PRECONDITION_FAILED - {text}, for {method.name}")
        assert (refused.class_id, refused.method_id) == (method.index >> 16, method.index & 0xFFFF)
        client.send(1, commands.Channel.CloseOk())
        client.open_channel()
    assert world.cluster.catalog.queue("/", "made") is None and world.cluster.catalog.exchange("/", "made") is None
    assert len(client.connection.channels) == 1


def test_arguments_at_the_limit_are_taken(client: Client) -> None:
    name = len(FieldTable([("x", long_string(""))]).encode())
    at_limit = FieldTable([("x", long_string("x" * (ARGUMENTS_BYTES - name)))]).encode()
    assert len(at_limit) == ARGUMENTS_BYTES
    as_many = values(boolean(True), ARGUMENT_VALUES)
    for number, arguments in enumerate((at_limit, as_many)):
        method = commands.Queue.Declare(queue=f"q{number}", durable=True)
        client.take()
        client.send_bytes(with_table(method, arguments))
        (answer,) = client.take(1)
        assert isinstance(answer, commands.Queue.DeclareOk), closed(answer)
        record = client.world.cluster.catalog.queue("/", f"q{number}")
        assert record is not None and len(record.arguments) == (1, ARGUMENT_VALUES)[number]


def test_what_a_stranger_says_of_itself_is_kept_as_octets(world: World) -> None:
    """Before the login, and for as long as the connection lasts: 8 KB of a table are 100 to 160 KB as a dict."""
    broker: Broker = world.broker
    client = world.socket()
    client.send_bytes(b"AMQP\x00\x00\x09\x01")
    start = commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response="\0guest\0wrong")
    plain = bytes(frame.marshal(start, 0)[7:-1])
    assert plain[4:8] == bytes(4)
    properties = values(VALUES["table"], 400)
    payload = plain[:4] + properties + plain[8:]
    tracemalloc.start()
    try:
        client.connection.receive(as_frame(payload, 0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(payload) < 8 * KIB and held < 3 * len(payload) + 4 * KIB
    assert len(client.connection.amqp.client_properties) == 400
    assert broker.connections


def test_events_of_all_kinds_count(client: Client) -> None:
    events: list[Event] = [PublishesReceived(1, [], []), SettlementsReceived(1, []), Event()]
    assert all(waiting_bytes(event) == working_bytes(event) > 0 for event in events)
