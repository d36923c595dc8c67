"""The state of a shard, and the entry being applied to it. HOT."""

from typing import Final

from mayfly.cluster.versions import LEVEL_LOWEST
from mayfly.node.shard.backlog import Backlog
from mayfly.node.shard.brake import FAILURES
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.counts import Counts
from mayfly.node.shard.dialect import LAVINMQ
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver
from mayfly.node.shard.errors import BrokenInvariant
from mayfly.node.shard.expiry_lag import ExpiryLag
from mayfly.node.shard.lease import DECLARED
from mayfly.node.shard.line import PIECE, Line
from mayfly.node.shard.message import NO_MARKER, NO_TTL, Message
from mayfly.node.shard.message_id import digest_at
from mayfly.node.shard.orphans import AllOrphans
from mayfly.node.shard.outbox import EXPIRED, REASONS, RECORD_OF_EXPIRED, Outbox
from mayfly.node.shard.priority import place_of
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import RUNNING
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_keys import routing_key
from mayfly.node.shard.timers import Timers
from mayfly.node.shard.tombstone import GONE_FOR, Tombstone

EXPIRIES_PER_ENTRY: Final = 2000
"""Messages that one entry lets die of themselves at most - of a deadline, a length limit or their queue's end -
besides as many as it enqueues itself (RULES C4)."""
DELIVERIES_PER_ENTRY: Final = 10_000
"""Messages that one entry delivers at most, besides as many as it enqueues itself; the rest is due at once.
"""
RETURNED_PER_ENTRY: Final = 10_000
"""Messages that one return may have to be dealt with by its entry, and that one entry deals with of larger ones; as
many that were scheduled become ready in one entry."""
CHANGED_PER_ENTRY: Final = 1000
"""Messages under ids that one entry cancels or reschedules at most, besides one for each command and queue."""
DELIVERED_BYTES_PER_ENTRY: Final = 4 * 1024 * 1024
"""Bytes of bodies that one entry delivers, besides those it enqueues itself, before it leaves the rest to others: a
client that reads nothing gets what a few entries deliver until the shard hears of it. One message may go beyond."""

ITEMS_IN_LANE: Final = 4000
"""As many messages of a queue that has moved wait in its lane at most, as objects; the others where they were (RULES
C4)."""

PAUSE_MS: Final = 2000
"""Time without a leader of less is none: clocks may step, and leaders be busy, by as much."""
_PAUSES_APART_MS: Final = 60_000

_MOST_SHARED: Final = 1024
"""Terms of queues that are remembered, to be shared by further queues."""


