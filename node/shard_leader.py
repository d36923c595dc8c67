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
from typing import Final, Protocol

from cluster.group import Group
from node.catalog import Catalog, QueueRecord
from node.limits import DEAD_LETTERS_PER_ENTRY, TRANSFER_BYTES
from node.shard import commands
from node.shard.settings import ShardQueueSettings
from node.shard.shard import Shard

TRANSFER_AGAIN_MS: Final = 1000
RECONCILE_EVERY_MS: Final = 30_000


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

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int | None:
        """Highest sequence that our replica of the target has from `source`; None if the queue is gone there."""
        ...

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[], None]) -> None:
        """Take queues out of the catalog; `done` once that is applied here."""
        ...

    def barrier(self, done: Callable[[], None]) -> None:
        """`done` once the local catalog has everything that was committed before now."""
        ...

    def route_death(self, shard: Shard, death: object) -> commands.RouteDecision:
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
        self._sent: dict[int, tuple[int, int]] = {}
        """lane -> (highest sequence sent, when)"""
        self._removing: set[int] = set()
        self._reconciling = False

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
        shard = self.shard
        if not (shard.unrouted or shard.lanes or shard.deleted) or not self._leads():
            return
        if shard.unrouted and self.group.applied >= self._routing_until:
            self._route()
        if shard.lanes:
            self._move_lanes(now_ms)
        if shard.deleted:
            self._clear_tombstones()

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
        decisions = []
        for death in self.shard.unrouted:
            decisions.append(self._port.route_death(self.shard, death))
            if len(decisions) >= DEAD_LETTERS_PER_ENTRY:
                break
        self._routing_until = self._propose(commands.encode_route(decisions))

    def _move_lanes(self, now_ms: int) -> None:
        settled: list[bytes] = []
        settling_done = self.group.applied >= self._settling_until
        source = self.shard.shard_id
        for lane_id, lane in self.shard.lanes.items():
            received = self._port.received_up_to(lane.target_shard, lane_id, source)
            if received is None:
                if settling_done and self._target_is_gone(lane_id):
                    settled.append(commands.encode_lane_closed(lane_id))
                    self._sent.pop(lane_id, None)
                continue
            first = lane.first_unsettled
            if received >= first and settling_done:
                settled.append(commands.encode_settled(lane_id, received))
            self._send_lane(lane_id, max(first, received + 1), now_ms)
        if settled:
            self._settling_until = self._propose(b"".join(settled))

    def _target_is_gone(self, queue_id: int) -> bool:
        return self._port.catalog.queue_by_id(queue_id) is None

    def _send_lane(self, lane_id: int, wanted: int, now_ms: int) -> None:
        """Send what follows; everything again from `wanted` when nothing has arrived for a while."""
        lane = self.shard.lanes[lane_id]
        sent, when = self._sent.get(lane_id, (0, now_ms))
        if sent < wanted - 1 or (sent >= wanted and now_ms - when >= TRANSFER_AGAIN_MS):
            sent = wanted - 1
        next_sequence = sent + 1
        contents: list[commands.Content] = []
        size = 0
        for item in lane.items_from(next_sequence):
            content = self._content(item)
            contents.append(content)
            size += len(content.body) + len(content.header)
            if size >= TRANSFER_BYTES or len(contents) >= DEAD_LETTERS_PER_ENTRY:
                break
        if contents:
            command = commands.encode_transfer(self.shard.shard_id, lane_id, next_sequence, contents)
            self._port.transfer(lane.target_shard, command)
            self._sent[lane_id] = (sent + len(contents), now_ms)

    def _content(self, item: object) -> commands.Content:
        raise NotImplementedError

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
            wanted = {record.id: record for record in self._port.catalog.queues_of_shard(self.shard.shard_id)}
            present = set(self.shard.queue_ids())
            missing = [id for id in wanted if id not in present and id not in self.shard.deleted]
            surplus = sorted(id for id in present_before & present if id not in wanted)
            parts = [commands.encode_create_queue(id, settings_of(wanted[id])) for id in missing]
            parts += [commands.encode_drop_queue(id) for id in surplus]
            if parts:
                self._propose(b"".join(parts))

        self._port.barrier(compare)
