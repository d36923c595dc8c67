"""Journals as clients see them (RULES R4): on one node with fake time, and on three whose leaders die."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import PolicySet, SetPolicy
from tests.node.broker.test_stream_copies import call, declare, pass_ms, read, record
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client, closed

STREAM: dict[str, Any] = {"x-queue-type": "stream"}
NOTED: dict[str, Any] = {"x-journal": "j"}
DEAD: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def records(world: Any, client: Client, journal: str = "j") -> list[Any]:
    """What is in the journal, from the first record on."""
    client.send(9, commands.Channel.Open())
    client.send(9, commands.Basic.Qos(prefetch_count=1000))
    arguments: dict[str, Any] = {"x-stream-offset": "first"}
    client.send(9, commands.Basic.Consume(queue=journal, consumer_tag="r", arguments=arguments))
    world.advance(100)
    found = [each for each in client.take(9) if hasattr(each, "body")]
    client.send(9, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    client.take(9)
    return found


def said(found: list[Any]) -> list[dict[str, Any]]:
    """The headers of records, without their offsets in the stream."""
    return [
        {name: value for name, value in each.properties.headers.items() if name != "x-stream-offset"} for each in found
    ]


def test_r4_what_a_record_says(world: Any, client: Client) -> None:
    client.declare("dead")
    client.declare("j", arguments=STREAM)
    client.declare("q", arguments={**NOTED, **DEAD})
    client.call(1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    published_ms = world.cluster.now_ms
    client.publish(
        1, "a.key", b"12345", exchange="amq.topic", expiration="1000", message_id="m1", headers={"traceparent": TRACE}
    )
    world.advance(1300)
    (found,) = records(world, client)
    assert (found.method.routing_key, found.method.exchange, found.body) == ("q", "", b"")
    (headers,) = said([found])
    went_ms = headers.pop("went-ms")
    assert headers == {
        "what": "message", "reason": "expired", "queue": "q", "to": "dead-letter-exchange", "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead", "due-ms": published_ms + 1000, "enqueued-ms": published_ms,
        "exchange": "amq.topic", "routing-key": "a.key", "body-bytes": 5, "message-id": "m1", "traceparent": TRACE,
    }
    assert 0 <= went_ms - headers["due-ms"] <= 300
    # The trace goes on with the dead letter.
    dead = client.get("dead")
    assert (dead.body, dead.properties.headers["traceparent"]) == (b"12345", TRACE)


def test_r4_where_to(world: Any, client: Client) -> None:
    """By its own key, or nowhere; what is no traceparent is none."""
    client.declare("j", arguments=STREAM)
    client.declare("own", arguments={**NOTED, "x-dead-letter-exchange": "gone"})
    client.declare("none", arguments=NOTED)
    client.publish(1, "own", expiration="0")
    client.publish(1, "none", expiration="0", headers={"traceparent": 5})
    client.publish(1, "none", expiration="0", headers={"traceparent": "x" * 256, "other": "traceparent"})
    world.advance(1000)
    own, none, long = said(records(world, client))
    assert (own["to"], own["dead-letter-exchange"], own["dead-letter-routing-key"]) == (
        "dead-letter-exchange", "gone", "own"
    )
    for each in (none, long):
        assert each["to"] == "nowhere"
        assert not {"dead-letter-exchange", "dead-letter-routing-key", "message-id", "traceparent"} & each.keys()


def test_r4_a_queue_that_expires_and_its_messages(world: Any, client: Client) -> None:
    client.declare("j", arguments=STREAM)
    begun_ms = world.cluster.now_ms
    client.declare("q", arguments={**NOTED, "x-expires": 1000})
    client.publish(1, "q", b"abc", message_id="m")
    world.advance(2000)
    queue, message = said(records(world, client))
    assert 0 <= queue.pop("went-ms") - begun_ms - 1000 <= 300
    assert queue == {
        "what": "queue", "reason": "expired", "queue": "q", "to": "nowhere", "due-ms": begun_ms + 1000,
        "last-used-ms": begun_ms, "messages": 1,
    }
    assert (message["what"], message["reason"], message["message-id"], message["body-bytes"]) == (
        "message", "queue_expired", "m", 3
    )
    assert "due-ms" not in message


def test_r4_an_exclusive_queue_is_noted_too(world: Any, client: Client) -> None:
    """It is in the memory of its node alone."""
    client.declare("j", arguments=STREAM)
    client.call(1, commands.Queue.Declare(queue="e", exclusive=True, arguments={**NOTED, "x-message-ttl": 10}))
    client.publish(1, "e", message_id="m")
    world.advance(1000)
    (found,) = said(records(world, client))
    assert (found["queue"], found["message-id"]) == ("e", "m")


def test_r4_a_policy_asks_for_it_and_the_argument_wins(world: Any, client: Client) -> None:
    for name in ("j", "k"):
        client.declare(name, arguments=STREAM)
    client.declare("q")
    client.declare("r", arguments=NOTED)
    assert isinstance(world.cluster.catalog.apply(SetPolicy("/", "p", "", {"journal": "k"})), PolicySet)
    world.advance(1000)
    for queue in ("q", "r"):
        client.publish(1, queue, expiration="0")
    world.advance(1000)
    assert [each["queue"] for each in said(records(world, client, "k"))] == ["q"]
    assert [each["queue"] for each in said(records(world, client, "j"))] == ["r"]


def test_r4_records_leave_the_journal_when_their_time_is_up(world: Any, client: Client) -> None:
    """The journal's own TTL; nothing is noted of that, whatever a policy says."""
    client.declare("j", arguments={**STREAM, "x-max-age": "5s"})
    client.declare("q", arguments=NOTED)
    assert isinstance(world.cluster.catalog.apply(SetPolicy("/", "p", "", {"journal": "j"})), PolicySet)
    client.publish(1, "q", expiration="0")
    world.advance(1000)
    assert len(records(world, client)) == 1
    world.advance(5000)
    assert records(world, client) == []
    world.advance(5000)
    assert records(world, client) == []


