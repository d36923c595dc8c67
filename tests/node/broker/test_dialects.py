"""Queues in the ways of LavinMQ and OtterMQ, as a client sees them (RULES X1; docs/dialects.md)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_TTL_DIALECTS
from mayfly.node.catalog import Catalog, DeclareQueue, PolicySet, RaiseLevel, Refusal, SetPolicy
from mayfly.node.catalog.shard_settings import shard_settings
from tests.node.conftest import Client, World
from tests.node.readings import statistics_of

DIALECTS = ("rabbitmq", "lavinmq", "ottermq")
EACH = pytest.mark.parametrize("dialect", DIALECTS)
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def set_policy(world: World, definition: dict[str, Any], **more: Any) -> Any:
    answers: list[Any] = []
    world.cluster.submit_catalog(SetPolicy("/", "p", "^q", definition, **more), answers.append)
    world.settle()
    world.advance(1500)
    return answers[0]


def ask(dialect: str, **more: Any) -> Any:
    return {"x-ttl-dialect": dialect, **more}


def with_dead(client: Client, dialect: str, **more: Any) -> None:
    """A queue `q`, and `dead` where its dead letters go."""
    client.declare("dead")
    client.declare("q", arguments=ask(dialect, **TO_DEAD, **more))


def deaths(client: Client, queue: str = "dead") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(queue).properties.headers["x-death"]
    return found


def refused(client: Client) -> str:
    (close,) = [item for item in client.take() if isinstance(item, commands.Channel.Close)]
    return str(close.reply_text)


@pytest.mark.parametrize("flags", [{"durable": True}, {"durable": False}])
@EACH
def test_x1_ttl_by_property_and_by_argument(
    world: World, client: Client, dialect: str, flags: dict[str, Any]
) -> None:
    """RULES X1, T1, T2: replicated queues and transient ones."""
    client.declare("q", arguments=ask(dialect, **{"x-message-ttl": 1000}), **flags)
    client.declare("p", arguments=ask(dialect), **flags)
    client.publish(1, "q")
    client.publish(1, "p", expiration="1000")
    world.advance(800)
    assert client.get("q", no_ack=False).body == client.get("p", no_ack=False).body == b"m"
    client.send(1, commands.Basic.Recover(requeue=True))
    client.take()
    world.advance(400)
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)
    assert isinstance(client.get("p"), commands.Basic.GetEmpty)


def test_x1_the_dialect_by_argument_and_policies(world: World, client: Client) -> None:
    """RULES X1: the argument, else the policy, else the operator policy; a changed one counts from then on."""
    client.declare("q")
    client.declare("qq", arguments=ask("rabbitmq"))
    assert isinstance(set_policy(world, {"ttl-dialect": "lavinmq"}, operator=True), PolicySet)
    assert isinstance(set_policy(world, {"ttl-dialect": "ottermq", "message-ttl": 100}), PolicySet)
    for queue in ("q", "qq"):
        client.publish(1, queue)
    world.advance(1000)
    assert (client.count("q"), client.count("qq")) == (1, 0)
    wrong = set_policy(world, {"ttl-dialect": "kafka"})
    assert isinstance(wrong, Refusal) and "rabbitmq, lavinmq or ottermq" in wrong.text
    client.send(1, commands.Queue.Declare(queue="r", durable=True, arguments=ask("kafka")))
    assert refused(client).endswith("invalid arg 'x-ttl-dialect' for queue 'r' in vhost '/': invalid_ttl_dialect")


def test_x1_lavinmq_a_policys_ttl_counts_for_what_is_queued(world: World, client: Client) -> None:
    """RULES X1: changing the queue's TTL affects messages that are there, without x-ttl-applies."""
    client.declare("q", arguments=ask("lavinmq"))
    client.publish(1, "q")
    set_policy(world, {"message-ttl": 5000})
    assert client.count("q") == 1
    world.advance(4000)
    assert client.count("q") == 0


def test_x1_lavinmq_ttl_zero(world: World, client: Client) -> None:
    """RULES X1."""
    with_dead(client, "lavinmq", **{"x-message-ttl": 0})
    client.publish(1, "q", b"nobody")
    world.advance(300)
    assert client.get("dead").body == b"nobody"
    assert client.consume("q") == []
    client.publish(1, "q", b"somebody")
    assert [item.body for item in client.take(1)] == [b"somebody"]


