"""Each method of AMQP 0-9-1, as pamqp lists them, is in the table once; and what the tables say is what happens.

Every method is sent in every state of a connection and of a channel, on both kinds of channels.  What must come of it
is said once more, by name and number, in ON_CONNECTIONS and ON_OPEN_CONNECTIONS: a wrong cell of the tables differs.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Connection
from pamqp.header import ContentHeader

from mayfly.node.amqp import channel_state, connection_state
from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.events import MethodReceived, SettlementsReceived
from mayfly.node.amqp.frames import BODY, HEADER
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from mayfly.node.amqp.method_table import ON_CHANNEL_0, ON_CHANNELS
from mayfly.node.amqp.methods import method_frame, unchecked
from mayfly.node.broker.handlers import HANDLERS
from tests.node.amqp.scripted_client import ScriptedClient, raw_frame, running_client

METHODS: dict[int, type[Frame]] = dict(commands.INDEX_MAPPING)
VALUES: dict[str, Any] = {
    "bit": True, "octet": 0, "short": 0, "long": 8192, "longlong": 1, "shortstr": "a", "longstr": "b",
    "table": {"k": 1},
}
FIXED: dict[int, dict[str, Any]] = {
    Connection.StartOk.index: {"mechanism": "PLAIN", "response": "\0guest\0guest"},
    Connection.TuneOk.index: {"channel_max": 9, "frame_max": 8192},
}
PUBLISH = frame.marshal(Basic.Publish(routing_key="q"), 1)
HEADER_5 = frame.marshal(ContentHeader(body_size=5), 1)
CONNECTION_INPUTS = {value: name for name, value in vars(connection_state).items() if name.startswith("RECEIVE_")}
CHANNEL_INPUTS = {value: name for name, value in vars(channel_state).items() if name.startswith("RECEIVE_")}


def octets_of(index: int, channel_id: int) -> bytes:
    """The method with arguments that are right for it."""
    method = METHODS[index]
    arguments = {name: VALUES[method.amqp_type(name)] for name in method.attributes()}
    return method_frame(channel_id, unchecked(method, **arguments | FIXED.get(index, {})))


def connection_in(state: int) -> ScriptedClient:
    """A connection in one of its states."""
    client = ScriptedClient()
    connection = client.connection
    steps: list[Callable[[], object]] = [
        lambda: connection.receive(PROTOCOL_HEADER),
        lambda: connection.receive(client.start_ok()),
        connection.authenticated,
        lambda: client.send((0, Connection.TuneOk(2047, 131_072, 0))),
        lambda: connection.receive(frame.marshal(Connection.Open(), 0)),
        connection.opened,
        lambda: connection.close(320, "bye"),
        lambda: client.send((0, Connection.CloseOk())),
    ]
    for step in steps[:state]:
        step()
    connection.take_output()
    assert connection.state == state
    return client


def channel_in(state: int) -> ScriptedClient:
    """A connection whose channel 1 is in one of its states."""
    client = connection_in(connection_state.RUNNING)
    if state != channel_state.CLOSED:
        client.open_channel(1)
    if state in (channel_state.HEADER_EXPECTED, channel_state.BODY_EXPECTED):
        client.feed(PUBLISH + (HEADER_5 if state == channel_state.BODY_EXPECTED else b""))
    elif state == channel_state.CLOSING:
        client.connection.close_channel(1, 404, "no queue", 50, 10)
        client.output()
    assert state_of_channel(client) == state
    return client


def state_of_channel(client: ScriptedClient) -> int:
    channel = client.connection.channels.by_id.get(1)
    return channel_state.CLOSED if channel is None else channel.state


def codes(client: ScriptedClient) -> list[int]:
    """The reply codes of the connection.close that was sent."""
    return [int(what.reply_code) for _, what in client.output() if what.name == "Connection.Close"]


def test_each_method_is_named_once() -> None:
    assert not set(ON_CHANNEL_0) & set(ON_CHANNELS)
    assert set(ON_CHANNEL_0) | set(ON_CHANNELS) == set(METHODS)
    assert {METHODS[index].name.partition(".")[0] for index in ON_CHANNEL_0} == {"Connection"}
    assert set(ON_CHANNEL_0.values()) <= set(CONNECTION_INPUTS)
    assert set(ON_CHANNELS.values()) <= set(CHANNEL_INPUTS)


def test_each_method_for_the_broker_has_one_handler() -> None:
    for_the_broker = {index for index, happening in ON_CHANNELS.items() if happening == channel_state.RECEIVE_METHOD}
    assert set(HANDLERS) == for_the_broker
    assert len(set(HANDLERS.values())) == len(HANDLERS)


def test_what_only_a_server_sends_is_served_nowhere() -> None:
    """pamqp knows the methods that are answers; of the others a server sends these."""
    servers = {Basic.Return, Basic.Deliver, Connection.Blocked, Connection.Unblocked}
    servers |= {Connection.Start, Connection.Secure, Connection.Tune}
    clients_answers = {Connection.StartOk, Connection.TuneOk, Connection.CloseOk, Channel.CloseOk}
    for index, method in METHODS.items():
        answers = any(method.name in other.valid_responses for other in METHODS.values())
        if (answers and method not in clients_answers) or method in servers:
            happening = ON_CHANNEL_0.get(index, ON_CHANNELS.get(index))
            other = (connection_state.RECEIVE_OTHER_METHOD, channel_state.RECEIVE_OTHER_METHOD)
            assert happening == other[index not in ON_CHANNEL_0], method.name


@pytest.mark.parametrize(
    "table, states", [(connection_state.TRANSITIONS, connection_state.STATE_NAMES),
                      (channel_state.TRANSITIONS, channel_state.STATE_NAMES)],
)
def test_every_input_has_a_cell_for_every_state(table: dict[int, tuple[int, ...]], states: tuple[str, ...]) -> None:
    assert sorted(table) == list(range(len(table)))
    assert {len(row) for row in table.values()} == {len(states)}
    assert all(cell < len(states) for row in table.values() for cell in row)


READ_IN = [
    state
    for state in range(len(connection_state.STATE_NAMES))
    if connection_state.TRANSITIONS[connection_state.RECEIVE_OTHER_METHOD][state] != connection_state.NEVER
]


def judge_connection(client: ScriptedClient, state: int, happening: int, what: str) -> None:
    """What came of an input of the client's is what the table says."""
    cell = connection_state.TRANSITIONS[happening][state]
    if cell >= 0:
        assert client.connection.state == cell, what
        assert not codes(client), what
        return
    told = connection_state.TRANSITIONS[connection_state.FAIL][state]
    assert client.connection.state == told, what
    assert codes(client) == ([connection_state.REFUSALS[cell]] if told == connection_state.CLOSING else []), what


