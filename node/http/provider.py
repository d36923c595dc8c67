"""What the HTTP server asks the node for."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

#: (name, help, "gauge" or "counter", [(labels, value), ...]). A counter's name may leave `_total` out.
Metric: TypeAlias = tuple[str, str, str, Sequence[tuple[Mapping[str, str], float]]]


class StatusProvider(Protocol):
    """A running node as others see it. All methods answer at once and from memory."""

    def is_live(self) -> bool:
        """False: the process should be replaced."""

    def readiness(self) -> tuple[bool, str]:
        """Whether clients can be served, and the reason where they cannot."""

    def status(self) -> dict[str, Any]:
        """Nodes, groups, queues and alarms as this node knows them; goes through JSON."""

    def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One queue: id, shard, leader, counts; None where there is none. No use of it (L2)."""

    def metrics_snapshot(self) -> Sequence[Metric]:
        """The node's metrics now."""
