"""What this node sends to one peer."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

import grpc
import grpc.aio

from cluster import limits
from cluster.frame import Frame
from cluster.log.batch import LogError
from cluster.log.snapshot_codec import OutgoingSnapshot, outgoing
from cluster.raft.messages import Message, MessageType, Snapshot
from cluster.rpc import peer_pb2
from cluster.transport import codec, options
from cluster.transport.counters import PeerCounters
from cluster.transport.gate import FINAL_REFUSALS
from cluster.transport.steps import run_steps

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
        executor: Executor,
    ) -> None:
        """The executor reads what snapshots are made of."""
        self._executor = executor
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
                try:
                    reason = await self._transfer(channel, group, message, snapshot)
                except Exception as error:  # whatever it is: its fate is reported, and the others get their turn
                    log.exception("snapshot of group %d for node %d", group, self._peer)
                    reason = str(error) or "failed"
                if reason:
                    self._counters.snapshots_failed += 1
                    log.info("snapshot of group %d did not reach node %d: %s", group, self._peer, reason)
                    # gRPC would wait before it connects again; what stopped is to go on soon.
                    await channel.close()
                    channel = self._channel()
                else:
                    self._counters.snapshots_sent += 1
                newest, newest_snapshot = self._snapshots.pop(group)
                if newest_snapshot is snapshot and newest.term == message.term:
                    _call(self._on_snapshot_sent, self._peer, group, not reason)
                else:
                    # Another one took its place meanwhile; it goes behind those that wait.
                    self._snapshots[group] = (newest, newest_snapshot)
        finally:
            self._snapshot_task = None
            await channel.close()

    async def _transfer(
        self, channel: grpc.aio.Channel, group: int, message: Message, snapshot: Snapshot
    ) -> str:
        """Send one snapshot, or what the peer does not have of it yet; why it failed, or ""."""
        source = outgoing(group, snapshot)
        try:
            await run_steps(self._executor, source.prepare())
        except LogError as error:
            return str(error)
        metadata = snapshot.metadata
        name = codec.SnapshotName(group, metadata.index, metadata.term, source.total_bytes, source.digest)
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.SEND_SNAPSHOT)()
        try:
            await _in_time(call.write(codec.encode_snapshot_header(self._hello, message, metadata, name)))
            # The peer takes few snapshots at once: wait for our turn, as long as it lives.
            answer = tuple(await call.initial_metadata())
            if options.CONSENT not in answer:
                return (await _status(call))[1]
            offset = _offset_in(answer, source.total_bytes)
            if offset is None:
                call.cancel()
                return "the peer has more of it than there is"
            if offset:
                self._counters.snapshots_resumed += 1
                log.info("snapshot of group %d for node %d goes on at byte %d", group, self._peer, offset)
            await self._send_pieces(call, source, offset)
            await _in_time(call.done_writing())
            # The peer compares all of it with the digest, which takes its time.
            await call
        except TimeoutError:
            call.cancel()
            return f"no progress for {limits.SNAPSHOT_STALL_SECONDS} s"
        except LogError as error:
            call.cancel()
            return str(error)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return (await _status(call))[1] or "the stream broke"
        return ""

    async def _send_pieces(self, call: grpc.aio.StreamUnaryCall, source: OutgoingSnapshot, offset: int) -> None:
        pieces = source.pieces(offset, limits.SNAPSHOT_CHUNK_BYTES)
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(self._executor, next, pieces, b""):
            data = codec.encode_snapshot_data(offset, piece)
            offset += len(piece)
            self._counters.bytes_sent += len(data)
            await _in_time(call.write(data))

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


def _offset_in(answer: tuple[tuple[str, str], ...], total_bytes: int) -> int | None:
    """From where on the peer wants a snapshot; None if there is no such place."""
    wanted = next((value for key, value in answer if key == options.SNAPSHOT_OFFSET), "0")
    plausible = wanted.isascii() and wanted.isdigit() and len(wanted) <= len(str(total_bytes))
    return int(wanted) if plausible and int(wanted) <= total_bytes else None


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
