"""What operators see at a node of an in-process cluster, which may have been left without some of its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar, cast

from mayfly.cluster.group.group import Group
from mayfly.cluster.host.host import Host
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.dead_letters import DeadLetters
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.outlook import Outlooks
from mayfly.node.operating.ports.metrics import Metric
from mayfly.node.operating.queues import Queues
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.rates import Rates
from mayfly.node.operating.views.status import metric_steps
from mayfly.node.shard.shard import Shard
from tests.node.broker.three_brokers import ThreeBrokers

_T = TypeVar("_T")
_ROUNDS_A_TICK = 50


def engine_metrics(engine: Engine, now_ms: int) -> list[Metric]:
    """All metrics of a node, at once."""
    return [metric for metric in metric_steps(engine, now_ms) if metric is not None]


class _BrokersLoop(asyncio.SelectorEventLoop):
    """On which time passes as the brokers have it, however busy the machine is."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        super().__init__()
        self._brokers = brokers

    def time(self) -> float:
        return self._brokers.now_ms / 1000


class _PartialHost:
    """A host that shows no replica of some groups."""

    def __init__(self, host: Host, lacks: Collection[int]) -> None:
        self._host = host
        self._lacks = lacks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    @property
    def groups(self) -> dict[int, Group]:
        return {id: group for id, group in self._host.groups.items() if id not in self._lacks}

    def read_index(self, id: int, done: Any) -> None:
        assert id not in self._lacks
        self._host.read_index(id, done)

    def send_internal(self, id: int, batch: bytes, unordered: bool = False) -> bool:
        assert id not in self._lacks
        return self._host.send_internal(id, batch, unordered)


class _PartialEngine:
    """An engine that shows no replica of some shards. Who leads them it knows still."""

    def __init__(self, engine: Engine, lacks: Collection[int]) -> None:
        self._engine = engine
        self._lacks = lacks
        self.host = _PartialHost(engine.host, lacks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def shards(self) -> dict[int, Shard]:
        return {id: shard for id, shard in self._engine.shards.items() if id not in self._lacks}

    def group(self, id: int) -> Group:
        return self.host.groups[id]


class Seeing:
    """The views of one node. `lacks` are shards that it is to show no replica of; it may be changed."""

    def __init__(self, brokers: ThreeBrokers, id: int, lacks: Collection[int] = ()) -> None:
        self.brokers = brokers
        self.id = id
        self.lacks = set(lacks)
        node = brokers.nodes[id]
        engine = self.engine = cast(Engine, _PartialEngine(node.engine, self.lacks))
        self.questions = NodeQuestions(engine, brokers.settle, self._now_ms)
        self.sources = ShardSources(engine, self.questions)
        self.cluster = ClusterControl(engine, "c", brokers.settle)
        self.freshness = Freshness(engine, self.cluster, self.sources, self.questions)
        self.groups = Groups(engine, self.sources, self.questions, self._now_ms)
        self.queues = Queues(engine, self.sources, self.questions, Rates(), self._now_ms)
        self.outlooks = Outlooks(engine, self.sources, self.questions, self._now_ms)
        self.dead_letters = DeadLetters(engine, self.sources, self.questions, self._now_ms, brokers.settle)
        views = ClientViews(engine, node.broker)
        self.clients = Clients(engine, views, self.sources, self.questions, Rates(), self._now_ms)

    def _now_ms(self) -> int:
        return self.brokers.now_ms

    def run(self, asking: Coroutine[Any, Any, _T]) -> _T:
        """What comes of it; time passes where it has to."""
        with asyncio.Runner(loop_factory=lambda: _BrokersLoop(self.brokers)) as runner:
            return runner.run(self._run(asking))

    async def _run(self, asking: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.ensure_future(asking)
        while not task.done():
            for _ in range(_ROUNDS_A_TICK):
                await asyncio.sleep(0)
            if not task.done():
                self.brokers.step()
        return task.result()

    def queue(self, name: str) -> dict[str, Any]:
        """All about a queue in `/`."""
        row = self.run(self.queues.one("/", name))
        assert row is not None
        return row
