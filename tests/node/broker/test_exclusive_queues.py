"""Exclusive queues are locked (405) for each method that touches a queue, for all connections but their own."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pamqp.commands import Basic, Channel, Queue

from mayfly.node.limits import OWNER_SETTLED_MS
from tests.node.broker.test_permissions import CASES
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import closed

LOCKED: Final = (
    "channel",
    405,
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration.",
)
BOUND: Final[dict[str, Any]] = {"queue": "mine", "exchange": "amq.direct", "routing_key": "k"}
METHODS: Final[dict[str, Any]] = {
    "Queue.Declare": Queue.Declare(queue="mine", exclusive=True),
    "Queue.Declare, not exclusive": Queue.Declare(queue="mine"),
    "Queue.Declare, passive": Queue.Declare(queue="mine", passive=True),
    "Queue.Bind": Queue.Bind(**BOUND),
    "Queue.Unbind": Queue.Unbind(**BOUND),
    "Queue.Purge": Queue.Purge(queue="mine"),
    "Queue.Delete": Queue.Delete(queue="mine"),
    "Basic.Consume": Basic.Consume(queue="mine"),
    "Basic.Get": Basic.Get(queue="mine"),
}


def all_are_locked(owner: Any, others: list[Any]) -> None:
    """What others ask for is refused, and changes nothing: the owner has queue, binding and message still."""
    assert owner.declare("mine", exclusive=True, durable=False).queue == "mine"
    owner.call(1, Queue.Bind(**BOUND))
    for other in others:
        for name, method in METHODS.items():
            assert closed(other.call(1, method)) == LOCKED, name
            other.send(1, Channel.CloseOk())
            other.open_channel(1)
    others[-1].publish(1, "k", b"for the owner", exchange="amq.direct")
    got = owner.declare("mine", exclusive=True, durable=False)
    assert (got.message_count, got.consumer_count) == (1, 0)
    assert owner.get("mine").body == b"for the owner"


@pytest.mark.parametrize("user", ["guest", "other"])
def test_locked_for_another_connection_of_the_node(world: Any, client: Any, user: str) -> None:
    """Also of the same user."""
    world.add_user("other", "guest", ".*", ".*", ".*")
    all_are_locked(client, [world.client(user=user)])


@pytest.mark.parametrize("at_the_leader", [True, False])
def test_locked_for_connections_of_other_nodes(at_the_leader: bool) -> None:
    brokers = ThreeBrokers()
    leader, followers = brokers.leader(), brokers.followers()
    own = leader if at_the_leader else followers[0]
    settled_ms = brokers.now_ms + OWNER_SETTLED_MS
    brokers.run_until(lambda: brokers.now_ms > settled_ms)  # Before that an owner may be one that has just been lost.
    all_are_locked(brokers.nodes[own].client(), [brokers.nodes[id].client() for id in brokers.ids if id != own])


def test_every_method_that_needs_a_permission_for_a_queue_is_tried() -> None:
    """Publishing is no such method: exchanges lead to exclusive queues as to others."""
    touching = {name.partition(",")[0] for name, case in CASES.items() if any(of == "q" for _, _, of in case.needs)}
    assert {name.partition(",")[0] for name in METHODS} == touching
