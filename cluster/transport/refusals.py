"""Whether a peer whose stream broke has ended, from what its host says to those that knock."""

from mayfly.cluster import limits


class Refusals:
    """What became of attempts to connect to one peer since its stream broke.

    A peer has ended when its host refuses all of them for `limits.GONE_AFTER_MS`, and no frame of it comes meanwhile.
    """

    def __init__(self) -> None:
        self.sought = False
        """The stream was up and broke, and the peer is not known to have ended."""
        self._since_ms = 0.0
        self._frames_received = -1
        """How many frames had come from the peer at the first refusal in a row; -1 before it."""

    def was_up(self) -> None:
        """The stream to the peer is open: when it breaks, the peer may have ended."""
        self.sought = True
        self._frames_received = -1

    def was_taken(self) -> None:
        """An attempt was not refused: somebody listens, or nobody answers at all."""
        self._frames_received = -1

    def was_refused(self, now_ms: float, frames_received: int) -> bool:
        """An attempt was refused. `frames_received`: how many frames came from the peer, ever. Whether it has ended;
        said once."""
        if self._frames_received != frames_received:
            # The first in a row, or the peer lives: a frame of it came.
            self._since_ms, self._frames_received = now_ms, frames_received
            return False
        self.sought = now_ms - self._since_ms < limits.GONE_AFTER_MS
        return not self.sought
