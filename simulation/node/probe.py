"""What the simulator sees that no client can: the state of replicas, compared with each other as the run
goes on.

Checked at once, wherever a node has just worked: one leader in a term (Raft), shard and lease clocks that
never go back in one process (RULES C2) nor run ahead of true time further than they may (C3), equal
digests at equal applied positions (C1), no delivery decided past a deadline (T5), no queue longer than it
may be (D2). Written into the history: when queues were gone, and the shard clocks that judge deaths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Protocol

from mayfly.cluster.group.group import Group
from mayfly.cluster.group.sessions import is_open as is_open_state
from mayfly.node.amqp.content import Content
from mayfly.node.broker.access_counts import AccessCounts
from mayfly.node.broker.cluster_facade import ClusterEvents, ClusterFacade, OnDone, ShardHandle
from mayfly.node.catalog import Catalog, CatalogCommand, QueueRecord
from mayfly.node.duties.catalog_spread import SPREAD_WITHIN_MS
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import GetResult
from simulation.cluster.clocks import EPOCH_MS
from simulation.cluster.events import MILLISECOND_US, EventQueue
from simulation.cluster.machine import Machine
from simulation.node.history import Decision, Disappearance, History
from simulation.node.topology import delay_queue

DIGEST_EVERY = 16
PATIENCE_US = (SPREAD_WITHIN_MS - 100) * MILLISECOND_US
"""So long a change waits for every node that is there, whatever else is slow."""


class StateError(AssertionError):
    """Replicas disagree, or a clock went back: the text says which, where and when."""


class Seen:
    """A replica of one process, and what it showed the last time."""

    __slots__ = ("applied", "group", "group_id", "led_ms", "led_term", "raw", "time_ms")

    def __init__(self, group_id: int, group: Group) -> None:
        self.group_id = group_id
        self.group = group
        self.raw = group.raw
        self.applied = 0
        self.led_term = 0
        self.time_ms = 0
        self.led_ms = 0


class ProbedNode(Protocol):
    """A node, as far as the probe looks at it."""

    machine: Machine[Any, Any]
    engine: Engine

    @property
    def seen(self) -> list[Seen]:
        """What the probe saw of each replica, the last time."""
        ...


class Probe:
    """The eyes of one run."""

    def __init__(self, queue: EventQueue, history: History) -> None:
        self._queue = queue
        self._history = history
        self.shard_clocks_ms: dict[int, int] = {}
        """The newest clock any replica of a shard has shown."""
        self.shard_of: dict[str, int] = {}
        """The shard of each queue, as last seen in a catalog."""
        self.digests_compared = 0
        self.sessions_lost = 0
        """How often a shard has dropped a node's session."""
        self.told_by_snapshot = 0
        """Messages that were given to clients because a snapshot says that they hold them."""
        self.spreads_without_all = 0
        """Changes that were answered, rightly, while a node without clients was behind."""
        self._nodes: dict[int, ProbedNode] = {}
        """The newest life of each."""
        self.clock_limit_ms: int | None = None
        """How far ahead of true time a group's clock may be; None where too few clocks are right to say."""
        self._leaders: dict[tuple[int, int], int] = {}
        self._digests: dict[tuple[int, int], tuple[int, str]] = {}
        self._gone: dict[int, None] = {}
        self.session_ended: Callable[[int, int], None] = lambda shard, node: None
        """Called with (shard, node) when a replica shows, for the first time, that a session is over."""
        self._sessions: dict[tuple[int, int], tuple[int, bool]] = {}
        self.rebuilt: Callable[[], None] = lambda: None
        """Called when a node has begun with a damaged replica, which the others are to rebuild."""

    def watch(self, node: ProbedNode) -> ClusterFacade:
        """The engine of a node as its broker shall see it: answers to gets are looked at on their way."""
        self._nodes[node.machine.id] = node
        return _WatchedCluster(self, node)

    def spread_is_over(self, node: ProbedNode, index: int, since_us: int) -> None:
        """A node is about to answer a change of the catalog, of this entry, for which it waited since then: every node
        that serves clients and is there has it."""
        if self._queue.now_us - since_us >= PATIENCE_US:
            return  # Somebody took too long, and need not be waited for.
        here = node.engine
        for id, other in self._nodes.items():
            there = other.engine
            running: object = other.machine.program
            if other is node or running is not other or not here.host.liveness.is_connected(id):
                continue
            if there.host.groups[CATALOG_GROUP].applied >= index or here.spread.is_slow(id):
                continue
            if not there.quiet.serves:
                self.spreads_without_all += 1
            elif not there.quiet.has_told(node.machine.id):
                continue  # It was not heard in time, and serves all the same.
            else:
                raise StateError(
                    f"node {node.machine.id} answers a change of the catalog at {index}, node {id} serves clients and "
                    f"has applied {there.host.groups[CATALOG_GROUP].applied}"
                )

    @property
    def now_us(self) -> int:
        """True time."""
        return self._queue.now_us

    def watch_effects(self, node: ProbedNode, events: ClusterEvents) -> ClusterEvents:
        """The broker of a node as its engine shall see it: deliveries are looked at on their way."""
        return _WatchedEvents(self, node, events)

    def handed_out(self, node: ProbedNode, shard: int, messages: Sequence[Message]) -> None:
        """A replica decided that these messages go to a client."""
        replica = node.engine.shards.get(shard)
        if replica is None:
            return  # a transient shard, which has no history to be judged with, or one that is decided elsewhere
        if replica.index <= node.engine.host.groups[shard].applied:
            # It was decided in some entry that a snapshot has taken the place of.
            self.told_by_snapshot += len(messages)
            return
        time_ms = replica.time_ms
        for message in messages:
            if message.deadline_ms >= 0:
                self._history.decisions.append(
                    Decision(self._queue.now_us, node.machine.id, shard, time_ms, message.deadline_ms)
                )

    def session_lost(self, node: ProbedNode, shard: int) -> None:
        """A node is told that its session with a shard is over."""
        self._history.lost_sessions.append((self._queue.now_us, node.machine.id, shard))

    def look(self, node: ProbedNode) -> None:
        """The node has worked: compare what changed."""
        for seen in node.seen:
            raw = seen.raw
            if raw.leads and raw.term != seen.led_term:
                seen.led_term = raw.term
                known = self._leaders.setdefault((seen.group_id, raw.term), node.machine.id)
                if known != node.machine.id:
                    raise StateError(
                        f"group {seen.group_id} has two leaders in term {raw.term}: {known} and {node.machine.id}"
                    )
            if seen.applied != seen.group.applied:
                self._look_at_group(node, seen.group_id, seen.group, seen)

    def _look_at_group(self, node: ProbedNode, group_id: int, group: Group, seen: Seen) -> None:
        clock = group.clock
        if clock.time_ms < seen.time_ms or clock.applied_led_ms < seen.led_ms:
            raise StateError(
                f"a clock of group {group_id} at node {node.machine.id} went back: from "
                f"{(seen.time_ms, seen.led_ms)} to {(clock.time_ms, clock.applied_led_ms)}"
            )
        ahead_ms = clock.time_ms - EPOCH_MS - self._queue.now_us // 1_000
        if self.clock_limit_ms is not None and ahead_ms > self.clock_limit_ms:
            raise StateError(
                f"the clock of group {group_id} at node {node.machine.id} is {ahead_ms} ms ahead of true time, "
                f"more than {self.clock_limit_ms} (RULES C3)"
            )
        seen.applied, seen.time_ms, seen.led_ms = group.applied, clock.time_ms, clock.applied_led_ms
        if group_id != CATALOG_GROUP:
            self._look_at_shard(node, group_id, seen)
        else:
            for queue in node.engine.catalog.delay_queues():
                self.shard_of[delay_queue(queue.name)] = queue.shard
            for queue in node.engine.catalog.queues():
                self.shard_of[queue.name] = queue.shard
                shards = self._history.shards.setdefault(queue.name, {})
                shards.setdefault(queue.shard)
                if queue.moving_to:
                    shards.setdefault(queue.moving_to)
        if group.applied % DIGEST_EVERY == 0:
            self.compare(node, group_id)

    def _look_at_shard(self, node: ProbedNode, shard_id: int, seen: Seen) -> None:
        shard = node.engine.shards[shard_id]
        if shard.time_ms > self.shard_clocks_ms.get(shard_id, 0):
            self.shard_clocks_ms[shard_id] = shard.time_ms
        for session_node, incarnation, _, state in node.engine.host.groups[shard_id].sessions.rows():
            is_open = is_open_state(state)
            known = self._sessions.get((shard_id, session_node), (incarnation, True))
            if incarnation > known[0] or (incarnation == known[0] and known[1] and not is_open):
                self.session_ended(shard_id, session_node)
            self._sessions[(shard_id, session_node)] = max(known, (incarnation, is_open), key=_newness)
        for queue_id in shard.queue_ids():
            queue = shard.queue(queue_id)
            if queue is not None and queue.drops and queue.is_over_limit() and not queue.has_left:
                # No run is so large that the bound of an entry could leave some of it for the next.
                raise StateError(f"{queue.settings.name} has {queue.ready_count()} ready, {queue.max_length} allowed")
        for queue_id, tombstone in shard.deleted.items():
            if queue_id not in self._gone:
                self._gone[queue_id] = None
                self._history.disappearances.append(
                    Disappearance(tombstone.name, queue_id, self._queue.now_us, tombstone.reason)
                )

    def compare(self, node: ProbedNode, group_id: int) -> None:
        """Compare the whole state of a replica with what others had at the same position (RULES C1)."""
        group = node.engine.host.groups[group_id]
        digest = digest_of(node, group_id)
        known = self._digests.setdefault((group_id, group.applied), (node.machine.id, digest))
        if known[0] != node.machine.id:
            self.digests_compared += 1
        if known[1] != digest:
            raise StateError(
                f"group {group_id} at {group.applied}: node {node.machine.id} has another state than node "
                f"{known[0]} had"
            )


