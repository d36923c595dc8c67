"""Entries that are read back from the log; one that is damaged or gone stops the node."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from mayfly.cluster.log.batch import CorruptEntry, LogError, MissingEntry
from mayfly.cluster.raft import Entry
from mayfly.cluster.store.write_ahead_store import WriteAheadStore


class EntryReader:
    """Of one node's log."""

    def __init__(
        self,
        store: WriteAheadStore,
        loop: asyncio.AbstractEventLoop,
        fail: Callable[[str], None],
        has_peers: Callable[[], bool],
    ) -> None:
        """`fail(why)` stops the node; it is called in the loop. `has_peers` says whether it can be rebuilt from any."""
        self._store = store
        self._loop = loop
        self._fail = fail
        self._has_peers = has_peers

    def read(self, group: int, index: int) -> Entry:
        """Read an entry back; one that is damaged or gone on disk stops the node, and its replica is rebuilt at the
        next start. Any thread may do this: a snapshot is read beside the loop.

        Whoever asked must not go on as if it had the entry, so this raises as well."""
        try:
            return self._store.read_entry(group, index)
        except (CorruptEntry, MissingEntry) as error:
            in_loop = threading.current_thread() is threading.main_thread()
            if isinstance(error, MissingEntry) and not (in_loop and self._has_peers()):
                # Beside the loop it is none: what a snapshot needs may be released before it was read.
                raise
            with suppress(LogError):
                self._store.mark_damaged(group, str(error))
            text = f"{error}; started again, this node has group {group} rebuilt from the others"
            if in_loop:
                self._fail(text)
            else:
                self._loop.call_soon_threadsafe(self._fail, text)
            raise
