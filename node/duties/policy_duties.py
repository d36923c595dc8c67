"""Keeps what a shard's queues are told in step with the catalog: UPDATE_QUEUE after a change of policies (T12, L9).

Nothing here is state. A leader that is new compares every queue of its shard with the catalog, once, after a barrier;
from then on it compares those that a change of policies can concern, and those that were declared since: whoever
creates a queue in the shard may have done so with the policies of a moment ago. What was given is looked at again, and
given again if it had no effect. Until it is seen to have arrived, a queue counts as having what it was given last: the
log keeps the order, so what takes back an update that is still on its way goes behind it.

Comparing is bounded: a slice of the shard's queues in a tick, so that a change of policies reaches 100 000 queues
within some ticks, and no tick looks at all of them.
"""

from collections import deque
from typing import Final, Protocol

from node.broker.queue_settings import shard_settings
from node.catalog import Catalog, PolicyChange, QueueRecord
from node.limits import QUEUES_COMPARED_PER_TICK, QUEUES_UPDATED_PER_ENTRY
from node.shard import commands
from node.shard.settings import encode_settings
from node.shard.shard import Shard

AGAIN_MS: Final = 500
"""When a queue that was told something, or is still to be created, is looked at again."""

WATCHED_MS: Final = 30_000
"""How long a queue is looked at that was told something while something else was on its way: it may show the one
because the other has not arrived yet. No update is expected to be later than that."""

TICKS_PER_SWEEP: Final = 5
"""However many queues there are, they are compared within so many ticks."""


class PolicyPort(Protocol):
    """What the duty needs of the node around the shard."""

    @property
    def catalog(self) -> Catalog:
        """The local catalog replica."""
        ...

    def give(self, command: bytes) -> None:
        """Internal commands for the shard itself; they may get lost."""
        ...


class _Given:
    """Settings that a queue was told, and is not known to have heard."""

    __slots__ = ("look_ms", "settings", "watch_until_ms")

    def __init__(self, settings: bytes, look_ms: int, watch_until_ms: int) -> None:
        """`watch_until_ms`: before that, nothing is known from what the queue shows."""
        self.settings = settings
        self.look_ms = look_ms
        self.watch_until_ms = watch_until_ms


