"""Class queue as RabbitMQ answers it (goldens amqp.missing_queue, amqp.reserved_names, queue.*, args.*)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.amqp.methods import method_frame

NO_QUEUE = "NOT_FOUND - no queue 'absent' in vhost '/'"


def refused(client: Any, method: Any, code: int, text: str) -> None:
    """The channel is closed with this code and text, naming the method; then channel 1 is opened anew."""
    got = client.call(1, method)
    assert isinstance(got, commands.Channel.Close), got
    assert (got.reply_code, got.reply_text) == (code, text)
    assert (got.class_id, got.method_id) == (method.index >> 16, method.index & 0xFFFF)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)


def test_declare_answers_counts(client: Any) -> None:
    got = client.declare("q")
    assert (got.queue, got.message_count, got.consumer_count) == ("q", 0, 0)
    client.publish(1, "q")
    assert client.declare("q").message_count == 1


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
@pytest.mark.parametrize("queue", ["q", "there"])
@pytest.mark.parametrize("arguments", [{"x-stream-filter-size-bytes": 16}])
def test_arguments_that_would_mean_something_are_not_ignored(
    client: Any, arguments: dict[str, Any], queue: str, queue_type: str
) -> None:
    """Whoever asks for what isn't there must hear of it; the same for a queue that is there."""
    client.declare("there", arguments={"x-queue-type": queue_type})
    (key,) = arguments
    method = commands.Queue.Declare(queue=queue, durable=True, arguments={"x-queue-type": queue_type, **arguments})
    why = f"for queue '{queue}' in vhost '/' of queue type rabbit_{queue_type}_queue"
    refused(client, method, 406, f"PRECONDITION_FAILED - invalid arg '{key}' {why}")


@pytest.mark.parametrize(
    ("argument", "queue_type"),
    [
        ("x-consumer-timeout", "classic"),
        *[(key, kind) for key in ("x-stream-filter", "x-stream-match-unfiltered") for kind in ("quorum", "classic")],
    ],
)
def test_consumers_arguments_that_would_mean_something_are_not_ignored(
    client: Any, queue_type: str, argument: str
) -> None:
    client.declare("q", arguments={"x-queue-type": queue_type})
    why = f"for queue 'q' in vhost '/' of queue type rabbit_{queue_type}_queue"
    method = commands.Basic.Consume(queue="q", arguments={argument: 1000})
    refused(client, method, 406, f"PRECONDITION_FAILED - invalid arg '{argument}' {why}")


def test_missing_queue(client: Any) -> None:
    for method in (
        commands.Queue.Declare(queue="absent", passive=True),
        commands.Basic.Get(queue="absent"),
        commands.Basic.Consume(queue="absent"),
        commands.Queue.Purge(queue="absent"),
        commands.Queue.Bind(queue="absent", exchange="amq.direct", routing_key="k"),
    ):
        refused(client, method, 404, NO_QUEUE)
    assert isinstance(client.call(1, commands.Queue.Delete(queue="absent")), commands.Queue.DeleteOk)
    unbind = commands.Queue.Unbind(queue="absent", exchange="amq.direct", routing_key="k")
    assert isinstance(client.call(1, unbind), commands.Queue.UnbindOk)


def test_refusals_for_want_of_a_queue_ask_the_catalog_first(world: Any, client: Any) -> None:
    before = world.cluster.barriers
    refused(client, commands.Basic.Get(queue="absent"), 404, NO_QUEUE)
    assert world.cluster.barriers == before + 1


def test_reserved_names(client: Any) -> None:
    text = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    refused(client, commands.Queue.Declare(queue="amq.mine", durable=True), 403, text)
    text = "NOT_FOUND - no queue 'amq.mine' in vhost '/'"
    refused(client, commands.Queue.Declare(queue="amq.mine", passive=True), 404, text)


def test_server_named_and_last_declared(client: Any) -> None:
    name = client.declare("", exclusive=True).queue
    assert name.startswith("amq.gen-")
    assert len(name) >= len("amq.gen-") + 22
    client.publish(1, name, b"one")
    assert client.get("").body == b"one"
    refused(client, commands.Queue.Declare(queue="", passive=True), 404, "NOT_FOUND - no queue '' in vhost '/'")


def test_empty_name_without_a_declare(client: Any) -> None:
    refused(client, commands.Basic.Get(queue=""), 404, "NOT_FOUND - no previously declared queue")


