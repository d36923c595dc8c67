"""Messages of streams with times to live, as a client sees them, with fake time: each sentence of NATS ADR-43 on TTLs
of messages by its meaning (RULES J2, J3, J5)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

STREAM: dict[str, Any] = {"x-queue-type": "stream"}
ALLOWS: dict[str, Any] = {**STREAM, "x-allow-msg-ttl": True}


def publish(client: Any, body: str, ttl: Any = None, key: str = "s", name: str = "Nats-TTL", **properties: Any) -> None:
    headers = {} if ttl is None else {name: ttl}
    client.publish(1, key, body.encode(), headers=headers, **properties)


def read(client: Any, queue: str = "s", channel: int = 7, **arguments: Any) -> list[Any]:
    """What is there, from the first on."""
    client.open_channel(channel)
    client.call(channel, commands.Basic.Qos(prefetch_count=1000))
    consume = commands.Basic.Consume(
        queue=queue, consumer_tag="r", arguments={"x-stream-offset": "first", **arguments}
    )
    client.send(channel, consume)
    found = [each for each in client.take() if hasattr(each, "body")]
    client.send(channel, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    client.take()
    return found


def bodies(client: Any, **arguments: Any) -> list[str]:
    return [each.body.decode() for each in read(client, **arguments)]


@pytest.fixture
def stream(client: Any) -> Any:
    """A client of a stream `s` that takes TTLs."""
    client.declare("s", arguments=ALLOWS)
    return client


@pytest.mark.parametrize("name", ["Nats-TTL", "x-ttl"])
@pytest.mark.parametrize("ttl", ["5", 5, "5s", "5000ms", "0m5s"])
def test_j2_seconds_or_a_duration(world: Any, stream: Any, name: str, ttl: Any) -> None:
    """ADR-43: a header with seconds, or with a duration as Go writes it."""
    publish(stream, "goes", ttl, name=name)
    publish(stream, "stays")
    world.advance(4700)
    assert bodies(stream) == ["goes", "stays"]
    world.advance(600)
    assert bodies(stream) == ["stays"]


def test_j2_the_deadline_counts_from_when_the_stream_took_it(world: Any, stream: Any) -> None:
    """ADR-43: by the stream's own time of the message, and what was asked for. Each leaves from where it stands."""
    for ttl in (9, 3, 6):
        publish(stream, str(ttl), ttl)
        world.advance(1000)
    for seconds, there in ((0, ["9", "3", "6"]), (2, ["9", "6"]), (3, ["9"]), (2, [])):
        world.advance(1000 * seconds)
        assert bodies(stream) == there


def test_j2_never_is_exempt_from_the_age_of_the_stream(world: Any, client: Any) -> None:
    """ADR-43: neither its own time nor the stream's age removes it; others leave by whichever is sooner."""
    client.declare("s", arguments={**ALLOWS, "x-max-age": "10s"})
    publish(client, "never", "never")
    publish(client, "plain")
    publish(client, "longer", "1h")
    publish(client, "shorter", "5s")
    world.advance(5300)
    assert bodies(client) == ["never", "plain", "longer"]
    world.advance(5000)
    assert bodies(client) == ["never"]
    world.advance(100_000)
    assert bodies(client) == ["never"]


def test_j2_without_the_header_no_ttl_applies(world: Any, stream: Any) -> None:
    """ADR-43; and `expiration` is no TTL in a stream."""
    publish(stream, "a")
    publish(stream, "b", expiration="1000")
    world.advance(10_000_000)
    assert bodies(stream) == ["a", "b"]


@pytest.mark.parametrize("ttl", [0, "0", "0s", "0h0m0.0s"])
def test_j2_nothing_is_ignored(world: Any, stream: Any, ttl: Any) -> None:
    """RULES J2, other than ADR-43 by now: 0 says nothing."""
    publish(stream, "a", ttl)
    world.advance(10_000_000)
    assert bodies(stream) == ["a"]


BAD = ["soon", "", "-5", -5, "1.5", 0.5, "999ms", "0.9s", "1ns", "5 s", "5x", "1h-5m", True, None, "h", "315360001", {}]


