"""Policies on queues that are there: what clients see change, in replicated shards and in one node's memory."""
from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import CatalogCommand, ClearPolicy, PolicySet, SetPolicy


def apply(world: Any, command: CatalogCommand) -> Any:
    """Give the command as a node does; what it answers."""
    answers: list[Any] = []
    world.cluster.submit_catalog(command, answers.append)
    world.settle()
    return answers[0]


def put(world: Any, definition: dict[str, Any], pattern: str = "^q", **options: Any) -> None:
    command = SetPolicy("/", options.pop("name", "p"), pattern, definition, **options)
    assert isinstance(apply(world, command), PolicySet)


FLAGS = pytest.mark.parametrize(
    "flags", [{"durable": True}, {"durable": False}, {"durable": True, "exclusive": True}, {"auto_delete": True}]
)


@FLAGS
def test_t12_message_ttl_counts_for_what_is_enqueued_after_it(world: Any, client: Any, flags: dict[str, Any]) -> None:
    """Golden policy.message_ttl_retroactive (whose name is misleading)."""
    client.declare("q", **flags)
    client.publish(1, "q", b"before")
    put(world, {"message-ttl": 400})
    world.advance(100)
    client.publish(1, "q", b"after")
    world.advance(1000)
    assert client.get("q").body == b"before"
    client.publish(1, "q", b"later")
    world.advance(1000)
    assert isinstance(client.get("q"), commands.Basic.GetEmpty)


@FLAGS
def test_t12_retroactive_counts_for_what_is_queued_too(world: Any, client: Any, flags: dict[str, Any]) -> None:
    client.declare("q", **flags)
    client.publish(1, "q", b"before")
    world.advance(1000)
    put(world, {"message-ttl": 1300, "ttl-applies": "retroactive"})
    world.advance(200)
    assert client.count("q") == 1, "counted from the enqueue time, it has 100 ms left"
    world.advance(200)
    assert client.count("q") == 0


@FLAGS
def test_l9_expires_counts_from_the_change_on(world: Any, client: Any, flags: dict[str, Any]) -> None:
    """Golden policy.expires_by_policy."""
    client.declare("q", **flags)
    world.advance(5000)
    put(world, {"expires": 1000})
    world.advance(900)
    assert world.cluster.catalog.queue("/", "q") is not None
    world.advance(400)
    assert world.cluster.catalog.queue("/", "q") is None


@FLAGS
def test_l9_other_changes_leave_the_lease_alone(world: Any, client: Any, flags: dict[str, Any]) -> None:
    """Also one of `expires` itself that is not the lowest value."""
    client.declare("q", arguments={"x-expires": 1000}, **flags)
    world.advance(600)
    put(world, {"message-ttl": 7, "expires": 2000})
    world.advance(200)
    put(world, {"dead-letter-exchange": "", "expires": 3000})
    world.advance(250)
    assert world.cluster.catalog.queue("/", "q") is None


def test_l9_a_lower_expires_takes_effect_and_a_deleted_policy_too(world: Any, client: Any) -> None:
    client.declare("q", arguments={"x-expires": 1000})
    put(world, {"expires": 300})
    world.advance(200)
    assert apply(world, ClearPolicy("/", "p")).changed
    world.advance(900)
    assert world.cluster.catalog.queue("/", "q") is not None, "the lease began anew with the change"
    world.advance(250)
    assert world.cluster.catalog.queue("/", "q") is None


@FLAGS
def test_d1_dead_letters_by_policy_on_a_queue_that_is_there(world: Any, client: Any, flags: dict[str, Any]) -> None:
    """Golden policy.dead_letter_by_policy."""
    client.declare("dead")
    client.declare("q", arguments={"x-message-ttl": 300}, **flags)
    put(world, {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    world.advance(50)
    client.publish(1, "q", b"m")
    world.advance(1000)
    assert client.get("dead").body == b"m"
    apply(world, ClearPolicy("/", "p"))
    world.advance(50)
    client.publish(1, "q", b"m")
    world.advance(1000)
    assert isinstance(client.get("dead"), commands.Basic.GetEmpty)


def test_a_policy_that_is_there_counts_from_the_declare_on(world: Any, client: Any) -> None:
    """Goldens policy.message_ttl, policy.lower_of_policy_and_argument: without a tick between."""
    put(world, {"message-ttl": 400})
    client.declare("q")
    client.declare("q2", arguments={"x-message-ttl": 200})
    client.publish(1, "q")
    client.publish(1, "q2")
    world.advance(300)
    assert (client.count("q"), client.count("q2")) == (1, 0)
    world.advance(200)
    assert client.count("q") == 0


def test_operator_policy_caps(world: Any, client: Any) -> None:
    """Golden policy.operator_policy_caps; names of the two kinds do not meet."""
    client.declare("q")
    put(world, {"message-ttl": 20_000})
    put(world, {"message-ttl": 300}, operator=True)
    world.advance(50)
    client.publish(1, "q")
    world.advance(400)
    assert client.count("q") == 0
    apply(world, ClearPolicy("/", "p", operator=True))
    world.advance(50)
    client.publish(1, "q")
    world.advance(400)
    assert client.count("q") == 1


def test_a_queue_that_is_created_with_the_settings_of_a_moment_ago_is_told(world: Any, client: Any) -> None:
    """The node that declares may learn of the policy after it has worked out what to tell the shard."""
    cluster = world.cluster
    world.running = False
    client.send(1, commands.Queue.Declare(queue="q", durable=True))
    # The declare is applied, and the shard's CREATE_QUEUE is on its way when the policy comes.
    cluster._pump_catalog()
    put_command = SetPolicy("/", "p", "", {"message-ttl": 100})
    cluster.catalog.apply(put_command)
    world.running = True
    world.settle()
    queue = cluster.catalog.queue("/", "q")
    told = cluster.shards[queue.shard].shard.queue(queue.id)
    assert told.settings.message_ttl_ms is None
    world.advance(50)
    assert cluster.shards[queue.shard].shard.queue(queue.id).settings.message_ttl_ms == 100


@FLAGS
def test_d2_limits_by_policy_count_at_once_for_publishers_who_were_there_before(
    world: Any, client: Any, flags: dict[str, Any]
) -> None:
    """A lowered drop-head limit trims what is there; reject-publish is heard of by whoever published before."""
    client.declare("q", **flags)
    client.open_channel(2, confirms=True)
    client.send_bytes(b"".join(client.publish_bytes(2, "q", b"%d" % number) for number in range(5)))
    assert client.acks(2) == [(5, True, False)]
    put(world, {"max-length": 2})
    world.advance(1500)
    assert client.count("q") == 2
    put(world, {"max-length": 3, "overflow": "reject-publish"})
    world.advance(1500)
    client.send_bytes(b"".join(client.publish_bytes(2, "q", b"%d" % number) for number in range(5, 8)))
    assert client.acks(2) == [(6, False, False), (7, False, True), (8, False, True)]
    assert [client.get("q").body for _ in range(3)] == [b"3", b"4", b"5"]
    apply(world, ClearPolicy("/", "p"))
    world.advance(1500)
    client.send_bytes(b"".join(client.publish_bytes(2, "q", b"%d" % number) for number in range(8, 14)))
    assert client.acks(2) == [(14, True, False)]