@pytest.mark.parametrize("state", READ_IN, ids=lambda state: connection_state.STATE_NAMES[state])
def test_on_channel_0_the_table_is_what_happens(state: int) -> None:
    for index, method in METHODS.items():
        client = connection_in(state)
        client.connection.receive(octets_of(index, 0))
        judge_connection(client, state, ON_CHANNEL_0.get(index, connection_state.RECEIVE_OTHER_METHOD), method.name)
    frames = [(kind, connection_state.RECEIVE_CONTENT) for kind in (HEADER, BODY)]
    frames += [(kind, connection_state.RECEIVE_UNKNOWN_FRAME) for kind in range(256) if kind not in (1, 2, 3, 8)]
    for kind, happening in frames:
        client = connection_in(state)
        client.connection.receive(raw_frame(kind, 0, b"0123456789abcdef"))
        judge_connection(client, state, happening, f"kind {kind}")


@pytest.mark.parametrize("state", READ_IN, ids=lambda state: connection_state.STATE_NAMES[state])
def test_no_channel_is_used_before_the_connection_is_open(state: int) -> None:
    if state != connection_state.RUNNING:
        for index, method in METHODS.items():
            client = connection_in(state)
            assert not [each for each in client.connection.receive(octets_of(index, 1)) if not is_end(each)]
            judge_connection(client, state, connection_state.RECEIVE_CHANNEL_FRAME, method.name)


