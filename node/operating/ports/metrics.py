"""Metrics of a node, before they are text for Prometheus."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias


class Histogram(NamedTuple):
    """The value of a sample of a histogram: how many there are by bucket, one more than bounds, and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


Sample: TypeAlias = tuple[Mapping[str, str], float | Histogram]
"""Labels, and a value."""

LEFT_OUT: Final = "Queues that are not on this page"
"""Of `mayfly_queues_left_out`."""

#: (name, help, "gauge", "counter" or "histogram", [(labels, value), ...]). A counter's name may leave `_total` out.
Metric: TypeAlias = tuple[str, str, str, Sequence[Sample]]
