"""Messages that wait deep in a line, as columns of numbers: about ten bytes each instead of a hundred. HOT.

A column is one number where all are the same, else the least of them and how much each is above it, in as few bytes
as the largest difference takes. So packed they are also written to snapshots.
"""

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, compress, repeat
from operator import itemgetter
from typing import Final

from mayfly.node.shard.dialect import queue_ttl_of
from mayfly.node.shard.errors import BrokenInvariant, ShardError
from mayfly.node.shard.leavers import GONE, Leavers
from mayfly.node.shard.message import NO_TTL, Message, deadline_ms

COLUMNS: Final = 11
COLUMNS_WITHOUT_ACQUIRED: Final = 10
"""In snapshots of shards below `cluster.versions.LEVEL_FAILED_DELIVERIES`: all returns counted, so how often a message
came back is its ``delivery_count``."""
INDEX: Final = 0
OFFSET: Final = 1
BODY_LENGTH: Final = 4
ENQUEUED_MS: Final = 5
DEADLINE_MS: Final = 6
DELIVERY_COUNT: Final = 7
STREAM_OFFSET: Final = DELIVERY_COUNT
"""In a stream (`Message.stream_offset`)."""
TTL_MS: Final = 8
PRIORITY: Final = 9
ACQUIRED_COUNT: Final = 10
AS_PACKED: Final = -2
"""A ``queue_ttl_ms``: deadlines are those in the column."""
UNKNOWN: Final = -2
"""An earliest deadline that nobody has asked for yet."""
_NOTHING: Final[list[Message]] = []
"""What is held of messages that are packed; never added to."""
_NO_COLUMNS: Final[list[object]] = []
_NO_ORDER: Final = array("Q")
"""That of all pieces of which nobody has asked for it; never changed."""
_THIN: Final = 4
"""Of so many messages one is there. Packing anew takes longer than all else where they leave one by one."""
HELD_PIECES: Final = 16
"""So many pieces, of all lines of a process together, are held as they came until another one comes (`hold`)."""
_HALVED_TOGETHER: Final = 2
"""A piece is packed anew when it was halved so many times: that takes longer than all else of those that leave."""
_NOTED_TOGETHER: Final = 8
"""What leaves by its offset is noted when it is one of so many."""
_HEAD: Final = struct.Struct("<qB")
_TYPES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_NUMBERS: Final = {1: struct.Struct("<B"), 2: struct.Struct("<H"), 4: struct.Struct("<I"), 8: struct.Struct("<Q")}
_SWAP: Final = sys.byteorder == "big"


def numbers_of(messages: list[Message]) -> list[list[int]]:
    """What a message is made of, column by column, in the order of Message's arguments."""
    return [
        [message.index for message in messages],
        [message.offset for message in messages],
        [message.key_length for message in messages],
        [message.header_length for message in messages],
        [message.body_length for message in messages],
        [message.enqueued_ms for message in messages],
        [message.deadline_ms for message in messages],
        [message.delivery_count for message in messages],
        [message.ttl_ms for message in messages],
        [message.priority for message in messages],
        [message.acquired_count for message in messages],
    ]


def pack_column(numbers: list[int]) -> object:
    """Numbers, at least one, as an int or as bytes; the same numbers always give the same."""
    least = numbers[0]
    if least == numbers[-1] and numbers.count(least) == len(numbers):
        return least
    return _column_above(numbers, 0)


def _column_above(numbers: list[int], base: int) -> object:
    """The same of numbers that are so much above these."""
    least = most = numbers[0]
    for number in numbers:  # Compiled, numbers are compared here; min() and max() compare objects.
        if number < least:
            least = number
        elif number > most:
            most = number
    most -= least
    if not most:
        return base + least
    width = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8
    above = [number - least for number in numbers] if least else numbers
    return struct.pack(f"<qB{len(above)}{_TYPES[width]}", base + least, width, *above)


def _column_of_some(column: object, size: int, some: "itemgetter[tuple[int, ...]]") -> object:
    """Of ``size`` numbers of a ``pack_column``, some, at least two, as a ``pack_column``."""
    base, above = raw_column(column, size)
    return column if above is None else _column_above(list(some(above)), base)


