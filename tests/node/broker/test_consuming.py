"""basic.consume, get, cancel, settling, qos, recover, and what becomes of messages when channels go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.node.shard.effects import Missing
from tests.node.conftest import Delivery, closed


def fill(client: Any, queue: str, count: int, **options: Any) -> None:
    client.declare(queue, **options)
    client.send_bytes(b"".join(client.publish_bytes(1, queue, b"%d" % i) for i in range(count)))


def bodies(deliveries: list[Any]) -> list[bytes]:
    return [each.body for each in deliveries]


def test_consume_ok_comes_before_deliveries(client: Any) -> None:
    fill(client, "q", 3)
    got = client.consume("q", no_ack=True)
    assert bodies(got) == [b"0", b"1", b"2"]
    assert [each.tag for each in got] == [1, 2, 3]
    assert [each.method.consumer_tag for each in got] == ["tag"] * 3
    assert client.count("q") == 0


def test_generated_and_reused_tags(client: Any) -> None:
    client.declare("q")
    first = client.call(1, commands.Basic.Consume(queue="q"))
    assert first.consumer_tag.startswith("amq.ctag-")
    got = client.call(1, commands.Basic.Consume(queue="q", consumer_tag=first.consumer_tag))
    assert closed(got)[:2] == ("connection", 530)
    assert got.reply_text == f"NOT_ALLOWED - attempt to reuse consumer tag '{first.consumer_tag}'"
    assert (got.class_id, got.method_id) == (60, 20)


def test_cancel_of_an_unknown_tag_is_fine(client: Any) -> None:
    assert isinstance(client.call(1, commands.Basic.Cancel(consumer_tag="never")), commands.Basic.CancelOk)


def settles_what_it_holds(client: Any, got: Any) -> None:
    """It acknowledges the first of two, and closes the channel; one came later."""
    client.send(1, commands.Basic.Ack(delivery_tag=got[0].tag))
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.take()
    client.open_channel(1)
    assert client.count("q") == 2, "the one not acknowledged came back with the channel"


def test_cancelled_consumer_keeps_what_it_holds(world: Any, client: Any) -> None:
    fill(client, "q", 2)
    got = client.consume("q")
    client.call(1, commands.Basic.Cancel(consumer_tag="tag"))
    client.publish(1, "q", b"later")
    assert client.take(1) == []
    assert client.count("q") == 1
    settles_what_it_holds(client, got)


@pytest.mark.parametrize("by_operator", [False, True])
def test_what_comes_with_the_cancel_of_a_consumer_is_delivered_before_it(
    world: Any, client: Any, by_operator: bool
) -> None:
    """In one entry of the log: a publish, which is delivered since somebody looks at the queue, and the end of the
    consumer. Held by one that nobody knows it would come to nobody, whatever its client did."""
    client.declare("q")
    client.consume("q")
    client.open_channel(2)
    look = frame.marshal(commands.Queue.Declare(queue="q", passive=True), 2)
    client.connection.receive(client.publish_bytes(1, "q", b"with it") + look)
    if by_operator:
        assert client.connection.channels[1].cancel_consumer("tag")
    else:
        client.connection.receive(frame.marshal(commands.Basic.Cancel(consumer_tag="tag"), 1))
    world.settle()
    got = client.take(1)
    told = commands.Basic.Cancel if by_operator else commands.Basic.CancelOk
    assert [type(each) for each in got] == [Delivery, told]
    assert got[0].body == b"with it"
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.take()
    client.open_channel(1)
    assert client.count("q") == 1


def test_a_consumer_that_an_operator_cancels_keeps_what_it_holds(world: Any, client: Any) -> None:
    fill(client, "q", 2)
    got = client.consume("q")
    channel = client.connection.channels[1]
    assert not channel.cancel_consumer("another")
    assert channel.cancel_consumer("tag")
    world.settle()
    (cancel,) = client.take(1)
    assert isinstance(cancel, commands.Basic.Cancel) and (cancel.consumer_tag, cancel.nowait) == ("tag", True)
    assert not channel.cancel_consumer("tag") and not world.broker.consumers.by_id
    client.publish(1, "q", b"later")
    assert client.take(1) == []
    settles_what_it_holds(client, got)


def test_a_consumer_is_cancelled_by_its_client_and_an_operator_at_once(world: Any, client: Any) -> None:
    """And its tag is another consumer's by then."""
    fill(client, "q", 1)
    client.consume("q")
    assert client.connection.channels[1].cancel_consumer("tag")
    client.send(1, commands.Basic.Cancel(consumer_tag="tag"))
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="tag"))
    told = [type(each) for each in client.take(1)]
    assert told.count(commands.Basic.CancelOk) == told.count(commands.Basic.ConsumeOk) == 1
    client.publish(1, "q", b"later")
    assert bodies(client.take(1)) == [b"later"]


