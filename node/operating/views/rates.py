"""How fast counts grow, by looking at them now and then. Pure.

Nobody counts for it: whoever asks for a rate is told what the counts did since they were looked at some seconds before,
and nothing the first time. So it costs nothing where nobody looks.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from mayfly.node.broker.traffic import MessageCounts

SPAN_MS: Final = 5_000
"""A rate is over this at least, but for the first ones: over up to twice as much, or the time since the look before."""
LEAST_SPAN_MS: Final = 1_000
"""Over less than this there is none."""
KEPT_MS: Final = 120_000
"""What nobody has looked at for so long is forgotten: a rate over more would say nothing of now."""
MOST_KEPT: Final = 50_000

Counts = tuple[int, ...]


class _Samples(NamedTuple):
    """Two looks at the same counts, the newer one at least SPAN_MS behind the older one."""

    older_ms: int
    older: Counts
    newer_ms: int
    newer: Counts


class Rates:
    """Of counts by their keys; each key has the same counts each time, which do not go back while they are the same
    thing's."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, _Samples] = {}
        self._next_sweep_ms = 0

    def look(self, now_ms: int, key: Hashable, counts: Counts) -> tuple[float, ...] | None:
        """What each of them grows by in a second; None where that is not known."""
        self._sweep(now_ms)
        found = self._samples.get(key)
        if found is None or any(now < then for now, then in zip(counts, found.newer, strict=True)):
            if len(self._samples) < MOST_KEPT:
                self._samples[key] = _Samples(now_ms, counts, now_ms, counts)
            return None
        if now_ms - found.newer_ms >= SPAN_MS:
            found = self._samples[key] = _Samples(found.newer_ms, found.newer, now_ms, counts)
        span_ms = now_ms - found.older_ms
        if span_ms < LEAST_SPAN_MS:
            return None
        return tuple((now - then) * 1000 / span_ms for now, then in zip(counts, found.older, strict=True))

    def _sweep(self, now_ms: int) -> None:
        if now_ms < self._next_sweep_ms:
            return
        self._next_sweep_ms = now_ms + KEPT_MS
        self._samples = {
            key: samples for key, samples in self._samples.items() if now_ms - samples.newer_ms < KEPT_MS
        }


CLIENT_STATS: Final = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack", "deliver_get",
)  # fmt: skip
"""What RabbitMQ calls what `client_counts` has."""


def client_counts(counts: MessageCounts) -> Counts:
    """What clients have done."""
    return (
        counts.received, counts.confirmed, counts.unroutable_returned, counts.unroutable_dropped,
        counts.delivered_manual_ack, counts.delivered_auto_ack, counts.got_manual_ack, counts.got_auto_ack,
        counts.get_empty, counts.redelivered, counts.acknowledged, counts.delivered,
    )  # fmt: skip


def message_stats(names: Sequence[str], counts: Counts, rates: tuple[float, ...] | None) -> dict[str, Any]:
    """In RabbitMQ's fields: `publish`, and `publish_details.rate` where that is known."""
    stats: dict[str, Any] = dict(zip(names, counts, strict=True))
    for name, rate in zip(names, rates or (), strict=False):
        stats[f"{name}_details"] = {"rate": round(rate, 3)}
    return stats