def _newness(session: tuple[int, bool]) -> tuple[int, bool]:
    """What is known of a session only grows: a higher incarnation, or its end."""
    return session[0], not session[1]


def digest_of(node: ProbedNode, group_id: int) -> str:
    """A fingerprint of a replica: its state machine and its sessions."""
    group = node.engine.host.groups[group_id]
    if group_id == CATALOG_GROUP:
        return f"{sha256(node.engine.catalog.snapshot()).hexdigest()} {group.sessions.rows()}"
    return f"{node.engine.shards[group_id].digest()} {group.sessions.rows()}"


class _WatchedCluster:
    """A `ClusterFacade` that shows answers to gets to the probe."""

    def __init__(self, probe: Probe, node: ProbedNode) -> None:
        self._probe = probe
        self._node = node
        self._handles: dict[int, ShardHandle] = {}

    @property
    def node_id(self) -> int:
        return self._node.engine.node_id

    @property
    def incarnation(self) -> int:
        return self._node.engine.incarnation

    @property
    def catalog(self) -> Catalog:
        return self._node.engine.catalog

    @property
    def access_counts(self) -> AccessCounts:
        return self._node.engine.access_counts

    def submit_catalog(self, command: CatalogCommand, done: OnDone) -> None:
        self._node.engine.submit_catalog(command, done)

    def reply(self, address: str, content: Content) -> None:
        self._node.engine.reply(address, content)

    def ask_for_reply_address(self, address: str, done: OnDone) -> None:
        self._node.engine.ask_for_reply_address(address, done)

    def await_owner(self, queue_id: int, done: OnDone) -> None:
        self._node.engine.await_owner(queue_id, done)

    def later(self, done: OnDone) -> None:
        self._node.engine.later(done)

    def leads(self, shard_id: int) -> bool:
        return self._node.engine.leads(shard_id)

    def catalog_barrier(self, done: OnDone) -> None:
        self._node.engine.catalog_barrier(done)

    def catalog_spread(self, done: OnDone) -> None:
        since_us, index = self._probe.now_us, self._node.engine.spread.changed_up_to

        def over(result: object) -> None:
            self._probe.spread_is_over(self._node, index, since_us)
            done(result)

        self._node.engine.catalog_spread(over)

    def serve(self, done: OnDone) -> None:
        self._node.engine.serve(done)

    def shard(self, shard_id: int) -> ShardHandle:
        handle = self._handles.get(shard_id)
        if handle is None:
            inner = self._node.engine.shard(shard_id)
            handle = self._handles[shard_id] = _WatchedShard(self._probe, self._node, inner)
        return handle

    @property
    def now_ms(self) -> int:
        return self._node.engine.now_ms

    @property
    def overloaded(self) -> bool:
        return self._node.engine.overloaded

    @property
    def blocked(self) -> str | None:
        return self._node.engine.blocked

    @property
    def no_room(self) -> str | None:
        return self._node.engine.no_room


