"""Sessions: how commands reach a group exactly once and in order, whatever leaders do.

Every node has one session with every group, named by its node id and an *incarnation*. It numbers its batches of
commands 1, 2, 3, ... and sends them to whatever node leads the group. Each replica keeps, as part of the replicated
state, the number of the last batch it applied for each node. A batch is applied if it is the next one; a repeat or a
batch after a gap is skipped. So a node that does not see its batch applied by its own replica may send it again as
often as it likes (Raft thesis, section 6.3, with the window of one that ordered delivery allows).

A session ends when the group's leader has not heard of the node for the session timeout, or when the node starts again
(a higher incarnation). The state machine is told, and returns what consumers of that node held. When a snapshot takes
the place of the node's replica the session goes on, if it is open still: what was missed is read out of the state
(`StateMachine.missed`). A node without a replica of its own is told what its session was answered by another node's
(`cluster.group.feeds`).

This module has the three pure parts: the layout of an entry's payload, the replicated table, and the sender's side.

    payload  = version u8, time_ms u64, led_ms u64, batch*
    batch    = kind u8, node u32, incarnation u64, sequence u64, length u32, commands[length]

The kind of a batch also says if it has a piece of a large command, or has the rest of one (`cluster.group.pieces`).
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from mayfly.cluster.group.pieces import PIECE, PIECE_BYTES, PIECES_UNDER_WAY, WHOLE, LargeCommand
from mayfly.cluster.limits import SLOW_BYTES_PER_MS

ENTRY_HEADER: Final = struct.Struct("<BQQ")
BATCH_HEADER: Final = struct.Struct("<BIQQI")
ENTRY_VERSION: Final = 1

KIND_SESSION: Final = 1
"""Commands of a node's session."""
KIND_INTERNAL: Final = 2
"""Commands of a leader (expiry, dead-letter transfers): unnumbered, so each of them must be idempotent."""
KIND_CLOSE: Final = 3
"""The session (node, incarnation) is over; no commands."""
KIND_FED: Final = 4
"""Commands of a session whose node has no replica to be answered by: from here on every replica keeps its answers and
effects (`cluster.group.feeds`), until a batch of KIND_SESSION. Only from `LEVEL_FEEDS` on."""
_KINDS_IN_PIECES: Final = (KIND_SESSION | PIECE, KIND_SESSION | WHOLE, KIND_FED | PIECE, KIND_FED | WHOLE)
BATCH_KINDS: Final = frozenset((KIND_SESSION, KIND_INTERNAL, KIND_CLOSE, KIND_FED, *_KINDS_IN_PIECES))

SessionKey = tuple[int, int]

SessionRow = tuple[int, int, int, int]
"""(node, incarnation, sequence of its last applied batch, what the session is)."""

ENDED: Final = 0
OPEN: Final = 1
CUT: Final = 2
FED: Final = 3
"""What a session is. CUT: it ended with its last batch, which was no more than begun (see `SessionTable.cut`).
FED: it is open, and its last batch was of KIND_FED."""
SESSION_STATES: Final = frozenset((ENDED, OPEN, CUT, FED))


def is_open(state: int) -> bool:
    """Whether a session in this state takes more batches."""
    return state in (OPEN, FED)


class EnvelopeError(Exception):
    """A payload that does not have the layout above: a damaged or foreign entry, or a peer that speaks otherwise."""


def encode_batch(kind: int, node: int, incarnation: int, sequence: int, commands: bytes) -> bytes:
    """One batch with its header."""
    return BATCH_HEADER.pack(kind, node, incarnation, sequence, len(commands)) + commands


def check_batches(data: bytes) -> None:
    """Raise EnvelopeError unless `data` is a whole number of well-formed batches (for data from a peer)."""
    position, end = 0, len(data)
    while position < end:
        if end - position < BATCH_HEADER.size:
            raise EnvelopeError(f"batch header cut off after {end - position} bytes, {BATCH_HEADER.size} expected")
        kind, node, _, _, length = BATCH_HEADER.unpack_from(data, position)
        if kind not in BATCH_KINDS:
            raise EnvelopeError(f"batch kind {kind} is unknown, one of {sorted(BATCH_KINDS)} expected")
        if node > 0xFFFF:
            raise EnvelopeError(f"batch of node {node}, at most 65535 expected")
        position += BATCH_HEADER.size + length
    if position != end:
        raise EnvelopeError(f"batch ends {position - end} bytes after the data")


