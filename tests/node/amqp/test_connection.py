"""The handshake, closing, limits and what is sent; texts and orders as RabbitMQ 3.10.8 answers (wire.*)."""

from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Connection
from pamqp.header import ContentHeader

from mayfly.node.amqp import connection_state as states
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.events import (
    AuthenticationRequested,
    ChannelOpened,
    ConnectionClosed,
    OpenRequested,
    PublishesReceived,
    SecretUpdated,
)
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from mayfly.node.amqp.settings import ConnectionSettings
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header
from tests.node.amqp.scripted_client import ScriptedClient, message, raw_frame, running_client, values

TUNE_OK = frame.marshal(Connection.TuneOk(2047, 131_072, 0), 0)
OPEN = frame.marshal(Connection.Open(), 0)
CLOSE = frame.marshal(Connection.Close(200, "bye", 0, 0), 0)
CLOSE_OK = frame.marshal(Connection.CloseOk(), 0)


def content(body: bytes, **properties: Any) -> Content:
    header = build_header(Basic.Properties(**properties), len(body))
    return Content(make_exchange_and_key("amq.topic", "a.b"), header, body)


def test_server_properties_and_tune() -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    ((channel_id, start),) = client.output()
    assert channel_id == 0
    assert (start.version_major, start.version_minor, start.locales) == (0, 9, "en_US")
    assert sorted(start.mechanisms.split()) == ["AMQPLAIN", "PLAIN"]
    properties = start.server_properties
    assert properties.pop("capabilities") == dict.fromkeys(
        (
            "authentication_failure_close",
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "consumer_priorities",
            "direct_reply_to",
            "exchange_exchange_bindings",
            "per_consumer_qos",
            "publisher_confirms",
        ),
        True,
    )
    assert sorted(properties) == [
        "cluster_name",
        "copyright",
        "information",
        "platform",
        "product",
        "version",
    ]
    assert (properties["product"], properties["version"]) == ("MayflyMQ", "0.1.0")
    client.feed(client.start_ok())
    ((_, tune),) = client.output()
    assert values(tune) == {"channel_max": 2047, "frame_max": 131_072, "heartbeat": 60}