@pytest.mark.parametrize("strategy", ["at-least-once", "at-most-once"])
def test_r4_without_its_journal_a_record_is_parked_until_it_is_there(
    world: Any, client: Client, caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    """Told once for each queue, by name and reason; or dropped, where dead letters without a route are."""
    client.declare("j", arguments=STREAM)
    client.declare("q", arguments={**NOTED, **DEAD, "x-dead-letter-strategy": strategy})
    client.declare("dead")
    client.call(1, commands.Queue.Delete(queue="j"))
    client.declare("j")
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            client.publish(1, "q", expiration="0", message_id=name)
            world.advance(1000)
    told = [each.getMessage() for each in caplog.records if "journal" in each.getMessage()]
    is_parked = strategy == "at-least-once"
    assert told == [
        "queue 'q' in vhost '/' can't have 'j' as its journal: it is no stream (x-queue-type); what is to be noted "
        f"there is {'parked' if is_parked else 'dropped'}"
    ]
    parked = [death for local in world.cluster.shards.values() for death in local.shard.parked()]
    assert len(parked) == (2 if is_parked else 0)
    assert client.declare("dead").message_count == 2
    client.call(1, commands.Queue.Delete(queue="j"))
    client.declare("j", arguments=STREAM)
    world.advance(10_000)
    assert [each["message-id"] for each in said(records(world, client))] == (["a", "b"] if is_parked else [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-journal": "no"}, "queue 'new' in vhost '/' can't have 'no' as its journal: there is no such queue"),
        ({"x-journal": "q"}, "can't have 'q' as its journal: it is no stream (x-queue-type)"),
        ({"x-journal": "new"}, "can't have 'new' as its journal: a queue is not its own journal"),
        ({"x-journal": "m"}, "can't have 'm' as its journal: it is read-only: it has the messages of stream 'j' alone"),
        ({"x-journal": ""}, "invalid arg 'x-journal' for queue 'new' in vhost '/': the name of a stream expected"),
        ({"x-journal": 5}, "invalid arg 'x-journal'"),
        ({"x-journal": "x" * 256}, "{value_too_long,256}"),
        ({**STREAM, "x-journal": "j"}, "invalid arg 'x-journal' for queue 'new' in vhost '/' of queue type"),
    ],
)  # fmt: skip
def test_r4_refused(client: Client, arguments: dict[str, Any], text: str) -> None:
    client.declare("j", arguments=STREAM)
    client.declare("m", arguments={**STREAM, "x-mirror": "j"})
    client.declare("q")
    client.send(1, commands.Queue.Declare(queue="new", durable=True, arguments=arguments))
    kind, code, told = closed(client.take()[-1])
    assert (kind, code) == ("channel", 406)
    assert text in told
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.send(1, commands.Queue.Declare(queue="new", durable=True, passive=True))
    assert closed(client.take()[-1])[1] == 404


def test_r4_another_journal_is_another_queue(client: Client) -> None:
    for name in ("j", "k"):
        client.declare(name, arguments=STREAM)
    client.declare("q", arguments=NOTED)
    client.call(1, commands.Queue.Delete(queue="j"))
    assert client.declare("q", arguments=NOTED).message_count == 0
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-journal": "k"}))
    assert "inequivalent arg 'x-journal'" in closed(client.take()[-1])[2]


def test_r4_a_journal_takes_the_right_to_write_there(world: Any) -> None:
    world.client().declare("j", arguments=STREAM)
    world.add_user("maker", "guest", ".*", "^q$", ".*")
    client = world.client(user="maker", password="guest")
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=NOTED))
    assert closed(client.take()[-1]) == (
        "channel", 403, "ACCESS_REFUSED - access to queue 'j' in vhost '/' refused for user 'maker'"
    )  # fmt: skip


