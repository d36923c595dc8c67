"""Two clusters of three brokers in this process, and the connections of one's mirrors to the other (RULES J4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands

from mayfly.node.duties.upstream_mirrors import UpstreamLink
from mayfly.node.upstream.reader import UpstreamLogin
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client

UPSTREAM = "east"
GUEST = UpstreamLogin("guest", "guest", "/")


class _Wire(Client):
    """The other side's end of a link: what it writes are octets for the link."""

    octets: bytes = b""

    def output(self, data: bytes) -> None:
        self.octets += data


class TwoClusters:
    """`there` has the streams, `here` their mirrors. A link connects to the node `to` there, unless `reachable` is
    off; octets go in pieces of `piece`."""

    def __init__(self, piece: int = 1 << 20) -> None:
        self.there = ThreeBrokers(shards=1)
        self.here = ThreeBrokers(shards=1)
        self.to = 1
        self.login = GUEST
        self.reachable = True
        self.piece = piece
        self.wires: dict[UpstreamLink, _Wire] = {}
        self.connections = 0
        for node in self.here.nodes.values():
            node.engine.upstreams.allowed = {UPSTREAM: frozenset({"/"})}

    def links(self) -> list[UpstreamLink]:
        """Those of the nodes here that are not cut off."""
        nodes = [node for id, node in self.here.nodes.items() if id not in self.here.cut]
        return [link for node in nodes for link in node.engine.upstreams.links.values()]

    def step(self) -> None:
        """A tick passes in both."""
        self.there.step()
        self.here.step()
        for link in self.links():
            if self.reachable and link.wants_connection(self.here.now_ms):
                self._connect(link)
        for link, wire in list(self.wires.items()):
            self._carry(link, wire)
        self.here.settle()

    def run_until(self, condition: Callable[[], object], steps: int = 1_000) -> None:
        """Let time pass until it is true."""
        for _ in range(steps):
            if condition():
                return
            self.step()
        links = [each.shown() for each in self.links()]
        raise AssertionError(f"did not come true within {steps} steps of {TICK_MS} ms: {links}")

    def pass_ms(self, ms: int) -> None:
        """Time passes in both."""
        for _ in range(ms // TICK_MS):
            self.step()

    def break_all(self) -> None:
        """All sockets between the clusters break, with what is on its way."""
        for link, wire in self.wires.items():
            wire.connection.lost()
            link.lost(link.attempts, "broken", self.here.now_ms)
        self.wires.clear()
        self.there.settle()

    def _connect(self, link: UpstreamLink) -> None:
        node = self.there.nodes[self.to]
        host = node.make_host(node)
        wire = _Wire(node, node.broker.connect(host, "test", True, None))
        host.client = wire
        self.connections += 1
        link.connected(link.connecting(), self.login, self.here.now_ms)
        self.wires[link] = wire

    def _carry(self, link: UpstreamLink, wire: _Wire) -> None:
        for _ in range(20):
            said = link.take_output(link.attempts)
            if said:
                wire.send_bytes(said)
            heard, wire.octets = wire.octets, b""
            for start in range(0, len(heard), self.piece):
                link.receive(link.attempts, heard[start : start + self.piece], self.here.now_ms)
            if not link.is_open(link.attempts):
                wire.lose()
                del self.wires[link]
                return
            if not said and not heard:
                return


def call(cluster: ThreeBrokers, client: Client, method: Any) -> Any:
    """The answer to a method on channel 1."""
    client.take(1)
    client.send(1, method)
    cluster.run_until(lambda: any(channel == 1 for channel, _ in client.received))
    return client.take(1)[-1]


def declare(cluster: ThreeBrokers, client: Client, name: str, arguments: dict[str, Any]) -> Any:
    """Declare a stream, unless the arguments say otherwise."""
    arguments = {"x-queue-type": "stream", **arguments}
    return call(cluster, client, commands.Queue.Declare(queue=name, durable=True, arguments=arguments))