@pytest.mark.parametrize(
    "octets, accepted",
    [
        (b"AMQP\x00\x00\x09\x01", True),
        (b"AMQP\x01\x01\x00\x09", True),
        (b"AMQP\x01\x01\x08\x00", True),
        (b"AMQP\x01\x01\x00\x0a", False),
        (b"AMQP\x00\x00\x09\x02", False),
        (b"AMQP\x00\x01\x00\x00", False),
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", False),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_protocol_headers(octets: bytes, accepted: bool, one_by_one: bool) -> None:
    client = ScriptedClient()
    for piece in [bytes([octet]) for octet in octets] if one_by_one else [octets]:
        client.feed(piece)
    output = b"".join(client.connection.take_output())
    if accepted:
        assert output[:1] == b"\x01"
    else:
        assert output == PROTOCOL_HEADER
    assert client.connection.should_close is not accepted


def test_the_handshake_in_one_piece() -> None:
    """A client may send everything without waiting; the broker's answers come in between."""
    client = ScriptedClient()
    connection = client.connection
    octets = PROTOCOL_HEADER + client.start_ok() + TUNE_OK + OPEN + frame.marshal(commands.Channel.Open(), 1)
    assert connection.receive(octets + message(1)) == [AuthenticationRequested("PLAIN", "guest", "guest")]
    assert connection.receive(message(1)) == []
    connection.authenticated()
    assert connection.receive(b"") == [OpenRequested("/")]
    connection.opened()
    opened, published = connection.receive(message(1))
    assert opened == ChannelOpened(1)
    assert isinstance(published, PublishesReceived)
    assert len(published.contents) == 3
    assert client.names() == [
        (0, "Connection.Start"),
        (0, "Connection.Tune"),
        (0, "Connection.OpenOk"),
        (1, "Channel.OpenOk"),
    ]
    assert connection.client_properties["product"] == "test"
    assert "basic.nack" in connection.client_capabilities


def test_what_waits_for_an_answer_is_bounded() -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    client.connection.receive(client.start_ok())
    client.connection.receive(b"x" * 1_000)
    assert client.connection.wants_input
    # Of a stranger that is much.
    client.connection.receive(b"x" * 20_000)
    assert not client.connection.wants_input
    events = client.connection.receive(b"x" * 5_000_000)
    assert [type(event) for event in events] == [ConnectionClosed]
    assert client.connection.should_close


def test_who_has_logged_in_may_have_more_waiting() -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    client.connection.receive(client.start_ok())
    client.connection.authenticated()
    client.connection.receive(TUNE_OK + OPEN)
    client.connection.receive(b"x" * 20_000)
    assert client.connection.wants_input
    client.connection.receive(b"x" * 300_000)
    assert not client.connection.wants_input


@pytest.mark.parametrize(
    "mechanism, response, expected",
    [
        ("PLAIN", "\0user\0secret", ("user", "secret")),
        ("PLAIN", "\0us\u00e9r\0", ("us\u00e9r", "")),
        ("PLAIN", "\0\0", ("", "")),
        ("PLAIN", "", None),
        ("PLAIN", "user\0secret", None),
        ("PLAIN", "id\0user\0secret", None),
        ("PLAIN", "\0user\0secret\0", None),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x04user\x08PASSWORDS\0\0\0\x06secret", ("user", "secret")),
        ("AMQPLAIN", "\x08PASSWORDS\0\0\0\x06secret\x05LOGINS\0\0\0\x04user", ("user", "secret")),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x04user", None),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x04user\x08PASSWORDt\x01", None),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x99user", None),
        ("AMQPLAIN", "", None),
        ("EXTERNAL", "", None),
        ("plain", "\0user\0secret", None),
    ],
)
def test_mechanisms(mechanism: str, response: str, expected: tuple[str, str] | None) -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    events = client.connection.receive(client.start_ok(mechanism=mechanism, response=response))
    if expected is None:
        (asked,) = events
        assert isinstance(asked, AuthenticationRequested)
        assert (asked.username, asked.password, bool(asked.fault)) == ("", "", True)
        client.connection.authentication_failed(asked.fault)
        assert [type(event) for event in client.connection.receive(b"")] == [ConnectionClosed]
        assert client.connection.should_close
        assert client.names() == [(0, "Connection.Start")]
    else:
        assert events == [AuthenticationRequested(mechanism, *expected)]


def test_credentials_that_are_not_utf_8() -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    octets = client.start_ok(response="\0user\0s#cret").replace(b"s#cret", b"s\xffcret")
    (event,) = client.connection.receive(octets)
    assert isinstance(event, AuthenticationRequested)
    assert event.password.encode("utf-8", "surrogateescape") == b"s\xffcret"


@pytest.mark.parametrize(
    "capabilities, told",
    [
        ({"authentication_failure_close": True}, True),
        ({"authentication_failure_close": False}, False),
        ({}, False),
        (None, False),
        ("odd", False),
    ],
)
def test_authentication_failure(capabilities: object, told: bool) -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER)
    client.output()
    properties = {"product": "x"} if capabilities is None else {"capabilities": capabilities}
    client.connection.receive(client.start_ok(client_properties=properties))
    client.connection.authentication_failed("user 'x' is unknown")
    client.connection.authenticated()
    if told:
        text = (
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
            " For details see the broker logfile."
        )
        assert client.closing() == (0, 403, text, 0, 0)
        client.connection.tick(0)
        client.connection.tick(4_000)
    else:
        assert client.output() == []
    assert client.connection.should_close
    events = client.connection.connection_lost()
    assert events == ([] if told else [ConnectionClosed("PLAIN login refused: user 'x' is unknown")])


