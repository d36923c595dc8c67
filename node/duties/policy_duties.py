"""Keeps what a shard's queues are told in step with the catalog: UPDATE_QUEUES after a change of policies (T12, L9).

Nothing here is state. A leader that is new compares every queue of its shard with the catalog, once, after a barrier;
from then on it compares those that a change of policies can concern, and those that were declared since: whoever
creates a queue in the shard may have done so with the policies of a moment ago. What was given is looked at again, and
given again if it had no effect. Until it is seen to have arrived, a queue counts as having what it was given last: the
log keeps the order, so what takes back an update that is still on its way goes behind it.

A hundred thousand queues may follow one policy. What it comes to is worked out once for each combination of arguments
and policies (`KnownTerms`), and given once for all queues that have it in common: a command is terms and a list of ids.
Comparing is bounded: a slice of the shard's queues in a tick, so that no tick looks at all of them.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from mayfly.node.catalog import Catalog, PolicyChange, QueueRecord
from mayfly.node.catalog.shard_settings import KnownTerms
from mayfly.node.limits import (
    MESSAGES_TOUCHED_PER_ENTRY,
    QUEUES_COMPARED_PER_TICK,
    QUEUES_COMPARED_PER_TICK_AT_MOST,
    QUEUES_UPDATED_PER_ENTRY,
    SEARCHES_PER_TICK,
)
from mayfly.node.shard import commands
from mayfly.node.shard.shard import Shard

AGAIN_MS: Final = 500
"""When a queue that was told something, or is still to be created, is looked at again."""

WATCHED_MS: Final = 30_000
"""How long a queue is looked at that was told something while something else was on its way: it may show the one
because the other has not arrived yet. No update is expected to be later than that."""

TICKS_PER_SWEEP: Final = 5
"""Within so many ticks all queues are compared, unless there are more than a tick may look at."""


class _Told:
    """Queues that were told the same terms in one command, and are not known to have heard them."""

    __slots__ = ("messages", "queue_ids", "terms", "watch_until_ms")

    def __init__(self, terms: bytes, watch_until_ms: int) -> None:
        """`watch_until_ms`: before that, nothing is known from what the queues show."""
        self.terms = terms
        self.watch_until_ms = watch_until_ms
        self.queue_ids: list[int] = []
        self.messages = 0
        """In those queues, as far as the command has work with them."""


class PolicyDuties:
    """The duty for one shard. Idle until `compare_all`."""

    def __init__(self, shard: Shard, catalog: Catalog, give: Callable[[bytes], object]) -> None:
        """`catalog` is the local replica; `give(command)` takes internal commands for the shard, which may get lost."""
        self.shard: Shard = shard
        self._catalog = catalog
        self._give = give
        self.forget()

    def forget(self) -> None:
        """Begin anew: the shard is led elsewhere, or was."""
        self.begun: bool = False
        """Whether `compare_all` was called since."""
        self._version = 0
        self._next_queue_id = 0
        self._moved = 0
        self._to_compare: list[int] = []
        self._changes: list[PolicyChange] | None = None
        self._slice = 0
        self._again: deque[tuple[int, _Told | None, list[int]]] = deque()
        """When to look again, at which queues, and what they were told: None if nothing was given."""
        self._told: dict[int, _Told] = {}
        """By queue, what it was told last."""
        self._telling: dict[tuple[bytes, bool], _Told] = {}
        """What is being gathered for the next commands, by terms and by whether the queues are watched."""
        self._full: list[_Told] = []
        """The same, as much as goes into one command."""
        self._known_terms = KnownTerms()

    def compare_all(self) -> None:
        """Compare every queue of the shard with the catalog, which must be as new as the shard's last leader's was."""
        self.begun = True
        self._begin_sweep(None)
        self._next_queue_id = self._catalog.next_queue_id
        self._moved = self._catalog.queues_moved

    def look_at(self, queue_id: int, now_ms: int) -> None:
        """A queue that will be in the shard in a moment."""
        self._again.append((now_ms + AGAIN_MS, None, [queue_id]))

    def perform(self, now_ms: int) -> None:
        """A tick: compare what is due, and give what differs."""
        if not self.begun:
            return
        catalog = self._catalog
        if not self._to_compare and catalog.policies_version != self._version:
            self._begin_sweep(catalog.policy_changes(self._version))
        if catalog.queues_moved != self._moved:
            self._take_up_moved(now_ms)
        if not self._to_compare and not self._again and catalog.next_queue_id == self._next_queue_id:
            return
        self._sweep(now_ms)
        self._take_up_declared(now_ms)
        self._look_again(now_ms)
        self._give_gathered(now_ms)

    def _give_gathered(self, now_ms: int) -> None:
        """Give what was gathered, as much in one go as an entry may have."""
        told_now = [*self._full, *self._telling.values()]
        self._full = []
        self._telling.clear()
        parts: list[bytes] = []
        queues = messages = 0
        for told in told_now:
            self._again.append((now_ms + AGAIN_MS, told, told.queue_ids))
            parts.append(commands.encode_update_queues(told.terms, told.queue_ids))
            queues += len(told.queue_ids)
            messages += told.messages
            if queues >= QUEUES_UPDATED_PER_ENTRY or messages >= MESSAGES_TOUCHED_PER_ENTRY:
                self._give(b"".join(parts))
                parts = []
                queues = messages = 0
        if parts:
            self._give(b"".join(parts))

    def _begin_sweep(self, changes: list[PolicyChange] | None) -> None:
        """Compare the queues that these changes concern (None: all). What changes meanwhile is for the next sweep."""
        self._version = self._catalog.policies_version
        self._changes = changes
        self._to_compare = list(self.shard.queue_ids())
        share = -(-len(self._to_compare) // TICKS_PER_SWEEP)
        queues = min(max(QUEUES_COMPARED_PER_TICK, share), QUEUES_COMPARED_PER_TICK_AT_MOST)
        searches = self._catalog.policies_count + (0 if changes is None else 2 * len(changes))
        self._slice = min(queues, max(1, SEARCHES_PER_TICK // max(1, searches)))

    def _sweep(self, now_ms: int) -> None:
        ids = self._to_compare[-self._slice :]
        del self._to_compare[-self._slice :]
        changes, catalog = self._changes, self._catalog
        for queue_id in ids:
            record = catalog.queue_by_id(queue_id)
            if changes is None:
                self._compare(queue_id, record, now_ms)
            elif record is not None:
                for change in changes:
                    if change.concerns(record):
                        self._compare(queue_id, record, now_ms)
                        break

    def _take_up_declared(self, now_ms: int) -> None:
        catalog = self._catalog
        if catalog.next_queue_id == self._next_queue_id:
            return
        for record in catalog.queues_since(self._next_queue_id):
            if record.shard == self.shard.shard_id:
                self._compare(record.id, record, now_ms)
        self._next_queue_id = catalog.next_queue_id

    def _take_up_moved(self, now_ms: int) -> None:
        """What a queue was told in the shard from which it has come may be out of date."""
        moved = self._catalog.moved_since(self._moved)
        self._moved = self._catalog.queues_moved
        if moved is None:
            self._begin_sweep(None)
            return
        for queue_id in moved:
            record = self._catalog.queue_by_id(queue_id)
            if record is not None and record.shard == self.shard.shard_id:
                self.look_at(queue_id, now_ms)

    def _look_again(self, now_ms: int) -> None:
        catalog = self._catalog
        while self._again and self._again[0][0] <= now_ms:
            _, told, queue_ids = self._again.popleft()
            if told is not None:
                self._look_for(told, now_ms)
                continue
            for queue_id in queue_ids:
                if queue_id not in self._told:
                    self._compare(queue_id, catalog.queue_by_id(queue_id), now_ms)

    def _look_for(self, told: _Told, now_ms: int) -> None:
        """What has arrived needs no comparison: if policies have changed since, the sweep for that comes by."""
        catalog, shard, told_last = self._catalog, self.shard, self._told
        watched: list[int] = []
        for queue_id in told.queue_ids:
            if told_last.get(queue_id) is not told:
                continue  # It was told something else, and another look is due.
            queue = shard.queue(queue_id)
            if queue is None or queue.terms_bytes != told.terms:
                self._compare(queue_id, catalog.queue_by_id(queue_id), now_ms, arrived=False)
            elif now_ms < told.watch_until_ms:
                watched.append(queue_id)
            else:
                del told_last[queue_id]
        if watched:
            told.queue_ids = watched
            self._again.append((now_ms + AGAIN_MS, told, watched))

    def _compare(self, queue_id: int, record: QueueRecord | None, now_ms: int, arrived: bool = True) -> None:
        """Tell it what differs. If what was given has not `arrived` in time, tell it in any case: that may be on its
        way still, whatever the queue shows now."""
        queue = self.shard.queue(queue_id)
        if record is None or queue is None:
            self._told.pop(queue_id, None)
            if record is not None and queue_id not in self.shard.deleted:
                self.look_at(queue_id, now_ms)
            return
        told = self._told.get(queue_id)
        wanted = self._known_terms.of(self._catalog, record)
        shown = queue.terms_bytes
        if not arrived or wanted != (shown if told is None else told.terms):
            self._tell(queue_id, shown, wanted, queue.ready_count(), now_ms)

    def _tell(self, queue_id: int, shown: bytes, wanted: bytes, messages: int, now_ms: int) -> None:
        """Give `wanted` to a queue that shows other terms, or may do so in a moment."""
        before, watched = self._told.get(queue_id), False
        if before is not None:
            watched = now_ms < before.watch_until_ms or before.terms not in (shown, wanted)
        key = (wanted, watched)
        told = self._telling.get(key)
        if told is None:
            told = self._telling[key] = _Told(wanted, now_ms + WATCHED_MS if watched else 0)
        told.queue_ids.append(queue_id)
        told.messages += min(messages, MESSAGES_TOUCHED_PER_ENTRY)
        self._told[queue_id] = told
        if len(told.queue_ids) >= QUEUES_UPDATED_PER_ENTRY or told.messages >= MESSAGES_TOUCHED_PER_ENTRY:
            self._full.append(self._telling.pop(key))
