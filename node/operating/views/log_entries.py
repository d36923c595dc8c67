"""Entries of a shard's log, for pages that show what messages say. Pure: reads the replica here."""

from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import is_transient


class LogEntries:
    """Entries of one shard's log; of one after the other many messages may be read."""

    def __init__(self, engine: Engine, shard_id: int) -> None:
        self._engine = engine
        self._shard_id = shard_id
        self._index = 0
        self._data = b""
        self.bytes_read = 0

    def data(self, index: int) -> bytes:
        """What messages of this entry refer to."""
        if index != self._index:
            if is_transient(self._shard_id):
                self._data = self._engine.transient.local.data(index)
            else:
                self._data = self._engine.host.groups[self._shard_id].log.data_once(index)
            self._index = index
            self.bytes_read += len(self._data)
        return self._data
