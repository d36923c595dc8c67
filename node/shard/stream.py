"""What a queue has besides that is a stream: its messages stay, and each consumer has its own place (RULES J1). HOT.

The messages are those in the queue's ``ready`` line, in the order of their offsets; a message knows its own
(`Message.stream_offset`). They leave at the head of the line, because there is too much, and anywhere in it, when their
own time is up (`node.shard.stream_expiry`).
"""

from typing import Final

from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.deadlines import Deadlines, key_of
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_TTL, Message, is_own_ttl, mark_of
from mayfly.node.shard.said_ttls import said_ttl_ms
from mayfly.node.shard.stream_keys import StreamKeys
from mayfly.node.shard.stream_line import Leaving, Unpacked, last_offset, read, since
from mayfly.node.shard.timers import NEVER

# From where a consumer begins.
FIRST: Final = 0
LAST: Final = 1
NEXT: Final = 2
OFFSET: Final = 3
"""From this offset on, or from the first one there is behind it."""
TIME: Final = 4
"""From the first message on that came at this shard time (ms) or later."""
SINCE: Final = 5
"""The same so many ms ago."""


class Start:
    """From where a consumer begins: one of the kinds above, with its number where it takes one."""

    __slots__ = ("kind", "number")

    def __init__(self, kind: int, number: int = 0) -> None:
        self.kind = kind
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and (self.kind, self.number) == (other.kind, other.number)

    def __hash__(self) -> int:
        return hash((self.kind, self.number))

    def __repr__(self) -> str:
        return f"Start({self.kind}, {self.number})"


AT_THE_END: Final = Start(NEXT)


class Stream:
    """The places in one stream, and when its messages leave.

    ``next_offset`` is that of the next message that is published. ``places`` has, for each attached consumer by its
    order, the offset of the next message that it is given: it may be one that is still to come. ``filters`` has the
    routing keys of those that are given the messages of one key alone (J5). Consumers that have
    room and are given nothing because there is nothing new are ``idle``, all others with room wait in their band.
    ``woken_offset``: ``next_offset`` when the idle ones were last looked at.

    ``expiry`` has the deadlines that messages have of their own (J2), ``aged_offset`` is the first that may still leave
    by age: what is there before it stays for ever. ``outdated`` deadlines are in ``expiry`` whose message has left
    otherwise; they go when there are too many, those from the key ``swept`` on next.
    ``keys``: where each routing key's messages are, of streams that ask for it. ``marker_ttl_ms``: the TTL of the
    marker that takes the place of the last message of a key, -1 for no markers (J3); ``markers`` were made so far.
    ``is_mirror``: its messages are those of another stream, at their offsets (J4).
    ``honours_ttls``: what a message says itself of its TTL counts, where nobody has published it to the stream.
    ``departed``: entries in which messages stand that have left pieces of the line, and how many; they are released
    when somebody looks, and are no part of the state.
    """

    __slots__ = (
        "_leaving", "aged_offset", "departed", "expiry", "filters", "honours_ttls", "idle", "is_mirror", "keys",
        "marker_ttl_ms", "markers", "next_offset", "outdated", "places", "swept", "unpacked", "woken_offset",
    )  # fmt: skip

    def __init__(self, piece: int, has_keys: bool = False, marker_ttl_ms: int = NO_TTL) -> None:
        """``piece``: as of the line."""
        self.next_offset = 0
        self.places: dict[int, int] = {}
        self.filters: dict[int, bytes] = {}
        self.idle: dict[int, Holder] = {}
        self.woken_offset = 0
        self.aged_offset = 0
        self.expiry = Deadlines(piece)
        self.outdated = 0
        self.swept = key_of(0, 0)
        self.marker_ttl_ms = marker_ttl_ms
        self.markers = 0
        self.honours_ttls = False
        self.is_mirror = False
        self.keys: StreamKeys | None = StreamKeys() if has_keys or marker_ttl_ms >= 0 else None
        self.unpacked = Unpacked()
        self.departed: list[tuple[int, int]] = []
        self._leaving: Leaving | None = None

    def placed(
        self, content: Message, enqueued_ms: int, deadline_ms: int, ttl_ms: int = NO_TTL, key: bytes = b"",
        reason: int = 0,
    ) -> Message:
        """The content as the next message of the stream, with this TTL of its own and this routing key; a marker if
        there is a ``reason``."""
        offset = self.next_offset
        self.next_offset = offset + 1
        # Without keys it says no more than whether it is a marker, for copies of this stream.
        mark = mark_of(0, reason)
        if self.keys is not None:
            mark = self.keys.add(key, offset, reason)
        if is_own_ttl(ttl_ms):
            self.expiry.put(enqueued_ms + ttl_ms, offset)
        return Message(
            content.index, content.offset, content.key_length, content.header_length, content.body_length,
            enqueued_ms, deadline_ms, offset, ttl_ms, mark,
        )

    def arriving_ttl_ms(self, data: bytes, content: Message) -> int:
        """The TTL of what comes from another queue, in an entry with this data. What is no TTL is none: nobody is there
        to be told (RULES J2)."""
        if not self.honours_ttls:
            return NO_TTL
        ttl_ms = said_ttl_ms(data, content.offset + content.key_length, content.header_length)
        return ttl_ms if ttl_ms == NO_TTL else max(ttl_ms, self.marker_ttl_ms)

    @property
    def takes_as_they_are(self) -> bool:
        """Whether nothing is read from what comes from other queues, neither keys nor TTLs."""
        return self.keys is None and not self.honours_ttls

    def first_offset(self, line: Line) -> int:
        """The offset of the first message that is there; ``next_offset`` where there is none."""
        return line.items[line.head].stream_offset if line.head < len(line.items) else self.next_offset

    def start(self, line: Line, start: Start, now_ms: int) -> int:
        """The place of a consumer that begins there."""
        if start.kind == FIRST:
            return self.first_offset(line)
        if start.kind == LAST:
            return last_offset(line) if line.count() else self.next_offset
        if start.kind == OFFSET:
            return max(start.number, self.first_offset(line))
        if start.kind == NEXT:
            return self.next_offset
        found = since(line, start.number if start.kind == TIME else now_ms - start.number)
        return found if found >= 0 else self.next_offset

    def next_to_age(self, line: Line) -> Message | None:
        """The first message that may still leave by age; it may be one that stays for ever."""
        if line.head == len(line.items):
            return None
        first = line.items[line.head]
        if first.stream_offset >= self.aged_offset:
            return first
        found = read(line, self.unpacked, self.aged_offset, 1)
        return found[0] if found else None

    def next_due_ms(self, line: Line, age_ms: int) -> int:
        """When the next message leaves by its own deadline or at this age (-1: of no age); NEVER as things are."""
        due_ms = self.expiry.next_due_ms()
        if age_ms >= 0:
            aging = self.next_to_age(line)
            if aging is not None and (due_ms == NEVER or aging.enqueued_ms + age_ms < due_ms):
                return aging.enqueued_ms + age_ms
        return due_ms

    def leaving(self, line: Line) -> Leaving:
        """Messages are about to leave it."""
        leaving = self._leaving
        if leaving is None:
            leaving = self._leaving = Leaving(line, self.unpacked, self.departed)
        leaving.begin()
        return leaving

    def forget(self, holder: Holder) -> None:
        """The consumer is detached."""
        self.places.pop(holder.order, None)
        self.filters.pop(holder.order, None)
        self.idle.pop(holder.order, None)
