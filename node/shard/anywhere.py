"""Messages that expire wherever they are in their queue (RULES X2). HOT for queues that ask for it.

What is packed keeps its place, and its piece knows who is still there (`node.shard.packed`), and its earliest deadline:
a line of a million is looked at in some thousands of steps, and closely only where something is due. Once half of a
piece has left it is packed anew. The messages at hand, some hundreds, are looked at one by one.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import Packed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.state import State


class Due:
    """Messages of one piece, or of those at hand at one end, that are due: taken in order of their deadlines, then of
    their places."""

    __slots__ = ("dead", "line", "messages", "piece", "taken")

    def __init__(self, line: Line, messages: list[Message], piece: Packed | None) -> None:
        """``messages``: those at hand, all that are due, the first to be taken last."""
        self.line = line
        self.messages = messages
        self.piece = piece
        self.taken = 0
        self.dead: list[Message] = []
        """Those of ``messages`` that were taken."""

    def next_ms(self) -> int:
        """The earliest deadline, -1 for none."""
        if self.piece is not None:
            return self.piece.first_deadline_ms()
        return self.messages[-1].deadline_ms if self.messages else -1

    def count(self, until_ms: int) -> int:
        """How many are due until then."""
        if self.piece is not None:
            return self.piece.due_count(until_ms)
        left = len(self.messages)
        while left and self.messages[left - 1].deadline_ms <= until_ms:
            left -= 1
        return len(self.messages) - left

    def take(self, count: int) -> list[Message]:
        """The first so many leave."""
        self.line.timed -= count
        self.taken += count
        if self.piece is not None:
            return self.piece.take_soonest(count)
        left = len(self.messages) - count
        taken = self.messages[left:]
        taken.reverse()
        del self.messages[left:]
        self.dead += taken
        return taken


def expire_anywhere(state: State, queue: Queue, until_ms: int) -> None:
    """What is due until then dies, in order of deadlines over the whole queue, as far as the entry's bound goes (C4).

    Of the same deadline: in the order of the lines, then of their messages, as they would die at the head.
    """
    lines = [line for line in queue.lines() if 0 <= line.soonest_ms <= until_ms]
    if not lines:
        return
    sources: list[Due] = []
    for line in lines:
        _find(line, until_ms, sources)
    taken = _take(sources, until_ms, state.expiry_budget)
    state.expiry_budget -= len(taken)
    for message in taken:
        queue.ready_bytes -= message.body_length
        state.expiry_lag.observe(state.time_ms - message.deadline_ms)
        state.expired(queue, message)
    for line in lines:
        own = [due for due in sources if due.line is line and due.taken]
        if own:
            _close_ranks(line, own)
        line.noted = line.gone + line.count()
        line.soonest_ms = _soonest_ms(line)


def _take(sources: list[Due], until_ms: int, most: int) -> list[Message]:
    """The first that are due in all these, at most so many, leave."""
    taken: list[Message] = []
    total = 0
    for due in sources:
        total += due.count(until_ms)
        if total > most:
            break
    if total <= most:
        for due in sources:
            taken += due.take(due.count(until_ms))
        # Of the same deadline they stay as they are.
        taken.sort(key=_by_deadline)
        return taken
    heap = [(due.next_ms(), number) for number, due in enumerate(sources)]
    heapify(heap)
    while heap and len(taken) < most:
        number = heap[0][1]
        due = sources[number]
        heappop(heap)
        # Up to where the next one begins, which is behind it where both have the same deadline.
        stop_ms = until_ms if not heap else heap[0][0] if number < heap[0][1] else heap[0][0] - 1
        count = min(max(1, due.count(min(stop_ms, until_ms))), most - len(taken))
        taken += due.take(count)
        next_ms = due.next_ms()
        if 0 <= next_ms <= until_ms:
            heappush(heap, (next_ms, number))
    return taken


def _find(line: Line, until_ms: int, sources: list[Due]) -> None:
    """Where in line something is due, from the head to the end."""
    _find_at_hand(line, line.items[line.head :], until_ms, sources)
    sources += [
        Due(line, [], piece)
        for piece in line.packed
        if isinstance(piece, Packed) and 0 <= piece.first_deadline_ms() <= until_ms
    ]
    _find_at_hand(line, line.back, until_ms, sources)


def _find_at_hand(line: Line, messages: list[Message], until_ms: int, sources: list[Due]) -> None:
    due = [message for message in messages if 0 <= message.deadline_ms <= until_ms]
    if due:
        due.sort(key=_by_deadline)
        due.reverse()
        sources.append(Due(line, due, None))


def _by_deadline(message: Message) -> int:
    return message.deadline_ms


def _place(message: Message) -> tuple[int, int, int]:
    """By which a message is known in its queue: those that come of one that recurs have the same content."""
    return (message.index, message.offset, message.enqueued_ms)


def _close_ranks(line: Line, sources: list[Due]) -> None:
    """What was taken from the line, which has these sources, has left, from wherever it was."""
    # The places of all that follow them change: nobody is to know a message again by its old one.
    gone = line.gone + line.count()
    items, back = line.items[line.head :], line.back
    places = {_place(message) for due in sources for message in due.dead}
    if places:
        items = [message for message in items if _place(message) not in places]
        back = [message for message in back if _place(message) not in places]
    packed: deque[Packed | ReturningMessages] = deque()
    for piece in line.packed:
        if isinstance(piece, Packed) and 2 * piece.count <= piece.size:
            if piece.count:
                packed.append(piece.without_gaps())
        else:
            packed.append(piece)
    line.put_together(items, packed, back, line.timed)
    line.gone = gone
    if not items:
        line.advance(0)


def _soonest_ms(line: Line) -> int:
    """The earliest deadline in line, -1 for none. What is still returning is noted when it arrives."""
    deadlines = [message.deadline_ms for message in [*line.items[line.head :], *line.back]]
    deadlines += [piece.first_deadline_ms() for piece in line.packed if isinstance(piece, Packed)]
    return min([ms for ms in deadlines if ms >= 0], default=-1)
