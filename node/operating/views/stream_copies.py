"""Streams that are copied, for operators: how far behind the copies are (RULES J4). Pure."""

from collections.abc import Iterator
from typing import NamedTuple

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


def copy_lag_steps(engine: Engine, shard: Shard) -> Iterator[CopyLag]:
    """The copies of the streams in a shard that is led here, as far as its leader knows, one for each step."""
    catalog = engine.catalog
    for copy in list(catalog.copying_streams()):
        for name in origins_of(copy.settings):
            origin = catalog.queue(copy.vhost, name)
            queue = None if origin is None or origin.shard != shard.shard_id else shard.queue(origin.id)
            if origin is None or queue is None or queue.stream is None:
                continue
            received = engine.received_up_to(copy.shard, copy.id, stream_source(origin.id))
            yield CopyLag(copy.vhost, name, copy.name, max(0, queue.stream.next_offset - max(received, 0)))