def is_end(event: object) -> bool:
    return type(event).__name__ == "ConnectionClosed"


@pytest.mark.parametrize("state", range(len(connection_state.STATE_NAMES)))
def test_nothing_is_read_where_the_table_says_never(state: int) -> None:
    if state in READ_IN or state == connection_state.AWAITING_HEADER:
        return
    for index in METHODS:
        client = connection_in(state)
        assert client.connection.receive(octets_of(index, 0)) == []
        assert client.connection.state == state and not client.output()


@pytest.mark.parametrize("state", range(len(channel_state.STATE_NAMES)), ids=channel_state.STATE_NAMES)
def test_on_a_channel_the_table_is_what_happens(state: int) -> None:
    for index, method in METHODS.items():
        client = channel_in(state)
        happening = ON_CHANNELS.get(index, channel_state.RECEIVE_OTHER_METHOD)
        events = client.connection.receive(octets_of(index, 1))
        cell = channel_state.TRANSITIONS[happening][state]
        if cell < 0:
            assert codes(client) == [channel_state.REFUSALS[cell][0]], method.name
            assert client.connection.state == connection_state.CLOSING, method.name
            continue
        assert state_of_channel(client) == cell and not codes(client), method.name
        served = state == channel_state.OPEN
        assert [event.method.name for event in events if isinstance(event, MethodReceived)] == (
            [method.name] if served and happening == channel_state.RECEIVE_METHOD else []
        )
        assert any(isinstance(event, SettlementsReceived) for event in events) == (
            served and happening == channel_state.RECEIVE_SETTLEMENT
        )


def test_the_server_closes_a_channel_in_any_state_but_once() -> None:
    for state, following in enumerate(channel_state.TRANSITIONS[channel_state.SEND_CLOSE]):
        channel = ReceivingChannel(1)
        channel.state = state
        channel.move(channel_state.SEND_CLOSE)
        assert channel.state == following
    client = running_client()
    for _ in range(2):
        client.connection.close_channel(1, 404, "no queue", 50, 10)
    assert client.closing()[:2] == (1, 404)


# -- the contract, said without the tables ------------------------------------------------

CONNECTION_STATES = {
    "starting": connection_state.STARTING,
    "securing": connection_state.SECURING,
    "tuning": connection_state.TUNING,
    "opening": connection_state.OPENING,
    "checking": connection_state.CHECKING_VHOST,
    "running": connection_state.RUNNING,
    "closing": connection_state.CLOSING,
    "closed": connection_state.CLOSED,
}
ON_CONNECTIONS = {
    #                           starting  tuning   opening   running  closing
    "Connection.StartOk":      "securing  cut      504       504      closing",
    "Connection.TuneOk":       "cut       opening  504       504      closing",
    "Connection.Open":         "cut       cut      checking  504      closing",
    "Connection.UpdateSecret": "cut       cut      504       running  closing",
    "Connection.Close":        "cut       cut      504       closed   closing",
    "Connection.CloseOk":      "cut       cut      504       504      closed",
    "any other method":        "cut       cut      504       504      closing",
    "header":                  "cut       cut      505       505      closing",
    "body":                    "cut       cut      505       505      closing",
    "no kind of frame":        "cut       cut      501       501      closing",
    "channel 1":               "cut       cut      505       running  closing",
}  # fmt: skip
"""Input on channel 0 -> the next state, a reply code of connection.close, or the socket closed without a word (`cut`).

AMQP 0-9-1: methods of the connection in their order (2.2.4), who has not agreed on limits yet gets no explanation, and
after a close all but close and close-ok is ignored.  The reply codes are RabbitMQ's (3.10, rabbit_reader:
`channel_error` for a method that is not due, `unexpected_frame`, `frame_error`).  They are not recorded, and the
specification has others for contents on channel 0 (504) and unknown kinds of frames (no code)."""

