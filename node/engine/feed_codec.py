"""How what a shard tells a node without a replica travels: the `FeedCodec` of the product.

    part     length u32, msgpack [item, ...][length], contents
    item     [BATCH, sequence, answer, ...], or [BATCH_CUT, sequence]
             [DELIVER, consumer id, first delivery id, [message, ...]]
             [CANCELLED, consumer id, queue id]
             [CONSUMER_MOVED, consumer id, queue id, shard, prefetch, exclusive, priority]
             [SESSION_ENDED, incarnation, sequence, state]
             [ENTRY, index]: what stands before it, since the last one, is of this entry

What an entry holds may be spread over parts: large contents begin another one.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mayfly.cluster.group.fed_entry import FedEntry, MalformedFeed, Payloads
from mayfly.cluster.group.sessions import SessionKey
from mayfly.node.dead_letter.stream_content import header_of
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import GetResult
from mayfly.node.shard.travel import Packer, Unpacker

_ENTRY: Final = 0
_BATCH: Final = 1
_BATCH_CUT: Final = 2
_DELIVER: Final = 3
_CANCELLED: Final = 4
_SESSION_ENDED: Final = 5
_CONSUMER_MOVED: Final = 6

_LENGTH_BYTES: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[list[Any]])


class ShardFeedCodec:
    """See `FeedCodec`. `tells_marks`: whether all nodes know that a message may have a mark."""

    def __init__(self, tells_marks: Callable[[], bool]) -> None:
        self._tells_marks = tells_marks

    def encode(
        self, entries: list[FedEntry], payloads: Payloads, most_bytes: int
    ) -> list[tuple[int, list[bytes | memoryview]]]:
        """See `FeedCodec.encode`."""
        writing = _Writing(payloads, most_bytes, self._tells_marks)
        for entry in entries:
            writing.entry(entry)
        return writing.finish()

    def decode(self, parts: list[bytes], session: SessionKey) -> tuple[list[FedEntry], dict[int, bytes]]:
        """See `FeedCodec.decode`."""
        entries: list[FedEntry] = []
        entry: FedEntry | None = None
        payloads: dict[int, bytes] = {}
        number = 0
        try:
            for part in parts:
                number += 1
                payloads[number] = part
                start = _LENGTH_BYTES + (part[0] | part[1] << 8 | part[2] << 16 | part[3] << 24)
                unpacker = Unpacker(part, start, number)
                for item in _decoder.decode(part[_LENGTH_BYTES:start]):
                    if entry is None:
                        entry = FedEntry()
                    kind: int = item[0]
                    if kind == _ENTRY:
                        entry.index = _number(item[1])
                        entries.append(entry)
                        entry = None
                    elif kind == _BATCH:
                        results: list[object] = []
                        if len(item) > 2:
                            results = [unpacker.result(each) for each in item[2:]]
                        entry.answers.append((_number(item[1]), results))
                    elif kind == _DELIVER:
                        told: list[list[int]] = item[3]
                        messages = [unpacker.message(fields) for fields in told]
                        entry.effects.append(Deliver(_number(item[1]), _number(item[2]), messages, session))
                    else:
                        _read(kind, item, entry, session)
        except (
            msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError, TypeError, ValueError, OverflowError,
        ) as error:  # fmt: skip
            raise MalformedFeed(str(error)) from error
        return entries, payloads


def _number(value: object) -> int:
    if isinstance(value, int):
        return value
    raise MalformedFeed(f"{value!r} is no number")


def _read(kind: int, item: list[Any], entry: FedEntry, session: SessionKey) -> None:
    """What is rare."""
    if kind == _BATCH_CUT:
        entry.answers.append((int(item[1]), None))
    elif kind == _CANCELLED:
        entry.effects.append(ConsumerCancelled(int(item[1]), int(item[2]), session))
    elif kind == _CONSUMER_MOVED:
        consumer_id, queue_id, shard, prefetch, exclusive, priority = item[1:]
        moved = ConsumerMoved(
            int(consumer_id), int(queue_id), session, int(shard), int(prefetch), bool(exclusive), int(priority)
        )
        entry.effects.append(moved)
    elif kind == _SESSION_ENDED:
        entry.ended = (session[0], int(item[1]), int(item[2]), int(item[3]))
    else:
        raise MalformedFeed(f"unknown item {kind!r}")


class _Writing:
    """Parts that are being made."""

    def __init__(self, payloads: Payloads, most_bytes: int, tells_marks: Callable[[], bool]) -> None:
        self._packer: Packer = Packer(payloads, header_of, tells_marks)
        self._most_bytes = most_bytes
        self._items: list[list[object]] = []
        self._ending = 0
        self._parts: list[tuple[int, list[bytes | memoryview]]] = []

    def entry(self, entry: FedEntry) -> None:
        """All of an entry."""
        for sequence, results in entry.answers:
            if results is None:
                self._items.append([_BATCH_CUT, sequence])
                continue
            if not results:
                self._items.append([_BATCH, sequence])
                continue
            for result in results:
                if isinstance(result, GetResult) and result.message is not None:
                    self._make_room(result.message)
            self._items.append([_BATCH, sequence, *[self._packer.result(result) for result in results]])
        for effect in entry.effects:
            if isinstance(effect, Deliver):
                self._deliver(effect)
            elif isinstance(effect, ConsumerCancelled):
                self._items.append([_CANCELLED, effect.consumer_id, effect.queue_id])
            elif isinstance(effect, ConsumerMoved):
                self._items.append([
                    _CONSUMER_MOVED, effect.consumer_id, effect.queue_id, effect.shard, effect.prefetch,
                    effect.exclusive, effect.priority,
                ])  # fmt: skip
        if entry.ended is not None:
            self._items.append([_SESSION_ENDED, *entry.ended[1:]])
        self._items.append([_ENTRY, entry.index])
        self._ending += 1
        if self._packer.size_bytes > self._most_bytes:
            self._end_part(True)

    def _deliver(self, effect: Deliver) -> None:
        messages: list[list[int]] = []
        for place, message in enumerate(effect.messages):
            if self._make_room(message) or not messages:
                messages = []
                self._items.append([_DELIVER, effect.consumer_id, effect.first_delivery_id + place, messages])
            messages.append(self._packer.message(message))

    def _make_room(self, message: Message) -> bool:
        """Begin another part if this one is too full for the message."""
        size_bytes = self._packer.size_bytes
        if not size_bytes or size_bytes + message.content_length <= self._most_bytes:
            return False
        self._end_part(False)
        return True

    def _end_part(self, with_entry: bool) -> None:
        """One that ends in the middle of an entry is read together with the next."""
        items = _encoder.encode(self._items)
        pieces = self._packer.take()
        pieces.insert(0, len(items).to_bytes(_LENGTH_BYTES, "little") + items)
        self._parts.append((self._ending if with_entry else 0, pieces))
        self._items = []
        if with_entry:
            self._ending = 0

    def finish(self) -> list[tuple[int, list[bytes | memoryview]]]:
        """The parts."""
        if self._items:
            self._end_part(True)
        return self._parts
