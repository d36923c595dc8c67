"""Messages that say when they are due, as a client sees them, with fake time (RULES S2, S3)."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_SCHEDULES
from mayfly.node.catalog import PolicySet, SetPolicy
from mayfly.node.catalog.arguments import unbuilt_refusal
from tests.golden import delayed_retries

ALLOWED = {"x-allow-schedule": True}


def in_ms(world: Any, milliseconds: int) -> int:
    """A moment, in ms since 1970."""
    return int(world.cluster.now_ms) + milliseconds


def bodies(client: Any, queue: str) -> list[str]:
    found = []
    while hasattr(got := client.get(queue), "body"):
        found.append(got.body.decode())
    return found


def publish(client: Any, body: str, headers: dict[str, Any]) -> None:
    client.publish(1, "q", body.encode(), headers=headers)


def test_s2_s3_messages_are_ready_when_they_are_due(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    publish(client, "late", {"x-delay": 3000})
    publish(client, "soon", {"x-deliver-at": in_ms(world, 2000)})
    publish(client, "past", {"x-deliver-at": 1})
    assert bodies(client, "q") == ["past"]
    world.advance(1900)
    assert bodies(client, "q") == []
    world.advance(400)
    assert bodies(client, "q") == ["soon"]
    world.advance(1000)
    assert bodies(client, "q") == ["late"]


def test_s2_a_delay_in_digits_or_with_a_fraction_is_one(world: Any, client: Any) -> None:
    """S2, S1: as the plugin reads it, the fraction cut off."""
    client.declare("q", arguments=ALLOWED)
    for body, delay in (("c", "2000"), ("a", 1000.75), ("b", 1000.75), ("now", "0"), ("too", 0.9)):
        publish(client, body, {"x-delay": delay})
    assert client.take() == []
    assert bodies(client, "q") == ["now", "too"]
    world.advance(900)
    assert bodies(client, "q") == []
    world.advance(400)
    assert bodies(client, "q") == ["a", "b"]
    world.advance(1000)
    assert bodies(client, "q") == ["c"]


def test_s2_a_timestamp_is_a_time_too(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    at = datetime.datetime.fromtimestamp(in_ms(world, 5000) // 1000, datetime.UTC)
    publish(client, "m", {"x-deliver-at": at})
    world.advance(3500)
    assert bodies(client, "q") == []
    world.advance(2000)
    assert bodies(client, "q") == ["m"]


def test_s2_without_the_opt_in_the_headers_mean_nothing(client: Any) -> None:
    client.declare("q")
    publish(client, "a", {"x-delay": 3000})
    publish(client, "b", {"x-delay": "soon"})
    publish(client, "c", {"x-deliver-at": -1, "x-delay": 7.5})
    assert bodies(client, "q") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-delay": -1}, "invalid message: x-delay = -1: an integer from 0 to 315360000000 is expected, milliseconds"),
        ({"x-delay": 315_360_000_001}, "invalid message: x-delay = 315360000001: an integer from 0 to 315360000000 is"),
        ({"x-delay": "soon"}, "invalid message: x-delay = 'soon' (longstr): an integer"),
        ({"x-delay": "-5"}, "invalid message: x-delay = '-5' (longstr): an integer"),
        ({"x-delay": "1.5"}, "invalid message: x-delay = '1.5' (longstr): an integer"),
        ({"x-delay": ""}, "invalid message: x-delay = '' (longstr): an integer"),
        ({"x-delay": "315360000001"}, "invalid message: x-delay = '315360000001' (longstr): an integer"),
        ({"x-delay": "9" * 5000}, "invalid message: x-delay = '999"),
        ({"x-delay": -0.5}, "invalid message: x-delay = -0.5 (float): an integer"),
        ({"x-delay": math.nan}, "invalid message: x-delay = nan (float): an integer"),
        ({"x-delay": math.inf}, "invalid message: x-delay = inf (float): an integer"),
        ({"x-delay": 1e30}, "invalid message: x-delay = 1.0000000150474662e+30 (float): an integer"),
        ({"x-delay": None}, "invalid message: x-delay = void: an integer"),
        ({"x-delay": True}, "invalid message: x-delay = True (bool): an integer"),
        ({"x-deliver-at": -1}, "invalid message: x-deliver-at = -1: an integer"),
        ({"x-deliver-at": 1.5}, "invalid message: x-deliver-at = 1.5 (float): an integer"),
        ({"x-deliver-at": "5"}, "invalid message: x-deliver-at = '5' (longstr): an integer"),
        ({"x-deliver-at": "2030-01-01"}, "invalid message: x-deliver-at = '2030-01-01' (longstr): an integer"),
        ({"x-deliver-at": 1, "x-delay": 1}, "invalid message: x-deliver-at and x-delay are both there"),
    ],
)
def test_s2_what_is_no_time_is_refused_and_nothing_is_stored(client: Any, headers: dict[str, Any], told: str) -> None:
    client.declare("q", arguments=ALLOWED)
    publish(client, "m", headers)
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - {told}")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.declare("q", arguments=ALLOWED).message_count == 0


def test_s2_a_time_counts_from_1970_whatever_the_client_is_ticked_with(world: Any, client: Any) -> None:
    """S2: time limits of connections go by a clock that counts from when the machine started."""
    client.declare("q", arguments=ALLOWED)
    world.cluster.tick(1_800_000_000_000)
    client.connection.tick(3_600_000)
    publish(client, "m", {"x-deliver-at": in_ms(world, 5000)})
    assert client.take() == []
    world.advance(5300)
    assert bodies(client, "q") == ["m"]


def test_s2_a_time_ten_years_away_is_refused(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    publish(client, "m", {"x-deliver-at": in_ms(world, 315_360_000_000 - 1000)})
    assert client.take() == []
    publish(client, "m", {"x-deliver-at": in_ms(world, 315_360_000_000 + 1000)})
    (closed,) = client.take()
    assert "x-deliver-at" in closed.reply_text


def test_s2_the_argument_is_a_boolean(client: Any) -> None:
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-allow-schedule": "yes"}))
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert "invalid arg 'x-allow-schedule' for queue 'q' in vhost '/'" in closed.reply_text


def test_s2_in_a_transaction_a_delay_counts_from_the_commit(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    client.call(1, commands.Tx.Select())
    publish(client, "m", {"x-delay": 1000})
    world.advance(5000)
    client.call(1, commands.Tx.Commit())
    client.open_channel(2)
    assert not hasattr(client.get("q", channel=2), "body")
    world.advance(1300)
    assert client.get("q", channel=2).body == b"m"


def test_s2_each_queue_of_a_fan_out_goes_by_its_own_opt_in(world: Any, client: Any) -> None:
    client.declare("waits", arguments=ALLOWED)
    client.declare("not")
    for queue in ("waits", "not"):
        client.call(1, commands.Queue.Bind(queue=queue, exchange="amq.fanout"))
    client.publish(1, "", b"m", exchange="amq.fanout", headers={"x-delay": 1000})
    assert bodies(client, "not") == ["m"]
    assert bodies(client, "waits") == []
    world.advance(1300)
    assert bodies(client, "waits") == ["m"]


def test_s2_a_policy_allows_it_and_the_argument_wins(world: Any, client: Any) -> None:
    client.declare("q")
    client.declare("not", arguments={"x-allow-schedule": False})
    assert isinstance(world.cluster.catalog.apply(SetPolicy("/", "p", "", {"allow-schedule": True})), PolicySet)
    world.advance(500)
    for queue in ("q", "not"):
        client.publish(1, queue, b"m", headers={"x-delay": 1000})
    assert bodies(client, "not") == ["m"]
    assert bodies(client, "q") == []
    world.advance(1300)
    assert bodies(client, "q") == ["m"]


RETRIES = {"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}


def test_s5_what_is_nacked_comes_back_when_it_is_due(world: Any, client: Any) -> None:
    """Golden retry4.all_returns_wait."""
    client.declare("q", arguments={**RETRIES, "x-delayed-retry-max": 5000})
    for body in (b"a", b"b"):
        client.publish(1, "q", body)
    first = client.get("q", no_ack=False)
    client.send(1, commands.Basic.Nack(delivery_tag=first.method.delivery_tag, requeue=True))
    assert client.get("q").body == b"b"
    assert client.declare("q", arguments={**RETRIES, "x-delayed-retry-max": 5000}).message_count == 0
    world.advance(900)
    assert not hasattr(client.get("q"), "body")
    world.advance(400)
    back = client.get("q")
    assert back.body == b"a"
    assert back.method.redelivered
    assert back.properties.headers == {"x-acquired-count": 1}


def waits_ms(world: Any) -> int:
    """How long the first message that waits in `q` has still to wait; 0 where none does."""
    record = world.cluster.catalog.queue("/", "q")
    shard = world.cluster.shards[record.shard].shard
    schedule = shard.queue(record.id).schedule
    return 0 if schedule is None or not schedule.count else int(schedule.next_due_ms() - shard.time_ms)


@pytest.mark.parametrize("ladder", delayed_retries.LADDERS, ids=" ".join)
@pytest.mark.parametrize("retry_type", delayed_retries.TYPES)
def test_s5_the_delays_are_those_recorded_of_rabbitmq(
    world: Any, client: Any, retry_type: str, ladder: tuple[str, ...]
) -> None:
    """S5: one message, answered again and again, in quorum queues of 4.3.6; there to the nearest 100 ms."""
    recorded = json.loads(delayed_retries.RECORDING.read_text(encoding="utf-8"))
    client.declare("q", arguments=delayed_retries.arguments(retry_type))
    client.publish(1, "q", b"m")
    waited_ms = []
    for answer in ladder:
        tag = client.get("q", no_ack=False).method.delivery_tag
        kind = commands.Basic.Reject if answer == delayed_retries.REJECT else commands.Basic.Nack
        client.send(1, kind(delivery_tag=tag, requeue=True))
        waited_ms.append(waits_ms(world))
        world.advance(waited_ms[-1] + 300)
    assert waited_ms == recorded[delayed_retries.key(retry_type, ladder)]


def test_s5_by_policy(world: Any, client: Any) -> None:
    client.declare("q")
    definition = {"delayed-retry-min": 1000, "delayed-retry-multiplier": 2}
    assert isinstance(world.cluster.catalog.apply(SetPolicy("/", "p", "", definition)), PolicySet)
    world.advance(500)
    client.publish(1, "q")
    for wait_ms in (1000, 2000, 4000):
        got = client.get("q", no_ack=False)
        client.send(1, commands.Basic.Reject(delivery_tag=got.method.delivery_tag, requeue=True))
        world.advance(wait_ms - 100)
        assert not hasattr(client.get("q"), "body")
        world.advance(400)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"x-delayed-retry-type": "some"}, "'x-delayed-retry-type' for queue 'q' in vhost '/': "
            "\"unsupported delayed retry type 'some', one of: all, failed, returned, disabled\""),
        ({"x-delayed-retry-type": "all"}, "'x-delayed-retry-type' for queue 'q' in vhost '/': "
            "\"delayed-retry-min is required when delayed-retry-type is all\""),
        ({"x-delayed-retry-max": 5}, "'x-delayed-retry-max' for queue 'q' in vhost '/': "
            "\"delayed-retry-min is required when there is delayed-retry-max\""),
        ({"x-delayed-retry-min": 0}, "'x-delayed-retry-min' for queue 'q' in vhost '/': {value_zero,0}"),
        ({"x-delayed-retry-min": "1"}, "'x-delayed-retry-min' for queue 'q' in vhost '/': "
            "\"expected integer, got longstr\""),
        ({"x-delayed-retry-min": 315_360_000_001}, "'x-delayed-retry-min' for queue 'q' in vhost '/': "
            "{value_too_large,315360000001}"),
        ({"x-delayed-retry-min": 1000, "x-delayed-retry-max": 500}, "delayed-retry-max (500) must not be smaller than "
            "delayed-retry-min (1000)\""),
        ({"x-delayed-retry-min": 1, "x-delayed-retry-multiplier": 0}, "{value_zero,0}"),
        ({"x-delayed-retry-min": 1, "x-delayed-retry-jitter": 2}, "\"expected a number from 0 to 1, got 2\""),
        ({"x-delayed-retry-min": 1, "x-delayed-retry-jitter": "x"}, "\"expected a number from 0 to 1, got longstr\""),
    ],
)  # fmt: skip
def test_s5_bad_arguments_are_refused(client: Any, arguments: dict[str, Any], told: str) -> None:
    """4.3.6 does not look at most of them, which is not to be copied."""
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.endswith(told)


@pytest.mark.parametrize("key", ["x-delayed-retry-min", "x-delayed-retry-type"])
def test_s5_below_its_level_retries_are_refused(key: str) -> None:
    """What would be ignored by members that do not know it."""
    refusal = unbuilt_refusal("/", "q", {key: 5}, LEVEL_SCHEDULES - 1)
    assert refusal is not None and key in refusal.text
    assert unbuilt_refusal("/", "q", {key: 5}, LEVEL_SCHEDULES) is None


def test_s2_s5_queues_in_the_memory_of_a_node_wait_too(world: Any, client: Any) -> None:
    """What comes back goes to its old place there, once it has waited."""
    arguments = {**ALLOWED, "x-delayed-retry-min": 1000}
    client.declare("q", exclusive=True, durable=False, arguments=arguments)
    publish(client, "later", {"x-delay": 2000})
    publish(client, "a", {})
    publish(client, "b", {})
    first = client.get("q", no_ack=False)
    client.send(1, commands.Basic.Nack(delivery_tag=first.method.delivery_tag, requeue=True))
    assert bodies(client, "q") == ["b"]
    world.advance(900)
    assert bodies(client, "q") == []
    world.advance(400)
    assert bodies(client, "q") == ["a"]
    world.advance(1000)
    assert bodies(client, "q") == ["later"]


def cancel(client: Any, message_id: object, mandatory: bool = True, **more: object) -> list[str]:
    """What a publish that cancels is answered: names of methods."""
    headers = {"x-schedule-cancel": message_id, **{name.replace("_", "-"): value for name, value in more.items()}}
    client.publish(1, "q", b"", headers=headers, mandatory=mandatory)
    return [type(each).__name__ for each in client.take()]


def test_s4_a_cancel_is_confirmed_and_its_message_never_delivered(world: Any, client: Any) -> None:
    """S4: returned as unroutable if mandatory and nothing waits, confirmed all the same."""
    client.declare("q", arguments=ALLOWED)
    client.call(1, commands.Confirm.Select())
    client.publish(1, "q", b"a", message_id="a", headers={"x-delay": 1000})
    client.publish(1, "q", b"b", message_id="b", headers={"x-delay": 1000})
    client.take()
    assert cancel(client, "a") == ["Ack"]
    assert cancel(client, "a") == ["Delivery", "Ack"]
    assert cancel(client, "a", mandatory=False) == ["Ack"]
    world.advance(1300)
    assert bodies(client, "q") == ["b"]
    assert cancel(client, "b") == ["Delivery", "Ack"]


def test_s4_a_cancel_without_confirms_is_returned_if_nothing_waits(world: Any, client: Any) -> None:
    """S4."""
    client.declare("q", arguments=ALLOWED)
    client.publish(1, "q", b"a", message_id="a", headers={"x-delay": 1000})
    assert cancel(client, "a") == []
    assert cancel(client, "a") == ["Delivery"]
    world.advance(1300)
    assert bodies(client, "q") == []


def test_s4_a_cancel_with_a_time_reschedules(world: Any, client: Any) -> None:
    """S4."""
    client.declare("q", arguments=ALLOWED)
    client.publish(1, "q", b"a", message_id="a", headers={"x-delay": 1000})
    assert cancel(client, "a", x_delay=3000) == []
    world.advance(2800)
    assert bodies(client, "q") == []
    world.advance(500)
    assert bodies(client, "q") == ["a"]


def test_s4_a_cancel_of_several_queues_is_returned_if_nothing_waits_in_any(world: Any, client: Any) -> None:
    """S4: a publish to the same place means what it has put into each of its queues."""
    for queue in ("q", "other", "not"):
        client.declare(queue, arguments={} if queue == "not" else ALLOWED)
        client.call(1, commands.Queue.Bind(queue=queue, exchange="amq.fanout"))
    client.call(1, commands.Confirm.Select())
    client.publish(1, "q", b"a", message_id="a", headers={"x-delay": 1000})
    client.publish(1, "", b"b", exchange="amq.fanout", message_id="b", headers={"x-delay": 1000})
    client.take()

    def cancelled(message_id: str) -> list[str]:
        headers = {"x-schedule-cancel": message_id}
        client.publish(1, "", b"", exchange="amq.fanout", headers=headers, mandatory=True)
        return [type(each).__name__ for each in client.take()]

    assert cancelled("a") == ["Ack"]
    assert cancelled("b") == ["Ack"]
    assert cancelled("b") == ["Delivery", "Ack"]
    world.advance(1300)
    assert [bodies(client, queue) for queue in ("q", "other", "not")] == [[], [], ["b"]]


@pytest.mark.parametrize("message_id", ["", "i" * 256, 5, None, True])
def test_s4_what_is_no_message_id_is_refused(client: Any, message_id: object) -> None:
    """S4: by name and value."""
    client.declare("q", arguments=ALLOWED)
    client.publish(1, "q", b"", headers={"x-schedule-cancel": message_id})
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert "invalid message: x-schedule-cancel = " in closed.reply_text
    assert "a message id is expected" in closed.reply_text


def test_s4_a_cancel_in_a_transaction_is_refused(client: Any) -> None:
    """S4: a commit can't say that nothing was waiting."""
    client.declare("q", arguments=ALLOWED)
    client.call(1, commands.Tx.Select())
    client.publish(1, "q", b"", headers={"x-schedule-cancel": "a"})
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert "x-schedule-cancel can be no part of a transaction" in closed.reply_text


def test_s4_without_the_opt_in_a_cancel_means_nothing(client: Any) -> None:
    """S4, S2: it is a message like any other."""
    client.declare("q")
    client.publish(1, "q", b"m", headers={"x-schedule-cancel": "a"})
    assert bodies(client, "q") == ["m"]
