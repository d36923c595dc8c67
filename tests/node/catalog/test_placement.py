"""Which shard a new queue goes to: one led by the declaring node, unless those hold too many, or as is asked for."""
from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_LEADER_LOCATORS
from mayfly.node.catalog import (
    AddMember,
    Catalog,
    CatalogCommand,
    DeclareQueue,
    Done,
    FoundCluster,
    MemberAdded,
    NodeStarted,
    PolicySet,
    PreferLeader,
    QueueDeclared,
    QueueRecord,
    RaiseLevel,
    Refusal,
    RemoveMember,
    RemoveQueues,
    SetPolicy,
)
from mayfly.node.catalog.commands import decode, encode
from mayfly.node.catalog.placement import MORE_PARTS, MORE_QUEUES, Placement

SHARDS = 16
NODES = (1, 2, 3)
BEFORE = LEVEL_LEADER_LOCATORS - 1


def three_nodes(level: int = LEVEL_LEADER_LOCATORS, shards: int = SHARDS) -> Catalog:
    catalog = Catalog(shards)
    catalog.apply(FoundCluster(tuple((id, f"n{id}", f"n{id}:1") for id in NODES), 3, level))
    for id in NODES:
        catalog.apply(NodeStarted(id, 1 << 20, f"n{id}", levels=(1, LEVEL_LEADER_LOCATORS)))
    return catalog


def declare(catalog: Catalog, name: str, node: int, **arguments: Any) -> QueueRecord:
    """Through a client of the node; arguments without "x-", and with "_" for "-"."""
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    command = DeclareQueue("/", name, durable=True, arguments=named, node_id=node)
    command = msgspec.structs.replace(command, leader_locator=catalog.leader_locator(command))
    result = catalog.apply(decode(encode(command)))
    assert isinstance(result, QueueDeclared) and result.created, result
    return result.queue


def leader(catalog: Catalog, queue: QueueRecord) -> int:
    """By the plan."""
    return catalog.members.plan[queue.shard][0]


def crowd(catalog: Catalog, node: int, count: int, prefix: str = "crowd") -> list[QueueRecord]:
    return [declare(catalog, f"{prefix}-{number}", node) for number in range(count)]


@pytest.mark.parametrize("node", NODES)
def test_a_handful_of_queues_is_led_by_the_declaring_node_each_in_a_shard_of_its_own(node: int) -> None:
    catalog = three_nodes()
    queues = crowd(catalog, node, 5)
    assert {leader(catalog, queue) for queue in queues} == {node}
    assert len({queue.shard for queue in queues}) == 5


def test_many_queues_of_one_node_s_clients_go_to_all_shards_and_nodes() -> None:
    catalog = three_nodes()
    near = len(catalog.members.shards_led_by(1))
    first = crowd(catalog, 1, near * (MORE_QUEUES + 1))
    assert {leader(catalog, queue) for queue in first} == {1}
    far = declare(catalog, "one too many", 1)
    assert leader(catalog, far) != 1 and catalog.shard_queue_counts[far.shard - 1] == 1
    crowd(catalog, 1, 2000, "more")
    counts = catalog.shard_queue_counts
    assert max(counts) <= min(counts) + MORE_QUEUES + 1 + min(counts) // MORE_PARTS
    assert sum(counts) == 2001 + len(first)


def test_a_hundred_thousand_leased_queues_of_one_node_s_clients_spread() -> None:
    placement = Placement(SHARDS)
    near = three_nodes().members.shards_led_by(1)
    for _ in range(100_000):
        placement.add(placement.choose(near))
    mean = 100_000 / SHARDS
    assert min(placement.counts) > 0.95 * mean and max(placement.counts) < 1.1 * mean
    assert sum(placement.counts[shard - 1] for shard in near) < 35_000, "of the fair share of 31 250"


def test_where_no_leader_is_planned_for_the_node_the_emptiest_shard_is_taken() -> None:
    catalog = three_nodes()
    shards = [declare(catalog, f"by the broker {number}", 0).shard for number in range(SHARDS)]
    assert shards == list(range(1, SHARDS + 1))
    assert isinstance(catalog.apply(AddMember("d", "d:1", "store d", (1, 9))), MemberAdded)
    assert declare(catalog, "joining", 4).shard == 1
    assert declare(Catalog(2), "not founded", 1).shard == 1


@pytest.mark.parametrize("locator", ["balanced", "least-leaders", "random"])
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_balanced_is_the_emptiest_of_all(locator: str, kind: str) -> None:
    catalog = three_nodes()
    shards = [
        declare(catalog, f"{number}", 1, queue_type=kind, queue_leader_locator=locator).shard
        for number in range(SHARDS)
    ]
    assert shards == list(range(1, SHARDS + 1))


