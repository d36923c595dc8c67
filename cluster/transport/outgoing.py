"""What this node sends to one peer."""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.host.attempts import Attempts
from mayfly.cluster.raft import RaftMessage
from mayfly.cluster.transport import codec, framing, options
from mayfly.cluster.transport.admission import FINAL_REFUSALS
from mayfly.cluster.transport.checksum import checksum_of
from mayfly.cluster.transport.cluster_secret import ProvenSecret
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.dialing import Dialer, give_up, status_of
from mayfly.cluster.transport.frame_stream import FrameSender, host_of
from mayfly.cluster.transport.pace import BytePace
from mayfly.cluster.transport.peer_events import PeerEvents, tell
from mayfly.cluster.transport.peer_text import printable
from mayfly.cluster.transport.proving import NotProven
from mayfly.cluster.transport.refusals import Refusals
from mayfly.cluster.transport.send_queue import SendQueue
from mayfly.cluster.transport.snapshot_sender import SnapshotSender
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS, PROTOCOL_DIVIDED_NOTICES, VersionRange

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
        dialer: Dialer,
        counters: PeerCounters,
        events: PeerEvents,
        on_refused: Callable[[int, str, bool], None],
        executor: Executor,
        pace: BytePace,
    ) -> None:
        """`on_refused` is `Admission.refused`. The executor reads what snapshots are made of, and they go at this
        pace."""
        self._dialer = dialer
        self._peer = dialer.peer
        self.up = False
        self._protocol = 0
        """The version of what is sent, once the stream was up."""
        self._attempts = Attempts(
            limits.RECONNECT_FIRST_MS, limits.RECONNECT_LAST_MS, limits.REFUSED_RETRY_MS
        )
        self._greeted = asyncio.Event()
        """The peer has come to this node since the last attempt began."""
        self._counters = counters
        self._events = events
        self._refusals = Refusals()
        self._on_refused = on_refused
        self._frames: FrameSender | None = None
        self._checked = False
        """Whether frames carry checksums."""
        self._writing: grpc.aio.StreamUnaryCall | None = None
        """The Exchange while it is written to."""
        self._wake = asyncio.Event()
        """There is something unordered to send, or the stream has ended."""
        self.send_queue = SendQueue(dialer.peer, counters, self._send_snapshot, self._wake.set)
        """Takes frames; its stream is there while this is up."""
        self._complaint = ""
        self._snapshots = SnapshotSender(dialer, counters, executor, pace, events.on_snapshot_sent)
        self._task = asyncio.create_task(self._run(), name=f"stream to node {dialer.peer}")

    @property
    def address(self) -> str:
        """Where the peer is."""
        return self._dialer.address

    def greeted(self) -> None:
        """The peer has opened a stream to this node: it is there, so the next attempt need not wait."""
        self._greeted.set()

    async def _run(self) -> None:
        while True:
            channel = self._dialer.channel()
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
                tell(self._on_refused, self._peer, printable(reason), code is grpc.StatusCode.NOT_FOUND)
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
            tell(self._events.on_down, self._peer)

    def _set_down_without(self, frames: FrameSender | None) -> None:
        if self.up and self._frames is frames:
            self._set_down()

    async def _stream(self, channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
        """Open the stream, keep it until it ends; why it ended."""
        try:
            proven = await self._dialer.prove(channel)
        except NotProven as error:
            return error.code, str(error)
        hello = codec.encode_hello(self._dialer.hello)
        call: grpc.aio.StreamUnaryCall = channel.stream_unary(options.EXCHANGE)(metadata=checksum_of(hello))
        try:
            return await self._exchange(call, hello, proven)
        finally:
            await give_up(call)

    async def _exchange(
        self, call: grpc.aio.StreamUnaryCall, hello: bytes, proven: ProvenSecret | None
    ) -> tuple[grpc.StatusCode, str]:
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_MS / 1000):
                await call.write(hello)
                answer = tuple(await call.initial_metadata())
                if options.CONSENT not in answer:
                    return await status_of(call)
                frames = await self._open_frames(answer, proven)
        except TimeoutError:
            where = "" if self._frames is None else " at its port for frames"
            return grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer{where}"
        except _NoFrameStream as error:
            return await self._last_word(call, str(error))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return await status_of(call)
        self._complaint = ""
        self._refusals.was_up()
        self._attempts.was_up()
        self._counters.connects += 1
        self._wake.clear()
        call.add_done_callback(lambda _: self._wake.set())
        self.up = True
        self.send_queue.divides_notices = self._protocol >= PROTOCOL_DIVIDED_NOTICES
        self.send_queue.stream = frames
        log.info("connected to node %d at %s, protocol version %d", self._peer, self.address, self._protocol)
        tell(self._events.on_up, self._peer)
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
        if not await self._dialer.is_refused():
            self._refusals.was_taken()
        elif self._refusals.was_refused(asyncio.get_running_loop().time() * 1000, self._counters.frames_received):
            tell(self._events.on_gone, self._peer)

    async def _open_frames(
        self, answer: tuple[tuple[str, str | bytes], ...], proven: ProvenSecret | None
    ) -> FrameSender:
        """Connect where the peer takes the frames of an accepted Exchange. Raises `_NoFrameStream`."""
        port, ticket = _frames_at(answer)
        self._protocol = _protocol_in(answer, codec.protocols_of(self._dialer.hello))
        node_id, shown, proof = self._dialer.hello.node_id, ticket, b""
        if proven is not None:
            shown, proof = proven.ticket(ticket, node_id), proven.answer_to_ticket(ticket, node_id)
        self._checked = self._protocol >= PROTOCOL_CHECKSUMS and not self._dialer.has_tls
        frames = FrameSender(
            self._protocol, framing.encode_greeting(self._protocol, node_id, shown), self.send_queue.write_waiting,
            self._frames_ended, proof, self._checked,
        )
        self._frames = frames
        try:
            await self._dialer.connect_frames(port, frames)
            await frames.accepted
        except (OSError, ssl.SSLError) as error:
            raise _NoFrameStream(f"no frame stream to {host_of(self.address)} port {port}: {error}") from None
        return frames

    async def _last_word(self, call: grpc.aio.StreamUnaryCall, otherwise: str) -> tuple[grpc.StatusCode, str]:
        """Why an Exchange ends that is of no use any more: what the peer has to say about it, if it does so soon."""
        try:
            async with asyncio.timeout(limits.STOP_GRACE_SECONDS):
                code, reason = await status_of(call)
        except TimeoutError:
            call.cancel()
            return grpc.StatusCode.UNAVAILABLE, otherwise
        return (code, reason) if code != grpc.StatusCode.OK else (grpc.StatusCode.UNAVAILABLE, otherwise)

    def _complain(self, was_up: bool, code: grpc.StatusCode, reason: str) -> None:
        """Log why there is no stream; once for each reason until there is one again."""
        reason = printable(reason)
        if was_up:
            log.info("lost node %d at %s: %s", self._peer, self.address, reason)
        elif (code in _NEEDS_MENDING or code == grpc.StatusCode.PERMISSION_DENIED) and self._complaint != reason:
            log.warning("node %d at %s refuses this node: %s", self._peer, self.address, reason)
        elif self._complaint == "":
            log.info("can't reach node %d at %s: %s", self._peer, self.address, reason)
        else:
            return
        self._complaint = reason

    async def stop(self) -> None:
        """End the stream and what is on the way. No callback comes after this."""
        self._events = PeerEvents()
        self._task.cancel()
        await asyncio.gather(self._task, self._snapshots.stop(), return_exceptions=True)
        # It holds the error that has ended it, that one the frames which it came through, and they this link.
        del self._task
        self.send_queue.let_go()

    def _send_snapshot(self, group: int, message: RaftMessage) -> None:
        if message.snapshot is None or not self.up:
            asyncio.get_running_loop().call_soon(tell, self._events.on_snapshot_sent, self._peer, group, False)
        else:
            self._snapshots.send(group, message, message.snapshot)


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
