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
from mayfly.node.shell.tick_times import TickTimes

RETRY_FULL_DISK_S: Final = 0.5
"""A write that found the disk full is tried again after this."""

REST_AFTER_MS: Final = 1_000
"""A node is at rest when for so long it has written nothing, had nothing from clients, and said nothing to other nodes
but what ticks have it say."""


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
        times: TickTimes,
        make_outlets: Callable[["Drive"], Outlets],
    ) -> None:
        """`make_outlets(drive)` makes what hands its input to this drive. None of it may listen yet: so there is no
        input before there is a way out for what it brings about."""
        self._loop = loop
        self._engine = engine
        self._clock = clock
        self._node = node
        self._times = times
        self._rest_ticks = REST_AFTER_MS // times.tick_ms
        self._ticker: asyncio.Handle | None = None
        self._ticked: Callable[[], None] = _nothing
        self._in_tick = False
        """Whether this turn has a tick."""
        self._busy = True
        """Whether something has happened since the last tick that ends a rest."""
        self._quiet_ticks = 0
        """How many ticks have come since then."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits for a tick, and from when on it may be."""
        self._pump_scheduled = False
        self._due_timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER
        """What the timer was set for."""
        self._writing: WriteBatch | None = None
        self._stored = asyncio.Event()
        self._log_left = False
        self.writer, self.transport, self.listener = make_outlets(self)

    def begin_ticks(self, ticked: Callable[[], None]) -> None:
        """Tick from now on; `ticked` is called after each that comes in its time."""
        self._ticked = ticked
        self._ticker = self._loop.call_soon(self._tick)

    def end_ticks(self) -> None:
        """Tick no more."""
        if self._ticker is not None:
            self._ticker.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait for so long, and for the tick that comes then: who does so does not wake a node at rest."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((self._clock.now_ms() + int(seconds * 1000), future))
        await future

    def _tick(self) -> None:
        self._in_tick = True
        try:
            self._make_up_for(self._clock.now_ms(), self._times.left_out)
            self.feed(self._engine.tick)
            self._ticked()
        finally:
            self._plan_tick()

    def _plan_tick(self) -> None:
        """After a tick: when the next one comes."""
        now_ms, times, failure = self._clock.now_ms(), self._times, self._node.failure
        times.made(now_ms)
        self._quiet_ticks = 0 if self._busy else self._quiet_ticks + 1
        self._busy = False
        try:
            if self._quiet_ticks >= self._rest_ticks and failure is None:
                self._engine.host.pace.at_rest = True
                times.rest(now_ms, self._engine.host.ticks_to_election(), self._can_wait)
        except Exception as error:
            self._node.fail(defect(error))
        self._ticker = self._loop.call_later((times.due_ms - now_ms) / 1000, self._tick)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for until_ms, future in waiting:
                if future.done():
                    continue
                if until_ms <= now_ms:
                    future.set_result(None)
                else:
                    self._waiting.append((until_ms, future))

    def _can_wait(self, until_ms: int) -> bool:
        return self._engine.can_wait(self._clock.now_ms(), until_ms)

    def _make_up_for(self, now_ms: int, most: int) -> None:
        """Make ticks that were left out, as far as their time has come."""
        times = self._times
        while most > 0 and times.left_out_ms <= now_ms and self._node.failure is None:
            most -= 1
            times.made_up_for()
            try:
                self._engine.tick(now_ms)
            except Exception as error:
                self._node.fail(defect(error))

    def _has_happened(self) -> None:
        """Something that ends a rest: no tick is left out for a while, and no heartbeat."""
        self._busy = True
        self._engine.host.pace.at_rest = False
        if self._times.left_out:
            # Not at once: the engine may be in the middle of something.
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Ticks come in their time again; those whose time has passed are made now."""
        if not self._times.left_out:
            return
        self.feed(_no_input)
        if self._times.take_back() and self._ticker is not None:
            self._ticker.cancel()
            wait_s = max(0, self._times.due_ms - self._clock.now_ms()) / 1000
            self._ticker = self._loop.call_later(wait_s, self._tick)

    # ------------------------------------------------------------------ input

    def feed(self, take_in: Callable[[int], None]) -> None:
        """Give the engine some input (`take_in(now_ms)` does), and pump it at the end of this turn."""
        if self._node.failure is not None:
            return
        now_ms = self._clock.now_ms()
        if self._times.left_out:
            self._make_up_for(now_ms, self._times.left_out)
        try:
            take_in(now_ms)
            self._pump_soon()
        except Exception as error:
            self._node.fail(defect(error))

    def on_frame(self, peer: int, frame: Frame) -> None:
        """A frame of a peer came."""
        # As `feed`, which would take a function made for each frame.
        if self._node.failure is not None:
            return
        now_ms = self._clock.now_ms()
        if self._times.left_out:
            self._make_up_for(now_ms, self._times.left_out)
        try:
            self._engine.receive(peer, frame, now_ms)
            self._pump_soon()
        except Exception as error:
            self._node.fail(defect(error))

    def on_peer_up(self, peer: int) -> None:
        """The stream to a peer opened."""
        self._has_happened()
        self.feed(lambda now_ms: self._engine.peer_up(peer, now_ms))

    def on_peer_down(self, peer: int) -> None:
        """The stream to a peer broke."""
        self._has_happened()
        self.feed(lambda now_ms: self._engine.peer_down(peer, now_ms))

    def on_peer_gone(self, peer: int) -> None:
        """A peer's process has ended."""
        self._has_happened()
        self.feed(lambda _: self._engine.peer_gone(peer))

    def on_snapshot_sent(self, peer: int, group: int, ok: bool) -> None:
        """A snapshot was delivered, or given up."""
        self.feed(lambda _: self._engine.host.snapshot_sent(peer, group, ok))

    # ------------------------------------------------------------------ output

    def schedule_pump(self) -> None:
        """Pump at the end of this turn of the loop, when all its input is in: a client's, say."""
        if not self._busy:
            self._has_happened()
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if self._writing is not None:
            self.writer.look()
        self._pump_scheduled = False
        in_tick, self._in_tick = self._in_tick, False
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
                self._pump_soon()
            if not self._busy and (output.write is not None or (output.frames and not in_tick)):
                self._has_happened()
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
        self._pump_soon()

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


def _nothing() -> None:
    """What is called after each tick until somebody says otherwise."""


def _no_input(_: int) -> None:
    pass
