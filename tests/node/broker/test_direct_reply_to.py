"""Direct reply-to: requests with the address of a channel, replies straight to it, as in RabbitMQ 3.10."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.amqp.content import Content
from mayfly.node.broker.direct_replies import (
    ANSWER_WITHIN_MS,
    DirectReplies,
    is_address_in,
    make_address,
    make_key,
    parse_address,
)
from mayfly.node.catalog import AddVhost, SetPermissions
from mayfly.node.limits import MIB, OUTPUT_FULL_BYTES
from mayfly.node.notice_kinds import ASK, REPLY, TOLD
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import closed

REPLY_TO = "amq.rabbitmq.reply-to"


def consume(client: Any, tag: str = "me", channel: int = 1, no_ack: bool = True) -> Any:
    return client.call(channel, commands.Basic.Consume(queue=REPLY_TO, consumer_tag=tag, no_ack=no_ack))


def request(client: Any, world: Any, channel: int = 1) -> tuple[Any, str]:
    """A responder that has got a request, and the address in it."""
    responder = world.client()
    responder.declare("q")
    assert isinstance(consume(client, channel=channel), commands.Basic.ConsumeOk)
    client.publish(channel, "q", reply_to=REPLY_TO, correlation_id="7", message_type="t")
    got = responder.get("q")
    assert (got.properties.correlation_id, got.properties.message_type) == ("7", "t")
    return responder, str(got.properties.reply_to)


def test_a_round_trip(world: Any, client: Any) -> None:
    responder, address = request(client, world)
    assert address.startswith(REPLY_TO + ".")
    responder.publish(1, address, b"re", correlation_id="7")
    responder.publish(1, address, b"again")
    first, second = client.take(1)
    assert (first.body, first.method.consumer_tag, first.method.exchange) == (b"re", "me", "")
    assert (first.method.routing_key, first.method.redelivered) == (address, False)
    assert first.properties.correlation_id == "7"
    assert [first.tag, second.tag] == [1, 2]


def test_an_address_is_one_for_a_channel_and_secret(world: Any, client: Any) -> None:
    responder, address = request(client, world)
    client.publish(1, "q", reply_to=REPLY_TO)
    assert responder.get("q").properties.reply_to == address
    client.open_channel(2)
    consume(client, channel=2)
    client.publish(2, "q", reply_to=REPLY_TO)
    other = responder.get("q").properties.reply_to
    assert other != address and len(other.rsplit(".", 1)[1]) == 22


@pytest.mark.parametrize("mandatory", [False, True])
def test_a_reply_counts_as_unroutable(world: Any, client: Any, mandatory: bool) -> None:
    """RabbitMQ's documentation: with mandatory it comes back as well."""
    responder, address = request(client, world)
    responder.open_channel(2, confirms=True)
    responder.publish(2, address, b"re", mandatory=mandatory)
    *returned, confirm = responder.take(2)
    assert [(each.method.reply_code, each.body) for each in returned] == [(312, b"re")] * mandatory
    assert isinstance(confirm, commands.Basic.Ack)
    assert [each.body for each in client.take(1)] == [b"re"]


def test_replies_beside_queues(world: Any, client: Any) -> None:
    """A CC header names the address; another exchange knows no addresses."""
    responder, address = request(client, world)
    responder.publish(1, "q", b"both", headers={"CC": [address]})
    assert [each.body for each in client.take(1)] == [b"both"]
    assert responder.get("q").body == b"both"
    responder.publish(1, address, b"bcc", headers={"BCC": ["q"]})
    assert [(each.body, each.properties.headers) for each in client.take(1)] == [(b"bcc", {})]
    assert responder.get("q").body == b"bcc"
    responder.publish(1, address, b"no", exchange="amq.direct")
    assert client.take(1) == []


def test_refusals(client: Any, world: Any) -> None:
    refused = consume(client, no_ack=False)
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    consume(client)
    refused = consume(client, "other")
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - reply consumer already set")
    assert (refused.class_id, refused.method_id) == (60, 20)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.publish(1, "q", reply_to=REPLY_TO)
    (refused,) = client.take(1)
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - fast reply consumer does not exist")
    assert (refused.class_id, refused.method_id) == (60, 40)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    consume(client)
    refused = consume(client, "me")
    assert closed(refused) == ("channel", 406, "PRECONDITION_FAILED - reply consumer already set")


def test_their_tag_is_no_consumers(client: Any) -> None:
    """A queue's consumer may have it as well, and is cancelled after them; the other way round it may not."""
    consume(client)
    client.declare("q")
    assert client.consume("q", "me", no_ack=True) == []
    address = client.connection.channels[1].reply_consumer.address
    assert isinstance(client.call(1, commands.Basic.Cancel(consumer_tag="me")), commands.Basic.CancelOk)
    assert client.call(1, commands.Queue.Declare(queue=address, passive=True)).reply_code == 404
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.consume("q", "me")
    assert closed(consume(client)) == ("connection", 530, "NOT_ALLOWED - attempt to reuse consumer tag 'me'")


