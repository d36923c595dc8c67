"""The shard: a deterministic state machine over log entries that holds many queues. HOT.

Same log, same state, byte for byte, on every replica and at every replay (RULES C1). It knows no clock but
the one the entries carry, and never looks at content: messages are references into the log.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final

from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.group.state_machine import BadSnapshot, Missed
from mayfly.cluster.versions import LEVEL_SCHEDULES
from mayfly.node.limits import MIB
from mayfly.node.shard import commands, holders, queues, settle
from mayfly.node.shard.dead_letters import takes_from
from mayfly.node.shard.delivery import serve
from mayfly.node.shard.dispatch import apply_client_command, apply_internal_command, required
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.expiry_lag import ExpiryLag
from mayfly.node.shard.line import PIECE
from mayfly.node.shard.message import Message
from mayfly.node.shard.missed import missed
from mayfly.node.shard.moves import move_in_command
from mayfly.node.shard.outbox import Death, Lane
from mayfly.node.shard.publish import apply_publish_later, apply_publishes
from mayfly.node.shard.queue import UNLIMITED, Queue
from mayfly.node.shard.redrive import Redrive
from mayfly.node.shard.results import GetResult
from mayfly.node.shard.returns import settle_returning
from mayfly.node.shard.room import ANY_ROOM, NO_ROOM, Room
from mayfly.node.shard.snapshot.pace import MESSAGES_PER_STEP
from mayfly.node.shard.snapshot.reader import RestoreInSteps, restore
from mayfly.node.shard.snapshot.writer import ShardSnapshotInSteps, snapshot
from mayfly.node.shard.state import (
    DELIVERIES_PER_ENTRY,
    EXPIRIES_PER_ENTRY,
    ITEMS_IN_LANE,
    PAUSE_MS,
    RETURNED_PER_ENTRY,
    State,
)
from mayfly.node.shard.statistics import QueueStatistics, ShardStatistics
from mayfly.node.shard.timers import NEVER
from mayfly.node.shard.tombstone import Tombstone

_DUE_AT_ONCE: Final = 0
QUEUES_PER_STEP: Final = 100
"""Queues that are counted in a step: a fraction of a millisecond."""

MOVES_WITH_MESSAGES: Final = 100_000
MOVES_WITH_BYTES: Final = 64 * MIB
"""A queue in which more waits moves only when an operator says so: a shard that is hot is not helped by copying it."""


class Shard:
    """One shard, replicated or transient.

    For each log entry: ``begin``, then ``apply`` and ``session_closed`` in the order of the log, then
    ``finish``. ``take_effects`` and ``take_released`` have what the node must do then. Everything else is for
    reading, between entries. Who listens (``local_node`` at first) decides about effects only, never about state.
    The bounds (RULES C4) are part of how entries are applied: the same on every replica and for every replay. Tests
    lower them. So is ``returns_to_place``: what comes back goes to its old place, as in RabbitMQ's classic queues,
    instead of behind what came back before.
    """

    def __init__(
        self,
        shard_id: int,
        local_node: int,
        expiries_per_entry: int = EXPIRIES_PER_ENTRY,
        deliveries_per_entry: int = DELIVERIES_PER_ENTRY,
        messages_per_piece: int = PIECE,
        returns_to_place: bool = False,
        returned_per_entry: int = RETURNED_PER_ENTRY,
        items_in_lane: int = ITEMS_IN_LANE,
    ) -> None:
        self.shard_id = shard_id
        self._listeners = {local_node}
        self._bounds = (expiries_per_entry, deliveries_per_entry, messages_per_piece, returned_per_entry, items_in_lane)
        self._returns_to_place = returns_to_place
        self._state = self._new_state()

    # -- entries -------------------------------------------------------------------------------------------

    def goes_by_stamps(self) -> bool:
        """`begin` itself takes the highest."""
        return True

    def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
        """An entry begins. ``data`` is its payload: offsets of messages count from its start.

        ``time_ms`` is shard time, ``led_ms`` lease time; what would go back stays (RULES C2).
        """
        state = self._state
        state.index = index
        passed_ms = max(0, time_ms - state.time_ms)
        led_for_ms = max(0, led_ms - state.led_ms)
        state.time_ms += passed_ms
        state.led_ms += led_for_ms
        if passed_ms - led_for_ms > PAUSE_MS and state.level >= LEVEL_SCHEDULES:
            state.note_pause(state.time_ms - (passed_ms - led_for_ms), state.time_ms)
        state.data = data
        state.begin_entry()

    def read_on(self, data: bytes) -> None:
        """See `StateMachine`."""
        self._state.data = data

    def apply(self, session: SessionKey | None, start: int, end: int) -> list[object]:
        """Apply the commands in ``data[start:end]``, in order; the answers of those that answer, in order.

        ``session`` is (node id, incarnation), None for the shard's leader. ShardError for bytes that are no
        command: those before it are applied, the answers are lost, and so is the rest of the batch, on every
        replica alike.
        """
        state = self._state
        data = state.data
        if not 0 <= start <= end <= len(data):
            commands.check_without_body(data, start, end)
        results: list[object] = []
        position = start
        try:
            while position < end:
                kind = data[position]
                if kind == commands.PUBLISH:
                    position = apply_publishes(state, position, end)
                elif kind == commands.SETTLE:
                    position = settle.apply_settle(state, required(session), position, end)
                elif kind == commands.PUBLISH_LATER or kind == commands.PUBLISH_KEPT:
                    position = apply_publish_later(state, position, end)
                elif kind < commands.EXPIRE_DUE:
                    position = apply_client_command(state, kind, session, position, end, results)
                else:
                    position = apply_internal_command(state, kind, position, end)
        except struct.error as error:
            raise ShardError(f"command at {position} is cut off: {error}") from error
        return results

    def finish(self) -> None:
        """The entry ends: queues it touched are served, then what a bound left waiting goes on, then what is due."""
        state = self._state
        touched = state.touched
        for queue in touched:
            queue.touched = False
            if not queue.deleted:
                serve(state, queue)
        touched.clear()
        if state.unserved.queues:
            self._serve_unserved()
        if state.overfull.queues:
            self._serve_overfull()
        if state.orphans.are_there():
            queues.clear_orphans(state)
        if state.expiry_due:
            self._expire_due()
        if state.returning.queues:
            settle_returning(state)
        state.end_entry()

    def _serve_unserved(self) -> None:
        """Queues that were left with messages and willing consumers, as far as the entry's bound goes."""
        state = self._state
        while state.delivery_budget > 0:
            queue = state.unserved.take()
            if queue is None:
                break
            serve(state, queue)
        state.unserved.put_back()

    def _serve_overfull(self) -> None:
        """The same for queues with more than they may have."""
        state = self._state
        while state.expiry_budget > 0:
            queue = state.overfull.take()
            if queue is None:
                break
            serve(state, queue)
        state.overfull.put_back()

    def _expire_due(self) -> None:
        """Serve the queues in which something is due, in the order of these times, as far as the entry's bounds go.
        """
        state = self._state
        while state.expiry_budget > 0 and state.due_budget > 0:
            due_ms, queue_id = state.message_timers.first()
            if due_ms == NEVER or due_ms > state.time_ms:
                break
            serve(state, state.queues[queue_id])

    def session_closed(self, session: SessionKey) -> None:
        """A node's session is over: its consumers are detached, what they held comes back, leases start
        again.
        """
        holders.close_session(self._state, session)

    def listen(self, nodes: Collection[int]) -> None:
        """See `StateMachine.listen`."""
        self._listeners.clear()
        self._listeners.update(nodes)

    def needs(self, told: object, found: list[int]) -> None:
        """See `StateMachine.needs`."""
        if isinstance(told, Deliver):
            found += [message.index for message in told.messages]
        elif isinstance(told, GetResult) and told.message is not None:
            found.append(told.message.index)

    def take_effects(self) -> list[Deliver | ConsumerCancelled | ConsumerMoved]:
        """``Deliver``, ``ConsumerCancelled`` and ``ConsumerMoved`` for consumers of the nodes that listen since the
        last call, in order.
        """
        effects = self._state.effects
        if effects:
            self._state.effects = []
        return effects

    def told(self) -> State:
        """See `StateMachine.told`: the state itself, which stays as it was once another one has taken its place."""
        return self._state

    def missed(self, told: object, session: SessionKey, batches: Sequence[bytes]) -> Missed:
        """See `StateMachine.missed`."""
        assert isinstance(told, State)
        return missed(told, self._state, session, batches)

    def audience(self) -> Collection[int]:
        """The nodes with consumers here, or with messages that basic.get has handed out."""
        return [node for node, _ in self._state.sessions]

    def take_released(self) -> list[int]:
        """Indices of entries that held live messages and hold none any more, since the last call."""
        released = self._state.released
        if released:
            self._state.released = []
        return released

    # -- snapshots -----------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The state between two entries; equal on replicas that applied the same log."""
        return snapshot(self._state)

    def snapshot_steps(self) -> ShardSnapshotInSteps:
        """The same as of now, in steps; what is applied between them changes nothing in it."""
        return ShardSnapshotInSteps(self._state, MESSAGES_PER_STEP)

    def restore(self, data: bytes) -> None:
        """Become what ``data`` describes; effects and releases not taken yet are dropped.

        ShardError when it can't be read; the shard stays what it was then.
        """
        state = self._new_state()
        restore(state, data)
        self._become(state)

    def restore_steps(self, data: bytes) -> "ShardRestore":
        """The same in steps; until the end it is, and goes on as, what it was."""
        return ShardRestore(self, self._new_state(), data)

    def _new_state(self) -> State:
        expiries_per_entry, deliveries_per_entry, messages_per_piece, returned_per_entry, items_in_lane = self._bounds
        return State(
            self.shard_id, self._listeners, expiries_per_entry, deliveries_per_entry, messages_per_piece,
            self._returns_to_place, returned_per_entry, items_in_lane,
        )

    def _become(self, state: State) -> None:
        state.expiry_lag = self._state.expiry_lag
        state.due_lag = self._state.due_lag
        for queue in self._state.queues.values():
            queue.consumers.let_go()
        self._state = state

    def digest(self) -> str:
        """A fingerprint of the state, to compare replicas in tests."""
        return sha256(self.snapshot()).hexdigest()

    def live_entries(self) -> Collection[int]:
        """Indices of the entries that hold live messages, in no particular order."""
        return self._state.live.keys()

    # -- what is due (for the leader's ticker) -------------------------------------------------------------

    def due_messages(self, time_ms: int) -> bool:
        """Whether an EXPIRE_DUE stamped ``time_ms`` has work: a head is due, or a bound cut the last entry
        short.
        """
        return 0 <= self.next_message_due_ms() <= time_ms

    def next_message_due_ms(self) -> int:
        """The shard time at which EXPIRE_DUE next has work, 0 for at once, -1 for never as things are."""
        state = self._state
        if state.unserved.queues or state.overfull.queues or state.returning.queues or state.orphans.are_there():
            return _DUE_AT_ONCE
        return self._state.message_timers.first()[0]

    def has_room(self, node: int, incarnation: int, queue_id: int, holder_id: int) -> bool:
        """Whether a holder of this session could be given many more messages before it has to settle any: at least
        half of its prefetch. False for one that is unknown."""
        holder = holders.find(self._state, (node, incarnation), queue_id, holder_id)
        return holder is not None and 2 * len(holder.held) <= (holder.prefetch or UNLIMITED)

    def due_leases(self, led_ms: int, limit: int = 1_000) -> list[tuple[int, int]]:
        """At most ``limit`` (queue id, epoch) whose lease has run out at this lease time, for EXPIRE_QUEUE
        (L5, L6).
        """
        all_queues = self._state.queues
        due = self._state.lease_timers.all_due(led_ms, limit)
        return [(queue_id, all_queues[queue_id].lease.epoch) for queue_id in due]

    def next_lease_due_ms(self) -> int:
        """The lease time at which the next lease runs out, -1 for never as things are."""
        return self._state.lease_timers.first()[0]

    def queues_ahead(self, time_ms: int, led_ms: int) -> list[int]:
        """The ids, ascending, of the queues that have something to do by themselves by then, on either clock."""
        state = self._state
        found = {queue_id for queue_id, due_ms in state.message_timers.due.items() if due_ms <= time_ms}
        found.update([queue_id for queue_id, due_ms in state.lease_timers.due.items() if due_ms <= led_ms])
        return sorted(found)

    # -- reading -------------------------------------------------------------------------------------------

    def work(self) -> tuple[int, int]:
        """Messages that were put into queues, and bytes of entries, since this replica began or came from a snapshot:
        what load the shard is."""
        return self._state.applied_messages, self._state.applied_bytes

    def queue_works(self) -> Iterator[tuple[int, int, int, bool]]:
        """Of each queue its id, how many messages were put into it, how many
        bytes one of those in it has (0: none is), and whether it may move without being asked. The shard may be changed
        between two of them."""
        for queue in list(self._state.queues.values()):
            waiting, size_bytes = queue.waiting_count(), queue.waiting_bytes()
            messages = waiting + queue.held_count
            may_move = (
                waiting <= MOVES_WITH_MESSAGES
                and size_bytes <= MOVES_WITH_BYTES
                and queue.stream is None
                and not queue.is_redriven
                and not queue.is_between_shards
            )
            yield queue.queue_id, queue.enqueued, (size_bytes + queue.held_bytes) // max(1, messages), may_move

    @property
    def level(self) -> int:
        """The feature level that the shard was told last: what its log means from there on."""
        return self._state.level

    @property
    def index(self) -> int:
        """The last entry that was applied, or is being applied; 0 if there was none since a snapshot was restored."""
        return self._state.index

    @property
    def time_ms(self) -> int:
        """Shard time of the last entry."""
        return self._state.time_ms

    @property
    def led_ms(self) -> int:
        """Lease time of the last entry."""
        return self._state.led_ms

    @property
    def deleted(self) -> dict[int, Tombstone]:
        """Queues that are gone and that the catalog may still have. Not to be changed."""
        return self._state.deleted

    def queue_ids(self) -> Collection[int]:
        """The queues that are here, to compare with the catalog."""
        return self._state.queues.keys()

    @property
    def queue_changes(self) -> int:
        """Grows with every queue that comes or goes; counts on this replica alone, to tell what is out of date."""
        return self._state.queue_changes

    def queue(self, queue_id: int) -> Queue | None:
        """A queue's state, to look at."""
        return self._state.queues.get(queue_id)

    def unrouted(self, limit: int, after: int = 0) -> list[Death]:
        """At most ``limit`` deaths that wait for a ROUTE, in order, those up to the sequence ``after`` left out.

        Their sequences have no gaps.
        """
        waiting = self._state.outbox.unrouted
        if not waiting:
            return []
        first = max(0, after + 1 - waiting[0].sequence)
        return list(islice(waiting, first, first + limit))

    def undecided(self, most: int) -> list[tuple[int, Message]]:
        """At most so many messages that recur and wait for a NEXT_TIMES, with their queues."""
        found: list[tuple[int, Message]] = []
        for queue_id, undecided in self._state.undecided.items():
            found += [(queue_id, message) for message in islice(undecided.values(), most - len(found))]
            if len(found) >= most:
                break
        return found

    @property
    def last_death(self) -> int:
        """The sequence of the last death, 0 for none."""
        return self._state.outbox.next_sequence - 1

    def parked(self) -> Collection[Death]:
        """Deaths without a route, oldest first; they wait for a route or an operator (RULES D8)."""
        return self._state.outbox.parked.values()

    def is_parked(self, sequence: int) -> bool:
        """Whether this death waits for a route or an operator."""
        return sequence in self._state.outbox.parked

    def newest_parked(self) -> int:
        """The sequence of the death that was parked last, 0 when none is."""
        parked = self._state.outbox.parked
        return next(reversed(parked)) if parked else 0

    def lanes(self) -> Iterable[Lane]:
        """The lanes to other shards, empty ones too (their numbers go on). Not to be changed."""
        return self._state.outbox.lanes.values()

    def filled_lanes(self) -> list[Lane]:
        """The lanes in which something waits."""
        return list(self._state.outbox.filled.values())

    @property
    def empty_lanes(self) -> int:
        """How many lanes have nothing in them."""
        outbox = self._state.outbox
        return len(outbox.lanes) - len(outbox.filled)

    @property
    def has_lanes(self) -> bool:
        """Whether anything waits in a lane."""
        return len(self._state.outbox.filled) > 0

    def lane(self, target_queue: int) -> Lane | None:
        """The lane to one queue of another shard."""
        return self._state.outbox.lanes.get(target_queue)

    def received_up_to(self, queue_id: int, source: int) -> int:
        """The highest sequence that ``source`` has transferred into this queue, 0 for none, -1 when it is not
        here.

        -1 says nothing about a queue that is still to be created here: ask the catalog before closing a lane. A mirror
        that has taken over from one stream takes nothing from another: -1 (RULES J4).
        """
        queue = self._state.queues.get(queue_id)
        if queue is None:
            return -1
        return -1 if queue.follows_another(source) else queue.received.get(source, 0)

    def move_number(self, queue_id: int) -> int:
        """That of the last move of a queue, to here or from here; 0 if there was none, or it had none (below
        LEVEL_NUMBERED_MOVES)."""
        return self._state.move_numbers.get(queue_id, 0)

    def move_in(self, queue_id: int) -> bytes:
        """The MOVE_IN of a queue that has left, for its new shard."""
        return move_in_command(self._state, self._state.queues[queue_id])

    def room(self, queue_id: int, source: int, next_bytes: int = 0) -> Room:
        """What a queue would take now of the dead letters of ``source``, the first with a body of ``next_bytes``.

        A hint for who sends them (RULES D8): the queue decides when they get there.
        """
        queue = self._state.queues.get(queue_id)
        if queue is not None and not takes_from(queue, source):
            return NO_ROOM
        if queue is None or not queue.refuses or queue.refusals_die:
            return ANY_ROOM
        messages = queue.max_length - queue.waiting_count()
        size_bytes = queue.max_length_bytes - queue.waiting_bytes()
        credit = 0
        if queue.ready_count() == 0 and not queue.is_braked:
            # Whatever its size, the first is taken.
            size_bytes = max(size_bytes, next_bytes)
            credit = queue.consumers.credit(self._state.deliveries_per_entry)
        if credit:
            return Room(max(messages, 0) + credit, UNLIMITED, queue.consumers.window_left(credit))
        return Room(max(messages, 0), max(size_bytes, 0))

    def statistics_in_steps(self) -> Iterator[ShardStatistics | None]:
        """Counts of the whole shard at last, and None for each step before: all queues are looked at. The shard may be
        changed between them."""
        statistics = ShardStatistics(self._state)
        queues = list(self._state.queues.values())
        for first in range(0, len(queues), QUEUES_PER_STEP):
            for queue in queues[first : first + QUEUES_PER_STEP]:
                statistics.add(queue)
            yield None
        yield statistics

    @property
    def expiry_lag(self) -> ExpiryLag:
        """How late what this replica expired was; no part of the state. Not to be changed."""
        return self._state.expiry_lag

    @property
    def due_lag(self) -> ExpiryLag:
        """The same of what was scheduled and became ready."""
        return self._state.due_lag

    @property
    def in_lanes(self) -> int:
        """How many things wait in lanes."""
        return self._state.outbox.in_lanes

    def redrives(self) -> list[tuple[Queue, Redrive]]:
        """The queues that are or were redriven, with the last redrive of each. Not to be changed."""
        queues = self._state.redrives.values()
        return [(queue, queue.redrive) for queue in queues if queue.redrive is not None]

    def running_redrives(self) -> list[tuple[Queue, Redrive]]:
        """Those of them for which something is to be done."""
        if not self._state.redriving:
            return []
        queues = self._state.redriving.values()
        return [(queue, queue.redrive) for queue in queues if queue.redrive is not None]

    def braked(self) -> list[Queue]:
        """The queues that are on brake (RULES R5). Not to be changed."""
        return list(self._state.braked.values()) if self._state.braked else []

    def queue_statistics(self, queue_id: int) -> QueueStatistics | None:
        """Counts of one queue."""
        queue = self._state.queues.get(queue_id)
        return None if queue is None else QueueStatistics(queue)


class ShardRestore:
    """A snapshot that a shard is to become: `cluster.group.state_machine.RestoreSteps`."""

    def __init__(self, shard: Shard, state: State, data: bytes) -> None:
        self._shard = shard
        self._state = state
        self._reading = RestoreInSteps(state, data, MESSAGES_PER_STEP)

    def step(self) -> bool:
        """Read some messages; whether these were the last. Raises BadSnapshot."""
        try:
            return self._reading.step()
        except ShardError as error:
            raise BadSnapshot(str(error)) from error

    def finish(self) -> None:
        """The shard is what was read."""
        self._shard._become(self._state)
