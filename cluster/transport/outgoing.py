"""What this node sends to one peer."""

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.host.attempts import Attempts
from mayfly.cluster.log.batch import LogError
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, outgoing
from mayfly.cluster.raft import RaftMessage, Snapshot
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec, framing, options, proving
from mayfly.cluster.transport.cluster_secret import ClusterSecrets, ProvenSecret
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.frame_stream import FrameSender, host_of
from mayfly.cluster.transport.gate import FINAL_REFUSALS
from mayfly.cluster.transport.proving import NotProven
from mayfly.cluster.transport.refusals import Refusals
from mayfly.cluster.transport.said import said
from mayfly.cluster.transport.seal import seal
from mayfly.cluster.transport.send_queue import SendQueue
from mayfly.cluster.transport.steps import run_steps
from mayfly.cluster.transport.tls import NodeTls
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS, VersionRange

log = logging.getLogger(__name__)

_NEEDS_MENDING = frozenset(
    (
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNAUTHENTICATED,
        *FINAL_REFUSALS,
        grpc.StatusCode.INVALID_ARGUMENT,
    )
)
"""Answers that a repetition doesn't change soon. (A node that is not known yet may be a moment later. UNIMPLEMENTED is
not among them: older nodes say so while they ask for a place.)"""


class _NoFrameStream(Exception):
    """The peer took the Exchange, and frames can't be brought to it. The text says why."""


