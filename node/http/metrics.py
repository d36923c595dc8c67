"""The node's metrics, and those of its process, in the text format of Prometheus."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from node.http.provider import StatusProvider

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _NodeCollector(Collector):
    """Asks the node afresh at every scrape."""

    def __init__(self, provider: StatusProvider) -> None:
        self._provider = provider

    def collect(self) -> Iterator[MetricFamily]:
        for name, explanation, kind, samples in self._provider.metrics_snapshot():
            family = MetricFamily(
                name.removesuffix("_total") if kind == "counter" else name, explanation, kind
            )
            sample_name = f"{family.name}_total" if kind == "counter" else name
            for labels, value in samples:
                family.add_sample(sample_name, dict(labels), value)
            yield family

    def describe(self) -> Iterator[MetricFamily]:
        """Nothing: the registry is not to ask a node for metrics before it runs."""
        return iter(())


class MetricsPage:
    """Renders `/metrics`."""

    def __init__(self, provider: StatusProvider) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_NodeCollector(provider))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """The page as it is now."""
        return generate_latest(self._registry)