@pytest.mark.parametrize(
    "channel_max, frame_max, text",
    [
        (0, 131_072, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (2048, 131_072, "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (2047, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (2047, 131_073, "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (2047, 4_095, "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
    ],
)
def test_limits_that_are_not_ours(channel_max: int, frame_max: int, text: str) -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER + client.start_ok())
    client.output()
    client.send((0, Connection.TuneOk(channel_max, frame_max, 0)))
    assert client.closing() == (0, 530, f"NOT_ALLOWED - {text}", 10, 30)


def test_lower_limits_are_kept() -> None:
    client = running_client(channel_max=7, frame_max=4_096, heartbeat=9)
    connection = client.connection
    agreed = (connection.channel_max, connection.output.frame_max_bytes, connection.heartbeat_seconds)
    assert agreed == (7, 4_096, 9)


def test_unknown_vhost() -> None:
    client = ScriptedClient()
    client.feed(PROTOCOL_HEADER + client.start_ok() + TUNE_OK)
    client.output()
    assert client.connection.receive(OPEN) == [OpenRequested("/")]
    client.connection.refuse_open(530, "vhost g.nowhere not found")
    client.connection.opened()
    assert client.closing() == (0, 530, "NOT_ALLOWED - vhost g.nowhere not found", 10, 40)
    assert client.feed(b"") == [ConnectionClosed("NOT_ALLOWED - vhost g.nowhere not found")]


def test_methods_in_the_wrong_state() -> None:
    """Before the client is known it gets no explanation; after connection.tune-ok it does."""
    for octets in (OPEN, TUNE_OK, CLOSE, frame.marshal(commands.Channel.Open(), 1), raw_frame(9, 0, b"x")):
        client = ScriptedClient()
        client.feed(PROTOCOL_HEADER)
        client.output()
        assert [type(event) for event in client.feed(octets)] == [ConnectionClosed]
        assert client.output() == []
        assert client.connection.should_close
    for octets, code, text in (
        (TUNE_OK, 504, "CHANNEL_ERROR - unexpected method in connection state opening"),
        (CLOSE, 504, "CHANNEL_ERROR - unexpected method in connection state opening"),
        (
            frame.marshal(commands.Channel.Open(), 1),
            505,
            "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,1,48>>",
        ),
    ):
        client = ScriptedClient()
        client.feed(PROTOCOL_HEADER + client.start_ok() + TUNE_OK)
        client.output()
        client.feed(octets)
        assert client.closing()[1:3] == (code, text)


@pytest.mark.parametrize(
    "octets, expected",
    [
        (OPEN, (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 40)),
        (CLOSE_OK, (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 51)),
        (
            frame.marshal(Basic.Qos(), 0),
            (504, "CHANNEL_ERROR - unexpected method in connection state running", 60, 10),
        ),
        (message(0), (504, "CHANNEL_ERROR - unexpected method in connection state running", 60, 40)),
        (
            frame.marshal(ContentBody(b"ab"), 0),
            (505, 'UNEXPECTED_FRAME - type 3, all octets = <<"ab">>', 0, 0),
        ),
        (raw_frame(8, 0, b"ab"), (501, 'FRAME_ERROR - type 8, all octets = <<"ab">>: unknown_frame', 0, 0)),
        (raw_frame(7, 0, b""), (501, "FRAME_ERROR - type 7, all octets = <<>>: unknown_frame", 0, 0)),
        (raw_frame(1, 0, b""), (501, "FRAME_ERROR - type 1, all octets = <<>>: unknown_frame", 0, 0)),
    ],
)
def test_frames_of_the_connection_that_may_not_come(octets: bytes, expected: tuple[Any, ...]) -> None:
    client = running_client()
    client.feed(octets)
    assert client.closing() == (0, *expected)


def test_the_client_closes() -> None:
    client = running_client()
    octets = frame.marshal(Connection.Close(200, "bye", 0, 0), 0)
    assert client.feed(octets + message(1)) == [ConnectionClosed("the client closed the connection: 200 bye")]
    assert client.names() == [(0, "Connection.CloseOk")]
    assert client.connection.should_close
    assert client.connection.state == states.CLOSED
    assert client.feed(message(1)) == []
    assert client.connection.connection_lost() == []
    client.connection.close(541, "too late")
    client.connection.send_unblocked()
    assert client.output() == []


def test_the_broker_closes() -> None:
    client = running_client()
    client.connection.close(320, "CLOSED via management plugin")
    assert client.closing() == (0, 320, "CONNECTION_FORCED - CLOSED via management plugin", 0, 0)
    client.connection.close(541, "again")
    client.connection.output.send_confirms(1, [(1, False)])
    assert client.output() == []
    assert client.feed(message(1) + raw_frame(9, 9, b"?")) == [
        ConnectionClosed("CONNECTION_FORCED - CLOSED via management plugin")
    ]
    assert not client.connection.should_close
    client.send((0, Connection.Close(200, "", 0, 0)))
    assert client.names() == [(0, "Connection.CloseOk")]
    assert not client.connection.should_close
    assert client.feed(CLOSE_OK) == []
    assert client.connection.should_close


def test_a_client_that_does_not_answer_the_close() -> None:
    client = running_client()
    client.connection.tick(1_000)
    client.connection.close(320, "shutdown")
    client.connection.tick(20_000)
    assert not client.connection.should_close
    client.connection.tick(40_000)
    assert client.connection.should_close


def test_the_client_goes_without_a_word() -> None:
    client = running_client()
    assert client.connection.connection_lost() == [ConnectionClosed("the client closed the TCP connection")]
    assert client.connection.state == states.CLOSED


def test_update_secret() -> None:
    client = running_client()
    octets = raw_frame(1, 0, b"\x00\x0a\x00\x46\x00\x00\x00\x03new\x03why")
    (event,) = client.feed(octets)
    assert isinstance(event, SecretUpdated)
    assert (event.secret, "new" in repr(event)) == ("new", False)
    assert client.connection.take_output() == []
    client.connection.secret_updated()
    assert b"".join(client.connection.take_output())[7:11].hex() == "000a0047"


def test_blocked_and_unblocked() -> None:
    client = running_client()
    client.connection.send_blocked("low on disk")
    client.connection.send_unblocked()
    (_, blocked), (_, unblocked) = client.output()
    assert (blocked.name, blocked.reason, unblocked.name) == (
        "Connection.Blocked",
        "low on disk",
        "Connection.Unblocked",
    )
    other = ScriptedClient()
    other.feed(PROTOCOL_HEADER + other.start_ok(client_properties={}) + TUNE_OK + OPEN)
    other.output()
    other.connection.send_blocked("low on disk")
    other.connection.send_unblocked()
    assert other.output() == []


def received_content(items: list[tuple[int, Any]]) -> tuple[ContentHeader, bytes]:
    header = items[0][1]
    assert isinstance(header, ContentHeader)
    return header, b"".join(item[1].value for item in items[1:])


@pytest.mark.parametrize("size", [0, 1, 4_087, 4_088, 4_089, 8_176, 8_177, 100_000])
def test_deliveries_as_pamqp_reads_them(size: int) -> None:
    """amqp.big_and_empty_bodies: frames stay within frame_max, and an empty body has none."""
    client = running_client(frame_max=4_096)
    body = bytes(range(256)) * (size // 256 + 1)
    message_to_send = content(body[:size], expiration="7", headers={"k": "v"})
    client.connection.output.send_deliveries(
        1, b"tag", [(2**33, True, message_to_send), (5, False, content(b"next"))]
    )
    size_told = client.connection.output.size_bytes
    octets = b"".join(client.connection.take_output())
    assert (len(octets), client.connection.output.size_bytes) == (size_told, 0)
    client.connection.output._pieces = [octets]
    items = client.output()
    frames = -(-size // 4_088)
    assert [channel_id for channel_id, _ in items] == [1] * (frames + 5)
    assert values(items[0][1]) == {
        "consumer_tag": "tag",
        "delivery_tag": 2**33,
        "redelivered": True,
        "exchange": "amq.topic",
        "routing_key": "a.b",
    }
    header, received = received_content(items[1 : 2 + frames])
    assert header.properties == Basic.Properties(expiration="7", headers={"k": "v"})
    assert (header.body_size, received) == (size, body[:size])
    assert all(len(item[1].value) <= 4_088 for item in items[2 : 2 + frames])
    assert items[2 + frames][1].delivery_tag == 5
    assert received_content(items[3 + frames :])[1] == b"next"


def test_get_ok_and_return_as_pamqp_reads_them() -> None:
    client = running_client()
    client.connection.output.send_get_ok(1, 4, True, content(b"abc"), 2**31)
    client.connection.output.send_return(1, 312, "NO_ROUTE", content(b""))
    told = client.connection.output.size_bytes
    items = client.output()
    assert told == len(frame.marshal(items[0][1], 1)) + 22 + 11 + len(frame.marshal(items[3][1], 1)) + 22
    assert values(items[0][1]) == {
        "delivery_tag": 4,
        "redelivered": True,
        "exchange": "amq.topic",
        "routing_key": "a.b",
        "message_count": 2**31,
    }
    assert received_content(items[1:3])[1] == b"abc"
    assert values(items[3][1]) == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "amq.topic",
        "routing_key": "a.b",
    }
    assert len(items) == 5


def test_confirms_as_pamqp_reads_them() -> None:
    client = running_client()
    client.connection.output.send_confirms(1, [(1, False), (2**40, True)])
    client.connection.output.send_confirms(1, [(3, True)], nack=True)
    client.connection.output.send_confirms(1, [])
    client.connection.output.send_confirms(9, [(1, False)])
    assert client.connection.output.size_bytes == 3 * 21
    assert [(type(what), what.delivery_tag, what.multiple) for _, what in client.output()] == [
        (Basic.Ack, 1, False),
        (Basic.Ack, 2**40, True),
        (Basic.Nack, 3, True),
    ]


def test_reply_texts_fit_a_short_string() -> None:
    client = running_client()
    client.connection.close_channel(1, 404, "\u00e9" * 200)
    text = client.closing()[2]
    assert text.startswith("NOT_FOUND - \u00e9")
    assert text.endswith("\u00e9...")
    assert 253 <= len(text.encode()) <= 255


def test_every_state_is_left_by_dropping_the_client() -> None:
    assert set(states.TRANSITIONS[states.DROP]) == {states.CLOSED}


def test_settings_that_cannot_work() -> None:
    for changes in ({"frame_max_bytes": 4_095}, {"channel_max": 0}):
        with pytest.raises(ValueError):
            ConnectionSettings("0", **changes)  # type: ignore[arg-type]


def test_events_with_secrets_do_not_show_them() -> None:
    assert "hush-hush" not in repr(AuthenticationRequested("PLAIN", "u", "hush-hush"))
