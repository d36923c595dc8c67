"""Declaring, redeclaring and removing queues (goldens args.redeclare_*, queue.refused_flags, amqp.*)."""
from __future__ import annotations

from typing import Any

import pytest

from mayfly.node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    DeleteVhost,
    NodeLost,
    NodeStarted,
    QueueDeclared,
    QueueRecord,
    QueuesRemoved,
    Refusal,
    RemoveQueues,
)
from mayfly.node.numbers import transient_shard

LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)


def declare(catalog: Catalog, name: str = "q", **flags: Any) -> QueueRecord:
    result = catalog.apply(DeclareQueue("/", name, **flags), 1)
    assert isinstance(result, QueueDeclared), result
    return result.queue


def quorum(name: str = "q", arguments: dict[str, Any] | None = None, **flags: Any) -> DeclareQueue:
    return DeclareQueue("/", name, arguments={"x-queue-type": "quorum", **(arguments or {})}, **flags)


def refusal(catalog: Catalog, command: DeclareQueue) -> str:
    result = catalog.apply(command, 1)
    assert isinstance(result, Refusal), result
    assert catalog.inspect_queue(command) == result
    return f"{result.code} {result.text}"


def test_new_queue_is_replicated() -> None:
    catalog = Catalog(4)
    result = catalog.apply(DeclareQueue("/", "q", durable=True, node_id=3, connection="c"), 77)
    assert isinstance(result, QueueDeclared)
    assert result.created
    queue = result.queue
    assert (queue.id, queue.shard, queue.owner_node, queue.created_ms) == (1, 1, 0, 77)
    assert queue.replicated
    assert catalog.queue("/", "q") is queue
    assert catalog.queue_by_id(1) is queue
    again = catalog.apply(DeclareQueue("/", "q", durable=True, node_id=2, connection="d"), 78)
    assert again == QueueDeclared(queue, created=False)


@pytest.mark.parametrize(
    "flags",
    [
        {"durable": False},
        {"durable": True, "exclusive": True},
        {"durable": True, "auto_delete": True},
        {"durable": False, "arguments": {"x-queue-type": "classic"}},
    ],
)
def test_other_queues_live_on_their_node(flags: dict[str, Any]) -> None:
    catalog = Catalog(4)
    queue = declare(catalog, node_id=3, incarnation=5, connection="c", **flags)
    assert (queue.shard, queue.owner_node, queue.owner_incarnation) == (transient_shard(3), 3, 5)
    assert not queue.replicated
    assert queue.owner_connection == ("c" if queue.exclusive else "")
    assert sum(catalog.shard_queue_counts) == 0


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_durable_queues_of_both_types_are_replicated(queue_type: str) -> None:
    assert declare(Catalog(4), durable=True, arguments={"x-queue-type": queue_type}).replicated


def test_ids_are_never_used_again() -> None:
    catalog = Catalog(2)
    first = declare(catalog, durable=True)
    catalog.apply(RemoveQueues((first.id,)))
    assert declare(catalog, durable=True).id == 2
    assert declare(catalog, "other", node_id=1).id == 3


def test_queues_spread_over_the_shards() -> None:
    catalog = Catalog(4)
    queues = [declare(catalog, f"q{number}", durable=True) for number in range(10)]
    assert [queue.shard for queue in queues] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert catalog.shard_queue_counts == (3, 3, 2, 2)
    catalog.apply(RemoveQueues((queues[1].id, queues[5].id)))
    assert declare(catalog, "next", durable=True).shard == 2


def test_redeclare_with_other_ttl() -> None:
    catalog = Catalog(4)
    catalog.apply(quorum(durable=True, arguments={"x-message-ttl": 1000}))
    prefix = "406 inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received "
    assert refusal(catalog, quorum(durable=True, arguments={"x-message-ttl": 2000})) == (
        prefix + "'2000' but current is '1000'"
    )
    assert refusal(catalog, quorum(durable=True)) == (
        prefix + "none but current is the value '1000' of type 'signedint'"
    )
    catalog.apply(quorum("bare", durable=True))
    assert refusal(catalog, quorum("bare", durable=True, arguments={"x-message-ttl": 1000})) == (
        "406 inequivalent arg 'x-message-ttl' for queue 'bare' in vhost '/': "
        "received the value '1000' of type 'signedint' but current is none"
    )
    assert refusal(catalog, quorum("bare", durable=True, arguments={"x-message-ttl": 2**32})).endswith(
        "received the value '4294967296' of type 'long' but current is none"
    )