def check_column(column: object, count: int) -> None:
    """ShardError when this is no ``pack_column`` of so many numbers."""
    if isinstance(column, int):
        return
    if not isinstance(column, bytes) or len(column) < _HEAD.size:
        raise ShardError(f"a column of {count} numbers expected, not {type(column).__name__}")
    _, width = _HEAD.unpack_from(column)
    if width not in _TYPES or len(column) != _HEAD.size + width * count:
        raise ShardError(f"{len(column)} bytes of width {width} are no column of {count} numbers")


def unpack_column(column: object, count: int) -> Iterable[int]:
    """The numbers of a ``pack_column``; ShardError when they are not ``count``."""
    least, numbers = raw_column(column, count)
    return repeat(least, count) if numbers is None else [least + number for number in numbers]


def raw_column(column: object, count: int) -> "tuple[int, array[int] | None]":
    """The least number of a ``pack_column``, and how much each is above it, None where all are the same; ShardError
    when they are not ``count``."""
    if isinstance(column, int):
        return column, None
    check_column(column, count)
    assert isinstance(column, bytes)
    least, width = _HEAD.unpack_from(column)
    numbers = array(_TYPES[width])
    numbers.frombytes(column[_HEAD.size :])
    if _SWAP:
        numbers.byteswap()
    return least, numbers


def numbers_in(column: object, places: list[int]) -> list[int]:
    """The numbers in these places of a ``pack_column``."""
    if isinstance(column, int):
        return [column] * len(places)
    assert isinstance(column, bytes)
    least: int
    width: int
    least, width = _HEAD.unpack_from(column)
    number_at = _NUMBERS[width].unpack_from
    return [least + number_at(column, _HEAD.size + width * place)[0] for place in places]


def number_base(column: object) -> int:
    """The least number of a ``pack_column``."""
    if isinstance(column, int):
        return column
    assert isinstance(column, bytes)
    least: int = _HEAD.unpack_from(column)[0]
    return least


def number_in(column: object, place: int) -> int:
    """The number in this place of a ``pack_column``, without a look at the others."""
    if isinstance(column, int):
        return column
    assert isinstance(column, bytes)
    least: int
    width: int
    least, width = _HEAD.unpack_from(column)
    number: int = _NUMBERS[width].unpack_from(column, _HEAD.size + width * place)[0]
    return least + number


class Departures:
    """What is asked of messages that left for good: in no order their entries, their deadlines, and what their bodies
    had."""

    __slots__ = ("body_bytes", "deadlines_ms", "indexes")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.deadlines_ms: list[int] = []
        self.body_bytes = 0


