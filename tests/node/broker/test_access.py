"""Users, vhosts and permissions that change under open connections; texts as RabbitMQ 3.10.8 gave them."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import (
    AddVhost,
    ClearPermissions,
    DeleteUser,
    DeleteVhost,
    PutUser,
    SetPermissions,
    SetTopicPermissions,
    UpgradePassword,
)


def apply(world: Any, *changes: Any) -> None:
    """All of them are seen by the broker at once."""
    for command in changes:
        world.cluster.submit_catalog(command, lambda _: None)
    world.settle()


def closed(client: Any) -> tuple[int | None, str]:
    (close,) = [method for method in client.take() if isinstance(method, commands.Connection.Close)]
    return close.reply_code, close.reply_text


def test_a_deleted_user_is_disconnected(world: Any, client: Any) -> None:
    world.add_user("u", "pw", ".*", ".*", ".*")
    users = [world.client(user="u", password="pw") for _ in range(2)]
    opening = world.login("u", "pw")
    users[0].declare("mine", exclusive=True)
    apply(world, DeleteUser("u"))
    for each in users:
        assert closed(each) == (320, "CONNECTION_FORCED - user 'u' is deleted")
    assert opening.closed, "logged in, with nothing open yet: the socket goes"
    assert not client.closed
    assert world.cluster.catalog.queue("/", "mine") is None
    assert len(world.broker.connections) == 1


def test_a_user_that_is_made_anew_is_another_one(world: Any) -> None:
    """Delete and add arrive in one step: the name is there again, and who was logged in goes all the same."""
    world.add_user("u", "pw", ".*", ".*", ".*")
    before = world.cluster.catalog.user("u")
    client = world.client(user="u", password="pw")
    apply(world, DeleteUser("u"), PutUser("u", before.password_hash), SetPermissions("u", "/", ".*", ".*", ".*"))
    assert closed(client) == (320, "CONNECTION_FORCED - user 'u' is deleted")
    world.client(user="u", password="pw")


def test_another_password_or_tags_leave_connections_alone(world: Any) -> None:
    world.add_user("u", "pw", ".*", ".*", ".*")
    client = world.client(user="u", password="pw")
    apply(world, PutUser("u", "", ("management",)))
    client.declare("q")
    assert world.login("u", "pw").take()[0].reply_code == 403


def test_a_user_deleted_while_the_password_is_checked(world: Any) -> None:
    from pamqp import frame

    world.add_user("u", "pw", ".*", ".*", ".*")
    client = world.socket()
    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0u\0pw", "en_US")
    client.connection.receive(b"AMQP\x00\x00\x09\x01" + frame.marshal(start_ok, 0))
    world.cluster.catalog.apply(DeleteUser("u"))
    world.cluster.catalog.apply(PutUser("u", ""))
    world.settle()
    assert not any(isinstance(method, commands.Connection.Tune) for method in client.take())
    assert client.closed


def test_a_deleted_vhost_takes_its_connections_and_queues(world: Any, client: Any) -> None:
    apply(world, AddVhost("v"), SetPermissions("guest", "v", ".*", ".*", ".*"))
    inside = world.client(vhost="v")
    inside.declare("q")
    apply(world, DeleteVhost("v"))
    assert closed(inside) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
    assert not client.closed
    assert list(world.cluster.catalog.queues("v")) == []


@pytest.mark.parametrize("how", ["narrower", "cleared"])
def test_permissions_that_change_count_for_open_connections(world: Any, how: str) -> None:
    world.add_user("u", "pw", ".*", ".*", ".*")
    client = world.client(user="u", password="pw")
    client.declare("q")
    client.publish(1, "q")
    assert client.count("q") == 1
    command = SetPermissions("u", "/", ".*", "^other$", ".*") if how == "narrower" else ClearPermissions("u", "/")
    apply(world, command)
    client.publish(1, "q")
    (close,) = client.take(1)
    assert (close.reply_code, close.reply_text) == (
        403, "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'u'",
    )  # fmt: skip


def test_topic_permissions_at_publish(world: Any) -> None:
    """On the routing key and, other than in RabbitMQ 3.10, on those of CC and BCC."""
    world.add_user("u", "pw", ".*", ".*", ".*")
    apply(world, SetTopicPermissions("u", "/", "amq.topic", "^a", ".*"))
    client = world.client(user="u", password="pw")
    client.declare("q")
    client.call(1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    client.publish(1, "a.b", exchange="amq.topic")
    assert client.count("q") == 1
    text = "ACCESS_REFUSED - access to topic 'b.b' in exchange 'amq.topic' in vhost '/' refused for user 'u'"
    for headers, key in (({}, "b.b"), ({"CC": ["b.b"]}, "a.b"), ({"BCC": ["b.b"]}, "a.b")):
        client.publish(1, key, exchange="amq.topic", headers=headers)
        close = client.take(1)[-1]
        assert (close.reply_code, close.reply_text) == (403, text)
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    assert client.count("q") == 1


def test_publishing_without_permission_does_not_tell_what_is_there(world: Any) -> None:
    world.add_user("u", "pw", "^$", "^$", "^$")
    client = world.client(user="u", password="pw")
    client.publish(1, "k", exchange="nowhere")
    (close,) = client.take(1)
    assert close.reply_code == 403


def test_an_impersonator_may_name_others(world: Any) -> None:
    world.add_user("u", "pw", ".*", ".*", ".*")
    client = world.client(user="u", password="pw")
    client.declare("q")
    client.publish(1, "q", user_id="guest")
    assert client.take(1)[-1].reply_code == 406
    record = world.cluster.catalog.user("u")
    apply(world, PutUser("u", record.password_hash, ("impersonator",)))
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.publish(1, "q", user_id="guest")
    assert client.count("q") == 1


def test_an_imported_hash_is_replaced_at_login(world: Any) -> None:
    """By a slow one, once, and the login goes on; a password that was changed meanwhile stays changed."""
    imported = "rabbit_password_hashing_sha256$YWJjZCUocPu+lAjLXU4Se7RFyins8lJaz+A5gv/b19IpfqUF"
    apply(world, PutUser("u", imported), SetPermissions("u", "/", ".*", ".*", ".*"))
    world.client(user="u", password="pw")
    stored = world.cluster.catalog.user("u").password_hash
    assert stored.startswith("scrypt$")
    checks = world.verified
    world.client(user="u", password="pw")
    assert world.verified == checks, "remembered with the new hash as well"
    apply(world, UpgradePassword("u", imported, "other"))
    assert world.cluster.catalog.user("u").password_hash == stored


# -- the property user-id, as rabbit_channel:check_user_id_header (3.10) has it -----------------------------


@pytest.mark.parametrize("tags", [(), ("administrator",), ("management", "monitoring", "policymaker")])
def test_nobody_else_may_be_named_whatever_other_tags_there_are(world: Any, tags: tuple[str, ...]) -> None:
    world.add_user("u", "pw", ".*", ".*", ".*")
    apply(world, PutUser("u", world.cluster.catalog.user("u").password_hash, tags))
    client = world.client(user="u", password="pw")
    client.declare("q")
    client.publish(1, "q", user_id="u")
    for named, shown in (("guest", "guest"), ("U", "U"), ("", ""), ("u ", "u ")):
        client.send_bytes(with_user_id(client, named.encode()))
        close = client.take(1)[-1]
        assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
        text = f"PRECONDITION_FAILED - user_id property set to '{shown}' but authenticated user was 'u'"
        assert close.reply_text == text
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    assert client.count("q") == 1


def with_user_id(client: Any, octets: bytes) -> bytes:
    """A publish to q with these octets as its user-id."""
    publish = client.publish_bytes(1, "q", b"", user_id="x")
    at = publish.index(b"\0\x10\x01x\xce")
    head = publish[:at] + b"\0\x10" + bytes([len(octets)]) + octets + b"\xce"
    start = publish.index(b"\xce") + 1
    size = len(head) - 1 - start - 7
    return bytes(head[: start + 3] + size.to_bytes(4, "big") + head[start + 7 :])


@pytest.mark.parametrize("octets", [b"x" * 255, b"\xff\xfe", "ü".encode() * 127])
def test_a_long_or_odd_name_is_refused_in_a_text_that_fits(world: Any, client: Any, octets: bytes) -> None:
    client.declare("q")
    client.send_bytes(with_user_id(client, octets))
    (close,) = client.take(1)
    assert close.reply_code == 406
    assert close.reply_text.startswith("PRECONDITION_FAILED - user_id property set to '")
    assert len(close.reply_text.encode()) <= 255


def test_the_user_id_is_checked_after_the_exchange_and_before_the_expiration(client: Any) -> None:
    def refusal(**publish: Any) -> int:
        client.publish(1, "q", user_id="other", expiration="soon", **publish)
        close = client.take(1)[-1]
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
        assert ("user_id" in close.reply_text) == (close.reply_code == 406)
        return int(close.reply_code)

    client.declare("q")
    assert refusal() == 406
    assert refusal(exchange="nonesuch") == 404


def test_a_wrong_user_id_ends_a_transaction_at_once(client: Any) -> None:
    client.declare("q")
    client.call(1, commands.Tx.Select())
    client.publish(1, "q")
    client.publish(1, "q", user_id="other")
    (close,) = client.take(1)
    assert close.reply_code == 406 and "user_id" in close.reply_text
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("q") == 0


def test_a_dead_letter_keeps_the_user_id_of_who_published_it(world: Any, client: Any) -> None:
    """The broker publishes it, who may name anybody."""
    client.declare("dead")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish(1, "q", user_id="guest")
    client.send(1, commands.Basic.Reject(delivery_tag=client.get("q", no_ack=False).tag, requeue=False))
    world.advance(1000)
    assert client.get("dead").properties.user_id == "guest"


def test_an_impersonator_no_more_names_nobody(world: Any) -> None:
    """RabbitMQ goes by the tags of the login; here a tag that is taken away counts at once."""
    world.add_user("u", "pw", ".*", ".*", ".*")
    record = world.cluster.catalog.user("u")
    apply(world, PutUser("u", record.password_hash, ("impersonator",)))
    client = world.client(user="u", password="pw")
    client.declare("q")
    client.publish(1, "q", user_id="somebody")
    assert client.count("q") == 1
    apply(world, PutUser("u", record.password_hash, ("management",)))
    client.publish(1, "q", user_id="somebody")
    assert client.take(1)[-1].reply_code == 406
