"""Nodes with many connections that are stubs: they have what operators are shown, and count how often that is used."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from mayfly.node.broker.broker import Broker
from mayfly.node.broker.consumer_terms import USUAL_TERMS
from mayfly.node.broker.traffic import ChannelTraffic, Traffic, VhostTraffic
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.rates import Rates

_SETTINGS = SimpleNamespace(single_active_consumer=False)


class StubSocket:
    """As `ClientSocket`."""

    def __init__(self, node: StubNode, peer: tuple[str, int]) -> None:
        self._node = node
        self.peer = peer
        self.own = (f"node{node.node_id}", 5672)
        self.is_tls = False
        self.connected_at_ms = 1_700_000_000_000
        self.is_inner = False

    @property
    def name(self) -> str:
        self._node.did["name"] += 1
        return f"{self.peer[0]}:{self.peer[1]} -> {self.own[0]}:{self.own[1]}"


class StubConnection:
    """As `ClientConnection`, with channels that have so many consumers each."""

    def __init__(self, node: StubNode, number: int, peer: tuple[str, int], consumers: list[int]) -> None:
        self._node = node
        self.name = f"{peer[0]}:{peer[1]}#{number}"
        self.user = "guest"
        self.vhost = "/"
        self.received_bytes = 0
        self.socket = StubSocket(node, peer)
        self.pressure = SimpleNamespace(is_blocked=False, wants_reading=True)
        properties = {"product": "a client", "version": "1.2.3", "capabilities": {"basic.nack": True}}
        self.amqp = SimpleNamespace(
            mechanism="PLAIN", channel_max=2047, heartbeat_seconds=60, client_properties=properties,
            output=SimpleNamespace(frame_max_bytes=131072, taken_bytes=0),
        )  # fmt: skip
        self.channels = {id: self._channel(id, count) for id, count in enumerate(consumers, 1)}

    @property
    def is_running(self) -> bool:
        self._node.did["looked at"] += 1
        return True

    def _channel(self, id: int, consumers: int) -> Any:
        channel = SimpleNamespace(
            client=self, pressure=self.pressure, channel_id=id, open=True, prefetch=0,
            traffic=ChannelTraffic(VhostTraffic(), Traffic()), unacknowledged=SimpleNamespace(count=0),
            publisher=SimpleNamespace(confirms=None, transaction=None),
        )  # fmt: skip
        channel.consumers = {
            f"tag {number}": SimpleNamespace(
                channel=channel, tag=f"tag {number}", no_ack=False, prefetch=0,
                holder=SimpleNamespace(queue_id=1, holder_id=1, timeout_ms=-1),
            )
            for number in range(consumers)
        }  # fmt: skip
        return channel


class StubNode:
    """One node; `did` counts what was done for who asked: connections looked at, names formed, queues looked up, and
    rows made (whatever their kind, the node's name is in them)."""

    def __init__(self, nodes: dict[int, StubNode], node_id: int, loses: Callable[[bytes], bool]) -> None:
        self.did: Counter[str] = Counter()
        self.most_of_a_question: Counter[str] = Counter()
        """Of each, the most that one question of another node has cost."""
        self.node_id = node_id
        self.connections: dict[str, StubConnection] = {}
        self.queue_ids = {1}
        self._nodes = nodes
        self._loses = loses
        self.questions = SimpleNamespace(answer=None, ask=self._ask, can_reach=lambda node_id: True)
        catalog = SimpleNamespace(queue_by_id=self._queue, node=self._node)
        host = SimpleNamespace(members=nodes.keys())
        engine = SimpleNamespace(catalog=catalog, node_id=node_id, host=host, questions=self.questions)
        consumers = SimpleNamespace(terms_of=lambda consumer: USUAL_TERMS)
        broker = SimpleNamespace(connections=self.connections, consumers=consumers)
        self.views = ClientViews(cast(Engine, engine), cast(Broker, broker))
        asks = NodeQuestions(cast(Engine, engine), lambda: None, lambda: 0)
        sources = ShardSources(cast(Engine, engine), asks)
        self.clients = Clients(cast(Engine, engine), self.views, sources, asks, Rates(), lambda: 0)

    def add(self, count: int, consumers: list[int], seed: int = 1) -> None:
        """So many connections, whose names come in any order."""
        numbers = random.Random(seed).sample(range(1 << 16), count)
        first = len(self.connections) + 1
        for place, number in enumerate(numbers, first):
            peer = (f"10.1.{number >> 8}.{number & 255}", 1024 + number % 60_000)
            connection = StubConnection(self, place, peer, consumers)
            self.connections[connection.name] = connection

    def names(self) -> list[str]:
        """Of its connections, in order."""
        return sorted(connection.socket.name for connection in self.connections.values())

    def _queue(self, id: int) -> Any:
        self.did["queue"] += 1
        return SimpleNamespace(name="q", vhost="/", settings=_SETTINGS) if id in self.queue_ids else None

    def _node(self, id: int) -> Any:
        self.did["row"] += 1
        return SimpleNamespace(name=f"node{id}")

    def answer(self, question: bytes) -> bytes:
        """What it says, and what that cost."""
        before = self.did.copy()
        answers: list[bytes] = []
        self.questions.answer(question, answers.append)
        (answer,) = answers
        self.most_of_a_question |= self.did - before
        return answer

    def _ask(self, node_id: int, question: bytes, answered: Callable[[bytes | None], None]) -> None:
        loop = asyncio.get_running_loop()
        if self._loses(question):
            loop.call_soon(answered, None)
            return
        loop.call_soon(lambda: loop.call_soon(answered, self._nodes[node_id].answer(question)))


def stub_nodes(count: int, loses: Callable[[bytes], bool] = lambda question: False) -> dict[int, StubNode]:
    """Nodes that ask each other, but for questions that get lost."""
    nodes: dict[int, StubNode] = {}
    for node_id in range(1, count + 1):
        nodes[node_id] = StubNode(nodes, node_id, loses)
    return nodes
