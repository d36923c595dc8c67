"""The catalog is deterministic, and a snapshot is all of it (RULES C1)."""
from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_PLANS
from mayfly.node.catalog import (
    AddShards,
    AddVhost,
    Bind,
    Catalog,
    CatalogCommand,
    ClearGlobalParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DefinitionsLoaded,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    DescribeVhost,
    FoundCluster,
    MalformedSnapshot,
    MemberAway,
    MemberBack,
    MoveQueue,
    NodeLost,
    NodeStarted,
    PlanGroups,
    PutUser,
    QueueMoved,
    QueueRecord,
    QueueSettings,
    RaiseLevel,
    Refusal,
    RemoveQueues,
    SetGlobalParameter,
    SetLimit,
    SetPermissions,
    SetPolicy,
    SetSwitch,
    SetTopicPermissions,
    Unbind,
    UpgradePassword,
    decode,
    encode,
)
from tests.node.readings import policy_of

VHOSTS = st.sampled_from(["/", "v"])
NAMES = st.sampled_from(["a", "b", "c", "amq.direct", "amq.headers", ""])
KEYS = st.sampled_from(["", "a", "b", "a.*", "#"])
KINDS = st.sampled_from(["queue", "exchange"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**33), st.text("ab", max_size=2), st.binary(max_size=2),
    st.floats(allow_nan=False), st.lists(st.integers(0, 2), max_size=2),
)
FLAGS = st.booleans()
NODES = st.integers(0, 2)
INCARNATIONS = st.integers(1, 3)
QUEUE_ARGUMENTS = st.dictionaries(
    st.sampled_from(["x-message-ttl", "x-queue-type", "x-dead-letter-exchange", "odd"]),
    st.one_of(VALUES, st.sampled_from(["quorum", "classic"])), max_size=2,
)
STREAM_ARGUMENTS = st.fixed_dictionaries(
    {"x-queue-type": st.just("stream")},
    optional={
        "x-max-age": st.sampled_from(["1D", "86400s"]), "x-max-length-bytes": st.integers(0, 2),
        "x-allow-msg-ttl": FLAGS, "x-delete-marker-ttl": st.sampled_from(["5", "5s"]), "x-stream-key-index": FLAGS,
        "x-mirror": st.sampled_from(["a", "b"]), "x-sources": st.sampled_from([["a"], ["b", "c"]]),
    },
)
SCHEDULING_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "x-allow-schedule": FLAGS, "x-delayed-retry-min": st.integers(1, 3), "x-expire-scope": st.just("any"),
        "x-ttl-dialect": st.sampled_from(["lavinmq", "ottermq"]),
        "x-queue-type": st.sampled_from(["quorum", "classic"]), "x-dead-letter-brake-rate": st.sampled_from([1, 0.5]),
    },
)
TABLES = st.dictionaries(
    st.sampled_from(["x-match", "k", "l"]), st.one_of(VALUES, st.just("any")), max_size=2
)

