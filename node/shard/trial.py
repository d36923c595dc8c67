"""What other terms would do to a queue at once: counted, with nothing changed (RULES R3).

It is what UPDATE_QUEUES with these terms and the expiry that follows it do, if no client does anything: messages whose
deadline has passed by the new terms leave the heads of their lines (T6, T12), then the oldest leave until the queue is
within its limits, and those behind them whose deadline has passed; its lease begins anew if its period is another one
(L9).
"""

from collections.abc import Iterator
from heapq import merge
from typing import Final

from mayfly.node.shard.dialect import DIALECTS, OF_STREAMS, OTTERMQ, ttl_rule
from mayfly.node.shard.moment import LineName, MomentLine, MomentPart, Numbers, named_lines, runs_of
from mayfly.node.shard.outlook import NO_LEASE
from mayfly.node.shard.packed import AS_PACKED
from mayfly.node.shard.queue import UNLIMITED, Queue
from mayfly.node.shard.settings import DROP_HEAD, ShardQueueSettings

_LOOKED_AT: Final = 512


class Trial:
    """What would be so from ``time_ms`` of the shard's clock on.

    ``expire``: messages that would leave at once because their deadline has passed; ``behind``: those whose deadline
    would have passed as well, but that stay behind one that is alive, and are delivered to nobody (T5, T6); ``drop``:
    messages that would leave because they are too many. Leases in ms until they end, `NO_LEASE` for none or while
    consumers suspend it: as it is, and as it would be. ``is_new_lease``: whether it would begin anew.
    """

    __slots__ = ("behind", "drop", "expire", "is_new_lease", "lease_after_ms", "lease_before_ms", "time_ms")

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.expire = 0
        self.behind = 0
        self.drop = 0
        self.is_new_lease = False
        self.lease_before_ms = NO_LEASE
        self.lease_after_ms = NO_LEASE


def trial_steps(queue: Queue, terms: ShardQueueSettings, time_ms: int, led_ms: int) -> Iterator[Trial | None]:
    """The trial at last, and None for each step before. The queue is looked at as it is at the first step; its clocks
    stand at ``time_ms`` and ``led_ms`` then."""
    trial = Trial(time_ms)
    if queue.has_left:
        yield trial
        return
    _try_lease(queue, terms, led_ms, trial)
    counting = _Counting(queue, terms, trial)
    for _ in counting.expiry_steps():
        yield None
    for _ in counting.drop_steps():
        yield None
    for _ in counting.end_steps():
        yield None
    yield trial


def _try_lease(queue: Queue, terms: ShardQueueSettings, led_ms: int, trial: Trial) -> None:
    runs = queue.lease.suspended_by == 0
    if runs and queue.expires_ms >= 0:
        trial.lease_before_ms = max(0, queue.lease.started_ms + queue.expires_ms - led_ms)
    expires_ms = NO_LEASE if terms.expires_ms is None else terms.expires_ms
    trial.is_new_lease = expires_ms != queue.expires_ms and expires_ms != NO_LEASE
    if runs:
        trial.lease_after_ms = trial.lease_before_ms if expires_ms == queue.expires_ms else expires_ms


