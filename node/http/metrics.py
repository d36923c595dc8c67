"""The node's metrics, and those of its process, in the text format of Prometheus.

Loaded with the first such page (see `node.http.observing`): a node that nobody scrapes does without the library."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mayfly.node.operating.ports.metrics import Histogram, Metric


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


def rendered_with_process(metrics: Iterable[Metric]) -> bytes:
    """The same, with those of this process."""
    return rendered(metrics) + generate_latest(_of_process())


@cache
def _of_process() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