@pytest.mark.parametrize("dying", ["queue", "journal"])
def test_r4_exactly_one_record_of_each_death_whichever_leader_dies(dying: str) -> None:
    """R4, D6, D7: deaths, decisions and lanes are under way when it goes, a little further each time; a journal in the
    shard of its queue, and in another."""
    brokers = ThreeBrokers(shards=3)
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    declare(brokers, client, "j", STREAM)
    declare(brokers, client, "dead", {})
    numbers = itertools.count()
    queues: dict[bool, str] = {}
    while len(queues) < 2:
        name = f"q{next(numbers)}"
        declare(brokers, client, name, {**NOTED, **DEAD})
        queues.setdefault(record(brokers, name).shard == record(brokers, "j").shard, name)
    shard = record(brokers, queues[False] if dying == "queue" else "j").shard

    def leader() -> int:
        return next((id for id, node in brokers.nodes.items() if node.engine.host.groups[shard].established), 0)

    sent: list[str] = []
    for turn in range(4):
        for number in range(20):
            for queue in queues.values():
                sent.append(f"{queue} {turn} {number}")
                client.publish(1, queue, b"m", expiration="300", message_id=sent[-1])
        brokers.run_until(lambda: not any(node.broker.owes_answers for node in brokers.nodes.values()))
        for _ in range(5 + 2 * turn):
            brokers.step()
        brokers.run_until(leader)
        gone = leader()
        if gone == 1:
            # The client is there: it goes on with the next.
            for node in brokers.nodes.values():
                if node.engine.host.groups[shard].established:
                    node.engine.host.groups[shard].raw.transfer_leader(2 + turn % 2)
            brokers.run_until(lambda: leader() > 1)
            gone = leader()
        brokers.cut.add(gone)
        pass_ms(brokers, 2_000)
        brokers.cut.discard(gone)
        pass_ms(brokers, 1_500)
    assert not any(refused for _, _, refused in client.acks())
    found = said(read(brokers, client, "j"))
    assert sorted(each["message-id"] for each in found) == sorted(sent)
    for queue in queues.values():
        assert [each["message-id"] for each in found if each["queue"] == queue] == [
            name for name in sent if name.startswith(queue + " ")
        ]
    assert call(brokers, client, commands.Queue.Declare(queue="dead", durable=True)).message_count == len(sent)