class State:
    """Everything a shard knows. Queues, tombstones, orphans, outbox and counters are the state proper; timers, live
    counts, sessions, ``unserved`` and ``overfull`` follow from them; the rest belongs to the entry under way.

    ``level``: the feature level that the shard was told last; the log means what it does from there on.

    ``pause_from_ms`` and ``pause_until_ms``: shard time at which the shard had no leader, last (RULES S6): behind the
    one and up to the other.

    ``move_numbers``: by queue, the number of its last move, of those that have come here or left with one
    (LEVEL_NUMBERED_MOVES).

    ``undecided``: by queue and digest, the messages that recur and wait for the leader to say when
    (`node.shard.recurring`).

    ``live`` counts, per log entry, the places in which the state still refers to it. ``unserved`` are queues with
    messages and willing consumers that the bound of an entry left waiting, ``overfull`` those that still have to
    drop messages, ``returning`` those with messages that came back and are not dealt with. ``queue_expired`` counts
    what died of its queue's end.

    ``dead_lettered_for`` counts deaths by reason, all but EXPIRED, by far the most frequent one: those are the
    rest of the queues' ``dead_lettered``. ``gone_for`` counts queues by reason. ``expiry_lag`` and ``due_lag``, how
    late what was scheduled became ready, are this replica's own and no part of the state.
    """

    __slots__ = (
        "applied_bytes",
        "applied_messages",
        "braked",
        "change_budget",
        "current_released",
        "data",
        "dead_lettered_for",
        "deleted",
        "deliveries_per_entry",
        "delivery_budget",
        "delivery_bytes",
        "due_budget",
        "due_lag",
        "effects",
        "expiries_per_entry",
        "expiry_budget",
        "expiry_due",
        "expiry_lag",
        "gone_for",
        "index",
        "items_in_lane",
        "lease_timers",
        "led_ms",
        "level",
        "listeners",
        "live",
        "message_timers",
        "messages_per_piece",
        "missing_targets",
        "move_numbers",
        "next_order",
        "orphans",
        "outbox",
        "overfull",
        "past",
        "pause_from_ms",
        "pause_until_ms",
        "queue_changes",
        "queue_expired",
        "queues",
        "redrives",
        "redriving",
        "refused_routes",
        "refused_transfers",
        "released",
        "return_budget",
        "returned_per_entry",
        "returning",
        "returns_to_place",
        "sessions",
        "shard_id",
        "terms",
        "time_ms",
        "touched",
        "transfers_lost",
        "undecided",
        "unserved",
    )

    def __init__(
        self, shard_id: int, listeners: set[int], expiries_per_entry: int, deliveries_per_entry: int,
        messages_per_piece: int = PIECE, returns_to_place: bool = False,
        returned_per_entry: int = RETURNED_PER_ENTRY, items_in_lane: int = ITEMS_IN_LANE,
    ) -> None:
        self.items_in_lane = items_in_lane
        self.returned_per_entry = returned_per_entry
        self.shard_id = shard_id
        self.returns_to_place = returns_to_place
        self.listeners = listeners
        """The nodes whose clients are told of effects from here."""
        self.expiries_per_entry = expiries_per_entry
        self.deliveries_per_entry = deliveries_per_entry
        self.messages_per_piece = messages_per_piece
        self.time_ms = 0
        self.led_ms = 0
        self.level = LEVEL_LOWEST
        self.queues: dict[int, Queue] = {}
        self.deleted: dict[int, Tombstone] = {}
        self.outbox = Outbox()
        self.past = Counts()
        """Of queues that are gone: totals outlive their queue."""
        self.next_order = 1
        self.missing_targets = 0
        self.transfers_lost = 0
        self.refused_transfers = 0
        self.refused_routes = 0
        self.dead_lettered_for: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.gone_for: dict[str, int] = dict.fromkeys(GONE_FOR, 0)
        self.orphans = AllOrphans()
        self.queue_expired = 0
        self.pause_from_ms = 0
        self.pause_until_ms = 0
        self.move_numbers: dict[int, int] = {}
        # Derived.
        self.undecided: dict[int, dict[bytes, Message]] = {}
        self.sessions: dict[tuple[int, int], dict[tuple[int, int], Holder]] = {}
        self.live: dict[int, int] = {}
        self.message_timers = Timers()
        self.lease_timers = Timers()
        self.unserved = Backlog()
        self.returning = Backlog()
        self.redrives: dict[int, Queue] = {}
        """Queues that are or were redriven, and..."""
        self.redriving: dict[int, Queue] = {}
        """...those for which something is to be done."""
        self.braked: dict[int, Queue] = {}
        """Queues that are on brake."""
        self.queue_changes = 0
        self.overfull = Backlog()
        # Of this replica.
        self.terms: dict[bytes, bytes] = {}
        self.expiry_lag = ExpiryLag()
        self.due_lag = ExpiryLag()
        self.applied_messages = 0
        """Put into queues, and..."""
        self.applied_bytes = 0
        """...of entries, since this replica began or came from a snapshot."""
        # Of the entry.
        self.index = 0
        self.data = b""
        self.touched: list[Queue] = []
        self.effects: list[Deliver | ConsumerCancelled | ConsumerMoved] = []
        self.released: list[int] = []
        self.current_released = False
        self.expiry_due = False
        self.expiry_budget = 0
        self.delivery_budget = 0
        self.return_budget = 0
        self.due_budget = 0
        self.change_budget = 0
        self.delivery_bytes = 0

    def begin_entry(self) -> None:
        """The bounds are fresh."""
        self.applied_bytes += len(self.data)
        self.expiry_budget = self.expiries_per_entry
        self.delivery_budget = self.deliveries_per_entry
        self.return_budget = self.returned_per_entry
        self.due_budget = self.returned_per_entry
        self.change_budget = CHANGED_PER_ENTRY - 1
        self.delivery_bytes = DELIVERED_BYTES_PER_ENTRY
        self.expiry_due = False

    def note_pause(self, from_ms: int, until_ms: int) -> None:
        """There was no leader between these times. Shortly behind another pause it is one with that: what was missed in
        the first may not have been seen to."""
        if from_ms - self.pause_until_ms > _PAUSES_APART_MS:
            self.pause_from_ms = from_ms
        self.pause_until_ms = until_ms

    def end_entry(self) -> None:
        """Judge whether the entry itself still holds something; let go of its data."""
        if self.current_released:
            self.current_released = False
            if self.index not in self.live:
                self.released.append(self.index)
        self.data = b""

    def release(self, index: int, count: int) -> None:
        """``count`` references to an entry are gone."""
        left = self.live[index] - count
        if left > 0:
            self.live[index] = left
            return
        if left < 0:
            raise BrokenInvariant(f"entry {index} is released {-left} times too often")
        del self.live[index]
        if index == self.index:
            # More of the same entry may still be enqueued: judged at its end.
            self.current_released = True
        else:
            self.released.append(index)

    def release_all(self, messages: list[Message]) -> int:
        """These messages are gone; their bodies' bytes. Runs of one entry are counted off together."""
        total_bytes = 0
        run = 0
        run_index = -1
        for message in messages:
            total_bytes += message.body_length
            if message.index != run_index:
                if run:
                    self.release(run_index, run)
                    run = 0
                run_index = message.index
            run += 1
        if run:
            self.release(run_index, run)
        return total_bytes

    def release_departed(self, departed: list[tuple[int, int]]) -> None:
        """References to these entries, so many to each, are gone; the list is empty then."""
        if departed:
            for index, count in departed:
                self.release(index, count)
            departed.clear()

    def retain(self, count: int) -> None:
        """``count`` more references to the current entry."""
        self.live[self.index] = self.live.get(self.index, 0) + count

    def shared_terms(self, terms_bytes: bytes) -> bytes:
        """The same bytes, as the object that other queues have as well: thousands of queues are declared alike."""
        if len(self.terms) >= _MOST_SHARED:
            self.terms.clear()
        return self.terms.setdefault(terms_bytes, terms_bytes)

    def touch(self, queue: Queue) -> None:
        """The queue is to be served at the end of the entry."""
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)

    def expired(self, queue: Queue, message: Message) -> None:
        """A message died of its deadline: as ``died``, for many of them."""
        queue.expired += 1
        if queue.dead_letters:
            queue.dead_lettered += 1
            self.outbox.add(queue.queue_id, message, EXPIRED, self.time_ms, queue.settings)
            if queue.journals:
                self.also_note(queue.queue_id, message, RECORD_OF_EXPIRED, queue.settings)
        elif queue.journals:
            self.outbox.add(queue.queue_id, message, RECORD_OF_EXPIRED, self.time_ms, queue.settings)
        else:
            self.release(message.index, 1)

    def also_note(self, queue_id: int, message: Message, record: str, settings: ShardQueueSettings) -> None:
        """What is dead-lettered is noted in the queue's journal as well, as one of RECORDS (RULES R4): it refers to its
        entry once more."""
        self.live[message.index] = self.live.get(message.index, 0) + 1
        self.outbox.add(queue_id, message, record, self.time_ms, settings)

    def died(self, queue: Queue, message: Message, reason: str) -> None:
        """A message left the queue by dying, but not of its deadline: it is dead-lettered, or gone (RULES D)."""
        brake = queue.brake
        if brake is not None and reason in FAILURES:
            if brake.note_failure(self.time_ms):
                self.note_brake(queue)
            if brake.is_on:
                self.touch(queue)  # It ends later, or nobody is to be served any more.
        if queue.dead_letters:
            queue.dead_lettered += 1
            self.dead_lettered_for[reason] += 1
            self.outbox.add(queue.queue_id, message, reason, self.time_ms, queue.settings)
        else:
            self.release(message.index, 1)

    def note_redrive(self, queue: Queue) -> None:
        """The queue's redrive has begun or gone, or is in another state."""
        self.redrives.pop(queue.queue_id, None)
        self.redriving.pop(queue.queue_id, None)
        redrive = queue.redrive
        if redrive is not None:
            self.redrives[queue.queue_id] = queue
            if redrive.state == RUNNING:
                self.redriving[queue.queue_id] = queue

    def note_brake(self, queue: Queue) -> None:
        """The queue's brake is on, or off, from here on, or there is none any more (RULES R5); the caller has the queue
        served."""
        if queue.is_braked and not queue.has_left:
            self.braked[queue.queue_id] = queue
        else:
            self.braked.pop(queue.queue_id, None)

    def used(self, queue: Queue, use: str) -> None:
        """A use, one of USES, that renews the lease (RULES L2)."""
        if use == DECLARED and queue.dialect == LAVINMQ:
            return  # There consumers and basic.get alone are uses (X1).
        lease = queue.lease
        lease.renew(self.led_ms, self.time_ms)
        lease.last_use = use
        if queue.expires_ms >= 0 and lease.suspended_by == 0 and not queue.has_left:
            self.lease_timers.arm(queue.queue_id, self.led_ms + queue.expires_ms)

    def prioritized(self, queue: Queue, message: Message) -> Message:
        """A message of the current entry with the priority that it has in a queue."""
        if not queue.max_priority:
            return message
        header_at = message.offset + message.key_length
        length = message.header_length
        place = place_of(self.data, header_at, length, queue.max_priority, queue.default_priority)
        return message.with_priority(place) if place else message

    def schedule(self, queue: Queue, message: Message) -> None:
        """One message of the current entry waits in a queue until its ``enqueued_ms`` (RULES S2); the caller retains
        the entry."""
        digest = digest_at(self.data, message.offset + message.key_length, message.header_length)
        queue.wait(self.prioritized(queue, message), digest)
        queue.enqueued += 1
        self.count_scheduled(1)
        self.touch(queue)

    def count_scheduled(self, messages: int) -> None:
        """So many of the current entry wait."""
        self.applied_messages += messages
        self.expiry_budget += messages

    def enqueue(self, queue: Queue, message: Message) -> None:
        """Put one message of the current entry at the end of a queue; the caller retains the entry."""
        if queue.stream is not None:
            self.append_to_stream(queue, queue.stream, message, NO_TTL, NO_MARKER, self.time_ms)
            return
        message = self.prioritized(queue, message)
        if message.priority or queue.moving is not None:
            queue.entry_line(message.priority).append(message)
        else:
            queue.ready.append(message)
        self._enqueued(queue, message)

    def append_to_stream(
        self, queue: Queue, stream: Stream, content: Message, ttl_ms: int, reason: int, since_ms: int
    ) -> None:
        """The same for a stream, with this TTL of its own in it (RULES J2), as if it were there since then; a marker if
        there is a ``reason``."""
        key = b"" if stream.keys is None else routing_key(self.data, content.offset)
        message = stream.placed(content, since_ms, queue.deadline_ms(since_ms, ttl_ms), ttl_ms, key, reason)
        queue.ready.append(message)
        self._enqueued(queue, message)

    def _enqueued(self, queue: Queue, message: Message) -> None:
        queue.ready_bytes += message.body_length
        queue.enqueued += 1
        self.applied_messages += 1
        self.expiry_budget += 1
        self.delivery_budget += 1
        self.delivery_bytes += message.body_length
        self.touch(queue)

    def count_run(self, queue: Queue, line: Line, messages: int, body_bytes: int, timed: int) -> None:
        """So many of the current entry were put at the end of this line of the queue, which the caller touches."""
        line.timed += timed
        line.grown()
        queue.ready_bytes += body_bytes
        queue.enqueued += messages
        if queue.stream is not None:
            queue.stream.next_offset += messages
        self.applied_messages += messages
        self.expiry_budget += messages
        self.delivery_budget += messages
        self.delivery_bytes += body_bytes
        self.retain(messages)
