"""Alarms of one node block publishers on all; what is short is so until it is clearly not."""

from typing import Any

import pytest
from pamqp import commands

from mayfly.node import notice_kinds
from mayfly.node.duties.alarms import (
    DISK,
    MEMORY,
    REPEAT_MS,
    REPEATED_AFTER_MS,
    Alarms,
    disk_watermark,
    memory_watermark,
)
from mayfly.node.operating.views.status import alarm_texts
from tests.node.broker.three_brokers import ThreeBrokers


@pytest.fixture(scope="module")
def cluster() -> ThreeBrokers:
    return ThreeBrokers()


def told(client: Any) -> list[str]:
    """What the client was told of alarms since the last call."""
    methods = [method for method in client.take(0) if isinstance(method, commands.Connection.Blocked | type(UNBLOCKED))]
    return [getattr(method, "reason", "unblocked") for method in methods]


UNBLOCKED = commands.Connection.Unblocked()


def test_an_alarm_on_one_node_blocks_publishers_on_all(cluster: ThreeBrokers) -> None:
    clients = [node.client() for node in cluster.nodes.values()]
    for client in clients:
        client.publish(1, "nowhere")
        client.take()
    idle = cluster.nodes[2].client()
    cluster.nodes[1].engine.memory_used("9 bytes of memory in use")
    cluster.settle()
    assert [told(client) for client in clients] == [["low on memory"]] * 3
    assert not any(client.connection.pressure.wants_reading for client in clients)
    assert idle.connection.pressure.wants_reading and not told(idle)
    assert alarm_texts(cluster.nodes[1].engine) == ["9 bytes of memory in use"]
    assert alarm_texts(cluster.nodes[3].engine) == ["node1 is low on memory"]
    # A second alarm, elsewhere: nobody is told again, and nobody goes on before both are over.
    cluster.nodes[2].engine.disk_space("5 bytes free")
    cluster.settle()
    assert cluster.nodes[3].engine.blocked == "low on disk & memory"
    assert alarm_texts(cluster.nodes[3].engine) == ["node1 is low on memory", "node2 is low on disk"]
    cluster.nodes[1].engine.memory_used(None)
    cluster.settle()
    assert [told(client) for client in clients] == [[]] * 3
    assert cluster.nodes[1].engine.blocked == "low on disk"
    cluster.nodes[2].engine.disk_space(None)
    cluster.settle()
    assert [told(client) for client in clients] == [["unblocked"]] * 3
    assert all(client.connection.pressure.wants_reading for client in clients)


def test_alarms_of_a_node_that_is_gone_do_not_count(cluster: ThreeBrokers) -> None:
    """When it comes back it tells; also that there is none any more, which was lost."""
    one, three = cluster.nodes[1].engine, cluster.nodes[3].engine
    one.disk_space("5 bytes free")
    cluster.settle()
    assert three.blocked == "low on disk"
    three.peer_down(1, cluster.now_ms)
    assert three.blocked is None
    one.peer_up(3, cluster.now_ms)
    cluster.settle()
    assert three.blocked == "low on disk"
    cluster.cut = {1}
    one.disk_space(None)
    cluster.settle()
    assert three.blocked == "low on disk"
    cluster.cut = set()
    one.peer_up(3, cluster.now_ms)
    cluster.settle()
    assert three.blocked is None


def test_what_was_lost_on_the_way_is_told_again(cluster: ThreeBrokers) -> None:
    """Frames are dropped while too much waits for a peer, and its stream stays up."""
    one, three = cluster.nodes[1].engine, cluster.nodes[3].engine
    for text, reason in (("5 bytes free", "low on disk"), (None, None)):
        cluster.cut = {3}
        one.disk_space(text)
        cluster.settle()
        cluster.cut = set()
        assert three.blocked != reason
        for _ in range(REPEAT_MS // 50 + 2):
            cluster.step()
        assert three.blocked == reason


def test_alarms_are_repeated_while_there_are_any_and_for_a_while_after() -> None:
    sent: list[int] = []

    def tell(peer: int, kind: int, data: bytes) -> None:
        sent.append(data[0])

    alarms = Alarms(lambda: [2], tell, lambda: None)

    def pass_ms(start_ms: int, end_ms: int) -> list[int]:
        sent.clear()
        for now_ms in range(start_ms, end_ms, 50):
            alarms.tick(now_ms)
        return sent

    assert not pass_ms(0, 10_000)
    alarms.set(DISK, "no room")
    assert pass_ms(10_000, 20_000) == [DISK] * (10_000 // REPEAT_MS - 1)
    alarms.set(DISK, None)
    assert pass_ms(20_000, 100_000) == [0] * (REPEATED_AFTER_MS // REPEAT_MS)
    # On and off again between two ticks: the second word may be the one that is lost.
    alarms.set(DISK, "no room")
    alarms.set(DISK, None)
    assert pass_ms(100_000, 200_000) == [0] * (REPEATED_AFTER_MS // REPEAT_MS)


def test_what_is_no_alarm_says_nothing() -> None:
    sent: list[tuple[int, int, bytes]] = []
    changes: list[str | None] = []
    alarms = Alarms(lambda: [2, 3], lambda *notice: sent.append(notice), lambda: changes.append(alarms.reason))
    alarms.peer_up(2)
    assert not sent
    for data in (b"", b"\1\1", b"12345678"):
        alarms.notice(2, data)
    # Of a later version, perhaps.
    alarms.notice(2, b"\x80")
    assert alarms.reason is None and not changes
    alarms.set(MEMORY, "much")
    alarms.set(MEMORY, "more")
    assert (alarms.own(MEMORY), alarms.own(DISK)) == ("more", None)
    assert sent == [(2, notice_kinds.ALARMS, b"\1"), (3, notice_kinds.ALARMS, b"\1")]
    assert changes == ["low on memory"]


def test_watermarks_do_not_flap() -> None:
    memory = memory_watermark(100)
    assert [memory.look(used) for used in (0, 100, 101, 99, 101, 91, 90, 100, 101)] == [
        False, False, True, True, True, True, False, False, True,
    ]
    disk = disk_watermark(100)
    assert [disk.look(free) for free in (200, 100, 99, 100, 124, 125, 100, 99)] == [
        False, False, True, True, True, False, False, True,
    ]
    for none in (memory_watermark(0), disk_watermark(0)):
        assert not none.look(0) and not none.look(10**12)
