"""What a committed entry does on this node: sessions, state machine, answers and effects.

    entry -> clocks, then batch by batch: session table -> state machine -> this node's own session, and the feeds

Everything here but those two is the same on all replicas, and is what a snapshot holds.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.compaction import Copying, StateSteps
from mayfly.cluster.group.feeds import Feeds, can_resume
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.pieces import BORROWS, KIND_MASK, LENT, PIECE, WHOLE, PieceRow, Pieces
from mayfly.cluster.group.sessions import (
    BATCH_HEADER,
    ENTRY_HEADER,
    ENTRY_VERSION,
    FED,
    KIND_FED,
    KIND_INTERNAL,
    KIND_SESSION,
    EnvelopeError,
    SessionKey,
    SessionRow,
    SessionTable,
    is_open,
)
from mayfly.cluster.group.state_layout import GroupStateError, decode_group_head, encode_group_head
from mayfly.cluster.group.state_machine import BadCommand, BadSnapshot, RestoreSteps, StateMachine


class StateReading:
    """A group's state (see `cluster.group.state_layout`) that is read in steps: it is not in place before
    `Applying.restore`.
    """

    def __init__(
        self, time_ms: int, led_ms: int, rows: list[SessionRow], pieces: list[PieceRow], cutting: Copying,
        machine: StateMachine,
    ) -> None:
        """`cutting` gives the machine's part of it."""
        self.time_ms: int = time_ms
        self.led_ms: int = led_ms
        self.rows: list[SessionRow] = rows
        self.pieces: list[PieceRow] = pieces
        self._cutting: Copying | None = cutting
        self._machine: StateMachine = machine
        self._steps: RestoreSteps | None = None

    def step(self) -> bool:
        """Read a bounded part of it; whether that was the last. Raises BadSnapshot."""
        cutting = self._cutting
        if cutting is not None:
            cut = cutting.step()
            if cut is None:
                return False
            self._cutting = None
            self._steps = self._machine.restore_steps(cut)
        steps = self._steps
        return steps is None or steps.step()

    def finish(self) -> None:
        """See `RestoreSteps`."""
        steps = self._steps
        if steps is not None:
            steps.finish()


