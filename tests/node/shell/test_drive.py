"""The turns of a node: what waits for its log."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.cluster.host.host import HostOutput
from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.limits import LARGE_WRITE_BYTES
from mayfly.cluster.log.batch import GroupWrite, WriteBatch
from mayfly.cluster.raft import Entry
from mayfly.node.shell.drive import Drive, Outlets
from mayfly.node.shell.process_clock import ProcessClock
from mayfly.node.shell.tick_times import TickTimes
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
            loop, cast(Any, turns), ProcessClock(), node, TickTimes(50, 2, lambda most: 0),
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


class _Clock:
    def __init__(self) -> None:
        self.ms = 100_000

    def now_ms(self) -> int:
        return self.ms


class _Future:
    """What somebody waits for; noted when it has come."""

    def __init__(self, came: Callable[[], None]) -> None:
        self._came = came

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        self._came()

    def __await__(self) -> Any:
        yield


class _Loop:
    """Callbacks on virtual time."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._timers: list[tuple[int, int, Any]] = []
        self._numbers = itertools.count()
        self.wakes: list[int] = []
        self.came_ms: list[int] = []

    def create_future(self) -> _Future:
        return _Future(lambda: self.came_ms.append(self._clock.ms))

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Any:
        timer = SimpleNamespace(call=partial(callback, *arguments))
        timer.cancel = lambda: setattr(timer, "call", None)
        heapq.heappush(self._timers, (self._clock.ms + round(delay_s * 1000), next(self._numbers), timer))
        return timer

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> Any:
        return self.call_later(0, callback, *arguments)

    def run(self, until_ms: int) -> None:
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if timer.call is not None:
                if due_ms > self._clock.ms or not self.wakes:
                    self.wakes.append(due_ms)
                self._clock.ms = max(due_ms, self._clock.ms)
                timer.call()
        self._clock.ms = until_ms


class _Engine:
    """Heartbeats leave with each second tick; every input is noted."""

    def __init__(self) -> None:
        self.host = self
        self.pace = SimpleNamespace(at_rest=False)
        self.log_lost = None
        self.busy = False
        self.seen: list[tuple[str, int]] = []
        self.election_in = 14
        self.due_ms = 1 << 60
        self.frames: dict[int, str] = {}

    def tick(self, now_ms: int) -> None:
        self.seen.append(("tick", now_ms))
        if self.ticks % 2 == 0:
            self.frames = {2: "heartbeat"}

    @property
    def ticks(self) -> int:
        return sum(what == "tick" for what, _ in self.seen)

    def receive(self, _: int, frame: str, now_ms: int) -> None:
        self.seen.append((frame, now_ms))

    def peer_down(self, _: int, now_ms: int) -> None:
        self.seen.append(("down", now_ms))
        self.election_in = 2

    def pump(self, _: int) -> HostOutput:
        frames, self.frames = self.frames, {}
        return HostOutput(cast(Any, frames), None)

    def ticks_to_election(self) -> int:
        return self.election_in

    def can_wait(self, _: int, until_ms: int) -> bool:
        return until_ms < self.due_ms


class _AtRest:
    """A drive that has been at rest for a while: heartbeats leave at multiples of 100 ms."""

    def __init__(self) -> None:
        self.clock, self.engine = _Clock(), _Engine()
        self.loop = _Loop(self.clock)
        node: Any = SimpleNamespace(failure=None)
        quiet: Any = SimpleNamespace(flush=lambda: None, send=lambda peer, frame: None)
        self.drive = Drive(
            cast(Any, self.loop), cast(Any, self.engine), cast(Any, self.clock), node,
            TickTimes(50, 2, lambda most: 0), lambda _: Outlets(quiet, quiet, quiet),
        )  # fmt: skip
        self.drive.begin_ticks(lambda: None)
        self.loop.run(110_000)
        assert self.clock.ms == 110_000
        self.engine.seen.clear()
        self.loop.wakes.clear()

    def seen(self, until_ms: int) -> list[tuple[str, int]]:
        """What the engine gets until then; times are since this began."""
        self.loop.run(110_000 + until_ms)
        return [(what, at_ms - 110_000) for what, at_ms in self.engine.seen]


def test_a_node_at_rest_wakes_once_for_all_ticks_of_a_heartbeat() -> None:
    node = _AtRest()
    assert node.seen(1_000) == [("tick", at_ms) for at_ms in range(100, 1_100, 100) for _ in range(2)]
    assert len(node.loop.wakes) == 10


def test_a_tick_that_was_left_out_comes_before_what_comes_after_its_time() -> None:
    node = _AtRest()
    node.seen(20)
    node.drive.on_frame(2, cast(Any, "early"))
    node.seen(70)
    node.drive.on_frame(2, cast(Any, "late"))
    assert node.seen(100) == [("early", 20), ("tick", 70), ("late", 70), ("tick", 100)]


@pytest.mark.parametrize(("at_ms", "expected"), [(20, [50, 100, 150]), (70, [70, 100, 150])])
def test_what_a_client_says_ends_the_rest_at_once(at_ms: int, expected: list[int]) -> None:
    """Also where the time of a tick that was left out has passed: heartbeats do not come later for it."""
    node = _AtRest()
    node.seen(at_ms)
    assert node.engine.pace.at_rest
    node.drive.schedule_pump()
    assert not node.engine.pace.at_rest
    assert node.seen(150) == [("tick", tick_ms) for tick_ms in expected]
    assert not node.engine.pace.at_rest
    node.seen(1_500)
    assert node.engine.pace.at_rest


def test_what_this_node_says_beside_heartbeats_ends_the_rest() -> None:
    node = _AtRest()
    node.seen(20)
    node.engine.frames = {2: "answer"}
    node.drive.on_frame(2, cast(Any, "question"))
    assert node.seen(150) == [("question", 20), ("tick", 50), ("tick", 100), ("tick", 150)]


def test_a_peer_that_is_gone_ends_the_rest_as_an_election_may_follow() -> None:
    node = _AtRest()
    node.seen(20)
    node.drive.on_peer_down(2)
    assert node.seen(100) == [("down", 20), ("tick", 50), ("tick", 100)]


def test_what_is_due_is_not_waited_for() -> None:
    node = _AtRest()
    node.seen(100)
    node.engine.due_ms = node.clock.ms + 180
    node.seen(200)
    node.engine.seen.clear()
    assert node.seen(300) == [("tick", 250), ("tick", 300)]


def test_who_pauses_is_woken_by_a_tick() -> None:
    node = _AtRest()
    node.seen(20)
    node.drive.pause(1.0).send(None)
    node.seen(3_000)
    assert node.loop.came_ms == [111_100]
    assert len(node.loop.wakes) == 30
