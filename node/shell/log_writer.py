"""Writes one batch at a time to disk, and tells the event loop when it is there.

Most batches are written by the kernel, without a thread (`cluster.store.direct_writes`), where it does that; the others
by a thread of its own, which lets go of the GIL while it writes and syncs. Either way the loop goes on gathering the
next batch meanwhile.

The loop is woken when a batch is on disk, unless nobody waits for that alone (`HostOutput.write_waits`): then it looks
by itself, whenever something else has woken it.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Protocol

from mayfly.cluster.log.batch import LogError, LogStore, WriteBatch

Written = Callable[[BaseException | None], None]

SYNC_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class DirectStore(Protocol):
    """A store that writes some batches without a thread. See `WriteAheadStore`."""

    def open_direct(self) -> int | None:
        """A descriptor that becomes readable when `end` can be called; None: no batch can be written so."""
        ...

    def begin(self, batch: WriteBatch) -> bool:
        """Begin to write; False if `LogStore.write` has to do it. Raises `DiskFailed`, `ValueError`."""
        ...

    def end(self, wait: bool = False) -> bool | None:
        """Whether the batch is on disk; False: `LogStore.write` has to do it. None: not known yet, which `wait` waits
        for. Raises `DiskFailed`."""
        ...

    def take_notice(self) -> None:
        """That the descriptor is readable is known."""
        ...


class LogWriter:
    """Writes batches; `written` is called in the event loop with None or the error."""

    def __init__(
        self,
        store: LogStore,
        loop: asyncio.AbstractEventLoop,
        written: Written,
        direct: DirectStore | None = None,
    ) -> None:
        """`direct`: the same store, if it may write without the thread."""
        self._store = store
        self._direct = direct
        self._told = None if direct is None else direct.open_direct()
        self._listens = False
        """Whether the loop is woken by `_told`."""
        self._begun: WriteBatch | None = None
        """What is written without the thread now."""
        self._began_s = 0.0
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
        if self._told is None or not self._begin(batch, self._told):
            self._batches.put(batch)

    def look(self) -> None:
        """Have `written` called now if the batch under way has ended; if not, wake the loop when it does."""
        if self._left:
            return
        self._wakes = True
        if self._begun is None:
            self._take()
        elif not self._listens and not self._end() and self._told is not None:
            self._listen(self._told)

    # --- without the thread ---------------------------------------------------------------------------

    def _begin(self, batch: WriteBatch, told: int) -> bool:
        assert self._direct is not None
        self._began_s = time.monotonic()
        try:
            if not self._direct.begin(batch):
                return False
        except Exception as error:  # handed to the loop, which decides
            self._loop.call_soon(self._tell, error)
            return True
        self._begun = batch
        if self._wakes and not self._listens:
            self._listen(told)
        elif self._listens and not self._wakes:
            self._listens = False
            self._loop.remove_reader(told)
        return True

    def _listen(self, told: int) -> None:
        self._listens = True
        self._loop.add_reader(told, self._is_told)

    def _is_told(self) -> None:
        assert self._direct is not None
        self._direct.take_notice()
        if self._told is not None and self._begun is not None:
            self._end()

    def _end(self) -> bool:
        """Take note of how the write ended; False if it has not."""
        batch, direct = self._begun, self._direct
        assert batch is not None
        assert direct is not None
        error: BaseException | None = None
        try:
            done = direct.end()
        except Exception as raised:
            done, error = True, raised
        if done is None:
            return False
        self._begun = None
        if done:
            self._note_time(time.monotonic() - self._began_s)
            self._tell(error)
        else:
            self._wakes = True
            self._batches.put(batch)
        return True

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
        """Batches by the time until they were synced, or until the loop saw that (up to each of `SYNC_BOUNDS_S`, and
        longer); seconds in all."""
        return tuple(self._synced_by_bucket), self._sync_sum_s

    def leave_loop(self) -> None:
        """The loop hears of nothing any more. Called in it; never blocks."""
        self._left = True
        told, self._told = self._told, None
        if told is not None and self._listens:
            self._listens = False
            self._loop.remove_reader(told)

    def stop(self) -> None:
        """After `leave_loop`: finish what was given and end the thread. Takes as long as the disk does: not to be
        called in the loop."""
        batch, self._begun = self._begun, None
        if batch is not None and self._direct is not None:
            with suppress(LogError):
                if not self._direct.end(wait=True):
                    self._batches.put(batch)
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
