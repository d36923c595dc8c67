"""What happened, line by line: hashed always, kept or printed on request.

Two runs of one seed must give one hash, in any process and under any PYTHONHASHSEED. A different hash is
a defect in itself: something asked a clock, the random module or the order of a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cluster.simulator.events import EventQueue


class Trace:
    """The running hash over all lines; `sink` receives each line as text, if given."""

    def __init__(self, queue: EventQueue, sink: Callable[[str], None] | None = None) -> None:
        self._queue = queue
        self._hash = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self.lines = 0

    def add(self, *parts: object) -> None:
        """Append one line; the parts must print the same in every process (no addresses, no sets)."""
        self.lines += 1
        line = f"{self._queue.now_us} {' '.join(map(str, parts))}"
        self._hash.update(line.encode("utf-8", "backslashreplace"))
        self._hash.update(b"\n")
        if self._sink is not None:
            self._sink(line)

    def digest(self) -> str:
        """The hash of everything so far, in hexadecimal."""
        return self._hash.hexdigest()
