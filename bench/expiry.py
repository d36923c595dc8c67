"""Expiry at scale: many messages with deadlines, many queues with leases, many dead letters.

    python bench/expiry.py [--divide-by 10] [--only dead,waiting,leases] [--skip-rabbitmq] [--source] [--write PAGE]

Three MayflyMQ nodes on loopback, started afresh for every part, and three RabbitMQ nodes with quorum queues for what
they can do in the time. The same client (`amqp_pipeline`) drives both. CPU is that of the broker's processes, memory is
what they hold of it, without mapped files. The parts:

    dead     100 000 messages of 1 KB, queue TTL 1 s, into a dead-letter queue, read back and checked
    waiting  1 000 000 messages with deadlines of their own, hours away: memory, cost of waiting, then the lag of
             messages that come due in other queues of the same shards
    leases   100 000 queues with a lease: time to declare, memory, cost while idle, time until all are gone

Machines are shared: read the ratios.
"""

import argparse
import datetime
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pamqp import commands

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.amqp_pipeline import Pipeline, content, in_threads, publish_method  # noqa: E402

SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared")) / "bench"
BASE_PORT: Final = int(os.environ.get("BASE_PORT", "6872"))
NODES: Final = 3
START_S: Final = 60
LEASE_MS: Final = 60_000
IDLE_S: Final = 10.0
_STAMP: Final = struct.Struct(">dd")
"""In bodies: a number, and the time (CLOCK_MONOTONIC, the same for all processes) of the deadline or of sending."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Cluster:
    """A running broker: where clients connect, and what its processes use."""

    def __init__(self, name: str, uris: list[str], pids: list[int], http: list[int]) -> None:
        self.name, self.uris, self.pids, self.http = name, uris, pids, http

    def cpu_s(self) -> float:
        """CPU that the nodes have used, together."""
        return sum(_cpu_s(pid) for pid in self.pids)

    def memory_bytes(self) -> int:
        """Memory of the nodes, together, without files that are mapped: those pages are the system's to take back."""
        return sum(_anonymous_bytes(pid) for pid in self.pids)

    def metric(self, name: str) -> list[float]:
        """A metric of MayflyMQ, summed over its samples, for each node."""
        values = []
        for port in self.http:
            page = _page(port, "/metrics").splitlines()
            values.append(sum(float(line.split()[-1]) for line in page if line.startswith((f"{name} ", f"{name}{{"))))
        return values


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _anonymous_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


def _page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


