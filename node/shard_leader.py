"""What the leader of a shard does on its own account: expiry, dead-letter routing and transfers, cleaning up.

Nothing here is state. All of it is read off the replicated shard, proposed as commands that are harmless when they
are applied twice, and read off again; a new leader simply starts looking. What is remembered between two looks only
keeps a leader from proposing the same thing many times.

    due heads, due leases   -> EXPIRE_DUE, EXPIRE_QUEUE                      (RULES T7, L6)
    unrouted deaths         -> ROUTE, decided with the catalog               (D6, D8)
    lanes                   -> TRANSFER to the target shard's leader,
                               SETTLED once our replica of the target has it (D6, D7)
    tombstones              -> RemoveQueues in the catalog, FORGET_DELETED
    catalog and shard differ-> CREATE_QUEUE, DROP_QUEUE, after a barrier
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from cluster.group import Group
from node.catalog import Catalog, QueueRecord
from node.dead_letter_routes import content_of
from node.limits import DEAD_LETTERS_PER_ENTRY, DEAD_LETTERS_UNDER_WAY, TRANSFER_BYTES
from node.shard import commands
from node.shard.outbox import Death, Lane
from node.shard.settings import ShardQueueSettings
from node.shard.shard import Shard

TRANSFER_AGAIN_MS: Final = 1000
RECONCILE_EVERY_MS: Final = 30_000
_UNROUTABLE: Final = (commands.PARKED, commands.DROPPED_UNROUTABLE)


class LeaderPort(Protocol):
    """What a shard's leader needs of the node around it."""

    @property
    def catalog(self) -> Catalog:
        """The local catalog replica."""
        ...

    def propose(self, shard: int, command: bytes) -> None:
        """An internal command for a shard that is led here."""
        ...

    def transfer(self, target_shard: int, command: bytes) -> None:
        """An internal command for another shard's leader, wherever it is; it may get lost."""
        ...

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        """Highest sequence that our replica of the target has from `source`; -1 if the queue is not there."""
        ...

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[], None]) -> None:
        """Take queues out of the catalog; `done` once that is applied here."""
        ...

    def barrier(self, done: Callable[[], None]) -> None:
        """`done` once the local catalog has everything that was committed before now."""
        ...

    def route_death(self, group: Group, death: Death) -> commands.RouteDecision:
        """Decide where a dead message goes, with the catalog as it is here."""
        ...


def settings_of(record: QueueRecord) -> ShardQueueSettings:
    """What the shard is told about a queue of the catalog."""
    settings = record.settings
    return ShardQueueSettings(
        vhost=record.vhost,
        name=record.name,
        message_ttl_ms=settings.message_ttl_ms,
        expires_ms=settings.expires_ms,
        dead_letter_exchange=settings.dead_letter_exchange,
        dead_letter_routing_key=settings.dead_letter_routing_key,
        delivery_limit=settings.delivery_limit,
        auto_delete=record.auto_delete,
        single_active_consumer=settings.single_active_consumer,
        dead_letter_at_most_once=settings.dead_letter_strategy == "at-most-once",
    )


