"""Metrics of single queues, for `/metrics/per-queue`: `node.operating.views.queue_views` in the units of Prometheus."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mayfly.node.operating.ports.metrics import LEFT_OUT, Metric, Sample
from mayfly.node.shard.counts import COUNTS

Row = Mapping[str, Any]

_MS_PER_S: Final = 1000


def queue_metrics(rows: Sequence[Row], left_out: int) -> list[Metric]:
    """Metrics of the queues in `rows`, from `QueueViews.some`; what is not known of a queue is left out."""
    metrics: list[Metric] = [("mayfly_queues_left_out", LEFT_OUT, "gauge", [({}, left_out)])]
    for kind, explanations in (("gauge", _GAUGES), ("counter", COUNTS)):
        for key, explanation in explanations.items():
            metrics.append((f"mayfly_queue_{key}", explanation, kind, _samples(rows, _at(key))))
    for name, (key, explanation) in _TIMES.items():
        metrics.append((f"mayfly_queue_{name}_seconds", explanation, "gauge", _samples(rows, _seconds(_at(key)))))
    lease = (
        ("mayfly_queue_lease_remaining_seconds", "Until the queue expires", _seconds(_of_lease("remaining_ms"))),
        ("mayfly_queue_lease_suspended", "1 while consumers keep the queue", _of_lease("suspended")),
    )
    return metrics + [(name, explanation, "gauge", _samples(rows, value)) for name, explanation, value in lease]


def _samples(rows: Sequence[Row], value: Callable[[Row], Any]) -> list[Sample]:
    values = ((row, value(row)) for row in rows)
    return [
        ({"vhost": row["vhost"], "queue": row["name"]}, float(number)) for row, number in values if number is not None
    ]


def _at(key: str) -> Callable[[Row], Any]:
    return lambda row: row.get(key)


def _of_lease(key: str) -> Callable[[Row], Any]:
    return lambda row: None if row.get("lease") is None else row["lease"][key]


def _seconds(value: Callable[[Row], Any]) -> Callable[[Row], Any]:
    def in_seconds(row: Row) -> float | None:
        milliseconds = value(row)
        return None if milliseconds is None else milliseconds / _MS_PER_S

    return in_seconds


_GAUGES: Final = {
    "ready": "Messages ready",
    "ready_live": "Messages ready whose deadline has not passed",
    "ready_bytes": "Bytes of bodies ready",
    "scheduled": "Messages that wait for their time",
    "unacknowledged": "Messages held by consumers",
    "consumers": "Consumers",
    "braked": "1: it delivers nothing, because too much has failed",
    "first_offset": "Offset of the first message of a stream",
    "next_offset": "Offset that the next message of a stream gets",
    "consumer_lag": "Offsets of a stream that the consumer furthest behind was not given yet",
    "exact": "0: ready_live may be too high, oldest_ready_seconds too low",
}
_TIMES: Final = {
    "oldest_ready": ("oldest_ready_age_ms", "Since the oldest ready message was enqueued"),
    "next_deadline": ("next_deadline_in_ms", "Until the head expires; below 0 it is late"),
    "next_due": ("next_due_in_ms", "Until the first scheduled message is due; below 0 it is late"),
    "last_use": ("last_use_age_ms", "Since the queue was used last"),
}