def test_equality_is_of_type_and_value() -> None:
    catalog = Catalog(4)
    catalog.apply(quorum(durable=True, arguments={"x-max-length": 1, "x-odd": 1}))
    assert refusal(catalog, quorum(durable=True, arguments={"x-max-length": True, "x-odd": 1}))
    assert refusal(catalog, quorum(durable=True, arguments={"x-max-length": 1.0}))
    # What nobody knows is not compared.
    assert isinstance(catalog.inspect_queue(quorum(durable=True, arguments={"x-max-length": 1})), QueueRecord)


def test_redeclare_with_other_type_and_flags() -> None:
    catalog = Catalog(4)
    catalog.apply(quorum(durable=True))
    prefix = "406 inequivalent arg '{}' for queue 'q' in vhost '/': received "
    assert refusal(catalog, DeclareQueue("/", "q", durable=True, arguments={"x-queue-type": "classic"})) == (
        prefix.format("x-queue-type") + "'classic' but current is 'quorum'"
    )
    assert refusal(catalog, DeclareQueue("/", "q", durable=True)) == (
        prefix.format("x-queue-type") + "'classic' but current is 'quorum'"
    )
    assert refusal(catalog, quorum(durable=False)) == (
        prefix.format("durable") + "'false' but current is 'true'"
    )
    assert refusal(catalog, quorum(durable=True, auto_delete=True)) == (
        prefix.format("auto_delete") + "'true' but current is 'false'"
    )
    assert refusal(catalog, quorum(durable=True, exclusive=True)) == f"405 {LOCKED}"


def test_no_type_is_classic() -> None:
    catalog = Catalog(4)
    declare(catalog, durable=True, arguments={"x-queue-type": "classic"})
    assert isinstance(catalog.inspect_queue(DeclareQueue("/", "q", durable=True)), QueueRecord)
    declare(catalog, "bare", durable=True)
    typed = DeclareQueue("/", "bare", durable=True, arguments={"x-queue-type": "classic"})
    assert isinstance(catalog.inspect_queue(typed), QueueRecord)


def test_exclusive_queue_is_locked_to_its_connection() -> None:
    catalog = Catalog(4)
    mine = DeclareQueue("/", "q", durable=True, exclusive=True, node_id=1, connection="c")
    first = catalog.apply(mine)
    assert isinstance(first, QueueDeclared)
    assert not first.queue.durable
    assert isinstance(catalog.apply(mine), QueueDeclared)
    for node_id, connection in ((1, "d"), (2, "c")):
        other = DeclareQueue("/", "q", durable=True, exclusive=True, node_id=node_id, connection=connection)
        assert refusal(catalog, other) == f"405 {LOCKED}"
        assert catalog.find_queue("/", "q", node_id, connection) == Refusal(405, LOCKED)
        bound = catalog.apply(Bind("/", "amq.direct", "queue", "q", node_id=node_id, connection=connection))
        assert bound == Refusal(405, LOCKED)
    not_exclusive = DeclareQueue("/", "q", durable=True, node_id=1, connection="c")
    assert refusal(catalog, not_exclusive) == f"405 {LOCKED}"
    assert catalog.find_queue("/", "q", 1, "c") is first.queue
    assert catalog.find_queue("/", "q") is first.queue


