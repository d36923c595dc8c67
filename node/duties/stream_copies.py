"""What the leader of a shard does for streams that copy those which are here (RULES J4).

    a stream has what a copy of it has not   -> TRANSFER_COPIES to the copy's shard, which may be this one;
                                                what is large alone: in pieces (`node.duties.large_transfers`), or here
                                                without its body, which the log has

Nothing is kept for it: a stream keeps its messages anyway, and how far a copy has come stands in the copy, in the same
entry as what came. So a new leader here asks there and goes on, and nothing is lost or doubled with either.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from mayfly.node.catalog import QueueRecord
from mayfly.node.catalog.streams import origins_of
from mayfly.node.dead_letter.stream_content import header_of, with_source
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.progress import TargetProgress
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY, TRANSFER_BYTES
from mayfly.node.numbers import stream_source
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_line import read

logger = logging.getLogger(__name__)

_UNDER_WAY: Final = 8
"""Commands for one copy that were sent and not yet seen to be there: bounds what is in memory of them, and the time of
one look."""

_PER_LOOK: Final = 16
"""Commands for all copies in one look: a new leader whose copies all lag sends as much, the rest in the next ones."""

_NOWHERE: Final = -1


class _Feed:
    """From one stream to one copy of it. ``ends``: the last sequences of what was sent and has not arrived."""

    __slots__ = ("copy", "ends", "origin", "progress")

    def __init__(self, origin: QueueRecord, copy: QueueRecord, now_ms: int) -> None:
        self.origin = origin
        self.copy = copy
        self.progress = TargetProgress(copy.shard, 1, now_ms)
        self.ends: deque[int] = deque()


class StreamCopies:
    """The duty for one shard."""

    def __init__(
        self,
        shard: Shard,
        port: DutyPort,
        entry: Callable[[int], bytes],
        clock: Callable[[int], int],
        large: LargeBodies | None = None,
    ) -> None:
        """As of `ShardDuties`."""
        self._shard = shard
        self._port = port
        self._catalog = port.catalog
        self._entry = entry
        self._clock = clock
        self._large = large
        self._now_ms = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._feeds: dict[tuple[int, int], _Feed] = {}
        self._routing_version = -1
        self._left = 0
        self.lags: bool = False
        """Whether a copy has not all that there is, so that what other shards apply matters here."""

    def perform(self, now_ms: int) -> None:
        """Send what copies have not."""
        self._now_ms = now_ms
        if self._routing_version != self._catalog.routing_version:
            self._routing_version = self._catalog.routing_version
            self._find_feeds(now_ms)
        self.lags = False
        self._left = _PER_LOOK
        for key, feed in list(self._feeds.items()):
            queue = self._shard.queue(feed.origin.id)
            if queue is not None and queue.stream is not None:
                before = self._left
                self._feed(feed, queue, queue.stream, now_ms)
                if self._left < before:
                    # Next time the others are first.
                    self._feeds[key] = self._feeds.pop(key)

    def _find_feeds(self, now_ms: int) -> None:
        copying = self._catalog.copying_streams()
        if not copying and not self._feeds:
            return
        before = self._feeds
        found: dict[tuple[int, int], _Feed] = {}
        for copy in copying:
            for name in origins_of(copy.settings):
                origin = self._catalog.queue(copy.vhost, name)
                if origin is not None and origin.shard == self._shard.shard_id:
                    key = (origin.id, copy.id)
                    found[key] = before.get(key) or _Feed(origin, copy, now_ms)
        self._feeds = {**{key: feed for key, feed in before.items() if key in found}, **found}

    def _feed(self, feed: _Feed, queue: Queue, stream: Stream, now_ms: int) -> None:
        copy = feed.copy
        source = stream_source(feed.origin.id)
        received = self._port.received_up_to(copy.shard, copy.id, source)
        # A sequence is an offset plus 1.
        last = stream.next_offset
        if received >= last:
            return
        self.lags = True
        if self._port.room(copy.shard, copy.id, source, 0).messages <= 0 or received < 0:
            return  # It is not known yet what is there, or the copy is still to be made.
        progress = feed.progress
        progress.wants(received + 1, now_ms)
        while feed.ends and feed.ends[0] <= received:
            feed.ends.popleft()
        progress.go_on(progress.is_stalled(now_ms), now_ms)
        if progress.sent < progress.wanted:
            feed.ends.clear()
        most = 1 if progress.probing else DEAD_LETTERS_PER_ENTRY
        while self._left and progress.sent < last and len(feed.ends) < (1 if progress.probing else _UNDER_WAY):
            if progress.waits_for_large and not progress.may_send_large:
                return
            self._left -= 1
            messages, end = self._some(queue, stream, progress.sent, most)
            if messages and self._is_large(messages[0]):
                if not self._send_large(feed, progress, messages[0], end, now_ms):
                    return
            elif progress.waits_for_large:
                return
            else:
                items = list(zip(messages, self._contents(feed, messages), strict=True))
                command = commands.encode_transfer_copies(
                    source, copy.id, progress.sent + 1, end, self._clock(now_ms), items
                )
                self._port.transfer(copy.shard, command)
                progress.sent = end
            feed.ends.append(end)

    def _is_large(self, message: Message) -> bool:
        return self._large is not None and self._large.has(message)

    def _send_large(
        self, feed: _Feed, progress: TargetProgress, message: Message, end: int, now_ms: int
    ) -> bool:
        """Send a large message, all that there is up to ``end``; False if it can't go now."""
        copy, large, first = feed.copy, self._large, progress.sent + 1
        assert large is not None
        source = stream_source(feed.origin.id)
        if copy.shard == self._shard.shard_id:
            content = _as_copied(feed, message, large.without_body(message))
            parts = self._parts(feed, message, content, first, end)
            large.give(b"".join(parts), message)
            progress.sent = end
            return True
        if not progress.may_send_large:
            return False

        def applied() -> None:
            progress.large_was_applied(self._now_ms)
            self._port.ask_again(copy.shard, copy.id, source)

        given = large.transfers.give(
            copy.shard, copy.id, source, message.content_length,
            lambda: self._parts(feed, message, _as_copied(feed, message, large.content(message)), first, end),
            applied, now_ms,
        )  # fmt: skip
        if given:
            progress.sends_large(end)
        return given

    def _parts(
        self, feed: _Feed, message: Message, content: commands.LetterContent, first: int, end: int
    ) -> list[bytes]:
        return commands.transfer_copies_parts(
            stream_source(feed.origin.id), feed.copy.id, first, end, self._clock(self._now_ms), [(message, content)]
        )

    def _some(self, queue: Queue, stream: Stream, offset: int, most: int) -> tuple[list[Message], int]:
        """The next messages from this offset on, at most so many, or a large one alone, and up to which sequence that
        is all there is."""
        items: list[Message] = []
        size = 0
        while len(items) < most and size < TRANSFER_BYTES:
            # With what the stream itself remembers: that forgets what leaves.
            messages = read(queue.ready, stream.unpacked, offset, most - len(items))
            if not messages:
                return items, stream.next_offset
            for message in messages:
                offset = message.stream_offset + 1
                if self._is_large(message):
                    return (items, message.stream_offset) if items else ([message], offset)
                items.append(message)
                size += message.content_length
                if size >= TRANSFER_BYTES:
                    break
        return items, offset

    def _contents(self, feed: _Feed, messages: list[Message]) -> list[commands.LetterContent]:
        """As they come to the copy."""
        contents: list[commands.LetterContent] = []
        index, data = _NOWHERE, b""
        for message in messages:
            # Many in a row stand in the same entry.
            if message.index != index:
                index, data = message.index, self._entry(message.index)
            content = content_of(data, message)
            content.header = header_of(message, data)
            contents.append(_as_copied(feed, message, content))
        return contents


def _as_copied(feed: _Feed, message: Message, content: commands.LetterContent) -> commands.LetterContent:
    """The content of a message as it comes to the copy; one that is no mirror says where it is from."""
    if feed.copy.settings.mirror is None:
        try:
            content.header = with_source(content.header, feed.origin.name, message.stream_offset)
        except (IndexError, ValueError, struct.error):
            # Its headers can't be read: it comes as it is, and does not stop those behind it.
            logger.exception(
                "the headers at offset %d of stream %r can't be read, copies get them as they are",
                message.stream_offset, feed.origin.name,
            )  # fmt: skip
    return content
