"""Messages that wait deep in a line, as columns of numbers: about ten bytes each instead of a hundred. HOT.

A column is one number where all are the same, else the least of them and how much each is above it, in as few bytes
as the largest difference takes. So packed they are also written to snapshots.
"""

import struct
import sys
from array import array
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from mayfly.node.shard.dialect import queue_ttl_of
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import NO_TTL, Message, deadline_ms

COLUMNS: Final = 11
COLUMNS_WITHOUT_ACQUIRED: Final = 10
"""In snapshots of shards below `cluster.versions.LEVEL_FAILED_DELIVERIES`: all returns counted, so how often a message
came back is its ``delivery_count``."""
INDEX: Final = 0
BODY_LENGTH: Final = 4
ENQUEUED_MS: Final = 5
DEADLINE_MS: Final = 6
DELIVERY_COUNT: Final = 7
TTL_MS: Final = 8
AS_PACKED: Final = -2
"""A ``queue_ttl_ms``: deadlines are those in the column."""
UNKNOWN: Final = -2
"""An earliest deadline that nobody has asked for yet."""
_NO_ORDER: Final = array("I")
"""That of all pieces of which nobody has asked for it; never changed."""
_HEAD: Final = struct.Struct("<qB")
_TYPES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
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
    least = min(numbers)
    most = max(numbers) - least
    if most == 0:
        return least
    width = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8
    packed = array(_TYPES[width], [number - least for number in numbers])
    if _SWAP:
        packed.byteswap()
    return _HEAD.pack(least, width) + packed.tobytes()


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
    if isinstance(column, int):
        return repeat(column, count)
    check_column(column, count)
    assert isinstance(column, bytes)
    least, width = _HEAD.unpack_from(column)
    numbers = array(_TYPES[width])
    numbers.frombytes(column[_HEAD.size :])
    if _SWAP:
        numbers.byteswap()
    return [least + number for number in numbers]


def last_of_column(column: object) -> int:
    """The last number of a ``pack_column``, without a look at the others."""
    if isinstance(column, int):
        return column
    assert isinstance(column, bytes)
    least: int
    width: int
    least, width = _HEAD.unpack_from(column)
    return least + int.from_bytes(column[-width:], "little")


def at_row(column: object, row: int) -> int:
    """One number of a ``pack_column``."""
    if isinstance(column, int):
        return column
    assert isinstance(column, bytes)
    least: int
    width: int
    least, width = _HEAD.unpack_from(column)
    start = _HEAD.size + row * width
    return least + int.from_bytes(column[start : start + width], "little")


