"""One machine: a process that can crash, freeze and be started again, with its disk and its clock.

The process runs a `Program`: pure code with an outside like that of `node.engine.engine.Engine`. The machine
plays the shell: it ticks the program, hands it frames, sends what it puts out, writes to the disk one
batch at a time, and gives it the time of its own, wrong, clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from mayfly.cluster.log.batch import CorruptEntry, CorruptStore
from simulation.cluster.clocks import MachineClock, SimulatedProcessClock
from simulation.cluster.disk import Disk, DiskProfile
from simulation.cluster.events import MILLISECOND_US, EventQueue, Timer
from simulation.cluster.network import StreamNetwork

Frame = TypeVar("Frame")
Write = TypeVar("Write")
FrameOut = TypeVar("FrameOut", covariant=True)
WriteOut = TypeVar("WriteOut", covariant=True)


SYNC_FAILED = "sync failed"
MET_DAMAGE = "met damage"
GAVE_UP = "gave up"
REFUSED_TO_START = "refused to start"
"""How a process ends by itself."""


class ProcessEnds(Exception):
    """Raised by a program whose process must not go on: it ends at once, as `node.shell.process` does. The text
    says why.
    """


class ProgramOutput(Protocol[FrameOut, WriteOut]):
    """What a program wants done: frames by peer, and at most one write."""

    @property
    def frames(self) -> Any:
        """A mapping of peer id to frame."""
        ...

    @property
    def write(self) -> WriteOut | None:
        """A batch for the disk, or None."""
        ...

    @property
    def due_ms(self) -> int:
        """When the program is to be pumped again whatever happens; negative for never."""
        ...


class Program(Protocol[Frame, WriteOut]):
    """Pure code of a node, driven from outside. Times are the process clock's, in milliseconds."""

    def tick(self, now_ms: int) -> None:
        """Called every tick."""
        ...

    def receive(self, peer_id: int, frame: Frame, now_ms: int) -> None:
        """A frame of a peer came."""
        ...

    def peer_up(self, peer_id: int, now_ms: int) -> None:
        """The connection to a peer stands."""
        ...

    def peer_down(self, peer_id: int, now_ms: int) -> None:
        """It broke; what was in flight is lost."""
        ...

    def peer_gone(self, peer_id: int) -> None:
        """After `peer_down`: the peer's process has ended, for its machine refuses connections."""
        ...

    def pump(self, now_ms: int) -> ProgramOutput[Frame, WriteOut]:
        """Called after inputs: what is to be sent and written. No write while one is under way."""
        ...

    def persisted(self, now_ms: int) -> None:
        """The last write is durable."""
        ...

    @property
    def busy(self) -> bool:
        """Whether `pump` left something to do at once."""
        ...

    def disk_full(self, text: str) -> None:
        """The last write found no room; the shell tries it again."""
        ...


@dataclass(slots=True)
class MachineProfile:
    """How a process is driven. `boot_us` is the time from its start to its first action, at most."""

    tick_us: int = 50 * MILLISECOND_US
    boot_us: int = 50 * MILLISECOND_US
    loop_us: int = 100
    full_disk_retry_us: int = 100 * MILLISECOND_US


