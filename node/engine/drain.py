"""The course of a node that is to be stopped: its clients and the other nodes notice as little of it as can be. Pure.

    notice     the node says that it is not ready, and does nothing else yet: load balancers send new clients elsewhere
    deliveries no new clients; what it leads is handed over; deliveries stop, and clients acknowledge what they have
    answers    nothing is taken from clients any more; what they have asked for is answered, confirms above all
    closing    clients are told to connect to another node (320); what they held goes back
    drained    all is done, or was given up at the time limit

Whatever has not happened at the limit is what happens when a node dies: what was not acknowledged is delivered to
others, what was not confirmed is for its publisher to repeat. Nothing confirmed and no lease depends on any of this.
"""

from typing import Final, Protocol

from mayfly.cluster.host.host import Host
from mayfly.node.broker.broker import Broker

NOT_DRAINING: Final = 0
NOTICE: Final = 1
DELIVERIES: Final = 2
ANSWERS: Final = 3
CLOSING: Final = 4
DRAINED: Final = 5

STATE_NAMES: Final = ("serving", "draining", "draining", "draining", "draining", "drained")

TEXT_OF_DRAIN: Final = "Node was put into maintenance mode"
TEXT_OF_STOP: Final = "broker forced connection closure with reason 'shutdown'"
"""What RabbitMQ 3.10 tells clients in connection.close."""

CLOSING_MS: Final = 500
"""What is left for the last step where the time limit has passed before."""


class DrainSettings:
    """Times in ms: `notice_ms` before anything else happens, `acks_ms` without an acknowledgement before the rest of
    them is given up, `timeout_ms` from the end of the notice for everything but the closing."""

    def __init__(self, notice_ms: int, acks_ms: int, timeout_ms: int) -> None:
        self.notice_ms: int = notice_ms
        self.acks_ms: int = acks_ms
        self.timeout_ms: int = timeout_ms


class DrainPort(Protocol):
    """What a drain needs of the node around it."""

    def take_no_clients(self) -> None:
        """Nobody may connect any more."""
        ...

    def pending_bytes(self) -> int:
        """See `Engine.pending_bytes`."""
        ...


class Drain:
    """Of one node. `tick` moves it on; nothing of it is stored."""

    def __init__(self, host: Host, broker: Broker, port: DrainPort, settings: DrainSettings) -> None:
        self.step: int = NOT_DRAINING
        self._host = host
        self._broker = broker
        self._port = port
        self._settings = settings
        self._text = TEXT_OF_DRAIN
        self._began_ms = 0
        self._deadline_ms = 0
        self._unacknowledged = 0
        self._moved_ms = 0

    @property
    def state(self) -> str:
        """serving, draining or drained."""
        return STATE_NAMES[self.step]

    def begin(self, text: str, now_ms: int) -> None:
        """Clients will be told `text`. Where a drain is under way it goes on, with this text."""
        self._text = text
        if self.step == NOT_DRAINING:
            self.step = NOTICE
            self._began_ms = now_ms
            self.tick(now_ms)

    def revive(self) -> None:
        """Serve again. Letting clients in again is the port's owner's."""
        if self.step != NOT_DRAINING:
            self.step = NOT_DRAINING
            self._host.set_draining(False)
            self._broker.resume()

    def tick(self, now_ms: int) -> None:
        """Time has passed: look whether the next step is due."""
        if self.step == NOTICE and now_ms - self._began_ms >= self._settings.notice_ms:
            self._stop_deliveries(now_ms)
        if self.step == DELIVERIES and self._deliveries_over(now_ms):
            self.step = ANSWERS
            self._broker.stop_reading()
        if self.step == ANSWERS and (now_ms >= self._deadline_ms or self._nobody_waits(now_ms)):
            self.step = CLOSING
            self._deadline_ms = max(self._deadline_ms, now_ms + CLOSING_MS)
            self._broker.close_all(self._text)
        elif self.step == CLOSING and (now_ms >= self._deadline_ms or self._port.pending_bytes() == 0):
            self.step = DRAINED

    def _stop_deliveries(self, now_ms: int) -> None:
        self.step = DELIVERIES
        self._deadline_ms = now_ms + self._settings.timeout_ms
        self._port.take_no_clients()
        self._host.set_draining(True)
        self._broker.stop_deliveries()
        self._unacknowledged, self._moved_ms = self._broker.unacknowledged, now_ms

    def _deliveries_over(self, now_ms: int) -> bool:
        """Whether clients have acknowledged what they were given, or do not any more."""
        if now_ms >= self._deadline_ms:
            return True
        if self._broker.deliveries_under_way:
            self._moved_ms = now_ms
            return False
        unacknowledged = self._broker.unacknowledged
        if unacknowledged != self._unacknowledged:
            self._unacknowledged, self._moved_ms = unacknowledged, now_ms
        return unacknowledged == 0 or now_ms - self._moved_ms >= self._settings.acks_ms

    def _nobody_waits(self, now_ms: int) -> bool:
        """Whether clients have all their answers, and the other nodes lead what they can lead."""
        return not self._broker.owes_answers and not self._host.leadership.can_hand_over(now_ms)