class Packed:
    """Some messages, in order. Their columns are never changed once made; of messages that are held as they came they
    are made when somebody asks.

    Unless it is AS_PACKED, deadlines are by this ``queue_ttl_ms`` (-1 for none) or TTL rule (`node.shard.dialect`)
    instead of what their column says.

    ``size`` were packed, and ``count`` are there: of a stream, and where messages expire anywhere, some may have left
    before those in front of them. Then ``there`` has a 1 for each place in which one still is, and a 0 for the others;
    else it is None; what has left by its offset is noted in it when somebody asks (`node.shard.leavers`). ``order`` has
    the deadlines and places of those that have a deadline, once that was asked for: the earliest first, of the same
    deadline in order, so many ms after ``_order_from_ms``, above ``_place_bits`` of the place, and from ``_due`` on
    they are there (RULES X2). ``has_left``: it is in no line any more.

    When half of a stream's piece has left, it is as if those that are there were packed anew (`halve`): so it is
    written in snapshots. It is done when half of them have left as well, or somebody looks (`settle`). ``cut``: how
    many were there when it was packed last, or as if; ``_base`` has a 1 for each of them until it is done.
    """

    __slots__ = (
        "_base", "_columns", "_due", "_first_ms", "_held", "_leavers", "_most_index", "_order_from_ms", "_place_bits",
        "_there", "_with_ttl", "count", "cut", "has_left", "order", "queue_ttl_ms", "size",
    )  # fmt: skip

    def __init__(
        self, size: int, columns: list[object], queue_ttl_ms: int = AS_PACKED, there: bytearray | None = None,
        held: list[Message] = _NOTHING,
    ) -> None:
        """``held``: the messages themselves, never to be changed, in place of columns. ShardError where the columns are
        not right."""
        if not held and (size <= 0 or len(columns) != COLUMNS):
            raise ShardError(f"{len(columns)} columns of {size} messages, {COLUMNS} of at least 1 expected")
        self.size = size
        self._held = held
        self.count = size
        self.cut = size
        self._base: bytearray | None = None
        self.has_left = False
        self.order = _NO_ORDER
        self._order_from_ms = 0
        self._place_bits = 1
        self._due = 0
        self._first_ms = UNKNOWN
        """The earliest deadline, where that was asked for without the order."""
        self._columns = columns
        self.queue_ttl_ms = queue_ttl_ms
        self._there = there
        self._leavers: Leavers | None = None
        if there is not None:
            self.count = there.count(1)
            if len(there) != size or self.count + there.count(0) != size or not self.count:
                raise ShardError(f"{len(there)} places of {size} messages, {self.count} of them taken")
        self._with_ttl = -1
        self._most_index = -1

    @property
    def columns(self) -> list[object]:
        """What is packed. Not to be changed."""
        held = self._held
        if held:
            self._columns = [pack_column(numbers) for numbers in numbers_of(held)]
            self._held = _NOTHING
        return self._columns

    @property
    def there(self) -> bytearray | None:
        """Who is there still; None where all are. Not to be changed."""
        if self._leavers is not None:
            self._note(self._leavers)
        return self._there

    def _note(self, leavers: Leavers) -> None:
        leavers.find()
        if leavers.noted < len(leavers.places):
            self._leave(leavers.places[leavers.noted :])
            leavers.noted = len(leavers.places)
            there = self._there
            if there is None or there.count(1) != self.count:
                raise BrokenInvariant(f"of {self.size} messages {self.count} are there, and others have left")

    def _leave(self, places: list[int]) -> None:
        """Those in these places are not there any more."""
        there = self._there
        if there is None:
            there = self._there = bytearray(b"\1") * self.size
        for place in places:
            there[place] = 0

    def is_held(self) -> bool:
        """Whether these are messages as they came, not packed yet."""
        return bool(self._held)

    def let_go(self) -> None:
        """Its messages have left, or are elsewhere: what is held of it is not packed any more."""
        self.count_off()
        self._held = _NOTHING
        self.has_left = True

    def copy(self) -> "Packed":
        """As it is now, whatever becomes of this one."""
        there = self.there
        copied = Packed(self.size, self._columns, self.queue_ttl_ms, None if there is None else there[:], self._held)
        copied._base = self._base
        copied.cut = self.cut
        return copied

    def messages(self) -> list[Message]:
        """They themselves, in a list that is the caller's."""
        if self._held and self.there is None and self.queue_ttl_ms == AS_PACKED:
            return self._held[:]
        messages = self._messages()
        queue_ttl_ms = self.queue_ttl_ms
        if queue_ttl_ms != AS_PACKED:
            for message in messages:  # nobody else has seen them yet
                message.deadline_ms = deadline_ms(message.enqueued_ms, message.ttl_ms, queue_ttl_ms)
        return messages

    def _messages(self) -> list[Message]:
        return [Message(*numbers) for numbers in zip(*[self.column(number) for number in range(COLUMNS)], strict=True)]

    def message(self, place: int) -> Message:
        """The one in this place, whether it is there still or not."""
        message = Message(*[number_in(column, place) for column in self.columns])
        if self.queue_ttl_ms != AS_PACKED:
            message.deadline_ms = deadline_ms(message.enqueued_ms, message.ttl_ms, self.queue_ttl_ms)
        return message

    def column(self, number: int) -> Iterable[int]:
        """What stands in one column, such as ``BODY_LENGTH``, of those that are there."""
        column = self.columns[number]
        if isinstance(column, int):
            return repeat(column, self.count)
        numbers = unpack_column(column, self.size)
        return numbers if self.there is None else compress(numbers, self.there)

    def total(self, number: int) -> int:
        """The sum of what stands in one column, of those that are there."""
        column = self.columns[number]
        if isinstance(column, int):
            return column * self.count
        if self.there is not None:
            return sum(self.column(number))
        least, above = raw_column(column, self.size)
        return least * self.size + (0 if above is None else sum(above))

    def references(self) -> list[tuple[int, int]]:
        """The entries in which the contents of those that are there stand, and how many one after the other stand in
        each."""
        column = self.columns[INDEX]
        if isinstance(column, int):
            return [(column, self.count)]
        least, above = self.raw(INDEX)
        assert above is not None
        runs: list[tuple[int, int]] = []
        last = -1
        run = 0
        for each in above:
            if each != last:
                if run:
                    runs.append((least + last, run))
                last = each
                run = 0
            run += 1
        if run:
            runs.append((least + last, run))
        return runs

    def raw(self, number: int) -> "tuple[int, array[int] | None]":
        """The same as `raw_column`, of those that are there."""
        if self.there is None:
            return raw_column(self.columns[number], self.size)
        numbers = list(self.column(number))
        least = min(numbers, default=0)
        return least, array("Q", [each - least for each in numbers])

    def may_hold(self, low: int, high: int) -> bool:
        """Whether the entries from ``low`` to ``high`` may have content of messages in it."""
        column = self.columns[INDEX]
        if self._most_index < 0:
            least, above = raw_column(column, self.size)
            self._most_index = least if above is None else least + max(above)
        return number_base(column) <= high and low <= self._most_index

    def last(self, number: int) -> int:
        """The last of what stands in one column, of all that were packed: of a piece that is not settled, not of those
        that were cut alone."""
        return number_in(self.columns[number], self.size - 1)

    def place_from(self, offset: int) -> int:
        """The first place, of all that were packed, with this offset in its stream or a higher one."""
        column = self.columns[STREAM_OFFSET]
        low = offset - number_in(column, 0)
        if low <= 0:
            return 0
        if low < self.size and number_in(column, low) == offset:
            # No gap before it.
            return low
        low, high = 0, min(low, self.size)
        while low < high:
            middle = (low + high) // 2
            if number_in(column, middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def is_at(self, place: int, offset: int) -> bool:
        """Whether what has this offset is in this place, and there still."""
        if place >= self.size or number_in(self.columns[STREAM_OFFSET], place) != offset:
            return False
        return self.there is None or self.there[place] != 0

    def has(self, place: int) -> bool:
        """Whether the one in this place is there still."""
        return self.there is None or self.there[place] != 0

    def leave(self, place: int) -> None:
        """The message in this place, which is there, leaves."""
        self._leave([place])
        self.count -= 1
        self._with_ttl = -1

    def leave_at(self, offset: int, is_there: bool, departed: list[tuple[int, int]]) -> int:
        """The message with this offset in its stream leaves: how long its body is, GONE if it is not there.
        ``is_there``: it is. Which entries those that leave stand in is told to ``departed`` later (`count_off`)."""
        if not is_there:
            place = self._leavers_for(departed).place_of(offset)
            if place == GONE or not self.has(place):
                return GONE
        return self.leave_together([offset], departed)

    def leave_together(self, offsets: list[int], departed: list[tuple[int, int]]) -> int:
        """The same of messages that are all there: how long their bodies are together."""
        leavers = self._leavers_for(departed)
        body_bytes = leavers.leave(offsets)
        self.count -= len(offsets)
        self._with_ttl = -1
        if leavers.count() * _NOTED_TOGETHER >= self.size:
            self.count_off()
        return body_bytes

    def _leavers_for(self, departed: list[tuple[int, int]]) -> Leavers:
        leavers = self._leavers
        if leavers is None:
            columns, size = self.columns, self.size
            offsets, body_lengths = raw_column(columns[STREAM_OFFSET], size), raw_column(columns[BODY_LENGTH], size)
            leavers = self._leavers = Leavers(size, offsets, body_lengths, departed)
        return leavers

    def count_off(self) -> None:
        """In which entries those stand that have left by their offsets, and how many, is told now."""
        leavers = self._leavers
        if leavers is not None:
            self._note(leavers)
            leavers.depart(raw_column(self.columns[INDEX], self.size))
            self._leavers = None

    def is_thin(self) -> bool:
        """Whether so many have left that those that are there are worth being packed anew."""
        return _THIN * self.count <= self.size

    def places(self, numbers: list[int]) -> list[int]:
        """In which places those are that have these numbers, from 0 on, among those that are there."""
        there = self.there
        if there is None:
            return numbers
        places = list(compress(range(self.size), there))
        return [places[number] for number in numbers]

    def halve(self) -> None:
        """Half of what was cut has left: of a stream's piece, the others are as if packed anew."""
        there = self.there
        assert there is not None
        assert not self.order
        self.cut = self.count
        self._base = there[:]
        if 2 * _HALVED_TOGETHER * self.cut <= self.size:
            self.settle()

    def is_settled(self) -> bool:
        """Whether it is packed as it is cut."""
        return self._base is None

    def settle(self) -> None:
        """Be packed as it is cut."""
        base = self._base
        if base is None:
            return
        # Places are others then.
        self.count_off()
        there = self._there
        assert there is not None
        self._columns = self._columns_of(base)
        there = bytearray(compress(there, base))
        self._there = there if 0 in there else None
        self.size = self.cut
        self._base = None
        self._most_index = -1

    def _columns_of(self, some: bytearray) -> list[object]:
        """The columns of those in the places with a 1, at least one."""
        size = self.size
        places = list(compress(range(size), some))
        if len(places) == 1:
            return [number_in(column, places[0]) for column in self.columns]
        # By their places: sooner than to ask of each of them whether it is there.
        these = itemgetter(*places)
        return [_column_of_some(column, size, these) for column in self.columns]

    def without_gaps(self) -> "Packed":
        """Those that are there, packed anew."""
        there = self.there
        if there is None:
            return self
        smaller = Packed(self.count, self._columns_of(there), self.queue_ttl_ms)
        if self.order:
            smaller._order_from_ms = self._order_from_ms
            before = list(accumulate(there, initial=0))
            bits, smaller_bits = self._place_bits, _bits_for(self.count)
            mask = (1 << bits) - 1
            smaller._place_bits = smaller_bits
            smaller.order = _packed_order(
                [each >> bits << smaller_bits | before[each & mask] for each in self.order[self._due :]]
            )
        return smaller

    def at(self, number: int, place: int) -> int:
        """What stands in one column of the message in that place."""
        return number_in(self.columns[number], place)

    def retime(self, queue_ttl_ms: int) -> None:
        """Deadlines are by this TTL of the queue from now on, -1 for none (RULES T12)."""
        self.queue_ttl_ms = queue_ttl_ms
        self.order = _NO_ORDER
        self._first_ms = UNKNOWN

    def first_deadline_ms(self) -> int:
        """The earliest deadline of those that are there, -1 if none has one."""
        order, due = self.order, self._due
        if due < len(order):
            return self._order_from_ms + (order[due] >> self._place_bits)
        if order:
            return -1
        if self._first_ms == UNKNOWN:
            self._first_ms = min([ms for ms in self._deadlines() if ms >= 0], default=-1)
        return self._first_ms

    def _deadlines(self) -> list[int]:
        """Of those that are there."""
        if self.queue_ttl_ms == AS_PACKED:
            return list(self.column(DEADLINE_MS))
        return [
            deadline_ms(enqueued_ms, ttl_ms, self.queue_ttl_ms)
            for enqueued_ms, ttl_ms in zip(list(self.column(ENQUEUED_MS)), list(self.column(TTL_MS)), strict=True)
        ]

    def _put_in_order(self) -> None:
        """Know the ``order``."""
        deadlines = self._deadlines()
        from_ms = min([ms for ms in deadlines if ms >= 0], default=0)
        there = self.there
        places: Iterable[int] = range(self.size) if there is None else compress(range(self.size), there)
        # Few bits: numbers of up to 30 are compared by the machine.
        bits = _bits_for(self.size)
        order = [
            ms - from_ms << bits | place for ms, place in zip(deadlines, places, strict=True) if ms >= 0
        ]
        order.sort()
        self.order = _packed_order(order)
        self._place_bits = bits
        self._order_from_ms = from_ms
        self._due = 0

    def due_count(self, until_ms: int) -> int:
        """How many of those that are there have a deadline that is not later."""
        if not self.order:
            self._put_in_order()
        if until_ms < self._order_from_ms:
            return 0
        end = until_ms - self._order_from_ms + 1 << self._place_bits
        return bisect_left(self.order, end, self._due) - self._due

    def take_soonest(self, count: int) -> list[Message]:
        """The ones with the earliest deadlines, so many, leave: in the order of these, of the same one in their own.
        There must be so many with one."""
        if not self.order:
            self._put_in_order()
        mask = (1 << self._place_bits) - 1
        places = [each & mask for each in self.order[self._due : self._due + count]]
        messages = self._messages_in(places)
        self._leave(places)
        self.count -= count
        self._with_ttl = -1
        self._due += count
        return messages

    def soonest(self, until_ms: int) -> tuple[list[int], list[int]]:
        """The deadlines and places of those that have one until then, in the order in which they leave."""
        count = self.due_count(until_ms)
        taken = self.order[self._due : self._due + count]
        from_ms, bits = self._order_from_ms, self._place_bits
        mask = (1 << bits) - 1
        return [from_ms + (each >> bits) for each in taken], [each & mask for each in taken]

    def first_leaves(self, place: int) -> None:
        """The one with the earliest deadline, which is in this place, leaves: of `soonest` each in turn."""
        self._leave([place])
        self.count -= 1
        self._due += 1
        self._with_ttl = -1

    def _messages_in(self, places: list[int]) -> list[Message]:
        """Those in these places."""
        columns = self.columns
        indexes = numbers_in(columns[INDEX], places)
        offsets = numbers_in(columns[OFFSET], places)
        key_lengths = numbers_in(columns[2], places)
        header_lengths = numbers_in(columns[3], places)
        body_lengths = numbers_in(columns[BODY_LENGTH], places)
        enqueued = numbers_in(columns[ENQUEUED_MS], places)
        deadlines = numbers_in(columns[DEADLINE_MS], places)
        delivery_counts = numbers_in(columns[DELIVERY_COUNT], places)
        ttls = numbers_in(columns[TTL_MS], places)
        priorities = numbers_in(columns[PRIORITY], places)
        acquired_counts = numbers_in(columns[ACQUIRED_COUNT], places)
        messages = [
            Message(
                indexes[n], offsets[n], key_lengths[n], header_lengths[n], body_lengths[n], enqueued[n], deadlines[n],
                delivery_counts[n], ttls[n], priorities[n], acquired_counts[n],
            )
            for n in range(len(places))
        ]
        if self.queue_ttl_ms != AS_PACKED:
            for message in messages:  # nobody else has seen them yet
                message.deadline_ms = deadline_ms(message.enqueued_ms, message.ttl_ms, self.queue_ttl_ms)
        return messages

    def timed(self) -> int:
        """How many have a deadline. It takes next to no time, but for the first time when only some have TTLs of their
        own and the queue's is gone."""
        if self.queue_ttl_ms == AS_PACKED:
            if number_base(self.columns[DEADLINE_MS]) >= 0:
                return self.count
            if isinstance(self.columns[DEADLINE_MS], int):
                return 0
            return sum([1 for deadline_ms in self.column(DEADLINE_MS) if deadline_ms >= 0])
        if queue_ttl_of(self.queue_ttl_ms) >= 0:
            return self.count
        if self._with_ttl < 0:
            ttl_column = self.columns[TTL_MS]
            if isinstance(ttl_column, int):
                self._with_ttl = 0 if ttl_column == NO_TTL else self.count
            else:
                self._with_ttl = sum([1 for ttl_ms in self.column(TTL_MS) if ttl_ms != NO_TTL])
        return self._with_ttl

    def check(self, most: int) -> None:
        """ShardError unless each column is one, so that nothing is found out later. As many messages as there are
        octets for, or ``most`` of which nothing takes any, may be in it."""
        if self.size > most and all(isinstance(column, int) for column in self.columns):
            raise ShardError(f"{self.size} messages that nothing tells apart, {most} at most expected")
        for column in self.columns:
            check_column(column, self.size)


def _bits_for(size: int) -> int:
    """So many tell the places of so many messages apart."""
    return max(1, (size - 1).bit_length())


def _packed_order(order: list[int]) -> "array[int]":
    """An `order`, the highest number last."""
    return array("I" if not order or order[-1] < 1 << 32 else "Q", order)


def pack(messages: list[Message]) -> Packed:
    """Messages, at least one, packed."""
    return Packed(len(messages), [pack_column(numbers) for numbers in numbers_of(messages)])


class _Held:
    """The last pieces that are held, of all lines. No part of any state: whether a piece is held or packed by now,
    everything that can be asked of it has the same answer."""

    def __init__(self) -> None:
        self.pieces: list[Packed | None] = [None] * HELD_PIECES
        self.place = 0


_held: Final = _Held()


def hold(messages: list[Message]) -> Packed:
    """Messages, at least one, of a list that is nobody else's, to be packed once `HELD_PIECES` more have come: where
    consumers are a little behind, most have left before. Whoever packs at once makes and reads columns of what leaves
    within milliseconds."""
    piece = Packed(len(messages), _NO_COLUMNS, AS_PACKED, None, messages)
    held = _held
    before = held.pieces[held.place]
    held.pieces[held.place] = piece
    held.place = (held.place + 1) % HELD_PIECES
    if before is not None and before.is_held():
        _ = before.columns
    return piece