class ShardLeader:
    """The duties of one shard's leader; idle while the shard is led elsewhere."""

    def __init__(self, shard: Shard, group: Group, port: LeaderPort, expiry_tick_ms: int) -> None:
        self.shard: Shard = shard
        self.group: Group = group
        self._port = port
        self._expiry_tick_ms = expiry_tick_ms
        self._forget()

    def _forget(self) -> None:
        self._term = 0
        self._next_expiry_ms = 0
        self._next_reconcile_ms = 0
        self._routing_until = 0
        self._settling_until = 0
        self._sent: dict[int, tuple[int, int, int]] = {}
        """target queue -> (highest sequence sent, when something last arrived, what was wanted then)"""
        self._removing: set[int] = set()
        self._reconciling = False
        self._freshening = False
        self._catalog_fresh_up_to = 0

    def tick(self, now_ms: int) -> None:
        """Time has passed: expire what is due, repair what differs. Does nothing unless the shard is led here."""
        if not self._leads():
            return
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expiry_tick_ms
            self._expire(now_ms)
        if now_ms >= self._next_reconcile_ms:
            self._next_reconcile_ms = now_ms + RECONCILE_EVERY_MS
            self._reconcile()
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """The shard (or the target of a lane) has changed: go on with deaths, lanes and tombstones."""
        if not self._leads():
            return
        if self.group.applied >= self._routing_until:
            self._route()
        self._move_lanes(now_ms)
        if self.shard.deleted:
            self._clear_tombstones()

    @property
    def has_lanes(self) -> bool:
        """Whether dead letters for other shards wait here, so that what those apply matters."""
        return any(lane.items for lane in self.shard.lanes())

    def _leads(self) -> bool:
        if not self.group.established:
            if self._term:
                self._forget()
            return False
        if self.group.term != self._term:
            self._forget()
            self._term = self.group.term
        return True

    def _propose(self, command: bytes) -> int:
        """Propose; returns an index that is applied only after the command was (unless leadership is lost)."""
        self._port.propose(self.shard.shard_id, command)
        return self.group.raw.raft.raft_log.last_index() + 1

    # ------------------------------------------------------------------ expiry

    def _expire(self, now_ms: int) -> None:
        time_ms = self.group.clock.current_ms(now_ms)
        if self.shard.due_messages(time_ms):
            self._propose(commands.encode_expire_due())
        due = self.shard.due_leases(self.group.clock.led_ms)
        if due:
            self._propose(b"".join([commands.encode_expire_queue(queue, epoch) for queue, epoch in due]))

    def more_due(self, now_ms: int) -> None:
        """An expiry entry was applied and reached its bound (RULES C4): go on at once."""
        if self._leads() and self.shard.due_messages(self.group.clock.time_ms):
            self._propose(commands.encode_expire_due())

    # ------------------------------------------------------------------ dead letters

    def _route(self) -> None:
        decisions: list[commands.RouteDecision] = []
        size = 0
        waiting = self.shard.unrouted(DEAD_LETTERS_PER_ENTRY)
        for death in waiting:
            decision = self._port.route_death(self.group, death)
            if decision.outcome in _UNROUTABLE and death.sequence > self._catalog_fresh_up_to:
                self._freshen_catalog(waiting[-1].sequence)
                break
            decisions.append(decision)
            size += death.message.content_length
            if size >= TRANSFER_BYTES:
                break
        if decisions:
            self._routing_until = self._propose(commands.encode_route(decisions))

    def _freshen_catalog(self, sequence: int) -> None:
        """A death seems to have no route; that counts once our catalog is as new as the death (RULES D8)."""
        if self._freshening:
            return
        self._freshening = True
        term = self._term

        def fresh() -> None:
            if self._term == term:
                self._freshening = False
                self._catalog_fresh_up_to = sequence
                if self._leads() and self.group.applied >= self._routing_until:
                    self._route()

        self._port.barrier(fresh)

    def _move_lanes(self, now_ms: int) -> None:
        settled: list[bytes] = []
        settling_done = self.group.applied >= self._settling_until
        source = self.shard.shard_id
        for lane in self.shard.lanes():
            if not lane.items:
                continue
            queue_id = lane.target_queue
            received = self._port.received_up_to(lane.target_shard, queue_id, source)
            if received < 0:
                if settling_done and self._port.catalog.queue_by_id(queue_id) is None:
                    settled.append(commands.encode_lane_closed(queue_id))
                    self._sent.pop(queue_id, None)
                continue
            if received >= lane.first_sequence and settling_done:
                settled.append(commands.encode_settled(queue_id, received))
            self._send_lane(lane, max(lane.first_sequence, received + 1), now_ms)
        if settled:
            self._settling_until = self._propose(b"".join(settled))

    def _send_lane(self, lane: Lane, wanted: int, now_ms: int) -> None:
        """Send what follows; everything again from `wanted` when nothing has arrived for a while."""
        sent, when, seen = self._sent.get(lane.target_queue, (wanted - 1, now_ms, wanted))
        if wanted > seen:
            when, seen = now_ms, wanted
        if sent < wanted - 1 or (sent >= wanted and now_ms - when >= TRANSFER_AGAIN_MS):
            sent, when = wanted - 1, now_ms
        last = lane.first_sequence + len(lane.items) - 1
        while sent < last and sent - wanted < DEAD_LETTERS_UNDER_WAY:
            contents: list[commands.Content] = []
            size = 0
            for item in islice(lane.items, sent + 1 - lane.first_sequence, None):
                contents.append(content_of(self.group.log.data(item.index), item))
                size += item.content_length
                if size >= TRANSFER_BYTES or len(contents) >= DEAD_LETTERS_PER_ENTRY:
                    break
            command = commands.encode_transfer(self.shard.shard_id, lane.target_queue, sent + 1, contents)
            self._port.transfer(lane.target_shard, command)
            sent += len(contents)
        self._sent[lane.target_queue] = (sent, when, seen)

    # ------------------------------------------------------------------ queues that went, queues that differ

    def _clear_tombstones(self) -> None:
        ids = tuple(id for id in self.shard.deleted if id not in self._removing)
        if not ids:
            return
        self._removing.update(ids)
        term = self._term

        def removed() -> None:
            self._removing.difference_update(ids)
            if self._leads() and self._term == term:
                self._propose(commands.encode_forget_deleted(ids))

        self._port.remove_queues(ids, removed)

    def _reconcile(self) -> None:
        """Compare with the catalog, whose replica must not be behind: a barrier first."""
        if self._reconciling:
            return
        self._reconciling = True
        present_before = set(self.shard.queue_ids())

        def compare() -> None:
            self._reconciling = False
            if not self._leads():
                return
            shard_id = self.shard.shard_id
            wanted = {record.id: record for record in self._port.catalog.queues() if record.shard == shard_id}
            present = set(self.shard.queue_ids())
            missing = [id for id in wanted if id not in present and id not in self.shard.deleted]
            surplus = sorted(id for id in present_before & present if id not in wanted)
            parts = [commands.encode_create_queue(id, settings_of(wanted[id])) for id in missing]
            parts += [commands.encode_drop_queue(id) for id in surplus]
            if parts:
                self._propose(b"".join(parts))

        self._port.barrier(compare)