class _WatchedShard:
    """A `ShardHandle` that shows answers to gets to the probe."""

    def __init__(self, probe: Probe, node: ProbedNode, inner: ShardHandle) -> None:
        self._probe = probe
        self._node = node
        self._inner = inner

    @property
    def shard_id(self) -> int:
        return self._inner.shard_id

    def submit(self, command: bytes, done: OnDone | None) -> None:
        if done is None:
            self._inner.submit(command, None)
            return
        told = done

        def watched(result: object) -> None:
            if isinstance(result, GetResult) and result.message is not None:
                self._probe.handed_out(self._node, self._inner.shard_id, [result.message])
            told(result)

        self._inner.submit(command, watched)

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        self._inner.acknowledge(queue_id, holder_id, command)

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        self._inner.publish(parts, size_bytes, done)

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        self._inner.publish_in_pieces(parts, size_bytes, done)

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        # A transaction takes nothing by basic.get.
        self._inner.submit_in_pieces(command, done)

    def content(self, message: Message) -> tuple[bytes, int]:
        return self._inner.content(message)

    def views(self, message: Message) -> list[memoryview]:
        return self._inner.views(message)


class _WatchedEvents:
    """`ClusterEvents` that show deliveries to the probe."""

    def __init__(self, probe: Probe, node: ProbedNode, inner: ClusterEvents) -> None:
        self._probe = probe
        self._node = node
        self._inner = inner

    def shard_effects(self, shard_id: int, effects: Sequence[object]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self._probe.handed_out(self._node, shard_id, effect.messages)
        self._inner.shard_effects(shard_id, effects)

    def session_lost(self, shard_id: int) -> None:
        self._probe.sessions_lost += 1
        self._probe.session_lost(self._node, shard_id)
        self._inner.session_lost(shard_id)

    def reply_came(self, key: str, content: Content) -> None:
        self._inner.reply_came(key, content)

    def awaits_reply(self, key: str) -> bool:
        return self._inner.awaits_reply(key)

    def has_clients(self) -> bool:
        return self._inner.has_clients()

    def consumes_from(self, shard_id: int) -> bool:
        return self._inner.consumes_from(shard_id)

    def ticked(self, now_ms: int) -> None:
        self._inner.ticked(now_ms)

    def queues_removed(self, queues: Sequence[QueueRecord]) -> None:
        self._inner.queues_removed(queues)

    def catalog_changed(self) -> None:
        self._inner.catalog_changed()

    def alarm_changed(self, text: str | None) -> None:
        self._inner.alarm_changed(text)

    def no_room_changed(self, elsewhere: bool) -> None:
        self._inner.no_room_changed(elsewhere)

    def pressure_changed(self, overloaded: bool) -> None:
        self._inner.pressure_changed(overloaded)

    def kept_bytes(self) -> int:
        return self._inner.kept_bytes()
