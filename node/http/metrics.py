"""The node's metrics, and those of its process, in the text format of Prometheus."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mayfly.node.http.page_queue import Made
from mayfly.node.operating.ports.metrics import Histogram, Metric
from mayfly.node.operating.ports.status import StatusProvider

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[MetricFamily]:
        return _families(self._metrics)


def _families(metrics: Iterable[Metric]) -> Iterator[MetricFamily]:
    for name, explanation, kind, samples in metrics:
        family = MetricFamily(name.removesuffix("_total") if kind == "counter" else name, explanation, kind)
        sample_name = f"{family.name}_total" if kind == "counter" else name
        for labels, value in samples:
            if isinstance(value, Histogram):
                _add_histogram(family, dict(labels), value)
            else:
                family.add_sample(sample_name, dict(labels), value)
        yield family


def _add_histogram(family: MetricFamily, labels: dict[str, str], value: Histogram) -> None:
    ends = [*map(floatToGoString, value.bounds), "+Inf"]
    for end, count in zip(ends, accumulate(value.counts), strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": end}, count)
    family.add_sample(f"{family.name}_count", labels, sum(value.counts))
    family.add_sample(f"{family.name}_sum", labels, value.sum)


def rendered(metrics: Iterable[Metric]) -> bytes:
    """A page of these metrics."""
    registry = CollectorRegistry()
    registry.register(_Collected(tuple(metrics)))
    return generate_latest(registry)


class MetricsPage:
    """Makes `/metrics`."""

    def __init__(self, provider: StatusProvider) -> None:
        self._provider = provider
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def make(self) -> Made:
        """The page as it is now; put together beside the event loop."""
        metrics = await self._provider.metrics_snapshot()
        return Made(await asyncio.to_thread(lambda: rendered(metrics) + generate_latest(self._process)), CONTENT_TYPE)
