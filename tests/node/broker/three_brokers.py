"""Three whole nodes (engine and broker) in this process, whose network, disks and time a test controls."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from mayfly.cluster.group.group import Group
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import StoredGroup, WriteBatch
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.raft import Entry, RaftMessage
from mayfly.cluster.versions import LEVELS, VersionRange
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.catalog import Catalog
from mayfly.node.engine.engine import Engine
from mayfly.node.engine.settings import EngineSettings
from mayfly.node.membership.plan_duty import PlanSettings
from mayfly.node.membership.queue_balance import HOT_FOR_MS
from mayfly.node.membership.settings import MembershipSettings
from mayfly.node.numbers import CATALOG_GROUP
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.host.three_hosts import lose
from tests.node.conftest import Host, World

TICK_MS = 50
SHARDS = 2
_CLUSTERS = itertools.count(1)


class Store(Protocol):
    """What a node needs of its log store."""

    def load(self) -> dict[int, StoredGroup]: ...

    def write(self, batch: WriteBatch) -> None: ...

    def read_entry(self, group: int, index: int) -> Entry: ...


class QuickHost(Host):
    """A socket for which passwords are not hashed: that is slow on purpose."""

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        self.world.later.append(lambda: done(password == "guest"))


class NodeWorld(World):
    """The clients of one node, as `World` has them for a broker alone."""

    def __init__(self, cluster: ThreeBrokers, id: int, life: int) -> None:
        ids = cluster.ids
        group = GroupSettings(
            election_ticks=10, heartbeat_ticks=2, session_window=4, batch_bytes=100_000, entry_bytes=1_000_000,
            repeat_after_ms=1000, session_timeout_ms=3000, compact_bytes=1 << 40,
            compact_entries=cluster.compact_entries, inflight_bytes=1 << 20,
        )
        membership = MembershipSettings(
            f"store {id}", [(i, f"node{i}", f"at:{i}") for i in ids], levels=cluster.levels[id],
            plan=PlanSettings(
                cluster.replace_after_ms, cluster.shards_per_node, cluster.by_load, cluster.hot_for_ms
            ),
        )
        settings = EngineSettings(
            f"node{id}", cluster.shards, 250, {}, lambda: Catalog(cluster.shards), membership
        )
        store = cluster.stores[id]
        self.id = id
        self.all = cluster
        self.engine = Engine(
            HostSettings(id, ids, 3, TICK_MS, 500, 2000, group), settings, store.read_entry,
            EntryCache(1 << 20), random.Random(id * 1000 + life).randrange, life << 20,
        )
        self.levels: list[int] = []
        """The cluster's feature levels as the shell is told of them."""
        self.engine.membership.level_changed = self.levels.append
        first = self.engine.start(store.load(), cluster.now_ms)
        if first is not None:
            store.write(first)
        counter = itertools.count(id << 32)
        self.broker = Broker(self.engine, lambda: next(counter).to_bytes(16, "big"))
        self.broker.settings.cluster_id = cluster.cluster_id
        self.engine.broker = self.broker
        self.dirty: list[Host] = []
        self.later: list[Any] = []
        self.verified = 0
        self.write: WriteBatch | None = None

    make_host = QuickHost

    @property
    def catalog_group(self) -> Group:
        return self.engine.host.groups[CATALOG_GROUP]

    def settle(self) -> None:
        self.all.settle()

    def flush(self) -> bool:
        later, self.later = self.later, []
        for each in later:
            each()
        dirty, self.dirty = self.dirty, []
        for host in dirty:
            if host.client is not None:
                host.client.output(b"".join(host.client.connection.flush()))
                host.client.closed = host.client.connection.amqp.should_close
        return bool(later or dirty)