@contextmanager
def mayfly(source: bool) -> Iterator[Cluster]:
    """Three nodes by `mayfly up`, from the installed package or (`source`) from this tree, uncompiled."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bench-") as data:
        up = ["-m", "node", "up", "--nodes", str(NODES), "--base-port", str(BASE_PORT), "--data-dir", data]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} if source else dict(os.environ)
        if not source:
            environment.pop("PYTHONPATH", None)
        log = Path(data) / "up.log"
        with log.open("w") as output:
            command = [sys.executable, *([] if source else ["-P"]), *up]
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT if source else data, env=environment
            )
            try:
                http = [BASE_PORT + 10_000 + node for node in range(NODES)]
                _wait_until_ready(http, log, process)
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                uris = [f"amqp://guest:guest@127.0.0.1:{BASE_PORT + node}/%2f" for node in range(NODES)]
                # Leaders spread over the nodes in the first seconds.
                time.sleep(4)
                yield Cluster("MayflyMQ", uris, [int(pid) for pid in children], http)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _wait_until_ready(ports: list[int], log: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    waiting = set(ports)
    while waiting or log.read_text().count(" serves: ") < NODES:
        # It ends at once if something else has its ports, and whatever that is might answer.
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"nodes did not become ready:\n{log.read_text()}")
        for port in list(waiting):
            try:
                _page(port, "/health/ready")
                waiting.discard(port)
            except (OSError, urllib.error.HTTPError):
                pass
        time.sleep(0.1)


@contextmanager
def rabbitmq() -> Iterator[Cluster]:
    """Three nodes of the packaged server."""
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-") as data:
        # Not the port of `rabbitmq-cluster` when it is started by hand.
        environment = {**os.environ, "RMQ_BASE": data, "RMQ_PORT": os.environ.get("RMQ_PORT", "5781")}

        def ask(what: str) -> str:
            command = ["bash", str(SHARED / "rabbitmq-cluster"), what]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            if done.returncode:
                sys.exit(f"rabbitmq-cluster {what}: {done.stdout}{done.stderr}")
            return done.stdout.strip()

        try:
            uris = ask("start").splitlines()[-1].split(",")
            yield Cluster("RabbitMQ", uris, [int(pid) for pid in ask("pids").split(",")], [])
        finally:
            ask("stop")


def has_rabbitmq() -> bool:
    """Whether it can be started here."""
    return SHARED.is_dir() and Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists()


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
    idle_before = idle_cpu(cluster, IDLE_S)
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
        "idle_cpu": idle_cpu(cluster, IDLE_S),
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
    time.sleep(4)
    settle(cluster)
    idle_before = idle_cpu(cluster, IDLE_S)
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
    result["idle_cpu"] = idle_cpu(cluster, IDLE_S)
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


# ---------------------------------------------------------------------- what all parts use


class LongestSilence:
    """The longest that a node took to answer a request that costs nothing: how long its loop was busy in one go."""

    def __init__(self, cluster: Cluster) -> None:
        self.longest_ms: float = 0.0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(port,)) for port in cluster.http]

    def __enter__(self) -> "LongestSilence":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, port: int) -> None:
        while not self._stop.wait(0.05):
            asked = time.monotonic()
            _page(port, "/health/live")
            self.longest_ms = max(self.longest_ms, (time.monotonic() - asked) * 1000)


def settle(cluster: Cluster) -> None:
    """Wait until the nodes use little CPU."""
    for _ in range(30):
        if idle_cpu(cluster, 1.0) < 30:
            return


def idle_cpu(cluster: Cluster, seconds: float) -> float:
    """CPU of all nodes over some seconds, in per cent of one core."""
    before = cluster.cpu_s()
    time.sleep(seconds)
    return (cluster.cpu_s() - before) / seconds * 100


def show(name: str, result: dict[str, float]) -> dict[str, float]:
    """Print a result as it comes."""
    print(f"  {name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in result.items()), flush=True)
    return result


# ---------------------------------------------------------------------- tables


def ratio(ours: float, theirs: float) -> str:
    """How many times as much, or as little."""
    return f"{ours / theirs:.2f}x" if ours * 10 < theirs else f"{ours / theirs:.1f}x"


def dead_table(count: int, ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> list[str]:
    """Dead letters, as rows of Markdown."""
    rows = [
        f"### {count:,} dead letters", "",
        "| broker | strategy | publishing s | first deadline to last arrival s | CPU s, 3 nodes | out of order |",
        "|---|---|---|---|---|---|",
    ]
    for broker, results in (("MayflyMQ", ours), ("RabbitMQ", theirs)):
        for strategy, row in results.items():
            rows.append(
                f"| {broker} | {strategy} | {row['publish_s']:.1f} | {row['from_first_deadline_s']:.1f} "
                f"| {row['cpu_s']:.1f} | {row['out_of_order']:.0f} |"
            )
    mine = ours["at-least-once"]
    for strategy, row in theirs.items():
        field = "from_first_deadline_s"
        rows.append(
            f"| ratio | exactly once to {strategy} | {ratio(mine['publish_s'], row['publish_s'])} "
            f"| {ratio(mine[field], row[field])} | {ratio(mine['cpu_s'], row['cpu_s'])} | |"
        )
    return rows


def waiting_table(count: int, due_count: int, row: dict[str, float]) -> list[str]:
    """Waiting messages, as rows of Markdown."""
    return [
        f"### {count:,} messages wait", "",
        "| what | MayflyMQ |", "|---|---|",
        f"| memory per message and node, bytes | {row['bytes_per_message_node']:.0f} |",
        f"| with the log entries that are cached | {row['bytes_per_message_node_with_cache']:.0f} |",
        f"| idle CPU of three nodes, % of a core, before and while they wait | {row['idle_cpu_empty']:.1f}, "
        f"{row['idle_cpu']:.1f} |",
        f"| publishing all of them | {row['publish_s']:.0f} s, {row['publish_cpu_us']:.0f} us of CPU each |",
        f"| longest silence of a node meanwhile | {row['silence_ms']:.0f} ms |",
        f"| lag of {due_count:,} deadlines in other queues, p50 / p99 / longest | {row['lag_p50_ms']:.0f} / "
        f"{row['lag_p99_ms']:.0f} / {row['lag_max_ms']:.0f} ms |",
    ]


def lease_table(ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Leased queues, as rows of Markdown."""
    rows = [
        f"### {ours['queues']:,.0f} queues with a lease", "",
        "| what | MayflyMQ | RabbitMQ | ratio |", "|---|---|---|---|",
    ]

    def row(name: str, field: str, form: str) -> None:
        if field in ours:
            mine, other = ours[field], theirs.get(field)
            compared = "" if other is None else ratio(mine, other) if other else "-"
            rows.append(f"| {name} | {mine:{form}} | {'-' if other is None else f'{other:{form}}'} | {compared} |")

    row("queues", "queues", ",.0f")
    row("declared per second", "declares_per_s", ",.0f")
    row("CPU per declare, us, 3 nodes", "declare_cpu_us", ",.0f")
    row("longest silence of a node meanwhile, ms", "silence_ms", ".0f")
    row("memory per queue, bytes, 3 nodes", "bytes_per_queue", ",.0f")
    row("memory per queue and node, bytes", "bytes_per_queue_node", ",.0f")
    row("idle CPU before, % of a core, 3 nodes", "idle_cpu_empty", ".1f")
    row("idle CPU with all queues", "idle_cpu", ".1f")
    row("lease, s", "lease_s", ".0f")
    row("all gone after the end of the last lease, s", "gone_after_last_lease_s", ".1f")
    row("CPU to be rid of all, s, 3 nodes", "gone_cpu_s", ".1f")
    row("longest silence of a node meanwhile, ms", "gone_silence_ms", ".0f")
    return rows


