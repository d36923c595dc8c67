"""`make long-line`: nodes under mixed load for hours; memory, files, descriptors and latency have to stay as they are.

    python -P tests/reliability/run_long_line.py [--minutes 120] [--change-minutes 5] [--rate 100] [--write FILE]

Three nodes. Messages are published and consumed all the time; others expire into another queue, wait for their time, or
stand in queues whose leases are renewed twice and then end. Every so many minutes a fourth node joins, and is removed
when all is settled. The medians of the last third of the run may not be much more than those of the middle third. When
the load ends, no leased queue may be left but the last few, and soon none.
Runs the MayflyMQ that this Python has installed, or with PYTHONPATH=. the source tree. Exit code 0: all stayed flat,
and nothing was lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.integration.growing import Growing

NODES: Final = (1, 2, 3)
PARTS: Final = 6
TTL_MS: Final = 2_000
DELAY_MS: Final = 3_000
LEASE_MS: Final = 6_000
LEASED: Final = "leased-"
LEASES_ALIVE: Final = 10
"""A new one every third of a lease, each renewed with the next two: about six have not ended, and some more where the
machine is busy."""
ENDED_WITHIN_S: Final = 60.0
SAMPLE_S: Final = 5.0
GROWTH: Final = {
    "memory, MiB": 1.15, "descriptors": 1.1, "files": 1.5, "on disk, MiB": 1.5, "p99 of a confirm, ms": 2.0,
}  # fmt: skip
"""So many times as much as in the middle third may the last third have, by its median."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look found."""

    at_s: float
    values: dict[str, float]


