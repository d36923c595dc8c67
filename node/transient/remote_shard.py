"""Another node's transient shard, as this node's clients reach it: the guest's end of a stream.

See `node.transient.streams` for what travels.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from mayfly.node import notice_kinds
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterEvents, OnDone
from mayfly.node.numbers import transient_shard
from mayfly.node.shard.commands import ANSWERING, PUBLISH_GUARDED
from mayfly.node.shard.message import Message
from mayfly.node.transient import streams

logger = logging.getLogger(__name__)

Send = Callable[[int, int, bytes], None]
"""send(node id, kind, payload)."""

HEARTBEAT_MS: Final = 1000
"""How often a stream without news shows that it is there."""

SILENCE_MS: Final = 10_000
"""A stream that is silent for so long is over."""


class RemoteShard:
    """The `ShardHandle` of another node's transient shard: the guest's end of a stream."""

    def __init__(
        self, node_id: int, first_stream: int, send: Send, events: Callable[[], ClusterEvents | None]
    ) -> None:
        self.shard_id: int = transient_shard(node_id)
        self.reachable: bool = False
        self._node_id = node_id
        self._send = send
        self._events = events
        self._next_stream = first_stream
        self._stream = 0
        self._next_sequence = 1
        self._heard_sequence = 0
        self._heard_ms = 0
        self._heartbeat_ms = 0
        self._units: list[streams.Unit] = []
        self._waiting: deque[OnDone] = deque()
        self._payload = b""
        self._payload_index = 0

    def submit(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit`."""
        self._add(command, command[0] in ANSWERING, done)

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        """See `ShardHandle.acknowledge`."""
        self.submit(command, None)

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish`."""
        self._add(b"".join(parts), parts[0][0] == PUBLISH_GUARDED, done)

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish_in_pieces`: it has no log, and takes it whole."""
        self.publish(parts, size_bytes, done)

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit_in_pieces`: it has no log, and takes it whole."""
        self.submit(command, done)

    def content(self, message: Message) -> tuple[bytes, int]:
        """See `ShardHandle.content`; answers for the notice that is being handled."""
        if message.index != self._payload_index:
            raise LookupError(f"notice {message.index} of node {self._node_id} is past")
        return self._payload, message.offset

    def views(self, message: Message) -> list[memoryview]:
        """See `ShardHandle.views`; answers for the notice that is being handled."""
        data, start = self.content(message)
        return [memoryview(data)[start : start + message.content_length]]

    def _add(self, data: bytes, answers: bool, done: OnDone | None) -> None:
        if not self.reachable:
            if done is not None:
                done(SESSION_LOST)
            return
        if done is not None or answers:
            # A result that nobody waits for takes its turn among the answers all the same.
            self._waiting.append(done or _ignore)
        self._units.append((streams.WANTED if done is not None else 0, data))

    def pump(self, now_ms: int) -> None:
        """Send what was gathered."""
        if self._units:
            units, self._units = self._units, []
            for part in streams.divided(units):
                self._request(part, now_ms)

    def _request(self, units: list[streams.Unit], now_ms: int) -> None:
        if not self._stream:
            self._stream = self._next_stream
            self._next_stream += 1
            self._next_sequence = 1
            self._heard_sequence = 0
            self._heard_ms = now_ms
        request = streams.encode_request(self._stream, self._next_sequence, units)
        self._send(self._node_id, notice_kinds.REQUEST, request)
        self._next_sequence += 1
        self._heartbeat_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Show that we are here, and see whether the host is."""
        if not self._stream:
            return
        if now_ms - self._heard_ms >= SILENCE_MS:
            logger.warning("node %d does not answer for its transient queues", self._node_id)
            self.lose()
        elif now_ms - self._heartbeat_ms >= HEARTBEAT_MS:
            self._request([], now_ms)

    def handle_events(self, data: bytes, now_ms: int) -> None:
        """An EVENTS notice came.  Raises MalformedNotice."""
        events = streams.Events(data)
        if events.stream != self._stream or not self._stream:
            return
        if events.sequence != self._heard_sequence + 1:
            self.lose()
            return
        self._heard_sequence = events.sequence
        self._heard_ms = now_ms
        self._payload, self._payload_index = data, events.sequence
        stream = self._stream
        try:
            for is_result, item in events.items():
                if self._stream != stream:
                    return
                if is_result:
                    if not self._waiting:
                        raise streams.MalformedNotice("an answer that nobody waits for")
                    self._waiting.popleft()(item)
                else:
                    listener = self._events()
                    if listener is not None:
                        listener.shard_effects(self.shard_id, [item])
        finally:
            self._payload, self._payload_index = b"", 0

    def handle_lost(self, stream: int) -> None:
        """A LOST notice came."""
        if stream == self._stream:
            self.lose()

    def lose(self) -> None:
        """The stream is over: nobody gets an answer, consumers there are cancelled."""
        had_stream = self._stream != 0
        if had_stream and self.reachable:
            self._send(self._node_id, notice_kinds.ENDED, streams.encode_lost(self._stream))
        self._stream = 0
        self._units = []
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(SESSION_LOST)
        listener = self._events()
        if had_stream and listener is not None:
            listener.session_lost(self.shard_id)


def _ignore(result: object) -> None:
    """The answer to a command that nobody asked about."""
