"""A shard that lives in this process alone: no log, no replicas, no disk.

It carries a node's exclusive, auto-delete and non-durable queues. Commands are gathered until `pump`, which applies
them as one entry: what many clients do in one turn of the loop is one step of the queue state machine. An entry's
payload is kept while a message in it lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mayfly.node.broker.cluster_facade import SESSION_LOST, OnDone
from mayfly.node.duties.large_bodies import LargeLetters
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.policy_duties import PolicyDuties
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.shard_duties import ShardDuties
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.numbers import is_transient
from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.shard import Shard

logger = logging.getLogger(__name__)

Session = tuple[int, int]

ENTRY_COMMANDS: Final = 5000

_VIEWED: Final = 4
"""A view of so small a part of an entry would keep too much in memory."""

_ROUNDS_PER_PUMP: Final = 50


class LocalShard:
    """One local shard and the duties for it."""

    def __init__(
        self,
        shard_id: int,
        node_id: int,
        source: int,
        port: DutyPort,
        deliver: Callable[[Sequence[object]], None],
        entry_commands: int = ENTRY_COMMANDS,
        transfers: LargeTransfers | None = None,
        large_body_bytes: int = LARGE_BODY_BYTES,
    ) -> None:
        """`source` names this shard's life in transfers (it must never come again).
        `deliver(effects)` is given the effects of each entry, of all sessions, after the entry's answers.
        `entry_commands`: how many commands one entry takes at most.  `transfers`: how dead letters with bodies larger
        than `large_body_bytes` go to replicated shards; without it they go as all others."""
        self.shard_id: int = shard_id
        self.shard: Shard = Shard(shard_id, node_id, returns_to_place=is_transient(shard_id))
        self.source: int = source
        large = None if transfers is None else LargeLetters(self.data, transfers, port.catalog, large_body_bytes)
        self._duties = ShardDuties(self.shard, source, port, self.internal, self.data, lambda now_ms: now_ms, large)
        self._policies = PolicyDuties(self.shard, port.catalog, self.internal)
        self._deliver = deliver
        self._entry_commands = entry_commands
        self._entries: dict[int, bytes] = {}
        self._fresh: list[int] = []
        self._index = 0
        self._time_ms = 0
        self._pending: list[tuple[Session | None, list[bytes], bool, OnDone | None]] = []
        self._closing: list[Session] = []
        self.guests: set[Session] = set()
        """Sessions whose commands came over the wire."""
        self.broken_sessions: list[Session] = []
        """Those that sent bytes that are not a command: whoever owns this ends them."""
        self.stored_bytes: int = 0
        """Bytes of the entries that are kept."""

    # -- the way in ---------------------------------------------------------------

    def submit(self, session: Session, parts: list[bytes], answers: bool, done: OnDone | None) -> None:
        """Gather commands of a session.  `answers`: they are one command, which has a result."""
        self._pending.append((session, parts, answers, done))

    def internal(self, command: bytes) -> None:
        """Gather a command of nobody's session, such as a TRANSFER."""
        self._pending.append((None, [command], False, None))

    def close_session(self, session: Session) -> None:
        """A session is over: what was gathered for it is dropped, what it holds goes back."""
        dropped = [item for item in self._pending if item[0] == session]
        self._pending = [item for item in self._pending if item[0] != session]
        self._closing.append(session)
        for _, _, _, done in dropped:
            if done is not None:
                done(SESSION_LOST)

    def data(self, index: int) -> bytes:
        """The payload of an entry in which a message lives.  Raises KeyError."""
        return self._entries[index]

    def views(self, index: int, start: int, length: int) -> list[memoryview]:
        """So many octets of it. A view keeps all of the entry in memory: of a much larger one it is a copy."""
        whole = self._entries[index]
        if len(whole) > _VIEWED * length:
            whole, start = whole[start : start + length], 0
        return [memoryview(whole)[start : start + length]]

    # -- time ---------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `pump` has something to do."""
        return bool(self._pending or self._closing)

    def tick(self, now_ms: int) -> None:
        """Time has passed: gather what expires.  Lease time is the same as message time here."""
        now_ms = max(now_ms, self._time_ms)
        if self.shard.due_messages(now_ms):
            self.internal(commands.encode_expire_due())
        for queue_id, epoch in self.shard.due_leases(now_ms):
            self.internal(commands.encode_expire_queue(queue_id, epoch))
        if not self._policies.begun:
            self._policies.compare_all()
        self._policies.perform(now_ms)

    def is_due_by(self, until_ms: int) -> bool:
        """Whether by then a message or a lease will be due."""
        until_ms = max(until_ms, self._time_ms)
        return self.shard.due_messages(until_ms) or 0 <= self.shard.next_lease_due_ms() <= until_ms

    def pump(self, now_ms: int) -> None:
        """Apply what was gathered, and what follows from it."""
        for _ in range(_ROUNDS_PER_PUMP):
            if not self.busy:
                break
            self._apply(max(now_ms, self._time_ms))
            self._lead(now_ms)

    # -- applying -----------------------------------------------------------------

    def _apply(self, now_ms: int) -> None:
        if len(self._pending) > self._entry_commands:
            pending = self._pending[: self._entry_commands]
            del self._pending[: self._entry_commands]
        else:
            pending, self._pending = self._pending, []
        closing, self._closing = self._closing, []
        self._index += 1
        self._time_ms = now_ms
        data = b"".join([part for _, parts, _, _ in pending for part in parts])
        self._entries[self._index] = data
        self.stored_bytes += len(data)
        self._fresh.append(self._index)
        shard = self.shard
        shard.begin(self._index, now_ms, now_ms, data)
        for session in closing:
            shard.session_closed(session)
        answers: list[tuple[OnDone, object]] = []
        position = 0
        first = 0
        while first < len(pending):
            session_of_run = pending[first][0]
            from_guest = session_of_run in self.guests
            end = first
            start = position
            while end < len(pending) and pending[end][0] == session_of_run:
                position += sum(map(len, pending[end][1]))
                end += 1
                if from_guest:
                    # What a guest sent is not trusted to be what it says: each alone.
                    break
            try:
                results: Iterator[object] | None = iter(shard.apply(session_of_run, start, position))
            except ShardError as error:
                logger.error("a command of session %s for shard %d: %s", session_of_run, self.shard_id, error)
                results = None
                if session_of_run is not None and session_of_run not in self.broken_sessions:
                    self.broken_sessions.append(session_of_run)
            for _, _, has_result, done in pending[first:end]:
                result: object = None
                if results is None:
                    # Nobody can say how far it went.
                    result = SESSION_LOST
                elif has_result:
                    result = next(results, SESSION_LOST)
                if done is not None:
                    answers.append((done, result))
            first = end
        for done, result in answers:
            done(result)
        shard.finish()
        effects = shard.take_effects()
        if effects:
            self._deliver(effects)
        self._release()

    def _release(self) -> None:
        """Drop the payloads that hold nothing alive any more."""
        live = self.shard.live_entries()
        for index in self._fresh:
            if index not in live:
                self._drop_entry(index)
        self._fresh.clear()
        for index in self.shard.take_released():
            self._drop_entry(index)

    def _drop_entry(self, index: int) -> None:
        data = self._entries.pop(index, None)
        if data is not None:
            self.stored_bytes -= len(data)

    # -- duties ---------------------------------------------------------------------

    def _lead(self, now_ms: int) -> None:
        if self.shard.due_messages(self._time_ms):
            # The bound of an entry was reached (RULES C4): go on at once.
            self.internal(commands.encode_expire_due())
        self._duties.perform(now_ms)

    def attend(self, now_ms: int) -> None:
        """Time has passed: what did not arrive elsewhere is sent again, parked ones may have a route."""
        if self._duties.has_waiting:
            self._duties.perform(now_ms)

    def drop_queues(self, ids: Sequence[int]) -> None:
        """The catalog has no such queues any more."""
        for queue_id in ids:
            self.internal(commands.encode_drop_queue(queue_id))


class LocalHandle:
    """The `ShardHandle` of a local shard for the clients of one session."""

    __slots__ = ("_local", "_session", "_wake", "shard_id")

    def __init__(self, local: LocalShard, session: Session, wake: Callable[[], None]) -> None:
        """`wake()` is called when there is something to pump."""
        self.shard_id: int = local.shard_id
        self._local = local
        self._session = session
        self._wake = wake

    def submit(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit`."""
        self._local.submit(self._session, [command], command[0] in commands.ANSWERING, done)
        self._wake()

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        """See `ShardHandle.acknowledge`."""
        self.submit(command, None)

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish`."""
        self._local.submit(self._session, parts, parts[0][0] == commands.PUBLISH_GUARDED, done)
        self._wake()

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish_in_pieces`: it has no log, and takes it whole."""
        self.publish(parts, size_bytes, done)

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit_in_pieces`: it has no log, and takes it whole."""
        self.submit(command, done)

    def content(self, message: Message) -> tuple[bytes, int]:
        """See `ShardHandle.content`."""
        return self._local.data(message.index), message.offset

    def views(self, message: Message) -> list[memoryview]:
        """See `ShardHandle.views`."""
        return self._local.views(message.index, message.offset, message.content_length)