class Applying:
    """The replicated state of one group, what it tells this node's session, and what it keeps for others."""

    def __init__(
        self,
        session: OwnSession,
        machine: StateMachine,
        trace: Callable[[str], None] | None,
    ) -> None:
        """If the session has not begun, or is told by nobody else, this replica tells it (`OwnSession.is_fed`)."""
        self.machine: StateMachine = machine
        self.clock: GroupClock = GroupClock()
        self.sessions: SessionTable = SessionTable()
        self.pieces: Pieces = Pieces()
        self.session: OwnSession = session
        self.feeds: Feeds = Feeds(machine.listen, machine.needs)
        if not session.is_fed:
            self.feeds.tells(session.node)
        self.payload: Callable[[int], bytes] = _no_payload
        """All of the payload of an entry that is being applied."""
        self._group = session.group
        self._node = session.node
        self._trace = trace

    def apply(self, index: int, data: bytes) -> None:
        """Apply an entry's payload. Raises EnvelopeError when it is of another version."""
        version, time_ms, led_ms = ENTRY_HEADER.unpack_from(data)
        if version != ENTRY_VERSION:
            raise EnvelopeError(f"entry {index} of group {self._group} has version {version}, {ENTRY_VERSION} expected")
        machine = self.machine
        self.clock.applied(time_ms, led_ms)
        if not machine.goes_by_stamps():
            time_ms, led_ms = self.clock.time_ms, self.clock.applied_led_ms
        machine.begin(index, time_ms, led_ms, data)
        position, end = ENTRY_HEADER.size, len(data)
        lost = is_fed = False
        while position < end:
            kind, node, incarnation, sequence, length = BATCH_HEADER.unpack_from(data, position)
            position += BATCH_HEADER.size
            if kind == KIND_INTERNAL | BORROWS:
                self._run_borrowing(index, data, position, position + length)
            elif kind in (KIND_SESSION, KIND_FED) or kind > KIND_MASK:
                fed = kind & KIND_MASK == KIND_FED
                row = (node, incarnation, sequence)
                form = kind & ~KIND_MASK
                if form == WHOLE and position + length < end:
                    form |= PIECE  # What follows stands where its rest would be: neither of both.
                lost = self._apply_session_batch(row, fed, form, index, position, position + length) or lost
                is_fed = is_fed or (fed and node == self._node)
            elif kind == KIND_INTERNAL:
                self._run(None, position, position + length)
            elif self.sessions.close(node, incarnation):
                self.pieces.forget(node)
                machine.session_closed((node, incarnation))
                lost = self._has_ended(node, incarnation) or lost
            position += length
        machine.finish()
        effects = machine.take_effects()
        if self.feeds:
            effects = self.feeds.effects(effects)
            self.feeds.finish(index)
        if effects:
            self.session.has_effects(effects)
        if lost:
            self.session.ended(self.row(self._node))
        elif is_fed and self.feeds.told_here and self.session.wants_feeds:
            self.feeds.begin(self.session.key, index)
            self.session.is_told_by_feeds(index)

    def _apply_session_batch(
        self, name: tuple[int, int, int], fed: bool, form: int, index: int, start: int, end: int
    ) -> bool:
        """Whether it has ended the session of this node, now. `name`: node, incarnation, sequence; `form`:
        PIECE, WHOLE, 0, or the form of a command that is not a batch."""
        node, incarnation, sequence = name
        admitted, ended = self.sessions.admit(node, incarnation, sequence, fed)
        if ended is not None:
            self.pieces.forget(node)
            self.machine.session_closed(ended)
        if not admitted:
            return False
        if fed or self.feeds:
            self.feeds.batch((node, incarnation), sequence, fed, index)
        session = (node, incarnation)
        results = self._take_part(session, form, index, start, end) if form else self._run(session, start, end)
        if results is None:
            # Nobody can say how far it went. What is held here, and may have been settled behind the cut, goes back.
            self.sessions.cut(node, incarnation)
            self.pieces.forget(node)
            self.machine.session_closed((node, incarnation))
        if node == self._node and not self.session.is_fed:
            if incarnation != self.session.sender.incarnation:
                return False
            self.session.answered(sequence, results)
        elif fed:
            self.feeds.answered(node, sequence, results)
        return results is None and self._has_ended(node, incarnation)

    def _has_ended(self, node: int, incarnation: int) -> bool:
        """A session has ended. Whether it is the one that is told here."""
        if node == self._node and not self.session.is_fed:
            return incarnation == self.session.sender.incarnation
        row = self.row(node)
        if row is not None and self.feeds:
            self.feeds.ended(row)
        return False

    def row(self, node: int) -> SessionRow | None:
        """What the table of sessions has of a node."""
        last = self.sessions.last(node)
        return None if last is None else (node, *last)

    def _take_part(
        self, session: SessionKey, form: int, index: int, start: int, end: int
    ) -> Sequence[object] | None:
        """A PIECE is noted, a WHOLE is run; see `_run`."""
        if form == PIECE:
            self.pieces.add(session[0], index, start, end - start)
            return ()
        if form == WHOLE:
            rest_bytes = self.pieces.complete(session[0], index)
            if start == end and rest_bytes:
                self.pieces.note_read(index)
                self.machine.read_on(self.payload(index))
            return self._run(session, start, end + rest_bytes)
        if self._trace is not None:
            self._trace(f"group {self._group}: a batch of session {session} is of the unknown form {form}")
        return None

    def _run_borrowing(self, index: int, data: bytes, start: int, end: int) -> None:
        """A command of the leader whose body stands in another entry. If nothing of that is alive any more, the command
        was applied before: it takes what is alive somewhere else."""
        fault = "something follows it" if end != len(data) else ""
        if not fault and end - start < LENT.size:
            fault = "it is too short"
        if not fault:
            entry, at, length = LENT.unpack_from(data, start)
            if entry not in self.machine.live_entries():
                return
            if self.pieces.borrow(index, entry, at, length):
                self._run(None, start + LENT.size, end + length)
                return
            fault = f"entry {entry} has no such octets"
        if self._trace is not None:
            self._trace(f"group {self._group}: what borrows its body in entry {index} is passed over: {fault}")

    def _run(self, session: SessionKey | None, start: int, end: int) -> Sequence[object] | None:
        """Commands of one batch, and their answers; None if it was cut short by bytes that are not a command (a
        defect: logged, and the same on all replicas)."""
        try:
            return self.machine.apply(session, start, end)
        except BadCommand as error:
            if self._trace is not None:
                self._trace(f"group {self._group}: a batch of session {session} was cut short: {error}")
            return None

    # ------------------------------------------------------------------ who tells this node's session

    def can_tell(self) -> bool:
        """Whether this replica can go on where the feed of this node's session is."""
        session = self.session
        row = self.row(self._node)
        if session.is_broken and row is not None and row[1] == session.sender.incarnation and not is_open(row[3]):
            session.ended(row)
        return can_resume(self.feeds.get(self._node), row, session.key, session.cursor)

    def tell(self, applied: int) -> None:
        """This replica tells this node's session from here on, what it has kept for it first; see `can_tell`."""
        session, feed = self.session, self.feeds.get(self._node)
        incarnation = session.sender.incarnation
        kept = [] if feed is None or feed.incarnation != incarnation else list(feed.entries)
        session.is_told_by_replica()
        for entry in kept:
            if entry.index > session.cursor and session.sender.incarnation == incarnation:
                session.tell(entry)
        self.feeds.tells(self._node)
        session.cursor = applied

    # ------------------------------------------------------------------ the state as a whole

    def state_steps(self) -> StateSteps:
        """The replicated state as of now: clocks, sessions, state machine."""
        rows = self.sessions.rows()
        head = encode_group_head(self.clock.time_ms, self.clock.applied_led_ms, rows, self.pieces.rows())
        return StateSteps(head, self.machine.snapshot_steps())

    def reading(self, state: bytes) -> "StateReading":
        """Begin to read a state made by `state_steps`. Raises BadSnapshot."""
        try:
            time_ms, led_ms, rows, pieces, start = decode_group_head(state)
        except GroupStateError as error:
            raise BadSnapshot(str(error)) from error
        return StateReading(time_ms, led_ms, rows, pieces, Copying(b"", state, start), self.machine)

    def restore(self, read: "StateReading", index: int) -> None:
        """Take over a state of this index that was read to its end."""
        read.finish()
        self.sessions.restore(read.rows)
        self.pieces.restore(read.pieces)
        self.clock.applied(read.time_ms, read.led_ms)
        self.feeds.restore(read.rows, index)

    def install(self, read: "StateReading", index: int) -> None:
        """Take over a leader's state while running: what this node has missed is told by what the state says of it."""
        machine = self.machine
        told = machine.told()
        self.restore(read, index)
        machine.take_released()
        machine.take_effects()
        session, row = self.session, self.row(self._node)
        if session.is_fed or row is None or row[1] != session.sender.incarnation:
            return
        if not is_open(row[3]):
            session.ended(row)
            return
        session.has_missed(machine.missed(told, session.key, session.unseen(row)))
        if row[3] == FED and session.wants_feeds:
            self.feeds.begin(session.key, index)
            session.is_told_by_feeds(index)
        else:
            self.feeds.tells(self._node)

    def live_entries(self) -> Iterable[int]:
        """Indices of the entries whose payload is still needed, by the state or by feeds."""
        live = self.machine.live_entries()
        if self.pieces:
            live = chain(live, self.pieces.held)
        return chain(live, self.feeds.needed()) if self.feeds else live

    def state_entries(self) -> Iterable[int]:
        """Indices of the entries whose payload the replicated state refers to."""
        live = self.machine.live_entries()
        return chain(live, self.pieces.named()) if self.pieces else live

    def take_released(self) -> list[int]:
        """Indices of entries that nothing here needs any more, since the last call."""
        released = self.machine.take_released()
        if self.pieces:
            live = self.machine.live_entries()
            return self.pieces.released(released, live, self.feeds.withhold, self.feeds.needed())
        return self.feeds.withhold(released)


def _no_payload(index: int) -> bytes:
    raise LookupError(f"there is no log that entry {index} could be read from")
