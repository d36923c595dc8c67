"""The log of a node: write-ahead files in front of the log file.

A batch is durable with one append to a write-ahead file and one sync (`write_ahead_files`). The log file (`lmdb_store`)
gets what gathered in one of the two files at once, in one synced transaction that also notes up to which record it has
everything; then that file is cleared for its next turn. A thread of its own does this while the other file takes what
comes. At start the records beyond the noted one are replayed (`gathered`).

Batches with snapshots, and large ones, go to the log file at once, together with all that gathered before them.

`write` blocks until a batch is durable.
"""

import threading
from pathlib import Path
from queue import SimpleQueue

from mayfly.cluster import limits
from mayfly.cluster.log.batch import (
    CorruptStore,
    DiskFailed,
    DiskFull,
    LogError,
    StoreDamaged,
    StoredGroup,
    StoreRefused,
    WriteBatch,
)
from mayfly.cluster.log.gathered import GatheredBatches, beyond, done_with, replay
from mayfly.cluster.log.write_ahead_format import encode_record, may_be_recorded
from mayfly.cluster.raft import Entry
from mayfly.cluster.store.lmdb_store import LmdbLogStore, extent_after
from mayfly.cluster.store.write_ahead_files import WriteAheadFiles


class WriteAheadStore:
    """A `LogStore` in a folder. See `LogStore` for what may be called from which thread.

    What waits for the log file is in memory as well: at most two write-ahead files of it, and as much again for small
    entries.
    """

    def __init__(
        self,
        path: Path | str,
        map_size_bytes: int = limits.DEFAULT_MAP_SIZE_BYTES,
        node_identity: str = "",
        segment_bytes: int = limits.AHEAD_SEGMENT_BYTES,
    ) -> None:
        """Open the log, or create it in an empty folder; replay what is in the write-ahead files.

        Raises `StoreRefused`, `StoreUnfit`, as `LmdbLogStore` does, and for damaged or missing write-ahead files.
        """
        self._segment_bytes = segment_bytes
        self._record_max_bytes = min(limits.AHEAD_RECORD_MAX_BYTES, segment_bytes // 4)
        self._lock = threading.Lock()
        self._parts = threading.Lock()
        self._copying = threading.Lock()
        """Held while the log file is copied; taken before `_lock`."""
        self._measuring = threading.Lock()
        """Held while somebody looks how much room there is, and never for long: who asks need not wait for a disk that
        hangs. Taken last."""
        self._closed = False
        self.written_bytes: int = 0
        """About how much was written since the store was opened; what was recorded first counts once."""
        self._gathered = GatheredBatches()
        self._moving: GatheredBatches | None = None
        self._moving_number = 0
        self._move_error: BaseException | None = None
        self._failed = ""
        self._extents: dict[int, tuple[int, int]] = {}
        self._log_file = LmdbLogStore(path, map_size_bytes, node_identity)
        try:
            moved = self._log_file.moved()
            self._files = WriteAheadFiles(Path(path), segment_bytes, may_create=moved is None)
            try:
                self._number = self._replay(moved)
            except BaseException:
                self._files.close()
                raise
        except BaseException:
            self._log_file.close()
            raise
        self._moves: SimpleQueue[bool] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._mover: threading.Thread | None = None

    def _replay(self, moved: int | None) -> int:
        """Bring the log file up to date and clear the write-ahead files; the number of the last record."""
        images = self._files.images()
        try:
            gathered, last = replay(images, moved or 0)
            needed = self._log_file.relieved
            if last < needed:
                raise CorruptStore(f"records {last + 1} to {needed} of the write-ahead files are missing")
            last = done_with(images, last)
            if moved is None or last > moved:
                try:
                    self._log_file.write_together([gathered.batch], last, keep_reserve=False)
                except DiskFull:
                    self._replay_without_room(images, gathered.batch, last)
                    self._log_file.write_together([], last, keep_reserve=False)
            self._files.begin(images)
        # Names of their own: mypyc gives one name one type.
        except DiskFull as full:
            raise StoreRefused(
                f"what is in the write-ahead files is not lost, but has no room in the log file: {full}. "
                "Make room in its file system, or raise disk_map_bytes"
            ) from full
        except CorruptStore as damage:
            raise StoreDamaged(str(damage)) from damage
        except ValueError as misfit:
            raise StoreDamaged(f"the write-ahead files do not fit the log file: {misfit}") from misfit
        return last

    def _replay_without_room(self, images: list[tuple[str, bytes]], batch: WriteBatch, last: int) -> None:
        self._log_file.release([batch])
        try:
            self._move_in_steps(images, last)
        except DiskFull:
            # Free pages may be no neighbours. A node that does not start could never release anything.
            self._log_file.extend(batch)
            self._move_in_steps(images, last)

    # --- reading --------------------------------------------------------------------------------------

    def load(self) -> dict[int, StoredGroup]:
        """See `LogStore.load`; brings the log file up to date first."""
        self.settle()
        return self._log_file.load()

    def read_entry(self, group: int, index: int) -> Entry:
        """See `LogStore.read_entry`."""
        with self._parts:
            entry = self._gathered.find(group, index)
            if entry is None and self._moving is not None:
                entry = self._moving.find(group, index)
        return self._log_file.read_entry(group, index) if entry is None else entry

    def mark_damaged(self, group: int, text: str) -> None:
        """See `LogStore.mark_damaged`."""
        self._log_file.mark_damaged(group, text)

    def get_meta(self, key: str) -> bytes | None:
        """See `LogStore.get_meta`."""
        return self._log_file.get_meta(key)

    def put_meta(self, key: str, value: bytes) -> None:
        """See `LogStore.put_meta`."""
        self._log_file.put_meta(key, value)

    def copy(self, folder: Path) -> None:
        """See `LmdbLogStore.copy`. What waits is moved first: the copy has empty write-ahead files.

        Raises what `settle` does, too."""
        with self._copying:
            self.settle()
            relieved = self._log_file.relieved
            self._log_file.copy(folder)
            if self._log_file.relieved != relieved:
                raise OSError("the log ran full meanwhile, and a copy may lack what still waits: copy it again")
        WriteAheadFiles(folder, self._segment_bytes, may_create=True).close()

    # --- writing --------------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        """See `LogStore.write`."""
        with self._lock:
            self._refuse_after_failure()
            extents = self._extents_after(batch)
            try:
                if not (may_be_recorded(batch, self._record_max_bytes) and self._append(batch)):
                    self._write_through(batch)
            except DiskFailed as error:
                self._failed = str(error)
                raise
            self._extents.update(extents)

    def _refuse_after_failure(self) -> None:
        if isinstance(self._move_error, Exception) and not isinstance(self._move_error, DiskFull):
            self._failed = self._failed or str(self._move_error)
        if self._failed:
            raise DiskFailed(f"refused after an earlier failure: {self._failed}")

    def _extents_after(self, batch: WriteBatch) -> dict[int, tuple[int, int]]:
        """Which part of each group's log will be there. Raises `ValueError` for a batch that doesn't fit it."""
        extents: dict[int, tuple[int, int]] = {}
        for number, write in batch.groups.items():
            extent = self._extents.get(number) or self._log_file.extent(number)
            write.validate(*extent)
            extents[number] = extent_after(write, extent)
        return extents

    def _append(self, batch: WriteBatch) -> bool:
        """Write a record; False if there is no room for what it needs, here or later in the log file."""
        needed_bytes = self._log_file.needed_bytes(batch)
        try:
            self._log_file.demand_room(needed_bytes, self._waiting_bytes())
            record = encode_record(self._number + 1, batch, self._files.salt)
            if not self._files.fits(record) or self._gathered.memory_bytes > 2 * self._segment_bytes:
                self._turn()
                record = encode_record(self._number + 1, batch, self._files.salt)
            self._files.append(record)
        except DiskFull:
            return False
        with self._parts:
            self._gathered.add(batch, needed_bytes)
        self._number += 1
        self.written_bytes += len(record)
        return True

    def _write_through(self, batch: WriteBatch) -> None:
        """Write to the log file at once, after all that gathered."""
        # It has no number: a record that was begun would be replayed after it.
        self._files.clear_unfinished()
        try:
            self._finish_move()
            self._log_file.write_together([self._gathered.batch, batch], self._number, keep_reserve=True)
        except DiskFull:
            self._settle_with_relief(batch)
            self._log_file.write(batch)
        else:
            with self._parts:
                self._gathered = GatheredBatches()
        self.written_bytes += self._log_file.needed_bytes(batch)

    def _settle_with_relief(self, batch: WriteBatch) -> None:
        """What is to make room must not wait for what needs it."""
        try:
            self._settle()
        except DiskFull:
            relief = batch.relief()
            if relief.empty():
                raise
            self._log_file.relieve(relief, self._number)
            self._settle()

    def _waiting_bytes(self) -> int:
        moving = self._moving
        return self._gathered.disk_bytes + (0 if moving is None else moving.disk_bytes)

    # --- moving ---------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Go on in the other file; have the content of this one moved into the log file meanwhile."""
        self._finish_move()
        self._files.clear_other()
        self._files.clear_unfinished()
        with self._parts:
            self._moving, self._gathered = self._gathered, GatheredBatches()
            self._moving_number = self._number
        self._files.turn()
        if self._mover is None:
            self._mover = threading.Thread(target=self._run_mover, name="log-mover", daemon=True)
            self._mover.start()
        self._idle.clear()
        self._moves.put(True)

    def _run_mover(self) -> None:
        while self._moves.get():
            try:
                self._move()
            except BaseException as error:  # the next write meets it
                self._move_error = error
            self._idle.set()

    def _move(self) -> None:
        moving = self._moving
        if moving is not None:
            # Of empty batches, too, the number: a file that is not quite clear must be of no account.
            self._log_file.write_together([moving.batch], self._moving_number, keep_reserve=False)
            with self._parts:
                self._moving = None
        self._files.clear_other()

    def _finish_move(self) -> None:
        """Wait until the other file is clear; one whose move found no room is tried again. Raises what a write does."""
        self._idle.wait()
        error, self._move_error = self._move_error, None
        if error is not None and not isinstance(error, DiskFull):
            self._failed = str(error)
            raise DiskFailed(self._failed) from error
        if self._moving is not None:
            self._move()

    def settle(self) -> None:
        """Bring the log file up to date: only there does what was released give its room back. Raises what `write`
        does. Any thread may ask; a write waits meanwhile."""
        with self._lock:
            self._refuse_after_failure()
            self._settle()

    def _settle(self) -> None:
        try:
            self._finish_move()
            if not self._gathered.empty():
                self._log_file.write_together([self._gathered.batch], self._number, keep_reserve=False)
        except DiskFull:
            self._settle_in_steps()
        with self._parts:
            self._gathered = GatheredBatches()

    def _settle_in_steps(self) -> None:
        """What has no room as one transaction: what it gives up first, then as many transactions as it takes."""
        moving = self._moving
        waiting = [self._gathered] if moving is None else [moving, self._gathered]
        self._log_file.release([each.batch for each in waiting])
        try:
            self._move_in_steps(self._files.images(), self._number)
        finally:
            if moving is not None and (self._log_file.moved() or 0) >= self._moving_number:
                with self._parts:
                    self._moving = None

    def _move_in_steps(self, images: list[tuple[str, bytes]], last: int) -> None:
        """Move what is in the files up to record `last` (behind it may be one that was begun and does not count), in
        several transactions if it has to be. Raises `DiskFull`; what is moved by then is noted."""
        todo = [[each for each in beyond(images, self._log_file.moved() or 0) if each[0] <= last]]
        while todo:
            step = todo.pop()
            if not step:
                continue
            gathered = GatheredBatches()
            for _, batch in step:
                gathered.add(batch)
            try:
                self._log_file.write_together([gathered.batch], step[-1][0], keep_reserve=False)
            except DiskFull:
                if len(step) == 1:
                    raise
                middle = len(step) // 2
                todo += [step[middle:], step[:middle]]

    # --- room -----------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """See `LogStore.free_bytes`. Raises `DiskFailed` once the store is closed."""
        with self._measuring:
            self._refuse_when_closed()
            return max(0, self._log_file.free_bytes() - self._waiting_bytes())

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise DiskFailed("the store is closed")

    def close(self) -> None:
        """Bring the log file up to date, if that can be done, and close all files. See `LogStore.close`.

        What is under way in another thread, a `settle` or `copy` or a look at the room, is waited for; what comes later
        is refused."""
        with self._copying, self._lock:
            if self._mover is not None:
                self._idle.wait()
                self._moves.put(False)
                self._mover.join()
            try:
                if not self._failed:
                    self._settle()
            except LogError:
                pass  # It is all in the write-ahead files.
            self._failed = self._failed or "the store is closed"
            with self._measuring:
                self._closed = True
                self._files.close()
                self._log_file.close()
