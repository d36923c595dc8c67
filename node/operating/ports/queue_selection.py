"""Which queues an operator asks about."""

from typing import Final, Literal, NamedTuple, TypeAlias

MOST_QUEUES: Final = 5000
"""As many are told about at most, however many are asked for: the node does nothing else meanwhile."""
USUAL_QUEUES: Final = 1000

Figures: TypeAlias = Literal["all", "totals", "none"]
"""What is shown of what queues hold and did: all, how many messages there are, or nothing (RabbitMQ's `disable_stats`,
with and without `enable_queue_totals`)."""


class QueueSelection(NamedTuple):
    """The queues of a vhost (None: of all) with one of these names (none: with any) and this text in their name.
    `told_here`: of them those whose figures this node tells in its metrics, as the leader of their shard or the node in
    whose memory they are, so that all nodes together tell of each once."""

    vhost: str | None = None
    names: frozenset[str] = frozenset()
    part: str = ""
    limit: int = USUAL_QUEUES
    told_here: bool = False
