"""When to send a heartbeat and when to give the peer up (AMQP 0-9-1 section 4.2.7)."""


class Heartbeat:
    """Counts silence in both directions.

    interval_ms: as agreed; 0 for no heartbeats.
    """

    def __init__(self) -> None:
        self.interval_ms = 0
        self._last_ms: int | None = None
        self._received = False
        self._sent = False
        self._unheard_ms = 0
        self._unsent_ms = 0

    def received(self) -> None:
        """Octets came from the peer."""
        self._received = True

    def sent(self) -> None:
        """Octets were taken to be written."""
        self._sent = True

    def pass_time(self, now_ms: int, reading_paused: bool) -> int:
        """Time has come to now_ms; the milliseconds since the last call.

        Silence counts half an interval a call at the most: a process that was stopped for a minute must read
        what the peer sent meanwhile before it calls the peer dead.
        """
        passed_ms = 0 if self._last_ms is None else max(0, now_ms - self._last_ms)
        self._last_ms = now_ms
        if self._received or reading_paused:
            self._unheard_ms = 0
        else:
            self._unheard_ms += min(passed_ms, self.interval_ms // 2)
        self._unsent_ms = 0 if self._sent else self._unsent_ms + passed_ms
        self._received = self._sent = False
        return passed_ms

    def peer_is_silent(self) -> bool:
        """Whether nothing came for two intervals."""
        return 0 < 2 * self.interval_ms <= self._unheard_ms

    def beat_is_due(self) -> bool:
        """Whether nothing was sent for half an interval."""
        return self.interval_ms > 0 and self._unsent_ms >= self.interval_ms // 2
