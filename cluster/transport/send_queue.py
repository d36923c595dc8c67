"""What is to be sent to one peer, from frames to octets.

HOT: compiled by mypyc where that is possible.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from mayfly.cluster import limits
from mayfly.cluster.host.divided_notices import divide_large
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType, RaftMessage
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.frame_queue import FrameQueue

_log: Final = logging.getLogger(__name__)


class OpenStream(Protocol):
    """An accepted connection that frames are written to."""

    @property
    def writable(self) -> bool:
        """Whether it takes frames now."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """What the socket has not taken yet."""
        ...

    def send(self, frame: list[bytes], size_bytes: int) -> None:
        """Write an encoded frame of this size, in pieces."""
        ...

    def fail(self, text: str) -> None:
        """End it."""
        ...


class SendQueue:
    """Writes frames to the peer's stream, or keeps them while it takes no more. `stream` is None while there is none.

    What is unordered waits in a queue of its own for whoever writes it to the Exchange."""

    def __init__(
        self,
        peer: int,
        counters: PeerCounters,
        send_snapshot: Callable[[int, RaftMessage], None],
        has_unordered: Callable[[], None],
    ) -> None:
        """`send_snapshot(group, message)` takes SNAP messages, also while there is no stream; `has_unordered()`: there
        is something in `unordered`."""
        self.stream: OpenStream | None = None
        self.divides_notices: bool = False
        """Whether the peer takes large ones in pieces."""
        self.unordered: FrameQueue = FrameQueue()
        self._peer = peer
        self._counters = counters
        self._send_snapshot = send_snapshot
        self._has_unordered = has_unordered
        self._waiting = FrameQueue()

    def send(self, frame: Frame) -> None:
        """Send or keep a frame, or drop it when the peer is away or too far behind. Snapshots go their own way."""
        for _, message in frame.raft:
            if message.type == MessageType.SNAP:
                self._take_snapshots_out(frame)
                break
        stream = self.stream
        if stream is None:
            self._counters.frames_dropped += 1
            return
        if frame.unordered is not None:
            self._keep_unordered(frame)
            if frame.empty():
                return
        # One turn of a leader may fill the windows of all groups: as one frame it would hold heartbeats up. And what
        # clients send in one turn may be more than the peer takes as one frame.
        parts = self._parts(frame)
        if self._waiting and not self._has_room(self._waiting, parts):
            return
        for part in parts:
            if stream.writable and not self._waiting:
                self._write(stream, part)
            else:
                self._waiting.put(part, part.approximate_bytes())

    def write_waiting(self) -> None:
        """The stream takes more."""
        while self.stream is not None and self.stream.writable and self._waiting:
            self._write(self.stream, self._waiting.take())

    def close(self) -> None:
        """The stream is gone, and what waited for it."""
        self.stream = None
        self._waiting.clear()
        self.unordered.clear()

    def let_go(self) -> None:
        """Nothing is sent any more: who takes snapshots is not held."""
        self._send_snapshot = _no_snapshot

    @property
    def waiting_bytes(self) -> int:
        """About how much waits to be sent."""
        return self._waiting.waiting_bytes + self.unordered.waiting_bytes + self._on_its_way_bytes

    @property
    def _on_its_way_bytes(self) -> int:
        return 0 if self.stream is None else self.stream.waiting_bytes

    def _take_snapshots_out(self, frame: Frame) -> None:
        messages, frame.raft = frame.raft, []
        for group, message in messages:
            if message.type == MessageType.SNAP:
                self._send_snapshot(group, message)
            else:
                frame.raft.append((group, message))

    def _keep_unordered(self, frame: Frame) -> None:
        unordered = frame.take_unordered()
        if unordered is not None and self._has_room(self.unordered, [unordered]):
            for part in self._parts(unordered):
                self.unordered.put(part, part.approximate_bytes())
            self._has_unordered()

    def _parts(self, frame: Frame) -> list[Frame]:
        if self.divides_notices:
            divide_large(frame, limits.NOTICE_PIECE_BYTES)
        return frame.parts(limits.MAX_FRAME_BYTES)

    def _has_room(self, queue: FrameQueue, parts: list[Frame]) -> bool:
        """Whether there is room for all of a frame: a half of it would be of no use."""
        size_bytes = queue.waiting_bytes + (self._on_its_way_bytes if queue is self._waiting else 0)
        for part in parts:
            size_bytes += part.approximate_bytes()
        if queue and size_bytes > limits.MAX_PEER_QUEUE_BYTES:
            self._counters.frames_dropped += 1
            return False
        return True

    def _write(self, stream: OpenStream, frame: Frame) -> None:
        try:
            pieces = codec.encode_pieces(frame)
        except Exception as error:
            # A mistake in the layer above: what can't be sent is lost with the stream, and sent anew or not at all.
            _log.exception("a frame for node %d can't be encoded", self._peer)
            stream.fail(str(error))
            return
        size_bytes = 0
        for piece in pieces:
            size_bytes += len(piece)
        self._counters.frames_sent += 1
        self._counters.bytes_sent += size_bytes
        stream.send(pieces, size_bytes)


def _no_snapshot(group: int, message: RaftMessage) -> None:
    pass