def test_a_channel_that_an_operator_closes_gives_back_what_it_holds(world: Any, client: Any) -> None:
    """Others of its connection go on."""
    client.open_channel(2)
    fill(client, "q", 2)
    client.consume("q")
    client.connection.channels[1].force_close("enough")
    world.settle()
    (close,) = client.take(1)
    assert closed(close) == ("channel", 406, "PRECONDITION_FAILED - enough")
    assert client.count("q", 2) == 2


def test_prefetch(client: Any) -> None:
    fill(client, "q", 10)
    client.call(1, commands.Basic.Qos(prefetch_count=3))
    got = client.consume("q")
    assert len(got) == 3
    client.send(1, commands.Basic.Ack(delivery_tag=2, multiple=True))
    assert bodies(client.take(1)) == [b"3", b"4"]


def test_qos_refusals(world: Any, client: Any) -> None:
    got = client.call(1, commands.Basic.Qos(prefetch_size=10, prefetch_count=1))
    assert closed(got) == ("connection", 540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)")


@pytest.mark.parametrize("type", ["quorum", "classic"])
def test_global_qos_is_a_limit_for_each_consumer(client: Any, type: str) -> None:
    """As RabbitMQ 4.3 has it (golden qos4.global_alone), for the consumers that follow."""
    client.declare("q", arguments={"x-queue-type": type})
    client.call(1, commands.Basic.Qos(prefetch_count=1))
    client.call(1, commands.Basic.Consume(queue="q", consumer_tag="before"))
    client.call(1, commands.Basic.Qos(prefetch_count=3, global_=True))
    for tag in ("one", "two"):
        client.call(1, commands.Basic.Consume(queue="q", consumer_tag=tag))
    for _ in range(10):
        client.publish(1, "q")
    got = Counter(each.method.consumer_tag for each in client.take(1))
    assert got == {"before": 1, "one": 3, "two": 3}


@pytest.mark.parametrize(
    "method",
    [
        commands.Basic.Ack(delivery_tag=99),
        commands.Basic.Nack(delivery_tag=99),
        commands.Basic.Reject(delivery_tag=99),
        commands.Basic.Ack(delivery_tag=5, multiple=True),
        commands.Basic.Ack(delivery_tag=0),
    ],
)
def test_unknown_delivery_tags(client: Any, method: Any) -> None:
    """Golden amqp.unknown_delivery_tags."""
    got = client.call(1, method)
    text = f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}"
    assert closed(got) == ("channel", 406, text)
    assert (got.class_id, got.method_id) == (60, method.index & 0xFFFF)


def test_ack_of_everything_with_nothing_there(client: Any) -> None:
    client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    assert client.take() == []


def test_a_bad_ack_does_not_undo_the_good_ones_before_it(client: Any) -> None:
    fill(client, "q", 3)
    client.consume("q")
    client.send(1, commands.Basic.Ack(delivery_tag=1), commands.Basic.Ack(delivery_tag=1))
    assert client.take(1)[-1].reply_code == 406
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("q") == 2


def test_get_counts_and_redelivery(client: Any) -> None:
    """Golden queue.counts; x-acquired-count as quorum queues have it (dlx.reason_delivery_limit)."""
    fill(client, "q", 3)
    got = client.get("q", no_ack=False)
    assert (got.method.message_count, got.method.redelivered, got.body) == (2, False, b"0")
    client.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    seen = [client.get("q", no_ack=True) for _ in range(3)]
    again = next(each for each in seen if each.method.redelivered)
    assert again.body == b"0"
    assert again.properties.headers == {"x-acquired-count": 1}


def test_transient_queues_do_not_count_deliveries(client: Any) -> None:
    fill(client, "q", 1, durable=False)
    got = client.get("q", no_ack=False)
    client.send(1, commands.Basic.Reject(delivery_tag=got.tag, requeue=True))
    got = client.get("q")
    assert got.method.redelivered
    assert not got.properties.headers


