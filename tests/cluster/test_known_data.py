"""Which data a peer may show: the gate knows the names that were heard, also while the catalog does not."""

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from node.catalog import Catalog
from node.identity import KnownMembers, decode_members
from node.membership_shell import MembershipShell


def gate(known_stores: dict[int, str]) -> MembershipShell:
    """The gate of a node whose catalog is empty, as it is while its replica is rebuilt."""
    engine = cast(Any, SimpleNamespace(catalog=Catalog(1), host=SimpleNamespace(read_index=None)))
    none = cast(Any, None)
    return MembershipShell(engine, none, none, lambda: None, lambda text, removed: None, known_stores, lambda: False)


@pytest.mark.parametrize(("store", "refused"), [("old", False), ("new", True), ("", False)])
def test_a_wiped_peer_is_sent_away_even_while_the_catalog_is_empty(store: str, refused: bool) -> None:
    objection = gate({2: "old"}).objection(2, store, 7, 6)
    assert (objection is not None) == refused
    if objection is not None:
        assert objection.code == grpc.StatusCode.DATA_LOSS
        assert "node 2 comes back with other data" in objection.text


def test_a_peer_that_was_never_heard_of_is_no_matter_of_its_data() -> None:
    assert gate({2: "old"}).objection(3, "any", 1, 0) is None


def test_names_of_data_are_stored_and_members_of_an_older_version_have_none() -> None:
    known = KnownMembers(4, {1: ("a", "host:1")}, {1: "store"})
    assert decode_members(known.encode()) == known
    assert decode_members(b'{"version":4,"members":{"1":["a","host:1"]}}').stores == {}
