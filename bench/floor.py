"""`make bench-floor`: what a message alone takes at least: the same wakes, writes, syncs and sockets, and nothing else.

    python -P bench/floor.py [--seconds 5] [--rounds 5] [--write FILE]

Three processes with the event loop that nodes have (uvloop), connected on loopback. None of them reads or decides
anything; a message of 1 KB goes the way that it goes through three nodes:

    publisher -> leader -> follower -> its writer thread: write and fdatasync -> its loop -> leader
                   +-> its own writer thread, which nobody waits for
                 leader -> confirm to the publisher, delivery to the consumer -> its acknowledgement, which waits for
                   the next message to travel with
                   +-> the other follower, sixteen messages at once

Beside it, in turn, MayflyMQ with the same loads: 1 000 messages/s, and one message at a time. What MayflyMQ takes
beyond the floor is what could be saved at the most, short of another language, another loop, or no syncs.
"""

import argparse
import asyncio
import contextlib
import datetime
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, cast

import uvloop

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import BrokerFailed, Cluster
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly

RATE: Final = 1_000
_MESSAGE: Final = bytes(1060)
_CONFIRM: Final = bytes(21)
_ACKNOWLEDGEMENT: Final = bytes(21)
_ANSWER: Final = bytes(40)
_HEAD: Final = struct.Struct(">II")
"""Octets of an entry, and for how many messages somebody waits."""
_LATE: Final = 16
"""Messages that go to the follower that nobody waits for, at once."""
_FILE_BYTES: Final = 16 << 20
_BASE_PORT: Final = int(os.environ.get("BASE_PORT", "6872")) + 20
_PUBLISHERS, _CONSUMERS, _FOLLOWERS = range(_BASE_PORT, _BASE_PORT + 3)
Row = dict[str, float]


class Disk:
    """A file that is written in a thread, each write synced before the next."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._file = os.open(folder / "log", os.O_RDWR | os.O_CREAT)
        os.write(self._file, bytes(_FILE_BYTES))
        os.fsync(self._file)
        self._given: SimpleQueue[tuple[bytes, Callable[[], object] | None]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, data: bytes, done: Callable[[], object] | None) -> None:
        """Never waits. `done` is called in the loop once it is synced; None: nobody waits."""
        self._given.put((data, done))

    def _run(self) -> None:
        at = 0
        while True:
            given = [self._given.get()]
            with contextlib.suppress(Empty):
                while True:
                    given.append(self._given.get_nowait())
            batch = b"".join([data for data, _ in given])
            at = at + len(batch) if at + 2 * len(batch) < _FILE_BYTES else 0
            os.pwrite(self._file, batch, at)
            os.fdatasync(self._file)
            waiting = [done for _, done in given if done is not None]
            if waiting:
                self._loop.call_soon_threadsafe(_call_all, waiting)


def _call_all(waiting: list[Callable[[], object]]) -> None:
    for done in waiting:
        done()


class Ends(asyncio.Protocol):
    """A connection whose octets are counted in units of a known length."""

    def __init__(self, unit: int, take: Callable[[int], None], made: Callable[[asyncio.Transport], None]) -> None:
        self._unit, self._take, self._made = unit, take, made
        self._octets = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        units, self._octets = divmod(self._octets + len(data), self._unit)
        if units:
            self._take(units)


class Leader:
    """The node that the clients are at, and that decides when a message is replicated."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = Disk(folder, loop)
        self._publisher: asyncio.Transport | None = None
        self._consumer: asyncio.Transport | None = None
        self._followers: list[asyncio.Transport] = []
        self._acknowledged = self._late = 0

    async def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take what comes."""
        def publisher(transport: asyncio.Transport) -> None:
            self._publisher = transport

        def consumer(transport: asyncio.Transport) -> None:
            self._consumer = transport

        ends = {
            _PUBLISHERS: lambda: Ends(len(_MESSAGE), self._published, publisher),
            _CONSUMERS: lambda: Ends(len(_ACKNOWLEDGEMENT), self._acknowledge, consumer),
            _FOLLOWERS: lambda: Ends(len(_ANSWER), self._answered, self._followers.append),
        }
        for port, make in ends.items():
            await loop.create_server(make, "127.0.0.1", port)

    def _published(self, count: int) -> None:
        entry = _MESSAGE * count + _ACKNOWLEDGEMENT * self._acknowledged
        self._acknowledged = 0
        self._followers[0].write(_HEAD.pack(len(entry), count) + entry)
        self._disk.write(entry, None)
        self._late += count
        if self._late >= _LATE:
            late = _MESSAGE * self._late
            self._followers[1].write(_HEAD.pack(len(late), 0) + late)
            self._late = 0

    def _acknowledge(self, count: int) -> None:
        self._acknowledged += count

    def _answered(self, count: int) -> None:
        if self._publisher is not None and not self._publisher.is_closing():
            self._publisher.write(_CONFIRM * count)
        if self._consumer is not None and not self._consumer.is_closing():
            self._consumer.write(_MESSAGE * count)


class Follower(asyncio.Protocol):
    """Writes what comes, and answers once it is synced, for as many messages as the head of an entry says."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = Disk(folder, loop)
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, count = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            entry, self._buffer = self._buffer[_HEAD.size : end], self._buffer[end:]
            self._disk.write(entry, partial(self._transport.write, _ANSWER * count) if count else None)


async def play(place: int, folder: Path) -> None:
    """Be one of the three, until ended."""
    loop = asyncio.get_running_loop()
    if place == 0:
        await Leader(folder, loop).listen(loop)
    else:
        await loop.create_connection(lambda: Follower(folder, loop), "127.0.0.1", _FOLLOWERS)
    print("serves", flush=True)
    await asyncio.Event().wait()