CHANNEL_STATES = {
    "closed": channel_state.CLOSED,
    "open": channel_state.OPEN,
    "header": channel_state.HEADER_EXPECTED,
    "body": channel_state.BODY_EXPECTED,
    "closing": channel_state.CLOSING,
}
ON_OPEN_CONNECTIONS = {
    #                    closed  open    header  body  closing
    "Channel.Open":     "open    504     505     505   closing",
    "Channel.Close":    "504     closed  505     505   closing",
    "Channel.CloseOk":  "504     503     505     505   closed",
    "Basic.Publish":    "504     header  505     505   closing",
    "any of a client":  "504     open    505     505   closing",
    "any of a server":  "504     503     505     505   closing",
    "any of channel 0": "504     503     505     505   closing",
}  # fmt: skip
"""Method on another channel -> the next state of that channel, or a reply code of connection.close.

RabbitMQ 3.10.8 as recorded in `wire.channel_errors` (504 for a channel that is not open, 504 for a second open) and
`wire.close_ids` (ignored until close-ok).  Not recorded: 505 where content is due (AMQP 0-9-1, 4.2.6), and 503 for what
is not a client's to send there (rabbit_channel: "unimplemented method")."""
OF_SERVERS = ("Basic.Return", "Basic.Deliver", "Basic.GetEmpty")


def octets_on_channel_0(what: str) -> list[bytes]:
    """All inputs of a row of ON_CONNECTIONS."""
    kinds = {
        "header": [raw_frame(2, 0, b"0123456789abcdef")],
        "body": [raw_frame(3, 0, b"01")],
        "no kind of frame": [raw_frame(kind, 0, b"01") for kind in (0, 4, 7, 8, 9, 255)],
        "channel 1": [octets_of(Channel.Open.index, 1)],
        "any other method": [
            octets_of(index, 0) for index, method in METHODS.items() if method.name not in ON_CONNECTIONS
        ],
    }
    return kinds.get(what) or [octets_of(index, 0) for index, method in METHODS.items() if method.name == what]


@pytest.mark.parametrize("what", ON_CONNECTIONS)
def test_on_channel_0_the_contract_is_what_happens(what: str) -> None:
    for before, after in zip(("starting", "tuning", "opening", "running", "closing"), ON_CONNECTIONS[what].split(),
                             strict=True):  # fmt: skip
        for octets in octets_on_channel_0(what):
            client = connection_in(CONNECTION_STATES[before])
            client.connection.receive(octets)
            now, told = client.connection.state, codes(client)
            if after == "cut":
                assert (now, told, client.connection.should_close) == (connection_state.CLOSED, [], True), before
            elif after.isdecimal():
                assert (now, told) == (connection_state.CLOSING, [int(after)]), before
            else:
                assert (now, told) == (CONNECTION_STATES[after], []), before


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_on_a_channel_the_contract_is_what_happens(method: type[Frame]) -> None:
    what = method.name
    if what not in ON_OPEN_CONNECTIONS:
        is_servers = what.endswith("Ok") or what in OF_SERVERS
        what = "any of a server" if is_servers else "any of a client"
        what = "any of channel 0" if method.name.startswith("Connection.") else what
    for before, after in zip(CHANNEL_STATES, ON_OPEN_CONNECTIONS[what].split(), strict=True):
        client = channel_in(CHANNEL_STATES[before])
        client.connection.receive(octets_of(method.index, 1))
        if after.isdecimal():
            assert codes(client) == [int(after)], before
        else:
            assert (state_of_channel(client), codes(client)) == (CHANNEL_STATES[after], []), before
