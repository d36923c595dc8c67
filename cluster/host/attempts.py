"""When a stream to a peer is tried again."""


class Attempts:
    """The attempts to open the stream to one peer. Times are in ms."""

    def __init__(self, first_ms: int, last_ms: int, refused_ms: int) -> None:
        """Pauses double from the first to the last; after a refusal it is `refused_ms`."""
        self.count: int = 0
        """How many there were, since the start or since the stream was last up."""
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._refused_ms = refused_ms
        self._pause_ms = first_ms

    def begun(self) -> None:
        """One begins."""
        self.count += 1

    def was_up(self) -> None:
        """The stream is open: if it breaks, the peer may be back in a moment."""
        self.count = 0
        self._pause_ms = self._first_ms

    def ended(self, refused: bool) -> int:
        """The stream has ended, or was never up; ms until the next attempt. `refused`: the peer said no, and will say
        so again until somebody mends it. One that is not there yet, or is no node yet, has not said no."""
        if refused:
            return self._refused_ms
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, self._last_ms)
        return pause_ms
