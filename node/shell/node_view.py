"""What a running node shows of itself over HTTP: health, status, queues, metrics."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mayfly.cluster.host.rebuilds import ADVICE, of_nodes
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.node.broker.broker import Broker
from mayfly.node.engine.drain import NOT_DRAINING
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.outlook import Outlooks
from mayfly.node.operating.ports.metrics import Histogram, Metric
from mayfly.node.operating.ports.outlook import ForecastWish
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection
from mayfly.node.operating.queues import Queues
from mayfly.node.operating.turns import STEPS_AT_ONCE, in_turns
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.outlooks import forecast_metrics
from mayfly.node.operating.views.queue_metrics import queue_metrics
from mayfly.node.operating.views.rabbitmq_client_metrics import client_steps, exchange_steps, stream_steps
from mayfly.node.operating.views.rabbitmq_metrics import NodeFigures, catalog_steps, node_metrics
from mayfly.node.operating.views.rabbitmq_metrics import queue_metrics as rabbitmq_queue_metrics
from mayfly.node.operating.views.status import alarm_texts, engine_status, login_metrics, metric_steps
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.catching_up import CatchingUp
from mayfly.node.shell.control import Control
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.log_writer import SYNC_BOUNDS_S, LogWriter
from mayfly.node.shell.open_files import FileShares, open_files
from mayfly.node.shell.peer_protection import peer_warnings, protection
from mayfly.node.shell.process_memory import MemoryWatch
from mayfly.node.shell.process_threads import threads
from mayfly.node.shell.resource_watch import ResourceWatch


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a node behind its pages."""

    settings: NodeSettings
    engine: Engine
    broker: Broker
    ending: Ending
    catching_up: CatchingUp
    control: Control
    memory: MemoryWatch
    watch: ResourceWatch
    writer: LogWriter
    logins: Logins
    peers: Mapping[int, PeerCounters]
    cluster: str
    files: FileShares
    now_ms: Callable[[], int]


