"""How long a node keeps its loop to itself."""

import threading
import time
from typing import Final

from bench.clusters import Cluster, page

_PAUSE_S: Final = 0.005
"""Between two questions: a silence is told too short by so much at the most."""


class LongestSilence:
    """The longest that a node took to answer a request that costs nothing: how long its loop was busy in one go."""

    def __init__(self, cluster: Cluster) -> None:
        self.longest_ms: float = 0.0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(port,)) for port in cluster.http]

    def __enter__(self) -> "LongestSilence":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, port: int) -> None:
        while not self._stop.wait(_PAUSE_S):
            asked = time.monotonic()
            try:
                page(port, "/health/live")
            except OSError:
                continue  # It is not there (again) yet.
            self.longest_ms = max(self.longest_ms, (time.monotonic() - asked) * 1000)