def test_of_one_tag_the_replies_are_cancelled_first(client: Any) -> None:
    consume(client)
    client.declare("q")
    client.consume("q", "me", no_ack=True)
    for left in (["me"], []):
        client.call(1, commands.Basic.Cancel(consumer_tag="me"))
        assert client.connection.channels[1].reply_consumer is None
        assert list(client.connection.channels[1].consumers) == left


def test_the_names_are_no_queues(world: Any, client: Any) -> None:
    _, address = request(client, world)
    asking = world.client()
    for name, passive in ((REPLY_TO, True), (REPLY_TO, False), (address, True), (address, False)):
        answer = asking.call(1, commands.Queue.Declare(queue=name, passive=passive))
        assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 1)
    for name in (REPLY_TO + ".abc", REPLY_TO + ".", REPLY_TO + "x", address + "x", REPLY_TO + ".77.abc"):
        for passive in (True, False):
            refused = asking.call(1, commands.Queue.Declare(queue=name, passive=passive))
            assert closed(refused) == ("channel", 404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
            asking.send(1, commands.Channel.CloseOk())
            asking.open_channel(1)
    assert isinstance(asking.call(1, commands.Queue.Delete(queue=REPLY_TO)), commands.Queue.DeleteOk)
    for method in (commands.Basic.Get(queue=REPLY_TO), commands.Queue.Purge(queue=REPLY_TO)):
        assert closed(asking.call(1, method))[1] == 404
        asking.send(1, commands.Channel.CloseOk())
        asking.open_channel(1)


@pytest.mark.parametrize("end", ["cancel", "channel", "connection", "broken"])
def test_replies_to_what_is_gone_are_dropped(world: Any, client: Any, end: str) -> None:
    responder, address = request(client, world)
    responder.open_channel(2, confirms=True)
    if end == "cancel":
        assert isinstance(client.call(1, commands.Basic.Cancel(consumer_tag="me")), commands.Basic.CancelOk)
    elif end == "channel":
        client.call(1, commands.Channel.Close(200, "bye", 0, 0))
    elif end == "connection":
        client.call(0, commands.Connection.Close(200, "bye", 0, 0))
    else:
        client.lose()
    assert world.broker.reply_consumers.by_key == {}
    responder.publish(2, address, b"late")
    assert isinstance(responder.take(2)[0], commands.Basic.Ack)
    refused = responder.call(1, commands.Queue.Declare(queue=address, passive=True))
    assert closed(refused)[:2] == ("channel", 404)
    if end == "cancel":
        assert client.take(1) == []
        assert isinstance(consume(client), commands.Basic.ConsumeOk)


def test_a_reply_in_a_transaction_goes_with_its_commit(world: Any, client: Any) -> None:
    responder, address = request(client, world)
    responder.call(1, commands.Tx.Select())
    responder.publish(1, address, b"one")
    responder.call(1, commands.Tx.Rollback())
    responder.publish(1, address, b"two")
    assert client.take(1) == []
    assert isinstance(responder.call(1, commands.Tx.Commit()), commands.Tx.CommitOk)
    assert [each.body for each in client.take(1)] == [b"two"]


def test_requester_and_responder_on_different_nodes() -> None:
    brokers = ThreeBrokers()
    requester, responder = brokers.nodes[1].client(), brokers.nodes[3].client()
    responder.send(1, commands.Queue.Declare(queue="q", durable=True))
    responder.send(1, commands.Basic.Consume(queue="q", consumer_tag="r", no_ack=True))
    brokers.run_until(lambda: len(responder.received) == 2)
    responder.take(1)
    requester.send(1, commands.Basic.Consume(queue=REPLY_TO, consumer_tag="me", no_ack=True))
    requester.publish(1, "q", reply_to=REPLY_TO)
    brokers.run_until(lambda: len(responder.received) == 3)
    address = responder.take(1)[0].properties.reply_to
    big = b"x" * 100_000
    for body in (b"", b"one", big):
        responder.publish(1, address, body, message_id="m", mandatory=True)
    brokers.settle()
    _, *replies = requester.take(1)
    assert [each.body for each in replies] == [b"", b"one", big]
    assert {each.properties.message_id for each in replies} == {"m"}
    assert [each.method.reply_code for each in responder.take(1)] == [312] * 3
    for name, there in ((address, True), (address + "0", False), (make_address(9, "k"), False)):
        responder.send(1, commands.Queue.Declare(queue=name, passive=True))
        brokers.settle()
        (answer,) = responder.take(1)
        assert isinstance(answer, commands.Queue.DeclareOk if there else commands.Channel.Close)
        if not there:
            responder.send(1, commands.Channel.CloseOk())
            responder.open_channel(1)
    responder.publish(1, address + "0", b"forged")
    brokers.settle()
    assert requester.take(1) == []


class Listener:
    """The events of a broker that knows one key."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Content]] = []

    def reply_came(self, key: str, content: Content) -> None:
        self.came.append((key, content))

    def awaits_reply(self, key: str) -> bool:
        return key == "known"


def replies_of(sent: list[tuple[int, int, bytes]], listener: Listener) -> DirectReplies:
    def send(node_id: int, kind: int, data: bytes) -> None:
        sent.append((node_id, kind, data))

    return DirectReplies(1, send, lambda: listener)  # type: ignore[arg-type,return-value]


def test_questions_end_with_their_node_or_in_time() -> None:
    sent: list[tuple[int, int, bytes]] = []
    answers: list[object] = []
    replies = replies_of(sent, Listener())
    replies.ask(make_address(2, "k"), answers.append)
    assert answers == [False] and sent == []
    replies.peer_up(2)
    replies.ask(make_address(2, "k"), answers.append)
    assert answers == [False] and [each[:2] for each in sent] == [(2, ASK)]
    replies.peer_down(2)
    assert answers == [False, False]
    replies.peer_up(2)
    replies.ask(make_address(2, "k"), answers.append)
    replies.tick(ANSWER_WITHIN_MS - 1)
    assert answers == [False, False]
    replies.tick(ANSWER_WITHIN_MS)
    assert answers == [False, False, False]
    replies.notice(2, TOLD, struct.pack("<QB", 2, 1))
    assert answers == [False, False, False]


def test_what_cannot_be_read_is_dropped() -> None:
    listener = Listener()
    sent: list[tuple[int, int, bytes]] = []
    replies = replies_of(sent, listener)
    replies.peer_up(2)
    replies.reply(make_address(2, "known"), Content(b"\x00\x01k", b"header", b"body"))
    ((_, kind, data),) = sent
    for length in range(len(data) - len(b"body")):
        replies.notice(2, kind, data[:length])
    for kind in (ASK, TOLD, REPLY):
        replies.notice(2, kind, b"\xff")
    assert listener.came == []
    replies.notice(2, REPLY, data)
    ((key, content),) = listener.came
    assert (key, content.exchange_and_key, content.header, content.body) == ("known", b"\x00\x01k", b"header", b"body")


@pytest.mark.parametrize("name", ["q", REPLY_TO, REPLY_TO + ".", REPLY_TO + ".1", REPLY_TO + ".1.", REPLY_TO + ".x.k"])
def test_what_is_no_address(name: str) -> None:
    assert parse_address(name) is None


def test_replies_to_a_client_that_does_not_read_are_dropped(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    responder, address = request(client, world)
    wake, client.connection.host.wake = client.connection.host.wake, lambda: None  # Its socket takes nothing.
    body = bytes(120_000)
    for _ in range(200):
        responder.publish(1, address, body)
    assert OUTPUT_FULL_BYTES < client.connection.amqp.output.size_bytes < OUTPUT_FULL_BYTES + MIB
    assert client.connection.pressure.output_blocked and not client.connection.pressure.wants_reading
    assert responder.connection.pressure.wants_reading
    taken = 200 - world.broker.reply_consumers.dropped
    assert sum("does not take its direct replies" in record.message for record in caplog.records) == 1
    client.connection.host.wake = wake
    wake()
    world.settle()
    assert len(client.take(1)) == taken
    client.connection.pressure.set_output_full(False)
    responder.publish(1, address, b"again")
    assert [each.body for each in client.take(1)] == [b"again"]


def test_an_address_is_none_in_another_vhost(world: Any, client: Any) -> None:
    """Who learned an address can't use it from elsewhere: it is a key like any other there."""
    _, address = request(client, world)
    world.cluster.catalog.apply(AddVhost("other"))
    world.cluster.catalog.apply(SetPermissions("guest", "other", ".*", ".*", ".*"))
    stranger = world.client(vhost="other")
    stranger.publish(1, address, b"forged", mandatory=True)
    assert [each.method.reply_code for each in stranger.take(1)] == [312]
    assert client.take(1) == []
    assert stranger.call(1, commands.Queue.Declare(queue=address, passive=True)).reply_code == 404


def test_an_address_of_a_release_that_named_no_vhost_is_taken(world: Any, client: Any) -> None:
    assert is_address_in("/", make_address(1, "secret")) and is_address_in("v", make_address(1, "secret"))
    assert not is_address_in("v", make_address(1, make_key("/", "secret")))
    assert is_address_in("/", make_address(1, make_key("/", "secret")))