def test_client_local_is_near_however_many_there_are() -> None:
    catalog = three_nodes()
    queues = [declare(catalog, f"{number}", 2, queue_leader_locator="client-local") for number in range(100)]
    assert {leader(catalog, queue) for queue in queues} == {2}
    counts = Counter(queue.shard for queue in queues)
    assert max(counts.values()) - min(counts.values()) <= 1, "the one of them with the fewest queues"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"queue_master_locator": "min-masters"}, "balanced"),
        ({"queue_master_locator": "random"}, "balanced"),
        ({"queue_master_locator": "client-local"}, "client-local"),
        ({"queue_master_locator": "nowhere"}, ""),
        ({"queue_master_locator": "balanced"}, ""),
        ({"queue_master_locator": "client-local", "queue_leader_locator": "balanced"}, "client-local"),
        ({"queue_master_locator": "nowhere", "queue_leader_locator": "balanced"}, "balanced"),
        ({}, ""),
    ],
)
def test_master_locators_of_classic_queues(arguments: dict[str, str], said: str) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    assert three_nodes().leader_locator(DeclareQueue("/", "q", durable=True, arguments=named)) == said


# -- policies


def policy(definition: dict[str, Any], operator: bool = False, pattern: str = "^p") -> SetPolicy:
    return SetPolicy("/", f"p{operator}", pattern, definition, operator=operator)


@pytest.mark.parametrize(
    ("kind", "definition", "argument", "said"),
    [
        ("quorum", {"queue-leader-locator": "balanced"}, {}, "balanced"),
        ("quorum", {"queue-leader-locator": "least-leaders"}, {"x-queue-leader-locator": "client-local"}, "balanced"),
        ("quorum", {"queue-leader-locator": "client-local"}, {"x-queue-leader-locator": "random"}, "client-local"),
        ("quorum", {"queue-master-locator": "min-masters"}, {}, ""),
        ("classic", {"queue-master-locator": "min-masters"}, {}, "balanced"),
        ("classic", {"queue-master-locator": "random"}, {"x-queue-master-locator": "client-local"}, "client-local"),
        ("classic", {"queue-master-locator": "random"}, {"x-queue-master-locator": "nowhere"}, "balanced"),
        ("classic", {"queue-leader-locator": "balanced"}, {}, "balanced"),
    ],
)
@pytest.mark.parametrize("operator", [False, True])
def test_policies_say_it_too(
    kind: str, definition: dict[str, Any], argument: dict[str, Any], said: str, operator: bool
) -> None:
    """Of quorum queues the policy goes first, of classic ones the argument, as in RabbitMQ 3.10."""
    catalog = three_nodes()
    assert catalog.apply(policy(definition, operator)) == PolicySet(created=True)
    for name, expected in (("p1", said), ("other", catalog_without_policies(kind, argument))):
        command = DeclareQueue("/", name, durable=True, arguments={"x-queue-type": kind, **argument})
        assert catalog.leader_locator(command) == expected
    queue = declare(catalog, "p1", 1)
    assert catalog.effective_settings(queue) == queue.settings, "nothing else follows from it"


def catalog_without_policies(kind: str, arguments: dict[str, Any]) -> str:
    return three_nodes().leader_locator(
        DeclareQueue("/", "q", durable=True, arguments={"x-queue-type": kind, **arguments})
    )


