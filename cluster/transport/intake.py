"""What comes on one peer's frame stream, from octets to the layer above.

HOT: compiled by mypyc where that is possible.
"""

import logging
from collections.abc import Callable
from typing import Final

from mayfly.cluster.host.divided_notices import DividedNotices
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.counters import PeerCounters

_log: Final = logging.getLogger(__name__)


class Intake:
    """Decodes, counts and hands over the frames of a peer, as long as it is one."""

    def __init__(
        self,
        peer: int,
        receiver: int,
        counters: PeerCounters,
        counters_of: Callable[[int], PeerCounters | None],
        refuse_stranger: Callable[[int], None],
        on_frame: Callable[[int, Frame], None],
        clocks: dict[int, tuple[int, float]],
        now_s: Callable[[], float],
    ) -> None:
        """`receiver` is this node. `counters_of` gives those of a known peer; if they are others than `counters` (or
        None), the peer is one no more, and `refuse_stranger(peer)` raises `PeerRefused`. `now_s()` is the loop's time;
        `clocks` is to have each peer's clock in its last frame, and when that came."""
        self._peer = peer
        self._receiver = receiver
        self.counters = counters
        self._counters_of = counters_of
        self._refuse_stranger = refuse_stranger
        self._on_frame = on_frame
        self._clocks = clocks
        self._now_s = now_s
        self._clock: tuple[int, float] | None = None
        """That of this stream; None before its first frame."""
        self._divided = DividedNotices()
        self._divided_unordered = DividedNotices()

    def take(self, data: bytes) -> None:
        """An encoded frame has come, in its order. Raises `PeerRefused`."""
        frame = self._decode(data, self._divided)
        self._clocks[self._peer] = self._clock = (frame.clock_ms, self._now_s())
        self.hand_over(frame)

    def take_unordered(self, data: bytes) -> None:
        """An encoded frame that may come later than others that were sent after it. Raises `PeerRefused`."""
        frame = self._decode(data, self._divided_unordered)
        if self._clock is not None:
            # The newest clock counts.
            frame.clock_ms = self._clock[0] + int((self._now_s() - self._clock[1]) * 1000)
        self.hand_over(frame)

    def hand_over(self, frame: Frame) -> None:
        """Give a frame of the peer to the layer above."""
        try:
            self._on_frame(self._peer, frame)
        except Exception:
            # A mistake in the layer above; the stream goes on.
            _log.exception("a frame of node %d was not handled", self._peer)

    def _decode(self, data: bytes, divided: DividedNotices) -> Frame:
        counters = self.counters
        if self._counters_of(self._peer) is not counters:
            self._refuse_stranger(self._peer)
        frame = codec.decode_frame(data, self._peer, self._receiver)
        try:
            divided.join(frame)
        except ValueError as error:
            raise codec.PeerRefused(str(error)) from None
        counters.frames_received += 1
        counters.bytes_received += len(data)
        return frame
