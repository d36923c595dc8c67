"""How long what is given to a group takes until it is committed, at its leader (pure). HOT: counted by entry.

In ms of the process clock, from the turn in which the first batch of an entry gathers to the one in which the leader
knows that a majority has it on disk: the wait for a write under way, the write, the way to a follower and back.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

COMMIT_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Entries are counted by time: up to and with each bound, and beyond the last."""
NOT_KNOWN: Final = -1


class CommitTimes:
    """Of all groups that a node has led since its process began."""

    def __init__(self) -> None:
        self.by_bucket: list[int] = [0] * (len(COMMIT_BOUNDS_MS) + 1)
        self.sum_ms: int = 0

    def observe(self, entries: int, took_ms: int) -> None:
        """So many entries took so long."""
        self.by_bucket[bisect_left(COMMIT_BOUNDS_MS, took_ms)] += entries
        self.sum_ms += entries * took_ms


class AwaitedCommits:
    """Entries of one group that its leader has made in its term, and that are not committed yet. What another leader
    makes of them is not counted."""

    def __init__(self) -> None:
        self.last_ms: int = NOT_KNOWN
        """How long the last entry took that was committed here."""
        self._gathers_since_ms: int = NOT_KNOWN
        self._term: int = 0
        self._entries: deque[tuple[int, int, int]] = deque()
        """Index of the last of some entries, how many they are, and since when they gathered."""

    def gathers(self, now_ms: int) -> None:
        """There is something for the next entry; when that began counts."""
        if self._gathers_since_ms == NOT_KNOWN:
            self._gathers_since_ms = now_ms

    def proposed(self, term: int, last_index: int, entries: int, now_ms: int) -> None:
        """What has gathered is in the log now."""
        if term != self._term:
            self._entries.clear()
            self._term = term
        since_ms, self._gathers_since_ms = self._gathers_since_ms, NOT_KNOWN
        if entries:
            self._entries.append((last_index, entries, now_ms if since_ms == NOT_KNOWN else since_ms))

    def committed(self, term: int, index: int, now_ms: int, times: CommitTimes) -> None:
        """The leader of this term knows the log to be committed so far."""
        waiting = self._entries
        if waiting and term != self._term:
            waiting.clear()
        while waiting and waiting[0][0] <= index:
            _, entries, since_ms = waiting.popleft()
            self.last_ms = now_ms - since_ms
            times.observe(entries, self.last_ms)

    def forget(self) -> None:
        """This node leads no more."""
        self._entries.clear()
        self._gathers_since_ms = NOT_KNOWN
        self.last_ms = NOT_KNOWN