class Packed:
    """Some messages, in order. Their columns are never changed once made.

    Unless it is AS_PACKED, deadlines are by this ``queue_ttl_ms`` (-1 for none) or TTL rule (`node.shard.dialect`)
    instead of what their column says.

    Some may leave from the middle, those with the earliest deadlines (RULES X2): ``count`` are left of ``rows``, and
    the octets of ``dead`` are 1 where one has left, nothing while none has. ``order`` are the rows of those that are
    left and have a deadline, the latest first, once that was asked for, and ``soonest_ms`` the earliest deadline.
    """

    __slots__ = ("_with_ttl", "columns", "count", "dead", "order", "queue_ttl_ms", "rows", "soonest_ms")

    def __init__(self, count: int, columns: list[object], queue_ttl_ms: int = AS_PACKED) -> None:
        """ShardError where the columns are not right."""
        if count <= 0 or len(columns) != COLUMNS:
            raise ShardError(f"{len(columns)} columns of {count} messages, {COLUMNS} of at least 1 expected")
        self.count = count
        self.rows = count
        self.dead = bytearray()
        self.order = _NO_ORDER
        self.soonest_ms = UNKNOWN
        self.columns = columns
        self.queue_ttl_ms = queue_ttl_ms
        self._with_ttl = -1

    def messages(self) -> list[Message]:
        """They themselves."""
        messages = self._messages()
        queue_ttl_ms = self.queue_ttl_ms
        if queue_ttl_ms != AS_PACKED:
            for message in messages:  # nobody else has seen them yet
                message.deadline_ms = deadline_ms(message.enqueued_ms, message.ttl_ms, queue_ttl_ms)
        return messages

    def _messages(self) -> list[Message]:
        return [Message(*numbers) for numbers in zip(*[self.column(number) for number in range(COLUMNS)], strict=True)]

    def column(self, number: int) -> Iterable[int]:
        """What stands in one column, such as ``BODY_LENGTH``."""
        numbers = unpack_column(self.columns[number], self.rows)
        if self.dead:
            return [number for number, dead in zip(numbers, self.dead, strict=True) if not dead]
        return numbers

    def bury(self, dead: bytes) -> None:
        """Rows have left before. ShardError unless they say so of each row, and some are left."""
        left = dead.count(0)
        if len(dead) != self.rows or not left or left + dead.count(1) != self.rows:
            raise ShardError(f"{self.rows} packed messages of which {len(dead)} are dead or not")
        self.dead = bytearray(dead)
        self.count = left

    def first_deadline_ms(self) -> int:
        """The earliest deadline of those that are left, -1 if none has one."""
        if self.soonest_ms == UNKNOWN:
            if self.order is not _NO_ORDER:
                self._sort()
            else:
                self.soonest_ms = min([ms for ms in self._deadlines() if ms >= 0], default=-1)
        return self.soonest_ms

    def _deadlines(self) -> list[int]:
        """Of those that are left."""
        if self.queue_ttl_ms == AS_PACKED:
            return list(self.column(DEADLINE_MS))
        return [
            deadline_ms(enqueued_ms, ttl_ms, self.queue_ttl_ms)
            for enqueued_ms, ttl_ms in zip(self.column(ENQUEUED_MS), self.column(TTL_MS), strict=True)
        ]

    def _sort(self) -> None:
        rows = range(self.rows)
        left = [row for row in rows if not self.dead[row]] if self.dead else list(rows)
        pairs = [(ms, row) for ms, row in zip(self._deadlines(), left, strict=True) if ms >= 0]
        pairs.sort(reverse=True)
        self.order = array("I", [row for _, row in pairs])
        self.soonest_ms = pairs[-1][0] if pairs else -1

    def take_soonest(self) -> Message:
        """The one with the earliest deadline leaves; of several the one that came first."""
        if not self.order:
            self._sort()
        row = self.order.pop()
        if not self.dead:
            self.dead = bytearray(self.rows)
        self.dead[row] = 1
        self.count -= 1
        message = self._message_at(row)
        self.soonest_ms = self._deadline_at(self.order[-1]) if self.order else -1
        return message

    def _message_at(self, row: int) -> Message:
        columns = self.columns
        message = Message(
            at_row(columns[0], row), at_row(columns[1], row), at_row(columns[2], row), at_row(columns[3], row),
            at_row(columns[4], row), at_row(columns[5], row), at_row(columns[6], row), at_row(columns[7], row),
            at_row(columns[8], row), at_row(columns[9], row), at_row(columns[10], row),
        )
        message.deadline_ms = self._deadline_at(row)
        return message

    def _deadline_at(self, row: int) -> int:
        if self.queue_ttl_ms == AS_PACKED:
            return at_row(self.columns[DEADLINE_MS], row)
        return deadline_ms(
            at_row(self.columns[ENQUEUED_MS], row), at_row(self.columns[TTL_MS], row), self.queue_ttl_ms
        )

    def last(self, number: int) -> int:
        """The last of what stands in one column."""
        return last_of_column(self.columns[number])

    def retime(self, queue_ttl_ms: int) -> None:
        """Deadlines are by this TTL of the queue from now on, -1 for none (RULES T12)."""
        self.queue_ttl_ms = queue_ttl_ms
        self.order = _NO_ORDER
        self.soonest_ms = UNKNOWN

    def timed(self) -> int:
        """How many have a deadline. It takes next to no time, but for the first time when only some have TTLs of their
        own and the queue's is gone."""
        if self.queue_ttl_ms == AS_PACKED:
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
        if self.count > most and all(isinstance(column, int) for column in self.columns):
            raise ShardError(f"{self.count} messages that nothing tells apart, {most} at most expected")
        for column in self.columns:
            check_column(column, self.rows)


def pack(messages: list[Message]) -> Packed:
    """Messages, at least one, packed."""
    return Packed(len(messages), [pack_column(numbers) for numbers in numbers_of(messages)])