@pytest.mark.parametrize("ttl", BAD)
def test_j2_what_is_no_ttl_is_refused_and_stored_nowhere(client: Any, ttl: Any) -> None:
    """ADR-43: unparsable, or below a second: an error, and the message is discarded; here in every queue."""
    client.declare("s", arguments=ALLOWS)
    client.declare("q")
    client.call(1, commands.Exchange.Declare(exchange="both", exchange_type="fanout"))
    for queue in ("s", "q"):
        client.call(1, commands.Queue.Bind(queue=queue, exchange="both", routing_key=""))
    client.publish(1, "", b"x", exchange="both", headers={"x-ttl": ttl})
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith("PRECONDITION_FAILED - invalid message: x-ttl = ")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert (client.declare("s", arguments=ALLOWS).message_count, client.declare("q").message_count) == (0, 0)


def test_j2_a_publisher_with_confirms_gets_a_nack(stream: Any) -> None:
    """And the channel goes on: what is published beside it is confirmed."""
    stream.call(1, commands.Confirm.Select())
    publish(stream, "a")
    publish(stream, "b", "soon")
    publish(stream, "c", "1h")
    publish(stream, "d", "0.5s")
    told = stream.take()
    acked: set[int] = set()
    nacked: set[int] = set()
    for each in told:
        assert isinstance(each, (commands.Basic.Ack, commands.Basic.Nack))
        tags = nacked if isinstance(each, commands.Basic.Nack) else acked
        low = max([0, *acked, *nacked]) + 1 if each.multiple else each.delivery_tag
        tags.update(range(min(low, each.delivery_tag), each.delivery_tag + 1))
    assert (acked - nacked, nacked) == ({1, 3}, {2, 4})
    assert bodies(stream) == ["a", "c"]


def test_j2_in_a_transaction(world: Any, stream: Any) -> None:
    stream.call(1, commands.Tx.Select())
    publish(stream, "a", 5)
    stream.call(1, commands.Tx.Commit())
    assert bodies(stream) == ["a"]
    world.advance(5300)
    assert bodies(stream) == []
    publish(stream, "b", "soon")
    (closed,) = stream.take()
    assert closed.reply_code == 406


def test_j2_without_the_opt_in_a_ttl_is_refused(client: Any) -> None:
    """ADR-43: published to a stream with the feature off, it is rejected with an error."""
    client.declare("s", arguments=STREAM)
    publish(client, "a", 5)
    (closed,) = client.take()
    assert closed.reply_text.endswith("Nats-TTL is there, and the stream was not declared with x-allow-msg-ttl = true")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.declare("s", arguments=STREAM).message_count == 0


def test_j2_in_queues_the_headers_mean_nothing(client: Any) -> None:
    """As in RabbitMQ."""
    client.declare("q")
    for ttl in ("soon", 1):
        client.publish(1, "q", b"m", headers={"Nats-TTL": ttl, "x-ttl": ttl})
    assert client.declare("q").message_count == 2


def test_j2_the_opt_in_is_switched_on_by_a_redeclare_and_never_off(world: Any, client: Any) -> None:
    """ADR-43: it can be enabled on a stream that is there, and not disabled."""
    client.declare("s", arguments=STREAM)
    publish(client, "before")
    client.declare("s", arguments=ALLOWS)
    publish(client, "goes", 5)
    assert bodies(client) == ["before", "goes"]
    world.advance(5300)
    assert bodies(client) == ["before"]
    for arguments in (STREAM, {**STREAM, "x-allow-msg-ttl": False}):
        client.send(1, commands.Queue.Declare(queue="s", durable=True, arguments=arguments))
        (closed,) = client.take()
        assert closed.reply_code == 406
        assert "inequivalent arg 'x-allow-msg-ttl'" in closed.reply_text
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    client.declare("s", arguments=ALLOWS)
    client.send(1, commands.Queue.Declare(queue="s", durable=True, arguments={**ALLOWS, "x-max-age": "1h"}))
    (closed,) = client.take()
    assert "inequivalent arg 'x-max-age'" in closed.reply_text


@pytest.mark.parametrize(
    ("argument", "value"),
    [("x-allow-msg-ttl", "yes"), ("x-delete-marker-ttl", "999ms"), ("x-delete-marker-ttl", 0),
     ("x-delete-marker-ttl", "never"), ("x-delete-marker-ttl", True), ("x-stream-key-index", 1)],
)  # fmt: skip
def test_j3_bad_arguments_are_refused(client: Any, argument: str, value: Any) -> None:
    """ADR-43: markers live a second at least."""
    client.send(1, commands.Queue.Declare(queue="s", durable=True, arguments={**STREAM, argument: value}))
    (closed,) = client.take()
    assert (closed.reply_code, f"invalid arg '{argument}'" in closed.reply_text) == (406, True)


