"""Whatever node a client is on, and whatever node leads: the same broker. pika and aio-pika."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import aio_pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from mayfly.cluster.versions import LEVEL_LEADER_LOCATORS
from tests.integration.clients import (
    PERSISTENT,
    Consumer,
    Publisher,
    channel,
    connect,
    declare_led_by,
    drain,
    judge,
    made_known,
    publish_all,
    url,
)
from tests.integration.nodes import PATIENT_SESSIONS, Nodes
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.processes]


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return PATIENT_SESSIONS


@contextlib.contextmanager
def three(nodes: Nodes, confirms: bool = True) -> Iterator[list[BlockingChannel]]:
    """A channel on each node."""
    with channel(nodes, 1, confirms) as one, channel(nodes, 2, confirms) as two, channel(nodes, 3, confirms) as other:
        yield [one, two, other]


def get_at_once(where: BlockingChannel, queue: str) -> bytes:
    """The next message, confirmed elsewhere a moment ago: a get through any node goes to the leader, and finds it."""
    _, _, body = where.basic_get(queue, auto_ack=True)
    assert body is not None, f"nothing in {queue}"
    return bytes(body)


def test_a_queue_is_led_by_the_node_of_the_client_that_declares_it(cluster: Nodes) -> None:
    """At rest, and at the level from which on it is so; not those that ask for balance."""
    cluster.until_balanced()
    level = LEVEL_LEADER_LOCATORS
    wait_for(lambda: all(cluster.page(id, "/cluster/members")[1]["level"] >= level for id in cluster.ids), "the level")
    with three(cluster) as channels:
        near = [f"near-{number}" for number in range(6)]
        for number, name in enumerate(near):
            made_known(cluster, partial(channels[number % 3].queue_declare, name, durable=True))
        assert [cluster.planned_leader(name) for name in near] == [1, 2, 3] * 2
        spread = [f"spread-{number}" for number in range(9)]
        for name in spread:
            channels[0].queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
        assert {cluster.planned_leader(name) for name in spread} == {1, 2, 3}
        for name in (*near, *spread):
            channels[0].queue_delete(name)


def test_published_on_one_got_on_another_whatever_node_leads(cluster: Nodes) -> None:
    with three(cluster) as channels:
        names = [f"any-{number}" for number in range(9)]
        for number, name in enumerate(names):
            made_known(cluster, partial(channels[number % 3].queue_declare, name, durable=True))
        assert {cluster.planned_leader(name) for name in names} == set(cluster.ids)
        assert len({(cluster.queue(1, name) or {})["shard"] for name in names}) > 3
        for name in names:
            for source in range(3):
                for target in range(3):
                    body = f"{source} to {target}".encode()
                    channels[source].basic_publish("", name, body, PERSISTENT, mandatory=True)
                    assert get_at_once(channels[target], name) == body
        for name in names:
            assert channels[0].queue_delete(name).method.message_count == 0
        for name in names:
            cluster.until_nowhere(name)


def test_consumers_on_all_nodes_share_a_queue_in_order(cluster: Nodes) -> None:
    """Each message once; each consumer sees a rising part of them."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("shared", durable=True)
    consumers = [Consumer(cluster, id, "shared", prefetch=20).begin() for id in cluster.ids]
    publisher = Publisher(cluster, 2, "shared", count=600)
    publisher.start()
    publisher.join(60)
    publisher.finish()
    wait_for(lambda: sum(len(consumer.deliveries) for consumer in consumers) >= 600, "all messages")
    for consumer in consumers:
        consumer.finish()
        assert consumer.deliveries, "a consumer got nothing"
    judge(publisher, consumers)


EXCHANGES: dict[str, tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any], set[int]]]]] = {
    "direct": (
        [("red", {}), ("blue", {}), ("red", {})],
        [("red", {}, {0, 2}), ("blue", {}, {1}), ("green", {}, set())],
    ),
    "fanout": ([("", {}), ("x", {}), ("", {})], [("anything", {}, {0, 1, 2})]),
    "topic": (
        [("a.*.c", {}), ("a.#", {}), ("#.c", {})],
        [("a.b.c", {}, {0, 1, 2}), ("a", {}, {1}), ("c", {}, {2}), ("a.b.b.c", {}, {1, 2}), ("b", {}, set())],
    ),
    "headers": (
        [
            ("", {"x-match": "all", "a": 1, "b": "x"}),
            ("", {"x-match": "any", "a": 1, "b": "x"}),
            ("", {"x-match": "all"}),
        ],
        [("", {"a": 1, "b": "x"}, {0, 1, 2}), ("", {"a": 1}, {1, 2}), ("", {"a": 2}, {2})],
    ),
}


