"""What a message costs all nodes together, and how that grows with the number of nodes.

    .venv/bin/python -P tests/bench/replica_sets.py messages 3 7 [--messages N] [--rate R] [--factor 3] [--level 6]
    .venv/bin/python -P tests/bench/replica_sets.py processes 4
    .venv/bin/python -P tests/bench/replica_sets.py declares 3 15
    .venv/bin/python -P tests/bench/replica_sets.py idle 3 15

Real nodes, of the installed package (`--source`: of this tree, uncompiled), 16 shards, one queue in each. On every node
there are one publisher to all of these queues, with confirms, and one consumer of all of them, with acknowledgements.
Per message, of all nodes together:

    written    bytes that they have caused to be written to disk (`write_bytes` of /proc/PID/io): pages, not payloads,
               and all of a piece in which the system keeps several pages
    disk       bytes that the disk was given, by whomever (/proc/diskstats): for a machine where nobody else writes
    syncs      writes of their logs, each of all that a node had to write
    received   bytes that came on their TCP connections, from clients and from each other (`ss`, without headers)
    entries    entries of all logs
    segments   TCP segments with data that came: how well what is sent is gathered
    CPU        user and system time (/proc/PID/stat), less what the same nodes use when idle for as long; then what of
               it is of their event loops, idle time included

`processes` is one `mayfly node --processes N`, with one replica of each shard. A declare is one of a durable queue,
through one connection. Idle is a percentage of a core, for each node.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[2]))

from pamqp import commands

from bench.amqp_pipeline import METHOD, Pipeline, in_threads, marshal, message
from bench.clusters import START_S, Cluster, answers, page, running, until_spread, wait_until
from bench.growth_cluster import BASE_PORT, Idle, Measuring

SHARDS: Final = 16
BODY: Final = bytes(1024)
WINDOW: Final = 200
"""Unconfirmed messages of each publisher."""
WARM_UP: Final = 1_600
PREFETCH: Final = 200
DECLARES: Final = 2_000
IDLE_S: Final = 20.0
SECTOR_BYTES: Final = 512
DELIVER: Final = bytes((0, 60, 0, 60))
RECEIVED: Final = re.compile(r" bytes_received:(\d+)")
SEGMENTS: Final = re.compile(r" data_segs_in:(\d+)")
COMMITTED: Final = re.compile(r'^mayfly_raft_commit_index\{group="(\d+)"\} (\S+)$', re.MULTILINE)
PID: Final = re.compile(r"pid=(\d+)")


class Counts:
    """What the nodes of a cluster have written, received and used so far."""

    def __init__(self, cluster: Cluster) -> None:
        self.written = sum(_written(pid) for pid in cluster.pids)
        self.disk = _disk_written()
        self.received, self.segments = _received(cluster.pids)
        self.syncs = sum(cluster.metric("mayfly_log_sync_seconds_count"))
        self.entries = _entries(cluster)
        self.cpu_s = cluster.cpu_s()
        self.loops_s = sum(_loop_cpu_s(pid) for pid in cluster.pids)
        self.at_s = time.monotonic()


def _written(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError(f"no write_bytes of process {pid}")


def _disk_written() -> int:
    """Of the disk that has the nodes' data; 0 where the system does not say."""
    device = os.stat(tempfile.gettempdir()).st_dev
    place = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        figures = line.split()
        if figures[:2] == place:
            return SECTOR_BYTES * int(figures[9])
    return 0


def _loop_cpu_s(pid: int) -> float:
    """CPU of a process's first thread, which runs its event loop."""
    figures = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def _entries(cluster: Cluster) -> int:
    committed: dict[str, int] = {}
    for port in cluster.http:
        for group, index in COMMITTED.findall(page(port, "/metrics")):
            committed[group] = max(committed.get(group, 0), int(float(index)))
    return sum(committed.values())


