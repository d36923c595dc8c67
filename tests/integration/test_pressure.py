"""A node that is short of memory blocks publishers of all nodes and nobody else, and they go on when it is over."""

import threading
from collections.abc import Iterator

import pika
import pytest
from pamqp import commands

from tests.integration.amqp_socket import AmqpSocket, method_frame
from tests.integration.clients import PERSISTENT, channel, connect
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.processes]

MIB = 1024 * 1024
MUCH = 240
BODY = bytes(MIB)
MOST = 400
LOOKS = 100
MOST_GIVEN = 30


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    """So little that messages of a transient queue, which are in memory, soon go beyond it."""
    return {"memory_limit_bytes": 160 * MIB}


class Watching:
    """A connection that publishes, and what it is told."""

    def __init__(self, nodes: Nodes, id: int) -> None:
        self.told: list[str | None] = []
        self.connection = connect(nodes, id)
        self.connection.add_on_connection_blocked_callback(lambda _, method: self.told.append(method.method.reason))
        self.connection.add_on_connection_unblocked_callback(lambda _, method: self.told.append(None))
        self.connection.channel().basic_publish("", "nowhere", b"")

    def was_told(self) -> list[str | None]:
        self.connection.process_data_events(time_limit=0)
        return self.told


@pytest.fixture
def watching(cluster: Nodes) -> Iterator[list[Watching]]:
    clients = [Watching(cluster, id) for id in cluster.ids]
    yield clients
    for client in clients:
        client.connection.close()


def fill(nodes: Nodes, id: int) -> int:
    """Publish to a queue in this node's memory until that is too much; how many are there."""
    publishing = connect(nodes, id, blocked_after_s=0.5).channel()
    publishing.queue_declare("in-memory")
    publishing.confirm_delivery()
    for number in range(MOST):
        try:
            publishing.basic_publish("", "in-memory", BODY)
        except pika.exceptions.ConnectionBlockedTimeout:
            return number
    raise AssertionError(f"{MOST} messages of 1 MiB do not fill the memory")


def test_a_node_short_of_memory_blocks_publishers_of_all(cluster: Nodes, watching: list[Watching]) -> None:
    with channel(cluster, 2) as declaring:
        declaring.queue_declare("work", durable=True)
        for number in range(3):
            declaring.basic_publish("", "work", b"%d" % number, PERSISTENT)
    count = fill(cluster, 1)
    print(f"{count} MiB until the alarm; {cluster.metric(1, 'mayfly_memory_used_bytes') / MIB:.0f} MiB in use")
    for client in watching:
        wait_for(lambda: client.was_told() == ["low on memory"], "connection.blocked")  # noqa: B023
    assert [cluster.metric(id, "mayfly_memory_alarm") for id in cluster.ids] == [1, 0, 0]
    assert [cluster.metric(id, "mayfly_publishers_blocked") for id in cluster.ids] == [1, 1, 1]
    assert cluster.metric(1, "mayfly_memory_used_bytes") > cluster.metric(1, "mayfly_memory_limit_bytes") * 0.9
    assert "memory_limit_bytes" in cluster.status(1)["alarms"][0]
    assert cluster.status(3)["alarms"] == ["node1 is low on memory"]
    assert cluster.status(3)["blocked"] == "low on memory"
    pages = [cluster.page(id, "/health/ready") for id in cluster.ids]
    assert [code for code, _ in pages] == [200, 200, 200]
    assert "memory_limit_bytes" in pages[0][1]["alarms"][0] and pages[2][1]["alarms"] == ["node1 is low on memory"]
    # Consumers get what is there, and acknowledge it, on the node that is short as well.
    for id, body in ((1, b"0"), (2, b"1"), (3, b"2")):
        with channel(cluster, id) as consuming:
            method, _, got = consuming.basic_get("work")
            assert got == body
            consuming.basic_ack(method.delivery_tag)
    wait_for(lambda: cluster.ready(2, "work") == 0, "acknowledged")
    # A publisher waits, and goes on afterwards; nothing is refused.
    confirmed: list[bool] = []

    def publish() -> None:
        with channel(cluster, 3, confirms=True) as publishing:
            publishing.basic_publish("", "nowhere", b"")
            publishing.basic_publish("", "work", b"late", PERSISTENT, mandatory=True)
            confirmed.append(True)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    with channel(cluster, 1) as consuming:
        consuming.basic_qos(prefetch_count=20)
        for number, (method, _, _) in enumerate(consuming.consume("in-memory", inactivity_timeout=BOUND_S), 1):
            assert method is not None, f"{number} of {count} came"
            assert not confirmed or not cluster.status(3)["blocked"]
            consuming.basic_ack(method.delivery_tag)
            if number >= count:
                break
        consuming.cancel()
        consuming.queue_purge("in-memory")
    for client in watching:
        wait_for(lambda: client.was_told() == ["low on memory", None], "connection.unblocked")  # noqa: B023
    thread.join(BOUND_S)
    assert confirmed == [True]
    wait_for(lambda: cluster.ready(3, "work") == 1, "the late one")
    assert [cluster.metric(id, "mayfly_publishers_blocked") for id in cluster.ids] == [0, 0, 0]
    assert cluster.page(1, "/health/ready")[1]["alarms"] == []


@pytest.mark.parametrize("leader", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_consumer_that_reads_nothing_costs_little(cluster: Nodes, leader: int) -> None:
    """Of a replicated queue, without a prefetch: the rest stays in the log. It gets everything later. The queue's
    leader is another node than the consumer's, which may lag behind it, or the same.
    """
    much = f"much{leader}"
    with channel(cluster, leader, confirms=True) as publishing:
        publishing.queue_declare(much, durable=True)
        for number in range(MUCH):
            publishing.basic_publish("", much, b"%06d" % number + BODY, PERSISTENT)
    wait_for(lambda: cluster.ready(3, much) == MUCH, "all of them at node 3")
    before = cluster.metric(3, "mayfly_memory_used_bytes")
    with AmqpSocket(cluster, 3) as client:
        client.login()
        client.open_channel()
        client.send(method_frame(commands.Basic.Consume(queue=much, no_ack=True), 1))
        wait_for(lambda: cluster.ready(3, much) < MUCH, "something is delivered")
        most, left = before, [cluster.ready(3, much)]

        def is_settled() -> bool:
            """Nothing more is delivered, as often as it is looked at; what comes after the last look comes below."""
            nonlocal most
            most = max(most, cluster.metric(3, "mayfly_memory_used_bytes"))
            left.append(cluster.ready(3, much))
            return len(left) > LOOKS and len(set(left[-LOOKS:])) == 1

        wait_for(is_settled, f"the same {LOOKS} times", 5 * BOUND_S)
        print(f"{(most - before) / MIB:.0f} MiB more than before, {left[-1]} messages left")
        assert most - before < 48 * MIB
        # A window, what the node keeps before it says that this is much, and what the kernel does: 8, 8 and some MiB.
        assert MUCH - left[-1] <= MOST_GIVEN
        numbers: list[int] = []
        fresh = False
        while len(numbers) < MUCH:
            _, what = client.next()
            if isinstance(what, commands.Basic.Deliver):
                fresh = True
            elif fresh and type(what).__name__ == "ContentBody":
                numbers.append(int(what.value[:6]))
                fresh = False
        assert numbers == list(range(MUCH))
