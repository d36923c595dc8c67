"""Frames that wait for a connection to take more."""

from collections import deque

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame


class FrameQueue:
    """Frames in order; what waits anyway is merged into larger ones."""

    __slots__ = ("_frames", "_sizes_bytes", "waiting_bytes")

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._sizes_bytes: deque[int] = deque()
        self.waiting_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def put(self, frame: Frame, size_bytes: int) -> None:
        """Append a frame, which belongs to the queue from here on."""
        self.waiting_bytes += size_bytes
        if self._frames and self._sizes_bytes[-1] + size_bytes <= limits.MAX_FRAME_BYTES:
            self._frames[-1].merge(frame)
            self._sizes_bytes[-1] += size_bytes
        else:
            self._frames.append(frame)
            self._sizes_bytes.append(size_bytes)

    def take(self) -> Frame:
        """The first frame; there must be one."""
        self.waiting_bytes -= self._sizes_bytes.popleft()
        return self._frames.popleft()

    def clear(self) -> None:
        """Drop all."""
        self._frames.clear()
        self._sizes_bytes.clear()
        self.waiting_bytes = 0
