"""Waiting for what comes in its own time, up to a bound that only a broken program reaches.

No test sleeps for a fixed time in the hope that something has happened by then, and none judges by how fast the machine
was: what says something only when there was time to look in it is repeated until there was (`until_judged`).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

Result = TypeVar("Result")

BOUND_S: Final = 180.0
"""On two cores that are busy otherwise, three nodes have taken a minute to come up."""


def wait_for(what: Callable[[], object], description: str, within_s: float = BOUND_S, every_s: float = 0.01) -> float:
    """Ask until it is so; the seconds it took. Fails the test at the bound."""
    began_s = time.monotonic()
    while not what():
        if time.monotonic() - began_s > within_s:
            raise AssertionError(f"{description}: not within {within_s} s")
        time.sleep(every_s)
    return time.monotonic() - began_s


def wait_for_each(ids: Iterable[int], what: Callable[[int], object], description: str) -> None:
    """Ask one node after the other until it is so at each."""
    for id in ids:
        wait_for(partial(what, id), f"{description} at node {id}")


def until_judged(judged: Callable[[int], bool], description: str, rounds: int, times: int = 1) -> None:
    """Hold rounds, by number, until so many of them could be judged: a round fails the test by itself, and returns
    False when this machine was too busy to tell. Fails the test when there are no more rounds."""
    count = 0
    for number in range(rounds):
        count += judged(number)
        if count == times:
            return
    raise AssertionError(f"{description}: {count} of {rounds} rounds, not {times}")


async def until(condition: Callable[[], object], description: str, within_s: float = BOUND_S) -> float:
    """As `wait_for`, while the loop goes on."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > within_s:
            raise AssertionError(f"{description}: not within {within_s} s")
        await asyncio.sleep(0.002)
    return time.monotonic() - began_s


def bounded(what: Callable[[], Result], within_s: float = 2 * BOUND_S) -> Result:
    """The result of a call that might wait for ever: in a thread, and given up at the bound."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(what()), daemon=True)
    thread.start()
    thread.join(within_s)
    assert results, f"nothing after {within_s} s" if thread.is_alive() else "failed; see the thread's exception"
    return results[0]


def wait_until_s(moment_s: float) -> None:
    """Return when monotonic time has come to the moment: for promises that are about time passing."""
    while (left_s := moment_s - time.monotonic()) > 0:
        time.sleep(left_s)
