"""Disks that run out of room: publishers are blocked, nothing confirmed is lost, service resumes when there is room."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.integration.clients import PERSISTENT, Publisher, channel, connect, drain, publish_all
from tests.integration.nodes import Nodes, bounded, wait_for
from tests.integration.small_disks import small_disk
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

MIB = 1024 * 1024
DISK_BYTES = 128 * MIB
LIMIT_BYTES = 40 * MIB
BODY = b"x" * 32_768
FILLED_WITHIN_S = 10 * BOUND_S


@pytest.fixture(scope="module")
def disks(folder: Path) -> Iterator[list[Path]]:
    """A small file system for each node."""
    made = [folder / f"disk{number + 1}" for number in range(3)]
    with contextlib.ExitStack() as stack:
        for disk in made:
            stack.enter_context(small_disk(disk, DISK_BYTES))
        yield made


def start(folder: Path, disks: list[Path], limit_bytes: int) -> Nodes:
    nodes = Nodes(folder, 3, {"disk_free_limit_bytes": limit_bytes})
    for id, disk in enumerate(disks, 1):
        shutil.rmtree(disk / "data", ignore_errors=True)
        nodes.move_data(id, disk / "data")
    return nodes.serve()


@pytest.fixture
def cluster(folder: Path, disks: list[Path]) -> Iterator[Nodes]:
    nodes = start(folder / "limited", disks, LIMIT_BYTES)
    with nodes:
        yield nodes


QUEUES = [f"full-{number}" for number in range(4)]


def test_publishers_are_blocked_on_all_nodes_and_go_on_when_there_is_room(cluster: Nodes) -> None:
    """Over several shards, none of which has a log that is long by itself; over and over."""
    with channel(cluster, 1) as declaring:
        for name in (*QUEUES, "small"):
            declaring.queue_declare(name, durable=True)
    assert len({(cluster.queue(1, name) or {})["shard"] for name in QUEUES}) == len(QUEUES)
    told: list[str | None] = []
    watching = connect(cluster, 1)
    watching.add_on_connection_blocked_callback(lambda _, method: told.append(method.method.reason))
    watching.add_on_connection_unblocked_callback(lambda _, method: told.append(None))
    watching.channel().basic_publish("", "small", b"before", PERSISTENT)
    rounds = []
    for _ in range(2):
        confirmed = bounded(partial(fill, cluster, 1), FILLED_WITHIN_S)
        rounds.append(sum(map(len, confirmed.values())))
        judge_alarm(cluster, watching, told)
        # Consuming frees room: new consumers come, through any node that says it is ready, and all do.
        for id, name in zip(itertools.cycle(cluster.ids), QUEUES, strict=False):
            wait_for(partial(is_ready, cluster, id), f"clients are sent to node {id}")
            found = [number for number, _ in bounded(partial(take, cluster, id, name), FILLED_WITHIN_S)]
            # The one that was on its way when the alarm came may be there.
            assert found[: len(confirmed[name])] == confirmed[name], "confirmed messages are lost"
            assert len(found) <= len(confirmed[name]) + 1
        for id in cluster.ids:
            wait_for(partial(no_alarm, cluster, id), f"room at node {id}")
        wait_for(lambda: unblocked(watching, told), "connection.unblocked")
    print(f"confirmed until the disk was short, each time: {rounds}")
    assert min(rounds) > DISK_BYTES / 4 / len(BODY), "room that was freed is not used again"
    publish_all(cluster, 2, "small", [b"after"] * 100)
    watching.close()


def fill(nodes: Nodes, id: int, most: int = 12_000) -> dict[str, list[int]]:
    """Publish with confirms until the connection is blocked; what was confirmed, by queue."""
    confirmed: dict[str, list[int]] = {name: [] for name in QUEUES}
    publishing = connect(nodes, id, blocked_after_s=0.5).channel()
    publishing.confirm_delivery()
    for number in range(most):
        name = QUEUES[number % len(QUEUES)]
        try:
            publishing.basic_publish("", name, b"%06d " % number + BODY, PERSISTENT, mandatory=True)
        except pika.exceptions.ConnectionBlockedTimeout:
            return confirmed
        confirmed[name].append(number)
    raise AssertionError(f"{most} messages did not fill the disk")


def judge_alarm(nodes: Nodes, watching: pika.BlockingConnection, told: list[str | None]) -> None:
    """What a full disk looks like to clients and operators. One node's is enough: once it has stopped the publishers
    of all nodes, the disks of the others need not get there.
    """
    for id in nodes.ids:
        wait_for(partial(tells_of_an_alarm, nodes, id), f"one story of an alarm at node {id}")
        assert nodes.page(id, "/health/live")[0] == 200
        assert nodes.metric(id, "mayfly_publishers_blocked") == 1
    assert any(nodes.metric(id, "mayfly_disk_alarm") for id in nodes.ids), "no node says that its own disk is short"
    wait_for(lambda: not unblocked(watching, told), "connection.blocked")
    assert told[-1] == "low on disk"


def tells_of_an_alarm(nodes: Nodes, id: int) -> bool:
    """Whether the node tells of an alarm, and says the same of its own disk wherever it is asked. It is ready all the
    same, for the consumers that free room.
    """
    alarms = str(nodes.status(id)["alarms"])
    code, page = nodes.page(id, "/health/ready")
    own = "bytes free" in alarms
    metric = nodes.metric(id, "mayfly_disk_alarm")
    return alarms != "[]" and (code, "bytes free" in str(page.get("alarms")), metric) == (200, own, int(own))


def is_ready(nodes: Nodes, id: int) -> bool:
    """Whether the node may be given clients."""
    return nodes.page(id, "/health/ready")[0] == 200


def no_alarm(nodes: Nodes, id: int) -> bool:
    """Whether the node takes messages again."""
    return not nodes.status(id)["alarms"] and nodes.page(id, "/health/ready")[0] == 200


def unblocked(connection: pika.BlockingConnection, told: list[str | None]) -> bool:
    """What the connection was told last."""
    connection.process_data_events(time_limit=0)
    return not told or told[-1] is None


def take(nodes: Nodes, id: int, queue: str) -> list[tuple[int, bool]]:
    """Consume all that is in the queue; numbers, and whether redelivered."""
    return [(int(body.split(b" ", 1)[0]), redelivered) for body, redelivered in drain(nodes, id, queue)]


def test_a_disk_that_is_really_full(folder: Path, disks: list[Path]) -> None:
    """Without a limit: something else takes the last byte of two disks. Nodes live, wait, and go on when it is gone."""
    nodes = start(folder / "unlimited", disks, 0)
    try:
        with channel(nodes, 1) as declaring:
            declaring.queue_declare("really", durable=True)
        publisher = Publisher(nodes, 1, "really", rate=500, size=32_768, window=20)
        publisher.start()
        publisher.until_confirmed(50)
        for disk in disks[1:]:
            take_all(disk / "ballast")
        for id in (2, 3):
            wait_for(partial(has_alarm, nodes, id), f"an alarm at node {id}")
        publisher.stop()
        for id in (2, 3):
            wait_for(partial(is_not_ready, nodes, id), f"node {id} is not ready")
        refused_on(nodes, 2)
        for id in nodes.ids:
            assert nodes.page(id, "/health/live")[0] == 200
        for disk in disks[1:]:
            (disk / "ballast").unlink()
        for id in nodes.ids:
            wait_for(partial(no_alarm, nodes, id), f"room at node {id}")
        publisher.finish()
        nodes.until_well()
        found = [number for number, _ in take(nodes, 2, "really")]
        assert set(publisher.confirmed) <= set(found), "confirmed messages are lost"
        assert len(found) == len(set(found)), "messages came twice"
        publish_all(nodes, 3, "really", [b"0 after"] * 50)
        assert len(drain(nodes, 1, "really")) == 50
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def has_alarm(nodes: Nodes, id: int) -> bool:
    """Whether the node says that its disk is full."""
    return bool(nodes.status(id)["alarms"])


def is_not_ready(nodes: Nodes, id: int) -> bool:
    """Whether the node says that its disk keeps it from serving clients; it lives all the same."""
    code, page = nodes.page(id, "/health/ready")
    return (code, page.get("reason")) == (503, "nothing can be done here, its disk is full")


def refused_on(nodes: Nodes, id: int) -> None:
    """What needs the log is refused there, instead of waiting for ever."""
    asking = connect(nodes, id).channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as refused:
        asking.queue_declare("not-now", durable=True)
    assert refused.value.reply_code == 506
    assert "this node can do nothing, its disk is full" in refused.value.reply_text


def take_all(file: Path) -> None:
    """Write until nothing fits any more."""
    with file.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        for size in (MIB, 4096):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(size))