@EACH
def test_x1_an_expired_message_is_dead_lettered_or_gone(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D2: with a dead-letter exchange, reason expired; without one silently."""
    with_dead(client, dialect)
    client.declare("alone", arguments=ask(dialect))
    for queue in ("q", "alone"):
        client.publish(1, queue, expiration="100")
    world.advance(1000)
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)
    assert isinstance(client.get("alone"), commands.Basic.GetEmpty)
    world.advance(300)
    (death,) = deaths(client)
    assert (death["reason"], death["original-expiration"]) == ("expired", "100")
    assert isinstance(client.get("dead"), commands.Basic.GetEmpty)


@EACH
def test_x1_deaths_are_told_newest_first_with_counts(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D3, D4: fields, order and counts; first deaths stay; OtterMQ's time is a text."""
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.declare("q", arguments=ask(dialect, **TO_DEAD))
    client.declare("dead", arguments=ask(dialect, **back))
    client.publish(1, "q", expiration="60000")
    for queue in ("q", "dead", "q"):
        tag = client.get(queue, no_ack=False).tag
        client.send(1, commands.Basic.Reject(tag, requeue=False))
        world.advance(300)
    got = client.get("dead")
    assert got.properties.expiration is None
    headers = got.properties.headers
    first, second = headers["x-death"]
    assert [(each["queue"], each["count"], each["reason"]) for each in (first, second)] == [
        ("q", 2, "rejected"), ("dead", 1, "rejected"),
    ]  # fmt: skip
    assert {"count", "reason", "queue", "time", "exchange", "routing-keys"} <= first.keys()
    assert (first["exchange"], first["routing-keys"]) == ("", ["q"])
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("q", "rejected")
    assert headers["x-first-death-exchange"] == ""
    if dialect == "ottermq":
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each["time"]) for each in (first, second))
    else:
        assert not isinstance(first["time"], str)


