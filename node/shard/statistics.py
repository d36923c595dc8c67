"""Counts for operators, taken when asked for."""

from mayfly.node.shard.counts import Counts
from mayfly.node.shard.outbox import EXPIRED
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.recurring import UNDECIDED_MS
from mayfly.node.shard.redrive import PAUSED
from mayfly.node.shard.state import State


class QueueStatistics(Counts):
    """One queue: messages and bytes of bodies now, and what happened to it since it was created. ``next_due_ms``: the
    shard time at which the first of what is scheduled is due, -1 for none."""

    __slots__ = (
        "consumers",
        "next_due_ms",
        "queue_id",
        "ready",
        "ready_bytes",
        "scheduled",
        "scheduled_bytes",
        "unacknowledged",
        "unacknowledged_bytes",
    )

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.add_counts(queue)
        self.queue_id = queue.queue_id
        self.ready = queue.ready_count()
        self.ready_bytes = queue.ready_bytes
        self.scheduled = queue.scheduled_count()
        self.scheduled_bytes = queue.waiting_bytes() - queue.ready_bytes
        self.next_due_ms = next_due_ms(queue)
        self.unacknowledged = queue.held_count
        self.unacknowledged_bytes = queue.held_bytes
        self.consumers = queue.consumers.count


def next_due_ms(queue: Queue) -> int:
    """The shard time at which the first of what is scheduled in the queue is due; -1 for none."""
    due_ms = -1 if queue.schedule is None else queue.schedule.next_due_ms()
    return due_ms if due_ms < UNDECIDED_MS else -1


class ShardStatistics(Counts):
    """The whole shard now, and its totals since it was created: those of deleted queues are in them.

    ``next_due_ms`` as of a queue: the first of all its queues.
    ``outbox`` counts deaths without a decision and lane items; ``routed``, ``settled``, ``lost``, ``journaled`` and
    ``dropped_*`` are explained at ``Outbox``. ``missing_targets``: publishes to a queue that was gone.
    ``transfers_lost``: dead letters that came for a queue that was gone, or for a mirror. ``refused_*``: commands after
    a gap.
    ``orphans``: messages of queues that are gone, still to be dead-lettered or released; ``queue_expired`` have been
    dead-lettered.
    Of streams: ``stream_expiring`` messages with deadlines of their own, ``stream_keys`` in the indexes, and the
    ``stream_markers`` that those that are there have made.
    ``dead_lettered_for``: messages by reason (RULES D2). ``gone_for``: queues by reason (L10). ``message_timers``
    and ``lease_timers``: queues with a head that has a deadline or with messages that are scheduled, and with a lease
    that runs (T13).
    """

    __slots__ = (
        "consumers",
        "dead_lettered_for",
        "dropped_by_operator",
        "dropped_cycle",
        "dropped_due",
        "dropped_unroutable",
        "gone_for",
        "journaled",
        "lease_timers",
        "live_entries",
        "lost",
        "message_timers",
        "missing_targets",
        "next_due_ms",
        "orphans",
        "outbox",
        "parked",
        "queue_expired",
        "queues",
        "queues_braked",
        "ready",
        "ready_bytes",
        "redrive_left",
        "redriven",
        "redrives",
        "redrives_paused",
        "refused_routes",
        "refused_transfers",
        "routed",
        "scheduled",
        "scheduled_bytes",
        "settled",
        "stream_expiring",
        "stream_keys",
        "stream_markers",
        "tombstones",
        "transfers_lost",
        "unacknowledged",
        "unacknowledged_bytes",
    )

    def __init__(self, state: State) -> None:
        """Without its queues, but for their dead letters: see `add`."""
        super().__init__()
        self.add_counts(state.past)
        outbox = state.outbox
        self.queues = len(state.queues)
        self.queues_braked = len(state.braked)
        self.tombstones = len(state.deleted)
        self.live_entries = len(state.live)
        self.message_timers = len(state.message_timers.due)
        self.lease_timers = len(state.lease_timers.due)
        self.gone_for = state.gone_for.copy()
        self.parked = len(outbox.parked)
        self.outbox = outbox.depth()
        self.routed = outbox.routed
        self.settled = outbox.settled
        self.lost = outbox.lost
        self.dropped_cycle = outbox.dropped_cycle
        self.dropped_unroutable = outbox.dropped_unroutable
        self.dropped_by_operator = outbox.dropped_by_operator
        self.dropped_due = outbox.dropped_due
        self.journaled = outbox.journaled
        self.missing_targets = state.missing_targets
        self.transfers_lost = state.transfers_lost
        self.refused_transfers = state.refused_transfers
        self.refused_routes = state.refused_routes
        self.queue_expired = state.queue_expired
        self.redrives = self.redrives_paused = self.redriven = self.redrive_left = 0
        for queue in state.redrives.values():
            redrive = queue.redrive
            if redrive is not None:
                self.redriven += redrive.moved
                if redrive.is_active:
                    self.redrives += 1
                    self.redrives_paused += redrive.state == PAUSED
                    self.redrive_left += max(0, redrive.waiting - redrive.moved - redrive.stayed)
        self.orphans = 0
        for orphans in state.orphans.in_order():
            self.orphans += orphans.line.count()
        self.ready = 0
        self.ready_bytes = 0
        self.scheduled = 0
        self.scheduled_bytes = 0
        self.next_due_ms = -1
        self.stream_expiring = 0
        self.stream_keys = 0
        self.stream_markers = 0
        self.unacknowledged = 0
        self.unacknowledged_bytes = 0
        self.consumers = 0
        # At once, also where the rest of the queues is counted bit by bit: what other reasons leave of all deaths is
        # how many were of deadlines, and a counter may never go back.
        for queue in state.queues.values():
            self.dead_lettered += queue.dead_lettered
        self.dead_lettered_for = state.dead_lettered_for.copy()
        self.dead_lettered_for[EXPIRED] = self.dead_lettered - sum(state.dead_lettered_for.values())

    def add(self, queue: Queue) -> None:
        """Count a queue of the shard; each is to be counted once."""
        self.ready += queue.ready_count()
        self.ready_bytes += queue.ready_bytes
        self.scheduled += queue.scheduled_count()
        self.scheduled_bytes += queue.waiting_bytes() - queue.ready_bytes
        due_ms = next_due_ms(queue)
        if due_ms >= 0 and not 0 <= self.next_due_ms <= due_ms:
            self.next_due_ms = due_ms
        stream = queue.stream
        if stream is not None:
            self.stream_expiring += stream.expiry.count - stream.outdated
            self.stream_keys += 0 if stream.keys is None else len(stream.keys.keys)
            self.stream_markers += stream.markers
        self.unacknowledged += queue.held_count
        self.unacknowledged_bytes += queue.held_bytes
        self.consumers += queue.consumers.count
        dead_lettered = self.dead_lettered  # it has them all by now
        self.add_counts(queue)
        self.dead_lettered = dead_lettered