COMMANDS: st.SearchStrategy[CatalogCommand] = st.one_of(
    st.builds(
        DeclareQueue, vhost=VHOSTS, name=NAMES, durable=FLAGS, exclusive=FLAGS, auto_delete=FLAGS,
        arguments=QUEUE_ARGUMENTS, server_named=FLAGS, node_id=NODES, incarnation=INCARNATIONS,
        connection=st.sampled_from(["c", "d"]),
    ),
    st.builds(DeclareQueue, st.just("/"), st.sampled_from(["a", "b", "c"]), st.just(True)),
    st.builds(
        DeclareQueue, st.just("/"), st.sampled_from(["a", "b", "c"]), st.just(True),
        arguments=st.one_of(STREAM_ARGUMENTS, SCHEDULING_ARGUMENTS),
    ),
    st.builds(MoveQueue, VHOSTS, NAMES, st.integers(0, 4), FLAGS, st.integers(0, 6), st.integers(0, 3)),
    st.builds(QueueMoved, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3)),
    st.builds(RemoveQueues, st.lists(st.integers(1, 12), max_size=3).map(tuple)),
    st.builds(
        DeclareExchange, vhost=VHOSTS, name=NAMES,
        type=st.sampled_from(["direct", "fanout", "topic", "headers", "odd"]),
        durable=FLAGS, auto_delete=FLAGS, internal=FLAGS,
        arguments=st.dictionaries(st.just("alternate-exchange"), NAMES, max_size=1),
    ),
    st.builds(
        DeclareExchange, st.just("/"), st.sampled_from(["a", "b", "c"]), st.just("x-delayed-message"), FLAGS,
        arguments=st.fixed_dictionaries({"x-delayed-type": st.sampled_from(["direct", "topic", "odd"])}),
    ),
    st.builds(DeleteExchange, VHOSTS, NAMES, FLAGS),
    st.builds(
        Bind, VHOSTS, NAMES, KINDS, NAMES, KEYS, TABLES, node_id=NODES, connection=st.sampled_from(["c", "d"])
    ),
    st.builds(
        Bind, VHOSTS, NAMES, KINDS, NAMES, KEYS, TABLES, node_id=st.just(0), connection=st.just("")
    ),
    st.builds(Unbind, VHOSTS, NAMES, KINDS, NAMES, KEYS, TABLES),
    st.builds(AddVhost, VHOSTS, st.sampled_from(["", "words"])),
    st.builds(DeleteVhost, st.just("v")),
    st.builds(
        DescribeVhost, VHOSTS, st.sampled_from([None, (), ("a", "b")]),
        st.sampled_from([None, "quorum", "stream", "odd"]), st.sampled_from([None, True, False]),
    ),
    st.builds(SetGlobalParameter, st.sampled_from(["n", "cluster_name"]), st.sampled_from(["v", 1, None])),
    st.builds(ClearGlobalParameter, st.sampled_from(["n", "cluster_name"])),
    st.builds(
        SetSwitch, st.one_of(st.none(), VHOSTS), st.sampled_from(["message-ttl", "dead-lettering", "odd"]), FLAGS
    ),
    st.builds(DefinitionsLoaded, st.sampled_from(["ab", "cd"])),
    st.builds(
        RaiseLevel, st.integers(1, LEVEL_HIGHEST), st.sampled_from([((1, 1), (2, 1)), ((1, 2), (2, 1)), ((1, 1),)])
    ),
    st.builds(PutUser, st.sampled_from(["u", "guest"]), st.just("h")),
    st.builds(DeleteUser, st.just("u")),
    st.builds(UpgradePassword, st.just("u"), st.sampled_from(["h", "i"]), st.just("i")),
    st.builds(SetTopicPermissions, st.just("u"), VHOSTS, NAMES, st.just("^a"), st.sampled_from(["", "b"])),
    st.builds(ClearTopicPermissions, st.just("u"), VHOSTS, st.one_of(st.none(), NAMES)),
    st.builds(SetLimit, st.just("vhost"), VHOSTS, st.just("max-queues"), st.sampled_from([None, 1, 3])),
    st.builds(SetLimit, st.just("user"), st.just("u"), st.just("max-channels"), st.sampled_from([None, 1])),
    st.builds(SetPermissions, st.sampled_from(["u", "w"]), VHOSTS, st.just(".*"), st.just(""), st.just("^a")),
    st.builds(ClearPermissions, st.just("u"), VHOSTS),
    st.builds(
        NodeStarted, NODES, INCARNATIONS, st.just("n"), st.just({"amqp": "a:1"}),
        failure_domain=st.sampled_from(["", "x", "y"]), levels=st.sampled_from([(1, 1), (1, LEVEL_HIGHEST)]),
    ),
    st.builds(MemberAway, NODES, INCARNATIONS),
    st.builds(MemberBack, NODES),
    st.builds(PlanGroups, st.integers(0, 5), st.sampled_from([(), ((1, (2, 1)),), ((0, (1,)), (2, (2,)))])),
    st.builds(
        FoundCluster, st.just(((1, "a", "h:1"), (2, "b", "h:2"))), st.integers(1, 3),
        st.sampled_from([1, LEVEL_PLANS, LEVEL_HIGHEST]),
    ),
    st.builds(AddShards, st.integers(2, 6)),
    st.builds(NodeLost, NODES, INCARNATIONS),
    st.builds(
        SetPolicy, VHOSTS, st.sampled_from(["p", "o", ""]), st.sampled_from(["", "^a", "b|c", "("]),
        st.dictionaries(st.sampled_from(["message-ttl", "overflow", "odd"]), VALUES, max_size=2),
        st.integers(-1, 1), st.sampled_from(["all", "queues", "exchanges", "quorum_queues", "odd"]), FLAGS,
    ),
    st.builds(
        SetPolicy, st.just("/"), st.sampled_from(["p", "o"]), st.sampled_from(["", "^[ab]$"]),
        st.sampled_from([{"message-ttl": 3}, {"expires": 4}, {"alternate-exchange": "a"}]),
        st.integers(-1, 1), operator=FLAGS,
    ),
    st.builds(ClearPolicy, VHOSTS, st.sampled_from(["p", "o"]), FLAGS),
)