@pytest.mark.parametrize("kind", EXCHANGES)
def test_exchanges_declared_bound_and_used_on_different_nodes(cluster: Nodes, kind: str) -> None:
    """A publish through one node goes by every binding that was answered on another; without a route it comes back."""
    bindings, messages = EXCHANGES[kind]
    exchange = f"exchange-{kind}"
    queues = [f"{exchange}-{number}" for number in range(len(bindings))]
    with three(cluster) as (declaring, binding, publishing):
        made_known(cluster, partial(declaring.exchange_declare, exchange, exchange_type=kind, durable=True))
        for queue, (key, arguments) in zip(queues, bindings, strict=True):
            made_known(cluster, partial(binding.queue_declare, queue, durable=True))
            made_known(cluster, partial(binding.queue_bind, queue, exchange, key, arguments))
        for number, (key, headers, expected) in enumerate(messages):
            body = f"message {number}".encode()
            properties = pika.BasicProperties(delivery_mode=2, headers=headers)
            if expected:
                publishing.basic_publish(exchange, key, body, properties, mandatory=True)
            else:
                with pytest.raises(pika.exceptions.UnroutableError) as returned:
                    publishing.basic_publish(exchange, key, body, properties, mandatory=True)
                assert returned.value.messages[0].method.reply_code == 312
            for position, queue in enumerate(queues):
                _, _, found = declaring.basic_get(queue, auto_ack=True)
                assert (found == body) == (position in expected), (queue, key, found)
        made_known(cluster, partial(declaring.exchange_delete, exchange))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            publishing.basic_publish(exchange, "", b"", mandatory=True)
        assert refused.value.reply_code == 404


def test_a_missing_route_comes_back_and_a_new_one_is_seen_at_once(cluster: Nodes) -> None:
    with three(cluster) as (one, two, three_):
        for publishing in (one, two, three_):
            with pytest.raises(pika.exceptions.UnroutableError):
                publishing.basic_publish("", "not-there-yet", b"early", mandatory=True)
        made_known(cluster, lambda: two.queue_declare("not-there-yet", durable=True))
        for publishing in (one, two, three_):
            publishing.basic_publish("", "not-there-yet", b"in time", mandatory=True)
        made_known(cluster, lambda: one.queue_delete("not-there-yet"))
        for publishing in (one, two, three_):
            with pytest.raises(pika.exceptions.UnroutableError):
                publishing.basic_publish("", "not-there-yet", b"late", mandatory=True)


def test_aio_pika_over_a_fanout_of_shards(cluster: Nodes) -> None:
    """Confirms stand for every queue of a fan-out: each confirmed message is in all of them."""

    async def scenario() -> None:
        connections = [await aio_pika.connect(url(cluster, id)) for id in cluster.ids]
        publishing, declaring, consuming = [await connection.channel() for connection in connections]
        await consuming.set_qos(prefetch_count=50)
        exchange = await declaring.declare_exchange("aio", aio_pika.ExchangeType.FANOUT, durable=True)
        queues = [await declaring.declare_queue(f"aio-{number}", durable=True) for number in range(4)]
        for queue in queues:
            await queue.bind(exchange)
        for id in cluster.ids:
            await asyncio.to_thread(cluster.until_told, id)
        there = await publishing.get_exchange("aio")
        bodies = [b"%d" % number for number in range(300)]
        await asyncio.gather(
            *(there.publish(aio_pika.Message(body, delivery_mode=2), "") for body in bodies)
        )
        for queue in queues:
            got = []
            async with (await consuming.get_queue(queue.name)).iterator(timeout=BOUND_S) as messages:
                async for message in messages:
                    await message.ack()
                    got.append(message.body)
                    if len(got) == len(bodies):
                        break
            assert got == bodies
        for connection in connections:
            await connection.close()

    asyncio.run(scenario())


# ---------------------------------------------------------------------- queues of one node


def test_an_exclusive_queue_is_published_to_from_everywhere_and_used_by_its_connection_alone(cluster: Nodes) -> None:
    with three(cluster) as (owner, two, three_):
        name = made_known(cluster, lambda: owner.queue_declare("", exclusive=True)).method.queue
        assert name.startswith("amq.gen-")
        for number, publishing in enumerate((owner, two, three_)):
            publishing.basic_publish("", name, b"%d" % number, mandatory=True)
            assert get_at_once(owner, name) == b"%d" % number
        for stranger in (two, three_):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as locked:
                stranger.basic_get(name)
            assert locked.value.reply_code == 405
    cluster.until_nowhere(name)


def test_an_auto_delete_queue_goes_with_its_last_consumer_on_another_node(cluster: Nodes) -> None:
    with three(cluster) as (one, two, three_):
        made_known(cluster, lambda: one.queue_declare("auto-delete", auto_delete=True))
        two.basic_publish("", "auto-delete", b"first", mandatory=True)
        here = Consumer(cluster, 1, "auto-delete").begin()
        there = Consumer(cluster, 3, "auto-delete").begin()
        wait_for(lambda: here.deliveries or there.deliveries, "the first message")
        here.finish()
        three_.basic_publish("", "auto-delete", b"second", mandatory=True)
        wait_for(lambda: len(there.deliveries) + len(here.deliveries) == 2, "the second message")
        assert cluster.queue(2, "auto-delete") is not None
        there.finish()
        cluster.until_nowhere("auto-delete")


