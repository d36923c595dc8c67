"""How a node is: for health checks, `/status`, `/queues` and `/metrics`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mayfly.node.operating.ports.metrics import Metric
from mayfly.node.operating.ports.outlook import ForecastWish
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection


class StatusProvider(Protocol):
    """A running node as others see it. What does not wait answers from memory at once. What does is made in steps,
    between which the node does other work; of shards that it has no replica of it asks other nodes, for 2 s at most,
    and says `unknown` of what none of them has told."""

    def is_live(self) -> bool:
        """False: the process should be replaced."""

    def readiness(self) -> tuple[bool, str]:
        """Whether clients can be served, and the reason where they cannot."""

    def alarms(self) -> list[str]:
        """Why publishers are blocked, of this node in full, of others which there are; consumers are served."""

    async def status(self) -> dict[str, Any]:
        """Nodes, groups, queues and alarms; goes through JSON."""

    async def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One queue; None if this node knows of none. No use of it (L2).

        With `exact` False not all of its messages were looked at; ask again and some more are.
        """

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        """These queues by vhost and name, and how many more there are than it may be."""

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        """Waits, not long, until pages show what the cluster has now, of one queue or of all. `current` says
        whether it does, and `reason` why not."""

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        """Metrics of the queues in `rows`, from `queues`. Called in a thread: takes nothing but these."""

    async def forecast_metrics(self, wish: ForecastWish) -> Sequence[Metric]:
        """Metrics of what lies ahead of queues, see `OutlookPort.forecast`."""

    async def rabbitmq_metrics(self, wanted: MetricsSelection) -> Sequence[Metric]:
        """The node's metrics with RabbitMQ's names, without those of single queues."""

    def rabbitmq_queue_metrics(self, rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> Sequence[Metric]:
        """Those of the queues in `rows`, from `queues`. Called in a thread: takes nothing but these."""

    async def metrics_snapshot(self) -> Sequence[Metric]:
        """The node's metrics now, with those of the shards that it has replicas of."""