def test_a_balanced_policy_is_what_was_the_rule_before() -> None:
    catalog = three_nodes()
    catalog.apply(policy({"queue-leader-locator": "balanced"}, pattern=""))
    assert [queue.shard for queue in crowd(catalog, 1, 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("key", ["queue-leader-locator", "queue-master-locator"])
def test_such_policies_are_refused_until_all_members_know_them(key: str) -> None:
    """Older members refuse the key, whatever its value: no replica may have a policy that another has not."""
    catalog = three_nodes(BEFORE)
    before = catalog.snapshot()
    refused = catalog.apply(policy({key: "client-local", "max-length": 1}))
    assert isinstance(refused, Refusal)
    assert refused.text.startswith(f"{key} needs feature level 3, the cluster is at 2")
    assert catalog.snapshot() == before
    assert catalog.apply(policy({"max-length": 1})) == PolicySet(created=True)


# -- releases


class OldDeclareQueue(msgspec.Struct, frozen=True, tag_field="command", tag="declare_queue"):
    """As it was before there were leader locators."""

    vhost: str
    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}
    server_named: bool = False
    node_id: int = 0
    incarnation: int = 0
    connection: str = ""


def test_before_the_level_the_emptiest_is_taken_whatever_is_said() -> None:
    """As older members do, who pass the field over."""
    catalog = three_nodes(BEFORE)
    said = [{}, {"queue_leader_locator": "client-local"}, {"queue_leader_locator": "balanced"}]
    for shard in range(1, 10):
        assert declare(catalog, f"{shard}", 1, **said[shard % 3]).shard == shard
    new = DeclareQueue("/", "q", True, False, False, {"x-expires": 5}, False, 3, 7, "c", "client-local")
    old = msgspec.msgpack.decode(encode(new), type=OldDeclareQueue)
    assert decode(msgspec.msgpack.encode(old)) == msgspec.structs.replace(new, leader_locator="")


def test_the_rule_holds_from_the_entry_that_raises_the_level() -> None:
    catalog = three_nodes(BEFORE)
    assert declare(catalog, "before", 1).shard == 1
    nodes = tuple((id, 1 << 20) for id in NODES)
    assert catalog.apply(RaiseLevel(LEVEL_LEADER_LOCATORS, nodes)) == Done(True)
    assert leader(catalog, declare(catalog, "after", 1)) == 1
    before = catalog.queue("/", "before")
    assert before is not None and before.shard == 1


def test_a_queue_stays_where_it_is_whoever_declares_it_again() -> None:
    catalog = three_nodes()
    queue = declare(catalog, "q", 1)
    for node in (0, *NODES):
        for said in ("", "balanced", "client-local"):
            again = catalog.apply(DeclareQueue("/", "q", durable=True, node_id=node, leader_locator=said))
            assert again == QueueDeclared(queue, created=False)
    catalog.apply(PreferLeader(queue.shard, "n2"))
    restored = Catalog(SHARDS)
    restored.restore(catalog.snapshot())
    assert restored.queue("/", "q") == queue


def test_near_follows_the_plan() -> None:
    catalog = three_nodes(shards=3)
    assert [leader(catalog, declare(catalog, f"a{node}", node)) for node in NODES] == [1, 2, 3]
    catalog.apply(PreferLeader(1, "n1"))  # was planned for node 2
    assert set(catalog.members.shards_led_by(1)) == {1, 3} and catalog.members.shards_led_by(2) == ()
    assert {declare(catalog, f"b{number}", 1).shard for number in range(2)} == {1, 3}
    assert isinstance(catalog.apply(RemoveMember("n1")), Done)
    assert catalog.members.shards_led_by(1) == ()
    assert sorted([*catalog.members.shards_led_by(2), *catalog.members.shards_led_by(3)]) == [1, 2, 3]


# -- properties


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["declare", "client-local", "balanced", "remove", "prefer", "snapshot"]),
        st.integers(0, 4),
        st.integers(0, 200),
    ),
    max_size=120,
)


@given(STEPS, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_replicas_choose_alike_whether_they_came_from_a_snapshot_or_not(
    steps: list[tuple[str, int, int]], shards: int
) -> None:
    whole, other = three_nodes(shards=shards), three_nodes(shards=shards)
    for number, (what, node, chosen) in enumerate(steps):
        command: CatalogCommand
        if what == "snapshot":
            fresh = Catalog(shards)
            fresh.restore(other.snapshot())
            other = fresh
            continue
        if what == "remove":
            ids = [queue.id for queue in whole.queues()]
            command = RemoveQueues((ids[chosen % len(ids)],) if ids else ())
        elif what == "prefer":
            command = PreferLeader(chosen % shards + 1, f"n{node % 3 + 1}")
        else:
            said = "" if what == "declare" else what
            command = DeclareQueue("/", f"q{number}", durable=True, node_id=node, leader_locator=said)
        assert whole.apply(command) == other.apply(command)
    assert whole.snapshot() == other.snapshot()


@given(st.lists(st.integers(0, 3), max_size=400), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_near_while_it_is_balanced_and_balanced_always(nodes: list[int], shards: int) -> None:
    catalog = three_nodes(shards=shards)
    for number, node in enumerate(nodes):
        before = list(catalog.shard_queue_counts)
        near = catalog.members.shards_led_by(node)
        allowed = min(before) + MORE_QUEUES + min(before) // MORE_PARTS
        shard = declare(catalog, f"q{number}", node).shard
        if near and min(before[each - 1] for each in near) <= allowed:
            assert shard in near and before[shard - 1] == min(before[each - 1] for each in near)
        else:
            assert before[shard - 1] == min(before)
    counts = catalog.shard_queue_counts
    assert max(counts) <= min(counts) + MORE_QUEUES + 1 + min(counts) // MORE_PARTS