class _Counting:
    """The messages of a queue by other terms."""

    __slots__ = (
        "_gone", "_is_anywhere", "_is_lazy", "_is_stream", "_lines", "_rule", "_runs", "_terms", "_trial", "_waiting",
        "_waiting_bytes",
    )  # fmt: skip

    def __init__(self, queue: Queue, terms: ShardQueueSettings, trial: Trial) -> None:
        self._terms = terms
        self._trial = trial
        is_stream = queue.stream is not None
        dialect = OF_STREAMS if is_stream else DIALECTS.index(terms.ttl_dialect)
        self._is_stream = is_stream
        self._is_lazy = dialect == OTTERMQ
        self._is_anywhere = terms.expire_anywhere and not self._is_lazy and queue.stream is None
        ttl_ms = -1 if terms.message_ttl_ms is None else terms.message_ttl_ms
        self._rule = ttl_rule(dialect, ttl_ms) if terms.ttl_retroactive or is_stream else AS_PACKED
        names: dict[int, LineName] = {id(line): name for name, line in named_lines(queue)}
        self._lines = [(names[id(line)], MomentLine(line, is_stream)) for line in queue.lines()]
        self._gone: dict[LineName, int] = {}
        """How many would have expired at the head of each line."""
        self._runs = runs_of(queue)
        self._waiting = queue.waiting_count()
        self._waiting_bytes = queue.waiting_bytes()

    def expiry_steps(self) -> Iterator[None]:
        """Count whose deadline would have passed."""
        now_ms = self._trial.time_ms
        for name, line in self._lines:
            stays = self._is_lazy
            gone = 0
            for part in line.parts():
                deadlines = part.deadlines(self._rule)
                if self._is_stream:
                    self._leave_stream(part, deadlines)
                    yield
                    continue
                at_head = 0 if stays else deadlines.first_outside(now_ms)
                stays = stays or at_head < part.count
                gone += at_head
                behind = deadlines.count_within(now_ms, at_head)
                if self._is_anywhere:
                    # They would leave as well; which of them are large is not looked at.
                    self._trial.expire += behind
                    self._waiting -= behind
                else:
                    self._trial.behind += behind
                if at_head:
                    self._waiting_bytes -= part.body_lengths().sum_of_first(at_head)
                yield
            self._gone[name] = gone
            self._trial.expire += gone
            self._waiting -= gone

    def _leave_stream(self, part: MomentPart, deadlines: Numbers) -> None:
        """What is late leaves a stream from wherever it stands (RULES J2)."""
        now_ms = self._trial.time_ms
        late = deadlines.count_within(now_ms, 0)
        if late:
            self._trial.expire += late
            self._waiting -= late
            both = zip(part.body_lengths().listed(), deadlines.listed(), strict=True)
            self._waiting_bytes -= sum([length for length, deadline_ms in both if 0 <= deadline_ms <= now_ms])

    def drop_steps(self) -> Iterator[None]:
        """Count what would be too much then, from the head of the queue on."""
        terms = self._terms
        messages = UNLIMITED if terms.max_length is None else terms.max_length
        octets = UNLIMITED if terms.max_length_bytes is None else terms.max_length_bytes
        if terms.overflow != DROP_HEAD:
            return
        if octets == UNLIMITED:
            self._trial.drop = max(0, self._waiting - messages)
        else:
            yield from self._drop_bytes(messages, octets)
        if self._trial.drop and not (self._is_stream or self._is_lazy or self._is_anywhere):
            yield from self._come_to_head(self._trial.drop)

    def end_steps(self) -> Iterator[None]:
        """Let go of what was looked at."""
        for _, line in self._lines:
            yield from line.let_go()

    def _drop_bytes(self, messages: int, octets: int) -> Iterator[None]:
        for lengths in self._from_head():
            for length in lengths:
                if self._waiting <= messages and self._waiting_bytes <= octets:
                    return
                self._waiting -= 1
                self._waiting_bytes -= length
                self._trial.drop += 1
            yield

    def _come_to_head(self, dropped: int) -> Iterator[None]:
        """When so many have been dropped, none of them is behind any more, and of those whose deadline has passed some
        are at the head of their line now, and leave."""
        now_ms = self._trial.time_ms
        for name, line in self._lines:
            gone = self._gone[name]
            for part in line.parts():
                skipped = min(gone, part.count)
                gone -= skipped
                deadlines = part.deadlines(self._rule).listed()[skipped:]
                here = min(dropped, len(deadlines))
                dropped -= here
                self._trial.behind -= sum([1 for ms in deadlines[:here] if 0 <= ms <= now_ms])
                yield
                if here == len(deadlines):
                    continue
                at_head = here
                while at_head < len(deadlines) and 0 <= deadlines[at_head] <= now_ms:
                    at_head += 1
                self._trial.expire += at_head - here
                self._trial.behind -= at_head - here
                if at_head < len(deadlines):
                    break
            if not dropped:
                return

    def _from_head(self) -> Iterator[list[int]]:
        """Bytes of the bodies of what is left, in the order in which it would leave, some at a time: what is ready,
        then what waits for its time."""
        for name, line in self._lines:
            skipped = self._gone[name]
            for part in line.parts():
                if self._is_stream:
                    both = zip(part.body_lengths().listed(), part.deadlines(self._rule).listed(), strict=True)
                    yield [length for length, deadline_ms in both if not 0 <= deadline_ms <= self._trial.time_ms]
                    continue
                if skipped >= part.count:
                    skipped -= part.count
                    continue
                yield part.body_lengths().listed()[skipped:]
                skipped = 0
        some: list[int] = []
        for _, length in merge(*[_places(run) for run in self._runs]):
            some.append(length)
            if len(some) >= _LOOKED_AT:
                yield some
                some = []
        yield some


def _places(run: list[MomentPart]) -> Iterator[tuple[int, int]]:
    """Place and bytes of the body of what waits for its time, in order."""
    for part in run:
        lengths = part.body_lengths().listed()
        for number in range(part.count):
            yield part.place(number), lengths[number]