def _received(pids: Sequence[int]) -> tuple[int, int]:
    """Of the connections that are there now: bytes and segments."""
    shown = subprocess.run(["ss", "-tinpHO", "state", "established"], capture_output=True, text=True, check=True).stdout
    own = set(pids)
    octets = segments = 0
    for line in shown.splitlines():
        owner = PID.search(line)
        if owner and int(owner[1]) in own:
            octets += sum(map(int, RECEIVED.findall(line)))
            segments += sum(map(int, SEGMENTS.findall(line)))
    return octets, segments


class Clients:
    """A publisher and a consumer on each node, for all queues, connected for as long as this is there."""

    def __init__(self, cluster: Cluster, queues: Sequence[str], rate: float = 0.0) -> None:
        """`rate`: messages a second, of all publishers together, as far as their windows let them; 0: no limit."""
        self._queues = queues
        self._rate = rate / len(cluster.uris)
        self._publishers = [Pipeline(uri) for uri in cluster.uris]
        self._consumers = [Pipeline(uri) for uri in cluster.uris]
        self.taken = 0
        self._goal = 0
        for consumer in self._consumers:
            consumer.open_channels()
            consumer.call(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
            for queue in queues:
                consumer.send(marshal(commands.Basic.Consume(queue=queue), 1))
                consumer.expect(commands.Basic.ConsumeOk)

    def close(self) -> None:
        """Close the connections."""
        for each in (*self._publishers, *self._consumers):
            each.__exit__()

    def pass_on(self, count: int) -> None:
        """Have so many messages published, delivered and acknowledged."""
        self._goal = self.taken + count
        share = count // len(self._publishers)
        counts = [share + (place < count % len(self._publishers)) for place in range(len(self._publishers))]
        in_threads([
            *(partial(self._publish, place, each) for place, each in enumerate(counts)),
            *(partial(self._consume, consumer) for consumer in self._consumers),
        ])

    def _publish(self, place: int, count: int) -> None:
        octets = [message(queue, BODY) for queue in self._queues]
        made = [octets[(place + number) % len(octets)] for number in range(count)]
        if self._rate:
            self._publishers[place].publish_at(self._rate, made, WINDOW)
        else:
            self._publishers[place].publish_all(made, WINDOW)

    def _consume(self, consumer: Pipeline) -> None:
        # Nobody knows who gets the last one: all look at the sum, and a socket that stays silent is given up.
        unacknowledged, tag = 0, 0
        consumer.give_up_after(0.1)
        while self.taken < self._goal:
            try:
                for kind, _, payload in consumer.frames():
                    if kind == METHOD and payload[:4] == DELIVER:
                        start = 5 + payload[4]
                        tag = int.from_bytes(payload[start : start + 8], "big")
                        unacknowledged += 1
                        self.taken += 1
                    if unacknowledged >= PREFETCH // 4:
                        consumer.send(marshal(commands.Basic.Ack(tag, True), 1))
                        unacknowledged = 0
            except TimeoutError:
                if unacknowledged:
                    consumer.send(marshal(commands.Basic.Ack(tag, True), 1))
                    unacknowledged = 0


@contextmanager
def processes(count: int, source: bool) -> Iterator[Cluster]:
    """One host with so many processes, one replica of each shard."""
    with tempfile.TemporaryDirectory(prefix="mayfly-processes-") as data:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if source:
            environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        first_http = BASE_PORT + 10_000
        words = [
            sys.executable, *([] if source else ["-P"]), "-m", "mayfly", "node", "--processes", str(count),
            "--replication-factor", "1", "--shards", str(SHARDS), "--data-dir", f"{data}/data",
            "--amqp-address", f"127.0.0.1:{BASE_PORT}", "--http-address", f"127.0.0.1:{first_http}",
            "--peer-address", f"127.0.0.1:{BASE_PORT + 20_000}",
        ]  # fmt: skip
        log = Path(data) / "node.log"
        with running(words, log, environment, 2 * START_S) as process:
            http = [first_http + number for number in range(count)]
            wait_until(lambda: all(answers(port, "/health/ready") for port in http), "all processes serve", START_S)
            until_spread(http)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            children = children if count > 1 else [str(process.pid)]  # One alone is started by nobody.
            uris = [f"amqp://guest:guest@127.0.0.1:{BASE_PORT}/%2f"] * count
            yield Cluster("MayflyMQ", uris, [int(pid) for pid in children], http)


def groups_of(cluster: Cluster) -> list[int]:
    """How many groups each node has."""
    return [page(port, "/metrics").count("\nmayfly_raft_term{") for port in cluster.http]


def measure_messages(cluster: Cluster, count: int, rate: float) -> None:
    """Print what messages cost these nodes."""
    queues = [f"queue-{number}" for number in range(SHARDS)]
    with Pipeline(cluster.uris[0]) as declaring:
        declaring.declare_all(queues, {"x-queue-leader-locator": "balanced"})
    clients = Clients(cluster, queues, rate)
    try:
        clients.pass_on(WARM_UP)
        idle = Idle(cluster)
        before = Counts(cluster)
        clients.pass_on(count)
        after = Counts(cluster)
    finally:
        clients.close()
    taken_s = after.at_s - before.at_s
    cpu_us = (after.cpu_s - before.cpu_s - idle.cores * taken_s) / count * 1e6
    print(
        f"{len(cluster.pids)} nodes, groups {groups_of(cluster)}: per message"
        f" written {(after.written - before.written) / count:.0f} B,"
        f" disk {(after.disk - before.disk) / count:.0f} B,"
        f" syncs {(after.syncs - before.syncs) / count:.4f},"
        f" received {(after.received - before.received) / count:.0f} B,"
        f" entries {(after.entries - before.entries) / count:.3f},"
        f" segments {(after.segments - before.segments) / count:.3f}, CPU {cpu_us:.1f} us,"
        f" loops {(after.loops_s - before.loops_s) / count * 1e6:.1f} us;"
        f" {count / taken_s:.0f}/s, load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def measure_declares(cluster: Cluster, count: int) -> None:
    """Print what declares cost these nodes."""
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all([f"warm-{number}" for number in range(100)], {})
        idle = Idle(cluster)
        before = Counts(cluster)
        client.declare_all([f"queue-{number}" for number in range(count)], {})
        wait_until(lambda: cluster.queues() >= count + 100, "all know them", START_S)
        time.sleep(1.0)  # What declares leave for later (heartbeats, syncs) is theirs; the idle share is taken off.
        after = Counts(cluster)
    taken_s = after.at_s - before.at_s
    cpu_us = (after.cpu_s - before.cpu_s - idle.cores * taken_s) / count * 1e6
    received = (after.received - before.received) / count
    print(f"{len(cluster.pids)} nodes: CPU of a declare {cpu_us:.0f} us, received {received:.0f} B", flush=True)


def measure_idle(cluster: Cluster) -> None:
    """Print what these nodes use at rest."""
    time.sleep(5.0)  # Elections and first words are over; then a window of fixed length.
    before, began_s = cluster.cpu_s(), time.monotonic()
    time.sleep(IDLE_S)
    each = (cluster.cpu_s() - before) / (time.monotonic() - began_s) / len(cluster.pids)
    print(f"{len(cluster.pids)} nodes: {100 * each:.2f} % of a core for each, idle", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("messages", "processes", "declares", "idle"))
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--messages", type=int, default=6_000)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: as many as go through")
    parser.add_argument("--factor", type=int, default=3)
    parser.add_argument("--level", type=int, default=0, help="held there; 0: the highest")
    parser.add_argument("--source", action="store_true")
    given = parser.parse_args()
    settings = {"shards": SHARDS, "replication_factor": given.factor, "feature_level_limit": given.level}
    for count in given.nodes:
        if given.what == "processes":
            with processes(count, given.source) as cluster:
                measure_messages(cluster, given.messages, given.rate)
            continue
        with Measuring(given.source).nodes(count, **settings) as cluster:
            if given.what == "messages":
                measure_messages(cluster, given.messages, given.rate)
            elif given.what == "declares":
                measure_declares(cluster, DECLARES)
            else:
                measure_idle(cluster)


if __name__ == "__main__":
    main()