class PeerLink:
    """The stream to one peer, opened again whenever it breaks, and the snapshots on the way to it.

    The stream is an Exchange and a connection for frames beside it; it is up while both are open."""

    def __init__(
        self,
        hello: peer_pb2.Hello,
        peer: int,
        address: str,
        credentials: NodeTls | None,
        counters: PeerCounters,
        on_up: Callable[[int], None],
        on_down: Callable[[int], None],
        on_gone: Callable[[int], None],
        on_snapshot_sent: Callable[[int, int, bool], None],
        on_refused: Callable[[int, str, bool], None],
        executor: Executor,
        known: ClusterSecrets,
    ) -> None:
        """The executor reads what snapshots are made of. `known` is the cluster secret."""
        self._known = known
        self._executor = executor
        self.address = address
        self.up = False
        self.protocol = 0
        """The version of what is sent, once the stream was up."""
        self._attempts = Attempts(
            limits.RECONNECT_FIRST_MS, limits.RECONNECT_LAST_MS, limits.REFUSED_RETRY_MS
        )
        self._greeted = asyncio.Event()
        """The peer has come to this node since the last attempt began."""
        self._hello = peer_pb2.Hello()
        self._hello.CopyFrom(hello)
        self._hello.target = peer
        self._peer = peer
        self._credentials = credentials
        self._counters = counters
        self._on_up = on_up
        self._on_down = on_down
        self._on_gone = on_gone
        self._refusals = Refusals()
        self._on_snapshot_sent = on_snapshot_sent
        self._on_refused = on_refused
        self._frames: FrameSender | None = None
        self._checked = False
        """Whether frames carry checksums."""
        self._writing: grpc.aio.StreamUnaryCall | None = None
        """The Exchange while it is written to."""
        self._wake = asyncio.Event()
        """There is something unordered to send, or the stream has ended."""
        self.send_queue = SendQueue(peer, counters, self._send_snapshot, self._wake.set)
        """Takes frames; its stream is there while this is up."""
        self._complaint = ""
        self._snapshots: dict[int, tuple[RaftMessage, Snapshot]] = {}
        self._snapshot_task: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name=f"stream to node {peer}")

    # --- frames ---------------------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """About how much waits to be sent."""
        return self.send_queue.waiting_bytes

    @property
    def attempts(self) -> int:
        """How often the stream was tried to be opened, since the start or the last success."""
        return self._attempts.count

    def greeted(self) -> None:
        """The peer has opened a stream to this node: it is there, so the next attempt need not wait."""
        self._greeted.set()

    async def _run(self) -> None:
        while True:
            channel = self._channel()
            self._attempts.begun()
            self._greeted.clear()
            connects = self._counters.connects
            try:
                code, reason = await self._stream(channel)
            except asyncio.CancelledError:
                # gRPC raises this also from a call that was cancelled (`_frames_ended`), when nobody ends this task.
                if _is_being_cancelled():
                    raise
                code, reason = grpc.StatusCode.UNAVAILABLE, "the frame stream broke"
            except Exception as error:
                log.exception("the stream to node %d failed", self._peer)
                code, reason = grpc.StatusCode.INTERNAL, str(error)
            finally:
                self._set_down()
                await channel.close()
            was_up = self._counters.connects != connects
            self._complain(was_up, code, reason)
            if code in FINAL_REFUSALS:
                _call(self._on_refused, self._peer, said(reason), code is grpc.StatusCode.NOT_FOUND)
            if self._refusals.sought:
                await self._look_for_peer()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._attempts.ended(code in _NEEDS_MENDING) / 1000):
                    await self._greeted.wait()

    def _set_down(self) -> None:
        """The stream has ended, or was never up."""
        was_up, self.up = self.up, False
        frames, self._frames = self._frames, None
        self.send_queue.close()
        if frames is not None:
            frames.abort()
        if was_up:
            _call(self._on_down, self._peer)

    def _set_down_without(self, frames: FrameSender | None) -> None:
        if self.up and self._frames is frames:
            self._set_down()

    async def _stream(self, channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
        """Open the stream, keep it until it ends; why it ended."""
        try:
            proven = await self._prove(channel)
        except NotProven as error:
            return error.code, str(error)
        hello = codec.encode_hello(self._hello)
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.EXCHANGE)(metadata=seal(hello))
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_MS / 1000):
                await call.write(hello)
                answer = tuple(await call.initial_metadata())
                if options.CONSENT not in answer:
                    return await _status(call)
                frames = await self._open_frames(answer, proven)
        except TimeoutError:
            where = "" if self._frames is None else " at its port for frames"
            return grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer{where}"
        except _NoFrameStream as error:
            return await self._last_word(call, str(error))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return await _status(call)
        self._complaint = ""
        self._refusals.was_up()
        self._attempts.was_up()
        self._counters.connects += 1
        self._wake.clear()
        call.add_done_callback(lambda _: self._wake.set())
        self.up = True
        self.send_queue.stream = frames
        log.info("connected to node %d at %s, protocol version %d", self._peer, self.address, self.protocol)
        _call(self._on_up, self._peer)
        try:
            while not call.done() and not frames.ended:
                if self.send_queue.unordered:
                    await self._write_unordered(call)
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        self._set_down()
        return await self._last_word(call, "the frame stream broke")

    async def _prove(self, channel: grpc.aio.Channel) -> ProvenSecret | None:
        """Prove the cluster secret on a connection, if this node has one. Raises `NotProven`."""
        hello = self._hello
        return await proving.prove(channel, self._known, hello.node_id, hello.store, self._peer, self.address)

    async def _write_unordered(self, call: grpc.aio.StreamUnaryCall) -> None:
        data = codec.encode_frame(self.send_queue.unordered.take())
        if self._checked:
            data = framing.encode_apart(data)
        self._counters.frames_sent += 1
        self._counters.bytes_sent += len(data)
        self._writing = call
        try:
            await call.write(data)
        finally:
            self._writing = None

    def _frames_ended(self) -> None:
        # Not from within: this may be said while the layer above sends. And not only when the Exchange has ended, too:
        # a write to it may take until gRPC gives the peer up.
        asyncio.get_running_loop().call_soon(self._set_down_without, self._frames)
        self._wake.set()
        if self._writing is not None:
            self._writing.cancel()

    async def _look_for_peer(self) -> None:
        """Once more knock where the peer was, and say so if it has ended."""
        if not await self._refuses_connections():
            self._refusals.was_taken()
        elif self._refusals.was_refused(asyncio.get_running_loop().time() * 1000, self._counters.frames_received):
            _call(self._on_gone, self._peer)

    async def _refuses_connections(self) -> bool:
        """Whether the peer's host says that nobody listens there. One that is frozen, cut off or switched off does not
        say so."""
        host, port = host_of(self.address), self.address.rpartition(":")[2]
        try:
            async with asyncio.timeout(limits.RECONNECT_LAST_MS / 1000):
                _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False

    async def _open_frames(
        self, answer: tuple[tuple[str, str | bytes], ...], proven: ProvenSecret | None
    ) -> FrameSender:
        """Connect where the peer takes the frames of an accepted Exchange. Raises `_NoFrameStream`."""
        port, ticket = _frames_at(answer)
        self.protocol = _protocol_in(answer, codec.protocols_of(self._hello))
        host = host_of(self.address)
        loop = asyncio.get_running_loop()
        tls = None if self._credentials is None else self._credentials.frames
        name = None if self._credentials is None else self._credentials.server_name or host
        node_id, shown, proof = self._hello.node_id, ticket, b""
        if proven is not None:
            shown, proof = proven.ticket(ticket, node_id), proven.answer_to_ticket(ticket, node_id)
        self._checked = self.protocol >= PROTOCOL_CHECKSUMS and tls is None
        frames = FrameSender(
            self.protocol, framing.encode_greeting(self.protocol, node_id, shown), self.send_queue.write_waiting,
            self._frames_ended, proof, self._checked,
        )
        self._frames = frames
        try:
            await loop.create_connection(lambda: frames, host, port, ssl=tls, server_hostname=name)
            await frames.accepted
        except (OSError, ssl.SSLError) as error:
            raise _NoFrameStream(f"no frame stream to {host} port {port}: {error}") from None
        return frames

    async def _last_word(self, call: grpc.aio.StreamUnaryCall, otherwise: str) -> tuple[grpc.StatusCode, str]:
        """Why an Exchange ends that is of no use any more: what the peer has to say about it, if it does so soon."""
        try:
            async with asyncio.timeout(limits.STOP_GRACE_SECONDS):
                code, reason = await _status(call)
        except TimeoutError:
            call.cancel()
            return grpc.StatusCode.UNAVAILABLE, otherwise
        return (code, reason) if code != grpc.StatusCode.OK else (grpc.StatusCode.UNAVAILABLE, otherwise)

    def _channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.address, options.channel_options(""), options.compression())
        settings = options.channel_options(self._credentials.server_name)
        return grpc.aio.secure_channel(self.address, self._credentials.channel, settings, options.compression())

    def _complain(self, was_up: bool, code: grpc.StatusCode, reason: str) -> None:
        """Log why there is no stream; once for each reason until there is one again."""
        reason = said(reason)
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

    def _send_snapshot(self, group: int, message: RaftMessage) -> None:
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
                    log.info("snapshot of group %d did not reach node %d: %s", group, self._peer, said(reason))
                    # gRPC would wait before it connects again; what stopped is to go on soon.
                    await channel.close()
                    channel = self._channel()
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
            await self._prove(channel)
        except NotProven as error:
            return str(error)
        header = codec.encode_snapshot_header(self._hello, message, metadata, name)
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.SEND_SNAPSHOT)(metadata=seal(header))
        try:
            await _in_time(call.write(header))
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
        self._on_up = self._on_down = self._on_gone = _ignore
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


def _is_being_cancelled() -> bool:
    """Whether somebody ends the task that asks."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _frames_at(answer: tuple[tuple[str, str | bytes], ...]) -> tuple[int, bytes]:
    """The port at which a peer takes frames, and the ticket to show there. Raises `_NoFrameStream`."""
    told = {key: value for key, value in answer if isinstance(value, str)}
    port, ticket = told.get(options.FRAMES_PORT, ""), told.get(options.TICKET, "")
    plausible = port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16
    if not plausible or not re.fullmatch(f"[0-9a-f]{{{2 * framing.TICKET_BYTES}}}", ticket):
        raise _NoFrameStream("the peer does not say where it takes frames")
    return int(port), bytes.fromhex(ticket)


def _protocol_in(answer: tuple[tuple[str, str | bytes], ...], spoken: VersionRange) -> int:
    """The version that the peer has chosen; one that says nothing knows one alone. Raises `_NoFrameStream`."""
    told = next((value for key, value in answer if key == options.PROTOCOL), str(spoken.lowest))
    if not (isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 4 and spoken.knows(int(told))):
        raise _NoFrameStream(f"the peer takes protocol version {told!r}, {spoken!r} is spoken here")
    return int(told)


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