def test_line_ends_are_taken_out_of_names(client: Any) -> None:
    """As RabbitMQ 3.10 does where queues and exchanges are declared and bound, and not where they are used."""

    def call(method: Any, **names: str) -> Any:
        for attribute, name in names.items():
            setattr(method, attribute, name)
        client.take(1)
        client.send_bytes(method_frame(1, method))
        return client.take(1)[-1]

    assert call(commands.Queue.Declare(durable=True), queue="a\r\nb").queue == "ab"
    declared = call(commands.Exchange.Declare(exchange_type="fanout"), exchange="x\ny")
    assert isinstance(declared, commands.Exchange.DeclareOk)
    bound = call(commands.Queue.Bind(), queue="a\nb", exchange="xy\r")
    assert isinstance(bound, commands.Queue.BindOk)
    client.publish(1, "", exchange="xy")
    assert client.count("ab") == 1
    refused = call(commands.Basic.Get(), queue="a\nb")
    assert refused.reply_text == "NOT_FOUND - no queue 'a\nb' in vhost '/'"


def test_quorum_refuses_server_names(client: Any) -> None:
    method = commands.Queue.Declare(queue="", durable=True, arguments={"x-queue-type": "quorum"})
    refused(
        client,
        method,
        406,
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
    )


def test_inequivalent_redeclare(client: Any) -> None:
    client.declare("q", arguments={"x-message-ttl": 1000})
    refused(
        client,
        commands.Queue.Declare(queue="q", durable=True, arguments={"x-message-ttl": 2000}),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
        "received '2000' but current is '1000'",
    )


@pytest.mark.parametrize(
    ("key", "current", "received"),
    [
        ("x-delayed-retry-type", "all", "failed"),
        ("x-delayed-retry-min", 1000, 2000),
        ("x-delayed-retry-max", 5000, 6000),
        ("x-consumer-timeout", 60_000, 90_000),
    ],
)
def test_inequivalent_redeclare_of_a_quorum_queue(client: Any, key: str, current: Any, received: Any) -> None:
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, key: current,
    }
    client.declare("q", arguments=arguments)
    refused(
        client,
        commands.Queue.Declare(queue="q", durable=True, arguments={**arguments, key: received}),
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{key}' for queue 'q' in vhost '/': "
        f"received '{received}' but current is '{current}'",
    )
    assert client.declare("q", arguments=arguments).message_count == 0


def test_exclusive_queues_go_with_their_connection(world: Any, client: Any) -> None:
    client.declare("mine", durable=False, exclusive=True)
    other = world.client()
    client.lose()
    refused(
        other,
        commands.Queue.Declare(queue="mine", passive=True),
        404,
        "NOT_FOUND - no queue 'mine' in vhost '/'",
    )
    assert other.declare("mine", durable=False, exclusive=True).queue == "mine"


def test_an_exclusive_queue_whose_connection_just_ended_does_not_lock(world: Any, client: Any) -> None:
    client.declare("mine", durable=False, exclusive=True)
    other = world.client()
    world.running = False
    client.connection.lost()
    other.send(1, commands.Queue.Declare(queue="mine", exclusive=True))
    world.running = True
    world.settle()
    assert isinstance(other.take(1)[0], commands.Queue.DeclareOk)


def test_auto_delete_goes_with_its_last_consumer(world: Any, client: Any) -> None:
    client.declare("short", durable=False, auto_delete=True)
    other = world.client()
    client.consume("short", "a")
    other.consume("short", "b")
    client.call(1, commands.Basic.Cancel(consumer_tag="a"))
    assert client.declare("short", passive=True).consumer_count == 1
    other.lose()
    world.settle()
    refused(
        client,
        commands.Queue.Declare(queue="short", passive=True),
        404,
        "NOT_FOUND - no queue 'short' in vhost '/'",
    )
    assert client.declare("short", durable=False, auto_delete=True).queue == "short"


def test_purge_counts_what_was_ready(client: Any) -> None:
    client.declare("q")
    for _ in range(4):
        client.publish(1, "q")
    held = client.get("q", no_ack=False)
    assert client.call(1, commands.Queue.Purge(queue="q")).message_count == 3
    client.send(1, commands.Basic.Nack(delivery_tag=held.tag, requeue=True))
    assert client.count("q") == 1


