"""When something is due, by queue: at most one deadline a queue, derived from state, never stored. HOT.

A heap with a postponing table. The table has the true deadline of each queue; the heap has, for each of them,
an entry at or before it. Moving a deadline later, by far the most frequent change (a head left, a lease was
renewed), is one dictionary store: the early entry is put right when it comes up. Cancelling removes it from
the table at once; the entry left in the heap is a number without a meaning, dropped when it comes up or when
such entries outnumber the true ones. Measured against a wheel of 128 ms buckets (100 000 queues, uncompiled;
tests/bench/shard_timers.py): see there.
"""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

NEVER: Final = -1
_SLACK: Final = 64


class Timers:
    """Deadlines in ms by queue id. They come due in the order (deadline, queue id), whatever the heap looks
    like.
    """

    __slots__ = ("due", "heap")

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self.heap: list[tuple[int, int]] = []

    def arm(self, queue_id: int, due_ms: int) -> None:
        """The queue's deadline is this one from now on."""
        before = self.due.get(queue_id, NEVER)
        if before == due_ms:
            return
        self.due[queue_id] = due_ms
        if before == NEVER or due_ms < before:
            heappush(self.heap, (due_ms, queue_id))
            self._sweep()

    def cancel(self, queue_id: int) -> None:
        """The queue has no deadline any more."""
        if self.due.pop(queue_id, NEVER) != NEVER:
            self._sweep()

    def _sweep(self) -> None:
        """Drop entries without a meaning once they outnumber the others."""
        if len(self.heap) > 2 * len(self.due) + _SLACK:
            self.heap = [(due_ms, queue_id) for queue_id, due_ms in self.due.items()]
            heapify(self.heap)

    def first(self) -> tuple[int, int]:
        """The next (deadline, queue id); (NEVER, 0) when there is none."""
        heap = self.heap
        while heap:
            entry = heap[0]
            true_ms = self.due.get(entry[1], NEVER)
            if true_ms == entry[0]:
                return entry
            if true_ms < entry[0]:
                # Cancelled, or moved forward: the true deadline has an entry of its own.
                heappop(heap)
            else:
                heapreplace(heap, (true_ms, entry[1]))
        return (NEVER, 0)

    def all_due(self, now_ms: int, limit: int) -> list[int]:
        """At most ``limit`` queue ids whose deadline is at or before ``now_ms``, in order; they stay armed.
        """
        found: list[tuple[int, int]] = []
        while len(found) < limit:
            entry = self.first()
            if entry[0] == NEVER or entry[0] > now_ms:
                break
            heappop(self.heap)
            if not found or found[-1] != entry:
                found.append(entry)
        for entry in found:
            heappush(self.heap, entry)
        return [entry[1] for entry in found]