@pytest.mark.parametrize(
    "flags, told",
    [
        ({"durable": False}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"durable": False, "exclusive": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_flags_that_quorum_queues_refuse(flags: dict[str, Any], told: str) -> None:
    assert refusal(Catalog(4), quorum(**flags)) == f"406 invalid property '{told}' for queue 'q' in vhost '/'"


def test_server_named_queues() -> None:
    catalog = Catalog(4)
    assert refusal(catalog, quorum("amq.gen-1", durable=True, server_named=True)) == (
        "406 Cannot declare a server-named queue for type rabbit_quorum_queue"
    )
    assert declare(catalog, "amq.gen-1", server_named=True, exclusive=True, node_id=1).name == "amq.gen-1"


def test_reserved_names() -> None:
    catalog = Catalog(4)
    assert refusal(catalog, DeclareQueue("/", "amq.mine", durable=True)) == (
        "403 queue name 'amq.mine' contains reserved prefix 'amq.*'"
    )
    assert catalog.find_queue("/", "amq.mine") == Refusal(404, "no queue 'amq.mine' in vhost '/'")


def test_unknown_vhost() -> None:
    result = Catalog(4).apply(DeclareQueue("nowhere", "q"))
    assert result == Refusal(530, "vhost nowhere not found", hard=True)


def test_unreasonable_nesting_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100):
        nested = {"deeper": nested}
    assert "nested" in refusal(Catalog(4), DeclareQueue("/", "q", durable=True, arguments=nested))


def test_l10_removed_queue_takes_its_bindings_along() -> None:
    catalog = Catalog(4)
    queue = declare(catalog, durable=True)
    catalog.apply(DeclareExchange("/", "x", "fanout", auto_delete=True))
    catalog.apply(Bind("/", "x", "queue", "q"))
    catalog.apply(Bind("/", "amq.topic", "queue", "q", "#"))
    version = catalog.routing_version
    assert catalog.apply(RemoveQueues((queue.id, 99))) == QueuesRemoved((queue,))
    assert catalog.routing_version > version
    assert catalog.queue("/", "q") is None
    assert catalog.route("/", "amq.topic", "k") == ()
    assert catalog.route("/", "", "q") == ()
    assert catalog.exchange("/", "x") is None, "an auto-delete exchange goes with its last binding"
    assert list(catalog.bindings("/")) == []
    assert catalog.apply(RemoveQueues((queue.id, 99))) == QueuesRemoved(())


def test_a_removed_name_does_not_touch_its_successor() -> None:
    catalog = Catalog(4)
    first = declare(catalog, durable=True)
    catalog.apply(RemoveQueues((first.id,)))
    second = declare(catalog, durable=True)
    assert catalog.apply(RemoveQueues((first.id,))) == QueuesRemoved(())
    assert catalog.route("/", "", "q") == (second,)


def test_node_restart_drops_what_lived_in_its_memory() -> None:
    catalog = Catalog(4)
    catalog.apply(NodeStarted(1, 10, "one"))
    catalog.apply(NodeStarted(2, 20, "two"))
    kept = declare(catalog, "kept", durable=True, node_id=1, incarnation=10)
    gone = declare(catalog, "gone", node_id=1, incarnation=10)
    other = declare(catalog, "other", node_id=2, incarnation=20)
    assert catalog.apply(NodeStarted(1, 10, "one")) == QueuesRemoved(())
    assert catalog.apply(NodeStarted(1, 11, "one", {"amqp": "a:1"}), 50) == QueuesRemoved((gone,))
    assert list(catalog.queues()) == [kept, other]
    node = catalog.node(1)
    assert node is not None
    assert (node.incarnation, node.alive, node.addresses, node.changed_ms) == (11, True, {"amqp": "a:1"}, 50)
    assert catalog.apply(NodeStarted(1, 10, "one")) == QueuesRemoved(()), "a late one changes nothing"
    assert catalog.node(1) == node


def test_a_transient_queue_needs_a_node() -> None:
    result = Catalog(4).apply(DeclareQueue("/", "q"))
    assert isinstance(result, Refusal)
    assert result.hard


def test_lost_node() -> None:
    catalog = Catalog(4)
    catalog.apply(NodeStarted(1, 10, "one"))
    gone = declare(catalog, node_id=1, incarnation=10, exclusive=True, connection="c")
    assert catalog.apply(NodeLost(1, 10), 60) == QueuesRemoved((gone,))
    node = catalog.node(1)
    assert node is not None
    assert (node.alive, node.changed_ms) == (False, 60)
    late = catalog.apply(DeclareQueue("/", "q", node_id=1, incarnation=10))
    assert isinstance(late, Refusal), "a declare that comes after the loss would never be cleared away"
    durable = DeclareQueue("/", "d", durable=True, node_id=1, incarnation=10)
    assert isinstance(catalog.apply(durable), QueueDeclared)
    catalog.apply(NodeStarted(1, 11, "one"))
    assert catalog.apply(NodeLost(1, 10)) == QueuesRemoved(())
    node = catalog.node(1)
    assert node is not None
    assert node.alive, "the loss of an earlier incarnation says nothing of this one"
    assert isinstance(catalog.apply(DeclareQueue("/", "q", node_id=1, incarnation=11)), QueueDeclared)


def test_deleted_vhost_takes_all_along() -> None:
    catalog = Catalog(4)
    catalog.apply(AddVhost("v"))
    first = catalog.apply(DeclareQueue("v", "q", durable=True))
    assert isinstance(first, QueueDeclared)
    second = catalog.apply(DeclareQueue("v", "t", node_id=1))
    assert isinstance(second, QueueDeclared)
    stays = declare(catalog, "q", durable=True)
    assert catalog.apply(DeleteVhost("v")) == QueuesRemoved((first.queue, second.queue))
    assert not catalog.has_vhost("v")
    assert list(catalog.queues()) == [stays]
    assert catalog.route("v", "", "q") == ()
    assert catalog.shard_queue_counts == (0, 1, 0, 0)
    assert catalog.apply(DeleteVhost("v")) == Refusal(530, "vhost v not found", hard=True)
