"""The transient shards of the cluster as one node sees them: its own, which it hosts for
everybody, and those of the other nodes, which it reaches by notices.  Pure.

See `node.transient.streams` for what travels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mayfly.node import notice_kinds
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterEvents, ShardHandle
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.port import DutyPort
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.numbers import node_of, transient_shard
from mayfly.node.shard.commands import ANSWERING, EXPIRE_DUE, TRANSFER, TRANSFER_HEAD, TRANSFER_MARKED, TRANSFER_MOVED
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.transient import streams
from mayfly.node.transient.local_shard import LocalHandle, LocalShard
from mayfly.node.transient.remote_shard import HEARTBEAT_MS, SILENCE_MS, RemoteShard, Send

logger = logging.getLogger(__name__)

_REMEMBERED_LANES: Final = 10_000


class Guest:
    """The host's end of a stream."""

    def __init__(
        self, node_id: int, stream: int, session: tuple[int, int], writer: streams.EventsWriter
    ) -> None:
        self.node_id: int = node_id
        self.stream: int = stream
        self.session: tuple[int, int] = session
        self.writer: streams.EventsWriter = writer
        self.next_request: int = 1
        self.next_event: int = 1
        self.owes_beat: bool = False
        self.heard_ms: int = 0
        self.over: bool = False