class NodeView:
    """Implements `StatusProvider`, `ThisNode` of `node.operating.management` and `CheckedNode` of its health checks."""

    def __init__(
        self, node: Shown, freshness: Freshness, groups: Groups, queues: Queues, outlooks: Outlooks
    ) -> None:
        self._node = node
        self._freshness = freshness
        self._groups = groups
        self._queues = queues
        self._outlooks = outlooks
        self._started_s = time.monotonic()
        self._forgotten_logins: dict[str, tuple[int, int]] = {}

    def is_live(self) -> bool:
        """Whether the process does its work."""
        return self._node.ending.failure is None

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and if not, why. Of the groups that this node has replicas of, the catalog among
        them, a leader is to be known; the others are for the nodes that have them to say, and so are those whose
        replica here is so new that clients are still fed from elsewhere. Alarms don't count: they block publishers, on
        every node, and the consumers that end them need nodes to connect to. A full disk does: nothing is served
        behind it."""
        beyond_repair = self._node.engine.host.beyond_repair(self._node.now_ms())
        if beyond_repair:
            damaged = "; ".join(f"group {id} is damaged on {of_nodes(nodes)}" for id, nodes in beyond_repair.items())
            return False, f"{damaged}, {ADVICE}"
        if not self._node.catching_up.serving:
            return False, "starting: the catalog is not up to date yet"
        if self._node.engine.no_room is not None:
            return False, f"nothing can be done here, {self._node.engine.no_room}"
        if self._node.control.drain.step != NOT_DRAINING:
            return False, f"{self._node.control.drain.state}: clients go to other nodes"
        groups = self._node.engine.host.groups.values()
        without = [str(group.id) for group in groups if group.leader == 0 and not group.session.is_fed]
        if without:
            return False, f"no leader known for groups {', '.join(without)}"
        behind = sorted(self._node.catching_up.behind & self._node.engine.host.groups.keys())
        if behind:
            return False, f"starting: groups {', '.join(map(str, behind))} are not up to date yet"
        return True, "ready"

    def alarms(self) -> list[str]:
        """Why publishers are blocked."""
        return alarm_texts(self._node.engine)

    async def status(self) -> dict[str, object]:
        """The state of the cluster as this node sees it, for people and scripts."""
        groups = await self._groups.rows()
        status = engine_status(self._node.engine, self._node.settings.name, self._node.now_ms(), groups)
        memory = {"used_bytes": self._node.memory.used_bytes, "limit_bytes": self._node.memory.limit_bytes}
        peers = {
            "protection": protection(self._node.settings),
            "damaged": {str(peer): counters.damaged for peer, counters in self._node.peers.items()},
        }
        return status | {
            "drain": self._node.control.drain_status(), "memory": memory, "peers": peers,
            "warnings": peer_warnings(self._node.settings),
        }

    def now_ms(self) -> int:
        """See `ThisNode.now_ms`."""
        return self._node.now_ms()

    def clients_use_tls(self) -> bool:
        """See `ThisNode.clients_use_tls`."""
        return self._node.settings.amqp_tls is not None and self._node.settings.amqp_tls_address is None

    def resources(self) -> dict[str, Any]:
        """See `ThisNode.resources`."""
        seen = threads()
        known = {
            "proc_used": None if seen is None else seen.used,
            "proc_total": None if seen is None else seen.allowed,
            "run_queue": None if seen is None else seen.waiting,
            "mem_used": self._node.memory.used_bytes or None,
            "mem_limit": self._node.memory.limit_bytes or None,
            "disk_free": self._node.watch.free_bytes,
            "fd_used": open_files(),
            "fd_total": self._node.files.allowed,
        }
        return {name: number for name, number in known.items() if number is not None} | {
            "disk_free_limit": self._node.settings.disk_free_limit_bytes,
            "sockets_used": len(self._node.broker.connections),
            "sockets_total": self._node.files.clients,
            "os_pid": str(os.getpid()),
            "processors": os.cpu_count() or 1,
            "uptime": int((time.monotonic() - self._started_s) * 1000),
            "being_drained": self._node.control.drain.step != NOT_DRAINING,
        }

    def login_attempts(self) -> list[dict[str, Any]]:
        """See `ThisNode.login_attempts`."""
        rows: list[dict[str, Any]] = []
        for protocol, (accepted, refused) in self._logins().items():
            forgotten = self._forgotten_logins.get(protocol, (0, 0))
            accepted, refused = accepted - forgotten[0], refused - forgotten[1]
            rows.append({
                "protocol": protocol,
                "auth_attempts": accepted + refused,
                "auth_attempts_failed": refused,
                "auth_attempts_succeeded": accepted,
            })
        return rows

    def forget_login_attempts(self) -> None:
        """See `ThisNode.forget_login_attempts`. Counters of metrics go on."""
        self._forgotten_logins = self._logins()

    def _logins(self) -> dict[str, tuple[int, int]]:
        """Accepted and refused, by protocol."""
        by_protocol = {"amqp091": self._node.broker.logins.failed, "http": self._node.logins.failed}
        return {protocol: (logins.accepted, logins.refused) for protocol, logins in by_protocol.items()}

    def connections(self) -> tuple[int, int]:
        """See `CheckedNode.connections`."""
        return len(self._node.broker.connections), self._node.files.clients

    async def queue_info(self, vhost: str, name: str) -> dict[str, object] | None:
        """One queue, or None."""
        return await self._queues.one(vhost, name)

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, object]], int]:
        """Some queues, and how many more there are."""
        return await self._queues.some(selection)

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        """Metrics of these queues."""
        return queue_metrics(rows, left_out)

    async def forecast_metrics(self, wish: ForecastWish) -> list[Metric]:
        """See `StatusProvider.forecast_metrics`."""
        told = await self._outlooks.forecast(wish)
        return forecast_metrics(wish.windows_ms, told["totals"], told["queues"], told["left_out"])

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, object]:
        """Wait, not long, until what is shown of a queue, or of all, is what the cluster has now."""
        if vhost is None or name is None:
            return await self._freshness.of_all()
        return await self._freshness.of_queue(vhost, name)

    async def rabbitmq_metrics(self, wanted: MetricsSelection) -> list[Metric]:
        """See `StatusProvider.rabbitmq_metrics`."""
        node = self._node
        metrics = node_metrics(node.engine, node.broker, self._figures(), wanted)
        steps = chain(
            catalog_steps(node.engine, wanted),
            exchange_steps(node.engine.catalog, node.broker.traffic, wanted),
            stream_steps(node.engine, wanted),
        )
        metrics += await in_turns(steps, 1)
        return metrics + await in_turns(client_steps(ClientViews(node.engine, node.broker), wanted), STEPS_AT_ONCE)

    def rabbitmq_queue_metrics(self, rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> list[Metric]:
        """Of these queues."""
        return rabbitmq_queue_metrics(rows, wanted)

    def _figures(self) -> NodeFigures:
        node = self._node
        logins = (node.broker.logins.failed, node.logins.failed)
        syncs, sync_s = node.writer.syncs()
        return NodeFigures(
            name=node.settings.name,
            cluster_name=node.engine.catalog.cluster_name,
            cluster=node.cluster,
            rabbitmq_version=node.settings.rabbitmq_version,
            uptime_ms=int((time.monotonic() - self._started_s) * 1000),
            open_files=open_files(),
            most_files=node.files.allowed,
            memory_bytes=node.memory.used_bytes or None,
            memory_limit_bytes=node.memory.limit_bytes or None,
            disk_free_bytes=node.watch.free_bytes,
            disk_limit_bytes=node.settings.disk_free_limit_bytes,
            logins_accepted=sum(each.accepted for each in logins),
            logins_refused=sum(each.refused for each in logins),
            syncs=sum(syncs),
            sync_s=sync_s,
        )

    async def metrics_snapshot(self) -> list[Metric]:
        """(name, help, type, samples) of every metric."""
        syncs = Histogram(SYNC_BOUNDS_S, *self._node.writer.syncs())
        used: Metric = (
            "mayfly_memory_used_bytes", "Memory of the process, without mapped files", "gauge",
            [({}, float(self._node.memory.used_bytes))],
        )
        limit: Metric = (
            "mayfly_memory_limit_bytes", "Above it publishers are blocked; 0: no limit", "gauge",
            [({}, float(self._node.memory.limit_bytes))],
        )
        return [
            *await in_turns(metric_steps(self._node.engine, self._node.now_ms()), STEPS_AT_ONCE),
            ("mayfly_log_sync_seconds", "Until a batch of the log is written and synced", "histogram", [({}, syncs)]),
            *login_metrics({"amqp": self._node.broker.logins.failed, "http": self._node.logins.failed}),
            (
                "mayfly_direct_replies_dropped", "Direct replies that requesters did not take", "counter",
                [({}, float(self._node.broker.reply_consumers.dropped))],
            ),
            (
                "mayfly_peer_damaged", "Frames and pieces of snapshots that came damaged", "counter",
                [({"peer": str(peer)}, float(counters.damaged)) for peer, counters in self._node.peers.items()],
            ),
            (
                "mayfly_peers_unprotected", "1 where whoever reaches the ports for other nodes can be one", "gauge",
                [({}, float(bool(peer_warnings(self._node.settings)) and not protection(self._node.settings)))],
            ),
            used,
            limit,
            *await self.rabbitmq_metrics(MetricsSelection()),
        ]
