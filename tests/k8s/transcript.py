"""What is written down of each step: how long it took, how many pods were ready, how long messages stood."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.k8s.cluster import MOST, Cluster, is_ready
from tests.k8s.load import QUEUES

if TYPE_CHECKING:
    from tests.reliability.clients import Clients

LOOK_EVERY_S: Final = 0.5


class Counts(threading.Thread):
    """Counts how many pods are ready, and which ended by themselves, all the time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="counts of pods", daemon=True)
        self.fewest_ready = MOST
        self.restarts: dict[str, int] = {}
        """How often a pod's node ended and was started again, by the pod's id."""
        self._cluster = cluster
        self._over = threading.Event()
        self._count()

    def run(self) -> None:
        """The thread."""
        while not self._over.wait(LOOK_EVERY_S):
            self._count()

    def _count(self) -> None:
        pods = self._cluster.pods()
        self.fewest_ready = min(self.fewest_ready, sum(is_ready(pod) for pod in pods))
        for pod in pods:
            for status in pod.status.container_statuses or []:
                if status.restart_count:
                    self.restarts[pod.metadata.uid] = status.restart_count

    def end(self) -> None:
        """Stop."""
        self._over.set()
        self.join()
        self._count()


class Steps:
    """What is done, one after the other, with times."""

    def __init__(self, cluster: Cluster) -> None:
        self.lines = ["| step | s | fewest ready pods | longest without a confirm, s | seen |", "|---|---|---|---|---|"]
        self.load: Clients | None = None
        """Once there is a load."""
        self._cluster = cluster

    def do(self, what: str, work: Callable[[], str], count: bool = True) -> None:
        """Do it; the answer says what was seen. `count`: how many pods were ready at least."""
        began_s = time.monotonic()
        began_us = self.load.now_us() if self.load is not None else 0
        print(f"{time.strftime('%H:%M:%S')} {what} ...", flush=True)
        counts = Counts(self._cluster)
        counts.start()
        try:
            seen = work()
        finally:
            counts.end()
        ready = str(counts.fewest_ready) if count else ""
        if counts.restarts:
            seen += f"; {sum(counts.restarts.values())} restarts of nodes that ended by themselves"
        pause = ""
        if self.load is not None:
            pause_s, queue, end_s = longest_pause(self.load, began_us)
            pause = f"{pause_s:.1f}"
            given_up = sum(since_us >= began_us for since_us, *_ in self.load.history.given_up)
            until = time.strftime("%H:%M:%S", time.localtime(end_s))
            print(f"    queue {queue} had no confirm for {pause} s, until {until}; clients gave up {given_up} times")
        self.lines.append(f"| {what} | {time.monotonic() - began_s:.0f} | {ready} | {pause} | {seen} |")
        print(f"    {time.monotonic() - began_s:.0f} s; {ready} ready; {pause} s; {seen}", flush=True)


def longest_pause(load: Clients, since_us: int) -> tuple[float, str, float]:
    """How long a queue took no messages, at most, through whichever pod: seconds, the queue, the time of the end."""
    now_us = load.now_us()
    pauses = []
    for queue in QUEUES:
        names = [name for name, (_, published_to) in list(load.homes.items()) if published_to == queue]
        times_us = sorted(at_us for name in names for at_us, _ in list(load.confirms[name]) if at_us > since_us)
        pauses += [(after - before, queue, after) for before, after in pairwise([since_us, *times_us, now_us])]
    pause_us, queue, end_us = max(pauses)
    return pause_us / 1e6, queue, time.time() - (now_us - end_us) / 1e6
