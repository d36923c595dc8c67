"""The engine's drive: what comes in is given to it, and at the end of the loop's turn it is pumped.

    frames, ticks, "the write is on disk" -> engine -> pump once per turn -> frames to peers, one batch to the disk
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.host import NEVER
from mayfly.cluster.log.batch import DiskFull, WriteBatch
from mayfly.cluster.transport.peer_transport import PeerTransport
from mayfly.node.engine.engine import Engine
from mayfly.node.shell.defects import defect
from mayfly.node.shell.listener import AmqpListener
from mayfly.node.shell.log_writer import LogWriter
from mayfly.node.shell.process_clock import ProcessClock

RETRY_FULL_DISK_S: Final = 0.5
"""A write that found the disk full is tried again after this."""


class Failing(Protocol):
    """The node whose engine is driven, as far as it can fail."""

    failure: str | None
    """Why it has failed; None while it goes on. Nothing is done any more once it has."""

    def fail(self, text: str) -> None:
        """It can't go on."""
        ...

    def lost_log(self, why: str) -> None:
        """What it once stored is gone."""
        ...


class Outlets(NamedTuple):
    """Where what a turn has brought about goes: the disk, the other nodes, the clients."""

    writer: LogWriter
    transport: PeerTransport
    listener: AmqpListener


class Drive:
    """One node's turns."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        clock: ProcessClock,
        node: Failing,
        tick_ms: int,
        make_outlets: Callable[["Drive"], Outlets],
    ) -> None:
        """`make_outlets(drive)` makes what hands its input to this drive. None of it may listen yet: so there is no
        input before there is a way out for what it brings about."""
        self._loop = loop
        self._engine = engine
        self._clock = clock
        self._node = node
        self._tick_ms = tick_ms
        self._ticker: asyncio.Handle | None = None
        self._pump_scheduled = False
        self._due_timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER
        """What the timer was set for."""
        self._writing: WriteBatch | None = None
        self._stored = asyncio.Event()
        self._log_left = False
        self.writer, self.transport, self.listener = make_outlets(self)

    def begin_ticks(self, ticked: Callable[[], None]) -> None:
        """Tick from now on; `ticked` is called after each."""
        self._ticker = self._loop.call_soon(self._tick, ticked)

    def end_ticks(self) -> None:
        """Tick no more."""
        if self._ticker is not None:
            self._ticker.cancel()

    def _tick(self, ticked: Callable[[], None]) -> None:
        self._ticker = self._loop.call_later(self._tick_ms / 1000, self._tick, ticked)
        self.feed(self._engine.tick)
        ticked()

    # ------------------------------------------------------------------ input

    def feed(self, take_in: Callable[[int], None]) -> None:
        """Give the engine some input (`take_in(now_ms)` does), and pump it at the end of this turn."""
        if self._node.failure is not None:
            return
        try:
            take_in(self._clock.now_ms())
            self.schedule_pump()
        except Exception as error:
            self._node.fail(defect(error))

    def on_frame(self, peer: int, frame: Frame) -> None:
        """A frame of a peer came."""
        # As `feed`, which would take a function made for each frame.
        if self._node.failure is not None:
            return
        try:
            self._engine.receive(peer, frame, self._clock.now_ms())
            self.schedule_pump()
        except Exception as error:
            self._node.fail(defect(error))

    def on_peer_up(self, peer: int) -> None:
        """The stream to a peer opened."""
        self.feed(lambda now_ms: self._engine.peer_up(peer, now_ms))

    def on_peer_down(self, peer: int) -> None:
        """The stream to a peer broke."""
        self.feed(lambda now_ms: self._engine.peer_down(peer, now_ms))

    def on_peer_gone(self, peer: int) -> None:
        """A peer's process has ended."""
        self.feed(lambda _: self._engine.peer_gone(peer))

    def on_snapshot_sent(self, peer: int, group: int, ok: bool) -> None:
        """A snapshot was delivered, or given up."""
        self.feed(lambda _: self._engine.host.snapshot_sent(peer, group, ok))

    # ------------------------------------------------------------------ output

    def schedule_pump(self) -> None:
        """Pump at the end of this turn of the loop, when all its input is in."""
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if self._writing is not None:
            self.writer.look()
        self._pump_scheduled = False
        if self._node.failure is not None or self._log_left:
            return
        if self._engine.host.log_lost is not None:
            self._node.lost_log(self._engine.host.log_lost)
            return
        try:
            now_ms = self._clock.now_ms()
            output = self._engine.pump(now_ms)
            for peer, frame in output.frames.items():
                self.transport.send(peer, frame)
            if output.write is not None:
                self._writing = output.write
                self.writer.write(output.write, output.write_waits)
            self.listener.flush()
            if self._engine.busy:
                self.schedule_pump()
            if output.due_ms != NEVER and (self._due_timer is None or output.due_ms < self._due_ms):
                self._pump_again_at(output.due_ms, now_ms)
        except Exception as error:
            self._node.fail(defect(error))

    def _pump_again_at(self, due_ms: int, now_ms: int) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._due_ms = due_ms
        self._due_timer = self._loop.call_later(max(1, due_ms - now_ms) / 1000, self._due)

    def _due(self) -> None:
        """What was to be done by now is usually done, with something else; else this pump does it."""
        self._due_timer = None
        self.schedule_pump()

    # ------------------------------------------------------------------ the disk

    def written(self, error: BaseException | None) -> None:
        """The write under way is on disk, or failed."""
        if error is None:
            self._writing = None
            self._stored.set()
            self.feed(self._engine.persisted)
        elif isinstance(error, DiskFull):
            self._engine.disk_full(f"the disk is full: {error}")
            self._loop.call_later(RETRY_FULL_DISK_S, self._retry_write)
        else:
            self._node.fail(f"the log can't be written: {error}")

    def _retry_write(self) -> None:
        if self._writing is not None and self._node.failure is None:
            self.writer.write(self._writing)

    def leave_log(self) -> None:
        """Pump no more, and hear of no write: the log is about to be closed."""
        self._log_left = True
        self.writer.leave_loop()

    async def until_stored(self) -> None:
        """Wait until what the replicas have taken in by now is in the log."""
        host = self._engine.host
        for _ in range(host.writes_until_stored):
            if host.writes_until_stored == 0 or self._node.failure is not None:
                return
            self._stored.clear()
            await self._stored.wait()
