"""What the HTTP pages ask of a node, answered as a test wants."""

from collections.abc import Mapping, Sequence
from typing import Any

from mayfly.node.operating.ports.metrics import Histogram, Metric
from mayfly.node.operating.ports.outlook import ForecastWish
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection
from mayfly.node.operating.views.queue_metrics import queue_metrics

SOME_LAGS = Histogram((0.01, 0.5, 10.0), (2, 0, 3, 1), 9.5)


class SomeNode:
    """A node that says what the test wants."""

    def __init__(self) -> None:
        self.live = True
        self.not_ready_because = ""
        self.alarm_texts: list[str] = []
        self.broken = False
        self.asked: list[object] = []

    def is_live(self) -> bool:
        return self.live

    def readiness(self) -> tuple[bool, str]:
        return not self.not_ready_because, self.not_ready_because

    def alarms(self) -> list[str]:
        return self.alarm_texts

    async def status(self) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("secret inner detail")
        return {"node": {"id": 1, "name": "node1"}}

    async def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        return {"vhost": vhost, "name": name, "shard": 3} if name != "absent" else None

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        self.asked.append(selection)
        return [{"vhost": "/", "name": "q"}], 7

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        self.asked.append((vhost, name))
        return {"current": False, "reason": "no leader"}

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        return queue_metrics(rows, left_out)

    async def forecast_metrics(self, wish: ForecastWish) -> Sequence[Metric]:
        self.asked.append(wish)
        return [("mayfly_forecast_all_leases", "Leases", "gauge", [({"within": "60s"}, 2)])]

    async def rabbitmq_metrics(self, wanted: MetricsSelection) -> Sequence[Metric]:
        self.asked.append(wanted)
        return [("rabbitmq_connections", "Connections", "gauge", [({}, 4)])]

    def rabbitmq_queue_metrics(self, rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> Sequence[Metric]:
        return [("rabbitmq_queue_messages", "Messages", "gauge", [({"queue": row["name"]}, 1) for row in rows])]

    async def metrics_snapshot(self) -> Sequence[Metric]:
        return [
            ("mayfly_lag_seconds", "Lag", "histogram", [({"shard": "1"}, SOME_LAGS)]),
            ("mayfly_queue_messages", "Messages ready", "gauge", [({"queue": 'a"b\n', "vhost": "/"}, 3)]),
            ("mayfly_published_total", "Messages published", "counter", [({}, 12)]),
            ("mayfly_expired", "Messages expired", "counter", [({}, 5)]),
        ]
