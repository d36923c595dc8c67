"""basic.publish: routes, returns, confirms, checks; and what is stored of it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import DeclareQueue
from mayfly.node.limits import COPIES_CHARACTERS
from mayfly.node.shard.commands import encode_create_queue
from mayfly.node.shard.settings import ShardQueueSettings


@pytest.fixture
def confirming(world: Any) -> Any:
    client = world.client(channel=False)
    client.open_channel(1, confirms=True)
    return client


def test_one_event_one_confirm(world: Any, confirming: Any) -> None:
    confirming.declare("q")
    confirming.take(1)
    confirming.send_bytes(b"".join(confirming.publish_bytes(1, "q", b"%d" % i) for i in range(50)))
    assert confirming.acks() == [(50, True, False)]
    assert confirming.count("q") == 50


def test_one_event_to_many_shards_is_settled_when_all_have_it(world: Any, confirming: Any) -> None:
    for name in "abcdef":
        confirming.declare(name)
    assert len({world.cluster.catalog.queue("/", name).shard for name in "abcdef"}) > 1
    confirming.call(1, commands.Exchange.Declare(exchange="all", exchange_type="fanout"))
    for name in "abcdef":
        confirming.call(1, commands.Queue.Bind(queue=name, exchange="all"))
    confirming.take(1)
    parts = [confirming.publish_bytes(1, name) for name in "abcdef"]
    parts += [confirming.publish_bytes(1, "", exchange="all"), confirming.publish_bytes(1, "nowhere")]
    confirming.send_bytes(b"".join(parts))
    tags = set()
    for tag, multiple, refused in confirming.acks():
        assert not refused
        tags |= set(range(1, tag + 1)) if multiple else {tag}
    assert tags == set(range(1, 9))
    assert [confirming.count(name) for name in "abcdef"] == [2] * 6


def test_numbers_count_from_confirm_select(client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    client.call(1, commands.Confirm.Select())
    client.publish(1, "q")
    assert client.acks() == [(1, False, False)]


def test_mandatory_is_returned_before_its_ack(confirming: Any) -> None:
    """Golden amqp.returns."""
    confirming.publish(1, "absent", b"hi", mandatory=True, expiration="5000", headers={"h": 1})
    returned, ack = confirming.take(1)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.body, returned.properties.expiration, returned.properties.headers) == (
        b"hi",
        "5000",
        {"h": 1},
    )
    assert isinstance(ack, commands.Basic.Ack)


def test_immediate_is_refused(client: Any) -> None:
    data = client.publish_bytes(1, "x")
    # The bits of basic.publish are the last octet of its frame before the end mark.
    end = data.index(b"\xce")
    client.send_bytes(data[: end - 1] + b"\x02" + data[end:])
    (close,) = client.take(0)
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - immediate=true")
    assert (close.class_id, close.method_id) == (60, 40)


def test_missing_exchange_closes_the_channel_after_asking_the_catalog(world: Any, confirming: Any) -> None:
    barriers = world.cluster.barriers
    confirming.declare("q")
    confirming.send_bytes(
        confirming.publish_bytes(1, "q")
        + confirming.publish_bytes(1, "k", exchange="g.none")
        + confirming.publish_bytes(1, "q")
    )
    got = confirming.take(1)[-1]
    assert (got.reply_code, got.reply_text) == (404, "NOT_FOUND - no exchange 'g.none' in vhost '/'")
    assert (got.class_id, got.method_id) == (60, 40)
    assert world.cluster.barriers == barriers + 1
    confirming.send(1, commands.Channel.CloseOk())
    confirming.open_channel(1)
    assert confirming.count("q") == 1


def test_a_route_that_is_on_its_way_is_waited_for(world: Any, confirming: Any) -> None:
    """The local catalog replica is behind: a publish finds the queue after the barrier, in order."""
    confirming.declare("early")
    world.running = False

    def declared(answer: Any) -> None:
        create = encode_create_queue(answer.queue.id, ShardQueueSettings(name="late"))
        world.cluster.shard(answer.queue.shard).submit(create, None)

    world.cluster.submit_catalog(DeclareQueue("/", "late", durable=True), declared)
    confirming.send_bytes(
        confirming.publish_bytes(1, "early", b"1")
        + confirming.publish_bytes(1, "late", b"2", mandatory=True)
        + confirming.publish_bytes(1, "early", b"3")
    )
    world.running = True
    world.settle()
    got = confirming.take(1)
    assert all(isinstance(item, commands.Basic.Ack) for item in got), got
    assert confirming.get("early").body == b"1"
    assert confirming.get("early").body == b"3"


def test_routes_are_found_once_until_the_catalog_changes(world: Any, client: Any) -> None:
    client.declare("q")
    for _ in range(3):
        client.publish(1, "q")
    routes = client.connection.routes
    route = next(iter(routes.known.values()))
    client.publish(1, "q")
    assert next(iter(routes.known.values())) is route
    client.declare("other")
    client.publish(1, "other")
    assert next(iter(routes.known.values())) is not route
    client.call(1, commands.Queue.Delete(queue="q"))
    client.publish(1, "q")
    assert client.declare("q").message_count == 0


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("abc", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        (" 5", "no_integer"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_t2_bad_expiration_is_refused_and_stored_nowhere(confirming: Any, value: str, fault: str) -> None:
    """T2, golden args.expiration_property."""
    confirming.declare("q")
    confirming.publish(1, "q", expiration=value)
    got = confirming.take(1)[-1]
    text = f"PRECONDITION_FAILED - invalid expiration '{value}': {fault}"
    assert (got.reply_code, got.reply_text) == (406, text)
    confirming.send(1, commands.Channel.CloseOk())
    confirming.open_channel(1)
    assert confirming.count("q") == 0


def test_user_id_must_be_the_users(confirming: Any) -> None:
    confirming.declare("q")
    confirming.publish(1, "q", user_id="guest")
    assert confirming.acks() == [(1, False, False)]
    confirming.publish(1, "q", user_id="somebody")
    got = confirming.take(1)[-1]
    text = "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"
    assert (got.reply_code, got.reply_text) == (406, text)


def test_copies(client: Any) -> None:
    for name in "abc":
        client.declare(name)
    client.publish(1, "a", b"x", headers={"CC": ["b"], "BCC": ["c", "a"], "kept": "1"})
    got = [client.get(name) for name in "abc"]
    assert [each.body for each in got] == [b"x"] * 3
    assert all(set(each.properties.headers) == {"CC", "kept"} for each in got), "BCC is for nobody's eyes"


def test_copies_must_be_a_list(client: Any) -> None:
    client.declare("q")
    client.publish(1, "q", headers={"CC": "b"})
    got = client.take(1)[-1]
    assert got.reply_code == 406
    assert got.reply_text.endswith('{unacceptable_type_in_header,"CC",longstr}')


def test_copies_are_bounded(client: Any) -> None:
    """Each is routed, and a header may have a hundred thousand."""
    client.declare("q")
    half = [31 * "k"] * (COPIES_CHARACTERS // 64)
    client.publish(1, "q", b"taken", headers={"CC": half, "BCC": half})
    assert client.get("q").body == b"taken"
    client.publish(1, "q", headers={"CC": half, "BCC": [32 * "k"] * len(half)})
    got = client.take(1)[-1]
    assert got.reply_code == 406
    assert got.reply_text.endswith("CC and BCC have 8320 characters, with one more for each, at most 8192 are taken")


def test_headers_exchange(client: Any) -> None:
    client.declare("q")
    client.call(
        1,
        commands.Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "all", "colour": "red"}),
    )
    client.publish(1, "", b"no", exchange="amq.headers", headers={"colour": "blue"})
    client.publish(1, "", b"yes", exchange="amq.headers", headers={"colour": "red"})
    client.publish(1, "", b"none", exchange="amq.headers")
    assert client.get("q").body == b"yes"
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)


def test_internal_exchange_and_write_permission(world: Any, client: Any) -> None:
    client.call(1, commands.Exchange.Declare(exchange="in", exchange_type="fanout", internal=True))
    client.publish(1, "", exchange="in")
    got = client.take(1)[-1]
    assert (got.reply_code, got.reply_text) == (
        403,
        "ACCESS_REFUSED - cannot publish to internal exchange 'in' in vhost '/'",
    )
    world.add_user("reader", "pw", ".*", "^$", ".*")
    reader = world.client(user="reader", password="pw")
    reader.publish(1, "q")
    got = reader.take(1)[-1]
    text = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'reader'"
    assert (got.reply_code, got.reply_text) == (403, text)


def test_a_permission_taken_away_counts_at_once(world: Any, client: Any) -> None:
    world.add_user("writer", "pw", ".*", ".*", ".*")
    writer = world.client(user="writer", password="pw")
    writer.declare("q")
    writer.publish(1, "q")
    world.add_user("writer", "pw", ".*", "^$", ".*")
    writer.publish(1, "q")
    assert writer.take(1)[-1].reply_code == 403


def test_properties_and_body_come_back_whole(client: Any) -> None:
    """T11: the expiration property is delivered unchanged."""
    client.declare("q", arguments={"x-message-ttl": 30000})
    client.publish(1, "q", b"\0\xff" * 40000, expiration="20000", content_type="text/plain", delivery_mode=2)
    got = client.get("q")
    assert got.body == b"\0\xff" * 40000
    assert (got.properties.expiration, got.properties.content_type) == ("20000", "text/plain")
    assert got.properties.headers in (None, {})


def test_an_alarm_blocks_connections_that_publish(world: Any, confirming: Any) -> None:
    """Told once, in RabbitMQ's words; what was read already counts, and then nothing is read."""
    confirming.declare("q")
    confirming.publish(1, "q")
    confirming.take()
    consumer = world.client()
    consumer.send(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    consumer.take(1)
    world.alarm("low on memory")
    (blocked,) = confirming.take(0)
    assert isinstance(blocked, commands.Connection.Blocked)
    assert blocked.reason == "low on memory"
    assert not confirming.connection.pressure.wants_reading and consumer.connection.pressure.wants_reading
    world.alarm("low on disk & memory")
    assert not confirming.take(0)
    confirming.publish(1, "q")
    assert confirming.acks() == [(2, False, False)]
    # One that has not published yet is told when it does.
    late = world.client()
    assert late.connection.pressure.wants_reading
    late.publish(1, "q")
    assert isinstance(late.take(0)[0], commands.Connection.Blocked)
    assert not late.connection.pressure.wants_reading
    # Consumers go on, as do their acknowledgements.
    (second,) = consumer.take(1)
    consumer.send(1, commands.Basic.Ack(second.tag, multiple=True))
    assert not consumer.take(1)
    world.alarm(None)
    # What the late one sent waited with it.
    assert len(consumer.take(1)) == 1
    assert isinstance(confirming.take(0)[0], commands.Connection.Unblocked)
    assert confirming.connection.pressure.wants_reading and late.connection.pressure.wants_reading


def test_a_blocked_connection_that_is_closed_by_the_broker_is_read_again(world: Any, confirming: Any) -> None:
    """For its close-ok."""
    confirming.publish(1, "q")
    world.alarm("low on disk")
    assert not confirming.connection.pressure.wants_reading
    world.broker.close_all("the node is shutting down")
    assert confirming.connection.pressure.wants_reading


def test_overload_stops_reading_from_publishers_only(world: Any, client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    consumer = world.client()
    world.cluster.overloaded = True
    world.broker.pressure_changed(True)
    assert not client.connection.pressure.wants_reading
    assert consumer.connection.pressure.wants_reading
    world.cluster.overloaded = False
    world.broker.pressure_changed(False)
    assert client.connection.pressure.wants_reading


def test_a_lost_session_refuses_what_it_may_have_lost(world: Any, confirming: Any) -> None:
    confirming.declare("q")
    world.running = False
    confirming.send_bytes(confirming.publish_bytes(1, "q") * 3)
    world.cluster.lose_session(world.cluster.catalog.queue("/", "q").shard)
    world.running = True
    world.settle()
    assert confirming.acks() == [(3, True, True)]
