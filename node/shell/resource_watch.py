"""What a node looks at every second: its disk, its memory, and whether the others contradict its clock."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from mayfly.cluster.host.clocks_ahead import ClocksAhead, clocks_ahead
from mayfly.cluster.log.batch import LogError
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.duties.alarms import Watermark, disk_watermark
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.views.status import alarm_texts
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.kept_ahead import KeptAhead
from mayfly.node.shell.process_clock import forget_clock
from mayfly.node.shell.process_memory import FreedMemory, MemoryWatch

log = logging.getLogger("mayfly.node")

LOOK_S: Final = 1.0
MEMORY_LOOK_S: Final = 0.1
"""Publishers send hundreds of megabytes in a second. Where there is room for more the next look can wait."""
CONTRADICTIONS: Final = 5
"""So many looks in turn must find the clock contradicted: frames that waited for a frozen process make it seem so."""


class ResourceWatch:
    """The watches of one node; each runs until it is cancelled."""

    def __init__(
        self,
        engine: Engine,
        store: WriteAheadStore,
        memory: MemoryWatch,
        settings: NodeSettings,
        feed: Callable[[Callable[[int], None]], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`feed(take_in)` gives the engine some input: `take_in(now_ms)`. `pause(seconds)` waits for about so long."""
        self._engine = engine
        self._store = store
        self._memory = memory
        self._settings = settings
        self._feed = feed
        self._pause = pause
        self._cpu = CpuWatch()
        self.free_bytes: int | None = None
        """On the disk, when it was last looked; None before that."""

    async def watch_clock(self) -> None:
        """A clock that most members contradict is not kept: somebody sets the wall clock right, and starts the node."""
        looks = 0
        while looks < CONTRADICTIONS:
            await self._pause(LOOK_S)
            looks = looks + 1 if self._engine.host.clocks.contradicted() else 0
        log.warning("most nodes contradict this node's clock; its next start reads the wall clock")
        await asyncio.get_running_loop().run_in_executor(None, forget_clock, DataFolder(self._settings.data_dir))

    async def watch_clocks_ahead(self, ahead: KeptAhead) -> None:
        """Keep how far groups' clocks are ahead of this node's, for its next process on this boot (RULES T14)."""
        host = self._engine.host
        found: list[ClocksAhead] = []

        def look(now_ms: int) -> None:
            rows = clocks_ahead(host.groups.values(), host.clocks.bound_ms, now_ms)
            if ahead.wants(rows):
                found.append(rows)

        while True:
            self._feed(look)
            while found:
                await asyncio.get_running_loop().run_in_executor(None, ahead.keep, found.pop())
            await self._pause(LOOK_S)

    async def watch_disk_and_memory(self) -> None:
        """Block publishers while the disk or the memory is short."""
        disk = disk_watermark(self._settings.disk_free_limit_bytes)
        freed = FreedMemory()
        while True:
            # All in one go: to hand a look to a thread and hear of it costs more than the look.
            short, why_memory = await asyncio.get_running_loop().run_in_executor(None, self._look, disk, freed)
            free = f"{self.free_bytes} bytes free"
            why_disk = f"{free}, the limit is {disk.limit} (disk_free_limit_bytes)" if short else None
            self._feed(partial(self._looked, why_disk, why_memory))
            await self._until_next_look()

    def _look(self, disk: Watermark, freed: FreedMemory) -> tuple[bool, str | None]:
        """Whether the disk is short, and why the memory is, if it is; what is free is given back. In a thread."""
        short = self._disk_is_short(disk)
        why_memory = self._memory.look()
        freed.look(self._store.written_bytes, self._memory.used_bytes)
        return short, why_memory

    async def _until_next_look(self) -> None:
        """A second, or less if the memory is overrun meanwhile. It is looked at no oftener than it can be: to wake for
        it costs a node at rest more than the look."""
        left_s = LOOK_S
        while left_s > 0:
            pause_s = min(left_s, max(MEMORY_LOOK_S, self._memory.rest_s))
            await (self._pause if pause_s == LOOK_S else asyncio.sleep)(pause_s)
            left_s -= pause_s
            if left_s > 0 and self._memory.is_overrun():
                return

    def _looked(self, why_disk: str | None, why_memory: str | None, now_ms: int) -> None:
        before = alarm_texts(self._engine)
        self._engine.disk_space(why_disk)
        self._engine.memory_used(why_memory)
        self._engine.cpu_used(self._cpu.permille(time.process_time(), time.monotonic()))
        after = alarm_texts(self._engine)
        if bool(before) != bool(after):
            log.warning("publishers are blocked: %s" if after else "publishers go on%s", "; ".join(after))

    def _disk_is_short(self, disk: Watermark) -> bool:
        """Look at the room for the log. Before it is short, or stays so, what was released gives its room back: an idle
        node writes nothing that would see to it. The node may close the log meanwhile: LogError."""
        self.free_bytes = self._store.free_bytes()
        if self.free_bytes < disk.threshold:
            with suppress(LogError):  # the next write says so
                self._store.settle()
            self.free_bytes = self._store.free_bytes()
        return disk.look(self.free_bytes)


class CpuWatch:
    """How much of a core a process takes."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def permille(self, used_s: float, now_s: float) -> int:
        """Thousandths, since the last look; 0 at the first. `used_s` is what it has taken by now."""
        before, self._before = self._before, (used_s, now_s)
        if before is None or now_s <= before[1]:
            return 0
        return round(_PERMILLE * (used_s - before[0]) / (now_s - before[1]))


_PERMILLE: Final = 1000
