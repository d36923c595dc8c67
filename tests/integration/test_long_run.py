"""Logs that are compacted: disks do not grow, a node that was away gets a snapshot, restarts are right."""

import operator
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lmdb
import pytest

from mayfly.cluster.group.log_upkeep import TIMES_TOO_LONG, TIMES_TOO_LONG_FOR_ANYBODY
from mayfly.cluster.host.host import BALANCE_EVERY_MS
from tests.integration.clients import Consumer, Publisher, channel, declare_led_by, drain, judge, publish_all
from tests.integration.nodes import Nodes, disk_bytes, wait_for
from tests.waiting import wait_for_each

pytestmark = [pytest.mark.processes, pytest.mark.slow]

Record = Callable[[str, object], None]

COMPACT_BYTES = 256 * 1024
COMPACT_ENTRIES = 100
BODY_BYTES = 1024
MEASURE_EVERY = 2500
MEASURES = 8


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"compact_bytes": COMPACT_BYTES, "compact_entries": COMPACT_ENTRIES, "session_timeout_ms": 60_000}


def held_bytes(data_dir: Path) -> int:
    """How much of a node's log file holds data."""
    with lmdb.open(str(data_dir / "log"), readonly=True, max_dbs=4) as log, log.begin() as transaction:
        stat = transaction.stat(log.open_db(b"entries", transaction, create=False))
    return (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"]


def held_by_all(cluster: Nodes) -> int:
    return sum(held_bytes(cluster.plan(id).data_dir) for id in cluster.ids)


def megabytes(sizes: list[int]) -> list[float]:
    return [round(size / 1e6, 1) for size in sizes]


def test_disks_do_not_grow_under_steady_traffic(cluster: Nodes, record_property: Record) -> None:
    """Far more goes through than the logs may hold; what lies untouched meanwhile stays, and survives restarts."""
    with channel(cluster, 1) as declaring:
        names = [declare_led_by(cluster, declaring, f"steady-{id}", partial(operator.eq, id)) for id in (1, 2)]
        for name in names:
            declaring.queue_declare(f"{name}-lying", durable=True)
    lying = [b"%d lies here" % number + b"." * BODY_BYTES for number in range(50)]
    for name in names:
        publish_all(cluster, 3, f"{name}-lying", lying)
    consumers = [Consumer(cluster, 3, name).begin() for name in names]
    publishers = [Publisher(cluster, id, name, rate=2500, size=BODY_BYTES) for id, name in enumerate(names, 1)]
    for publisher in publishers:
        publisher.start()
    sizes: list[int] = []
    held: list[int] = []
    waiting: list[int] = []

    def waiting_bytes() -> int:
        """Of messages that have not come to their consumer: the logs have to hold them."""
        confirmed = sum(len(publisher.confirmed) for publisher in publishers)
        return (confirmed - sum(len(consumer.deliveries) for consumer in consumers)) * BODY_BYTES

    began_s = time.monotonic()
    for _ in range(MEASURES):
        for publisher in publishers:
            publisher.until_confirmed(MEASURE_EVERY // 2)
        sizes.append(disk_bytes([cluster.plan(id).data_dir for id in cluster.ids]))
        waiting.append(waiting_bytes())
        held.append(held_by_all(cluster))
        waiting[-1] = max(waiting[-1], waiting_bytes())
    for publisher in publishers:
        publisher.finish()
    through = sum(len(publisher.confirmed) for publisher in publishers) * BODY_BYTES * len(cluster.ids)
    for publisher, consumer in zip(publishers, consumers, strict=True):
        consumer.until_received(len(publisher.confirmed))
        consumer.finish()
        judge(publisher, [consumer])
    record_property("disk_bytes", sizes)
    took_s = time.monotonic() - began_s
    print(
        f"{through / 1e6:.0f} MB through in {took_s:.1f} s; MB on disk: {megabytes(sizes)}, held: {megabytes(held)}, "
        f"waiting: {megabytes(waiting)}"
    )
    # So long a leader waits with compaction for members that are behind and get on; four queues lie in as many shards.
    copies = 2 * len(cluster.ids)
    most = TIMES_TOO_LONG_FOR_ANYBODY * COMPACT_BYTES * len(names) * copies
    # A log is looked at once in so long; what has come since is on top, and more of it where the machine is quick.
    since = through / took_s * BALANCE_EVERY_MS / 1000 * copies / len(cluster.ids)
    assert most <= through / 2, "too little has gone through to say"
    for each, lie in zip(held, waiting, strict=True):
        assert each - lie * copies <= most + since, "the logs hold too much"
    usual = most * TIMES_TOO_LONG // TIMES_TOO_LONG_FOR_ANYBODY
    wait_for(lambda: held_by_all(cluster) <= usual, "short logs where nobody is behind")
    # The file takes its room in steps, and somewhat more than it needs until the free pages inside suffice.
    assert sizes[-1] <= 2 * sizes[0], "the disks grow"
    # All at once from compacted logs.
    cluster.kill(*cluster.ids)
    cluster.heal()
    for name in names:
        wait_for(partial(_is_empty, cluster, name), f"{name} is empty")
        assert drain(cluster, 2, f"{name}-lying") == [(body, False) for body in lying]


def _is_empty(cluster: Nodes, name: str) -> bool:
    return cluster.ready(2, name) == 0


def test_a_node_away_longer_than_the_log_reaches_back_catches_up(whole: Nodes) -> None:
    """By snapshot, with the messages in it; then it leads again, and has everything."""
    with channel(whole, 1) as declaring:
        name = declare_led_by(whole, declaring, "away", lambda leader: leader == 3)
        declaring.queue_declare("away-lying", durable=True)
        lying = [b"%d lies here" % number for number in range(200)]
        publish_all(whole, 1, "away-lying", lying)
    before = whole.groups(1)
    whole.kill(3)
    consumer = Consumer(whole, 2, name).begin()
    publisher = Publisher(whole, 1, name, rate=2500, size=BODY_BYTES, window=20)
    publisher.start()
    shard = (whole.queue(1, name) or {})["shard"]
    # A leader keeps four times as much for those who are away; beyond that nobody has what follows node 3's last entry.
    wait_for_each((1, 2), lambda id: whole.groups(id)[shard]["compacted"] > before[shard]["commit"], "a compacted log")
    whole.start(3)
    whole.until_serving()
    publisher.until_confirmed(200)
    publisher.finish()
    consumer.until_received(len(publisher.confirmed))
    consumer.finish()
    judge(publisher, [consumer])
    whole.heal()
    wait_for(lambda: whole.leader_of(name) == 3, "node 3 leading again")
    wait_for(lambda: whole.ready(3, name) == 0, "the last acknowledgement at node 3")
    publish_all(whole, 3, name, [b"0 after"])
    assert drain(whole, 3, name) == [(b"0 after", False)]
    # From its own disk, too.
    whole.kill(3)
    whole.heal()
    assert drain(whole, 3, "away-lying") == [(body, False) for body in lying]


def test_consumers_of_a_node_that_was_frozen_for_longer_than_the_log_reaches_back_go_on(whole: Nodes) -> None:
    """A snapshot takes the place of its replica, and its session is open still: they are given what they missed, once,
    and are not cancelled."""
    with channel(whole, 1) as declaring:
        name = declare_led_by(whole, declaring, "thawed", lambda leader: leader != 3)
    there, elsewhere = Consumer(whole, 3, name).begin(), Consumer(whole, 2, name).begin()
    publisher = Publisher(whole, 1, name, rate=2500, size=BODY_BYTES, window=20)
    publisher.start()
    there.until_received(50)
    shard = (whole.queue(1, name) or {})["shard"]
    whole.freeze(3)
    # No log reaches further by more than what was under way.
    last = max(whole.groups(id)[shard]["commit"] for id in (1, 2)) + 10 * COMPACT_ENTRIES
    wait_for_each((1, 2), lambda id: whole.groups(id)[shard]["compacted"] > last, "a compacted log")
    came = len(there.deliveries)
    whole.thaw(3)
    there.until_received(came + 500)
    publisher.finish()
    wait_for(partial(_is_empty, whole, name), "the last acknowledgement")
    for consumer in (there, elsewhere):
        consumer.finish()
        assert not consumer.cancelled
    judge(publisher, [there, elsewhere])
    assert whole.groups(3)[shard]["compacted"] > last, "it came by its log"
