"""What time will do to a queue by itself: what expires, becomes due or is retried, whether its lease ends (RULES R2).

A message leaves when its deadline has passed and all before it in its line have left (T6): so in each line those count
that come before the first that stays; a stream's leave from wherever they stand (J2), and the markers that come then
are not counted. Nothing is known of clients: what they will publish, take or give back is left
out, and so is what dies elsewhere and comes here.
"""

from collections.abc import Iterator
from typing import Final

from mayfly.node.shard.moment import LineName, MomentLine, MomentPart, named_lines, parts_of, runs_of
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.run import due_of
from mayfly.node.shard.settings import decode_terms

NO_LEASE: Final = -1
_NOWHERE: Final = -1


class Outlook:
    """What happens to a queue from ``time_ms`` of the shard's clock on, in windows of ``windows_ms``, whose ends are in
    them.

    For each window: ``expire``, messages that leave because their deadline has passed; ``due``, messages that become
    ready for the first time or go on to their delayed exchange, and ``retried``, those that become ready again;
    ``lease_ends``, whether the queue goes.
    ``lease_ends_in_ms`` is how much of its lease is left, `NO_LEASE` without one or while consumers suspend it.
    """

    __slots__ = ("due", "expire", "lease_ends", "lease_ends_in_ms", "retried", "time_ms", "windows_ms")

    def __init__(self, time_ms: int, windows_ms: list[int]) -> None:
        self.time_ms = time_ms
        self.windows_ms = windows_ms
        self.expire = [0] * len(windows_ms)
        self.due = [0] * len(windows_ms)
        self.retried = [0] * len(windows_ms)
        self.lease_ends = [False] * len(windows_ms)
        self.lease_ends_in_ms = NO_LEASE


def outlook_steps(queue: Queue, time_ms: int, led_ms: int, windows_ms: list[int]) -> Iterator[Outlook | None]:
    """The outlook at last, and None for each step before. The queue is looked at as it is at the first step; its clocks
    stand at ``time_ms`` and ``led_ms`` then."""
    outlook = Outlook(time_ms, windows_ms)
    if queue.has_left:
        yield outlook
        return
    if queue.expires_ms >= 0 and queue.lease.suspended_by == 0:
        outlook.lease_ends_in_ms = max(0, queue.lease.started_ms + queue.expires_ms - led_ms)
    leased = outlook.lease_ends_in_ms != NO_LEASE
    terms = decode_terms(queue.terms_bytes)
    only_if_empty = terms.expires_if_empty
    waiting, held = queue.waiting_count(), queue.held_count
    until_ms = [time_ms + window_ms for window_ms in windows_ms]
    if leased and not only_if_empty:
        # What the queue has then goes with it.
        until_ms = [min(end_ms, time_ms + outlook.lease_ends_in_ms) for end_ms in until_ms]
    counting = _Counting(queue, until_ms, outlook, terms.delays)
    for _ in counting.steps():
        yield None
    if leased:
        for number, window_ms in enumerate(windows_ms):
            empty = not held and terms.marker_ttl_ms is None and outlook.expire[number] == waiting
            outlook.lease_ends[number] = outlook.lease_ends_in_ms <= window_ms and (empty or not only_if_empty)
    yield outlook


