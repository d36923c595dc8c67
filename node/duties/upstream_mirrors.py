"""Mirrors of streams in other clusters, those whose shards are led here (RULES J4).

    the stream there -> a connection (`node.upstream.reader`) -> TRANSFER_COPIES to its shard -> acknowledgement

As between streams here, how far a mirror has come stands in it, in the same entry as what came: which stream it
follows, by a number that one that is declared anew has not, and up to which offset. A connection, after whatever it
breaks, begins behind that. So each message comes once and in order, whichever leader dies on either side.

The shell makes the connections (`node.shell.upstream_links`): it asks which link wants one, and brings octets.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import Final, NamedTuple

from mayfly.cluster.group.group import Group
from mayfly.cluster.versions import LEVEL_LARGE_DEAD_LETTERS
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.dead_letter.stream_content import StreamPlace, without_place
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY, LARGE_BODY_BYTES, TRANSFER_BYTES
from mayfly.node.numbers import STREAM_SOURCE, stream_source
from mayfly.node.shard.commands import LetterContent, encode_transfer_copies, transfer_copies_parts
from mayfly.node.shard.message import NO_DEADLINE, NO_TTL, Message, mark_of
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard
from mayfly.node.upstream.reader import ReadMessage, UpstreamLogin, UpstreamReader

GiveLarge = Callable[[QueueRecord, int, list[bytes], int], bool]
"""Of a mirror, from a source, the parts of a command, now; whether it could go."""

FULL_BYTES: Final = 8 * 1024 * 1024
"""Contents that were read and are not stored yet: with more, nothing is read."""
STALLED_MS: Final = 10_000
"""What was read and is not stored after so long was lost on its way: it is read again."""
FIRST_RETRY_MS: Final = 500
MOST_RETRY_MS: Final = 10_000
_EARLIER: Final = 4
"""Up to this part of it a try comes earlier: so not all mirrors connect at once where they broke at once."""

# What a link does.
WAITING: Final = "waiting"
CONNECTING: Final = "connecting"
READING: Final = "reading"
REFUSED: Final = "refused"


logger = logging.getLogger(__name__)


class LinkState(NamedTuple):
    """A link, for operators. ``upstream_next``: the offset that the stream there gives next, as last heard, -1 for not
    heard of; ``fault``: why the last connection ended, or none can be made, "" if nothing was wrong."""

    queue_id: int
    upstream: str
    stream: str
    state: str
    fault: str
    next_offset: int
    upstream_next: int

    @property
    def lag(self) -> int:
        """Offsets that are to come, -1 if it is not known."""
        return -1 if self.upstream_next < 0 else max(0, self.upstream_next - self.next_offset)


class UpstreamLink:
    """From a stream in another cluster to its mirror here."""

    def __init__(
        self, record: QueueRecord, shard: Shard, give: Callable[[bytes], object], clock: Callable[[int], int],
        most_body_bytes: int, random: Callable[[int], int], give_large: GiveLarge | None = None,
    ) -> None:  # fmt: skip
        """`give(command)` takes a command for the mirror's shard, which may get lost; `clock(now_ms)` is that
        shard's; `random(n)` answers a number from 0 to n - 1. `give_large` takes one whose body is its last part, if
        that can go now."""
        assert record.settings.upstream is not None
        assert record.settings.mirror is not None
        self.record: QueueRecord = record
        self.upstream: str = record.settings.upstream
        self.stream: str = record.settings.mirror
        self.state: str = WAITING
        self.fault: str = ""
        self.detail: str = ""
        """What is logged of the fault: it may name files and addresses, which who may read the mirror need not know."""
        self.attempts: int = 0
        """Connections that were asked for: the next address is tried each time. Each is known by its number: what an
        older one says or meets, once there is another, is dropped."""
        self.told: str = ""
        """What was logged of it last."""
        self.ended: bool = False
        """It is no more needed here."""
        self._shard = shard
        self._give = give
        self._give_large = give_large
        self._clock = clock
        self._most_body_bytes = most_body_bytes
        self._random = random
        self._reader: UpstreamReader | None = None
        self._retry_at_ms = 0
        self._failures = 0
        self._source = 0
        self._next = 0
        self._upstream_next = -1
        self._moved_ms = 0
        self._unstored: deque[tuple[int, int, int]] = deque()
        """Of what was given to the shard: last offset, plus 1, tag and bytes."""
        self._unstored_bytes = 0
        self._held: deque[ReadMessage] = deque()
        """What was read and is not given to the shard: it follows a large message, which goes another way."""
        self._large_up_to = 0
        """Up to where a large message is that was given and is not stored; 0 for none."""

    # ------------------------------------------------------------------ for the shell

    def wants_connection(self, now_ms: int) -> bool:
        """Whether one should be made now."""
        return self.state == WAITING and not self.ended and now_ms >= self._retry_at_ms

    def is_open(self, attempt: int) -> bool:
        """Whether this connection is of use: once it is not, it is to be closed."""
        return self._reader is not None and attempt == self.attempts and not self.ended

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be stored that nothing should be read."""
        return self._unstored_bytes >= FULL_BYTES or bool(self._held)

    def connecting(self) -> int:
        """A connection is being made: its number."""
        self.state = CONNECTING
        self.attempts += 1
        return self.attempts

    def connected(self, attempt: int, login: UpstreamLogin, now_ms: int) -> None:
        """It is there; what is to be sent is asked for by `take_output`."""
        if attempt != self.attempts or self.state != CONNECTING:
            return
        queue = self._queue
        if queue is None:
            self._end("the mirror is not there", now_ms)
            return
        self._source, self._next = _followed(queue)
        self._moved_ms = now_ms
        self._unstored.clear()
        self._unstored_bytes = 0
        self._held.clear()
        self._large_up_to = 0
        self._reader = UpstreamReader(self.stream, login, self._next, self._most_body_bytes, now_ms)

    def receive(self, attempt: int, octets: bytes, now_ms: int) -> None:
        """Octets from the other side. Whatever they are, they are no defect of this node."""
        reader = self._reader
        if reader is None or attempt != self.attempts:
            return
        try:
            reader.receive(octets, now_ms)
        except Exception:
            self._puzzled(now_ms)
            return
        self._take(reader, now_ms)

    def take_output(self, attempt: int) -> bytes:
        """Octets for the other side."""
        return b"" if self._reader is None or attempt != self.attempts else self._reader.take_output()

    def lost(self, attempt: int, why: str, now_ms: int, detail: str = "") -> None:
        """The connection can't be had, or has ended; `detail` is what is logged of it, if that is more."""
        if attempt == self.attempts:
            self._end(why, now_ms, detail)

    # ------------------------------------------------------------------ for the duty

    def tick(self, now_ms: int) -> None:
        """Time has passed, or the shard has changed: acknowledge what is stored."""
        queue, reader = self._queue, self._reader
        if reader is None:
            return
        if queue is None:
            self._end("the mirror is not there", now_ms)
            return
        received = queue.received.get(self._source, 0)
        tag = 0
        while self._unstored and self._unstored[0][0] <= received:
            _, tag, size_bytes = self._unstored.popleft()
            self._unstored_bytes -= size_bytes
        if received >= self._large_up_to:
            self._large_up_to = 0
        if tag:
            self._moved_ms = now_ms
            self._failures = 0
            reader.acknowledge(tag)
        elif not self._unstored:
            self._moved_ms = now_ms
        elif now_ms - self._moved_ms >= STALLED_MS:
            self._end("what was read was not stored in time", now_ms)
            return
        reader.tick(now_ms)
        self._take(reader, now_ms)

    def shown(self) -> LinkState:
        """How it is."""
        queue = self._queue
        next_offset = 0 if queue is None else _followed(queue)[1]
        return LinkState(
            self.record.id, self.upstream, self.stream, self.state, self.fault, next_offset,
            max(self._upstream_next, next_offset) if self._upstream_next >= 0 else -1,
        )  # fmt: skip

    def _end(self, why: str, now_ms: int, detail: str = "") -> None:
        if self.state not in (CONNECTING, READING):
            return
        self.state = WAITING
        self.fault = why
        self.detail = detail or why
        self._reader = None
        delay_ms = min(MOST_RETRY_MS, FIRST_RETRY_MS << min(self._failures, 5))
        self._retry_at_ms = now_ms + delay_ms - self._random(delay_ms // _EARLIER)
        self._failures += 1

    def _puzzled(self, now_ms: int) -> None:
        """What came was met by an exception: another connection may do better, the node must not stop for it."""
        logger.exception("what cluster %r has sent for mirror %r can't be taken", self.upstream, self.record.name)
        self._end("what the other side has sent can't be taken: see the log", now_ms)

    @property
    def _queue(self) -> Queue | None:
        queue = self._shard.queue(self.record.id)
        return None if queue is None or queue.stream is None or queue.has_left else queue

    def _take(self, reader: UpstreamReader, now_ms: int) -> None:
        """Have stored what has come."""
        try:
            fault = self._taken(reader, now_ms)
        except Exception:
            self._puzzled(now_ms)
            return
        if fault:
            self._end(fault, now_ms)

    def _taken(self, reader: UpstreamReader, now_ms: int) -> str:
        """Why nothing more can be taken, "" if it can."""
        if reader.is_reading and self.state == CONNECTING:
            self.state, self.fault, self.detail = READING, "", ""
        last = reader.take_last()
        if last is not None:
            place = without_place(last.header)[1]
            if place is not None and self._source and stream_source(place.stream) != self._source:
                # It may have fewer messages than the mirror: then none would ever come that says so.
                return self._declared_anew
            if place is not None:
                self._upstream_next = place.offset + 1
        return reader.fault or self._store(reader, now_ms)

    def _store(self, reader: UpstreamReader, now_ms: int) -> str:
        """Give the shard what has come, in its order; why it can't be taken, "" if it can."""
        held = self._held
        held.extend(reader.take_messages())
        items: list[tuple[Message, LetterContent]] = []
        size_bytes = tag = 0
        first = self._next + 1
        fault = ""
        while held and not self._large_up_to:
            read = held[0]
            content = read.content
            header, place = without_place(content.header)
            fault = self._misplaced(place)
            if place is None or fault:
                break
            item = (_as_there(place), LetterContent(content.exchange_and_key, header, content.body))
            if self._give_large is not None and len(content.body) > LARGE_BODY_BYTES:
                if items:
                    self._send(items, first, tag, size_bytes, now_ms)
                    items, size_bytes, first = [], 0, self._next + 1
                if not self._send_large(item, first, place.offset + 1, now_ms):
                    break
                self._next = self._large_up_to = place.offset + 1
                self._note_sent(read.tag, content.size_bytes)
                held.popleft()
                continue
            held.popleft()
            items.append(item)
            size_bytes += content.size_bytes
            self._next, tag = place.offset + 1, read.tag
            if len(items) >= DEAD_LETTERS_PER_ENTRY or size_bytes >= TRANSFER_BYTES:
                self._send(items, first, tag, size_bytes, now_ms)
                items, size_bytes, first = [], 0, self._next + 1
        if items:
            self._send(items, first, tag, size_bytes, now_ms)
        return fault

    def _send_large(self, item: tuple[Message, LetterContent], first: int, last: int, now_ms: int) -> bool:
        assert self._give_large is not None
        parts = transfer_copies_parts(self._source, self.record.id, first, last, self._clock(now_ms), [item])
        return self._give_large(self.record, self._source, parts, now_ms)

    def _misplaced(self, place: StreamPlace | None) -> str:
        if place is None:
            return "the other side does not say where its messages are: it is no MayflyMQ, or an older one"
        source = stream_source(place.stream)
        if not self._source:
            self._source = source
        if source != self._source:
            return self._declared_anew
        if place.offset < self._next:
            return f"offset {place.offset} came where {self._next} or a later one was to come"
        return ""

    @property
    def _declared_anew(self) -> str:
        return f"stream '{self.stream}' there is not the one that was mirrored so far: it was declared anew"

    def _send(
        self, items: list[tuple[Message, LetterContent]], first: int, tag: int, size_bytes: int, now_ms: int
    ) -> None:
        last = self._next
        self._give(encode_transfer_copies(self._source, self.record.id, first, last, self._clock(now_ms), items))
        self._note_sent(tag, size_bytes)

    def _note_sent(self, tag: int, size_bytes: int) -> None:
        self._upstream_next = max(self._upstream_next, self._next)
        self._unstored.append((self._next, tag, size_bytes))
        self._unstored_bytes += size_bytes


class UpstreamMirrors:
    """Of one node: a link for each mirror of a stream elsewhere whose shard is led here."""

    def __init__(
        self, catalog: Catalog, shards: Mapping[int, Shard], groups: Mapping[int, Group],
        give: Callable[[int, bytes], object], random: Callable[[int], int], transfers: LargeTransfers,
    ) -> None:  # fmt: skip
        """`shards` and `groups`: those of this node, as they are at any time. `give(shard, command)` takes a command
        for a shard that is led here; it may get lost. `random`: see `UpstreamLink`. What is large goes by
        ``transfers``."""
        self.allowed: Mapping[str, Set[str]] = {}
        """The clusters that this node can read from, and the vhosts here in which mirrors of their streams may be."""
        self.most_body_bytes: int = 1 << 27
        self.links: dict[int, UpstreamLink] = {}
        """By the mirror's id."""
        self._catalog = catalog
        self._shards = shards
        self._groups = groups
        self._give = give
        self._random = random
        self._transfers = transfers
        self._routing_version = -1
        self._records: list[QueueRecord] = []

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self._routing_version != self._catalog.routing_version:
            self._routing_version = self._catalog.routing_version
            self._records = [each for each in self._catalog.copying_streams() if each.settings.upstream is not None]
        if not self._records and not self.links:
            return
        wanted = [record for record in self._records if self._is_led(record)]
        kept = {record.id for record in wanted}
        for id in [id for id in self.links if id not in kept]:
            self.links.pop(id).ended = True
        for record in wanted:
            link = self.links.get(record.id)
            if link is not None and link.record.shard != record.shard:
                link.ended = True
                link = None
            if link is None:
                link = self.links[record.id] = self._link(record)
            link.tick(now_ms)

    def _is_led(self, record: QueueRecord) -> bool:
        group, shard = self._groups.get(record.shard), self._shards.get(record.shard)
        return group is not None and group.established and shard is not None and shard.queue(record.id) is not None

    def _link(self, record: QueueRecord) -> UpstreamLink:
        shard = record.shard
        link = UpstreamLink(
            record, self._shards[shard], lambda command: self._give(shard, command),
            self._groups[shard].clock.current_ms, self.most_body_bytes, self._random, self._in_pieces,
        )  # fmt: skip
        if record.vhost not in self.allowed.get(link.upstream, ()):
            known = link.upstream in self.allowed
            link.fault = (
                f"upstreams_file of this node does not allow mirrors of '{link.upstream}' in vhost '{record.vhost}'"
                if known else f"upstreams_file of this node has no cluster '{link.upstream}'"
            )  # fmt: skip
            link.detail = link.fault
            link.state = REFUSED
        return link


    def _in_pieces(self, record: QueueRecord, source: int, parts: list[bytes], now_ms: int) -> bool:
        if self._catalog.level < LEVEL_LARGE_DEAD_LETTERS:
            self._give(record.shard, b"".join(parts))
            return True
        size_bytes = sum(map(len, parts))
        return self._transfers.give(
            record.shard, record.id, source, size_bytes, lambda: parts, lambda: None, now_ms
        )


def _followed(queue: Queue) -> tuple[int, int]:
    """Which stream a mirror follows, as a source, 0 for none yet, and the offset that it wants next."""
    for source, sequence in queue.received.items():
        if source >= STREAM_SOURCE:
            return source, sequence
    return 0, 0


def _as_there(place: StreamPlace) -> Message:
    """A message as it is in the stream there, but for its contents."""
    return Message(
        0, 0, 0, 0, 0, place.enqueued_ms, NO_DEADLINE, place.offset, NO_TTL, mark_of(0, place.reason)
    )