class MixedLoad(threading.Thread):
    """One client that publishes what expires and what waits, declares what is leased, takes what comes of it, and times
    confirms."""

    def __init__(self, nodes: Growing) -> None:
        super().__init__(name="mixed load", daemon=True)
        self._nodes = nodes
        self._enough = threading.Event()
        self.confirms_s: list[tuple[float, float]] = []
        """When, and how long it took."""
        self.sent = {"expired": 0, "waited": 0, "leases": 0}
        self.came = {"expired": 0, "waited": 0}
        self.error = ""

    def run(self) -> None:
        """The thread."""
        try:
            self._work()
        except Exception as error:  # whatever the client raises is what a user would have seen
            self.error = repr(error)

    def enough(self) -> None:
        """Publish no more; take what is still to come."""
        self._enough.set()

    def _work(self) -> None:
        from tests.integration.clients import channel

        with channel(self._nodes, 2, confirms=True) as opened:
            expires = {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"}
            opened.queue_declare("aging", durable=True, arguments=expires)
            opened.queue_declare("expired", durable=True)
            opened.queue_declare("waited", durable=True, arguments={"x-allow-schedule": True})
            leased_s = 0.0
            while not self._enough.is_set():
                self._publish(opened, "aging", "expired", {})
                self._publish(opened, "waited", "waited", {"x-delay": DELAY_MS})
                if time.monotonic() >= leased_s + LEASE_MS / 3_000:
                    self._lease(opened, self.sent["leases"])
                    leased_s = time.monotonic()
                self._take(opened)
                self._enough.wait(0.05)
            until_s = time.monotonic() + 60
            while self.came != {name: self.sent[name] for name in self.came} and time.monotonic() < until_s:
                self._take(opened)
                time.sleep(0.05)

    def _publish(self, opened: Any, key: str, name: str, headers: dict[str, Any]) -> None:
        import pika

        begun_s = time.monotonic()
        opened.basic_publish("", key, b"." * 200, pika.BasicProperties(delivery_mode=2, headers=headers))
        ended_s = time.monotonic()
        self.confirms_s.append((ended_s, ended_s - begun_s))
        self.sent[name] += 1

    def _lease(self, opened: Any, number: int) -> None:
        """A new one, and the two before it are used once more."""
        for each in range(max(0, number - 2), number + 1):
            opened.queue_declare(f"{LEASED}{each}", durable=True, arguments={"x-expires": LEASE_MS})
        self.sent["leases"] += 1

    def _take(self, opened: Any) -> None:
        for name in self.came:
            while opened.basic_get(name, auto_ack=True)[0] is not None:
                self.came[name] += 1


def look(nodes: Growing, load: MixedLoad, since_s: float) -> dict[str, float]:
    """What three nodes have now, and what clients waited since."""
    waited = sorted(took_s for at_s, took_s in list(load.confirms_s) if at_s >= since_s)
    folders = [nodes.plan(id).data_dir for id in NODES]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {
        "memory, MiB": sum(nodes.resident_bytes(id) for id in NODES) / 2**20,
        "descriptors": sum(len(os.listdir(f"/proc/{nodes.pid(id)}/fd")) for id in NODES),
        "files": len(files),
        "on disk, MiB": sum(_blocks(file) for file in files) * 512 / 2**20,
        "p99 of a confirm, ms": 1_000 * waited[int(0.99 * (len(waited) - 1))] if waited else 0.0,
    }


def overdue(queues: Iterable[str], leases: int) -> list[str]:
    """The queues whose leases should have ended, of all queues there are: those that were leased, but for the last."""
    numbers = [int(name.removeprefix(LEASED)) for name in queues if name.startswith(LEASED)]
    return [f"{LEASED}{number}" for number in sorted(numbers) if number < leases - LEASES_ALIVE]


def _queues(nodes: Growing) -> list[str]:
    """The names of all queues, over HTTP."""
    from tests.integration.operators import ask

    code, rows = ask(nodes, 1, "GET", "queues/%2F")
    assert code == 200, rows
    return [str(row["name"]) for row in rows]


def _leases_end(nodes: Growing) -> bool:
    return not any(name.startswith(LEASED) for name in _queues(nodes))


def _blocks(file: Path) -> int:
    """Of a file that may be gone by now."""
    try:
        return file.stat().st_blocks
    except FileNotFoundError:
        return 0


def parts_of(samples: list[Sample]) -> list[dict[str, float]]:
    """The medians of equal parts of the run."""
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    parts: list[list[Sample]] = [[] for _ in range(PARTS)]
    for sample in samples:
        parts[min(PARTS - 1, int(PARTS * (sample.at_s - first_s) / ((last_s - first_s) or 1.0)))].append(sample)
    return [
        {name: statistics.median(each.values[name] for each in part) for name in GROWTH} for part in parts if part
    ]


def what_grew(parts: list[dict[str, float]]) -> list[str]:
    """What the last third of the run has more of than the middle third, by more than may be."""
    third = max(1, len(parts) // 3)
    grown = []
    for name, times in GROWTH.items():
        middle = statistics.median(part[name] for part in parts[-2 * third : -third] or parts[:1])
        last = statistics.median(part[name] for part in parts[-third:])
        if last > times * max(middle, 1.0):
            grown.append(f"{name}: {middle:.1f} in the middle, {last:.1f} in the end")
    return grown


def table(parts: list[dict[str, float]], minutes: float) -> list[str]:
    """Markdown: a row for each part."""
    lines = ["| minutes | " + " | ".join(GROWTH) + " |", "|" + "---|" * (1 + len(GROWTH))]
    for place, part in enumerate(parts):
        span = f"{place * minutes / PARTS:.0f} to {(place + 1) * minutes / PARTS:.0f}"
        lines.append(f"| {span} | " + " | ".join(f"{part[name]:.1f}" for name in GROWTH) + " |")
    return lines


def main() -> None:
    """Run, print, write; ends the process."""
    from tests.integration.clients import Consumer, Publisher, channel, judge
    from tests.integration.growing import Growing
    from tests.reliability.run_chaos import replace_figures
    from tests.waiting import wait_for

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--change-minutes", type=float, default=5.0, help="a node joins and goes so often")
    parser.add_argument("--rate", type=float, default=100.0, help="messages per second that are consumed at once")
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mayfly-long-line-"))
    print(f"{arguments.minutes:g} minutes; data in {folder}", flush=True)
    broken: list[str] = []
    samples: list[Sample] = []
    changes = 0
    with Growing(folder) as nodes:
        nodes.start(1)
        nodes.until_serving()
        for number in NODES[1:]:
            nodes.join(number, through=1)
        nodes.until_settled(1, *NODES)
        with channel(nodes, 1) as opened:
            opened.queue_declare("line", durable=True)
        publisher = Publisher(nodes, 1, "line", rate=arguments.rate, size=500)
        consumer, load = Consumer(nodes, 3, "line").begin(), MixedLoad(nodes)
        publisher.start()
        load.start()
        begun_s = looked_s = time.monotonic()
        changed_s = begun_s
        while (now_s := time.monotonic()) < begun_s + 60 * arguments.minutes and load.is_alive():
            if now_s >= changed_s + 60 * arguments.change_minutes:
                _change_members(nodes)
                changed_s = time.monotonic()
                changes += 1
            samples.append(Sample(time.monotonic() - begun_s, look(nodes, load, looked_s)))
            looked_s = time.monotonic()
            time.sleep(SAMPLE_S)
        left = overdue(_queues(nodes), load.sent["leases"])
        if left:
            broken.append(f"{len(left)} leases have not ended: {', '.join(left[:5])}")
        publisher.finish()
        load.enough()
        load.join()
        consumer.until_received(len(publisher.confirmed))
        consumer.finish()
        try:
            judge(publisher, [consumer])
        except AssertionError as error:
            broken.append(str(error))
        broken += [load.error] if load.error else []
        try:
            wait_for(lambda: _leases_end(nodes), "the end of the last leases", ENDED_WITHIN_S, every_s=0.2)
        except AssertionError as error:
            broken.append(str(error))
        for name, came in load.came.items():
            if came != load.sent[name]:
                broken.append(f"{name}: {load.sent[name]} were sent, {came} came")
        broken += nodes.log_faults()
    parts = parts_of(samples)
    broken += what_grew(parts)
    text = "\n".join([
        f"{time.strftime('%Y-%m-%d')}, {arguments.minutes:g} minutes, 3 nodes, {len(publisher.confirmed)} messages "
        f"consumed at once, {load.sent['expired']} expired, {load.sent['waited']} that waited, {load.sent['leases']} "
        f"leases, of which {len(left)} had not ended in time, {changes} times a node joined and went; "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"load average {os.getloadavg()[1]:.1f}. Sums of the three nodes, medians of each part:",
        "",
        *table(parts, arguments.minutes),
        "",
        f"Not flat, or lost: {'; '.join(broken) or 'nothing'}.",
    ])  # fmt: skip
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, "long-line", text)
    shutil.rmtree(folder)
    if broken:
        sys.exit("; ".join(broken))


def _change_members(nodes: Growing) -> None:
    """A fourth node joins, and is removed when all is settled."""
    nodes.join(4, through=2)
    nodes.until_settled(1, *NODES, 4)
    nodes.remove("node4", witness=1)
    nodes.ends_by_itself(4, within_s=120)
    nodes.until_settled(1, *NODES)
    shutil.rmtree(nodes.plan(4).data_dir)


if __name__ == "__main__":
    main()
