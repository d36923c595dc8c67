"""The thread that writes: when it wakes the event loop, and when it leaves that to whatever comes next."""

import asyncio
import threading

import pytest

from mayfly.cluster.log.batch import DiskFull, WriteBatch
from mayfly.node.shell.log_writer import LogWriter
from simulation.cluster.memory_store import MemoryStore


class Slow(MemoryStore):
    """Writes when it may, and fails if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.error: Exception | None = None

    def write(self, batch: WriteBatch) -> None:
        self.may_write.wait()
        if self.error is not None:
            raise self.error


class Shell:
    """A loop that counts how often it was told."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = Slow()
        self.told: list[BaseException | None] = []
        self.writer = LogWriter(self.store, self.loop, self.told.append)

    def turn(self) -> None:
        """What other threads have asked of the loop is done."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def end_write(self) -> None:
        """The write under way ends, and with it the thread: all that it says is said."""
        self.store.may_write.set()
        self.writer.stop()


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_the_loop_is_woken_when_a_batch_is_on_disk(shell: Shell) -> None:
    shell.writer.write(WriteBatch())
    shell.end_write()
    shell.turn()
    assert shell.told == [None]
    shell.writer.look()
    assert shell.told == [None]


def test_a_loop_that_looks_is_not_woken(shell: Shell) -> None:
    shell.writer.write(WriteBatch(), wakes=False)
    shell.end_write()
    shell.turn()
    assert shell.told == []
    shell.writer.look()
    assert shell.told == [None]


def test_a_loop_that_looks_too_early_is_woken(shell: Shell) -> None:
    shell.writer.write(WriteBatch(), wakes=False)
    shell.writer.look()
    assert shell.told == []
    shell.end_write()
    shell.turn()
    assert shell.told == [None]


def test_an_error_wakes_the_loop_in_any_case(shell: Shell) -> None:
    shell.store.error = DiskFull("full")
    shell.writer.write(WriteBatch(), wakes=False)
    shell.end_write()
    shell.turn()
    assert shell.told == [shell.store.error]


@pytest.mark.parametrize("error", [None, DiskFull("full")])
def test_a_loop_that_was_left_hears_of_no_write_that_ends_later(shell: Shell, error: Exception | None) -> None:
    """The node may have closed its log by then."""
    shell.store.error = error
    shell.writer.write(WriteBatch())
    shell.writer.leave_loop()
    shell.end_write()
    shell.turn()
    shell.writer.look()
    assert shell.told == []


def test_what_ended_before_the_loop_was_left_comes_to_nothing(shell: Shell) -> None:
    shell.writer.write(WriteBatch())
    shell.end_write()
    shell.writer.leave_loop()
    shell.turn()
    assert shell.told == []


def test_the_next_batch_decides_for_itself(shell: Shell) -> None:
    shell.store.may_write.set()
    for wakes in (False, True, False):
        shell.writer.write(WriteBatch(), wakes=wakes)
        told = len(shell.told)
        while len(shell.told) == told:
            shell.writer.look()
            shell.turn()
    assert shell.told == [None] * 3
    shell.writer.stop()
