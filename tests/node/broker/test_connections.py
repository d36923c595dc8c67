"""Login, open, and the end of connections (goldens wire.auth_failure, wire.unknown_vhost)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.node.broker.credentials import CredentialCache

REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile."
)


def test_login_failure_with_the_capability_is_told(world: Any) -> None:
    for user, password in (("guest", "wrong"), ("nobody", "x")):
        (close,) = world.login(user, password).take()
        assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (403, REFUSED, 0, 0)


def test_login_failure_without_it_is_silence_and_the_end(world: Any) -> None:
    client = world.login("guest", "wrong", capabilities={})
    assert client.take() == []
    assert client.closed


def test_guest_comes_from_this_machine_only(world: Any) -> None:
    (close,) = world.login("guest", "guest", loopback=False).take()
    assert (close.reply_code, close.reply_text) == (403, REFUSED)
    world.add_user("far", "pw", ".*", ".*", ".*")
    assert isinstance(world.login("far", "pw", loopback=False).take()[0], commands.Connection.Tune)


def test_a_verified_password_is_remembered_a_wrong_one_is_not(world: Any) -> None:
    for _ in range(3):
        world.client()
    assert world.verified == 1
    for _ in range(2):
        world.login("guest", "wrong")
    assert world.verified == 3
    world.add_user("guest", "other", ".*", ".*", ".*")
    (close,) = world.login("guest", "guest").take()
    assert close.reply_code == 403, "the remembered password is not the user's any more"


def test_the_cache_is_bounded_and_tells_triples_apart() -> None:
    cache = CredentialCache(b"k" * 32, capacity=2)
    cache.remember("ab", "c", b"d")
    assert cache.known("ab", "c", b"d")
    assert not cache.known("a", "bc", b"d")
    cache.remember("x", "h", b"1")
    cache.remember("y", "h", b"1")
    assert not cache.known("ab", "c", b"d")
    assert cache.known("y", "h", b"1")


def test_unknown_vhost_and_vhost_without_permissions(world: Any) -> None:
    client = world.login()
    client.take()
    client.send(0, commands.Connection.TuneOk(10, 131072, 0))
    client.send(0, commands.Connection.Open(virtual_host="g.nowhere"))
    (close,) = client.take()
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - vhost g.nowhere not found")
    assert (close.class_id, close.method_id) == (10, 40)
    world.add_user("stranger", "pw")
    client = world.login("stranger", "pw")
    client.take()
    client.send(0, commands.Connection.TuneOk(10, 131072, 0))
    client.send(0, commands.Connection.Open(virtual_host="/"))
    (close,) = client.take()
    assert close.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'stranger'"


def test_a_lost_connection_leaves_nothing_behind(world: Any) -> None:
    for _ in range(20):
        client = world.client()
        client.declare("", exclusive=True, durable=False)
        client.consume("")
        client.lose()
    assert world.broker.connections == {}
    assert not world.broker.consumers.by_id
    assert not list(world.cluster.catalog.queues("/"))
    transient = world.cluster.shards[0x10001]
    assert not list(transient.shard.queue_ids())
    assert not transient.shard.deleted
    assert transient.stored_bytes == 0


def test_a_connection_that_is_lost_before_it_is_open(world: Any) -> None:
    client = world.socket()
    client.lose()
    client = world.login()
    client.lose()
    assert world.broker.connections == {}


def test_a_password_check_that_ends_after_the_connection(world: Any) -> None:
    client = world.socket()
    client.send_bytes(b"AMQP\x00\x00\x09\x01")
    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    from pamqp import frame

    client.connection.receive(frame.marshal(start_ok, 0))
    client.connection.lost()
    world.settle()
    assert world.broker.connections == {}


def test_shutdown_tells_clients(world: Any, client: Any) -> None:
    world.broker.close_all("the node is shutting down")
    world.settle()
    (close,) = client.take(0)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - the node is shutting down")


def test_an_error_in_one_channel_leaves_the_others_alone(client: Any) -> None:
    client.open_channel(2)
    client.declare("q")
    client.call(2, commands.Basic.Get(queue="absent"))
    assert client.count("q", 1) == 0


def test_messages_for_a_refused_channel_are_dropped(client: Any) -> None:
    client.declare("q")
    client.send_bytes(
        client.publish_bytes(1, "q", exchange="none")
        + client.publish_bytes(1, "q")
        + client.publish_bytes(1, "q")
    )
    assert client.take(1)[-1].reply_code == 404
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("q") == 0


def test_a_defect_in_what_waited_costs_that_client_alone(
    world: Any, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events that waited are done in whoever's turn it is: the node's, another client's."""
    other = world.client()

    def defect(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    client.connection.pressure.set_output_full(True)
    client.publish(1, "nowhere", exchange="amq.direct")
    monkeypatch.setattr(world.cluster.catalog, "exchange", defect)
    client.connection.pressure.set_output_full(False)
    world.settle()
    (close,) = client.take()
    assert (type(close), close.reply_code) == (commands.Connection.Close, 541)
    assert any(record.exc_info and "failed" in record.message for record in caplog.records)
    monkeypatch.undo()
    assert other.declare("q").queue == "q"


def test_what_comes_behind_the_method_that_ends_a_connection_is_not_done(world: Any) -> None:
    """A client that pipelines: all of it arrives in one piece, and the first part is refused."""
    other = world.client()
    other.declare("q")
    other.publish(1, "q")
    client = world.client()
    exclusive = commands.Queue.Declare(queue="mine", exclusive=True)
    consume = commands.Basic.Consume(queue="q", consumer_tag="late", no_ack=True)
    client.send_bytes(
        b"".join(
            frame.marshal(method, channel)
            for channel, method in (
                (1, commands.Basic.Qos(prefetch_size=5)),
                (2, commands.Channel.Open()),
                (2, exclusive),
                (2, consume),
            )
        )
    )
    close = client.take()[-1]
    assert close.reply_code == 540
    client.lose()
    world.advance(2000)
    assert other.declare("q", passive=True).consumer_count == 0
    assert other.count("q") == 1
    assert isinstance(other.declare("mine"), commands.Queue.DeclareOk)
