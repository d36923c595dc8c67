"""Expiry at scale: many messages with deadlines, many queues with leases, many dead letters.

    python bench/expiry.py [--divide-by 10] [--only dead,waiting,scheduled,retries,leases,policies,journals] [--alone]
                           [--source] [--write PAGE]

Three MayflyMQ nodes on loopback, started afresh for every part, and three RabbitMQ nodes with quorum queues for what
they can do in the time. The same client (`amqp_pipeline`) drives both. CPU is that of the broker's processes, memory is
what they hold of it, without mapped files. The parts:

    dead     100 000 messages of 1 KB, queue TTL 1 s, into a dead-letter queue, read back and checked
    waiting  1 000 000 messages with deadlines of their own, hours away: memory, cost of waiting, then the lag of
             messages that come due in other queues of the same shards
    leases   100 000 queues with a lease: time to declare, memory, cost while idle, time until all are gone
    scheduled 1 000 000 messages wait for their time: memory, publishing against plain publishing, lag of what is due,
             100 000 due in one second; 1 000 000 deadlines anywhere in queues against as many at their heads
    retries  50 000 messages that are given back three times each and wait before each retry: CPU, memory
    journals 100 000 dead letters, in turns without a journal and with one: the CPU of all
    policies 100 000 queues, and a policy for all of them that comes and goes: time until every node has it everywhere

Machines are shared: read the ratios.
"""

import argparse
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pamqp import commands

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.amqp_pipeline import Pipeline, content, in_threads, publish_method
from bench.clusters import NODES, BrokerFailed, Cluster, wait_until
from bench.expiry_report import (
    dead_table,
    heading,
    journal_table,
    lease_table,
    policy_table,
    retry_table,
    scheduled_table,
    waiting_table,
)
from bench.journals import measure_journals
from bench.machine import only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly
from bench.newer_peers import newer_peers
from bench.policy_spread import measure_changes
from bench.rabbitmq_cluster import Rabbitmq
from bench.rest import cpu_at_rest, settle
from bench.retries import measure_retries
from bench.scheduled import measure_deaths, measure_ids, measure_publishing, measure_scheduled
from bench.silence import LongestSilence

PARTS: Final = ("dead", "waiting", "scheduled", "retries", "leases", "policies", "journals")
LEASE_MS: Final = 60_000
TRIAL_GONE_S: Final = 120
POLICY_ROUNDS: Final = 4
JOURNAL_ROUNDS: Final = 4
_STAMP: Final = struct.Struct(">dd")
"""In bodies: a number, and the time (CLOCK_MONOTONIC, the same for all processes) of the deadline or of sending."""


# ---------------------------------------------------------------------- dead letters


def measure_dead_letters(cluster: Cluster, count: int, strategy: str) -> dict[str, float]:
    """Messages with a queue TTL of 1 s into a dead-letter queue; every one must arrive, once.

    One queue, one publisher: all go by one source and one target, the hardest case for whoever spreads over shards.
    """
    source, target = f"timed-{strategy}", f"dead-{strategy}"
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    timed = {
        **arguments, "x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target,
        "x-dead-letter-strategy": strategy,
    }
    if strategy == "at-least-once":
        timed["x-overflow"] = "reject-publish"
    with Pipeline(cluster.uris[0]) as watcher, Pipeline(cluster.uris[1]) as publisher:
        watcher.open_channels()
        for name, settings in ((target, arguments), (source, timed)):
            declare = commands.Queue.Declare(queue=name, durable=True, arguments=settings)
            watcher.call(declare, commands.Queue.DeclareOk)
        cpu_s = cluster.cpu_s()
        method, padding = publish_method(source), bytes(1024 - _STAMP.size)
        began = time.monotonic()
        published: list[float] = []

        def publish() -> None:
            publisher.publish_all(
                (method + content(_STAMP.pack(number, 0) + padding) for number in range(count)), 2000
            )
            published.append(time.monotonic())

        def arrived() -> int:
            answer = watcher.call(commands.Queue.Declare(queue=target, passive=True), commands.Queue.DeclareOk)
            return int(answer.message_count)

        publishing = threading.Thread(target=publish)
        publishing.start()
        moved = time.monotonic()
        seen = 0
        while seen < count:
            time.sleep(0.05)
            now = arrived()
            if now != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > 60:
                sys.exit(f"{cluster.name}: {seen} of {count} dead letters have arrived, and no more come")
        ended = time.monotonic()
        publishing.join()
        cpu_s = cluster.cpu_s() - cpu_s
    disorder = _read_back(cluster, target, count)
    return {
        "publish_s": published[0] - began,
        "from_first_deadline_s": ended - began - 1,
        "from_start_s": ended - began,
        "cpu_s": cpu_s,
        "out_of_order": disorder,
    }