class SessionTable:
    """The replicated side: which batch of which node was applied last."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int, int]] = {}
        self.ended: int = 0
        """How many sessions this replica has seen end: what their nodes had begun may need finishing."""

    def admit(self, node: int, incarnation: int, sequence: int, fed: bool = False) -> tuple[bool, SessionKey | None]:
        """Whether this batch is to be applied, and the session that ends by it (an older incarnation), if any.
        `fed`: it is of KIND_FED."""
        known = self._last.get(node)
        state = FED if fed else OPEN
        if known is None:
            if sequence != 1:
                return False, None
            self._last[node] = (incarnation, 1, state)
            return True, None
        last_incarnation, last_sequence, last_state = known
        if incarnation == last_incarnation:
            if not is_open(last_state) or sequence != last_sequence + 1:
                return False, None
            self._last[node] = (incarnation, sequence, state)
            return True, None
        if incarnation < last_incarnation or sequence != 1:
            return False, None
        self._last[node] = (incarnation, 1, state)
        ended = is_open(last_state)
        self.ended += ended
        return True, (node, last_incarnation) if ended else None

    def close(self, node: int, incarnation: int) -> bool:
        """End a session; False if it was not open."""
        return self._end(node, incarnation, ENDED)

    def cut(self, node: int, incarnation: int) -> None:
        """End an open session whose last batch was cut short by bytes that are not a command: nobody can say how far it
        went, and whoever learns of it from a snapshot must know that."""
        self._end(node, incarnation, CUT)

    def _end(self, node: int, incarnation: int, state: int) -> bool:
        known = self._last.get(node)
        if known is None or known[0] != incarnation or not is_open(known[2]):
            return False
        self._last[node] = (incarnation, known[1], state)
        self.ended += 1
        return True

    def open_sessions(self) -> list[SessionKey]:
        """The sessions that are open, by node id."""
        return [(node, known[0]) for node, known in sorted(self._last.items()) if is_open(known[2])]

    def last(self, node: int) -> tuple[int, int, int] | None:
        """(incarnation, sequence, what the session is) of the node's last applied batch."""
        return self._last.get(node)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """The whole table, for snapshots."""
        return [(node, *self._last[node]) for node in sorted(self._last)]

    def restore(self, rows: list[tuple[int, int, int, int]]) -> None:
        """Replace the table by `rows()` of another one."""
        self._last = {node: (incarnation, sequence, state) for node, incarnation, sequence, state in rows}


Waiter = Callable[[object], None]


class _Batch:
    """A closed batch on its way: its bytes, and who waits for which of its answers."""

    __slots__ = ("commands", "form", "kind", "large", "sent_ms", "sequence", "size_bytes", "start", "waiters")

    def __init__(
        self,
        kind: int,
        sequence: int,
        commands: list[bytes],
        size_bytes: int,
        waiters: "list[tuple[bool, Waiter | None]]",
        form: int = 0,
        large: LargeCommand | None = None,
        start: int = 0,
    ) -> None:
        self.kind = kind
        """Closed with it: a batch that is repeated says what it said at first."""
        self.sequence = sequence
        self.commands = commands
        self.size_bytes = size_bytes
        self.waiters = waiters
        self.form = form
        """PIECE, WHOLE, or 0."""
        self.large = large
        """The command that it has a part of: of a PIECE the octets from `start` on, which are not there twice."""
        self.start = start
        self.sent_ms = -1


NOT_HELD: Final = -1


def _all_of(batch: _Batch) -> bytes:
    """The commands of a batch; of one that is in pieces altogether what is in them."""
    if batch.form == WHOLE and batch.large is not None and not batch.size_bytes:
        return batch.large.body
    return b"".join(batch.commands)