@EACH
def test_x1_original_routing_keys_without_a_dead_letter_key(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D1, D3: the key it came with, and CC in its history."""
    client.declare("dead")
    client.call(1, commands.Queue.Bind(queue="dead", exchange="amq.direct", routing_key="q"))
    client.declare("q", arguments=ask(dialect, **{"x-dead-letter-exchange": "amq.direct"}))
    client.publish(1, "q", headers={"CC": ["other"]})
    tag = client.get("q", no_ack=False).tag
    client.send(1, commands.Basic.Reject(tag, requeue=False))
    world.advance(300)
    (death,) = deaths(client)
    assert death["routing-keys"] == ["q", "other"]


@EACH
def test_x1_length_limits(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D2: drop-head dead-letters with maxlen; reject-publish nacks, and dead-letters nothing."""
    with_dead(client, dialect, **{"x-max-length": 1})
    client.declare("full", arguments=ask(dialect, **TO_DEAD, **{"x-max-length": 1, "x-overflow": "reject-publish"}))
    client.open_channel(2, confirms=True)
    for queue in ("q", "q", "full", "full"):
        client.publish(2, queue)
        world.settle()
    world.advance(300)
    assert sum(nacked for _, _, nacked in client.acks(2)) == 1
    (death,) = deaths(client)
    assert (death["queue"], death["reason"]) == ("q", "maxlen")
    assert client.count("dead") == 0


@EACH
def test_x1_delivery_limits(world: World, client: Client, dialect: str) -> None:
    """RULES X1, Q1: LavinMQ's counts a nack as well; x-delivery-count says how many there were."""
    with_dead(client, dialect, **{"x-delivery-limit": 1})
    client.publish(1, "q")
    counts = []
    for _ in range(3):
        got = client.get("q", no_ack=False)
        if isinstance(got, commands.Basic.GetEmpty):
            break
        counts.append((got.properties.headers or {}).get("x-delivery-count"))
        client.send(1, commands.Basic.Nack(got.tag))
    world.advance(300)
    assert counts == ([None, 1] if dialect == "lavinmq" else [None, None, None])
    if dialect == "lavinmq":
        assert deaths(client)[0]["reason"] == "delivery_limit"


@EACH
def test_x1_cycles_end_but_for_rejected_ones(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D5: also in the dialect of OtterMQ, which has no such thing yet."""
    client.declare("q", arguments=ask(dialect, **{"x-dead-letter-exchange": "", "x-message-ttl": 100}))
    client.publish(1, "q")
    for _ in range(4):
        world.advance(1000)
        assert isinstance(client.get("q"), commands.Basic.GetEmpty)
    world.advance(300)
    assert client.count("q") == 0


@EACH
def test_x1_no_exchange_and_no_route(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D8: OtterMQ drops these; with a strategy that somebody chose it keeps them."""
    client.declare("q", arguments=ask(dialect, **{"x-dead-letter-exchange": "nowhere"}))
    client.declare("r", arguments=ask(dialect, **{"x-dead-letter-exchange": "amq.direct"}))
    kept: Any = {"x-dead-letter-exchange": "nowhere", "x-dead-letter-strategy": "at-least-once"}
    client.declare("s", arguments=ask(dialect, **kept))
    for queue in ("q", "r", "s"):
        client.publish(1, queue)
        client.send(1, commands.Basic.Reject(client.get(queue, no_ack=False).tag, requeue=False))
    world.advance(300)
    shards = [statistics_of(world.cluster.shards[shard].shard) for shard in world.cluster.shards]
    parked, dropped = sum(each.parked for each in shards), sum(each.dropped_unroutable for each in shards)
    assert (parked, dropped) == ((1, 2) if dialect == "ottermq" else (3, 0))


@EACH
def test_x1_a_rejection_that_is_rolled_back_is_none(world: World, client: Client, dialect: str) -> None:
    """RULES X1: the message comes back, and no dead letter goes."""
    with_dead(client, dialect)
    client.publish(1, "q")
    client.open_channel(2)
    client.call(2, commands.Tx.Select())
    tag = client.get("q", channel=2, no_ack=False).tag
    client.send(2, commands.Basic.Reject(tag, requeue=False))
    client.call(2, commands.Tx.Rollback())
    client.call(2, commands.Channel.Close(200, "", 0, 0))
    world.advance(300)
    assert (client.count("q"), client.count("dead")) == (1, 0)


@EACH
def test_x1_a_dead_letter_stays_persistent(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D3: its properties but the expiration stay as they are."""
    with_dead(client, dialect)
    client.publish(1, "q", delivery_mode=2, message_id="7")
    client.send(1, commands.Basic.Reject(client.get("q", no_ack=False).tag, requeue=False))
    world.advance(300)
    properties = client.get("dead").properties
    assert (properties.delivery_mode, properties.message_id) == (2, "7")


@EACH
def test_x1_headers_of_a_message_choose_no_dead_letter_exchange(world: World, client: Client, dialect: str) -> None:
    """RULES X1, D10: LavinMQ documents that they do; here who publishes may write to one exchange, not to any."""
    client.declare("elsewhere")
    with_dead(client, dialect)
    headers = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "elsewhere"}
    client.publish(1, "q", headers=headers)
    client.send(1, commands.Basic.Reject(client.get("q", no_ack=False).tag, requeue=False))
    world.advance(300)
    assert (client.count("elsewhere"), client.count("dead")) == (0, 1)


@EACH
def test_x1_an_expired_queue_takes_its_messages_with_it(world: World, client: Client, dialect: str) -> None:
    """RULES X1, L4: with x-expires of at least 1 ms, without dead letters; publishing does not renew."""
    with_dead(client, dialect, **{"x-expires": 2000})
    for _ in range(3):
        client.publish(1, "q")
        world.advance(500)
    world.advance(1500)
    client.send(1, commands.Queue.Declare(queue="q", passive=True))
    assert "NOT_FOUND" in refused(client)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.count("dead") == 0


@pytest.mark.parametrize("level", [LEVEL_TTL_DIALECTS - 1, LEVEL_TTL_DIALECTS])
def test_x1_dialects_wait_for_the_level(level: int) -> None:
    """RULES X1: a log from before may have the argument, of which nobody knew; then it counts for nothing."""
    catalog = Catalog(1)
    catalog.apply(RaiseLevel(level, ()))
    assert isinstance(catalog.apply(SetPolicy("/", "p", "", {"ttl-dialect": "lavinmq"})), Refusal) == (
        level < LEVEL_TTL_DIALECTS
    )
    catalog.apply(DeclareQueue("/", "q", True, False, False, ask("ottermq")))
    queue = catalog.queue("/", "q")
    assert queue is not None
    assert shard_settings(catalog, queue).ttl_dialect == ("ottermq" if level >= LEVEL_TTL_DIALECTS else "rabbitmq")
