"""What this machine takes at least for what a broker cannot do without: copying, sockets, syncing, storing.

All in CPU microseconds for 1 KB of a message, in batches as a busy node makes them, in this process; for what waits for
the disk also the milliseconds of a batch.
"""

import contextlib
import os
import socket
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb

MESSAGE_BYTES: Final = 1024
BATCH_BYTES: Final = 256 * 1024
_ROUNDS: Final = 200
_SYNCED_ROUNDS: Final = 20
_REPEATS: Final = 5


@dataclass(frozen=True)
class Limit:
    """CPU for a message, and how long a batch takes where that is more than CPU."""

    name: str
    cpu_us: float
    batch_ms: float | None = None

    def __str__(self) -> str:
        wait = "" if self.batch_ms is None else f", {self.batch_ms:.1f} ms a batch"
        return f"{self.name} {self.cpu_us:.2f} us{wait}"


def measure_limits(folder: Path) -> dict[str, Limit]:
    """By short name. The disk is the one of the folder."""
    return {limit.name: limit for limit in (copy(), checksum(), loopback(), sync(folder), store(folder))}


def copy() -> Limit:
    """A message's bytes copied into an object of its own."""
    batch = memoryview(os.urandom(BATCH_BYTES))

    def once() -> None:
        for offset in range(0, BATCH_BYTES, MESSAGE_BYTES):
            bytes(batch[offset : offset + MESSAGE_BYTES])

    return Limit("copy of 1 KB", _cpu_us(once))


def checksum() -> Limit:
    """CRC-32 of a batch."""
    batch = os.urandom(BATCH_BYTES)
    return Limit("CRC-32 of 1 KB", _cpu_us(lambda: zlib.crc32(batch)))


def loopback() -> Limit:
    """A batch through a TCP connection on loopback, both ends counted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * BATCH_BYTES)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * BATCH_BYTES)
    sender.setblocking(False)
    batch, room = memoryview(os.urandom(BATCH_BYTES)), bytearray(BATCH_BYTES)

    def once() -> None:
        sent = received = 0
        while received < BATCH_BYTES:
            if sent < BATCH_BYTES:
                with contextlib.suppress(BlockingIOError):  # The other end has to take some first.
                    sent += sender.send(batch[sent:])
            received += receiver.recv_into(room)

    with sender, receiver:
        return Limit("send and receive of 1 KB", _cpu_us(once))


def sync(folder: Path) -> Limit:
    """A batch written and synced in a file whose blocks are there."""
    batch = os.urandom(BATCH_BYTES)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, 64 * BATCH_BYTES)
        times: list[float] = []

        def once() -> None:
            start = time.perf_counter()
            os.pwrite(file.fileno(), batch, len(times) % 64 * BATCH_BYTES)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)

        cpu_us = _cpu_us(once, _SYNCED_ROUNDS)
    return Limit("write and fdatasync of 1 KB", cpu_us, statistics.median(times) * 1000)


def store(folder: Path) -> Limit:
    """A batch as one value of LMDB, committed, in a file whose blocks are there."""
    batch = os.urandom(BATCH_BYTES)
    times: list[float] = []
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        lmdb.open(place, map_size=1 << 30) as environment,
        (Path(place) / "data.mdb").open("rb+") as file,
    ):
        # Blocks ahead of use, as a node's log has them.
        os.posix_fallocate(file.fileno(), 0, 2 * _REPEATS * _SYNCED_ROUNDS * BATCH_BYTES)

        def once() -> None:
            start = time.perf_counter()
            with environment.begin(write=True) as transaction:
                transaction.put(len(times).to_bytes(8, "big"), batch)
            times.append(time.perf_counter() - start)

        cpu_us = _cpu_us(once, _SYNCED_ROUNDS)
    return Limit("put and commit of 1 KB in LMDB", cpu_us, statistics.median(times) * 1000)


def _cpu_us(once: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """CPU of a batch, for each message in it: the best of a few, the others were disturbed."""
    best_s = float("inf")
    for _ in range(_REPEATS):
        start_s = time.process_time()
        for _ in range(rounds):
            once()
        best_s = min(best_s, time.process_time() - start_s)
    return best_s / rounds / (BATCH_BYTES / MESSAGE_BYTES) * 1e6