class SessionSender:
    """This node's end of its session with one group: gathers commands, numbers batches, repeats what is not applied."""

    def __init__(
        self, node: int, incarnation: int, window: int, max_batch_bytes: int, unhurried_ms: int = 0,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """`unhurried_ms`: how long commands that nobody waits for may wait for others to go with."""
        self.node: int = node
        self.incarnation: int = incarnation
        self._window = window
        self._max_batch_bytes = max_batch_bytes
        self._unhurried_ms = unhurried_ms
        self._hurried = False
        self.held_until_ms: int = NOT_HELD
        """When what is gathered has to go, if nothing else does before; NOT_HELD unless it waits for company."""
        self.kind: int = KIND_SESSION
        """Of the batches that are closed from now on: KIND_SESSION or KIND_FED."""
        self._next_sequence = 1
        self._gathered: deque[tuple[list[bytes], int, list[tuple[bool, Waiter | None]]]] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._waiters: list[tuple[bool, Waiter | None]] = []
        self._unapplied: deque[_Batch] = deque()
        self._piece_bytes = piece_bytes
        self._large: deque[LargeCommand] = deque()
        """Commands whose WHOLE is not sent yet; of the first there may be pieces under way."""
        self._large_under_way = 0
        self._large_bytes_under_way = 0
        """Of `_unapplied`."""
        self._piece_is_next = False
        """They take turns with all others."""
        self._closed_batches = 0
        """How many of the others were made."""
        self.pending_bytes: int = 0
        """Bytes of commands given and not yet applied here: the measure for back-pressure."""
        self.applied_batches: int = 0
        """How many batches were applied, over all incarnations, those of large commands not counted."""

    def add(
        self, parts: list[bytes], size_bytes: int, answers: bool, waiter: Waiter | None, hurried: bool = True
    ) -> None:
        """Gather commands. `answers` says whether the state machine returns a result for them (exactly one);
        `waiter` is called with it, or with None, when the local replica has applied the batch. What is not `hurried`
        may wait a little for commands that are."""
        if self._size and self._size + size_bytes > self._max_batch_bytes:
            self._gathered.append((self._parts, self._size, self._waiters))
            self._parts, self._size, self._waiters = [], 0, []
        self._parts += parts
        self._hurried = self._hurried or hurried
        self._size += size_bytes
        self.pending_bytes += size_bytes
        if answers or waiter is not None:
            self._waiters.append((answers, waiter))

    def add_large(
        self, parts: list[bytes], size_bytes: int, answers: bool, waiter: Waiter | None, counts: bool = True
    ) -> None:
        """One command, whose body is the last of these parts: it goes in pieces. What was given before goes before it,
        what is given later may overtake it. `counts`: whether it is part of `pending_bytes`; who has bounds of his own
        needs no other."""
        if self._parts:
            self._gathered.append((self._parts, self._size, self._waiters))
            self._parts, self._size, self._waiters = [], 0, []
            self._hurried, self.held_until_ms = False, NOT_HELD
        behind = self._closed_batches + len(self._gathered)
        self._large.append(LargeCommand(parts[:-1], parts[-1], answers, waiter, behind, counts))
        if counts:
            self.pending_bytes += size_bytes

    def _may_cut(self) -> bool:
        """Whether a batch of a large command may go."""
        if not self._large or len(self._unapplied) >= self._window:
            return False
        large = self._large[0]
        left = len(large.body) - large.cut_bytes
        if not left and self._closed_batches < large.behind:
            return False
        if self._large_under_way >= max(self._window - 1, 1):
            return False  # What is not large finds room at any time.
        size_bytes = min(left, self._piece_bytes) or large.head_bytes
        under_way = self._large_bytes_under_way
        return not under_way or under_way + size_bytes <= PIECES_UNDER_WAY * self._piece_bytes

    def _cut(self) -> _Batch:
        """The next piece of a large command, or its WHOLE."""
        large = self._large[0]
        start = large.cut_bytes
        self._piece_is_next = False
        self._large_under_way += 1
        if start < len(large.body):
            size_bytes = min(self._piece_bytes, len(large.body) - start)
            self._large_bytes_under_way += size_bytes
            large.cut_bytes += size_bytes
            return _Batch(self.kind, self._next_sequence, [], size_bytes, [], PIECE, large, start)
        self._large.popleft()
        self._large_bytes_under_way += large.head_bytes
        waiters = [(large.answers, large.waiter)] if large.answers or large.waiter is not None else []
        return _Batch(self.kind, self._next_sequence, large.head, large.head_bytes, waiters, WHOLE, large)

    def unsent(self, now_ms: int, repeat_after_ms: int) -> list[bytes]:
        """Batches to send now, oldest first: new ones within the window, and everything again from the first that was
        sent more than `repeat_after_ms` ago, a large one not before it can have come through the log."""
        while self.can_send:
            if self._may_cut() and (self._piece_is_next or not (self._hurried or self._gathered)):
                self._unapplied.append(self._cut())
                self._next_sequence += 1
                continue
            if self._gathered:
                parts, size, waiters = self._gathered.popleft()
            else:
                parts, size, waiters = self._parts, self._size, self._waiters
                self._parts, self._size, self._waiters = [], 0, []
                self._hurried, self.held_until_ms = False, NOT_HELD
            # What is large stays as it is: a message may go to many groups, and is there once.
            if len(parts) > 1 and size <= self._max_batch_bytes:
                parts = [b"".join(parts)]
            self._unapplied.append(_Batch(self.kind, self._next_sequence, parts, size, waiters))
            self._next_sequence += 1
            self._closed_batches += 1
            self._piece_is_next = True
        ready: list[bytes] = []
        repeating = False
        for batch in self._unapplied:
            due_ms = repeat_after_ms + batch.size_bytes // SLOW_BYTES_PER_MS
            if repeating or batch.sent_ms < 0 or now_ms - batch.sent_ms >= due_ms:
                repeating = repeating or batch.sent_ms >= 0
                batch.sent_ms = now_ms
                header = BATCH_HEADER.pack(
                    batch.kind | batch.form, self.node, self.incarnation, batch.sequence, batch.size_bytes
                )
                if batch.large is not None and batch.form == PIECE:
                    ready.append(header + batch.large.body[batch.start : batch.start + batch.size_bytes])
                else:
                    ready.append(b"".join([header, *batch.commands]))
        return ready

    def hold(self, now_ms: int) -> None:
        """Let what nobody waits for wait for company, but not too long. Call it before `unsent`."""
        if not self.is_holding:
            self.held_until_ms = NOT_HELD
            return
        if self.held_until_ms == NOT_HELD:
            self.held_until_ms = now_ms + self._unhurried_ms
        if now_ms >= self.held_until_ms:
            self.hurry()

    @property
    def is_holding(self) -> bool:
        """Whether all that is gathered may wait for company."""
        return bool(self._parts) and not self._hurried

    def hurry(self) -> None:
        """What is gathered is to go now."""
        self._hurried = bool(self._parts)
        self.held_until_ms = NOT_HELD

    @property
    def idle(self) -> bool:
        """Whether nothing is gathered or on its way."""
        return not (self._unapplied or self._parts or self._gathered or self._large)

    @property
    def oldest_sequence(self) -> int:
        """The number of the oldest batch that is not applied."""
        return self._unapplied[0].sequence

    @property
    def given_batches(self) -> int:
        """What `applied_batches` will be when everything given up to now is applied, large commands left out."""
        unapplied = len(self._unapplied) - self._large_under_way
        return self.applied_batches + unapplied + len(self._gathered) + bool(self._parts)

    @property
    def has_given(self) -> bool:
        """Whether anything was ever given."""
        return self._next_sequence > 1 or self.applied_batches > 0 or not self.idle

    @property
    def can_send(self) -> bool:
        """Whether `unsent` may have something new to give."""
        if self._hurried or self._gathered:
            return len(self._unapplied) < self._window
        return bool(self._large) and self._may_cut()

    def forget_sent(self) -> None:
        """The leader or the way to it changed: all that is unapplied is to be sent again."""
        for batch in self._unapplied:
            batch.sent_ms = -1

    def applied(self, sequence: int) -> list[tuple[bool, Waiter | None]]:
        """This batch was applied, and is answered: its waiters, in order of their commands."""
        batch = self._unapplied.popleft()
        assert batch.sequence == sequence, f"batch {sequence} applied, {batch.sequence} expected"
        if batch.large is None or batch.large.counts:
            self.pending_bytes -= batch.size_bytes
        if batch.large is None:
            self.applied_batches += 1
        else:
            self._large_under_way -= 1
            self._large_bytes_under_way -= batch.size_bytes
            if batch.form == PIECE:
                batch.large.applied_bytes += batch.size_bytes
        return batch.waiters

    def say_fed(self) -> None:
        """What is on its way was sent to nobody who took it: that and all the rest is of KIND_FED."""
        self.kind = KIND_FED
        for batch in self._unapplied:
            batch.kind = KIND_FED
            batch.sent_ms = -1

    def unseen(self, applied_sequence: int) -> list[bytes]:
        """The commands of the batches up to `applied_sequence`, which were applied where this node could not see it; of
        those without an answer nothing."""
        return [
            _all_of(batch) if any(answers for answers, _ in batch.waiters) else b""
            for batch in self._unapplied
            if batch.sequence <= applied_sequence
        ]

    def skip(self, applied_sequence: int) -> list[tuple[bool, Waiter | None]]:
        """Batches up to `applied_sequence` were applied where this node could not see it: their waiters."""
        unseen: list[tuple[bool, Waiter | None]] = []
        while self._unapplied and self._unapplied[0].sequence <= applied_sequence:
            unseen += self.applied(self._unapplied[0].sequence)
        return unseen

    def restart(self, incarnation: int) -> None:
        """Begin a new session: what is unapplied goes again under the new name."""
        self.incarnation = incarnation
        self._next_sequence = 1
        if self._large or self._large_under_way:
            self._cut_again()
        for batch in self._unapplied:
            batch.kind = self.kind
            batch.sequence = self._next_sequence
            batch.sent_ms = -1
            self._next_sequence += 1

    def _cut_again(self) -> None:
        """The pieces that were applied went with their session: commands whose WHOLE was not begin anew."""
        begun: list[LargeCommand] = []
        unapplied: deque[_Batch] = deque()
        for batch in self._unapplied:
            large = batch.large
            if large is None:
                unapplied.append(batch)
            elif large not in begun:
                begun.append(large)
        self._large = deque(begun + [large for large in self._large if large not in begun])
        for large in self._large:
            if large.counts:
                self.pending_bytes += large.applied_bytes
            large.cut_bytes = large.applied_bytes = 0
        self._unapplied = unapplied
        self._large_under_way = self._large_bytes_under_way = 0
