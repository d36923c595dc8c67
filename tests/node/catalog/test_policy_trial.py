"""A policy on trial says of each queue what it would be told, and what it is told once the policy is set (RULES R3)."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Catalog, DeclareQueue, PolicySet, QueueRecord, RaiseLevel, SetPolicy
from mayfly.node.catalog.policy_trial import PolicyTrial
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.shard.settings import encode_terms

NAMES = ("a", "ab", "b", "b.tmp", "c")
definitions = st.fixed_dictionaries(
    {},
    optional={
        "message-ttl": st.integers(0, 5),
        "expires": st.integers(1, 5),
        "max-length": st.integers(0, 5),
        "overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "dead-letter-exchange": st.sampled_from(["", "x"]),
        "dead-letter-strategy": st.sampled_from(["at-least-once", "at-most-once"]),
        "ttl-applies": st.sampled_from(["default", "retroactive"]),
        "ttl-dialect": st.sampled_from(["rabbitmq", "lavinmq", "ottermq"]),
        "delivery-limit": st.integers(-1, 3),
        "consumer-timeout": st.integers(0, 5),
        "dead-letter-brake-rate": st.sampled_from([1, 2.5]),
    },
).filter(bool)
policies = st.builds(
    SetPolicy, st.just("/"), st.sampled_from(["p", "q", "r"]), st.sampled_from(["", "^a", "b", "tmp$", "none"]),
    definitions, st.integers(0, 2), st.sampled_from(["all", "queues", "classic_queues", "quorum_queues"]),
    st.booleans(),
)  # fmt: skip
arguments = st.fixed_dictionaries(
    {}, optional={"x-message-ttl": st.integers(0, 5), "x-expires": st.integers(1, 5), "x-queue-type": st.just("quorum")}
)


def told(catalog: Catalog) -> dict[str, bytes]:
    """What shards are told of all queues."""
    return {record.name: encode_terms(shard_settings(catalog, record)) for record in catalog.queues()}


def shown(catalog: Catalog, record: QueueRecord) -> dict[str, Any]:
    """The settings that a trial compares."""
    return {
        **msgspec.structs.asdict(catalog.effective_settings(record)),
        "ttl_dialect": catalog.ttl_dialect(record),
        "consumer_timeout_ms": catalog.consumer_timeout_ms(record),
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(arguments, min_size=5, max_size=5), st.lists(policies, max_size=4), policies)
def test_r3_what_queues_would_be_told_is_what_they_are_told_then(
    declared: list[dict[str, Any]], before: list[SetPolicy], tried: SetPolicy
) -> None:
    """R3: with whatever other policies there are, and in the place of the one of that name."""
    catalog = Catalog(1)
    catalog.apply(RaiseLevel(LEVEL_HIGHEST, ()))
    for name, given_arguments in zip(NAMES, declared, strict=True):
        catalog.apply(DeclareQueue("/", name, True, False, False, given_arguments))
    for command in before:
        assert isinstance(catalog.apply(command), PolicySet)
    version, as_it_was = catalog.policies_version, told(catalog)
    trial = PolicyTrial(catalog, catalog.checked_policy(tried), tried.operator)
    records = list(catalog.queues())
    was = {record.name: shown(catalog, record) for record in records}
    foretold = {record.name: trial.terms(record) for record in records}
    changes = {record.name: trial.changes(record) for record in records}
    applying = {record.name: trial.policies(record) for record in records}
    concerned = {record.name for record in records if trial.concerns(record)}
    assert (catalog.policies_version, told(catalog)) == (version, as_it_was), "a trial changes nothing"
    assert isinstance(catalog.apply(tried), PolicySet)
    assert foretold == told(catalog)
    for record in records:
        now = shown(catalog, record)
        assert applying[record.name] == catalog.policies_of_queue(record)
        assert changes[record.name] == {
            name: [value, now[name]] for name, value in was[record.name].items() if value != now[name]
        }
        if foretold[record.name] != as_it_was[record.name]:
            assert record.name in concerned and changes[record.name]
