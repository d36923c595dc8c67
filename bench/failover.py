"""How long clients are without confirms when the leader of their queue is killed or frozen."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pamqp import commands

from bench.amqp_pipeline import Pipeline
from bench.clusters import NODES, BrokerFailed, ReplicatedCluster, wait_until
from bench.confirm_stream import STAMP, ConfirmStream
from bench.machine import OtherCores

RATE: Final = 1000
"""Messages per second at the surviving node."""
MOVER_RATE: Final = 100
"""Messages per second of the client of the killed node."""
_BEFORE_S: Final = 1.5
_AFTER_S: Final = 3.0
"""Watched after the fault, and until confirms have come again."""
_FLOWING_S: Final = 0.3
_RESUME_S: Final = 90
_START_AGAIN_AFTER_S: Final = 10
"""If its client has no confirm by then, the dead node is started, as somebody would."""
_READ_BACK_S: Final = 60


def measure_kill(cluster: ReplicatedCluster, number: int) -> dict[str, float]:
    """SIGKILL the leader: the gap at a client of a surviving node, and until the leader's own client is served again.

    The killed node is started again. Raises BrokerFailed if a confirmed message is lost, or one came twice or out of
    order.
    """
    queue = f"killed-{number}"
    victim = declare(cluster, queue)
    next_one, third = (victim + 1) % NODES, (victim + 2) % NODES
    uris = cluster.uris
    others = OtherCores(cluster.pids)
    dead = False
    try:
        with (
            ConfirmStream(1, queue, [uris[third]], RATE) as survivor,
            ConfirmStream(2, queue, [uris[victim], uris[next_one], uris[third]], MOVER_RATE) as mover,
        ):
            until_flowing([survivor, mover], time.monotonic(), _BEFORE_S)
            other_cores = others.used()
            killed_s = cluster.kill(victim)
            dead = True
            until_flowing([survivor], killed_s, _AFTER_S)
            watched_until_s = time.monotonic()
            if not _wait_briefly(lambda: served_again_s(mover) is not None, killed_s + _START_AGAIN_AFTER_S):
                cluster.start_again(victim)
                dead = False
            wait_until(lambda: served_again_s(mover) is not None, "confirms for the killed node's client", _RESUME_S)
    finally:
        if dead:
            cluster.start_again(victim)
    gap_s = longest_gap_s([confirm.moment_s for confirm in survivor.confirms], killed_s, watched_until_s)
    again_s = served_again_s(mover)
    assert again_s is not None
    check_messages(cluster, queue, [survivor, mover])
    cluster.wait_until_well()
    return {"gap_s": gap_s, "reconnect_s": again_s - killed_s, "other_cores": other_cores}


def measure_freeze(cluster: ReplicatedCluster, number: int) -> dict[str, float]:
    """SIGSTOP the leader: the gap at a client of another node. It is thawed. Raises as `measure_kill`."""
    queue = f"frozen-{number}"
    victim = declare(cluster, queue)
    others = OtherCores(cluster.pids)
    with ConfirmStream(1, queue, [cluster.uris[(victim + 2) % NODES]], RATE) as survivor:
        until_flowing([survivor], time.monotonic(), _BEFORE_S)
        other_cores = others.used()
        frozen_s = cluster.freeze(victim)
        try:
            until_flowing([survivor], frozen_s, _AFTER_S)
            watched_until_s = time.monotonic()
        finally:
            cluster.thaw(victim)
    gap_s = longest_gap_s([confirm.moment_s for confirm in survivor.confirms], frozen_s, watched_until_s)
    cluster.wait_until_well()
    check_messages(cluster, queue, [survivor])
    return {"gap_s": gap_s, "other_cores": other_cores}


def longest_gap_s(moments_s: Iterable[float], fault_s: float, until_s: float) -> float:
    """The longest time between confirms that follow each other, of which the later came after the fault.

    The time from the last one to `until_s` counts as well.
    """
    longest_s, before_s = 0.0, fault_s
    for moment_s in moments_s:
        if moment_s > until_s:
            break
        if moment_s > fault_s:
            longest_s = max(longest_s, moment_s - before_s)
        before_s = moment_s
    return max(longest_s, until_s - before_s)


def faults_of_order(confirmed: dict[int, set[int]], arrived: Sequence[tuple[int, int]]) -> list[str]:
    """What is wrong with messages that arrived, as (stream, number): lost though confirmed, twice, out of order."""
    seen: dict[int, set[int]] = {stream: set() for stream in confirmed}
    last: dict[int, int] = {}
    twice = disorder = 0
    for stream, number in arrived:
        twice += number in seen[stream]
        disorder += number < last.get(stream, -1)
        seen[stream].add(number)
        last[stream] = number
    lost = sum(len(numbers - seen[stream]) for stream, numbers in confirmed.items())
    counts = {"lost": lost, "came twice": twice, "out of order": disorder}
    return [f"{count} {what}" for what, count in counts.items() if count]


def declare(cluster: ReplicatedCluster, queue: str) -> int:
    """A quorum queue; the place of its leader."""
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all([queue], {"x-queue-type": "quorum"})
    return cluster.leader_of(queue)


def until_flowing(streams: Sequence[ConfirmStream], since_s: float, for_s: float) -> None:
    """Until so long after a moment, and until all streams have had confirms since, and a moment ago."""

    def flowing() -> bool:
        now_s = time.monotonic()
        return now_s - since_s > for_s and all(
            stream.confirms and stream.confirms[-1].moment_s > max(since_s, now_s - _FLOWING_S) for stream in streams
        )

    wait_until(flowing, "confirms flow", _RESUME_S, every_s=0.05)


def _wait_briefly(what: Callable[[], bool], until_s: float) -> bool:
    while not what() and time.monotonic() < until_s:
        time.sleep(0.05)
    return what()


def served_again_s(stream: ConfirmStream) -> float | None:
    """When it had its first confirm on a connection after its first."""
    return next((confirm.moment_s for confirm in list(stream.confirms) if confirm.connection > 1), None)


def check_messages(cluster: ReplicatedCluster, queue: str, streams: Sequence[ConfirmStream]) -> None:
    """Read the queue up to an end mark, and delete it. Raises BrokerFailed if something is wrong with the messages."""
    end = (0, 0)
    arrived: list[tuple[int, int]] = []

    def take(body: bytes) -> bool:
        arrived.append(STAMP.unpack_from(body))
        return arrived[-1] != end

    with ConfirmStream(0, queue, cluster.uris, RATE) as marking:
        wait_until(lambda: 0 in marking.confirmed, f"the end mark is in {queue}", _READ_BACK_S)
    with Pipeline(cluster.uris[0]) as client:
        client.consume(queue, take)
    with Pipeline(cluster.uris[0]) as client:
        client.open_channels()
        deleted: Any = client.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    assert deleted is not None
    faults = faults_of_order({stream.number: stream.confirmed for stream in streams}, arrived[:-1])
    if faults:
        raise BrokerFailed(f"{queue}: {', '.join(faults)}, of {len(arrived) - 1}")
