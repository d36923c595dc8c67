"""What the leader of a shard does on its own account: it keeps time, and sees to the shard's duties.

    due heads, due leases    -> EXPIRE_DUE, EXPIRE_QUEUE, every expiry tick, or with entries of others (RULES T7, L6)
    leases that run          -> an entry now and then, so that the log knows how far they have come
    deaths, lanes, tombstones-> see `node.duties.shard_duties`
    policies                 -> see `node.duties.policy_duties`
    queues that move         -> see `node.duties.queue_moves`
    queues that are redriven -> see `node.duties.redrives`
    streams that are copied  -> see `node.duties.stream_copies`
    catalog and shard differ -> see `node.duties.comparison`, after a barrier

A new leader has nothing to take over: it looks at the shard, as soon as it has applied an entry of its own term.
"""

from collections.abc import Callable
from typing import Final

from mayfly.cluster.group.group import Group
from mayfly.node.duties.comparison import Comparison, has_strayed
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.policy_duties import PolicyDuties
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.queue_moves import QueueMoves
from mayfly.node.duties.redrives import RedriveDuty
from mayfly.node.duties.shard_duties import ShardDuties
from mayfly.node.duties.stream_copies import StreamCopies
from mayfly.node.duties.tenure import Tenure
from mayfly.node.shard import commands
from mayfly.node.shard.shard import Shard

RECONCILE_EVERY_MS: Final = 30_000
RECONCILE_AFTER_LOSS_MS: Final = 1_000
"""A node that is lost may have declared a queue in the catalog and not lived to create it in its shard."""

LEASES_RECORDED_EVERY_MS: Final = 10_000
"""While leases run in a shard where nothing else happens: what an outage of all nodes adds to a lease at most."""

LEASES_PER_ENTRY: Final = 1_000
"""How many leases are ended at once, every expiry tick (RULES C4)."""
_GAP_PERCENT: Final = 80
"""So much of the expiry tick is between two times at which something was due, so that what is due in between has gone
within one, committed and told (RULES T7). What is due after a quiet while goes at the next tick of the node."""
_BUSY_PERCENT: Final = 50
"""So much of it is between two such times while others have entries made. What is due goes with one of those, at its
end: an entry of its own would take longer than all that expires."""


