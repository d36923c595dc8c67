"""What a committed entry does on this node: sessions, state machine, answers and effects for this node's clients.

    entry -> clocks, then batch by batch: session table -> state machine -> waiters of this node's own commands

Everything here but the waiters is the same on all replicas, and is what a snapshot holds.
"""

from collections.abc import Callable, Sequence

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.compaction import StateSteps
from mayfly.cluster.group.sessions import (
    BATCH_HEADER,
    CUT,
    ENTRY_HEADER,
    ENTRY_VERSION,
    KIND_INTERNAL,
    KIND_SESSION,
    OPEN,
    EnvelopeError,
    SessionKey,
    SessionSender,
    SessionTable,
)
from mayfly.cluster.group.state_layout import GroupStateError, SessionRow, decode_group_state, encode_group_state
from mayfly.cluster.group.state_machine import BadCommand, BadSnapshot, GroupEvents, RestoreSteps, StateMachine


class StateReading:
    """A group's state (see `cluster.group.state_layout`) that is read in steps: it is not in place before
    `Applying.restore`.
    """

    def __init__(self, time_ms: int, led_ms: int, rows: list[SessionRow], machine: RestoreSteps) -> None:
        self.time_ms: int = time_ms
        self.led_ms: int = led_ms
        self.rows: list[SessionRow] = rows
        self.machine: RestoreSteps = machine

    def step(self) -> bool:
        """Read a bounded part of it; whether that was the last. Raises BadSnapshot."""
        return self.machine.step()


class Applying:
    """The replicated state of one group, and this node's session with it.

    `lost` is what a waiter is called with when its answer can't be known."""

    def __init__(
        self,
        group: int,
        node: int,
        machine: StateMachine,
        events: GroupEvents,
        sender: SessionSender,
        lost: object,
        trace: Callable[[str], None] | None,
    ) -> None:
        self.machine: StateMachine = machine
        self.clock: GroupClock = GroupClock()
        self.sessions: SessionTable = SessionTable()
        self.sender: SessionSender = sender
        self.session_broken: bool = False
        """Whether this node's session missed effects, and therefore has to be ended through the log."""
        self._group = group
        self._node = node
        self._events = events
        self._lost = lost
        self._trace = trace

    def apply(self, index: int, data: bytes) -> None:
        """Apply an entry's payload. Raises EnvelopeError when it is of another version."""
        version, time_ms, led_ms = ENTRY_HEADER.unpack_from(data)
        if version != ENTRY_VERSION:
            raise EnvelopeError(f"entry {index} of group {self._group} has version {version}, {ENTRY_VERSION} expected")
        machine = self.machine
        self.clock.applied(time_ms, led_ms)
        machine.begin(index, time_ms, led_ms, data)
        position, end = ENTRY_HEADER.size, len(data)
        lost = False
        while position < end:
            kind, node, incarnation, sequence, length = BATCH_HEADER.unpack_from(data, position)
            position += BATCH_HEADER.size
            if kind == KIND_SESSION:
                lost = self._apply_session_batch(node, incarnation, sequence, position, position + length) or lost
            elif kind == KIND_INTERNAL:
                self._run(None, position, position + length)
            elif self.sessions.close(node, incarnation):
                machine.session_closed((node, incarnation))
                lost = lost or (node, incarnation) == (self._node, self.sender.incarnation)
            position += length
        machine.finish()
        effects = machine.take_effects()
        if effects and not self.session_broken:
            self._events.group_effects(self._group, effects)
        if lost:
            self._restart_session()

    def _apply_session_batch(self, node: int, incarnation: int, sequence: int, start: int, end: int) -> bool:
        """Whether it has ended the session of this node, now."""
        admitted, ended = self.sessions.admit(node, incarnation, sequence)
        if ended is not None:
            self.machine.session_closed(ended)
        if not admitted:
            return False
        results = self._run((node, incarnation), start, end)
        if results is None:
            # Nobody can say how far it went. What is held here, and may have been settled behind the cut, goes back.
            self.sessions.cut(node, incarnation)
            self.machine.session_closed((node, incarnation))
        if node != self._node or incarnation != self.sender.incarnation:
            return False
        position = 0
        for answers, waiter in self.sender.applied(sequence):
            result: object = None
            if results is None:
                result = self._lost
            elif answers:
                result = results[position] if position < len(results) else self._lost
                position += 1
            if waiter is not None:
                waiter(result)
        return results is None

    def _run(self, session: SessionKey | None, start: int, end: int) -> Sequence[object] | None:
        """Commands of one batch, and their answers; None if it was cut short by what is no command (a defect: told, and
        alike on all replicas)."""
        try:
            return self.machine.apply(session, start, end)
        except BadCommand as error:
            if self._trace is not None:
                self._trace(f"group {self._group}: a batch of session {session} was cut short: {error}")
            return None

    def _skip_unseen(self) -> None:
        """What was applied where this node could not see it gets no answer: what has none is known to be done, unless
        its batch was cut short."""
        known = self.sessions.last(self._node)
        if known is None or known[0] != self.sender.incarnation:
            return
        _, sequence, state = known
        for answers, waiter in self.sender.skip(sequence - 1 if state == CUT else sequence):
            if waiter is not None:
                waiter(self._lost if answers else None)
        for _, waiter in self.sender.skip(sequence):
            if waiter is not None:
                waiter(self._lost)

    def _restart_session(self) -> None:
        """This node's session is over: what is not applied goes into a new one."""
        self._skip_unseen()
        self.sender.restart(self.sender.incarnation + 1)
        self.session_broken = False
        self._events.group_session_lost(self._group)

    # ------------------------------------------------------------------ the state as a whole

    def state_steps(self) -> StateSteps:
        """The replicated state as of now: clocks, sessions, state machine."""
        head = encode_group_state(self.clock.time_ms, self.clock.applied_led_ms, self.sessions.rows(), b"")
        return StateSteps(head, self.machine.snapshot_steps())

    def reading(self, state: bytes) -> "StateReading":
        """Begin to read a state made by `state_steps`. Raises BadSnapshot."""
        try:
            time_ms, led_ms, rows, machine_state = decode_group_state(state)
        except GroupStateError as error:
            raise BadSnapshot(str(error)) from error
        return StateReading(time_ms, led_ms, rows, self.machine.restore_steps(machine_state))

    def restore(self, read: "StateReading") -> None:
        """Take over a state that was read to its end."""
        read.machine.finish()
        self.sessions.restore(read.rows)
        self.clock.applied(read.time_ms, read.led_ms)

    def install(self, read: "StateReading") -> None:
        """Take over a leader's state while running: this node has missed what happened before it."""
        self.restore(read)
        self.machine.take_released()
        self.machine.take_effects()
        known = self.sessions.last(self._node)
        if known is not None and known[0] == self.sender.incarnation:
            self._skip_unseen()
            if known[2] == OPEN:
                self.session_broken = True
            else:
                self._restart_session()
