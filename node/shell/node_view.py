"""What a running node shows of itself over HTTP: health, status, queues, metrics."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from mayfly.cluster.transport.counters import PeerCounters
from mayfly.node.broker.broker import Broker
from mayfly.node.engine.drain import NOT_DRAINING, Drain
from mayfly.node.engine.engine import Engine
from mayfly.node.http.desk import STEPS_AT_ONCE, in_turns
from mayfly.node.http.provider import Histogram, Metric
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.queue_metrics import queue_metrics
from mayfly.node.operating.queue_selection import QueueSelection
from mayfly.node.operating.queue_views import QueueViews
from mayfly.node.operating.status import alarm_texts, engine_status, group_steps, login_metrics, metric_steps
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.log_writer import SYNC_BOUNDS_S, LogWriter
from mayfly.node.shell.membership import MembershipShell
from mayfly.node.shell.peer_protection import peer_warnings, protection
from mayfly.node.shell.process_memory import MemoryWatch
from mayfly.node.shell.resource_watch import ResourceWatch

QUEUES_AT_ONCE: Final = 50
"""Queues of a page before other work gets its turn: a millisecond or two."""


class RunningNode(Protocol):
    """The process whose node this is."""

    behind: set[int]
    drain: Drain
    failure: str | None
    serving: bool

    def drain_status(self) -> dict[str, object]:
        """How far a drain has come."""
        ...


class NodeView:
    """Implements `StatusProvider`, and `ThisNode` of `node.operating.management`."""

    def __init__(
        self,
        node: RunningNode,
        engine: Engine,
        settings: NodeSettings,
        now_ms: Callable[[], int],
        membership: MembershipShell,
        memory: MemoryWatch,
        writer: LogWriter,
        logins: Logins,
        broker: Broker,
        watch: ResourceWatch,
        peers: Mapping[int, PeerCounters],
    ) -> None:
        self._peers = peers
        self._started_s = time.monotonic()
        self._watch = watch
        self._node = node
        self._engine = engine
        self._settings = settings
        self._now_ms = now_ms
        self._membership = membership
        self._memory = memory
        self._writer = writer
        self._logins = logins
        self._broker = broker
        self._queue_views = QueueViews(engine)

    def is_live(self) -> bool:
        """Whether the process does its work."""
        return self._node.failure is None

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and if not, why. Alarms don't count: they block publishers, on every node, and
        the consumers that end them need nodes to connect to. A full disk does: nothing is served behind it."""
        if not self._node.serving:
            return False, "starting: the catalog is not up to date yet"
        if self._engine.no_room is not None:
            return False, f"nothing can be done here, {self._engine.no_room}"
        if self._node.drain.step != NOT_DRAINING:
            return False, f"{self._node.drain.state}: clients go to other nodes"
        without = [str(group.id) for group in self._engine.host.groups.values() if group.leader == 0]
        if without:
            return False, f"no leader known for groups {', '.join(without)}"
        if self._node.behind:
            return False, f"starting: groups {', '.join(map(str, sorted(self._node.behind)))} are not up to date yet"
        return True, "ready"

    def alarms(self) -> list[str]:
        """Why publishers are blocked."""
        return alarm_texts(self._engine)

    async def status(self) -> dict[str, object]:
        """The state of the cluster as this node sees it, for people and scripts."""
        groups = await in_turns(group_steps(self._engine, self._now_ms()), STEPS_AT_ONCE)
        status = engine_status(self._engine, self._settings, self._now_ms(), groups)
        memory = {"used_bytes": self._memory.used_bytes, "limit_bytes": self._memory.limit_bytes}
        peers = {
            "protection": protection(self._settings),
            "damaged": {str(peer): counters.damaged for peer, counters in self._peers.items()},
        }
        return status | {
            "drain": self._node.drain_status(), "memory": memory, "peers": peers,
            "warnings": peer_warnings(self._settings),
        }

    def now_ms(self) -> int:
        """See `ThisNode.now_ms`."""
        return self._now_ms()

    def clients_use_tls(self) -> bool:
        """See `ThisNode.clients_use_tls`."""
        return self._settings.amqp_tls is not None and self._settings.amqp_tls_address is None

    def resources(self) -> dict[str, Any]:
        """See `ThisNode.resources`."""
        known = {
            "mem_used": self._memory.used_bytes or None,
            "mem_limit": self._memory.limit_bytes or None,
            "disk_free": self._watch.free_bytes,
        }
        return {name: number for name, number in known.items() if number is not None} | {
            "disk_free_limit": self._settings.disk_free_limit_bytes,
            "os_pid": str(os.getpid()),
            "processors": os.cpu_count() or 1,
            "uptime": int((time.monotonic() - self._started_s) * 1000),
        }

    def queue_info(self, vhost: str, name: str) -> dict[str, object] | None:
        """One queue, or None."""
        return self._queue_views.one(vhost, name, self._now_ms())

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, object]], int]:
        """Some queues, and how many more there are."""
        rows, left_out = self._queue_views.some(selection, self._now_ms())
        return await in_turns(rows, QUEUES_AT_ONCE), left_out

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        """Metrics of these queues."""
        return queue_metrics(rows, left_out)

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, object]:
        """Wait, not long, until what is shown of a queue, or of all, is what the cluster has now."""
        if vhost is None or name is None:
            return await self._membership.freshness()
        return await self._membership.freshness_of(vhost, name)

    async def metrics_snapshot(self) -> list[Metric]:
        """(name, help, type, samples) of every metric."""
        syncs = Histogram(SYNC_BOUNDS_S, *self._writer.syncs())
        used: Metric = (
            "mayfly_memory_used_bytes", "Memory of the process, without mapped files", "gauge",
            [({}, float(self._memory.used_bytes))],
        )
        limit: Metric = (
            "mayfly_memory_limit_bytes", "Above it publishers are blocked; 0: no limit", "gauge",
            [({}, float(self._memory.limit_bytes))],
        )
        return [
            *await in_turns(metric_steps(self._engine, self._now_ms()), STEPS_AT_ONCE),
            ("mayfly_log_sync_seconds", "Until a batch of the log is written and synced", "histogram", [({}, syncs)]),
            *login_metrics({"amqp": self._broker.logins.failed, "http": self._logins.failed}),
            (
                "mayfly_direct_replies_dropped", "Direct replies that requesters did not take", "counter",
                [({}, float(self._broker.reply_consumers.dropped))],
            ),
            (
                "mayfly_peer_damaged", "Frames and pieces of snapshots that came damaged", "counter",
                [({"peer": str(peer)}, float(counters.damaged)) for peer, counters in self._peers.items()],
            ),
            (
                "mayfly_peers_unprotected", "1 where whoever reaches the ports for other nodes can be one", "gauge",
                [({}, float(bool(peer_warnings(self._settings)) and not protection(self._settings)))],
            ),
            used,
            limit,
        ]
