"""The thread that writes: takes one batch at a time off the event loop and syncs it to disk.

LMDB releases the GIL while it writes and syncs, so the loop goes on gathering the next batch meanwhile.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from cluster.log.batch import LogStore, WriteBatch

Written = Callable[[BaseException | None], None]


class LogWriter:
    """Writes batches in a thread of its own; `written` is called in the event loop with None or the error."""

    def __init__(self, store: LogStore, loop: asyncio.AbstractEventLoop, written: Written) -> None:
        self._store = store
        self._loop = loop
        self._written = written
        self._batches: SimpleQueue[WriteBatch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, batch: WriteBatch) -> None:
        """Write this batch next. Never blocks."""
        self._batches.put(batch)

    def stop(self) -> None:
        """Finish what was given and end the thread."""
        self._batches.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            error: BaseException | None = None
            try:
                self._store.write(batch)
            except BaseException as raised:  # handed to the loop, which decides
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._written, error)
            except RuntimeError:  # the loop is closed: nobody waits for this any more
                return
