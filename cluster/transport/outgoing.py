"""What this node sends to one peer."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from cluster import limits
from cluster.frame import Frame
from cluster.raft.messages import Message, MessageType, Snapshot
from cluster.rpc import peer_pb2
from cluster.transport import codec, options
from cluster.transport.counters import PeerCounters
from cluster.transport.gate import FINAL_REFUSALS

log = logging.getLogger(__name__)

_NEEDS_MENDING = frozenset(
    (
        grpc.StatusCode.FAILED_PRECONDITION,
        *FINAL_REFUSALS,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
"""Answers that a repetition doesn't change soon. (A node that is not known yet may be a moment later.)"""


class PeerLink:
    """The stream to one peer, opened again whenever it breaks, and the snapshots on the way to it."""

    def __init__(
        self,
        hello: peer_pb2.Hello,
        peer: int,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        server_name: str,
        counters: PeerCounters,
        on_up: Callable[[int], None],
        on_down: Callable[[int], None],
        on_snapshot_sent: Callable[[int, int, bool], None],
        on_refused: Callable[[int, str], None],
    ) -> None:
        self.address = address
        self.up = False
        self.attempts = 0
        """How often the stream was tried to be opened, since the start or the last success."""
        self._hello = hello
        self._peer = peer
        self._credentials = credentials
        self._server_name = server_name
        self._counters = counters
        self._on_up = on_up
        self._on_down = on_down
        self._on_snapshot_sent = on_snapshot_sent
        self._on_refused = on_refused
        self._queue: deque[Frame] = deque()
        self._sizes_bytes: deque[int] = deque()
        self.waiting_bytes = 0
        self._wake = asyncio.Event()
        self._complaint = ""
        self._snapshots: dict[int, tuple[Message, Snapshot]] = {}
        self._snapshot_task: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name=f"stream to node {peer}")

    # --- frames ---------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Queue a frame, or drop it when the peer is away or too far behind. Snapshots go their own way."""
        snapshots = [(group, message) for group, message in frame.raft if message.type == MessageType.SNAP]
        if snapshots:
            frame.raft = [item for item in frame.raft if item[1].type != MessageType.SNAP]
            for group, message in snapshots:
                self._send_snapshot(group, message)
        if not self.up:
            self._counters.frames_dropped += 1
            return
        size_bytes = frame.approximate_bytes()
        if self.waiting_bytes + size_bytes > limits.MAX_PEER_QUEUE_BYTES and self._queue:
            self._counters.frames_dropped += 1
            return
        self.waiting_bytes += size_bytes
        if self._queue and self._sizes_bytes[-1] + size_bytes <= limits.MAX_FRAME_BYTES:
            self._queue[-1].merge(frame)
            self._sizes_bytes[-1] += size_bytes
        else:
            self._queue.append(frame)
            self._sizes_bytes.append(size_bytes)
        self._wake.set()

    async def _run(self) -> None:
        pause_ms = limits.RECONNECT_FIRST_MS
        while True:
            channel = self._channel()
            self.attempts += 1
            try:
                code, reason = await self._stream(channel)
            except Exception as error:
                log.exception("the stream to node %d failed", self._peer)
                code, reason = grpc.StatusCode.INTERNAL, str(error)
            finally:
                was_up, self.up = self.up, False
                self._queue.clear()
                self._sizes_bytes.clear()
                self.waiting_bytes = 0
                if was_up:
                    _call(self._on_down, self._peer)
                await channel.close()
            self._complain(was_up, code, reason)
            if code in FINAL_REFUSALS:
                _call(self._on_refused, self._peer, reason)
            if was_up:
                pause_ms = limits.RECONNECT_FIRST_MS
            await asyncio.sleep((limits.REFUSED_RETRY_MS if code in _NEEDS_MENDING else pause_ms) / 1000)
            pause_ms = min(2 * pause_ms, limits.RECONNECT_LAST_MS)

    async def _stream(self, channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
        """Open the stream, send frames until it ends; why it ended."""
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.EXCHANGE)()
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_MS / 1000):
                await call.write(codec.encode_hello(self._hello))
                consents = await _consents(call)
        except TimeoutError:
            return grpc.StatusCode.DEADLINE_EXCEEDED, "no answer"
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return await _status(call)
        if not consents:
            return await _status(call)
        self._complaint = ""
        self.attempts = 0
        self._counters.connects += 1
        self._wake.clear()
        call.add_done_callback(lambda _: self._wake.set())
        self.up = True
        log.info("connected to node %d at %s", self._peer, self.address)
        _call(self._on_up, self._peer)
        try:
            while not call.done():
                if not self._queue:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                frame = self._queue.popleft()
                self.waiting_bytes -= self._sizes_bytes.popleft()
                data = codec.encode_frame(frame)
                self._counters.frames_sent += 1
                self._counters.bytes_sent += len(data)
                await call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return await _status(call)

    def _channel(self) -> grpc.aio.Channel:
        settings = options.channel_options(self._server_name)
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.address, settings, options.compression())
        return grpc.aio.secure_channel(self.address, self._credentials, settings, options.compression())

    def _complain(self, was_up: bool, code: grpc.StatusCode, reason: str) -> None:
        """Log why there is no stream; once for each reason until there is one again."""
        if was_up:
            log.info("lost node %d at %s: %s", self._peer, self.address, reason)
        elif (code in _NEEDS_MENDING or code == grpc.StatusCode.PERMISSION_DENIED) and self._complaint != reason:
            log.warning("node %d at %s refuses this node: %s", self._peer, self.address, reason)
        elif self._complaint == "":
            log.info("can't reach node %d at %s: %s", self._peer, self.address, reason)
        else:
            return
        self._complaint = reason

    # --- snapshots ------------------------------------------------------------------------------------

    def _send_snapshot(self, group: int, message: Message) -> None:
        snapshot = message.snapshot
        if snapshot is None or not self.up:
            asyncio.get_running_loop().call_soon(_call, self._on_snapshot_sent, self._peer, group, False)
            return
        self._snapshots[group] = (message, snapshot)
        if self._snapshot_task is None:
            name = f"snapshots to node {self._peer}"
            self._snapshot_task = asyncio.create_task(self._send_snapshots(), name=name)

    async def _send_snapshots(self) -> None:
        """One after the other, on a connection of their own: heartbeats don't stand in line behind them."""
        channel = self._channel()
        try:
            while self._snapshots:
                group, (message, snapshot) = next(iter(self._snapshots.items()))
                reason = await self._transfer(channel, group, message, snapshot)
                self._snapshots.pop(group, None)
                if reason:
                    self._counters.snapshots_failed += 1
                    log.info("snapshot of group %d did not reach node %d: %s", group, self._peer, reason)
                else:
                    self._counters.snapshots_sent += 1
                _call(self._on_snapshot_sent, self._peer, group, not reason)
        finally:
            self._snapshot_task = None
            await channel.close()

    async def _transfer(
        self, channel: grpc.aio.Channel, group: int, message: Message, snapshot: Snapshot
    ) -> str:
        """Send one snapshot; why it failed, or ""."""
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.SEND_SNAPSHOT)()
        try:
            await _in_time(call.write(codec.encode_snapshot_header(self._hello, group, message, snapshot)))
            # The peer takes few snapshots at once: wait for our turn, as long as it lives.
            if not await _consents(call):
                return (await _status(call))[1]
            for start in range(0, len(snapshot.data), limits.SNAPSHOT_CHUNK_BYTES):
                piece = snapshot.data[start : start + limits.SNAPSHOT_CHUNK_BYTES]
                data = codec.encode_snapshot_data(piece)
                self._counters.bytes_sent += len(data)
                await _in_time(call.write(data))
            await _in_time(call.done_writing())
            await _in_time(call)
        except TimeoutError:
            call.cancel()
            return f"no progress for {limits.SNAPSHOT_STALL_SECONDS} s"
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return (await _status(call))[1] or "the stream broke"
        return ""

    async def stop(self) -> None:
        """End the stream and what is on the way. No callback comes after this."""
        tasks = [task for task in (self._task, self._snapshot_task) if task is not None]
        self._on_up = self._on_down = _ignore
        self._on_snapshot_sent = _ignore
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ignore(*_: object) -> None:
    pass


_Result = TypeVar("_Result")


async def _in_time(step: Awaitable[_Result]) -> _Result:
    async with asyncio.timeout(limits.SNAPSHOT_STALL_SECONDS):
        return await step


async def _consents(call: grpc.aio.StreamUnaryCall) -> bool:
    """Whether the peer takes the stream; waits for its answer, or the end of the call."""
    return options.CONSENT in tuple(await call.initial_metadata())


async def _status(call: grpc.aio.StreamUnaryCall) -> tuple[grpc.StatusCode, str]:
    """Code and text with which a call ended."""
    code = await call.code()
    return code, await call.details() or code.name


def _call(callback: Callable[..., None], *arguments: object) -> None:
    try:
        callback(*arguments)
    except Exception:
        # A mistake in the layer above; the stream goes on.
        log.exception("a callback of the transport failed")
