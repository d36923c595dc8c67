"""Which data a peer may show: the gate knows the names that were heard, also while the catalog does not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from mayfly.cluster.transport.joining import JoinRequest
from mayfly.node.catalog import Catalog, FoundCluster, NodeStarted
from mayfly.node.membership.forming import FORMING, TAKEN, UNSURE, VACANT
from mayfly.node.membership.identity import KnownMembers, decode_members
from mayfly.node.numbers import STARTS_SHIFT
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.shell.membership import MembershipShell
from tests.node.broker.three_brokers import ThreeBrokers


def gate(stores: dict[int, str], starts: dict[int, int] | None = None) -> MembershipShell:
    """The gate of a node whose catalog is empty, as it is while its replica is rebuilt."""
    engine = cast(Any, SimpleNamespace(catalog=Catalog(1), host=SimpleNamespace(read_index=None)))
    none = cast(Any, None)
    identity = cast(Any, SimpleNamespace(node=1))
    known = KnownMembers(0, {}, stores, starts or {})
    return MembershipShell(engine, identity, none, lambda text, removed: None, known, lambda: False)


@pytest.mark.parametrize(("store", "refused"), [("old", False), ("new", True), ("", False)])
def test_a_wiped_peer_is_sent_away_even_while_the_catalog_is_empty(store: str, refused: bool) -> None:
    objection = gate({2: "old"}).objection(2, store, 7, (6,))
    assert (objection is not None) == refused
    if objection is not None:
        assert objection.code == grpc.StatusCode.DATA_LOSS
        assert "node 2 comes back with other data" in objection.text


def test_a_peer_that_was_never_heard_of_is_no_matter_of_its_data() -> None:
    assert gate({2: "old"}).objection(3, "any", 1, ()) is None


def test_names_of_data_are_stored_and_members_of_an_older_version_have_none() -> None:
    known = KnownMembers(4, {1: ("a", "host:1")}, {1: "store"})
    assert decode_members(known.encode()) == known
    assert decode_members(b'{"version":4,"members":{"1":["a","host:1"]}}').stores == {}


def test_data_of_an_earlier_time_is_told_with_both_times_and_what_would_be_right() -> None:
    """Folders of copies that were made at different stops were put back."""
    catalog = Catalog(1)
    catalog.apply(FoundCluster(FOUNDERS, 3))
    catalog.apply(NodeStarted(2, 28_000_000 << STARTS_SHIFT, "node2", store="store"))
    engine = cast(Any, SimpleNamespace(catalog=catalog, host=SimpleNamespace(read_index=None)))
    none = cast(Any, None)
    identity = cast(Any, SimpleNamespace(node=1))
    shell = MembershipShell(engine, identity, none, lambda text, removed: None, KnownMembers(0, {}), lambda: False)
    assert shell.objection(2, "store", 28_100_000, (28_000_000,)) is None
    refusal = shell.objection(2, "store", 28_100_000, (27_900_000,))
    assert refusal is not None
    assert refusal.text.startswith(
        "node 2 (node2) comes back with data of an earlier time: it knows of a start at 2026-11-19 22:00:00 UTC, "
        "node 1 of one at 2026-11-21 01:46:40 UTC. If copies were put back: all nodes need copies of the same stop, or "
        "one new cluster is made of all copies with mayfly restore."
    )


def test_an_earlier_time_is_told_before_the_catalog_knows_of_the_last_start() -> None:
    """Most members have such data: what they agree on then is not to be waited for."""
    of_last_start = gate({2: "store"}, {2: 28_000_000})
    assert of_last_start.objection(2, "store", 28_100_000, (28_000_000,)) is None
    assert of_last_start.objection(2, "store", 28_000_000, (27_900_000,)) is None, "that start itself, connected anew"
    refusal = of_last_start.objection(2, "store", 28_100_000, (27_900_000,))
    assert refusal is not None and refusal.code == grpc.StatusCode.DATA_LOSS
    assert "of one at 2026-11-21 01:46:40 UTC" in refusal.text


@pytest.mark.parametrize(
    ("earlier_starts", "refused"),
    [
        ((27_900_000,), True),
        ((27_900_000, 28_050_000), True),
        ((27_900_000, 28_050_000, 28_060_000), True),
        ((27_900_000, 28_000_000), False),
        ((27_900_000, 28_000_000, 28_050_000), False),
        ((28_050_000,), False),  # Of an older version, or started very often since.
        ((), True),
    ],
)
def test_data_put_back_is_told_however_often_it_was_started_since(
    earlier_starts: tuple[int, ...], refused: bool
) -> None:
    objection = gate({2: "store"}, {2: 28_000_000}).objection(2, "store", 28_100_000, earlier_starts)
    assert (objection is not None) == refused


FOUNDERS = tuple((id, f"node{id}", f"n{id}:1") for id in (1, 2, 3))


def told(catalog: Catalog, leader: int, store: str = "new", is_empty: bool = False) -> str:
    """What a member with this catalog says to an empty node that would begin as founder 3."""

    async def ask() -> str:
        host = SimpleNamespace(
            groups={0: SimpleNamespace(leader=leader)}, read_index=lambda group, done: done(None if leader else "lost")
        )
        engine = cast(Any, SimpleNamespace(catalog=catalog, host=host))
        identity = cast(Any, SimpleNamespace(cluster="c", store="store 2"))
        cluster = ClusterControl(engine, "c", lambda: None)
        cluster.command = refused  # type: ignore[method-assign]
        nobody = KnownMembers(0, {})
        shell = MembershipShell(engine, identity, cluster, lambda text, removed: None, nobody, lambda: is_empty)
        return (await shell.join(JoinRequest("node3", "n3:1", store, cluster="c", founder=3))).stance

    async def refused(command: object) -> object:
        return None

    return asyncio.run(ask())


def founded(*started: int) -> Catalog:
    """The catalog of a cluster of three, of which these have said that they started, before it had members."""
    catalog = Catalog(1)
    for id in started:
        catalog.apply(NodeStarted(id, 1 << 20, f"node{id}", {"peer": f"n{id}:1"}, f"store {id}", "", (1, 2)), 1)
    catalog.apply(FoundCluster(FOUNDERS, 3, 1), 2)
    return catalog


def test_a_member_without_a_leader_does_not_say_that_a_place_is_vacant() -> None:
    """It may be stale: the one that asks may have come, served and been emptied since."""
    assert told(founded(1, 2), leader=0) == UNSURE
    assert told(founded(1, 2), leader=1) == VACANT
    assert told(Catalog(1), leader=0) == UNSURE
    assert told(Catalog(1), leader=0, is_empty=True) == FORMING


@pytest.mark.parametrize("leader", [0, 1])
def test_a_place_whose_node_has_started_is_taken_before_the_name_of_its_data_is_known(leader: int) -> None:
    assert told(founded(1, 2, 3), leader) == TAKEN


def test_the_names_of_the_founders_data_are_known_soon_though_they_started_before_it_was_founded() -> None:
    cluster = ThreeBrokers()

    def named() -> bool:
        catalogs = [node.engine.catalog for node in cluster.nodes.values()]
        return all(
            {record.id: record.store for record in catalog.members.all()} == {id: f"store {id}" for id in (1, 2, 3)}
            for catalog in catalogs
        )

    cluster.run_until(named, steps=40)
    assert all(not node.engine.untouched for node in cluster.nodes.values())