class _Counting:
    """The messages of a queue, counted up to some moments of the shard's clock."""

    __slots__ = (
        "_default", "_lazy", "_leaves", "_lines", "_outlook", "_runs", "_stays", "_stream", "_stream_rule", "_until_ms",
    )  # fmt: skip

    def __init__(self, queue: Queue, until_ms: list[int], outlook: Outlook, delays: bool) -> None:
        """``delays``: what is due goes to an exchange instead of becoming ready (RULES S1)."""
        self._until_ms = until_ms
        self._outlook = outlook
        self._default = queue.default_priority > 0
        self._lazy = queue.is_lazy
        self._leaves = delays or (queue.consumers.top_band() is not None and not queue.is_braked)
        self._runs = runs_of(queue)
        self._stream_rule = queue.ttl_ms
        self._stream = [] if queue.stream is None else parts_of(queue.ready, True)
        self._lines: list[tuple[LineName, MomentLine]] = []
        self._stays: dict[LineName, list[bool]] = {}
        """By line and moment, whether something in it stays: what comes behind that does not leave."""
        for name, line in named_lines(queue) if queue.stream is None else ():
            if line.timed or line.returning:
                self._lines.append((name, MomentLine(line)))
            elif line.count():
                self._stays[name] = [True] * len(until_ms)

    def steps(self) -> Iterator[None]:
        """A few milliseconds of work each."""
        for part in self._stream:
            # They leave from wherever they stand (RULES J2).
            deadlines = part.deadlines(self._stream_rule)
            for number, end_ms in enumerate(self._until_ms):
                self._outlook.expire[number] += deadlines.count_within(end_ms, 0)
            yield
        if not self._lazy:
            for name, line in self._lines:
                stays = self._stays[name] = [False] * len(self._until_ms)
                for part in line.parts():
                    self._leave(part, stays)
                    yield
                    if all(stays):
                        break
        for _, line in self._lines:
            yield from line.let_go()
        due: list[list[MomentPart]] = []
        for run in self._runs:
            some: list[MomentPart] = []
            for part in run:
                found = self._become_ready(part)
                if found:
                    some.append(part)
                yield
                if found < part.count:
                    break
            due.append(some)
        if self._lazy or self._leaves:
            return  # Nothing expires by itself, or what is due goes elsewhere.
        blocked: dict[LineName, list[int]] = {}
        for run in due:
            for part in run:
                self._find_what_stays(part, blocked)
                yield
        for run in due:
            for part in run:
                self._expire_after_due(part, blocked)
                yield

    def _leave(self, part: MomentPart, stays: list[bool]) -> None:
        """What of a line leaves, up to the first that stays."""
        deadlines = part.deadlines()
        for number, end_ms in enumerate(self._until_ms):
            if not stays[number]:
                gone = deadlines.first_outside(end_ms)
                self._outlook.expire[number] += gone
                stays[number] = gone < part.count

    def _become_ready(self, part: MomentPart) -> int:
        """Count what is due; how many are, in the longest window."""
        times = part.due_times()
        most = 0
        for number, end_ms in enumerate(self._until_ms):
            count = times.count_up_to(end_ms)
            if count:
                most = max(most, count)
                again = part.came_back(count)
                self._outlook.retried[number] += again
                self._outlook.due[number] += count - again
        return most

    def _find_what_stays(self, part: MomentPart, blocked: dict[LineName, list[int]]) -> None:
        """Note, by line and moment, the place of the first of what becomes ready that stays then."""
        for name, some in part.by_line(self._default):
            deadlines = some.deadlines()
            first = blocked.setdefault(name, [_NOWHERE] * len(self._until_ms))
            for number, end_ms in enumerate(self._until_ms):
                at = deadlines.first_outside(end_ms)
                if at < some.count:
                    place = some.place(at)
                    if first[number] == _NOWHERE or place < first[number]:
                        first[number] = place

    def _expire_after_due(self, part: MomentPart, blocked: dict[LineName, list[int]]) -> None:
        """Count what becomes ready before the first that stays, and so leaves."""
        for name, some in part.by_line(self._default):
            behind = self._stays.get(name)
            for number, place in enumerate(blocked[name]):
                if behind is not None and behind[number]:
                    continue
                self._outlook.expire[number] += some.count if place == _NOWHERE else _before(some, place)


def _before(part: MomentPart, place: int) -> int:
    """How many of what waits for its time come before that place."""
    count = part.due_times().count_up_to(due_of(place) - 1)
    while count < part.count and part.place(count) < place:
        count += 1
    return count
