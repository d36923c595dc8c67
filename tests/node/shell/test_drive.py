"""The turns of a node: what waits for its log."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from mayfly.cluster.host.host import HostOutput
from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.limits import LARGE_WRITE_BYTES
from mayfly.cluster.log.batch import GroupWrite, WriteBatch
from mayfly.cluster.raft import Entry
from mayfly.node.shell.drive import Drive, Outlets
from mayfly.node.shell.process_clock import ProcessClock
from tests.waiting import BOUND_S, until


class _Turns:
    """An engine and a disk with nothing but writes; another small one gathers in every turn."""

    def __init__(self) -> None:
        self.writes = PendingWrites()
        self.log_lost = None
        self.busy = False
        self.stored: list[tuple[int, int]] = []
        self.index = 10
        self.host = self

    @property
    def writes_until_stored(self) -> int:
        return self.writes.until_stored

    def gather(self, group: int, index: int, size_bytes: int) -> None:
        write = GroupWrite(group)
        write.entries = [Entry(1, index, data=bytes(size_bytes))]
        self.writes.gather(write)

    def pump(self, now_ms: int) -> HostOutput:
        self.index += 1
        self.gather(1, self.index, 10)
        return HostOutput({}, self.writes.begin())

    def persisted(self, now_ms: int) -> None:
        batch = self.writes.under_way
        assert batch is not None
        self.stored += [(group, entry.index) for group, write in batch.groups.items() for entry in write.entries]
        self.writes.ended()


class _Disk:
    def __init__(self, written: Callable[[BaseException | None], None]) -> None:
        self._written = written

    def write(self, batch: WriteBatch, waits: bool = True) -> None:
        asyncio.get_running_loop().call_soon(self._written, None)

    def look(self) -> None:
        pass


def test_a_copy_waits_for_all_writes_into_which_the_batch_that_gathers_is_divided() -> None:
    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), _Turns()
        node: Any = SimpleNamespace(failure=None)
        quiet: Any = SimpleNamespace(flush=lambda: None)
        drive = Drive(
            loop, cast(Any, turns), ProcessClock(), node, 50,
            lambda drive: Outlets(cast(Any, _Disk(drive.written)), quiet, quiet),
        )  # fmt: skip
        drive.schedule_pump()
        await until(lambda: bool(turns.stored), "a first write")
        taken_in = [(group, 1) for group in range(2, 6)]
        for group, index in taken_in:
            turns.gather(group, index, LARGE_WRITE_BYTES + 1)
        async with asyncio.timeout(BOUND_S):
            await drive.until_stored()
        assert set(taken_in) <= set(turns.stored)
        node.failure = "the test is over"

    asyncio.run(scenario())
