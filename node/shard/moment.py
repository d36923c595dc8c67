"""What is in a queue at one moment, to be counted bit by bit while the queue goes on (RULES R2, R3).

The pieces of its lines are taken over as they are, which takes next to no time: messages, and the columns of packed
ones, never change. (Which of those are still there does, in streams: that is copied.) Columns are counted without
making messages of them again.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message, deadline_ms
from mayfly.node.shard.packed import (
    ACQUIRED_COUNT,
    AS_PACKED,
    BODY_LENGTH,
    DEADLINE_MS,
    ENQUEUED_MS,
    INDEX,
    OFFSET,
    PRIORITY,
    TTL_MS,
    Packed,
)
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.returning import ReturningMessages, ReturningReader
from mayfly.node.shard.run import place_from

AT_ONCE: Final = 4096
"""Messages that are counted in one step at most."""

LineName = tuple[bool, int]
"""Which line of a queue: of what came back or of what was never delivered, and its priority."""


class Numbers:
    """One number of each of some messages, in order: ``base`` plus those in ``above``; without these ``base`` for all.
    ``lowest`` is the least of them."""

    __slots__ = ("above", "base", "count", "lowest")

    def __init__(self, base: int, lowest: int, above: "array[int] | list[int] | None", count: int) -> None:
        self.base = base
        self.lowest = lowest
        self.above = above
        self.count = count

    def first_outside(self, highest: int) -> int:
        """The place of the first that is not from 0 to this; their number when there is none."""
        above = self.above
        if above is None:
            return self.count if 0 <= self.base <= highest else 0
        limit = highest - self.base
        if self.lowest >= 0 and max(above) <= limit:
            return self.count
        floor = -self.base
        for place, number in enumerate(above):
            if not floor <= number <= limit:
                return place
        return self.count

    def count_within(self, highest: int, start: int) -> int:
        """How many from a place on are from 0 to this."""
        above = self.above
        if above is None:
            return self.count - start if 0 <= self.base <= highest else 0
        limit = highest - self.base
        if start == self.count or self.lowest > highest:
            return 0
        if self.lowest >= 0 and max(above) <= limit:
            return self.count - start
        floor = -self.base
        return sum([1 for number in above[start:] if floor <= number <= limit])

    def count_up_to(self, highest: int) -> int:
        """How many are at most this, of numbers in ascending order."""
        if self.above is None:
            return self.count if self.base <= highest else 0
        return bisect_right(self.above, highest - self.base)

    def sum_of_first(self, count: int) -> int:
        """The first ones together."""
        return self.base * count + (0 if self.above is None else sum(self.above[:count]))

    def listed(self) -> list[int]:
        """All of them."""
        if self.above is None:
            return [self.base] * self.count
        base = self.base
        return [base + number for number in self.above]


def _numbers(listed: list[int]) -> Numbers:
    return Numbers(0, min(listed), listed, len(listed))


class MomentPart:
    """Some messages side by side, as they were: of a list from ``start`` on, or packed. ``queue_ttl_ms`` and
    ``retiming`` say which deadlines are others by now, as in `ReturningMessages`."""

    __slots__ = ("_all", "count", "packed", "queue_ttl_ms", "retiming", "start")

    def __init__(
        self, messages: list[Message], start: int, count: int, packed: Packed | None = None,
        queue_ttl_ms: int = AS_PACKED, retiming: Retiming | None = None,
    ) -> None:
        """``messages``: not to be changed any more."""
        self._all = messages
        self.start = start
        self.count = count
        self.packed = packed
        self.queue_ttl_ms = queue_ttl_ms
        self.retiming = retiming

    def messages(self) -> list[Message]:
        """Those that are not packed."""
        return self._all[self.start : self.start + self.count]

    def deadlines(self, rule: int = AS_PACKED) -> Numbers:
        """-1 for none: as they are, or by another TTL rule of the queue."""
        if rule == AS_PACKED:
            rule = self.queue_ttl_ms
        packed = self.packed
        if rule != AS_PACKED:
            if packed is None:
                return _numbers([deadline_ms(each.enqueued_ms, each.ttl_ms, rule) for each in self.messages()])
            times = zip(packed.column(ENQUEUED_MS), packed.column(TTL_MS), strict=True)
            return _numbers([deadline_ms(enqueued_ms, ttl_ms, rule) for enqueued_ms, ttl_ms in times])
        if packed is not None:
            return self._column(packed, DEADLINE_MS)
        retiming = self.retiming
        if retiming is not None:
            return _numbers([retiming.of(message).deadline_ms for message in self.messages()])
        return _numbers([message.deadline_ms for message in self.messages()])

    def due_times(self) -> Numbers:
        """Of what waits for its time; ascending."""
        if self.packed is not None:
            return self._column(self.packed, ENQUEUED_MS)
        return _numbers([message.enqueued_ms for message in self.messages()])

    def body_lengths(self) -> Numbers:
        """In bytes."""
        if self.packed is not None:
            return self._column(self.packed, BODY_LENGTH)
        return _numbers([message.body_length for message in self.messages()])

    def _column(self, packed: Packed, number: int) -> Numbers:
        least, above = packed.raw(number)
        return Numbers(least, least, above, self.count)

    def came_back(self, count: int) -> int:
        """How many of the first ones have been delivered before."""
        packed = self.packed
        if packed is None:
            return sum([1 for message in self.messages()[:count] if message.acquired_count > 0])
        acquired = packed.columns[ACQUIRED_COUNT]
        if isinstance(acquired, int):
            return count if acquired > 0 else 0
        return sum([1 for number in list(packed.column(ACQUIRED_COUNT))[:count] if number > 0])

    def place(self, number: int) -> int:
        """Where one of what waits for its time stands among all others; see `node.shard.run.place_of`."""
        packed = self.packed
        if packed is None:
            message = self._all[self.start + number]
            return place_from(message.enqueued_ms, message.index, message.offset)
        return place_from(packed.at(ENQUEUED_MS, number), packed.at(INDEX, number), packed.at(OFFSET, number))

    def by_line(self, queue_has_default: bool) -> "list[tuple[LineName, MomentPart]]":
        """What waits for its time, by the line to which it will come. ``queue_has_default``: whether the queue has a
        default priority, so that all that comes back is in one line."""
        packed = self.packed
        if packed is not None:
            acquired, priority = packed.columns[ACQUIRED_COUNT], packed.columns[PRIORITY]
            if isinstance(acquired, int) and isinstance(priority, int):
                back = acquired > 0
                return [((back, 0 if back and queue_has_default else priority), self)]
        found: dict[LineName, list[Message]] = {}
        for message in self.messages() if packed is None else packed.messages():
            back = message.acquired_count > 0
            line = (back, 0 if back and queue_has_default else message.priority)
            found.setdefault(line, []).append(message)
        return [(line, MomentPart(messages, 0, len(messages))) for line, messages in found.items()]


class MomentLine:
    """All that is in a line at one moment, part by part. What returns becomes parts when it is come to."""

    __slots__ = ("_items",)

    def __init__(self, line: Line, is_stream: bool = False) -> None:
        """Of a line as it is now, which may be that of a stream."""
        items: list[MomentPart | ReturningReader] = []
        items += cut(line.items[line.head :])
        for piece in line.packed:
            if isinstance(piece, ReturningMessages):
                items.append(piece.read())
            else:
                if is_stream or line.anywhere or piece.there is not None or piece.is_held():
                    piece = piece.copy()
                items.append(MomentPart([], 0, piece.count, piece, piece.queue_ttl_ms))
        items += cut(line.back[:])
        self._items = items

    def parts(self) -> Iterator[MomentPart]:
        """From the first on; for whoever looks at them again, too."""
        place = 0
        while place < len(self._items):
            item = self._items[place]
            if isinstance(item, ReturningReader):
                messages = item.next(AT_ONCE)
                if not messages:
                    del self._items[place]
                    continue
                part = MomentPart(messages, 0, len(messages), None, item.queue_ttl_ms, item.retiming)
                self._items.insert(place, part)
            else:
                part = item
            yield part
            place += 1

    def let_go(self) -> Iterator[None]:
        """Nobody looks at them any more. To let go of very many takes time as well: bit by bit."""
        while self._items:
            item = self._items.pop()
            if isinstance(item, ReturningReader):
                item.close()
            else:
                yield


def parts_of(line: Line, is_stream: bool = False) -> list[MomentPart]:
    """The same of a line in which nothing returns, all at once."""
    return list(MomentLine(line, is_stream).parts())


def cut(messages: list[Message], queue_ttl_ms: int = AS_PACKED, retiming: Retiming | None = None) -> list[MomentPart]:
    """Messages, a list of nobody else's, in parts that are counted in a step each."""
    return [
        MomentPart(messages, start, min(AT_ONCE, len(messages) - start), None, queue_ttl_ms, retiming)
        for start in range(0, len(messages), AT_ONCE)
    ]


def named_lines(queue: Queue) -> list[tuple[LineName, Line]]:
    """The lines of a queue."""
    named: list[tuple[LineName, Line]] = [((True, 0), queue.returned), ((False, 0), queue.ready)]
    for level in queue.levels:
        named += [((True, level.priority), level.returned), ((False, level.priority), level.ready)]
    return named


def runs_of(queue: Queue) -> list[list[MomentPart]]:
    """What waits for its time, each run in order of due times."""
    schedule = queue.schedule
    if schedule is None:
        return []
    runs = [parts_of(run) for run in schedule.runs]
    if schedule.young:
        runs.append(cut(schedule.young[:]))
    return runs
