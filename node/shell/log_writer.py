"""Writes one batch at a time to disk, and tells the event loop when it is there.

A thread of its own writes, and lets go of the interpreter's lock while it writes and syncs: the loop goes on gathering
the next batch meanwhile.

The loop is woken when a batch is on disk, unless nobody waits for that alone (`HostOutput.write_waits`): then it looks
by itself, whenever something else has woken it.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from mayfly.cluster.log.batch import LogStore, WriteBatch

Written = Callable[[BaseException | None], None]

SYNC_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LogWriter:
    """Writes batches; `written` is called in the event loop with None or the error."""

    def __init__(self, store: LogStore, loop: asyncio.AbstractEventLoop, written: Written) -> None:
        self._store = store
        self._left = False
        """Whether the loop has been left."""
        self._loop = loop
        self._written = written
        # Changed by the one who writes now; who reads them meanwhile may see a batch more in one than in the other.
        self._synced_by_bucket = [0] * (len(SYNC_BOUNDS_S) + 1)
        self._sync_sum_s = 0.0
        self._wakes = True
        self._ended: tuple[BaseException | None] | None = None
        """How the batch under way has ended, until the loop takes it. It is set before `_wakes` is read, and `_wakes`
        before this is: one of the two threads sees what the other did."""
        self._batches: SimpleQueue[WriteBatch | None] = SimpleQueue()
        # Not `_thread`: compiled, that becomes a word of C.
        self._writer_thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._writer_thread.start()

    def write(self, batch: WriteBatch, wakes: bool = True) -> None:
        """Write this batch next. Never blocks. Without `wakes` the loop is told only if it asks (`look`), or of an
        error."""
        self._wakes = wakes
        self._batches.put(batch)

    def look(self) -> None:
        """Have `written` called now if the batch under way has ended; if not, wake the loop when it does."""
        if self._left:
            return
        self._wakes = True
        self._take()

    # --- in the thread --------------------------------------------------------------------------------

    def _take(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._tell(ended[0])

    def _tell(self, error: BaseException | None) -> None:
        """In the loop. What was on its way when the loop was left comes to nothing: the log may be closed by now."""
        if not self._left:
            self._written(error)

    def syncs(self) -> tuple[tuple[int, ...], float]:
        """Batches by the time until they were synced (up to each of `SYNC_BOUNDS_S`, and longer); seconds in all."""
        return tuple(self._synced_by_bucket), self._sync_sum_s

    def leave_loop(self) -> None:
        """The loop hears of nothing any more. Called in it; never blocks."""
        self._left = True

    def stop(self) -> None:
        """After `leave_loop`: finish what was given and end the thread. Takes as long as the disk does: not to be
        called in the loop."""
        self._batches.put(None)
        self._writer_thread.join()

    def _note_time(self, took_s: float) -> None:
        self._synced_by_bucket[bisect_left(SYNC_BOUNDS_S, took_s)] += 1
        self._sync_sum_s += took_s

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            error: BaseException | None = None
            began_s = time.monotonic()
            try:
                self._store.write(batch)
            except BaseException as raised:  # handed to the loop, which decides
                error = raised
            self._note_time(time.monotonic() - began_s)
            self._ended = (error,)
            if not (self._wakes or error is not None):
                continue
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:  # the loop is closed: nobody waits for this any more
                return
