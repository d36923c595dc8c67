"""Snapshots on their way to one peer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.log.batch import LogError
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, outgoing
from mayfly.cluster.raft import RaftMessage, Snapshot
from mayfly.cluster.transport import codec, options
from mayfly.cluster.transport.checksum import checksum_of
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.dialing import Dialer, give_up, status_of
from mayfly.cluster.transport.pace import BytePace
from mayfly.cluster.transport.peer_events import tell
from mayfly.cluster.transport.peer_text import printable
from mayfly.cluster.transport.proving import NotProven
from mayfly.cluster.transport.steps import run_steps

log = logging.getLogger(__name__)


class SnapshotSender:
    """Sends one after the other, on a connection of their own: heartbeats don't stand in line behind them."""

    def __init__(
        self,
        dialer: Dialer,
        counters: PeerCounters,
        executor: Executor,
        pace: BytePace,
        on_sent: Callable[[int, int, bool], None],
    ) -> None:
        """The executor reads what snapshots are made of, and they go at this pace. `on_sent` as in
        `PeerEvents.on_snapshot_sent`."""
        self._dialer = dialer
        self._counters = counters
        self._executor = executor
        self._pace = pace
        self._on_sent = on_sent
        self._waiting: dict[int, tuple[RaftMessage, Snapshot]] = {}
        """By group; the first one is on its way."""
        self._task: asyncio.Task[None] | None = None

    def send(self, group: int, message: RaftMessage, snapshot: Snapshot) -> None:
        """Send it, in place of an older one of the group that has not gone yet."""
        self._waiting[group] = (message, snapshot)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"snapshots to node {self._dialer.peer}")

    def stop(self) -> Awaitable[object]:
        """Give up what is on the way, which is to be waited for. `on_sent` is not called after this."""
        self._on_sent = _ignore
        if self._task is None:
            return asyncio.gather()
        self._task.cancel()
        return asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        channel, peer = self._dialer.channel(), self._dialer.peer
        try:
            while self._waiting:
                group, (message, snapshot) = next(iter(self._waiting.items()))
                try:
                    reason = await self._transfer(channel, group, message, snapshot)
                except Exception as error:  # whatever it is: its fate is reported, and the others get their turn
                    log.exception("snapshot of group %d for node %d", group, peer)
                    reason = str(error) or "failed"
                if reason:
                    log.info("snapshot of group %d did not reach node %d: %s", group, peer, printable(reason))
                    # gRPC would wait before it connects again; what stopped is to go on soon.
                    await channel.close()
                    channel = self._dialer.channel()
                newest, newest_snapshot = self._waiting.pop(group)
                if newest_snapshot is snapshot and newest.term == message.term:
                    tell(self._on_sent, peer, group, not reason)
                else:
                    # Another one took its place meanwhile; it goes behind those that wait.
                    self._waiting[group] = (newest, newest_snapshot)
        finally:
            self._task = None
            await channel.close()

    async def _transfer(
        self, channel: grpc.aio.Channel, group: int, message: RaftMessage, snapshot: Snapshot
    ) -> str:
        """Send one snapshot, or what the peer does not have of it yet; why it failed, or ""."""
        source = outgoing(group, snapshot)
        try:
            await run_steps(self._executor, source.prepare())
        except LogError as error:
            return str(error)
        metadata = snapshot.metadata
        name = codec.SnapshotName(group, metadata.index, metadata.term, source.total_bytes, source.digest)
        try:
            await self._dialer.prove(channel)
        except NotProven as error:
            return str(error)
        header = codec.encode_snapshot_header(self._dialer.hello, message, metadata, name)
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.SEND_SNAPSHOT)(metadata=checksum_of(header))
        try:
            await _in_time(call.write(header))
            # The peer takes few snapshots at once: wait for our turn, as long as it lives.
            answer = tuple(await call.initial_metadata())
            if options.CONSENT not in answer:
                return (await status_of(call))[1]
            offset = _offset_in(answer, source.total_bytes)
            if offset is None:
                return "the peer has more of it than there is"
            if offset:
                self._counters.snapshots_resumed += 1
                log.info("snapshot of group %d for node %d goes on at byte %d", group, self._dialer.peer, offset)
            await self._send_pieces(call, source, offset)
            await _in_time(call.done_writing())
            # The peer compares all of it with the digest, which takes its time.
            await call
        except TimeoutError:
            return f"no progress for {limits.SNAPSHOT_STALL_SECONDS} s"
        except LogError as error:
            return str(error)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return (await status_of(call))[1] or "the stream broke"
        finally:
            await give_up(call)
        return ""

    async def _send_pieces(self, call: grpc.aio.StreamUnaryCall, source: OutgoingSnapshot, offset: int) -> None:
        pieces = source.pieces(offset, limits.SNAPSHOT_CHUNK_BYTES)
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(self._executor, next, pieces, b""):
            wait_s = self._pace.take(len(piece), loop.time())
            if wait_s:
                await asyncio.sleep(wait_s)
            data = codec.encode_snapshot_data(offset, piece)
            offset += len(piece)
            self._counters.bytes_sent += len(data)
            await _in_time(call.write(data))


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
