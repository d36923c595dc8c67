"""Streams that are copied, for operators: how far behind the copies are (RULES J4). Pure."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mayfly.node.catalog.streams import origins_of
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import stream_source
from mayfly.node.shard.shard import Shard


class CopyLag(NamedTuple):
    """How many offsets of a stream a copy of it still has to take over."""

    vhost: str
    stream: str
    copy: str
    offsets: int

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {"vhost": self.vhost, "stream": self.stream, "copy": self.copy, "lag": self.offsets}


PASSED_OVER_PER_STEP: Final = 100
"""Copies of streams of other shards that are passed over in a step."""


def copy_lag_steps(engine: Engine, shard: Shard) -> Iterator[CopyLag | None]:
    """The copies of the streams in a shard that is led here, as far as its leader knows, one for each step; None for
    each step on the way."""
    catalog = engine.catalog
    for number, copy in enumerate(list(catalog.copying_streams()), 1):
        if number % PASSED_OVER_PER_STEP == 0:
            yield None
        for name in origins_of(copy.settings):
            origin = catalog.queue(copy.vhost, name)
            queue = None if origin is None or origin.shard != shard.shard_id else shard.queue(origin.id)
            if origin is None or queue is None or queue.stream is None:
                continue
            received = engine.received_up_to(copy.shard, copy.id, stream_source(origin.id))
            yield CopyLag(copy.vhost, name, copy.name, max(0, queue.stream.next_offset - max(received, 0)))