class ShardLeader:
    """The leader of one shard; idle while the shard is led elsewhere."""

    def __init__(
        self,
        shard: Shard,
        group: Group,
        port: DutyPort,
        give: Callable[[bytes], object],
        expiry_tick_ms: int,
        large: LargeBodies | None = None,
    ) -> None:
        """`give(command)` takes an internal command for the shard, while it is led here."""
        self.shard: Shard = shard
        self._group = group
        self._port = port
        self._catalog = port.catalog
        self._give = give
        self._expiry_gap_ms = expiry_tick_ms * _GAP_PERCENT // 100
        self._busy_gap_ms = expiry_tick_ms * _BUSY_PERCENT // 100
        self._tenure = Tenure(group)
        entry, clock = group.log.data, group.clock.current_ms
        self._duties = ShardDuties(shard, shard.shard_id, port, give, entry, clock, large, self._tenure)
        self._moves = QueueMoves(shard, port, give, clock, self._duties.lanes.has_room)
        self._redrives = RedriveDuty(shard, port, give, entry, clock, large, self._tenure)
        self._copies = StreamCopies(shard, port, entry, clock, large)
        self._policies = PolicyDuties(shard, port.catalog, give)
        self._begin(0)

    def _begin(self, term: int) -> None:
        """Begin anew, leading in this term; 0: another node leads."""
        self._tenure.begin(term)
        self._next_expiry_ms = 0
        self._next_alone_ms = 0
        """From when on what is due is worth an entry of its own, ..."""
        self._next_with_others_ms = 0
        """...and from when on it goes with an entry of others."""
        self._expired_to_ms = 0
        """The time up to which what was due was told to leave last."""
        self._next_reconcile_ms = 0
        self._reconciling = False
        """From the question whether the catalog here is current to the last step of the comparison."""
        self._comparison: Comparison | None = None
        self._compared: tuple[int, int, int] | None = None
        self._sessions_ended = self._group.sessions.ended
        self._queues_dropped = self._catalog.queues_dropped
        self._queues_moved = self._catalog.queues_moved
        self._duties.forget()
        self._moves.forget()
        self._redrives.forget()
        self._copies.forget()
        self._policies.forget()

    def tick(self, now_ms: int) -> None:
        """Time has passed: expire what is due, repair what differs. Does nothing unless the shard is led here."""
        if not self._leads():
            return
        if now_ms >= self._next_expiry_ms and self._expire(now_ms):
            self._next_expiry_ms = now_ms + self._expiry_gap_ms
        if self._sessions_ended != self._group.sessions.ended:
            self._sessions_ended = self._group.sessions.ended
            self._next_reconcile_ms = min(self._next_reconcile_ms, now_ms + RECONCILE_AFTER_LOSS_MS)
        if self._queues_dropped != self._catalog.queues_dropped:
            # Some went from the catalog without the shard being asked.
            self._queues_dropped = self._catalog.queues_dropped
            self._next_reconcile_ms = now_ms
        if self._queues_moved != self._catalog.queues_moved:
            moved = self._catalog.moved_since(self._queues_moved)
            self._queues_moved = self._catalog.queues_moved
            if moved is None or any(has_strayed(self.shard, self._catalog, each) for each in moved):
                self._next_reconcile_ms = now_ms
        self._compare(now_ms)
        if now_ms >= self._next_reconcile_ms and not self._reconciling:
            self._next_reconcile_ms = now_ms + RECONCILE_EVERY_MS
            # What was the same a while ago and has not changed is the same now: idle queues cost nothing.
            if self._compared != self._versions():
                self._reconcile(now_ms)
        self.perform(now_ms)
        self._policies.perform(now_ms)

    def is_due_by(self, now_ms: int, until_ms: int) -> bool:
        """Whether by then a message or a lease will be due, if the shard is led here."""
        if not self._group.established:
            return False
        clock = self._group.clock
        return (
            self.shard.due_messages(clock.current_ms(until_ms))
            or 0 <= self.shard.next_lease_due_ms() <= clock.led_ms + until_ms - now_ms
        )

    def advance(self, now_ms: int) -> None:
        """The shard has changed: go on with its duties, and with expiry if the last entry reached its bound (C4)."""
        if self._leads():
            # What was due by then and is there still had no room in the entry that was for it.
            if self._group.clock.time_ms >= self._expired_to_ms and self.shard.due_messages(self._expired_to_ms):
                self._expire_due(now_ms)
            self.perform(now_ms)

    def join_entry(self, now_ms: int) -> None:
        """An entry is about to be made: what is due goes with it, if that was not a moment ago."""
        is_time = now_ms >= self._next_with_others_ms and self._leads()
        if is_time and self.shard.due_messages(self._group.clock.current_ms(now_ms)):
            self._expire_due(now_ms)

    def others_changed(self, now_ms: int) -> None:
        """Another shard has changed: what was sent there may have arrived. For a shard that has lanes."""
        if self._leads():
            self.perform(now_ms)

    def perform(self, now_ms: int) -> None:
        """Look at the shard, which is led here, and give what is due."""
        self._moves.perform(now_ms)
        self._duties.perform(now_ms)
        self._redrives.perform(now_ms)
        self._copies.perform(now_ms)

    @property
    def has_lanes(self) -> bool:
        """Whether something is on its way to other shards, so that what those apply matters here."""
        return self._duties.has_lanes or self._copies.lags

    def _leads(self) -> bool:
        if not self._group.established:
            if self._tenure.term:
                self._begin(0)
            return False
        if self._group.term != self._tenure.term:
            self._begin(self._group.term)
        return True

    def _expire(self, now_ms: int) -> bool:
        """Whether something was given."""
        is_due = now_ms >= self._next_alone_ms and self.shard.due_messages(self._group.clock.current_ms(now_ms))
        if is_due:
            self._expire_due(now_ms)
        led_ms = self._group.clock.led_ms
        due = self.shard.due_leases(led_ms, LEASES_PER_ENTRY)
        if due:
            self._give(b"".join([commands.encode_expire_queue(queue, epoch) for queue, epoch in due]))
        elif self.shard.next_lease_due_ms() >= 0 and led_ms - self.shard.led_ms >= LEASES_RECORDED_EVERY_MS:
            # Heartbeats tell the other nodes how long there has been a leader; their disks know it from entries alone.
            self._give(commands.encode_expire_due())
            return True
        return is_due or bool(due)

    def _expire_due(self, now_ms: int) -> None:
        self._expired_to_ms = self._group.clock.current_ms(now_ms)
        self._next_alone_ms = now_ms + self._expiry_gap_ms
        self._next_with_others_ms = now_ms + self._busy_gap_ms
        self._give(commands.encode_expire_due())

    def _versions(self) -> tuple[int, int, int]:
        """Something that changes when a comparison of shard and catalog could have another outcome."""
        return (self._catalog.routing_version, self.shard.queue_changes, self.shard.empty_lanes)

    def _reconcile(self, now_ms: int) -> None:
        """Compare with the catalog, whose replica must not be behind: a barrier first.

        A leader that is new has the settings of its queues compared too; after that they follow the catalog.
        """
        tenure = self._tenure.number
        self._reconciling = True
        comparison = Comparison(self.shard, self._catalog, self._give)

        def compare() -> None:
            if not self._tenure.is_still(tenure):
                return
            self._compared = self._versions()
            if not self._policies.begun:
                self._policies.compare_all()
            self._comparison = comparison
            self._compare(now_ms)

        self._port.barrier(compare)

    def _compare(self, now_ms: int) -> None:
        """A step of the comparison that is under way, if one is."""
        comparison = self._comparison
        if comparison is None:
            return
        over = comparison.step()
        for id in comparison.created:
            self._policies.look_at(id, now_ms)
        if over:
            self._comparison = None
            self._reconciling = False
            if comparison.differed:
                self._compared = None