def test_a_transient_queue_from_all_nodes(cluster: Nodes) -> None:
    """Not durable, not exclusive: in the memory of node 2, used through all of them, nothing twice."""
    with channel(cluster, 2) as two:
        two.queue_declare("transient", durable=False)
    publishers = [Publisher(cluster, id, "transient", count=200) for id in cluster.ids]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join(BOUND_S)
        publisher.finish()
        assert len(publisher.confirmed) == 200
    consumer = Consumer(cluster, 3, "transient").begin()
    consumer.until_received(600)
    consumer.finish()
    assert sorted(consumer.numbers) == sorted(list(range(200)) * 3)
    assert not any(delivery.redelivered for delivery in consumer.deliveries)
    with channel(cluster, 1) as one:
        one.queue_delete("transient")


def call(nodes: Nodes, id: int, count: int) -> None:
    """Call the server so often, one call after the other."""
    connection = connect(nodes, id)
    calling = connection.channel()
    replies: list[tuple[str, bytes]] = []
    queue = made_known(nodes, lambda: calling.queue_declare("", exclusive=True)).method.queue
    calling.basic_consume(
        queue, lambda _, __, properties, body: replies.append((properties.correlation_id, body)), auto_ack=True
    )
    for number in range(count):
        properties = pika.BasicProperties(reply_to=queue, correlation_id=str(number), delivery_mode=2)
        calling.basic_publish("", "rpc", b"call %d" % number, properties)

        def is_answered(number: int = number) -> bool:
            connection.process_data_events(time_limit=0.02)
            return len(replies) > number

        wait_for(is_answered, f"a reply to call {number} on node {id}")
    assert replies == [(str(number), b"CALL %d" % number) for number in range(count)]
    connection.close()


def test_remote_procedure_calls_over_reply_queues(cluster: Nodes) -> None:
    """The server on node 1, callers on nodes 2 and 3 with exclusive reply queues of their own."""
    with channel(cluster, 3) as declaring:
        declaring.queue_declare("rpc", durable=True)
    stopping, failures = threading.Event(), []

    def serve() -> None:
        try:
            connection = connect(cluster, 1)
            serving = connection.channel()

            def answer(_: object, method: Any, properties: Any, body: bytes) -> None:
                reply = pika.BasicProperties(correlation_id=properties.correlation_id)
                serving.basic_publish("", properties.reply_to, body.upper(), reply)
                serving.basic_ack(method.delivery_tag)

            serving.basic_consume("rpc", answer)
            while not stopping.is_set():
                connection.process_data_events(time_limit=0.02)
            connection.close()
        except Exception as error:
            failures.append(error)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        for id in (2, 3):
            call(cluster, id, 30)
    finally:
        stopping.set()
        server.join(BOUND_S)
    assert not failures
    assert not server.is_alive(), "the server hangs"


def test_what_becomes_of_transient_queues_when_their_node_dies(whole: Nodes) -> None:
    """They are gone, with their messages; consumers elsewhere are told; the names are free; the node may come back."""
    dying = connect(whole, 3)
    there = dying.channel()
    exclusive = there.queue_declare("", exclusive=True).method.queue
    there.queue_declare("dies", durable=False)
    there.queue_declare("dies-auto", auto_delete=True)
    names = [exclusive, "dies", "dies-auto"]
    publish_all(whole, 1, "dies", [b"%d in memory" % number for number in range(10)])
    with channel(whole, 1) as declaring:
        durable = declare_led_by(whole, declaring, "lives", lambda leader: leader == 3)
        declaring.exchange_declare("to-both", exchange_type="fanout")
        declaring.queue_bind("dies", "to-both")
        declaring.queue_bind(durable, "to-both")
    consumer = Consumer(whole, 1, "dies-auto").begin()
    publisher = Publisher(whole, 2, durable, rate=300)
    publisher.start()
    publisher.until_confirmed(30)
    whole.kill(3)
    # A publish to a queue on a dead node waits for nothing for ever: it is nacked or returned, not lost in silence.
    refusals = (pika.exceptions.NackError, pika.exceptions.UnroutableError)
    with channel(whole, 1, confirms=True) as one, pytest.raises(refusals):
        one.basic_publish("", "dies", b"to a dead node", mandatory=True)
    for name in names:
        whole.until_nowhere(name)
    wait_for(lambda: consumer.cancelled, "basic.cancel at the consumer of a queue that is gone")
    consumer.finish()
    with channel(whole, 1, confirms=True) as one:
        with pytest.raises(pika.exceptions.UnroutableError):
            one.basic_publish("", "dies", b"to nowhere", mandatory=True)
        one.basic_publish("to-both", "", b"0 to the durable one", mandatory=True)
        one.queue_declare("dies", durable=False)
        one.basic_publish("", "dies", b"reborn on node 1", mandatory=True)
        assert get_at_once(one, "dies") == b"reborn on node 1"
        one.queue_delete("dies")
    publisher.finish()
    whole.heal()
    found = [body for body, _ in drain(whole, 3, durable)]
    assert b"0 to the durable one" in found
    found.remove(b"0 to the durable one")
    assert sorted(int(body.split()[0]) for body in found) == sorted(publisher.confirmed)