def _read_back(cluster: Cluster, queue: str, count: int) -> int:
    """Read the dead letters; ends the run if one is missing or came twice. How many came out of order."""
    seen = bytearray(count)
    state = {"left": count, "last": -1, "disorder": 0}

    def take(body: bytes) -> bool:
        number = int(_STAMP.unpack_from(body)[0])
        if seen[number]:
            sys.exit(f"{cluster.name}: dead letter {number} arrived twice")
        seen[number] = 1
        state["disorder"] += number < state["last"]
        state["last"] = number
        state["left"] -= 1
        return state["left"] > 0

    with Pipeline(cluster.uris[2]) as client:
        client.consume(queue, take)
    return state["disorder"]


# ---------------------------------------------------------------------- messages that wait


def measure_waiting(cluster: Cluster, count: int, due_count: int) -> dict[str, float]:
    """`count` messages wait in 48 queues, each with a deadline of its own between one and ten hours."""
    queues = [f"waiting-{number}" for number in range(48)]
    arguments = {"x-queue-type": "quorum"}
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, arguments)
    idle_before = cpu_at_rest(cluster)
    memory, cache = cluster.memory_bytes(), sum(cluster.metric("mayfly_entry_cache_bytes"))
    cpu_s, began = cluster.cpu_s(), time.monotonic()
    with LongestSilence(cluster) as silence:
        _publish_waiting(cluster, queues, count)
        took_s = time.monotonic() - began
        published_cpu_s = cluster.cpu_s() - cpu_s
    settle(cluster)
    grown = cluster.memory_bytes() - memory
    cached = sum(cluster.metric("mayfly_entry_cache_bytes")) - cache
    result = {
        "publish_s": took_s,
        "publish_cpu_us": published_cpu_s / count * 1e6,
        "silence_ms": silence.longest_ms,
        "idle_cpu_empty": idle_before,
        "idle_cpu": cpu_at_rest(cluster),
        "bytes_per_message_node": (grown - cached) / count / NODES,
        "bytes_per_message_node_with_cache": grown / count / NODES,
    }
    lags = sorted(_lags(cluster, due_count))
    result["lag_p50_ms"] = lags[len(lags) // 2]
    result["lag_p99_ms"] = lags[int(len(lags) * 0.99)]
    result["lag_max_ms"] = lags[-1]
    result["lag_min_ms"] = lags[0]
    return result


def _publish_waiting(cluster: Cluster, queues: list[str], count: int) -> None:
    chance = random.Random(7)
    methods = [publish_method(queue) for queue in queues]
    body = bytes(100)

    def publisher(place: int) -> Callable[[], None]:
        def work() -> None:
            own = methods[place::NODES]
            with Pipeline(cluster.uris[place]) as client:
                client.publish_all(
                    (
                        own[number % len(own)] + content(body, str(chance.randrange(3_600_000, 36_000_000)))
                        for number in range(place, count, NODES)
                    ),
                    2000,
                )

        return work

    in_threads([publisher(place) for place in range(NODES)])


def _lags(cluster: Cluster, count: int) -> list[float]:
    """How much later than their deadlines messages arrive in a dead-letter queue, in ms.

    Deadlines are 2 to 22 s after sending; what the publish takes to be applied counts as lag too.
    """
    queues = [f"due-{number}" for number in range(32)]
    arguments = {
        "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "due-dead",
    }
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(["due-dead"], {"x-queue-type": "quorum"})
        client.declare_all(queues, arguments)
    methods = [publish_method(queue) for queue in queues]
    began = time.monotonic()

    def messages() -> Iterator[bytes]:
        for number in range(count):
            # Rising in every queue, so that no message waits behind another with a later deadline.
            deadline = began + 2 + number * 20 / count
            ttl_ms = max(1, round((deadline - time.monotonic()) * 1000))
            stamp = time.monotonic() + ttl_ms / 1000
            yield methods[number % len(methods)] + content(_STAMP.pack(number, stamp), str(ttl_ms))

    lags: list[float] = []

    def take(body: bytes) -> bool:
        lags.append((time.monotonic() - _STAMP.unpack_from(body)[1]) * 1000)
        return len(lags) < count

    def consume() -> None:
        with Pipeline(cluster.uris[1]) as client:
            client.consume("due-dead", take)

    def publish() -> None:
        with Pipeline(cluster.uris[2]) as client:
            client.publish_all(messages(), 200)

    in_threads([consume, publish])
    return lags


# ---------------------------------------------------------------------- queues with leases


def measure_leases(cluster: Cluster, count: int, until_gone: bool, quorum: bool = True) -> dict[str, float]:
    """`count` queues with a lease, declared by six connections over the nodes; then left alone until all are gone.

    The lease is 60 s, or longer if declaring all of them takes so long that the first would go meanwhile.
    """
    arguments: dict[str, Any] = {"x-queue-type": "quorum"} if quorum else {}
    trial = max(20, min(2000, count // 20))
    began = time.monotonic()
    _declare(cluster, [f"trial-{number}" for number in range(trial)], {**arguments, "x-expires": 1000})
    rate = trial / (time.monotonic() - began)
    lease_ms = max(LEASE_MS, round(count / rate * 2000))
    wait_until(lambda: cluster.queues() == 0, "the queues of the trial are gone", TRIAL_GONE_S)
    settle(cluster)
    idle_before = cpu_at_rest(cluster)
    memory, cpu_s, began = cluster.memory_bytes(), cluster.cpu_s(), time.monotonic()
    with LongestSilence(cluster) as silence:
        _declare(cluster, [f"lease-{number}" for number in range(count)], {**arguments, "x-expires": lease_ms})
    declared = time.monotonic()
    result = {
        "queues": count,
        "declare_s": declared - began,
        "declares_per_s": count / (declared - began),
        "declare_cpu_us": (cluster.cpu_s() - cpu_s) / count * 1e6,
        "silence_ms": silence.longest_ms,
        "lease_s": lease_ms / 1000,
    }
    settle(cluster)
    result["bytes_per_queue"] = (cluster.memory_bytes() - memory) / count
    result["bytes_per_queue_node"] = result["bytes_per_queue"] / NODES
    if cluster.http:
        left = cluster.metric("mayfly_queues")
        if min(left) < count:
            print(f"  (some leases ended before the idle cost was measured: {left})", flush=True)
    result["idle_cpu_empty"] = idle_before
    result["idle_cpu"] = cpu_at_rest(cluster)
    if until_gone:
        result.update(_watch_go(cluster, began, declared, lease_ms))
    return result


def _declare(cluster: Cluster, names: list[str], arguments: dict[str, Any]) -> None:
    def declarer(place: int) -> Callable[[], None]:
        def work() -> None:
            own = names[place :: 2 * NODES]
            if own:
                with Pipeline(cluster.uris[place % NODES]) as client:
                    client.declare_all(own, arguments)

        return work

    in_threads([declarer(place) for place in range(2 * NODES)])


def _watch_go(cluster: Cluster, began: float, declared: float, lease_ms: int) -> dict[str, float]:
    """From the end of the first lease on; a queue counts until catalogs and shards of all nodes have forgotten it."""
    first_end = began + lease_ms / 1000
    last_end = declared + lease_ms / 1000
    time.sleep(max(0.0, first_end - 1 - time.monotonic()))
    cpu_s = cluster.cpu_s()
    with LongestSilence(cluster) as silence:
        while True:
            left = [sum(pair) for pair in zip(
                cluster.metric("mayfly_queues"), cluster.metric("mayfly_tombstones"), strict=True
            )]
            if max(left) == 0:
                break
            if time.monotonic() > last_end + 300:
                sys.exit(f"{cluster.name}: queues left over on the nodes: {left}")
            time.sleep(0.5)
    gone = time.monotonic()
    return {
        "gone_after_last_lease_s": gone - last_end,
        "gone_after_first_lease_s": gone - first_end,
        "gone_cpu_s": cluster.cpu_s() - cpu_s,
        "gone_silence_ms": silence.longest_ms,
    }


# ---------------------------------------------------------------------- policies


def measure_policies(cluster: Cluster, count: int) -> dict[str, float]:
    """`count` queues without arguments, and policies that concern all of them."""
    names = [f"policy-{number}" for number in range(count)]
    _declare(cluster, names, {})
    settle(cluster)
    with LongestSilence(cluster) as silence:
        result = measure_changes(cluster, names, POLICY_ROUNDS)
    return {**result, "silence_ms": silence.longest_ms}


# ---------------------------------------------------------------------- the whole


def show(name: str, result: dict[str, float]) -> dict[str, float]:
    """Print a result as it comes."""
    print(f"  {name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in result.items()), flush=True)
    return result


def _scheduled(mayfly: Mayfly, waiting: int, due: int, burst: int) -> list[str]:
    """The rows of that part, each measured on nodes of its own."""
    with mayfly.three_nodes() as cluster:
        waits = show("MayflyMQ scheduled", measure_scheduled(cluster, waiting, due, burst))
    with mayfly.three_nodes() as cluster:
        waits |= show("MayflyMQ scheduled with ids", measure_ids(cluster, waiting))
    with mayfly.three_nodes() as cluster:
        publishing = show("MayflyMQ publishing", measure_publishing(cluster, waiting))
    deaths: list[dict[str, float]] = []
    for anywhere in (False, True):
        with mayfly.three_nodes() as cluster:
            place = "anywhere" if anywhere else "at the head"
            deaths.append(show(f"MayflyMQ deaths {place}", measure_deaths(cluster, waiting, anywhere)))
    return scheduled_table((waiting, due, burst), waits, publishing, deaths)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--divide-by", type=int, default=1, metavar="N", help="an Nth of the sizes")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--alone", action="store_true", help="MayflyMQ without RabbitMQ")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, help="a page with a place for the figures")
    arguments = parser.parse_args()
    parts = set(arguments.only.split(","))
    if unknown := parts - set(PARTS):
        parser.error(f"--only: unknown part {', '.join(sorted(unknown))}")
    size = arguments.divide_by
    dead, waiting, due, leases = 100_000 // size, 1_000_000 // size, 20_000 // size, 100_000 // size
    retried = 50_000 // size
    few = 600 if size == 1 else 300
    rabbitmq = Rabbitmq(newer_peers())
    beside = rabbitmq.installed() and not arguments.alone
    tables: list[str] = []
    theirs: dict[str, dict[str, float]] = {}
    their_leases: dict[str, float] = {}
    their_retries: dict[str, float] = {}
    if beside and "retries" in parts:
        with rabbitmq.three_nodes() as cluster:
            their_retries = show("RabbitMQ retries", measure_retries(cluster, retried))
    if beside and parts & {"dead", "leases"}:
        with rabbitmq.three_nodes() as cluster:
            if "leases" in parts:
                their_leases = show("RabbitMQ leases", measure_leases(cluster, few, until_gone=False))
            if "dead" in parts:
                for strategy in ("at-least-once", "at-most-once"):
                    theirs[strategy] = show(f"RabbitMQ {strategy}", measure_dead_letters(cluster, dead, strategy))
    if "dead" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            ours = {"at-least-once": show("MayflyMQ dead", measure_dead_letters(cluster, dead, "at-least-once"))}
        tables += [*dead_table(dead, ours, theirs), ""]
    if "waiting" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            result = show("MayflyMQ waiting", measure_waiting(cluster, waiting, due))
        tables += [*waiting_table(waiting, due, result), ""]
    if "scheduled" in parts:
        tables += [*_scheduled(Mayfly(arguments.source), waiting, due, dead), ""]
    if "retries" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            result = show("MayflyMQ retries", measure_retries(cluster, retried))
        tables += [*retry_table(retried, rabbitmq.version() if their_retries else "", result, their_retries), ""]
    if "leases" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            result = show("MayflyMQ leases", measure_leases(cluster, leases, until_gone=True))
        tables += [*lease_table(result, their_leases), ""]
    if "policies" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            result = show("MayflyMQ policies", measure_policies(cluster, leases))
        tables += [*policy_table(result), ""]
    if "journals" in parts:
        with Mayfly(arguments.source).three_nodes() as cluster:
            result = show("MayflyMQ journals", measure_journals(cluster, dead, JOURNAL_ROUNDS))
        tables += [*journal_table(dead, JOURNAL_ROUNDS, result), ""]
    lines = heading() + tables
    print("\n" + "\n".join(lines))
    if arguments.write is not None:
        # Those of the messages that wait have a place of their own, so that they can be measured alone.
        program = "bench/expiry.py --only scheduled" if parts == {"scheduled"} else "bench/expiry.py"
        write_figures(arguments.write, program, lines[:-1])


if __name__ == "__main__":
    with only_benchmark():
        try:
            main()
        except BrokerFailed as failure:
            sys.exit(str(failure))