FOUNDED: CatalogCommand = FoundCluster(((1, "a", "h:1"), (2, "b", "h:2")), 2, LEVEL_HIGHEST)
"""As a cluster of this release begins. What came with a later level does nothing below it."""


def histories(commands: st.SearchStrategy[list[CatalogCommand]]) -> st.SearchStrategy[list[CatalogCommand]]:
    """These commands in a catalog of a new cluster, and in one of any level."""
    return st.builds(list[CatalogCommand].__add__, st.sampled_from([[FOUNDED], [FOUNDED], []]), commands)


def routes(catalog: Catalog) -> list[list[int]]:
    return [
        [queue.id for queue in catalog.route(vhost, exchange, key, {"k": 1, "l": "ab"}, extra)]
        for vhost in ("/", "v")
        for exchange in ("a", "b", "c", "amq.direct", "amq.headers", "")
        for key in ("", "a", "b")
        for extra in ((), ("a",))
    ]


def all_queues(catalog: Catalog) -> list[QueueRecord]:
    """Those of delayed exchanges too."""
    return list(catalog._state.queues.values())


def settings_of(catalog: Catalog) -> list[QueueSettings]:
    return [catalog.effective_settings(queue) for queue in catalog.queues()]


@settings(max_examples=150, deadline=None)
@given(histories(st.lists(COMMANDS, max_size=40)), st.integers(0, 40))
def test_c1_replicas_agree(commands: list[CatalogCommand], restored_after: int) -> None:
    """One replica applies all, one reads its commands from bytes, one starts over from a snapshot midway:
    all answer the same, end the same, and route the same. A refused command changes nothing."""
    straight, decoded, restored = Catalog(3), Catalog(3), Catalog(3)
    for position, command in enumerate(commands):
        if position == restored_after:
            fresh = Catalog(3)
            fresh.restore(restored.snapshot())
            restored = fresh
        before = straight.snapshot()
        answer = straight.apply(command, position)
        assert decoded.apply(decode(encode(command)), position) == answer
        assert restored.apply(command, position) == answer
        if isinstance(answer, Refusal):
            assert straight.snapshot() == before
    snapshot = straight.snapshot()
    assert decoded.snapshot() == snapshot
    assert restored.snapshot() == snapshot
    again = Catalog(3)
    again.restore(snapshot)
    assert again.snapshot() == snapshot
    assert settings_of(straight) == settings_of(decoded) == settings_of(restored) == settings_of(again)
    assert routes(straight) == routes(decoded) == routes(restored) == routes(again)
    assert sum(again.shard_queue_counts) == sum(queue.replicated for queue in all_queues(again))


@settings(max_examples=100, deadline=None)
@given(histories(st.lists(COMMANDS, max_size=40)))
def test_routes_lead_to_queues_that_are_there(commands: list[CatalogCommand]) -> None:
    catalog = Catalog(3)
    for command in commands:
        catalog.apply(command, 0)
    alive = {queue.id for queue in catalog.queues()}
    assert all(queue_id in alive for found in routes(catalog) for queue_id in found)
    for vhost in catalog.vhosts():
        for binding in catalog.bindings(vhost.name):
            assert catalog.exchange(vhost.name, binding.source) is not None
            find = catalog.queue if binding.destination_kind == "queue" else catalog.exchange
            assert find(vhost.name, binding.destination) is not None


