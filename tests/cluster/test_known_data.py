"""Which data a peer may show: the gate knows the names that were heard, also while the catalog does not."""

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from node.catalog import Catalog, MemberRecord
from node.identity import KnownMembers, decode_members
from node.membership_shell import MembershipShell
from node.process import NodeProcess
from node.settings import NodeSettings


def gate(known_stores: dict[int, str]) -> MembershipShell:
    """The gate of a node whose catalog is empty, as it is while its replica is rebuilt."""
    engine = cast(Any, SimpleNamespace(catalog=Catalog(1), host=SimpleNamespace(read_index=None)))
    nothing = cast(Any, None)
    return MembershipShell(engine, nothing, nothing, lambda: None, lambda text, removed: None, known_stores)


@pytest.mark.parametrize(("store", "refused"), [("old", False), ("new", True), ("", False)])
def test_a_wiped_peer_is_sent_away_even_while_the_catalog_is_empty(store: str, refused: bool) -> None:
    objection = gate({2: "old"}).objection(2, store, 7, 6)
    assert (objection is not None) == refused
    if objection is not None:
        assert objection.code == grpc.StatusCode.DATA_LOSS
        assert "node 2 comes back with other data" in objection.text


def test_a_peer_that_was_never_heard_of_is_no_matter_of_its_data() -> None:
    assert gate({2: "old"}).objection(3, "any", 1, 0) is None


@pytest.mark.parametrize(("store", "code"), [
    ("old", grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.NOT_FOUND), ("new", grpc.StatusCode.DATA_LOSS),
])  # fmt: skip
def test_a_removed_member_is_told_apart_from_a_new_one_in_its_place(store: str, code: grpc.StatusCode) -> None:
    """By its data: who was removed must not join again by itself, an emptied founder may."""
    keeper = gate({2: "old"})
    members = keeper._engine.catalog.members
    members._records[2] = MemberRecord(2, "b", "host:2", "removed", "old", 0)
    objection = keeper.objection(2, store, 7, 6)
    assert objection is not None and objection.code == code
    assert "was removed from the cluster" in objection.text


@pytest.mark.parametrize(("code", "again"), [(grpc.StatusCode.NOT_FOUND, False), (grpc.StatusCode.DATA_LOSS, True)])
def test_a_removed_founder_that_never_served_does_not_join_again(code: grpc.StatusCode, again: bool) -> None:
    """One that came too late, with data of its own, does."""
    process = NodeProcess(NodeSettings())
    process._unproven = True
    engine = cast(Any, SimpleNamespace(catalog=Catalog(1), host=SimpleNamespace(read_index=None)))
    nothing = cast(Any, None)
    MembershipShell(engine, nothing, nothing, lambda: None, process._send_away, {}).refused(1, "go", code)
    assert process.may_not_go_on()
    assert process.may_join_anew() == again


def test_names_of_data_are_stored_and_members_of_an_older_version_have_none() -> None:
    known = KnownMembers(4, {1: ("a", "host:1")}, {1: "store"})
    assert decode_members(known.encode()) == known
    assert decode_members(b'{"version":4,"members":{"1":["a","host:1"]}}').stores == {}
