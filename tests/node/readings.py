"""What tests read at once of a shard or a catalog, and nodes in steps or as a list."""

from mayfly.node.catalog.catalog import Catalog
from mayfly.node.catalog.records import PolicyRecord
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.statistics import ShardStatistics


def statistics_of(shard: Shard) -> ShardStatistics:
    """Counts of the whole shard."""
    *_, statistics = shard.statistics_in_steps()
    assert statistics is not None
    return statistics


def policy_of(catalog: Catalog, vhost: str, name: str, operator: bool = False) -> PolicyRecord | None:
    """The policy, or operator policy, of that name; None: there is none, or no such vhost."""
    return next((each for each in catalog.policies(vhost, operator) if each.name == name), None)