class Machine(Generic[Frame, Write]):
    """A computer with one process.

    `boot` makes the program anew from what the disk holds, and may return a batch that must be on the
    disk before the program does anything.

    A process ends by itself, at once and with everything in its memory, when a sync fails, and when the program raises
    `ProcessEnds` or `CorruptEntry` (it read something that rotted); `boot` may raise `CorruptStore`, and then
    there is no process. `ended` is told of each.
    """

    def __init__(
        self,
        machine_id: int,
        queue: EventQueue,
        random: Random,
        network: StreamNetwork[Frame],
        disk: Disk[Write],
        boot: Callable[[Machine[Frame, Write]], tuple[Program[Frame, Write], Write | None]],
        clock: MachineClock | None = None,
        profile: MachineProfile | None = None,
        disk_profile: DiskProfile | None = None,
    ) -> None:
        self.id = machine_id
        self.queue = queue
        self.random = random
        self.disk = disk
        self.clock = clock or MachineClock()
        self.profile = profile or MachineProfile()
        self.disk_profile = disk_profile or DiskProfile()
        self.program: Program[Frame, Write] | None = None
        self.process_clock = SimulatedProcessClock(self.clock, 0)
        self._clock_kept = False
        self.life = 0
        self.frozen = False
        self._alive = False
        self.crashes_in_a_write = 0
        """How often the process died while a write of its was under way."""
        self.on_crash: list[Callable[[], None]] = []
        """Called, once, when the process dies: whoever was connected to it puts itself here."""
        self.transmit: Callable[[int, Frame], None] = lambda peer, frame: network.send(
            machine_id, peer, frame
        )
        """How a frame leaves; a shell with more than one stream to a peer puts its own in here."""
        self.after_input: Callable[[Machine[Frame, Write]], None] = lambda machine: None
        """Called whenever the program has been pumped; for probes."""
        self.ended: Callable[[Machine[Frame, Write], str, str], None] = lambda machine, how, why: None
        """Called with how (`SYNC_FAILED`, ...) and why, when the process has ended by itself."""
        self._network = network
        self._boot = boot
        self._backlog: deque[Callable[[], None]] = deque()
        self._tick: Timer | None = None
        self._pump: Timer | None = None
        self._write: Timer | None = None
        self._due: Timer | None = None
        self._due_ms = 0
        """What `_due` was set for."""
        self._writing: Write | None = None
        network.add(machine_id)

    @property
    def running(self) -> bool:
        """Whether there is a process, be it frozen or still starting."""
        return self._alive

    @property
    def serving(self) -> bool:
        """Whether there is a process that has started."""
        return self.program is not None

    @property
    def next_tick_us(self) -> int:
        """The true time at which the process is ticked next, if nothing happens to it; -1 while it isn't."""
        return -1 if self._tick is None else int(self._tick[0])

    def now_ms(self) -> int:
        """The process clock now."""
        return self.process_clock.now_ms(self.queue.now_us)

    def start(self) -> None:
        """Start the process, which reads its disk, and the wall clock if it is the first since the machine started."""
        if self._alive:
            return
        self._alive = True
        self.life += 1
        if not self._clock_kept:
            self.process_clock = SimulatedProcessClock(self.clock, self.queue.now_us)
            self._clock_kept = True
        try:
            program, first = self._boot(self)
        except CorruptStore as error:
            self._alive = False
            self.ended(self, REFUSED_TO_START, str(error))
            return
        delay = self.random.randint(self.profile.boot_us // 2, self.profile.boot_us)
        if first is not None:
            self.disk.begin_write(first)
            delay += self.disk_profile.latency_us(self.random)
        self._pump = self.queue.after(delay, lambda: self._booted(program, first is not None))

    def _booted(self, program: Program[Frame, Write], wrote: bool) -> None:
        self._pump = None
        if wrote and self.disk_profile.failing:
            self._sync_failed()
            return
        if wrote:
            self.disk.complete()
        self.program = program
        self._network.start(self.id)
        self._tick = self.queue.after(self.random.randint(0, self.profile.tick_us), self._on_tick)
        self._wake()

    def crash(self, stays_up: bool = False) -> None:
        """Kill the process, and the machine with it unless that `stays_up`; unsynced writes are lost in any case."""
        if not self._alive:
            return
        self._clock_kept = stays_up
        self._alive = False
        self.program = None
        self.frozen = False
        self._backlog.clear()
        for timer in (self._tick, self._pump, self._write, self._due):
            if timer is not None:
                timer.cancel()
        self._tick = self._pump = self._write = self._due = None
        if self._writing is not None:
            self.crashes_in_a_write += 1
        self._writing = None
        self.disk.crash(pending_survives=self.random.random() < 0.3)
        self._network.stop(self.id, refuses=stays_up)
        watchers, self.on_crash = self.on_crash, []
        for watcher in watchers:
            watcher()

    def _end(self, how: str, why: str) -> None:
        """The process ends itself: it says nothing more to anybody, and writes nothing more."""
        self.crash()
        self.ended(self, how, why)

    def _end_by(self, error: Exception) -> None:
        self._end(MET_DAMAGE if isinstance(error, CorruptEntry) else GAVE_UP, str(error))

    def _sync_failed(self) -> None:
        """Nobody knows what of the write is on the disk: the process may neither go on nor try again."""
        self.disk_profile.failing = False
        self.disk.fail_sync(survives=self.random.random() < 0.5)
        self._end(SYNC_FAILED, "what is on the disk is not known")

    def _guarded(self, action: Callable[[], None]) -> bool:
        """Run a part of the program; False when the process has ended by it."""
        try:
            action()
        except (CorruptEntry, ProcessEnds) as error:
            self._end_by(error)
            return False
        return True

    def freeze(self) -> None:
        """Stop the process in its tracks, as SIGSTOP does; what comes for it waits."""
        if self.program is not None and not self.frozen:
            self.frozen = True
            self._network.set_answering(self.id, False)

    def thaw(self) -> None:
        """Let a frozen process go on; everything that waited happens now, in order."""
        if not self.frozen:
            return
        self.frozen = False
        self._network.set_answering(self.id, True)
        while self._backlog and not self.frozen:
            self._backlog.popleft()()

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` inside the process (a client's bytes arrived); not at all if there is none."""
        self._input(action)

    def received(self, peer_id: int, frame: Frame) -> None:
        """The network brings a frame."""

        def action() -> None:
            if self.program is not None:
                self.program.receive(peer_id, frame, self.now_ms())

        self._input(action)

    def peer_up(self, peer_id: int) -> None:
        """The network has a connection to a peer."""

        def action() -> None:
            if self.program is not None:
                self.program.peer_up(peer_id, self.now_ms())

        self._input(action)

    def peer_down(self, peer_id: int) -> None:
        """The network has lost the connection to a peer."""

        def action() -> None:
            if self.program is not None:
                self.program.peer_down(peer_id, self.now_ms())

        self._input(action)

    def peer_gone(self, peer_id: int) -> None:
        """The network has found that a peer's machine refuses connections."""

        def action() -> None:
            if self.program is not None:
                self.program.peer_gone(peer_id)

        self._input(action)

    def _input(self, action: Callable[[], None]) -> None:
        if self.program is None:
            return
        if self.frozen:
            self._backlog.append(lambda: self._input(action))
            return
        if self._guarded(action):
            self._wake()

    def _wake(self) -> None:
        """Pump soon: inputs that come within one turn of the event loop are worked off together."""
        if self._pump is None:
            self._pump = self.queue.after(self.random.randint(0, self.profile.loop_us), self._on_pump)

    def _on_pump(self) -> None:
        if self.frozen:
            self._backlog.append(self._on_pump)
            return
        self._pump = None
        program = self.program
        if program is None:
            return
        try:
            output = program.pump(self.now_ms())
            for peer_id, frame in output.frames.items():
                self.transmit(peer_id, frame)
        except (CorruptEntry, ProcessEnds) as error:
            self._end_by(error)
            return
        if output.write is not None:
            if self._writing is not None:
                raise AssertionError(f"node {self.id} asked for a second write while one was under way")
            self._writing = output.write
            self._begin_write()
        if program.busy:
            self._wake()
        if output.due_ms >= 0 and (self._due is None or output.due_ms < self._due_ms):
            if self._due is not None:
                self._due.cancel()
            self._due_ms = output.due_ms
            # Never early: a clock that drifts may have the program say once more how long it is.
            wait_ms = max(1, output.due_ms - self.now_ms())
            self._due = self.queue.after(wait_ms * MILLISECOND_US, self._on_due)
        self.after_input(self)

    def _on_due(self) -> None:
        self._due = None
        self._input(lambda: None)

    def _on_tick(self) -> None:
        if self.frozen:
            self._backlog.append(self._on_tick)
            return
        program = self.program
        if program is None:
            return
        self._tick = self.queue.after(self.profile.tick_us, self._on_tick)
        if self._guarded(lambda: program.tick(self.now_ms())):
            self._wake()

    def _begin_write(self) -> None:
        write = self._writing
        if write is None:
            return
        if self.disk_profile.full:
            self.disk.refuse(write)
            self._write = self.queue.after(self.disk_profile.latency_us(self.random), self._on_disk_full)
            return
        self.disk.begin_write(write)
        self._write = self.queue.after(self.disk_profile.latency_us(self.random), self._on_written)

    def _on_written(self) -> None:
        """The disk is done; a stuck disk is never done before it is released."""
        if self.disk_profile.stuck:
            self._write = self.queue.after(self.profile.full_disk_retry_us, self._on_written)
            return
        self._write = None
        if self.disk_profile.failing:
            self._sync_failed()
            return
        self.disk.complete()
        self._input(self._persisted)

    def _persisted(self) -> None:
        self._writing = None
        if self.program is not None:
            self.program.persisted(self.now_ms())

    def _on_disk_full(self) -> None:
        self._write = self.queue.after(self.profile.full_disk_retry_us, self._begin_write)

        def action() -> None:
            if self.program is not None:
                self.program.disk_full("the disk is full")

        self._input(action)