@contextmanager
def floor() -> Iterator[Cluster]:
    """The three processes. Raises BrokerFailed."""
    with tempfile.TemporaryDirectory(prefix="mayfly-floor-") as name, contextlib.ExitStack() as ends:
        pids = []
        for place in range(3):
            folder = Path(name) / str(place)
            folder.mkdir()
            words = [sys.executable, "-P", __file__, "--play", str(place), str(folder)]
            process = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
            ends.callback(process.send_signal, signal.SIGKILL)
            if process.stdout is None or process.stdout.readline() != b"serves\n":
                raise BrokerFailed(f"process {place} of the floor has ended")
            pids.append(process.pid)
        yield Cluster("floor", [], pids, [])


class Client:
    """A publisher, and a consumer that acknowledges, at the floor."""

    def __init__(self) -> None:
        self.publisher = socket.create_connection(("127.0.0.1", _PUBLISHERS))
        self.consumer = socket.create_connection(("127.0.0.1", _CONSUMERS))
        for each in (self.publisher, self.consumer):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._consume, daemon=True).start()
        self.confirmed_s: list[float] = []

    def _consume(self) -> None:
        octets = 0
        with contextlib.suppress(OSError):
            while data := self.consumer.recv(1 << 16):
                units, octets = divmod(octets + len(data), len(_MESSAGE))
                self.consumer.sendall(_ACKNOWLEDGEMENT * units)

    def take_confirms(self, count: int) -> None:
        """Until there are so many, each with the moment at which it came."""
        octets = 0
        while len(self.confirmed_s) < count:
            units, octets = divmod(octets + len(self.publisher.recv(1 << 16)), len(_CONFIRM))
            self.confirmed_s += [time.monotonic()] * units


def at_a_rate(cluster: Cluster, seconds: int) -> Row:
    """CPU of a message, and from due to confirmed."""
    client, count = Client(), RATE * seconds
    taking = threading.Thread(target=client.take_confirms, args=(count,), daemon=True)
    taking.start()
    cpu_s, began_s = cluster.cpu_s(), time.monotonic()
    due_s = [began_s + number / RATE for number in range(count)]
    for due in due_s:
        time.sleep(max(0.0, due - time.monotonic()))
        client.publisher.sendall(_MESSAGE)
    taking.join()
    waits = sorted(confirmed - due for due, confirmed in zip(due_s, client.confirmed_s, strict=True))
    return {"cpu_us": (cluster.cpu_s() - cpu_s) / count * 1e6, "confirm_p50_ms": waits[count // 2] * 1e3}


def one_at_a_time(cluster: Cluster, seconds: int) -> Row:
    """Confirms a second, with nothing else under way."""
    client, count, ends_s = Client(), 0, time.monotonic() + seconds
    cpu_s = cluster.cpu_s()
    while time.monotonic() < ends_s:
        client.publisher.sendall(_MESSAGE)
        count += 1
        client.take_confirms(count)
    return {"window1_s": count / seconds, "window1_cpu_us": (cluster.cpu_s() - cpu_s) / count * 1e6}


def of_the_floor(seconds: int) -> Row:
    """Both loads."""
    with floor() as cluster:
        return {**at_a_rate(cluster, seconds), **one_at_a_time(cluster, seconds)}


def of_mayfly(generator: LoadGenerator, seconds: int, source: bool) -> Row:
    """Both loads, by the load generator."""
    timed = ["--size", "1024", "--seconds", str(seconds), "--warmup", "1", "--delete-start", "--delete-end"]
    with Mayfly(source).three_nodes() as cluster:
        steady = generator.run(cluster, [*timed, "--rate", str(RATE)])
        alone = generator.run(cluster, [*timed, "--publish-only", "--window", "1"])
    return {
        "cpu_us": float(steady["broker_cpu_per_100k"]) * 10, "confirm_p50_ms": float(steady["confirm_ms"]["p50"]),
        "window1_s": float(alone["confirmed_s"]), "window1_cpu_us": float(alone["broker_cpu_per_100k"]) * 10,
    }  # fmt: skip


_NAMES: Final = {
    "cpu_us": "1 000 msg/s: CPU of a message, us", "confirm_p50_ms": "1 000 msg/s: confirm p50, ms",
    "window1_s": "one at a time: confirms a second", "window1_cpu_us": "one at a time: CPU of a message, us",
}  # fmt: skip


def report(floors: list[Row], ours: list[Row]) -> list[str]:
    """As Markdown."""
    lines = ["| medians | the floor | MayflyMQ | ratio |", "|---|---|---|---|"]
    for key, name in _NAMES.items():
        least, own = (statistics.median([row[key] for row in rows]) for rows in (floors, ours))
        lines.append(f"| {name} | {least:,.2f} | {own:,.2f} | {own / least:.2f}x |")
    return lines


def main() -> None:
    """Measure, print, write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    parser.add_argument("--rounds", type=int, default=5, help="of both, in turn")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    before = load_average()
    generator = LoadGenerator()
    floors, ours = list[Row](), list[Row]()
    try:
        for _ in range(arguments.rounds):
            floors.append(of_the_floor(arguments.seconds))
            ours.append(of_mayfly(generator, arguments.seconds, arguments.source))
            print(f"  {floors[-1]}\n  {ours[-1]}", flush=True)
    except BrokerFailed as failure:
        sys.exit(str(failure))
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.rounds} rounds; MayflyMQ {Mayfly(arguments.source).version()}.",
        "", *report(floors, ours),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/floor.py", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        uvloop.run(play(int(sys.argv[2]), Path(sys.argv[3])))
    else:
        with only_benchmark():
            main()