@pytest.mark.parametrize("argument", ["x-allow-msg-ttl", "x-stream-key-index"])
def test_j2_the_arguments_are_of_streams_alone(client: Any, argument: str) -> None:
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={argument: True}))
    (closed,) = client.take()
    assert closed.reply_code == 406


@pytest.mark.parametrize(("ttl", "written"), [(60, "1m0s"), ("1h30m", "1h30m0s"), ("90.5s", "1m30.5s"), ("1s", "1s")])
def test_j3_a_marker_says_why_it_is_there_and_how_long(world: Any, client: Any, ttl: Any, written: str) -> None:
    """ADR-43: where age removes the last value of a key its reason is MaxAge, its TTL is written as Go writes it."""
    client.declare("s", arguments={**ALLOWS, "x-delete-marker-ttl": ttl})
    client.call(1, commands.Queue.Bind(queue="s", exchange="amq.topic", routing_key="#"))
    client.publish(1, "a.b", b"body", exchange="amq.topic", headers={"Nats-TTL": "2h"})
    assert len(read(client)) == 1
    world.advance(2 * 3_600_000 + 300)
    (marker,) = read(client)
    assert (marker.body, marker.method.exchange, marker.method.routing_key) == (b"", "amq.topic", "a.b")
    assert marker.properties.headers == {
        "Nats-Marker-Reason": "MaxAge", "x-marker-reason": "MaxAge", "Nats-TTL": written, "x-ttl": written,
        "x-stream-offset": 1,
    }


def test_j3_age_and_ttl_leave_the_same_marker_and_only_for_the_last_value(world: Any, client: Any) -> None:
    """ADR-43: the reason is the same whichever timer it was; and a marker leaves none."""
    client.declare("s", arguments={**ALLOWS, "x-max-age": "60s", "x-delete-marker-ttl": "5s"})
    client.call(1, commands.Queue.Bind(queue="s", exchange="amq.topic", routing_key="#"))
    for key, ttl in (("aged", None), ("timed", "10s"), ("timed", "30s")):
        headers = {} if ttl is None else {"x-ttl": ttl}
        client.publish(1, key, b"x", exchange="amq.topic", headers=headers)
    world.advance(10_300)
    assert [each.body for each in read(client)] == [b"x", b"x"]
    world.advance(20_000)
    assert [(each.method.routing_key, each.body) for each in read(client)] == [("aged", b"x"), ("timed", b"")]
    world.advance(30_000)
    (marker,) = read(client)
    assert (marker.method.routing_key, marker.properties.headers["x-marker-reason"]) == ("aged", "MaxAge")
    world.advance(5300)
    assert read(client) == []


def test_j3_without_the_argument_there_are_no_markers(world: Any, stream: Any) -> None:
    """ADR-43: off unless it is asked for."""
    publish(stream, "a", 5)
    world.advance(5300)
    assert read(stream) == []


def test_j2_j3_a_ttl_of_markers_brings_no_opt_in(world: Any, client: Any) -> None:
    """As nats-server does: here TTLs are refused all the same, and markers come of the age alone."""
    client.declare("s", arguments={**STREAM, "x-max-age": "20s", "x-delete-marker-ttl": "5s"})
    client.call(1, commands.Confirm.Select())
    publish(client, "old")
    publish(client, "refused", "5")
    assert any(isinstance(each, commands.Basic.Nack) for each in client.take())
    assert bodies(client) == ["old"]
    world.advance(20_300)
    (marker,) = read(client)
    assert marker.properties.headers["x-marker-reason"] == "MaxAge"


def test_j2_below_the_ttl_of_markers_a_ttl_is_raised_to_it(world: Any, client: Any) -> None:
    """ADR-43: not refused, and the message says in seconds how long it lives."""
    client.declare("s", arguments={**ALLOWS, "x-delete-marker-ttl": "1m"})
    publish(client, "a", "5s")
    publish(client, "b", "2m")
    publish(client, "c", "never")
    assert [each.properties.headers["Nats-TTL"] for each in read(client)] == ["60", "2m", "never"]
    world.advance(59_700)
    assert bodies(client) == ["a", "b", "c"]
    world.advance(600)
    assert bodies(client) == ["b", "c"]


