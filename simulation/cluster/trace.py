"""What happened, line by line: hashed always, kept or printed on request.

Two runs of one seed must give one hash, in any process and under any PYTHONHASHSEED. A different hash is
a defect in itself: something asked a clock, the random module or the order of a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from simulation.cluster.events import EndlessRun, EventQueue

LINES_HASHED_AT_ONCE = 256
MOST_LINES = 200_000
"""No run of whole nodes needs a fifth of these."""


class Trace:
    """The running hash over all lines; `sink` receives each line as text, if given. After `most_lines` the run ends."""

    def __init__(
        self, queue: EventQueue, sink: Callable[[str], None] | None = None, most_lines: int = MOST_LINES
    ) -> None:
        self._most_lines = most_lines
        self._queue = queue
        self._hash = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self._unhashed: list[str] = []
        self.lines = 0

    def add(self, *parts: object) -> None:
        """Append one line; the parts must print the same in every process (no addresses, no sets)."""
        self.lines += 1
        line = f"{self._queue.now_us} {' '.join(map(str, parts))}\n"
        self._unhashed.append(line)
        if len(self._unhashed) >= LINES_HASHED_AT_ONCE:
            self._catch_up()
        if self._sink is not None:
            self._sink(line[:-1])

    def _catch_up(self) -> None:
        """Hash the lines that wait. Raises EndlessRun."""
        self._hash.update("".join(self._unhashed).encode("utf-8", "backslashreplace"))
        self._unhashed.clear()
        if self.lines > self._most_lines:
            raise EndlessRun(f"{self.lines} events by {self._queue.now_us} us, and no end: who answers whom?")

    def digest(self) -> str:
        """The hash of everything so far, in hexadecimal."""
        self._catch_up()
        return self._hash.hexdigest()