class TransientShards:
    """All transient shards, from one node's point of view."""

    def __init__(
        self,
        node_id: int,
        incarnation: int,
        port: DutyPort,
        send: Send,
        events: Callable[[], ClusterEvents | None],
        wake: Callable[[], None],
        transfers: LargeTransfers | None = None,
        large_body_bytes: int = LARGE_BODY_BYTES,
    ) -> None:
        """`incarnation` is the one with which this node started.  `events()` is this node's broker, once there is one.
        `wake()`: there is something to pump.  `transfers` and `large_body_bytes` as of `LocalShard`."""
        self.node_id: int = node_id
        self._catalog = port.catalog
        self._send = send
        self._events = events
        self._incarnation = incarnation
        self.shard_id: int = transient_shard(node_id)
        # The lower 20 bits of an incarnation are free: enough for the number of the shard.
        source = incarnation + self.shard_id
        self.local: LocalShard = LocalShard(
            self.shard_id, node_id, source, port, self._deliver, transfers=transfers, large_body_bytes=large_body_bytes
        )
        self._own_session = (node_id, 0)
        self._own_handle = LocalHandle(self.local, self._own_session, wake)
        self._remote: dict[int, RemoteShard] = {}
        self._guests: dict[int, Guest] = {}
        self._guest_of: dict[tuple[int, int], Guest] = {}
        self._next_guest = 1
        self._transfers: dict[tuple[int, int, int], None] = {}
        """(sender, queue, source) of transfers that came since the last pump."""
        self._received: dict[tuple[int, int, int], int] = {}
        """(shard, queue, source) -> how far our transfers to other nodes' queues have arrived."""
        self._now_ms = 0
        self._checked_version = -1
        self._check_ms = 0

    # -- for the node ---------------------------------------------------------------

    def handle(self, node_id: int) -> ShardHandle:
        """The transient shard of a node, this one's or another's."""
        if node_id == self.node_id:
            return self._own_handle
        return self._remote_shard(node_id)

    @property
    def stored_bytes(self) -> int:
        """Memory that messages of this node's transient queues take."""
        return self.local.stored_bytes

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = now_ms
        self.local.tick(now_ms)
        for remote in self._remote.values():
            remote.tick(now_ms)
        for guest in list(self._guests.values()):
            if now_ms - guest.heard_ms >= SILENCE_MS:
                self._end(guest)
        if now_ms - self._check_ms >= HEARTBEAT_MS:
            self._check_ms = now_ms
            self.local.attend(now_ms)
            self._drop_removed()

    def pump(self, now_ms: int) -> None:
        """Apply what was gathered for this node's shard; send what is for others."""
        self._now_ms = now_ms
        self.local.pump(now_ms)
        self._end_broken(now_ms)
        for guest in self._guests.values():
            if guest.writer or guest.owes_beat:
                guest.owes_beat = False
                for data in guest.writer.take(guest.stream, guest.next_event):
                    guest.next_event += 1
                    self._send(guest.node_id, notice_kinds.EVENTS, data)
        if self._transfers:
            transfers, self._transfers = self._transfers, {}
            for sender, queue_id, source in transfers:
                up_to = self.local.shard.received_up_to(queue_id, source)
                if up_to >= 0:
                    self._send(sender, notice_kinds.RECEIVED, streams.encode_received(queue_id, source, up_to))
        for remote in self._remote.values():
            remote.pump(now_ms)

    def _end_broken(self, now_ms: int) -> None:
        broken_sessions, self.local.broken_sessions = self.local.broken_sessions, []
        for session in broken_sessions:
            broken = self._guest_of.get(session)
            if broken is not None:
                self._end(broken)
                self._send(broken.node_id, notice_kinds.LOST, streams.encode_lost(broken.stream))
            elif session == self._own_session:
                self.local.close_session(session)
                self.local.pump(now_ms)
                listener = self._events()
                if listener is not None:
                    listener.session_lost(self.shard_id)

    @property
    def busy(self) -> bool:
        """Whether `pump` has something to do for this node's own shard."""
        return self.local.busy

    def peer_up(self, node_id: int) -> None:
        """The stream to a node opened."""
        self._remote_shard(node_id).reachable = True

    def peer_down(self, node_id: int) -> None:
        """The stream to a node broke: sessions both ways are over."""
        remote = self._remote_shard(node_id)
        remote.reachable = False
        remote.lose()
        guest = self._guests.get(node_id)
        if guest is not None:
            self._end(guest)

    def notice(self, node_id: int, kind: int, data: bytes) -> None:
        """A notice of another node.  What cannot be read ends the stream it belongs to, no more."""
        try:
            if kind == notice_kinds.REQUEST:
                self._request(node_id, data)
            elif kind == notice_kinds.EVENTS:
                self._remote_shard(node_id).handle_events(data, self._now_ms)
            elif kind == notice_kinds.LOST:
                self._remote_shard(node_id).handle_lost(streams.decode_lost(data))
            elif kind == notice_kinds.ENDED:
                guest = self._guests.get(node_id)
                if guest is not None and guest.stream == streams.decode_lost(data):
                    self._end(guest)
            elif kind == notice_kinds.TRANSFER:
                self._transfer_came(node_id, data)
            elif kind == notice_kinds.RECEIVED:
                queue_id, source, up_to = streams.decode_received(data)
                self._note_received(transient_shard(node_id), queue_id, source, up_to)
        except streams.MalformedNotice as error:
            logger.warning("a notice of kind %d from node %d cannot be read: %s", kind, node_id, error)
            if kind == notice_kinds.REQUEST:
                guest = self._guests.get(node_id)
                if guest is not None:
                    self._end(guest)
                    self._send(node_id, notice_kinds.LOST, streams.encode_lost(guest.stream))
            elif kind in (notice_kinds.EVENTS, notice_kinds.LOST):
                self._remote_shard(node_id).lose()

    # -- dead letters from and to other shards ----------------------------------------

    def transfer(self, target_shard: int, command: bytes) -> None:
        """See `DutyPort.transfer`; for transient shards, of whatever node."""
        if target_shard == self.shard_id:
            self.local.internal(command)
        else:
            self._send(node_of(target_shard), notice_kinds.TRANSFER, command)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        """See `DutyPort.received_up_to`; for transient shards, as far as is known here."""
        if target_shard == self.shard_id:
            return self.local.shard.received_up_to(queue, source)
        if self._catalog.queue_by_id(queue) is None:
            return -1
        return self._received.get((target_shard, queue, source), 0)

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        """See `DutyPort.room`; for transient shards: nobody knows of another node's."""
        if target_shard == self.shard_id:
            return self.local.shard.room(queue, source, next_bytes)
        return ANY_ROOM

    def _transfer_came(self, node_id: int, data: bytes) -> None:
        if len(data) < TRANSFER_HEAD.size or data[0] not in (TRANSFER, TRANSFER_MARKED, TRANSFER_MOVED):
            raise streams.MalformedNotice("no transfer")
        _, _, source, queue_id, _ = TRANSFER_HEAD.unpack_from(data)
        self._transfers[(node_id, queue_id, source)] = None
        self.local.internal(data)

    def _note_received(self, shard_id: int, queue_id: int, source: int, up_to: int) -> None:
        key = (shard_id, queue_id, source)
        if len(self._received) >= _REMEMBERED_LANES and key not in self._received:
            del self._received[next(iter(self._received))]
        self._received[key] = max(up_to, self._received.get(key, 0))

    # -- guests -----------------------------------------------------------------------

    def _request(self, node_id: int, data: bytes) -> None:
        stream, sequence, units = streams.decode_request(data)
        guest = self._guests.get(node_id)
        if guest is None or guest.stream != stream:
            if sequence != 1:
                self._send(node_id, notice_kinds.LOST, streams.encode_lost(stream))
                return
            if guest is not None:
                self._end(guest)
            # All sessions of this shard are this node's, so that it sees the effects of all.
            session = (self.node_id, self._next_guest)
            self._next_guest += 1
            guest = Guest(node_id, stream, session, streams.EventsWriter(self.local))
            self._guests[node_id] = guest
            self._guest_of[session] = guest
            self.local.guests.add(session)
        if sequence != guest.next_request:
            self._end(guest)
            self._send(node_id, notice_kinds.LOST, streams.encode_lost(stream))
            return
        guest.next_request += 1
        guest.heard_ms = self._now_ms
        guest.owes_beat = True
        for flags, command in units:
            if not command or command[0] >= EXPIRE_DUE:
                raise streams.MalformedNotice("a command that is not a client's")
            answers = command[0] in ANSWERING
            done = partial(_answer, guest) if answers or flags & streams.WANTED else None
            self.local.submit(guest.session, [command], answers, done)

    def _end(self, guest: Guest) -> None:
        guest.over = True
        self._guests.pop(guest.node_id, None)
        self._guest_of.pop(guest.session, None)
        self.local.guests.discard(guest.session)
        self.local.close_session(guest.session)

    def _deliver(self, effects: Sequence[object]) -> None:
        """Effects of one entry of the local shard: to our own broker, and to the guests."""
        if not self._guest_of:
            own = effects
        else:
            own = []
            for effect in effects:
                if not isinstance(effect, (Deliver, ConsumerCancelled)):
                    continue
                guest = self._guest_of.get(effect.session)
                if guest is not None:
                    guest.writer.effect(effect)
                elif effect.session == self._own_session:
                    own.append(effect)
        listener = self._events()
        if own and listener is not None:
            listener.shard_effects(self.shard_id, own)

    # -- inside -----------------------------------------------------------------------

    def _remote_shard(self, node_id: int) -> RemoteShard:
        remote = self._remote.get(node_id)
        if remote is None:
            remote = self._remote[node_id] = RemoteShard(
                node_id, self._incarnation | 1, self._send, self._events
            )
        return remote

    def _drop_removed(self) -> None:
        """Queues that the catalog has taken out, because it held this node for lost or by an operator."""
        catalog = self._catalog
        if catalog.routing_version == self._checked_version:
            return
        self._checked_version = catalog.routing_version
        shard = self.local.shard
        gone = [id for id in shard.queue_ids() if id not in shard.deleted and catalog.queue_by_id(id) is None]
        self.local.drop_queues(gone)


def _answer(guest: Guest, result: object) -> None:
    if not guest.over and result is not SESSION_LOST:
        guest.writer.result(result)
