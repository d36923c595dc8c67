"""Where what peers send is given to the layer above."""

from collections.abc import Callable

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.intake import Intake


class Intakes:
    """Those of all streams, which have the peers' clocks in common."""

    def __init__(
        self,
        receiver: int,
        counters_of: Callable[[int], PeerCounters | None],
        refuse_stranger: Callable[[int], None],
        on_frame: Callable[[int, Frame], None],
    ) -> None:
        """All as for `Intake`."""
        self._receiver = receiver
        self._counters_of = counters_of
        self._refuse_stranger = refuse_stranger
        self._on_frame = on_frame
        self._clocks: dict[int, tuple[int, float]] = {}
        """By peer: its clock in its last frame, and the loop's time when that came."""

    def of(self, peer: int, counters: PeerCounters, now_s: Callable[[], float]) -> Intake:
        """For what comes on a stream of this peer."""
        return Intake(
            peer, self._receiver, counters, self._counters_of, self._refuse_stranger, self._on_frame, self._clocks,
            now_s,
        )  # fmt: skip

    def clock_ms(self, peer: int, now_s: float) -> int | None:
        """What a peer's clock shows at this time of the loop; None: nothing was heard of it."""
        seen = self._clocks.get(peer)
        return None if seen is None else seen[0] + int((now_s - seen[1]) * 1000)