class PolicyDuties:
    """The duty for one shard. Idle until `compare_all`."""

    def __init__(self, shard: Shard, port: PolicyPort) -> None:
        self.shard: Shard = shard
        self._port = port
        self.forget()

    def forget(self) -> None:
        """Begin anew: the shard is led elsewhere, or was."""
        self.begun: bool = False
        """Whether `compare_all` was called since."""
        self._version = 0
        self._next_queue_id = 0
        self._to_compare: list[int] = []
        self._changes: list[PolicyChange] | None = None
        self._slice = 0
        self._again: deque[tuple[int, int]] = deque()
        self._given: dict[int, _Given] = {}

    def compare_all(self) -> None:
        """Compare every queue of the shard with the catalog, which must be as new as the shard's last leader's was."""
        self.begun = True
        self._begin_sweep(None)
        self._next_queue_id = self._port.catalog.next_queue_id

    def look_at(self, queue_id: int, now_ms: int) -> None:
        """A queue that will be in the shard in a moment."""
        self._again.append((now_ms + AGAIN_MS, queue_id))

    def perform(self, now_ms: int) -> None:
        """A tick: compare what is due, and give what differs."""
        if not self.begun:
            return
        catalog = self._port.catalog
        if not self._to_compare and catalog.policies_version != self._version:
            self._begin_sweep(catalog.policy_changes(self._version))
        if not self._to_compare and not self._again and catalog.next_queue_id == self._next_queue_id:
            return
        updates = self._sweep(now_ms)
        self._take_up_declared(updates, now_ms)
        self._look_again(updates, now_ms)
        for first in range(0, len(updates), QUEUES_UPDATED_PER_ENTRY):
            self._port.give(b"".join(updates[first : first + QUEUES_UPDATED_PER_ENTRY]))

    def _begin_sweep(self, changes: list[PolicyChange] | None) -> None:
        """Compare the queues that these changes concern (None: all). What changes meanwhile is for the next sweep."""
        self._version = self._port.catalog.policies_version
        self._changes = changes
        self._to_compare = list(self.shard.queue_ids())
        self._slice = max(QUEUES_COMPARED_PER_TICK, -(-len(self._to_compare) // TICKS_PER_SWEEP))

    def _sweep(self, now_ms: int) -> list[bytes]:
        ids = self._to_compare[-self._slice :]
        del self._to_compare[-self._slice :]
        updates: list[bytes] = []
        changes, catalog = self._changes, self._port.catalog
        for queue_id in ids:
            record = catalog.queue_by_id(queue_id)
            if changes is None:
                self._compare(queue_id, record, updates, now_ms)
            elif record is not None:
                for change in changes:
                    if change.concerns(record):
                        self._compare(queue_id, record, updates, now_ms)
                        break
        return updates

    def _take_up_declared(self, updates: list[bytes], now_ms: int) -> None:
        catalog = self._port.catalog
        if catalog.next_queue_id == self._next_queue_id:
            return
        for record in catalog.queues_since(self._next_queue_id):
            if record.shard == self.shard.shard_id:
                self._compare(record.id, record, updates, now_ms)
        self._next_queue_id = catalog.next_queue_id

    def _look_again(self, updates: list[bytes], now_ms: int) -> None:
        while self._again and self._again[0][0] <= now_ms:
            look_ms, queue_id = self._again.popleft()
            given = self._given.get(queue_id)
            if given is None:
                self._compare(queue_id, self._port.catalog.queue_by_id(queue_id), updates, now_ms)
            elif given.look_ms == look_ms:  # Otherwise the queue was told something else, and another look is due.
                self._look_for(queue_id, given, updates, now_ms)

    def _look_for(self, queue_id: int, given: _Given, updates: list[bytes], now_ms: int) -> None:
        """What has arrived needs no comparison: if policies have changed since, the sweep for that comes by."""
        queue = self.shard.queue(queue_id)
        if queue is None or queue.settings_bytes != given.settings:
            self._compare(queue_id, self._port.catalog.queue_by_id(queue_id), updates, now_ms, arrived=False)
        elif now_ms < given.watch_until_ms:
            given.look_ms = now_ms + AGAIN_MS
            self._again.append((given.look_ms, queue_id))
        else:
            del self._given[queue_id]

    def _compare(
        self, queue_id: int, record: QueueRecord | None, updates: list[bytes], now_ms: int, arrived: bool = True
    ) -> None:
        """Give what differs. If what was given has not `arrived` in time, give in any case: it may be on its way still,
        whatever the queue shows now."""
        queue = self.shard.queue(queue_id)
        if record is None or queue is None:
            self._given.pop(queue_id, None)
            if record is not None and queue_id not in self.shard.deleted:
                self.look_at(queue_id, now_ms)
            return
        given = self._given.get(queue_id)
        wanted = encode_settings(shard_settings(self._port.catalog, record))
        if not arrived or wanted != (queue.settings_bytes if given is None else given.settings):
            self._tell(queue_id, queue.settings_bytes, wanted, updates, now_ms)

    def _tell(self, queue_id: int, shown: bytes, wanted: bytes, updates: list[bytes], now_ms: int) -> None:
        """Give `wanted` to a queue that shows other settings, or may do so in a moment."""
        before, watch_until_ms = self._given.get(queue_id), 0
        if before is not None and (now_ms < before.watch_until_ms or before.settings not in (shown, wanted)):
            watch_until_ms = now_ms + WATCHED_MS
        updates.append(commands.encode_settings_update(queue_id, wanted))
        given = self._given[queue_id] = _Given(wanted, now_ms + AGAIN_MS, watch_until_ms)
        self._again.append((given.look_ms, queue_id))