def heading(arguments: argparse.Namespace) -> list[str]:
    """Where and how this was measured."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )
    load = os.getloadavg()[0]
    command = "python bench/expiry.py " + " ".join(sys.argv[1:])
    return [
        f"`{command.strip()}` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}: {os.cpu_count()} cores ({model}), "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, everything on one machine, "
        f"load average {load:.1f} at the end.", "",
    ]


BEGIN: Final = "<!-- figures: written by bench/expiry.py -->"
END: Final = "<!-- end of figures -->"


def write_figures(page: Path, lines: Sequence[str]) -> None:
    """Put the figures between their marks in a page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{page} has no place for figures: {BEGIN} ... {END}")
    page.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + after)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--divide-by", type=int, default=1, metavar="N", help="an Nth of the sizes")
    parser.add_argument("--only", default="dead,waiting,leases", help="parts, with commas between")
    parser.add_argument("--skip-rabbitmq", action="store_true")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, help="a page with a place for the figures")
    arguments = parser.parse_args()
    parts = set(arguments.only.split(","))
    if unknown := parts - {"dead", "waiting", "leases"}:
        parser.error(f"--only: unknown part {', '.join(sorted(unknown))}")
    size = arguments.divide_by
    dead, waiting, due, leases = 100_000 // size, 1_000_000 // size, 20_000 // size, 100_000 // size
    few = 600 if size == 1 else 300
    beside = has_rabbitmq() and not arguments.skip_rabbitmq
    tables: list[str] = []
    theirs: dict[str, dict[str, float]] = {}
    their_leases: dict[str, float] = {}
    if beside and parts & {"dead", "leases"}:
        with rabbitmq() as cluster:
            if "leases" in parts:
                their_leases = show("RabbitMQ leases", measure_leases(cluster, few, until_gone=False))
            if "dead" in parts:
                for strategy in ("at-least-once", "at-most-once"):
                    theirs[strategy] = show(f"RabbitMQ {strategy}", measure_dead_letters(cluster, dead, strategy))
    if "dead" in parts:
        with mayfly(arguments.source) as cluster:
            ours = {"at-least-once": show("MayflyMQ dead", measure_dead_letters(cluster, dead, "at-least-once"))}
        tables += [*dead_table(dead, ours, theirs), ""]
    if "waiting" in parts:
        with mayfly(arguments.source) as cluster:
            result = show("MayflyMQ waiting", measure_waiting(cluster, waiting, due))
        tables += [*waiting_table(waiting, due, result), ""]
    if "leases" in parts:
        with mayfly(arguments.source) as cluster:
            result = show("MayflyMQ leases", measure_leases(cluster, leases, until_gone=True))
        tables += [*lease_table(result, their_leases), ""]
    lines = heading(arguments) + tables
    print("\n" + "\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, lines[:-1])


if __name__ == "__main__":
    main()
