"""Messages that expire wherever they are in their queue (RULES X2). HOT for queues that ask for it.

What is packed keeps its place, and its piece knows who is still there (`node.shard.packed`), and its earliest deadline:
a line of a million is looked at in some thousands of steps, for several ticks at once (`node.shard.near_deaths`), and
closely only where something is due. Once most of a piece has left it is packed anew. The messages at hand, some
hundreds, are known by their deadlines (`node.shard.at_hand`). So what a death takes hardly depends on how many die with
it.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from mayfly.node.shard.at_hand import by_deadline, number_of
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message, is_before
from mayfly.node.shard.near_deaths import NearDeaths
from mayfly.node.shard.packed import Departures, Packed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.state import State

_NO_MESSAGES: Final[list[Message]] = []
_NO_NUMBERS: Final[list[int]] = []
"""What is at hand of a piece; never added to."""


class Due:
    """Messages of one piece, or of those at hand at one end, that are due, ``count`` of them: taken in order of their
    deadlines, then of their places."""

    __slots__ = ("count", "messages", "numbers", "piece", "taken")

    def __init__(self, piece: Packed | None, count: int) -> None:
        """``count``: of a piece. Those at hand are to be added one by one."""
        self.piece = piece
        self.count = count
        self.taken = 0
        self.messages = _NO_MESSAGES
        self.numbers = _NO_NUMBERS
        """Of those at hand: where they stand in ``items`` or ``back``."""

    def add(self, message: Message, number: int) -> None:
        """The next one of those at hand."""
        if not self.count:
            self.messages, self.numbers = [], []
        self.messages.append(message)
        self.numbers.append(number)
        self.count += 1

    def next_ms(self) -> int:
        """The earliest deadline of those that are left."""
        if self.piece is not None:
            return self.piece.first_deadline_ms()
        return self.messages[self.taken].deadline_ms

    def count_until(self, until_ms: int) -> int:
        """How many of those that are left are due until then."""
        if self.piece is not None:
            return self.piece.due_count(until_ms)
        stop = self.taken
        while stop < self.count and self.messages[stop].deadline_ms <= until_ms:
            stop += 1
        return stop - self.taken

    def take(self, count: int) -> list[Message]:
        """The first so many leave; see `Packed.take_soonest`."""
        start = self.taken
        self.taken += count
        if self.piece is not None:
            return self.piece.take_soonest(count)
        return self.messages[start : self.taken]


_NO_PIECES: Final[list[Due]] = []
"""Nobody has looked at them one by one."""


class _DueInLine:
    """What is due until then in one line."""

    __slots__ = ("at_hand", "back", "items", "line", "near", "near_count", "pieces", "until_ms")

    def __init__(self, line: Line, until_ms: int) -> None:
        self.line = line
        self.at_hand = line.at_hand()
        self.until_ms = until_ms
        self.items = Due(None, 0)
        self.back = Due(None, 0)
        self._find_at_hand()
        self.pieces = _NO_PIECES
        self.near: NearDeaths | None = None
        self.near_count = 0

    def _find_at_hand(self) -> None:
        line, at_hand = self.line, self.at_hand
        due = at_hand.due(self.until_ms)
        if not due:
            return
        items, back, head = line.items, line.back, line.head
        if at_hand.in_order:
            for message in due:
                is_of_back = len(back) > 0 and not is_before(message, back[0])
                number = number_of(message, back, 0) if is_of_back else number_of(message, items, head)
                if number >= 0:
                    (self.back if is_of_back else self.items).add(message, number)
            return
        places = {message: place for place, message in enumerate(items[head:] + back, head)}
        for message in due:
            number = places[message]
            if number < len(items):
                self.items.add(message, number)
            else:
                self.back.add(message, number - len(items))

    def count(self) -> int:
        """How many, if what is due of the pieces is known together; else -1."""
        self.near = self.line.near_deaths(self.until_ms)
        if self.near is None:
            return -1
        self.near_count = self.near.count(self.until_ms)
        return self.items.count + self.back.count + self.near_count

    def leave(self, gone: Departures) -> None:
        """All leave, once they have been counted; nobody asks for more than what `Departures` has of them."""
        for due in (self.items, self.back):
            due.taken = due.count
            for message in due.messages:
                gone.indexes.append(message.index)
                gone.deadlines_ms.append(message.deadline_ms)
                gone.body_bytes += message.body_length
        near = self.near
        assert near is not None
        self._close_ranks(self.near_count, self.near_count > 0 and near.leave(self.until_ms, gone))

    def sources(self) -> list[Due]:
        """From the head to the end, to be taken one by one."""
        self.line.forget_near_deaths()
        self.pieces = [
            Due(piece, piece.due_count(self.until_ms))
            for piece in self.line.packed
            if isinstance(piece, Packed) and 0 <= piece.first_deadline_ms() <= self.until_ms
        ]
        return [due for due in (self.items, *self.pieces, self.back) if due.count]

    def close_ranks(self) -> None:
        """What was taken has left, from wherever it was."""
        from_pieces = sum([due.taken for due in self.pieces])
        self._close_ranks(from_pieces, from_pieces > 0)

    def _close_ranks(self, from_pieces: int, thin: bool) -> None:
        line, items, back = self.line, self.items, self.back
        taken = items.taken + back.taken + from_pieces
        if taken:
            if self.at_hand.in_order and items.taken == items.count and back.taken == back.count:
                self.at_hand.leave_due(self.until_ms)
            else:
                self.at_hand.forget()
            line.timed -= taken
            line.leave_anywhere(items.numbers[: items.taken], back.numbers[: back.taken], from_pieces, thin)
        line.soonest_ms = _soonest_ms(line)


def expire_anywhere(state: State, queue: Queue, until_ms: int) -> None:
    """What is due until then dies, in order of deadlines over the whole queue, as far as the entry's bound goes (C4).

    Of the same deadline: in the order of the lines, then of their messages, as they would die at the head.
    """
    lines = [_DueInLine(line, until_ms) for line in queue.lines() if 0 <= line.soonest_ms <= until_ms]
    if not lines:
        return
    if not queue.dead_letters and not queue.journals and _leave(state, queue, lines):
        return
    sources = [due for line in lines for due in line.sources()]
    taken = _take(sources, state.expiry_budget)
    state.expiry_budget -= len(taken)
    for message in taken:
        queue.ready_bytes -= message.body_length
        state.expiry_lag.observe(state.time_ms - message.deadline_ms)
        state.expired(queue, message)
    for line in lines:
        line.close_ranks()


def _leave(state: State, queue: Queue, lines: list[_DueInLine]) -> bool:
    """All that is due in these is gone. Nobody is to have it, so nothing is made of it. False, and nothing is done,
    where that is more than the entry's bound, or very much."""
    count = 0
    for line in lines:
        of_line = line.count()
        if of_line < 0:
            return False
        count += of_line
    if count > state.expiry_budget:
        return False
    state.expiry_budget -= count
    queue.expired += count
    gone = Departures()
    for line in lines:
        line.leave(gone)
    queue.ready_bytes -= gone.body_bytes
    gone.deadlines_ms.sort()
    state.expiry_lag.observe_all(state.time_ms, gone.deadlines_ms)
    for index in gone.indexes:
        state.release(index, 1)
    return True


def _take(sources: list[Due], most: int) -> list[Message]:
    """The first that are due in all these, at most so many, leave."""
    taken: list[Message] = []
    if sum([due.count for due in sources]) <= most:
        for due in sources:
            taken += due.take(due.count)
        # Of the same deadline they stay as they are.
        taken.sort(key=by_deadline)
        return taken
    heap = [(due.next_ms(), number) for number, due in enumerate(sources)]
    heapify(heap)
    while heap and len(taken) < most:
        number = heap[0][1]
        due = sources[number]
        heappop(heap)
        count = due.count - due.taken
        if heap:
            # Up to where the next one begins, which is behind it where both have the same deadline.
            count = max(1, due.count_until(heap[0][0] if number < heap[0][1] else heap[0][0] - 1))
        taken += due.take(min(count, most - len(taken)))
        if due.taken < due.count:
            heappush(heap, (due.next_ms(), number))
    return taken


def _soonest_ms(line: Line) -> int:
    """The earliest deadline in line, -1 for none. What is still returning is noted when it arrives."""
    at_hand_ms, packed_ms = line.soonest_at_hand_ms(), line.soonest_packed_ms()
    return packed_ms if at_hand_ms < 0 or 0 <= packed_ms < at_hand_ms else at_hand_ms
