"""Answers and effects on their way to another node: as lists of numbers and words, with their contents beside them.

    message   [offset in the contents, key length, header length, body length, enqueued_ms, deadline_ms,
               acquired count, ttl_ms, delivery count]; behind it, where the other node knows it, the mark of a marker
               of a stream
"""

from collections.abc import Callable
from typing import Any, Final

from mayfly.cluster.group.fed_entry import Payloads
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import (
    Applied,
    Attached,
    Crossed,
    Deleted,
    Detached,
    GetResult,
    Gone,
    Moved,
    Published,
    Purged,
    PurgedKey,
    QueueCounts,
    RedriveState,
    Refused,
)

_GONE: Final = 1
_COUNTS: Final = 2
_GOT: Final = 3
_ATTACHED: Final = 4
_DETACHED: Final = 5
_REFUSED: Final = 6
_PURGED: Final = 7
_DELETED: Final = 8
_DONE: Final = 9
_STORED: Final = 10
_PUBLISHED: Final = 11
_MOVED: Final = 12
_CROSSED: Final = 13
_PURGED_KEY: Final = 14
_REDRIVE: Final = 15


class MalformedTravel(ValueError):
    """What no `Packer` wrote."""


class Packer:
    """Answers and messages for one other node; contents gather until `take`."""

    def __init__(
        self,
        payloads: Payloads,
        header_of: Callable[[Message, bytes], bytes] | None = None,
        tells_marks: Callable[[], bool] | None = None,
    ) -> None:
        """`payloads` are those that messages refer to. `header_of` makes the header of a marker of a stream, which has
        none in the log. `tells_marks`: whether the other node knows that there may be a mark."""
        self._payloads = payloads
        self._header_of = header_of
        self._tells_marks = tells_marks
        self._contents: list[bytes | memoryview] = []
        self.size_bytes: int = 0
        """Of the contents that have gathered."""
        self._index: int = -1
        self._payload: bytes = b""
        """Of the message before: those of one entry come one after the other."""

    def take(self) -> list[bytes | memoryview]:
        """The contents since the last time: what was packed refers to them joined."""
        contents, self._contents, self.size_bytes = self._contents, [], 0
        self._index, self._payload = -1, b""
        return contents

    def message(self, message: Message) -> list[int]:
        """A message, and its content among the contents."""
        if not message.header_length and message.marker_reason and self._header_of is not None:
            return self._marker(message, self._header_of(message, self._payloads.data(message.index)))
        offset = self.size_bytes
        length = message.content_length
        if length > LARGE_BODY_BYTES:
            self._contents += self._payloads.views(message.index, message.offset, length)
        else:
            if message.index != self._index:
                self._index, self._payload = message.index, self._payloads.data(message.index)
            self._contents.append(self._payload[message.offset : message.offset + length])
        self.size_bytes += length
        return [
            offset, message.key_length, message.header_length, message.body_length, message.enqueued_ms,
            message.deadline_ms, message.acquired_count, message.ttl_ms, message.delivery_count,
        ]  # fmt: skip

    def _marker(self, message: Message, header: bytes) -> list[int]:
        """A marker of a stream (RULES J3), with the header that it has for consumers."""
        offset = self.size_bytes
        names = self._payloads.data(message.index)[message.offset : message.offset + message.key_length]
        self._contents += (names, header)
        self.size_bytes += len(names) + len(header)
        fields = [
            offset, message.key_length, len(header), 0, message.enqueued_ms, message.deadline_ms,
            message.acquired_count, message.ttl_ms, message.delivery_count,
        ]  # fmt: skip
        return [*fields, message.priority] if self._tells_marks is not None and self._tells_marks() else fields

    def result(self, result: object) -> list[object]:
        """An answer."""
        if result is None:
            return [_STORED]
        if isinstance(result, GetResult):
            message = None if result.message is None else self.message(result.message)
            return [_GOT, message, result.delivery_id, result.ready_count, result.try_again]
        if isinstance(result, QueueCounts):
            return [_COUNTS, result.ready, result.consumers, result.created]
        if isinstance(result, Gone):
            return [_GONE, result.queue_id, result.reason]
        if isinstance(result, Attached):
            return [_ATTACHED, result.consumers]
        if isinstance(result, Detached):
            return [_DETACHED]
        if isinstance(result, Refused):
            return [_REFUSED, result.reason]
        if isinstance(result, Purged):
            return [_PURGED, result.messages]
        if isinstance(result, Deleted):
            return [_DELETED, result.messages]
        if isinstance(result, Published):
            return [_PUBLISHED, result.refused, *_nowhere(result.nowhere)]
        if isinstance(result, Applied):
            return [_DONE, *_nowhere(result.nowhere)]
        if isinstance(result, Moved):
            return [_MOVED, result.queue_id, result.shard]
        if isinstance(result, Crossed):
            return [_CROSSED, result.up_to, result.done]
        if isinstance(result, PurgedKey):
            return [_PURGED_KEY, result.messages, result.left]
        if isinstance(result, RedriveState):
            return [_REDRIVE, result.redrive_id, result.state]
        raise TypeError(f"a result that cannot travel: {result!r}")


class Unpacker:
    """What a `Packer` made, read again. The messages carry `index` and refer to `payload`, from `base` on."""

    def __init__(self, payload: bytes, base: int, index: int) -> None:
        self._payload = payload
        self._base = base
        self._index = index

    def message(self, fields: list[int]) -> Message:
        """Raises MalformedTravel, TypeError, ValueError or IndexError."""
        offset, key, header, body = fields[0], fields[1], fields[2], fields[3]
        start = self._base + offset
        if offset < 0 or key < 0 or header < 0 or body < 0 or start + key + header + body > len(self._payload):
            raise MalformedTravel("a message reaches past its payload")
        return Message(
            self._index, start, key, header, body, fields[4], fields[5], fields[8], fields[7],
            fields[9] if len(fields) > 9 else 0, fields[6],
        )

    def result(self, item: list[Any]) -> object:
        """What `Packer.result` made. Raises what `message` does."""
        kind = item[0]
        if kind == _STORED:
            return None
        if kind == _GOT:
            message = None if item[1] is None else self.message(item[1])
            return GetResult(message, item[2], item[3], item[4])
        if kind == _COUNTS:
            return QueueCounts(item[1], item[2], item[3])
        if kind == _GONE:
            return Gone(item[1], item[2])
        if kind == _ATTACHED:
            return Attached(item[1])
        if kind == _DETACHED:
            return Detached()
        if kind == _REFUSED:
            return Refused(item[1])
        if kind == _PURGED:
            return Purged(item[1])
        if kind == _DELETED:
            return Deleted(item[1])
        if kind == _PUBLISHED:
            return Published(*[_positions(each) for each in item[1:3]])
        if kind == _DONE:
            return Applied(*[_positions(each) for each in item[1:2]])
        if kind == _MOVED:
            return Moved(item[1], item[2])
        if kind == _CROSSED:
            return Crossed(item[1], item[2])
        if kind == _PURGED_KEY:
            return PurgedKey(item[1], item[2])
        if kind == _REDRIVE:
            return RedriveState(item[1], item[2])
        raise MalformedTravel(f"unknown result {kind!r}")


def _nowhere(positions: list[int]) -> list[list[int]]:
    """What follows in an answer; older releases pass over it."""
    return [positions] if positions else []


def _positions(item: Any) -> list[int]:
    return [int(position) for position in item]
