"""A line of messages: first in, first out, in a list with a head, so that runs leave it by slice. HOT.

Millions may wait. Only those that come next and those that came last are objects; what is deep inside a long line is
packed, piece by piece (`node.shard.packed`).
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from mayfly.node.shard.at_hand import AtHand, number_of
from mayfly.node.shard.message import Message, deadline_ms, is_before
from mayfly.node.shard.near_deaths import NOT_KNOWN, NearDeaths, near_deaths
from mayfly.node.shard.packed import Packed, hold, pack
from mayfly.node.shard.returning import ReturningMessages

PIECE: Final = 4096
"""Messages that are packed together: a few milliseconds of work."""
_SMALLER: Final = 8
"""Where messages leave from everywhere, pieces are so many times smaller: those at hand are looked at one by one."""
_TRIM_FROM: Final = 256
_FEW: Final = 64
_NOTHING: Final[list[Message]] = []
_NO_PIECES: Final[deque[Packed | ReturningMessages]] = deque()
"""What all lines that were always empty, or short, have in common; never added to. Most queues are such, and a list
takes 56 bytes, a deque 600."""


def _retimed(messages: list[Message], head: int, queue_ttl_ms: int) -> int:
    """Replace messages by those with their deadlines by this TTL of the queue; how many have one then."""
    timed = 0
    for place in range(head, len(messages)):
        message = messages[place]
        by_now_ms = deadline_ms(message.enqueued_ms, message.ttl_ms, queue_ttl_ms)
        if by_now_ms >= 0:
            timed += 1
        if by_now_ms != message.deadline_ms:
            messages[place] = message.with_deadline(by_now_ms)
    return timed


class Line:
    """Messages in order: ``items[head:]``, then those in ``packed``, then those in ``back``. Among what is packed there
    may be what was given back in great numbers (``returning`` pieces of it).

    What is before ``head`` has left and is trimmed now and then. There is something in ``items[head:]`` unless the
    line is empty. Where a line is cut follows from what happened to it alone, so all replicas cut at the same places.

    With ``anywhere`` messages may leave from everywhere, at their deadlines, none of which is before ``soonest_ms``, -1
    for none; ``noted`` of all that ever came are known to that. What is due in several queues dies in the order of
    these times, so replicas have the same (it is in snapshots), even where it is earlier than it need be.

    ``timed`` counts those with a deadline, but for those that are still returning: without any, a whole run can leave
    unlooked at. (Of a stream, where nobody asks, it means nothing.) ``gone`` counts all that have left at the head
    since this object was made: whoever looks from outside knows a message again by its place, ``gone`` for the first in
    line. (From streams they leave anywhere.)
    """

    __slots__ = (
        "_at_hand", "back", "gone", "head", "items", "noted", "packed", "packed_count", "piece", "returning", "settled",
        "soonest_ms", "timed",
    )  # fmt: skip

    def __init__(self, piece: int = PIECE) -> None:
        """``piece``: messages packed together; tests lower it."""
        self.items = _NOTHING
        self.head = 0
        self.packed = _NO_PIECES
        self.packed_count = 0
        self.back = _NOTHING
        self.returning = 0
        # So many of the first that are packed are known to be no longer returning.
        self.settled = 0
        self.piece = piece
        self.timed = 0
        self.gone = 0
        self.soonest_ms = -1
        self.noted = 0
        self._at_hand: AtHand | None = None

    def look_anywhere(self, anywhere: bool) -> None:
        """Whether from now on messages expire wherever they are in line (RULES X2)."""
        if anywhere and not self.anywhere:
            self._at_hand = AtHand()
            self.nothing_noted()
        elif not anywhere:
            self._at_hand = None

    @property
    def anywhere(self) -> bool:
        """Whether messages may leave from everywhere."""
        return self._at_hand is not None

    def nothing_noted(self) -> None:
        """What may be due is not known: it is to be looked for at once (`node.shard.anywhere`)."""
        count = self.count()
        self.noted = self.gone + count
        self.soonest_ms = 0 if count else -1
        self.forget_at_hand()
        self.forget_near_deaths()

    def _note(self) -> None:
        """Messages were put at the end: they may be due sooner than all others."""
        total = self.gone + self.count()
        new = total - self.noted
        self.noted = total
        end = self.back if self.back or self.packed_count else self.items
        for place in range(len(end) - new, len(end)):
            deadline_ms = end[place].deadline_ms
            if deadline_ms >= 0 and (self.soonest_ms < 0 or deadline_ms < self.soonest_ms):
                self.soonest_ms = deadline_ms

    def at_hand(self) -> AtHand:
        """What is in ``items[head:]`` and ``back`` by deadlines, and maybe what has left at the head. Only of a line
        that is looked at ``anywhere``."""
        known = self._at_hand
        assert known is not None
        if known.is_known and known.in_order and len(known.messages) <= 2 * self._count_at_hand() + _FEW:
            new = self.noted - known.noted
            end = self.back if self.back or self.packed_count else self.items
            if not new:
                return known
            if new <= len(end) and known.add(end[len(end) - new :], self.noted) and known.in_order:
                return known
        known.forget()
        known.begin(self.items[self.head :] + self.back, self.noted)
        return known

    def near_deaths(self, until_ms: int) -> NearDeaths | None:
        """What is due soon of what is packed, until then at least; None where each piece is to be asked. Only of a line
        that is looked at ``anywhere``."""
        known = self._at_hand
        assert known is not None
        near = known.near
        if near is None or near.until_ms < until_ms or not near.has_room():
            near = near_deaths(self.packed, until_ms)
            known.near = near
        else:
            near.look()
        return near

    def forget_near_deaths(self) -> None:
        """What is packed is not what it was."""
        if self._at_hand is not None:
            self._at_hand.near = None

    def soonest_packed_ms(self) -> int:
        """The earliest deadline of what is packed, -1 for none. Only of a line that is looked at ``anywhere``."""
        known = self._at_hand
        assert known is not None
        near = known.near
        if near is not None:
            near.look()
            first_ms = near.first_ms()
            if first_ms != NOT_KNOWN:
                return first_ms
            known.near = None
        soonest_ms = -1
        for piece in self.packed:
            if isinstance(piece, Packed):
                first_ms = piece.first_deadline_ms()
                if first_ms >= 0 and (soonest_ms < 0 or first_ms < soonest_ms):
                    soonest_ms = first_ms
        return soonest_ms

    def _count_at_hand(self) -> int:
        return len(self.items) - self.head + len(self.back)

    def forget_at_hand(self) -> None:
        """What is at hand is not what it was."""
        if self._at_hand is not None:
            self._at_hand.forget()

    def soonest_at_hand_ms(self) -> int:
        """The earliest deadline of what is at hand, -1 for none. Only of a line that is looked at ``anywhere``."""
        at_hand = self.at_hand()
        gone = 0
        if at_hand.in_order:
            for message in at_hand.messages:
                if number_of(message, self.items, self.head) >= 0 or number_of(message, self.back, 0) >= 0:
                    break
                gone += 1
            at_hand.leave(gone)
        return at_hand.deadlines_ms[0] if at_hand.deadlines_ms else -1

    def leave_anywhere(self, of_items: list[int], of_back: list[int], of_pieces: int, thin: bool) -> None:
        """Messages have left from these places of ``items`` and ``back``, and so many from pieces, which know of that:
        the ``thin`` among them, if it says that there are any, are packed anew. (``timed`` is the caller's.)
        """
        # The places of all that follow them change: nobody is to know a message again by its old one.
        self.gone += self.count()
        for number in sorted(of_items, reverse=True):
            del self.items[number]
        for number in sorted(of_back, reverse=True):
            del self.back[number]
        if not self.back:
            self.back = _NOTHING
        self.packed_count -= of_pieces
        if thin:
            self._pack_anew()
        if self.head == len(self.items):
            self.advance(0)
        self.noted = self.gone + self.count()
        if self._at_hand is not None:
            self._at_hand.noted = self.noted

    def _pack_anew(self) -> None:
        """Pieces of which most has left."""
        near = None if self._at_hand is None else self._at_hand.near
        packed: deque[Packed | ReturningMessages] = deque()
        for piece in self.packed:
            if not isinstance(piece, Packed) or not piece.is_thin():
                packed.append(piece)
                continue
            if piece.count:
                smaller = piece.without_gaps()
                packed.append(smaller)
                if near is not None:
                    near.add(smaller)
            piece.let_go()
        self.packed = packed or _NO_PIECES
        self.settled = 0

    def count(self) -> int:
        """How many are in line."""
        return len(self.items) - self.head + self.packed_count + len(self.back)

    def append(self, message: Message) -> None:
        """Add one at the end."""
        self.own_end().append(message)
        if message.deadline_ms >= 0:
            self.timed += 1
        self.grown()

    def put_back(self, message: Message) -> None:
        """Add one behind those that were enqueued before it. A line that is added to so alone is never packed: the
        places of what comes back may be anywhere in it."""
        if self.packed_count or self.back:
            self.put_together(self.live(), _NO_PIECES, _NOTHING, self.timed)
        items = self.own_end()
        if message.deadline_ms >= 0:
            self.timed += 1
        self._put_back(message, items)
        if self.anywhere:
            self.nothing_noted()

    def _put_back(self, message: Message, items: list[Message]) -> None:
        low, high = self.head, len(items)
        if low == high or not is_before(message, items[high - 1]):
            items.append(message)
            return
        # The places of all that follow it change: nobody is to know a message again by its old one.
        self.gone += self.count()
        while low < high:
            middle = (low + high) // 2
            if is_before(message, items[middle]):
                high = middle
            else:
                low = middle + 1
        items.insert(low, message)

    def own_end(self) -> list[Message]:
        """The end of the line, to append to; then ``grown`` is to be called. (``timed`` is the caller's.)"""
        if self.back or self.packed_count:
            if self.back is _NOTHING:
                self.back = []
            return self.back
        if self.items is _NOTHING:
            self.items = []
        return self.items

    def grown(self) -> None:
        """Messages were put at the end: what is deep inside now is packed."""
        piece = self.piece
        if self.anywhere:
            self._note()
            piece = max(1, piece // _SMALLER)
        if not self.back and not self.packed_count:
            if len(self.items) - self.head < 3 * piece:
                return
            cut = self.head + piece
            self.back = self.items[cut:]
            del self.items[cut:]
        back = self.back
        if len(back) < 2 * piece:
            return
        self.forget_at_hand()
        near = None if self._at_hand is None else self._at_hand.near
        if self.packed is _NO_PIECES:
            self.packed = deque()
        start = 0
        while len(back) - start >= 2 * piece:
            held = hold(back[start : start + piece])
            self.packed.append(held)
            if near is not None:
                near.add(held)
            self.packed_count += piece
            start += piece
        del back[:start]

    def first(self) -> Message:
        """The head. IndexError when there is none."""
        return self.items[self.head]

    def first_deadline_ms(self) -> int:
        """The deadline of the head; -1 when it has none or there is no head."""
        if self.timed == 0 or self.head == len(self.items):
            return -1
        return self.items[self.head].deadline_ms

    def first_enqueued_ms(self) -> int:
        """When the head was enqueued; -1 when there is none."""
        if self.head == len(self.items):
            return -1
        return self.items[self.head].enqueued_ms

    def advance(self, count: int) -> None:
        """The first ``count`` of ``items[head:]`` have left (their share of ``timed`` is taken off by the caller).
        ``items`` and ``head`` may be others afterwards."""
        self.gone += count
        head = self.head + count
        items = self.items
        if head == len(items):
            items.clear()
            self.head = 0
            if self.packed_count or self.back:
                self._refill()
            else:
                self.soonest_ms = -1
                self.forget_at_hand()
        elif head >= _TRIM_FROM and head * 2 >= len(items):
            del items[:head]
            self.head = 0
        else:
            self.head = head

    def _refill(self) -> None:
        """Those that come next are wanted as objects."""
        if self.packed_count:
            self.forget_at_hand()
            next_piece = self.packed[0]
            if isinstance(next_piece, ReturningMessages):
                self.items = self._arrived(next_piece)
                self.soonest_ms = 0
                if not next_piece.count:
                    self.packed.popleft()
                    self.returning -= 1
            else:
                self.packed.popleft()
                self.settled = max(0, self.settled - 1)
                self.items = next_piece.messages()
                next_piece.let_go()
            self.packed_count -= len(self.items)
            if not self.packed_count:
                self.packed = _NO_PIECES
        else:
            self.items = self.back
            self.back = _NOTHING

    def _arrived(self, returning: ReturningMessages) -> list[Message]:
        """The next of those that are still returning."""
        messages = returning.take(self.piece)
        self.timed += sum([1 for message in messages if message.deadline_ms >= 0])
        return messages

    def append_returning(self, returning: ReturningMessages) -> None:
        """Add many that come back at the end."""
        count = returning.count
        if self.packed is _NO_PIECES:
            self.packed = deque()
        if self.back:
            self.packed.append(pack(self.back))
            self.packed_count += len(self.back)
            self.back = _NOTHING
        self.packed.append(returning)
        self.packed_count += count
        self.returning += 1
        if self.head == len(self.items):
            self.head = 0
            self._refill()
        if self.anywhere:
            self.nothing_noted()

    def settle_returning(self) -> int:
        """Pack the next of those that are still returning; how many that were, 0 when there are none."""
        packed = self.packed
        while self.settled < len(packed):
            each = packed[self.settled]
            if isinstance(each, ReturningMessages):
                messages = self._arrived(each)
                self.soonest_ms = 0
                self.forget_near_deaths()
                if each.count:
                    packed.insert(self.settled, pack(messages))
                else:
                    packed[self.settled] = pack(messages)
                    self.returning -= 1
                return len(messages)
            self.settled += 1
        return 0

    def pieces(self) -> Iterator[list[Message]]:
        """Copies of what is in line, some at a time, in order; the line is not to change meanwhile."""
        if self.head < len(self.items):
            yield self.items[self.head :]
        for packed in self.packed:
            yield packed.messages()
        if self.back:
            yield self.back[:]

    def live(self) -> list[Message]:
        """A copy of what is in line, in order. Of a long line `pieces` takes less memory."""
        messages: list[Message] = []
        for piece in self.pieces():
            messages += piece
        return messages

    def between(self, start: int, stop: int) -> list[Message]:
        """Those that are ``start`` to ``stop`` behind the head."""
        found: list[Message] = []
        place = len(self.items) - self.head
        if start < place:
            found += self.items[self.head + start : self.head + min(stop, place)]
        if stop <= place:
            return found
        for packed in self.packed:
            after = place + packed.count
            if start < after and stop > place:
                if isinstance(packed, ReturningMessages):
                    found += packed.between(max(0, start - place), min(stop - place, packed.count))
                else:
                    found += packed.messages()[max(0, start - place) : stop - place]
            place = after
            if place >= stop:
                return found
        found += self.back[max(0, start - place) : stop - place]
        return found

    def retime(self, queue_ttl_ms: int) -> None:
        """The deadlines of all in line are by this TTL of the queue from now on, -1 for none (RULES T12): those at hand
        are replaced, the others marked."""
        self.gone += self.count()
        self.timed = _retimed(self.items, self.head, queue_ttl_ms) + _retimed(self.back, 0, queue_ttl_ms)
        for packed in self.packed:
            packed.retime(queue_ttl_ms)
            if not isinstance(packed, ReturningMessages):
                self.timed += packed.timed()
        if self.anywhere:
            self.nothing_noted()

    def put_together(
        self, items: list[Message], packed: "deque[Packed | ReturningMessages]", back: list[Message], timed: int
    ) -> None:
        """What is in line now, as another line had it."""
        self.items = items
        self.head = 0
        self.packed = packed or _NO_PIECES
        self.settled = 0
        self.packed_count = sum([piece.count for piece in packed])
        self.returning = sum([1 for piece in packed if isinstance(piece, ReturningMessages)])
        self.back = back or _NOTHING
        self.timed = timed
        if self.anywhere:
            self.nothing_noted()

    def leave(self) -> "Line":
        """All that is in line leaves it, and is the line that is returned; however much, that takes no time."""
        left = Line(self.piece)
        left.items, left.head, left.back = self.items, self.head, self.back
        left.packed, left.packed_count, left.returning = self.packed, self.packed_count, self.returning
        left.timed = self.timed
        self.gone += self.count()
        self.items, self.head, self.back = _NOTHING, 0, _NOTHING
        self.packed, self.packed_count, self.returning, self.settled = _NO_PIECES, 0, 0, 0
        self.timed = 0
        self.soonest_ms = -1
        self.forget_at_hand()
        self.forget_near_deaths()
        return left
