"""Metrics with RabbitMQ's names: those of its dashboards are there, and single queues are by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
from pamqp import commands

from mayfly.node.operating.ports.metrics import Metric
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.rabbitmq_client_metrics import client_steps, exchange_steps, stream_steps
from mayfly.node.operating.views.rabbitmq_metrics import NodeFigures, catalog_steps, node_metrics, queue_metrics
from tests.deploy.rabbitmq_dashboards import DASHBOARDS, UNANSWERED, answered
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.http.served import Served, http_server
from tests.node.http.some_node import SomeNode
from tests.node.operating.seeing import Seeing, engine_metrics
from tests.waiting import BOUND_S

DOCUMENT: Final = Path(__file__).resolve().parents[3] / "docs/operations/rabbitmq-metrics.md"
FIGURES: Final = NodeFigures(
    "node1", "mayfly", "c", "4.3.6", 5_000, 40, 1024, 1 << 20, 1 << 30, 1 << 40, 1 << 26, 3, 1, 7, 0.5
)  # fmt: skip


class MetricsNode(SomeNode):
    """Shows what a node of the cluster has."""

    def __init__(self, brokers: ThreeBrokers, id: int, figures: NodeFigures = FIGURES) -> None:
        super().__init__()
        self._brokers = brokers
        self._node = brokers.nodes[id]
        self._figures = figures
        self._seeing = Seeing(brokers, id)

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        return await self._seeing.queues.some(selection)

    async def rabbitmq_metrics(self, wanted: MetricsSelection) -> Sequence[Metric]:
        engine = self._node.engine
        whole = node_metrics(engine, self._node.broker, self._figures, wanted)
        steps = chain(
            catalog_steps(engine, wanted), exchange_steps(engine.catalog, self._node.broker.traffic, wanted),
            stream_steps(engine, wanted), client_steps(ClientViews(engine, self._node.broker), wanted),
        )  # fmt: skip
        return whole + [metric for metric in steps if metric is not None]

    def rabbitmq_queue_metrics(self, rows: Sequence[Mapping[str, Any]], wanted: MetricsSelection) -> Sequence[Metric]:
        return queue_metrics(rows, wanted)

    async def metrics_snapshot(self) -> Sequence[Metric]:
        metrics = engine_metrics(self._node.engine, self._brokers.now_ms)
        return [*metrics, *await self.rabbitmq_metrics(MetricsSelection())]


@pytest.fixture(scope="module")
def brokers() -> ThreeBrokers:
    """Three messages in `a`, one of them held; a queue in another vhost; `t` is in the memory of node 1."""
    brokers = ThreeBrokers()
    client = brokers.nodes[1].client()
    client.send(1, commands.Queue.Declare(queue="a", durable=True))
    client.send(1, commands.Queue.Declare(queue="b", durable=True))
    client.send(1, commands.Queue.Declare(queue="t", exclusive=True))
    brokers.run_until(lambda: len(client.received) == 3)
    for _ in range(3):
        client.publish(1, "a", b"12345")
    client.send(1, commands.Queue.Bind(queue="a", exchange="amq.fanout"))
    client.send(1, commands.Basic.Get(queue="a"))
    until_ms = brokers.now_ms + 1000
    brokers.run_until(lambda: brokers.now_ms >= until_ms)
    return brokers


@pytest.fixture
def addresses(brokers: ThreeBrokers) -> Iterator[list[str]]:
    """Of the pages of each node."""
    with ExitStack() as stack:
        yield [stack.enter_context(served(MetricsNode(brokers, id))) for id in brokers.ids]


def served(node: MetricsNode) -> Served:
    return Served(lambda: http_server(node))


def page_of(address: str, path: str) -> str:
    with urlopen(f"http://{address}{path}", timeout=BOUND_S) as answer:
        return str(answer.read().decode())


def samples(text: str, name: str) -> dict[str, float]:
    """By labels."""
    found = re.findall(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_the_queries_of_the_dashboards_find_their_metrics(addresses: list[str]) -> None:
    """Of the overview all but one; what is not there is in the table of the document."""
    text = page_of(addresses[0], "/metrics")
    document = DOCUMENT.read_text()
    for dashboard, queries in DASHBOARDS.items():
        few, all_of_them = answered(dashboard)
        assert f"| {dashboard} | {few} of {all_of_them} |" in document
        for name in {name for query in queries for name in query}:
            wanted, _, labels = f"rabbitmq_{name}".partition("{")
            found = [each for each in samples(text, wanted) if labels.rstrip("}") in each]
            assert bool(found) != (name in UNANSWERED), name
            assert bool(found) or f"`{wanted}`" in document
    assert answered("Overview") == (50, 50)
    assert answered("Overview of 3.10") == (40, 41)


def test_the_leader_of_a_group_tells_how_long_a_commit_takes(brokers: ThreeBrokers, addresses: list[str]) -> None:
    """By group the last one, in all the mean and the longest of these; all of them in the histogram. Who leads nothing
    tells nothing."""
    name = "rabbitmq_raft_commit_latency_seconds"
    by_group = [samples(page_of(address, "/metrics/per-object"), name) for address in addresses]
    leaders = {f'{{group="{id}"}}': brokers.nodes[1].engine.leader_of(id) for id in (0, 1)}
    for group, leader in leaders.items():
        assert [group in told for told in by_group] == [id == leader for id in brokers.ids]
    for address, told in zip(addresses, by_group, strict=True):
        text = page_of(address, "/metrics")
        count, sum_s = samples(text, "mayfly_commit_seconds_count")[""], samples(text, "mayfly_commit_seconds_sum")[""]
        if not told:
            assert not samples(text, name) and not samples(text, "rabbitmq_raft_entry_commit_latency_seconds")
            continue
        assert samples(text, name)[""] == pytest.approx(sum(told.values()) / len(told))
        assert samples(text, "rabbitmq_raft_max_commit_latency_seconds")[""] == max(told.values())
        assert count >= len(told) and sum_s >= max(told.values())


def test_all_nodes_together_tell_of_each_queue_once(addresses: list[str]) -> None:
    texts = [page_of(address, "/metrics") for address in addresses]
    assert sum(samples(text, "rabbitmq_queues")[""] for text in texts) == 3
    assert sum(samples(text, "rabbitmq_queue_messages_ready")[""] for text in texts) == 2
    assert sum(samples(text, "rabbitmq_queue_messages_unacked")[""] for text in texts) == 1
    assert 'queue="a"' not in "".join(texts)
    rows = [samples(page_of(address, "/metrics/per-object"), "rabbitmq_queue_messages_ready") for address in addresses]
    assert {labels: value for each in rows for labels, value in each.items()} == {
        '{queue="a",vhost="/"}': 2.0, '{queue="b",vhost="/"}': 0.0, '{queue="t",vhost="/"}': 0.0,
    }  # fmt: skip
    assert sum(map(len, rows)) == 3


def test_detailed_metrics_are_those_asked_for(addresses: list[str]) -> None:
    """The names, and that families have no others, as in RabbitMQ."""
    text = "".join(page_of(address, "/metrics/detailed?family=queue_consumer_count") for address in addresses)
    assert set(re.findall(r"^(rabbitmq_[a-z_]+)", text, re.MULTILINE)) == {
        "rabbitmq_build_info", "rabbitmq_identity_info", "rabbitmq_detailed_queue_consumers",
        "rabbitmq_detailed_queue_info",
    }  # fmt: skip
    assert 'rabbitmq_endpoint="detailed"' in text
    many = "family=queue_coarse_metrics&family=exchange_bindings&family=vhost_status&family=unheard_of&vhost="
    here = "".join(page_of(address, f"/metrics/detailed?{many}%2F") for address in addresses)
    assert samples(here, "rabbitmq_detailed_queue_messages")['{queue="a",vhost="/"}'] == 3.0
    fanout = '{exchange="amq.fanout",type="fanout",vhost="/"}'
    assert samples(here, "rabbitmq_cluster_exchange_bindings")[fanout] == 1.0
    assert samples(here, "rabbitmq_cluster_vhost_status") == {'{vhost="/"}': 1.0}
    elsewhere = "".join(page_of(address, f"/metrics/detailed?{many}other") for address in addresses)
    assert "queue=" not in elsewhere and "vhost=" not in elsewhere


def test_queues_say_of_what_kind_they_are(addresses: list[str]) -> None:
    """As in RabbitMQ 4.2: with the families of queues, and where each queue is by itself."""
    for path, name in (
        ("per-object", "rabbitmq_queue_info"), ("detailed?family=queue_metrics", "rabbitmq_detailed_queue_info"),
    ):  # fmt: skip
        texts = [page_of(address, f"/metrics/{path}") for address in addresses]
        found = {labels: value for text in texts for labels, value in samples(text, name).items()}
        assert found == {
            f'{{membership="leader",queue="{queue}",queue_type="rabbit_classic_queue",vhost="/"}}': 1.0
            for queue in ("a", "b", "t")
        }
    assert not samples(page_of(addresses[0], "/metrics"), "rabbitmq_queue_info")


def told(text: str) -> dict[str, float]:
    """By the name without its prefix, where there is one sample."""
    found = re.findall(r"^rabbitmq_detailed_(\w+)(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_connections_channels_and_exchanges_are_told_of_if_they_are_asked_for(addresses: list[str]) -> None:
    """By their own node, with the names that operators know them by; and of a vhost alone."""
    path = "/metrics/detailed?family=channel_metrics&family=channel_exchange_metrics&family=channel_queue_metrics"
    text = page_of(addresses[0], path)
    assert told(text) == {
        "channel_consumers": 0, "channel_messages_unacked": 1, "channel_messages_unconfirmed": 0,
        "channel_messages_uncommitted": 0, "channel_acks_uncommitted": 0, "consumer_prefetch": 0,
        "channel_messages_published_total": 3, "channel_messages_confirmed_total": 0,
        "channel_messages_unroutable_returned_total": 0, "channel_messages_unroutable_dropped_total": 0,
        "channel_get_ack_total": 1, "channel_get_total": 0, "channel_messages_delivered_ack_total": 0,
        "channel_messages_delivered_total": 0, "channel_messages_redelivered_total": 0,
        "channel_messages_acked_total": 0, "channel_get_empty_total": 0,
    }  # fmt: skip
    assert re.search(r'channel_consumers\{channel=".+ \(1\)",vhost="/"\}', text)
    assert samples(text, "mayfly_clients_left_out") == {"": 0.0}
    text = page_of(addresses[0], "/metrics/detailed?family=connection_metrics&family=connection_coarse_metrics")
    connection = told(text)
    assert connection.pop("connection_channels") == 1
    assert connection.keys() == {"connection_incoming_bytes_total", "connection_outgoing_bytes_total"}
    assert min(connection.values()) > 100
    for more in ("", "&vhost=%2F"):
        text = page_of(addresses[0], f"/metrics/detailed?family=exchange_metrics{more}")
        assert samples(text, "rabbitmq_detailed_exchange_messages_published_total") == {'{exchange="",vhost="/"}': 3.0}
    families = "family=exchange_metrics&family=channel_metrics&family=connection_metrics"
    assert told(page_of(addresses[1], f"/metrics/detailed?{families}")) == {}, "another node's clients"
    assert told(page_of(addresses[0], f"/metrics/detailed?{families}&vhost=other")) == {}
    assert "channel_" not in page_of(addresses[0], "/metrics/per-object")


def test_j5_the_node_that_leads_a_stream_tells_how_far_its_consumers_are_behind() -> None:
    """Of several the furthest; of a stream that nobody reads there is nothing to tell."""
    brokers = ThreeBrokers()
    client = brokers.nodes[1].client()
    for name in ("read", "unread"):
        client.send(1, commands.Queue.Declare(queue=name, durable=True, arguments={"x-queue-type": "stream"}))
    client.send(1, commands.Basic.Qos(prefetch_count=2))
    for offset in ("first", "next"):
        terms: Any = {"x-stream-offset": offset}
        client.send(1, commands.Basic.Consume(queue="read", consumer_tag=offset, arguments=terms))
    brokers.run_until(lambda: len(client.received) == 5)
    for number in range(5):
        client.publish(1, "read", b"%d" % number)

    def lags() -> list[tuple[int, Any]]:
        told = []
        for id in brokers.ids:
            wanted = MetricsSelection("detailed", frozenset({"stream_consumer_metrics"}))
            (metric,) = [each for each in stream_steps(brokers.nodes[id].engine, wanted) if each is not None]
            assert metric[0] == "rabbitmq_detailed_stream_consumer_max_offset_lag"
            told += [(id, sample) for sample in metric[3]]
        return told

    brokers.run_until(lambda: [sample[1] for _, sample in lags()] == [3.0])
    catalog = brokers.nodes[1].engine.catalog
    record = catalog.queue("/", "read")
    assert record is not None
    assert lags() == [(brokers.nodes[1].engine.leader_of(record.shard), ({"vhost": "/", "queue": "read"}, 3.0))]


def test_connections_and_channels_that_are_left_out_are_counted(brokers: ThreeBrokers) -> None:
    node = brokers.nodes[2]
    clients = [node.client() for _ in range(3)]
    clients[1].open_channel(2)
    views = ClientViews(node.engine, node.broker)

    def page(most: int, *families: str, vhosts: frozenset[str] = frozenset()) -> dict[str, list[Any]]:
        wanted = MetricsSelection("detailed", frozenset(families), vhosts, most)
        return {metric[0]: list(metric[3]) for metric in client_steps(views, wanted) if metric is not None}

    for most, shown, left_out in ((0, 0, 7), (1, 1, 5), (3, 3, 1), (4, 4, 0)):
        found = page(most, "connection_metrics", "channel_metrics")
        assert len(found["rabbitmq_detailed_channel_consumers"]) == shown
        assert found["mayfly_clients_left_out"] == [({}, left_out)]
    assert page(9, "channel_metrics", vhosts=frozenset({"other"}))["mayfly_clients_left_out"] == [({}, 0)]
    assert page(9, "queue_metrics") == {}
    for client in clients:
        client.lose()


def test_queues_that_are_left_out_are_counted(addresses: list[str]) -> None:
    texts = [page_of(address, "/metrics/per-object?limit=1") for address in addresses]
    shown = sum(len(samples(text, "rabbitmq_queue_messages")) for text in texts)
    assert shown + sum(samples(text, "mayfly_queues_left_out")[""] for text in texts) == 3


def test_what_is_not_known_is_left_out(brokers: ThreeBrokers) -> None:
    unknown = FIGURES._replace(open_files=None, most_files=None, memory_limit_bytes=None, disk_free_bytes=None)
    with served(MetricsNode(brokers, 1, unknown)) as address:
        text = page_of(address, "/metrics")
    for name in ("process_open_fds", "process_max_fds", "resident_memory_limit_bytes", "disk_space_available_bytes"):
        assert not samples(text, f"rabbitmq_{name}")