class ThreeBrokers:
    """Nodes 1, 2 and 3. `cut` nodes hear and reach nobody; `stuck` disks do not finish writes; with `running` off
    nothing happens but what clients send; `loses(sender, receiver, message)` says which Raft messages do not arrive;
    of `silent` groups none does, so that they soon have no leader; what is sent to `late` nodes stays on its way.
    Unless they are `patient`, `settle` does not let the few ms pass that some things wait for others to go with."""

    def __init__(
        self,
        make_store: Callable[[int], Store] = lambda id: MemoryStore(),
        shards: int = SHARDS,
        levels: VersionRange | Mapping[int, VersionRange] = LEVELS,
        cut: Iterable[int] = (),
        replace_after_ms: int = 0,
        shards_per_node: int = 0,
        compact_entries: int = 1 << 40,
        nodes: int = 3,
        by_load: bool = True,
        hot_for_ms: int = HOT_FOR_MS,
    ) -> None:
        """`levels` are those that all nodes know at first, or each; `cut` are nodes that are not there at first. More
        `nodes` than three: each shard is on three of them."""
        self.cluster_id = f"cluster {next(_CLUSTERS)}"
        self.ids = list(range(1, nodes + 1))
        self.levels = dict.fromkeys(self.ids, levels) if isinstance(levels, VersionRange) else dict(levels)
        self.shards = shards
        self.replace_after_ms = replace_after_ms
        self.shards_per_node = shards_per_node
        self.compact_entries = compact_entries
        self.by_load = by_load
        self.hot_for_ms = hot_for_ms
        self.now_ms = 1_000_000
        self.stores = {id: make_store(id) for id in self.ids}
        self.cut = set(cut)
        self.stuck: set[int] = set()
        self.silent: set[int] = set()
        self.late: set[int] = set()
        self.running = True
        self.patient = True
        self.frames = 0
        """How many have been sent."""
        self.watches: Callable[[Frame], None] = lambda frame: None
        """Is shown every frame that is sent."""
        self.loses: Callable[[int, int, RaftMessage], bool] = lambda sender, to, message: False
        self._mail: list[tuple[int, int, Frame]] = []
        self._due_ms = -1
        self.nodes = {id: NodeWorld(self, id, 1) for id in self.ids}
        for node in self.nodes.values():
            for other in self.ids:
                if other != node.id and not {other, node.id} & self.cut:
                    node.engine.peer_up(other, self.now_ms)
        self.run_until(self._begun)

    def _begun(self) -> bool:
        return self.leader() != 0 and all(
            node.engine.catalog.members.founded
            and len(list(node.engine.catalog.nodes())) == len(self.ids) - len(self.cut)
            and all(group.leader and group.sender.idle for group in node.engine.host.groups.values())
            for id, node in self.nodes.items()
            if id not in self.cut
        )

    def leader(self) -> int:
        """Who leads the catalog, among those that are not cut off; 0 if nobody does."""
        for id, node in self.nodes.items():
            if id not in self.cut and node.catalog_group.established:
                return id
        return 0

    def followers(self) -> list[int]:
        """Those that do not lead the catalog."""
        return [id for id in self.ids if id != self.leader()]

    def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        for _ in range(200):
            worked = self.running and self._work()
            flushed = [node.flush() for node in self.nodes.values()]
            if worked or any(flushed):
                continue
            if self._due_ms < 0 or not (self.running and self.patient):
                return
            # What waits for company waits a few ms at most: they pass.
            self.now_ms, self._due_ms = max(self.now_ms, self._due_ms), -1

    def _work(self) -> bool:
        moved = False
        for id, node in self.nodes.items():
            output = node.engine.pump(self.now_ms)
            moved |= bool(output.frames) or node.engine.busy
            node.write = output.write or node.write
            if output.due_ms >= 0:
                self._due_ms = output.due_ms if self._due_ms < 0 else min(self._due_ms, output.due_ms)
            self.frames += len(output.frames)
            for frame in output.frames.values():
                self.watches(frame)
            self._mail += [(id, to, frame) for to, frame in output.frames.items()]
            if node.write is not None and id not in self.stuck:
                self.stores[id].write(node.write)
                node.write = None
                node.engine.persisted(self.now_ms)
                moved = True
        mail = [each for each in self._mail if each[1] not in self.late]
        self._mail = [each for each in self._mail if each[1] in self.late]
        for sender, to, frame in mail:
            if not {sender, to} & self.cut:
                lose(frame, sender, to, partial(self._is_lost, sender, to))
                unordered = frame.take_unordered()
                if unordered is not None:
                    self.nodes[to].engine.receive(sender, unordered, self.now_ms)
                self.nodes[to].engine.receive(sender, frame, self.now_ms)
        return moved

    def _is_lost(self, sender: int, to: int, group: int, message: RaftMessage) -> bool:
        return group in self.silent or self.loses(sender, to, message)

    def step(self) -> None:
        """A tick passes."""
        self.now_ms += TICK_MS
        for node in self.nodes.values():
            node.engine.tick(self.now_ms)
        self.settle()

    def run_until(self, condition: Callable[[], object], steps: int = 400) -> None:
        """Let time pass until it is true."""
        for _ in range(steps):
            if condition():
                return
            self.step()
        raise AssertionError(f"did not come true within {steps} steps of {TICK_MS} ms")


def start_anew(brokers: ThreeBrokers, id: int, levels: VersionRange) -> None:
    """The node ends, and a process of a release that knows these levels goes on with its data."""
    brokers.cut.add(id)
    for other in brokers.ids:
        if other != id:
            brokers.nodes[other].engine.peer_down(id, brokers.now_ms)
    for _ in range(40):
        brokers.step()
    brokers.levels[id] = levels
    life = 1 + (brokers.nodes[id].engine.incarnation >> 20)
    node = brokers.nodes[id] = NodeWorld(brokers, id, life)
    brokers.cut.discard(id)
    for other in brokers.ids:
        if other != id:
            node.engine.peer_up(other, brokers.now_ms)
            brokers.nodes[other].engine.peer_up(id, brokers.now_ms)
    brokers.run_until(lambda: is_back(brokers, id))


def is_back(brokers: ThreeBrokers, id: int) -> bool:
    record = brokers.nodes[brokers.leader() or id].engine.catalog.node(id)
    node = brokers.nodes[id].engine
    return brokers.leader() != 0 and record is not None and record.incarnation == node.incarnation and all(
        group.leader and group.sender.idle for group in node.host.groups.values()
    )