def test_snapshot_has_a_format_version() -> None:
    stored = msgspec.msgpack.decode(Catalog(3).snapshot())
    assert stored[0] == 5, "what members of the first level read"
    with pytest.raises(MalformedSnapshot, match="format 8 of the catalog; this version reads up to 7"):
        Catalog(3).restore(msgspec.msgpack.encode([8, *stored[1:]]))


@pytest.mark.parametrize("operator", [False, True])
def test_policies_are_in_the_snapshot(operator: bool) -> None:
    catalog = Catalog(3)
    catalog.apply(SetPolicy("/", "p", "^q", {"expires": 1, "alternate-exchange": "x"}, -2, operator=operator))
    catalog.apply(DeclareQueue("/", "q", durable=True))
    again = Catalog(3)
    again.restore(catalog.snapshot())
    assert policy_of(again, "/", "p", operator) == policy_of(catalog, "/", "p", operator)
    assert again.snapshot() == catalog.snapshot()
    assert settings_of(again) == settings_of(catalog) == [QueueSettings(expires_ms=1)]


def test_snapshot_from_before_there_were_policies_is_read() -> None:
    catalog = Catalog(3)
    catalog.apply(DeclareQueue("/", "q", durable=True))
    stored = msgspec.msgpack.decode(catalog.snapshot())
    old = [1, *stored[1:3], [vhost[:3] for vhost in stored[3]], *stored[4:9]]
    again = Catalog(3)
    again.restore(msgspec.msgpack.encode(old))
    assert again.snapshot() == catalog.snapshot()


def test_snapshot_from_before_there_were_failure_domains_is_read() -> None:
    catalog = Catalog(3)
    catalog.apply(FoundCluster(((1, "a", "h:1"),), 3))
    stored = msgspec.msgpack.decode(catalog.snapshot())
    members = stored[8]
    old = [2, *stored[1:8], [*members[:3], [record[:6] for record in members[3]], *members[4:]]]
    again = Catalog(3)
    again.restore(msgspec.msgpack.encode(old))
    assert again.snapshot() == catalog.snapshot()


def test_snapshot_from_before_there_were_limits_is_read() -> None:
    catalog = Catalog(3)
    stored = msgspec.msgpack.decode(catalog.snapshot())
    vhosts = [[vhost[0][:2], *vhost[1:]] for vhost in stored[3]]
    old = [3, *stored[1:3], vhosts, stored[4], [user[:3] for user in stored[5]], *stored[6:9]]
    again = Catalog(3)
    again.restore(msgspec.msgpack.encode(old))
    assert again.snapshot() == catalog.snapshot()


def test_snapshot_of_another_number_of_shards() -> None:
    with pytest.raises(MalformedSnapshot, match="4 shards"):
        Catalog(3).restore(Catalog(4).snapshot())


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xc1", b"\x91\x01", b"nonsense", bytes([0x9F, 5]) + b"\x91" * 9999])
def test_malformed_snapshot_changes_nothing(data: bytes) -> None:
    catalog = Catalog(3)
    catalog.apply(DeclareQueue("/", "q", durable=True))
    before = catalog.snapshot()
    with pytest.raises(MalformedSnapshot):
        catalog.restore(data)
    assert catalog.snapshot() == before


def test_snapshot_that_contradicts_itself() -> None:
    catalog = Catalog(3)
    catalog.apply(DeclareQueue("/", "q", durable=True))
    catalog.apply(Bind("/", "amq.direct", "queue", "q", "k"))
    stored = msgspec.msgpack.decode(catalog.snapshot())
    stored[4] = []
    with pytest.raises(MalformedSnapshot, match="contradicts"):
        Catalog(3).restore(msgspec.msgpack.encode(stored))
