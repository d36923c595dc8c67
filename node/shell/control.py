"""What is done with a node that runs: it is drained and revived, drained before a stop, and its data copied."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.watching import Watch
from mayfly.node.engine.drain import DRAINED, NOT_DRAINING, TEXT_OF_DRAIN, TEXT_OF_STOP, Drain, DrainSettings
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.operator import Traced
from mayfly.node.shell.catching_up import CatchingUp
from mayfly.node.shell.data_copy import copy_data
from mayfly.node.shell.drive import Drive
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.log_lines import levels, set_level

log = logging.getLogger("mayfly.node")


MOST_TRACES: Final = 4
"""Of operators at once."""


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


class Control:
    """Of one node. Implements `NodeControl` of `node.operating.operator`, and `DrainPort`."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        drive: Drive,
        store: WriteAheadStore,
        catching_up: CatchingUp,
        ending: Ending,
        times: DrainSettings,
    ) -> None:
        self.drain: Drain = Drain(engine.host, broker, self, times)
        self._engine = engine
        self._broker = broker
        self._drive = drive
        self._listener = drive.listener
        self._store = store
        self._catching_up = catching_up
        self._ending = ending
        self._drained = asyncio.Event()
        self._stop_asked = False
        self._takes_no_clients = False
        self._opening = asyncio.Lock()

    def ticked(self) -> None:
        """The engine was given a tick."""
        if self.drain.step != NOT_DRAINING:
            self._drive.feed(self.drain.tick)
            if self.drain.step == DRAINED:
                self._drained.set()

    async def trace(self, queue_id: int, user: str, seconds: float, most: int) -> Traced | None:
        """See `NodeControl.trace`."""
        watches = self._broker.traffic.watches
        if len(watches) >= MOST_TRACES:
            return None
        watch = Watch(queue_id, user, most, _wall_clock_ms)
        watches.append(watch)
        try:
            await asyncio.sleep(seconds)
        finally:
            watches.remove(watch)
        return watch.events, watch.left_out

    def log_levels(self) -> dict[str, str]:
        """See `NodeControl.log_levels`."""
        return levels()

    def set_log_level(self, part: str, level: str) -> None:
        """See `NodeControl.set_log_level`."""
        set_level(part, level)

    # ------------------------------------------------------------------ drained

    async def drain_before_stop(self) -> None:
        """Let clients and other nodes go before a stop that was asked for; returns at the time limit at the latest."""
        self._stop_asked = True
        self._drive.feed(lambda now_ms: self.drain.begin(TEXT_OF_STOP, now_ms))
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._drained, self._ending.stopped)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def drain_because_removed(self) -> None:
        """An operator has this node removed from the cluster; also called within a turn."""
        if self._catching_up.serving and self.drain.step == NOT_DRAINING:
            log.info("this node is being removed from the cluster: it drains")
            asyncio.get_running_loop().call_soon(self.begin_drain)

    def begin_drain(self) -> None:
        """See `NodeControl.begin_drain`."""
        self._drive.feed(lambda now_ms: self.drain.begin(TEXT_OF_DRAIN, now_ms))

    async def revive(self) -> None:
        """See `NodeControl.revive`. Raises OSError if the AMQP address can't be had, or a stop was asked for."""
        async with self._opening:
            self._refuse_if_stopping()
            if self._takes_no_clients:
                await self._listener.start_listening()
                self._takes_no_clients = False
            if self._stop_asked:  # while the sockets were opened
                self.take_no_clients()
                self._refuse_if_stopping()
        self.drain.revive()
        self._drained.clear()
        self._drive.schedule_pump()

    def _refuse_if_stopping(self) -> None:
        """Nobody revives a node that has been told to stop: the process would wait for the end of a drain for ever."""
        if self._stop_asked:
            raise OSError("the node was told to stop")

    def take_no_clients(self) -> None:
        """See `DrainPort.take_no_clients`."""
        self._takes_no_clients = True
        self._listener.stop_listening()

    def pending_bytes(self) -> int:
        """See `DrainPort.pending_bytes`."""
        return self._engine.pending_bytes()

    def drain_status(self) -> dict[str, object]:
        """How far a drain has come."""
        return {
            "state": self.drain.state,
            "leads": sum(group.leads for group in self._engine.host.groups.values()),
            "connections": self._listener.connection_count,
            "unacknowledged": self._broker.unacknowledged,
        }

    # ------------------------------------------------------------------ copied

    async def copy_data(self, folder: Path) -> int:
        """Copy the node's data to a folder that is not there yet; its bytes. All that the replicas have taken in by now
        is in it. Raises OSError."""
        await self._drive.until_stored()
        return await asyncio.get_running_loop().run_in_executor(None, copy_data, self._store, folder)
