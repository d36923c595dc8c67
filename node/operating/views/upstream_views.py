"""Mirrors of streams in other clusters, for operators (RULES J4). Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from mayfly.node.engine.engine import Engine


class UpstreamPart(NamedTuple):
    """The link of a mirror, as its leader knows it. ``upstream_next``: the offset that the stream there gives next, -1
    where that is not known."""

    cluster: str
    stream: str
    state: str
    fault: str
    next_offset: int
    upstream_next: int

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        known = self.upstream_next >= 0
        return {
            "cluster": self.cluster,
            "stream": self.stream,
            "state": self.state,
            "reason": self.fault or None,
            "copied_to": self.next_offset,
            "upstream_next_offset": self.upstream_next if known else None,
            "lag": max(0, self.upstream_next - self.next_offset) if known else None,
        }


class UpstreamLag(NamedTuple):
    """A mirror whose shard is led here. ``offsets`` is -1 where it is not known how many are to come."""

    vhost: str
    mirror: str
    cluster: str
    reading: bool
    offsets: int
    shard: int

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        lag = self.offsets if self.offsets >= 0 else None
        return {
            "vhost": self.vhost, "mirror": self.mirror, "cluster": self.cluster, "reading": self.reading, "lag": lag,
        }  # fmt: skip


def upstream_in(engine: Engine, queue_id: int) -> UpstreamPart | None:
    """The link of a mirror; None where its shard is not led here."""
    link = engine.upstreams.links.get(queue_id)
    if link is None:
        return None
    state = link.shown()
    return UpstreamPart(*state[1:])


def upstream_lags(engine: Engine) -> Iterator[UpstreamLag]:
    """All that are led here."""
    for link in list(engine.upstreams.links.values()):
        state = link.shown()
        yield UpstreamLag(
            link.record.vhost, link.record.name, link.upstream, state.state == "reading", state.lag, link.record.shard
        )
