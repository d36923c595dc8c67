"""Number spaces that several parts of a node share: groups and shards, nodes' incarnations, what is made of them."""

from typing import Final

CATALOG_GROUP: Final = 0
"""The Raft group of the catalog. Group s, from 1 on, is replicated shard s; their count only grows."""

TRANSIENT_SHARD_BASE: Final = 0x10000
"""Above every number of a group: from here on are the shards in nodes' memory, `transient_shard`."""

STARTS_SHIFT: Final = 20
"""An incarnation is the number of a node's starts, shifted by so many bits; it counts up while the process runs."""


def transient_shard(node_id: int) -> int:
    """The shard of a node's exclusive, auto-delete and non-durable queues."""
    return TRANSIENT_SHARD_BASE + node_id


def is_transient(shard: int) -> bool:
    """Whether this shard lives in one node's memory, and not in a group."""
    return shard >= TRANSIENT_SHARD_BASE


def node_of(shard: int) -> int:
    """The node in whose memory this transient shard lives."""
    return shard - TRANSIENT_SHARD_BASE


STREAM_SOURCE: Final = 1 << 62
"""Above every shard, and every life of a transient one, as a source of transfers."""


def stream_source(queue_id: int) -> int:
    """The source that a stream is for those that copy it: one that is declared anew is another."""
    return STREAM_SOURCE + queue_id