def test_delete_conditions(client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    refused(
        client,
        commands.Queue.Delete(queue="q", if_empty=True),
        406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
    )
    client.consume("q", no_ack=False)
    refused(
        client,
        commands.Queue.Delete(queue="q", if_unused=True),
        406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' in use",
    )
    assert client.call(1, commands.Queue.Delete(queue="q")).message_count == 1


def test_delete_cancels_consumers_that_can_take_it(world: Any, client: Any) -> None:
    client.declare("q")
    client.consume("q", "told")
    plain = world.client(capabilities={})
    plain.consume("q", "untold")
    other = world.client()
    other.call(1, commands.Queue.Delete(queue="q"))
    (cancel,) = client.take(1)
    assert isinstance(cancel, commands.Basic.Cancel)
    assert cancel.consumer_tag == "told"
    assert plain.take(1) == []
    assert not world.broker.consumers.by_id


def test_delete_is_answered_before_the_cancels_it_causes(client: Any) -> None:
    """A client that deletes what it consumes from takes an early basic.cancel for an error (kombu raises it)."""
    client.declare("q")
    client.consume("q", "own")
    client.send(1, commands.Queue.Delete(queue="q"))
    assert [type(frame) for frame in client.take(1)] == [commands.Queue.DeleteOk, commands.Basic.Cancel]


def test_a_cancel_waits_for_no_answer_that_does_not_come(client: Any) -> None:
    client.declare("q")
    client.consume("q", "own")
    client.send(1, commands.Queue.Delete(queue="q", nowait=True))
    assert [type(frame) for frame in client.take(1)] == [commands.Basic.Cancel]


def test_nowait_is_not_answered(client: Any) -> None:
    client.take(1)
    client.send(
        1,
        commands.Queue.Declare(queue="q", durable=True, nowait=True),
        commands.Queue.Bind(queue="q", exchange="amq.direct", routing_key="k", nowait=True),
        commands.Queue.Purge(queue="q", nowait=True),
    )
    assert client.take() == []
    client.publish(1, "k", b"x", exchange="amq.direct")
    assert client.get("q").body == b"x"


def test_a_queue_that_expired_is_declared_anew(world: Any, client: Any) -> None:
    """L10: a later use gets 404; a declare makes a new queue."""
    client.declare("leased", arguments={"x-expires": 1000})
    client.publish(1, "leased")
    world.advance(1100)
    refused(client, commands.Basic.Get(queue="leased"), 404, "NOT_FOUND - no queue 'leased' in vhost '/'")
    assert client.declare("leased", arguments={"x-expires": 1000}).message_count == 0


def test_a_declare_that_meets_a_tombstone_starts_again(world: Any, client: Any) -> None:
    """The shard has deleted the queue, the catalog does not know yet."""
    client.declare("leased", arguments={"x-expires": 1000})
    old = world.cluster.catalog.queue("/", "leased")
    removals: list[Any] = []
    world.cluster.shards[old.shard]._duties._port = type(
        "Slow",
        (),
        {
            "remove_queues": lambda self, ids, done: removals.append(ids),
            "transfer": None,
            "received_up_to": None,
        },
    )()
    world.advance(1100)
    assert world.cluster.catalog.queue("/", "leased") is not None
    assert removals
    assert client.declare("leased", arguments={"x-expires": 1000}).message_count == 0
    assert world.cluster.catalog.queue("/", "leased").id != old.id


def test_a_declare_waits_and_what_follows_waits_behind_it(world: Any, client: Any) -> None:
    world.running = False
    client.send(1, commands.Queue.Declare(queue="q", durable=True))
    client.send_bytes(client.publish_bytes(1, "q", b"after"))
    client.send(1, commands.Basic.Get(queue="q", no_ack=True))
    assert client.take(1) == []
    assert client.connection.pressure.waiting_bytes > 0
    world.running = True
    world.settle()
    declared, got = client.take(1)
    assert isinstance(declared, commands.Queue.DeclareOk)
    assert got.body == b"after"
    assert client.connection.pressure.waiting_bytes == 0


def test_a_channel_closed_while_its_operation_waits_gives_everything_back(world: Any, client: Any) -> None:
    client.declare("q")
    client.publish(1, "q")
    world.running = False
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="t"))
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    world.running = True
    world.settle()
    assert not world.broker.consumers.by_id
    client.take()
    client.open_channel(1)
    got = client.declare("q", passive=True)
    assert (got.message_count, got.consumer_count) == (1, 0)


def test_a_type_that_names_none_is_none(client: Any) -> None:
    """Golden type4.spellings_and_none: "" and "undefined" are as no type, whichever is said first."""
    types: list[dict[str, Any]] = [{}, {"x-queue-type": ""}, {"x-queue-type": "undefined"}, {"x-queue-type": "classic"}]
    for first in types:
        for later in types:
            for arguments in (first, later):
                got = client.call(1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
                assert isinstance(got, commands.Queue.DeclareOk)
        text = "received 'quorum' but current is 'classic'"
        quorum = commands.Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": "quorum"})
        assert client.call(1, quorum).reply_text.endswith(text)
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
        client.call(1, commands.Queue.Delete(queue="q"))
