"""RabbitMQ's health checks: the `ChecksPort`."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from mayfly.node.catalog import QueueRecord
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.expressions import Expression, expression, expression_fault
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request
from mayfly.node.operating.turns import in_turns
from mayfly.node.operating.views.overview import listener_rows, own_alarms

_OK: Final = {"status": "ok"}
_DAY_S: Final = 86_400
_UNITS_S: Final = {"days": _DAY_S, "weeks": 7 * _DAY_S, "months": 30 * _DAY_S, "years": 365 * _DAY_S}
_MOST_DIGITS: Final = 6
_QUEUES_AT_ONCE: Final = 500
_MOST_LISTED: Final = 1_000
_SAME_PROTOCOL: Final = {
    "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqp0-9-1": "amqp", "amqps": "amqp/ssl",
    "clustering": "clustering", "distribution": "clustering",
}  # fmt: skip
"""What clients call a protocol, and RabbitMQ does."""


class CheckedNode(Protocol):
    """What is asked of this node."""

    def readiness(self) -> tuple[bool, str]: ...

    def clients_use_tls(self) -> bool: ...

    def now_ms(self) -> int: ...

    def connections(self) -> tuple[int, int]:
        """Open ones of AMQP clients, and how many there may be."""


class HealthChecks:
    """For one node."""

    def __init__(
        self, engine: Engine, node: CheckedNode, certificates: Iterable[Path], now_s: Callable[[], float] = time.time
    ) -> None:
        """`certificates` are files; `now_s` is the time of day."""
        self._engine = engine
        self._node = node
        self._certificates = list(certificates)
        self._now_s = now_s

    def alarms(self) -> Answer:
        """See `ChecksPort.alarms`."""
        alarms = self._engine.alarms
        found = [(self._name(peer), what) for peer in alarms.with_alarms() for what in alarms.of_peer(peer)]
        return _of_alarms([*self._own_alarms(), *found], "There are alarms in effect in the cluster")

    def local_alarms(self) -> Answer:
        """See `ChecksPort.local_alarms`."""
        return _of_alarms(self._own_alarms(), "There are alarms in effect on the node")

    def _own_alarms(self) -> list[tuple[str, str]]:
        own = self._name(self._engine.node_id)
        return [(own, what) for what in own_alarms(self._engine)]

    async def certificates(self, within: str, unit: str) -> Answer:
        """See `ChecksPort.certificates`."""
        if unit not in _UNITS_S:
            return bad_request(f"Invalid expiration unit '{unit}'; one of {', '.join(_UNITS_S)} is expected")
        if not (within.isascii() and within.isdigit() and len(within) <= _MOST_DIGITS):
            return bad_request(f"Invalid expiration value '{within}'; a number is expected")
        until_s = self._now_s() + int(within) * _UNITS_S[unit]
        loop = asyncio.get_running_loop()
        ends = await loop.run_in_executor(None, lambda: [(file, _end_s(file)) for file in self._certificates])
        ending = [
            {"certfile": str(file), "certfile_expires_on": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end_s))}
            for file, end_s in ends
            if end_s < until_s
        ]
        return _failed("Certificates expiring", expired=ending) if ending else _ok()

    def port_listener(self, port: str) -> Answer:
        """See `ChecksPort.port_listener`."""
        if not (port.isascii() and port.isdigit() and len(port) <= _MOST_DIGITS):
            return bad_request(f"Invalid port: '{port}'")
        ports = sorted({row["port"] for row in self._listeners()})
        if int(port) not in ports:
            return _failed("No active listener", missing=int(port), ports=ports)
        return _ok(port=int(port))

    def protocol_listener(self, protocol: str) -> Answer:
        """See `ChecksPort.protocol_listener`."""
        protocols = sorted({row["protocol"] for row in self._listeners()})
        wanted = protocol.lower()
        if _SAME_PROTOCOL.get(wanted, wanted) not in protocols:
            return _failed("No active listener", missing=protocol, protocols=protocols)
        return _ok(protocol=protocol)

    def quorum_critical(self) -> Answer:
        """See `ChecksPort.quorum_critical`."""
        engine = self._engine
        host, plan = engine.host, engine.catalog.members.plan
        now_ms, within_ms = self._node.now_ms(), host.settings.election_timeout_ms
        critical = []
        for id in range(engine.catalog.shard_count + 1):
            group = host.groups.get(id)
            voters = list(plan.get(id, ())) if group is None else list(group.conf_state.voters)
            others = [voter for voter in voters if voter != engine.node_id]
            up = sum(host.liveness.heard_within(voter, now_ms, within_ms) for voter in others)
            if engine.node_id in voters and 2 * up <= len(voters):
                critical.append(id)
        if critical and len(host.members) > 1:
            reason = "There are quorum queues that would lose their quorum if the target node is shut down"
            return _failed(reason, groups=critical)
        return _ok()

    async def leaders(self, vhost: str | None, pattern: str) -> Answer:
        """See `ChecksPort.leaders`."""
        engine = self._engine
        fault = expression_fault(pattern)
        if fault is not None:
            return bad_request(f"the pattern '{pattern}' can't be used: {fault}")
        if vhost is not None and not engine.catalog.has_vhost(vhost):
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        without = {id for id in range(1, engine.catalog.shard_count + 1) if engine.leader_of(id) == 0}
        if not without:
            return _ok()
        wanted = expression(pattern)
        vhosts = [each.name for each in engine.catalog.vhosts()] if vhost is None else [vhost]
        found = [
            {"readable_name": f"queue '{it.name}' in vhost '{it.vhost}'", "name": it.name, "virtual_host": it.vhost,
             "type": queue_type(it.arguments)}
            for it in await in_turns(_led_by_nobody(engine, vhosts, without, wanted), _QUEUES_AT_ONCE)
        ]  # fmt: skip
        return _failed("Detected quorum queues without an elected leader", queues=found) if found else _ok()

    def ready(self) -> Answer:
        """See `ChecksPort.ready`."""
        ready, reason = self._node.readiness()
        return _ok() if ready else _failed(reason)

    def ready_there(self, node: str) -> Answer:
        """See `ChecksPort.ready_there`."""
        found = [id for id in self._engine.host.members if self._name(id) == node]
        if not found:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        if found[0] == self._engine.node_id:
            return self.ready()
        host = self._engine.host
        heard = host.liveness.heard_within(found[0], self._node.now_ms(), host.settings.election_timeout_ms)
        return _ok() if heard else _failed(f"nothing is heard of {node}")

    def below_connection_limit(self) -> Answer:
        """See `ChecksPort.below_connection_limit`."""
        count, limit = self._node.connections()
        if count >= limit:
            return _failed("The node has reached its connection limit", limit=limit, connections=count)
        return _ok(limit=limit, connections=count)

    def stored(self) -> Answer:
        """See `ChecksPort.stored`."""
        if not self._engine.catalog.vhosts():
            return _failed("Metadata store has not yet been initialized: it has no vhost")
        return _ok()

    def nothing_to_check(self) -> Answer:
        """See `ChecksPort.nothing_to_check`."""
        return _ok()

    def _listeners(self) -> list[dict[str, Any]]:
        own = self._name(self._engine.node_id)
        rows = listener_rows(self._engine, self._node.clients_use_tls())
        return [row for row in rows if row["node"] == own]

    def _name(self, node_id: int) -> str:
        record = self._engine.catalog.node(node_id)
        return f"node{node_id}" if record is None else record.name


def _led_by_nobody(
    engine: Engine, vhosts: Iterable[str], shards: Collection[int], wanted: Expression
) -> Iterator[QueueRecord | None]:
    """None for each queue on the way that is none of them. Ends with _MOST_LISTED."""
    left = _MOST_LISTED
    for vhost in vhosts:
        for record in list(engine.catalog.queues(vhost)):
            is_one = record.replicated and record.shard in shards and wanted.search(record.name)
            yield record if is_one else None
            left -= is_one
            if not left:
                return


def _end_s(file: Path) -> float:
    """When a certificate ends; 0 for one that can't be read. In a thread: it loads what reads it, 8 MB, which a node
    without certificates does not need."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return 0.0


def _of_alarms(found: list[tuple[str, str]], reason: str) -> Answer:
    return _failed(reason, alarms=[{"node": node, "resource": what} for node, what in found]) if found else _ok()


def _ok(**more: Any) -> Answer:
    return HTTPStatus.OK, {**_OK, **more}


def _failed(reason: str, **more: Any) -> Answer:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "failed", "reason": reason, **more}
