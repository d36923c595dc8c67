"""What is switched off in the cluster or in a vhost (RULES X3)."""

from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_SWITCHES
from mayfly.node.catalog import (
    AddVhost,
    Catalog,
    CatalogCommand,
    DeclareQueue,
    DeleteVhost,
    Done,
    RaiseLevel,
    Refusal,
    SetPolicy,
    SetSwitch,
)
from mayfly.node.catalog.shard_settings import KnownTerms, shard_settings

TTL, DEATHS = "message-ttl", "dead-lettering"
ASKING: list[tuple[str, dict[str, Any]]] = [
    (TTL, {"x-message-ttl": 1000}),
    (DEATHS, {"x-dead-letter-exchange": "dlx"}),
    (DEATHS, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"}),
    (DEATHS, {"x-dead-letter-strategy": "at-most-once"}),
    (DEATHS, {"x-expires-dead-letter": True}),
    (DEATHS, {"x-overflow": "reject-publish-dlx"}),
]
POLICIES: list[tuple[str, dict[str, Any]]] = [
    (TTL, {"message-ttl": 1000}),
    (DEATHS, {"dead-letter-exchange": "dlx"}),
    (DEATHS, {"dead-letter-strategy": "at-most-once"}),
    (DEATHS, {"overflow": "reject-publish-dlx"}),
]


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(2)
    apply(catalog, RaiseLevel(LEVEL_HIGHEST, ()))
    apply(catalog, AddVhost("other"))
    return catalog


def apply(catalog: Catalog, command: CatalogCommand) -> Any:
    try:
        return catalog.apply(command)
    except Refusal as refusal:
        return refusal


def declare(catalog: Catalog, arguments: dict[str, Any], name: str = "q", vhost: str = "/") -> Any:
    return apply(catalog, DeclareQueue(vhost, name, True, False, False, arguments))


@pytest.mark.parametrize("feature, arguments", ASKING)
@pytest.mark.parametrize("where", [None, "/"])
def test_x3_arguments_that_ask_for_what_is_off_are_refused(
    catalog: Catalog, where: str | None, feature: str, arguments: dict[str, Any]
) -> None:
    """RULES X3: with words that say what is off and where; nothing is stored, and nothing else is refused."""
    assert apply(catalog, SetSwitch(where, feature, False)) == Done(True)
    refused = declare(catalog, arguments)
    assert isinstance(refused, Refusal) and refused.code == 406
    place = "in this cluster" if where is None else "in vhost '/'"
    called = "message TTL" if feature == TTL else "dead-lettering"
    assert refused.text.endswith(f"for queue 'q' in vhost '/': {called} is switched off {place}")
    assert catalog.queue("/", "q") is None
    inspected = catalog.inspect_queue(DeclareQueue("/", "q", True, False, False, arguments))
    assert isinstance(inspected, Refusal) and inspected.text == refused.text
    assert isinstance(declare(catalog, arguments, vhost="other"), Refusal) == (where is None)
    others = [each for feature_of, each in ASKING if feature_of != feature]
    assert not any(isinstance(declare(catalog, each, f"q{n}"), Refusal) for n, each in enumerate(others))
    assert not isinstance(declare(catalog, {"x-expires": 5000, "x-expires-dead-letter": False}, "plain"), Refusal)
    assert apply(catalog, SetSwitch(where, feature, True)) == Done(True)
    assert not isinstance(declare(catalog, arguments), Refusal)


@pytest.mark.parametrize("feature, definition", POLICIES)
@pytest.mark.parametrize("operator", [False, True])
def test_x3_policies_that_ask_for_what_is_off_are_refused(
    catalog: Catalog, feature: str, definition: dict[str, Any], operator: bool
) -> None:
    """RULES X3."""
    apply(catalog, SetSwitch("/", feature, False))
    refused = apply(catalog, SetPolicy("/", "p", "", definition, operator=operator))
    assert isinstance(refused, Refusal) and "is switched off in vhost '/'" in refused.text
    assert not isinstance(apply(catalog, SetPolicy("other", "p", "", definition, operator=operator)), Refusal)
    assert not isinstance(apply(catalog, SetPolicy("/", "p", "", {"expires": 1000}, operator=operator)), Refusal)


def test_x3_what_was_asked_for_before_does_not_count_while_it_is_off(catalog: Catalog) -> None:
    """RULES X3: of arguments and of policies; shards are told, also what they were told before."""
    arguments = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k", "x-expires-dead-letter": True}
    declare(catalog, arguments | {"x-expires": 5000, "x-overflow": "reject-publish-dlx"})
    apply(catalog, SetPolicy("/", "p", "", {"message-ttl": 1000}))
    queue = catalog.queue("/", "q")
    assert queue is not None
    before, known = shard_settings(catalog, queue), KnownTerms()
    terms, version = known.of(catalog, queue), catalog.policies_version
    assert (before.message_ttl_ms, before.dead_letter_exchange) == (1000, "dlx")
    apply(catalog, SetSwitch("/", TTL, False))
    assert catalog.policies_version > version and catalog.policy_changes(version) is None
    assert shard_settings(catalog, queue).message_ttl_ms is None
    assert shard_settings(catalog, queue).dead_letter_exchange == "dlx"
    apply(catalog, SetSwitch(None, DEATHS, False))
    told = shard_settings(catalog, queue)
    assert (told.dead_letter_exchange, told.dead_letter_routing_key, told.expires_dead_letter) == (None, None, False)
    assert told.expires_ms == 5000
    assert known.of(catalog, queue) != terms
    apply(catalog, SetSwitch("/", TTL, True))
    apply(catalog, SetSwitch(None, DEATHS, True))
    assert shard_settings(catalog, queue) == before and known.of(catalog, queue) == terms


def test_x3_they_are_in_the_snapshot_and_go_with_their_vhost(catalog: Catalog) -> None:
    """RULES X3, C1: replicas agree, whatever order they were switched in; without any the snapshot is as ever."""
    plain = catalog.snapshot()
    for where, feature in (("other", DEATHS), (None, TTL), ("/", TTL)):
        apply(catalog, SetSwitch(where, feature, False))
    again, reordered = Catalog(2), Catalog(2)
    again.restore(catalog.snapshot())
    assert again.snapshot() == catalog.snapshot() != plain
    assert again.switches.records() == catalog.switches.records()
    reordered.restore(plain)
    for where, feature in (("/", TTL), ("other", DEATHS), (None, TTL)):
        apply(reordered, SetSwitch(where, feature, False))
    assert reordered.snapshot() == catalog.snapshot()
    for each in (catalog, again):
        assert apply(each, SetSwitch("/", TTL, False)) == Done(False)
        apply(each, DeleteVhost("other"))
        apply(each, AddVhost("other"))
        assert not each.switches.is_off(DEATHS, "other")
        assert each.switches.is_off(TTL, "other"), "it is off everywhere"


def test_x3_bad_switches_and_early_ones_are_refused(catalog: Catalog) -> None:
    """RULES X3."""
    unknown = apply(catalog, SetSwitch(None, "ttl", False))
    assert isinstance(unknown, Refusal)
    assert unknown.text == "'ttl' is nothing that can be switched off; there are message-ttl, dead-lettering"
    assert isinstance(apply(catalog, SetSwitch("nowhere", TTL, False)), Refusal)
    assert catalog.switches.records() == []
    old = Catalog(2)
    apply(old, RaiseLevel(LEVEL_SWITCHES - 1, ()))
    assert isinstance(apply(old, SetSwitch(None, TTL, False)), Refusal)
