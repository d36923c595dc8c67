"""A whole cluster in this process: one node, no Raft, no disk, time given from outside.

A real `ClusterFacade`: catalog and shards are the same state machines, applied at `pump` instead of after replication.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.amqp.content import Content
from mayfly.node.broker.access_counts import AccessCounts
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterEvents, OnDone, ShardHandle
from mayfly.node.broker.direct_replies import DirectReplies
from mayfly.node.catalog import (
    Catalog,
    CatalogCommand,
    NodeStarted,
    QueueMoved,
    QueueRecord,
    QueuesRemoved,
    RaiseLevel,
    RemoveQueues,
    decode,
    encode,
)
from mayfly.node.numbers import transient_shard
from mayfly.node.shard.message import Message
from mayfly.node.shard.room import Room
from mayfly.node.transient.local_shard import LocalHandle, LocalShard
from mayfly.node.transient.lost_owners import LostOwners

_ROUNDS: Final = 200
_SESSION_TIMEOUT_MS: Final = 5_000


class DirectCluster:
    """One node that is its own cluster.  `pump` does what was asked for since the last one."""

    is_waited_for = True

    def __init__(
        self,
        shard_count: int = 4,
        now_ms: int = 0,
        node_id: int = 1,
        wake: Callable[[], None] | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        """`wake()` is called when there is something to pump; `catalog` is one that several nodes share."""
        self.node_id: int = node_id
        self.incarnation: int = 1 << 20
        self.catalog: Catalog = catalog or Catalog(shard_count)
        self.events: ClusterEvents | None = None
        self.access_counts: AccessCounts = AccessCounts()
        self.overloaded: bool = False
        self.blocked: str | None = None
        self.no_room: str | None = None
        self.now_ms: int = now_ms
        self.replies: DirectReplies = DirectReplies(node_id, _nowhere, lambda: self.events)
        self.lost_owners: LostOwners = LostOwners(node_id, lambda: self.catalog, _SESSION_TIMEOUT_MS)
        self.barriers: int = 0
        """How many barriers were asked for."""
        self.laters: list[OnDone] = []
        self._wake = wake or _nothing
        self._commands: list[tuple[bytes, OnDone]] = []
        self._barriers: list[OnDone] = []
        self.shards: dict[int, LocalShard] = {}
        self._handles: dict[int, ShardHandle] = {}
        for shard_id in [*range(1, shard_count + 1), transient_shard(node_id)]:
            local = LocalShard(shard_id, node_id, shard_id, self, partial(self._deliver, shard_id))
            self.shards[shard_id] = local
            self._handles[shard_id] = LocalHandle(local, (node_id, self.incarnation), self._wake)
        self.catalog.apply(NodeStarted(node_id, self.incarnation, "direct"), now_ms)
        self.catalog.apply(RaiseLevel(LEVEL_HIGHEST, ()), now_ms)

    # -- ClusterFacade ------------------------------------------------------------

    def submit_catalog(self, command: CatalogCommand, done: OnDone) -> None:
        """See `ClusterFacade.submit_catalog`."""
        self._commands.append((encode(command), done))
        self._wake()

    def catalog_barrier(self, done: OnDone) -> None:
        """See `ClusterFacade.catalog_barrier`."""
        self.barriers += 1
        self._barriers.append(done)
        self._wake()

    def serve(self, done: OnDone) -> None:
        """See `ClusterFacade.serve`; there is no other node."""
        done(None)

    def catalog_spread(self, done: OnDone) -> None:
        """See `ClusterFacade.catalog_spread`; there is no other node."""
        done(None)

    def leads(self, shard_id: int) -> bool:
        """See `ClusterFacade.leads`; there is no other node."""
        return True

    def await_owner(self, queue_id: int, done: OnDone) -> None:
        """See `ClusterFacade.await_owner`."""
        self.lost_owners.wait(queue_id, done)

    def reply(self, address: str, content: Content) -> None:
        """See `ClusterFacade.reply`."""
        self.replies.reply(address, content)

    def ask_for_reply_address(self, address: str, done: OnDone) -> None:
        """See `ClusterFacade.ask_for_reply_address`."""
        self.replies.ask(address, done)

    def shard(self, shard_id: int) -> ShardHandle:
        """See `ClusterFacade.shard`."""
        return self._handles.get(shard_id) or UnreachableHandle(shard_id)

    # -- driven from outside --------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Time has passed: what is due expires at the next `pump`."""
        self.now_ms = max(self.now_ms, now_ms)
        self.lost_owners.tick(self.now_ms)
        laters, self.laters = self.laters, []
        for done in laters:
            done(None)
        for local in self.shards.values():
            local.tick(self.now_ms)
            local.attend(self.now_ms)

    def pump(self, now_ms: int | None = None) -> None:
        """Apply what was gathered until nothing is left to do."""
        if now_ms is not None:
            self.now_ms = max(self.now_ms, now_ms)
        for _ in range(_ROUNDS):
            if not self.turn():
                return

    @property
    def busy(self) -> bool:
        """Whether `pump` has something to do."""
        waits = self._commands or self._barriers or self.catalog.routing_turns.has_waiting
        return bool(waits or any(local.busy for local in self.shards.values()))

    def turn(self) -> bool:
        """One turn of the node; whether there was something to do."""
        did_something = self.catalog.routing_turns.has_waiting
        self.catalog.routing_turns.begin()
        did_something |= self._pump_catalog()
        for local in self.shards.values():
            if local.busy:
                did_something = True
                local.pump(self.now_ms)
                if local.broken_sessions:
                    local.broken_sessions.clear()
                    self.lose_session(local.shard_id)
        return did_something

    def _deliver(self, shard_id: int, effects: list[object]) -> None:
        if self.events is not None:
            self.events.shard_effects(shard_id, effects)

    def _pump_catalog(self) -> bool:
        commands, self._commands = self._commands, []
        barriers, self._barriers = self._barriers, []
        removed: list[QueueRecord] = []
        for data, done in commands:
            result = self.catalog.apply(decode(data), self.now_ms)
            if isinstance(result, QueuesRemoved):
                removed += result.queues
            done(result)
        if commands:
            self.lost_owners.catalog_changed()
            if self.events is not None:
                self.events.queues_removed(removed)
                self.events.catalog_changed()
        for reached in barriers:
            reached(None)
        return bool(commands or barriers)

    def lose_session(self, shard_id: int) -> None:
        """The shard has dropped this node's session."""
        local = self.shards[shard_id]
        local.close_session((self.node_id, self.incarnation))
        local.pump(self.now_ms)
        if self.events is not None:
            self.events.session_lost(shard_id)

    def later(self, done: OnDone) -> None:
        """See `ClusterFacade.later`."""
        self.laters.append(done)

    # -- DutyPort -------------------------------------------------------------

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        """See `DutyPort.remove_queues`."""
        self.submit_catalog(RemoveQueues(ids), lambda result: done(result is not SESSION_LOST))

    def has_leader(self, shard: int) -> bool:
        """See `DutyPort.has_leader`."""
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        """See `DutyPort.queue_moved`."""
        self.submit_catalog(QueueMoved(queue, source, target, number), lambda _: None)

    def barrier(self, done: Callable[[], None]) -> None:
        """See `DutyPort.barrier`."""
        self.catalog_barrier(lambda _: done())

    def transfer(self, target_shard: int, command: bytes) -> None:
        """See `DutyPort.transfer`."""
        self.shards[target_shard].internal(command)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        """See `DutyPort.received_up_to`."""
        return self.shards[target_shard].shard.received_up_to(queue, source)

    def ask_again(self, target_shard: int, queue: int, source: int) -> None:
        """See `DutyPort.ask_again`."""

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        """See `DutyPort.room`."""
        return self.shards[target_shard].shard.room(queue, source, next_bytes)


class UnreachableHandle:
    """The `ShardHandle` of a shard whose node cannot be reached."""

    __slots__ = ("shard_id",)

    def __init__(self, shard_id: int) -> None:
        self.shard_id: int = shard_id

    def submit(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit`: answers SESSION_LOST at once."""
        if done is not None:
            done(SESSION_LOST)

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        """See `ShardHandle.acknowledge`."""
        self.submit(command, None)

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish`: answers SESSION_LOST at once."""
        if done is not None:
            done(SESSION_LOST)

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish_in_pieces`: answers SESSION_LOST at once."""
        self.publish(parts, size_bytes, done)

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit_in_pieces`: answers SESSION_LOST at once."""
        self.submit(command, done)

    def content(self, message: Message) -> tuple[bytes, int]:
        """See `ShardHandle.content`."""
        raise LookupError(f"shard {self.shard_id} cannot be reached")

    def views(self, message: Message) -> list[memoryview]:
        """See `ShardHandle.views`."""
        raise LookupError(f"shard {self.shard_id} cannot be reached")


def _nowhere(node_id: int, kind: int, data: bytes) -> None:
    """There is no other node."""


def _nothing() -> None:
    """Nobody needs to be woken."""