def test_what_comes_back_to_a_transient_queue_goes_to_its_old_place(world: Any, client: Any) -> None:
    """As in RabbitMQ's classic queues, in whatever order and by whomever it is returned."""
    other = world.client()
    fill(client, "q", 12, durable=False)
    held = [(each, each.get("q", no_ack=False)) for each in (client, other) * 5]
    for place in (3, 8, 0, 9, 1):
        holder, got = held[place]
        holder.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    assert client.get("q").body == b"0"
    other.lose()
    assert isinstance(client.call(1, commands.Basic.Recover(requeue=True)), commands.Basic.RecoverOk)
    assert bodies([client.get("q") for _ in range(11)]) == [b"%d" % number for number in range(1, 12)]


def test_reject_dead_letters_and_nack_multiple(client: Any) -> None:
    client.declare("dead")
    fill(client, "q", 4, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.consume("q")
    client.send(1, commands.Basic.Reject(delivery_tag=1, requeue=False))
    client.send(1, commands.Basic.Nack(delivery_tag=4, multiple=True, requeue=False))
    client.take(1)
    got = [client.get("dead") for _ in range(4)]
    assert bodies(got) == [b"0", b"1", b"2", b"3"]
    assert {each.properties.headers["x-first-death-reason"] for each in got} == {"rejected"}


def test_recover(client: Any) -> None:
    fill(client, "q", 1)
    first = client.get("q", no_ack=False)
    assert isinstance(client.call(1, commands.Basic.Recover(requeue=True)), commands.Basic.RecoverOk)
    again = client.get("q")
    assert (again.body, again.method.redelivered) == (first.body, True)
    got = client.call(1, commands.Basic.Recover(requeue=False))
    assert closed(got) == ("connection", 540, "NOT_IMPLEMENTED - requeue=false")


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_what_was_held_comes_back(world: Any, client: Any, how: str) -> None:
    fill(client, "q", 4)
    other = world.client()
    other.call(1, commands.Basic.Qos(prefetch_count=2))
    other.consume("q")
    assert other.get("q", no_ack=False).body == b"2"
    assert client.count("q") == 1
    if how == "channel":
        other.send(1, commands.Channel.Close(200, "bye", 0, 0))
    elif how == "connection":
        other.send(0, commands.Connection.Close(200, "bye", 0, 0))
    else:
        other.lose()
    got = client.declare("q", passive=True)
    assert (got.message_count, got.consumer_count) == (4, 0)
    assert not world.broker.consumers.by_id


def test_flow_is_refused_as_rabbitmq_does(client: Any) -> None:
    assert client.call(1, commands.Channel.Flow(active=True)).active is True
    got = client.call(1, commands.Channel.Flow(active=False))
    assert closed(got) == ("connection", 540, "NOT_IMPLEMENTED - active=false")


def test_a_client_that_does_not_read_gets_no_more(client: Any) -> None:
    client.declare("q")
    client.consume("q", no_ack=True)
    client.connection.pressure.set_output_blocked(True)
    client.publish(1, "q", b"held")
    assert client.take(1) == []
    assert client.count("q") == 1
    client.connection.pressure.set_output_blocked(False)
    client.world.settle()
    assert bodies(client.take(1)) == [b"held"]


def test_exclusive_consumer(world: Any, client: Any) -> None:
    client.declare("q")
    client.consume("q", exclusive=True)
    other = world.client()
    got = other.call(1, commands.Basic.Consume(queue="q"))
    assert closed(got) == ("channel", 403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")


def test_consumer_priorities(client: Any) -> None:
    client.declare("q")
    client.consume("q", "low", no_ack=True)
    client.consume("q", "high", no_ack=True, arguments={"x-priority": 10})
    client.send_bytes(client.publish_bytes(1, "q") * 5)
    assert {each.method.consumer_tag for each in client.take(1)} == {"high"}
    got = client.call(1, commands.Basic.Consume(queue="q", arguments={"x-priority": "high"}))
    text = (
        "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': "
        '"expected integer, got longstr"'
    )
    assert closed(got) == ("channel", 406, text)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    got = client.call(1, commands.Basic.Consume(queue="q", arguments={"x-cancel-on-ha-failover": "yes"}))
    text = (
        "PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for queue 'q' in vhost '/': "
        "{unacceptable_type,longstr}"
    )
    assert closed(got) == ("channel", 406, text)


def test_single_active_consumer(client: Any) -> None:
    client.declare("q", arguments={"x-single-active-consumer": True})
    client.consume("q", "one", no_ack=True)
    client.consume("q", "two", no_ack=True)
    client.send_bytes(client.publish_bytes(1, "q") * 4)
    assert {each.method.consumer_tag for each in client.take(1)} == {"one"}
    client.call(1, commands.Basic.Cancel(consumer_tag="one"))
    client.publish(1, "q")
    assert {each.method.consumer_tag for each in client.take(1)} == {"two"}
    refused = client.call(1, commands.Basic.Consume(queue="q", consumer_tag="three", exclusive=True))
    assert closed(refused) == ("channel", 403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")


def test_a_lost_session_cancels_consumers_and_forgets_tags(world: Any, client: Any) -> None:
    fill(client, "q", 2)
    (first, _) = client.consume("q")
    world.cluster.lose_session(world.cluster.catalog.queue("/", "q").shard)
    world.settle()
    (cancel,) = client.take(1)
    assert isinstance(cancel, commands.Basic.Cancel)
    client.send(1, commands.Basic.Ack(delivery_tag=first.tag))
    assert client.take() == [], "a late acknowledgement is no fault of the client"
    got = client.declare("q", passive=True)
    assert (got.message_count, got.consumer_count) == (2, 0)
    again = client.consume("q", "tag")
    assert [each.method.redelivered for each in again] == [True, True]


LOST = "PRECONDITION_FAILED - consumer 'tag' is gone: its node was out of touch with the shard of its queue"


def test_a_lost_session_closes_the_channel_of_a_client_that_takes_no_cancels(world: Any) -> None:
    """It would wait for ever. Its other channels go on, and what it held is for others."""
    client = world.client(capabilities={})
    client.open_channel(2)
    fill(client, "q", 2)
    client.consume("q", "tag")
    world.cluster.lose_session(world.cluster.catalog.queue("/", "q").shard)
    world.settle()
    (close,) = client.take(1)
    assert closed(close) == ("channel", 406, LOST)
    assert client.count("q", 2) == 2
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert [each.method.redelivered for each in client.consume("q", "again")] == [True, True]


def test_missed_deliveries_close_the_channel_of_a_client_that_takes_no_cancels(world: Any) -> None:
    """A consumer without acknowledgements whose node was given a snapshot in place of what it should have had."""
    client = world.client(capabilities={})
    client.declare("q")
    client.consume("q", "tag", no_ack=True)
    ((consumer_id, consumer),) = world.broker.consumers.by_id.items()
    holder = consumer.holder
    world.broker.shard_effects(holder.shard_id, [Missing(consumer_id, holder.queue_id, (1, 1))])
    world.settle()
    (close,) = client.take(1)
    assert closed(close) == ("channel", 406, LOST)
    client.open_channel(2)
    assert client.declare("q", 2, passive=True).consumer_count == 0


def test_a_lost_session_closes_no_channel_without_consumers_there(world: Any) -> None:
    client = world.client(capabilities={})
    fill(client, "q", 1)
    client.get("q", no_ack=False)
    world.cluster.lose_session(world.cluster.catalog.queue("/", "q").shard)
    world.settle()
    assert client.take() == [] and client.count("q") == 1


def test_many_channels_are_apart(client: Any) -> None:
    fill(client, "q", 2)
    client.open_channel(2)
    one = client.get("q", 1, no_ack=False)
    two = client.get("q", 2, no_ack=False)
    assert (one.tag, two.tag) == (1, 1)
    client.send(2, commands.Basic.Ack(delivery_tag=1))
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.take()
    assert client.get("q", 2).body == b"0"


def test_a_get_whose_session_ends_under_way_can_be_settled(world: Any, client: Any) -> None:
    """The GET counts in the next session, under the same holder (here: it is given again)."""
    fill(client, "q", 2)
    client.get("q", no_ack=False)
    world.running = False
    client.take(1)
    client.send(1, commands.Basic.Get(queue="q"))
    world.cluster.lose_session(world.cluster.catalog.queue("/", "q").shard)
    world.running = True
    world.settle()
    (got,) = client.take(1)
    client.send(1, commands.Basic.Ack(delivery_tag=got.tag))
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    client.take()
    client.open_channel(1)
    assert client.count("q") == 1