def test_j5_a_consumer_of_one_routing_key(client: Any) -> None:
    client.declare("s", arguments={**STREAM, "x-stream-key-index": True})
    client.call(1, commands.Queue.Bind(queue="s", exchange="amq.topic", routing_key="#"))
    for number in range(9):
        client.publish(1, f"k{number % 3}", str(number).encode(), exchange="amq.topic")
    assert bodies(client, **{"x-stream-filter-key": "k1"}) == ["1", "4", "7"]
    assert bodies(client, **{"x-stream-filter-key": "nobody"}) == []


@pytest.mark.parametrize(
    ("declared", "key", "told"),
    [(STREAM, "k", "needs a stream that was declared with x-stream-key-index = true or x-delete-marker-ttl"),
     ({**STREAM, "x-stream-key-index": True}, 5, "invalid arg 'x-stream-filter-key'"),
     ({**STREAM, "x-stream-key-index": True}, "k" * 256, "at most 255 octets")],
)  # fmt: skip
def test_j5_refused(client: Any, declared: Any, key: Any, told: str) -> None:
    client.declare("s", arguments=declared)
    client.call(1, commands.Basic.Qos(prefetch_count=10))
    client.send(1, commands.Basic.Consume(queue="s", arguments={"x-stream-filter-key": key}))
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert told in closed.reply_text


def delayed_into_a_stream(client: Any, **arguments: Any) -> None:
    client.declare("s", arguments={**ALLOWS, **arguments})
    client.call(
        1,
        commands.Exchange.Declare(
            exchange="later", exchange_type="x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        ),
    )
    client.call(1, commands.Queue.Bind(queue="s", exchange="later", routing_key=""))


def test_j2_what_waits_for_a_delayed_exchange_has_its_ttl_from_when_it_is_due(world: Any, client: Any) -> None:
    """RULES J2, S3: as an `expiration` counts from then on."""
    delayed_into_a_stream(client)
    for body, headers in (("goes", {"Nats-TTL": 5}), ("stays", {"x-ttl": "never"}), ("plain", {})):
        client.publish(1, "k", body.encode(), exchange="later", headers={"x-delay": 10_000, **headers})
    world.advance(10_300)
    assert bodies(client) == ["goes", "stays", "plain"]
    world.advance(4_500)
    assert bodies(client) == ["goes", "stays", "plain"]
    world.advance(600)
    assert bodies(client) == ["stays", "plain"]


@pytest.mark.parametrize("said", ["soon", "0.5s", -1])
def test_j2_what_is_no_ttl_is_refused_before_it_waits(world: Any, client: Any, said: Any) -> None:
    """When it is due nobody is there to be told."""
    delayed_into_a_stream(client)
    client.call(1, commands.Confirm.Select())
    client.publish(1, "k", b"m", exchange="later", headers={"x-delay": 1000, "Nats-TTL": said})
    (nack,) = client.take()
    assert isinstance(nack, commands.Basic.Nack)
    world.advance(2000)
    assert bodies(client) == []


def test_j2_what_comes_when_nobody_can_be_told_is_stored(world: Any, client: Any) -> None:
    """Delayed exchange and dead letters: without the opt-in, or where it is no TTL, the header means nothing. Lost they
    would be without a word."""
    delayed_into_a_stream(client)
    client.declare("plain", arguments=STREAM)
    dead = {"x-dead-letter-exchange": "", "x-message-ttl": 1000}
    client.declare("q", arguments={**dead, "x-dead-letter-routing-key": "s"})
    client.declare("p", arguments={**dead, "x-dead-letter-routing-key": "plain"})
    for queue in ("q", "p"):
        for body, ttl in (("goes", "5s"), ("bad", "soon"), ("zero", 0)):
            client.publish(1, queue, body.encode(), headers={"Nats-TTL": ttl})
    world.advance(1500)
    assert bodies(client) == ["goes", "bad", "zero"]
    assert [each.body for each in read(client, "plain")] == [b"goes", b"bad", b"zero"]
    world.advance(5500)
    assert bodies(client) == ["bad", "zero"]
    assert [each.body for each in read(client, "plain")] == [b"goes", b"bad", b"zero"]


def test_j3_what_comes_so_lives_as_long_as_the_markers(world: Any, client: Any) -> None:
    delayed_into_a_stream(client, **{"x-delete-marker-ttl": "20s"})
    client.publish(1, "k", b"m", exchange="later", headers={"x-delay": 1000, "Nats-TTL": 5})
    world.advance(15_000)
    assert bodies(client) == ["m"]
    world.advance(7_000)
    assert [each.properties.headers["x-marker-reason"] for each in read(client)] == ["MaxAge"]
