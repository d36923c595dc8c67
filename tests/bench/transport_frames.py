"""What a frame costs between two processes over loopback: python -m tests.bench.transport_frames

One stream each way, nothing else: frames of small messages (what a cluster says at rest) and frames with one entry
(what it says under load). First questions and answers, one at a time, so that each is read and written alone; then each
frame when the one before it has left; then as quickly as they go, merged where the socket is not ready. CPU is that of
the whole process, gRPC's threads included.
"""

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import Entry, MessageType, RaftMessage
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings

REPORT = 1
"""Kind of the notice that asks the receiver for its figures, and of its answer."""


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def small_frame(number: int) -> Frame:
    """Heartbeats of four groups and the clocks of sixteen."""
    frame = Frame(number)
    for group in range(4):
        frame.raft.append((group, RaftMessage(MessageType.HEARTBEAT, 2, 1, 7, commit=number)))
    for group in range(16):
        frame.group_clocks.append((group, 1_700_000_000_000 + number, number))
    return frame


def heartbeats(number: int) -> Frame:
    """What a leader of all groups of a node with 16 shards says at rest."""
    frame = Frame(1_763_764_000_000 + number)
    for group in range(17):
        frame.raft.append((group, RaftMessage(MessageType.HEARTBEAT, 2, 1, 7, commit=100_000 + number)))
    return frame


def append_frame(number: int, size_bytes: int) -> Frame:
    """One append with one entry."""
    frame = Frame(number)
    entry = Entry(7, number + 1, 0, bytes(size_bytes))
    frame.raft.append((1, RaftMessage(MessageType.APP, 2, 1, 7, 7, number, number, entries=[entry])))
    return frame


class Side:
    """One of the two processes."""

    def __init__(self, node_id: int, listen: str) -> None:
        self.other = 3 - node_id
        self.heard = asyncio.Event()
        self.report: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.received = 0
        self.up = False
        self.transport = PeerTransport(
            LocalPeer(node_id, f"node-{node_id}", "bench"),
            {},
            PeerEvents(on_frame=self.on_frame, on_up=self.on_up),
            TransportSettings(listen, Path(tempfile.mkdtemp())),
        )

    def on_up(self, peer: int) -> None:
        self.up = True
        self.transport.send(peer, Frame())

    def on_frame(self, peer: int, frame: Frame) -> None:
        self.received += 1
        self.heard.set()
        for kind, data in frame.notices:
            if kind != REPORT:
                continue
            if data:
                self.report.set_result([float(word) for word in data.split()])
            else:
                answer = Frame(0)
                answer.notices.append((REPORT, b"%d %f" % (self.received, cpu_seconds())))
                self.transport.send(peer, answer)

    async def ask(self) -> list[float]:
        """Frames received and CPU seconds of the other side, when it has everything sent so far."""
        self.report = asyncio.get_running_loop().create_future()
        question = Frame(0)
        question.notices.append((REPORT, b""))
        self.transport.send(self.other, question)
        return await self.report


async def receive(address: str) -> None:
    side = Side(2, "127.0.0.1:0")
    await side.transport.start()
    await side.transport.set_peers({1: address})
    print(side.transport.port, flush=True)
    await asyncio.Event().wait()


async def measure(side: Side, name: str, frames: list[Frame], size_bytes: int, merged: bool) -> None:
    count = len(frames)
    counters = side.transport.counters[2]
    before, cpu, start = await side.ask(), cpu_seconds(), time.perf_counter()
    sent_before = counters.frames_sent
    most_waiting_bytes = 8 << 20 if merged else 0
    for frame in frames:
        side.transport.send(2, frame)
        while side.transport._links[2].send_queue.waiting_bytes > most_waiting_bytes:  # noqa: ASYNC110 - the loop has to turn
            await asyncio.sleep(0)
    after = await side.ask()
    seconds = time.perf_counter() - start
    messages = counters.frames_sent - sent_before
    sender, receiver = (cpu_seconds() - cpu) / count * 1e6, (after[1] - before[1]) / count * 1e6
    print(
        f"{name:28} {count:5} frames in {messages:5} messages {seconds / count * 1e6:7.1f} us each,"
        f" CPU {sender:6.1f} + {receiver:6.1f} us, {count * size_bytes / seconds / 1e6:6.1f} MB/s"
    )


async def measure_questions(side: Side, count: int) -> None:
    before, cpu, start = await side.ask(), cpu_seconds(), time.perf_counter()
    waits_s = []
    for _ in range(count):
        asked = time.perf_counter()
        after = await side.ask()
        waits_s.append(time.perf_counter() - asked)
        await asyncio.sleep(0.001)
    seconds = time.perf_counter() - start
    sender, receiver = (cpu_seconds() - cpu) / count * 1e6, (after[1] - before[1]) / count * 1e6
    waits_s.sort()
    median_us, late_us = waits_s[count // 2] * 1e6, waits_s[count * 99 // 100] * 1e6
    print(
        f"{'questions, one at a time':28} {count:5} and as many answers, {seconds:.1f} s, CPU {sender:6.1f} +"
        f" {receiver:6.1f} us, wait {median_us:.0f} us, of a hundred one {late_us:.0f} us"
    )


def codec_cost(name: str, frame: Frame, repeats: int = 1000) -> None:
    encode = decode = 1e9
    # CPU time, the least of several: what else the machine does is not the codec's.
    for _ in range(7):
        start = time.process_time()
        for _ in range(repeats):
            data = codec.encode_frame(frame)
        middle = time.process_time()
        for _ in range(repeats):
            codec.decode_frame(data, 1, 2)
        end = time.process_time()
        encode, decode = min(encode, (middle - start) / repeats * 1e6), min(decode, (end - middle) / repeats * 1e6)
    print(f"{name:28} {len(data):7} bytes   encode {encode:6.1f} us   decode {decode:6.1f} us")


def start_receiver(port: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.transport_frames", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


async def send() -> None:
    codec_cost("codec, clock alone", Frame(1_763_764_000_000))
    codec_cost("codec, small frame", small_frame(1))
    codec_cost("codec, 17 heartbeats", heartbeats(1))
    codec_cost("codec, 1 KB entry", append_frame(1, 1_000))
    codec_cost("codec, 100 KB entry", append_frame(1, 100_000))
    side = Side(1, "127.0.0.1:0")
    await side.transport.start()
    await side.transport.set_peers({2: "127.0.0.1:9"})
    other = start_receiver(side.transport.port)
    try:
        assert other.stdout is not None
        port = int(await asyncio.to_thread(other.stdout.readline))
        await side.transport.set_peers({2: f"127.0.0.1:{port}"})
        await side.heard.wait()
        while not side.up:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)
        await measure_questions(side, 2000)
        for merged in (False, True):
            how = "merged" if merged else "one by one"
            small = [small_frame(number) for number in range(4000)]
            await measure(side, f"small frames, {how}", small, 0, merged)
            for size_bytes, count in ((1_000, 4000), (16_000, 3000), (100_000, 1500), (1_000_000, 150)):
                appends = [append_frame(number, size_bytes) for number in range(count)]
                await measure(side, f"{size_bytes // 1000} KB entries, {how}", appends, size_bytes, merged)
    finally:
        other.kill()
        await asyncio.to_thread(other.communicate)
        await side.transport.stop()


if __name__ == "__main__":
    uvloop.run(receive(sys.argv[1]) if len(sys.argv) > 1 else send())
