"""Which of the metrics with RabbitMQ's names are wanted."""

from typing import Final, NamedTuple

from mayfly.node.operating.ports.queue_selection import USUAL_QUEUES

AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"
DETAILED: Final = "detailed"
"""RabbitMQ's three pages: sums, each queue by itself, and chosen families, with other names."""

QUEUE_FAMILIES: Final = frozenset({"queue_coarse_metrics", "queue_consumer_count", "queue_metrics"})
"""Those with samples for each queue."""


class MetricsSelection(NamedTuple):
    """Of one page the families with these names, of these vhosts. `families` None: all; no `vhosts`: all. `most`: so
    many connections, and so many channels."""

    endpoint: str = AGGREGATED
    families: frozenset[str] | None = None
    vhosts: frozenset[str] = frozenset()
    most: int = USUAL_QUEUES

    @property
    def tells_of_queues(self) -> bool:
        """Whether there are samples of single queues."""
        if self.endpoint == AGGREGATED:
            return False
        return self.families is None or not QUEUE_FAMILIES.isdisjoint(self.families)
