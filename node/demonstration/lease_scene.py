"""A leased queue outlives the SIGKILL of its shard's leader, and ends on time; traffic goes on meanwhile."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from mayfly.node.demonstration.client import (
    DemonstrationError,
    connect,
    declare_where,
    leader_of,
    queue_info,
    wait_until,
)
from mayfly.node.demonstration.narrator import Narrator
from mayfly.node.demonstration.traffic import NumberedConsumer, NumberedPublisher
from mayfly.node.local_nodes.local_cluster import LocalCluster, NodePlan
from mayfly.node.settings import NodeSettings

LEASE_MS: Final = 6000
KILL_AFTER_S: Final = 2.5
# The leader looks for leases that are due every 250 ms by default; the rest is for a busy machine.
PROMPT_MS: Final = 1500
NEW_LEADER_WITHIN_MS: Final = 1000
PAUSE_WITHIN_MS: Final = 2000
_PATIENCE_S: Final = 60.0
_NOT_FOUND: Final = 404


class Span(NamedTuple):
    """Two moments of monotonic time between which something happened."""

    before_s: float
    after_s: float


class Kill(NamedTuple):
    """When the leader died, and how long its shard was without one; monotonic seconds, and ms."""

    at_s: float
    leaderless_ms: int


def play(narrator: Narrator, cluster: LocalCluster, settings: NodeSettings) -> NodePlan:
    """Kill the last node while the first publishes and the second consumes; the node that was killed."""
    publishing, consuming, victim = cluster.plans[0], cluster.plans[1], cluster.plans[-1]
    narrator.scene("2. A leased queue, and the death of the node that leads it")
    connection = connect(publishing, settings, "demonstration: lease")
    victim_id = len(cluster.plans)
    try:
        channel = connection.channel()
        stream = declare_where(channel, publishing, "demo.stream", {}, lambda leader: leader == victim_id)
        consumer = NumberedConsumer(consuming, settings, stream)
        publisher = NumberedPublisher(publishing, settings, stream)
        consumer.start()
        publisher.start()
        narrator.say(
            f"queue {stream}, led by {victim.name}: published to on {publishing.name}, a confirm for each, "
            f"and consumed on {consuming.name}"
        )
        lease, used = _lease(channel, publishing, victim_id)
        narrator.say(
            f"queue {lease}, led by {victim.name}: leased for {LEASE_MS} ms (x-expires), and left alone"
        )
        time.sleep(max(0.0, used.after_s + KILL_AFTER_S - time.monotonic()))
        _require_leader(publishing, victim_id, stream, lease)
        kill = _kill(narrator, cluster, victim, publishing, lease)
        _watch_lease(narrator, cluster.running(), lease, used, kill)
        _use_expired(narrator, connection, lease)
        _judge_traffic(narrator, publisher, consumer, kill)
    finally:
        connection.close()
    return victim


def _lease(channel: BlockingChannel, plan: NodePlan, leader_id: int) -> tuple[str, Span]:
    """Declare the leased queue; its name, and within which moments it was used last."""
    arguments = {"x-expires": LEASE_MS}
    name = declare_where(channel, plan, "demo.lease", arguments, lambda leader: leader == leader_id)
    before_s = time.monotonic()
    channel.queue_declare(name, passive=True)
    return name, Span(before_s, time.monotonic())


def _require_leader(plan: NodePlan, leader_id: int, *queues: str) -> None:
    """The death of another node than the leader would show nothing."""
    moved = [queue for queue in queues if leader_of(plan, queue) != leader_id]
    if moved:
        raise DemonstrationError(f"node {leader_id} no longer leads {', '.join(moved)}")


def _kill(narrator: Narrator, cluster: LocalCluster, victim: NodePlan, witness: NodePlan, queue: str) -> Kill:
    leader_before = leader_of(witness, queue)
    at_s = time.monotonic()
    end = cluster.kill(victim)
    narrator.say(f"{end.describe()}, in mid-lease")
    wait_until(lambda: leader_of(witness, queue) not in (0, leader_before), _PATIENCE_S, 0.005)
    leaderless_ms = round(1000 * (time.monotonic() - at_s))
    new_leader = leader_of(witness, queue)
    name = cluster.plans[new_leader - 1].name if new_leader else "nobody"
    narrator.promise(
        f"a killed leader is replaced within {NEW_LEADER_WITHIN_MS} ms",
        new_leader not in (0, leader_before),
        f"{name} leads the shard after {leaderless_ms} ms",
        leaderless_ms <= NEW_LEADER_WITHIN_MS,
    )
    return Kill(at_s, leaderless_ms)


def _watch_lease(
    narrator: Narrator, survivors: Sequence[NodePlan], queue: str, used: Span, kill: Kill
) -> None:
    """Look, without using it, until the queue is gone on all survivors."""
    gone_s: dict[str, float] = {}

    def gone_everywhere() -> bool:
        for plan in survivors:
            if plan.name not in gone_s and queue_info(plan, queue) is None:
                gone_s[plan.name] = time.monotonic()
        return len(gone_s) == len(survivors)

    narrator.say(f"looking on at {' and '.join(plan.name for plan in survivors)} until {queue} is deleted")
    # Time without a leader is not charged to the lease (L7).
    latest_s = used.after_s + (LEASE_MS + kill.leaderless_ms + PROMPT_MS) / 1000
    wait_until(gone_everywhere, latest_s - time.monotonic() + _PATIENCE_S / 2)
    if not gone_s:
        narrator.promise("the leased queue is deleted", False, "it is still there")
        return
    lived_ms = round(1000 * (min(gone_s.values()) - used.before_s))
    narrator.promise(
        f"not deleted before its lease of {LEASE_MS} ms is over",
        lived_ms >= LEASE_MS,
        f"deleted after {lived_ms} ms",
    )
    last_s = max(gone_s.values()) if len(gone_s) == len(survivors) else float("inf")
    overdue = f"{1000 * (last_s - used.after_s) - LEASE_MS:.0f} ms after its end, on all survivors"
    narrator.promise(
        f"and promptly after: within {PROMPT_MS} ms and the time without a leader",
        len(gone_s) == len(survivors),
        overdue,
        last_s <= latest_s,
    )


def _use_expired(narrator: Narrator, connection: BlockingConnection, queue: str) -> None:
    """A later use of the queue gets 404 (L10)."""
    answer = "it is still there"
    code = None
    try:
        connection.channel().queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        code, answer = error.reply_code, f"{error.reply_code} {error.reply_text}"
    narrator.promise("who uses it afterwards is told that it is not there", code == _NOT_FOUND, answer)


def _judge_traffic(narrator: Narrator, publisher: NumberedPublisher, consumer: NumberedConsumer, kill: Kill) -> None:
    publisher.stop(_PATIENCE_S)
    ended_s = time.monotonic()
    wait_until(lambda: set(publisher.confirmed) <= set(consumer.received), _PATIENCE_S)
    # A second copy would come now.
    time.sleep(0.3)
    consumer.stop(_PATIENCE_S)

    pause_ms = publisher.longest_pause_ms(kill.at_s, ended_s)
    errors = [error for error in (publisher.error, consumer.error) if error]
    narrator.promise(
        f"clients of the surviving nodes see a pause of less than {PAUSE_WITHIN_MS} ms, and no error",
        not errors,
        "; ".join(errors) or f"longest time without a confirm {pause_ms} ms",
        pause_ms < PAUSE_WITHIN_MS,
    )
    confirmed, received = set(publisher.confirmed), consumer.received
    after = sum(at_s > kill.at_s for at_s in publisher.confirmed_at_s)
    missing = len(confirmed - set(received))
    narrator.promise(
        "nothing confirmed is missing",
        bool(confirmed) and after > 0 and missing == 0,
        f"{len(confirmed)} confirmed, {after} of them after the kill; {missing} missing",
    )
    twice = len(received) - len(set(received))
    invented = len(set(received) - set(publisher.sent))
    narrator.promise(
        "nothing arrives twice, and in order",
        twice == 0 and invented == 0 and received == sorted(received),
        f"{len(received)} received, {twice} twice"
        + ("" if received == sorted(received) else ", out of order"),
    )
