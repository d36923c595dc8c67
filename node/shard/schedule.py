"""Messages of a queue that wait for their time: in order of due times, then of publishing (RULES S2, S5). HOT.

While a message waits its ``enqueued_ms`` is its due time: from then on it counts as enqueued, so its TTL counts from
there (S3). What makes two messages with the same due time differ is where their contents stand in the log.

The next ones are *young*: objects in a sorted list. When there are many, the later half of them becomes a *run*: a line
in order of time, packed but for its first messages. So any due time is put in its place by looking at the young alone,
and a million that wait are a few hundred runs, about twenty bytes a message.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import Packed, pack
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.timers import NEVER

PACKED_TOGETHER: Final = 16
"""So many packed pieces make a run: each is small, because the first of every run is unpacked at the same time."""
_AT_HAND: Final = 8
"""The first of a run that are objects, as part of a piece."""
_SMALL: Final = 4
"""A run with less of its messages left than one in so many is put together with others."""
_INDEX_SHIFT: Final = 40
_TIME_SHIFT: Final = 104


def place_of(message: Message) -> int:
    """Where a message that waits stands among the others: they come in the order of these numbers."""
    return place_at(message.enqueued_ms, message.index, message.offset)


def place_at(due_ms: int, index: int, offset: int) -> int:
    """The same of a message that is due then and whose content stands there."""
    return due_ms << _TIME_SHIFT | index << _INDEX_SHIFT | offset


def due_of(place: int) -> int:
    """When what stands in that place is due."""
    return place >> _TIME_SHIFT


class Schedule:
    """The waiting messages of one queue: ``young`` and ``runs``, both in order, by the places of their first messages.

    Where it is cut follows from what happened to it alone, so all replicas cut at the same places.
    """

    __slots__ = ("body_bytes", "count", "half", "places", "run_places", "runs", "young")

    def __init__(self, piece: int) -> None:
        """``piece``: at most so many are young; tests lower it."""
        self.half = max(1, piece // 2)
        self.young: list[Message] = []
        self.places: list[int] = []
        self.runs: list[Line] = []
        self.run_places: list[int] = []
        self.count = 0
        """How many wait."""
        self.body_bytes = 0
        """Bytes of their bodies."""

    def put(self, message: Message) -> None:
        """One more waits, until its ``enqueued_ms``."""
        place = place_of(message)
        places = self.places
        if not places or place > places[-1]:
            places.append(place)
            self.young.append(message)
        else:
            at = bisect_left(places, place)
            places.insert(at, place)
            self.young.insert(at, message)
        self.count += 1
        self.body_bytes += message.body_length
        if len(places) >= 2 * self.half:
            self._make_run()

    def _make_run(self) -> None:
        """The later half of the young becomes a run, with what little is left of others."""
        half = self.half
        messages = self.young[half:]
        del self.young[half:]
        del self.places[half:]
        taken = 0
        number = 0
        while number < len(self.runs) and taken < half:
            run = self.runs[number]
            count = run.count()
            if count * _SMALL < half:
                messages += run.live()
                taken += count
                del self.runs[number]
                del self.run_places[number]
            else:
                number += 1
        if taken:
            messages.sort(key=place_of)
        self._enter(run_of(messages, half))

    def _enter(self, run: Line) -> None:
        place = place_of(run.first())
        at = bisect_left(self.run_places, place)
        self.run_places.insert(at, place)
        self.runs.insert(at, run)

    def next_due_ms(self) -> int:
        """When the first is due; NEVER when none waits."""
        if self.run_places and (not self.places or self.run_places[0] < self.places[0]):
            return self.run_places[0] >> _TIME_SHIFT
        return self.young[0].enqueued_ms if self.young else NEVER

    def take(self, until_ms: int, most: int) -> list[Message]:
        """The first ones, at most so many, that are due then; they leave."""
        taken: list[Message] = []
        while len(taken) < most:
            left = most - len(taken)
            if self.run_places and (not self.places or self.run_places[0] < self.places[0]):
                before = self._take_from_run(until_ms, left, taken)
            else:
                before = self._take_young(until_ms, left, taken)
            if not before:
                break
        self.count -= len(taken)
        for message in taken:
            self.body_bytes -= message.body_length
        return taken

    def _take_young(self, until_ms: int, most: int, taken: list[Message]) -> int:
        """How many of the young come next."""
        young = self.young
        stop = min(most, len(young))
        if self.run_places:
            stop = min(stop, bisect_left(self.places, self.run_places[0]))
        if stop and young[stop - 1].enqueued_ms > until_ms:
            stop = bisect_left(self.places, until_ms + 1 << _TIME_SHIFT, 0, stop)
        taken += young[:stop]
        del young[:stop]
        del self.places[:stop]
        return stop

    def _take_from_run(self, until_ms: int, most: int, taken: list[Message]) -> int:
        """How many of the first run come next."""
        run = self.runs.pop(0)
        self.run_places.pop(0)
        limit = self.places[0] if self.places else -1
        if self.run_places and (limit < 0 or self.run_places[0] < limit):
            limit = self.run_places[0]
        limit_ms = limit >> _TIME_SHIFT
        total = 0
        more = True
        while more and total < most and run.items:
            items = run.items
            position = run.head
            stop = min(len(items), position + most - total)
            timed = 0
            while position < stop:
                message = items[position]
                due_ms = message.enqueued_ms
                if due_ms > until_ms or (limit >= 0 and due_ms >= limit_ms and place_of(message) > limit):
                    more = False
                    break
                if message.deadline_ms >= 0:
                    timed += 1
                position += 1
            count = position - run.head
            taken += items[run.head : position]
            run.timed -= timed
            total += count
            if count:
                run.advance(count)
        if run.items:
            self._enter(run)
        return total

    def retime(self, queue_ttl_ms: int) -> None:
        """The deadlines of all are by this TTL of the queue from now on, -1 for none (RULES T12)."""
        young = Line()
        young.put_together(self.young, deque(), [], 0)
        young.retime(queue_ttl_ms)
        for run in self.runs:
            run.retime(queue_ttl_ms)

    def lines(self) -> list[Line]:
        """Lines that together have all that waits; for who takes them over."""
        young = Line()
        young.put_together(self.young, deque(), [], sum([1 for message in self.young if message.deadline_ms >= 0]))
        return [young, *self.runs]

    def empty_run(self) -> Line:
        """A run, to be filled in."""
        return Line(piece_of(self.half))

    def restore(self, young: list[Message], runs: list[Line], body_bytes: int) -> None:
        """Be what a snapshot says."""
        self.young = young
        self.places = [place_of(message) for message in young]
        self.runs = runs
        self.run_places = [place_of(run.first()) for run in runs]
        self.count = len(young) + sum([run.count() for run in runs])
        self.body_bytes = body_bytes


def run_of(messages: list[Message], half: int) -> Line:
    """A run of these messages, which are in order and at least one. ``half``: as many as a run has at first."""
    piece = piece_of(half)
    at_hand = max(1, piece // _AT_HAND)
    packed: deque[Packed | ReturningMessages] = deque()
    for start in range(at_hand, len(messages), piece):
        packed.append(pack(messages[start : start + piece]))
    run = Line(piece)
    timed = sum([1 for message in messages if message.deadline_ms >= 0])
    run.put_together(messages[:at_hand], packed, [], timed)
    return run


def piece_of(half: int) -> int:
    """How many of a run are packed together."""
    return max(1, half // PACKED_TOGETHER)
